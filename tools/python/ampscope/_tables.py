"""Tables, and the columns of each question's main one, whose rows come from a tool's JSON or from findings."""
from __future__ import annotations

import html
from typing import Any


class Table(list):  # type: ignore[type-arg]
    """Rows: dicts of the same keys. Notebooks show it; frame() is the same as a pandas.DataFrame."""

    def frame(self) -> Any:
        import pandas
        return pandas.DataFrame(list(self))

    def _repr_html_(self):
        def line(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(_shown(cell))}</{tag}>" for cell in cells) + "</tr>"
        lines = [line(row, "th") for row in self[:1]] + [line(row.values(), "td") for row in self]
        return "<table>" + "".join(lines) + "</table>"

    def __repr__(self):
        return f"<ampscope.Table of {len(self)} rows>"


def _shown(cell):
    return "" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell)


_COLUMNS = {
    "histogram": "tensor step kind elements zero nan inf format scale log2 underflow subnormal normal overflow error",
    "loss_scale": "run scaler steps skipped first_good_step final_scale underflow nonzero alarms",
    "adam": "run format eps stored dominated nonfinite v_underflow v_stuck nonzero",
    "diff": "tensor step kind a_dtype b_dtype elements differing max_ulps max_relative max_absolute relative_norm",
}


def main_table(question, rows):
    """The Table of a question, of rows that have a value for each of its columns."""
    return Table(dict(zip(_COLUMNS[question].split(), row)) for row in rows)


def plain_table(rows):
    """The Table of rows of a tool's JSON: all that they say, in its order. Of an object the mean, the ends of its
    interval, or a share is a column; lists and other objects are left out."""
    return Table(_plain(row) for row in rows)


def _plain(row):
    columns = {}
    for key, value in row.items():
        if not isinstance(value, (dict, list)):
            columns[key] = value
        elif "mean" in value:
            columns[key] = value["mean"]
            columns |= {f"{key}_{end}": value[end] for end in ("low", "high") if end in value}
        elif "whole" in value:
            columns[key] = value["part"] / value["whole"] if value["whole"] else None
    return columns
