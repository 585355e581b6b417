"""Pictures of the project's own chart writer."""
from __future__ import annotations

from typing import Iterable, Mapping

from . import _ampscope


class Picture:
    """An SVG document; notebooks show it."""

    def __init__(self, svg):
        self.svg = svg

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return f"<ampscope.Picture of {len(self.svg)} bytes>"


def lines(series: Mapping[str, Iterable[float | tuple[float, float]]], *, title: str = "", x_label: str = "",
          log2_y: bool = False) -> Picture:
    """A Picture of lines: series maps names to values, or to pairs (x, y) with ascending x; NaN and infinity interrupt
    a line. log2_y: values are exponents of two. Raises ValueError without two points."""
    pairs = {name: [v if isinstance(v, tuple) else (i, v) for i, v in enumerate(values)]
             for name, values in series.items()}
    floats = {name: [(float(x), float(y)) for x, y in points] for name, points in pairs.items()}
    return Picture(_ampscope.lines(floats, title, x_label, log2_y))
