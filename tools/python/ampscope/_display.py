"""How notebooks show what the module defines."""
from __future__ import annotations

from ._ampscope import Format, Histogram, formats_in, usual_formats
from ._arrays import FormatLike, as_format
from ._tables import Table

_FACTS = ("bits", "exponent_bits", "fraction_bits", "bias", "max", "min_normal", "min_subnormal", "epsilon",
          "has_infinity", "has_nan")


def facts(*formats: FormatLike) -> Table:
    """What formats can hold, side by side: a Table. facts("fp16", "bf16")"""
    return Table({"format": str(f), **{fact: getattr(f, fact) for fact in _FACTS}} for f in map(as_format, formats))


def _histogram_frame(self, formats=usual_formats, log2_scales=(0,)):
    """classify() for several formats and scales as a pandas.DataFrame."""
    return Table({"format": str(f), "log2_scale": s, **self.classify(f, s)}
                 for f in formats_in(formats) for s in log2_scales).frame()


Format._repr_html_ = lambda self: facts(self)._repr_html_()
Histogram.frame = _histogram_frame
