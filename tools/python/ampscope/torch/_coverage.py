"""What an emulation computed, and what it left to PyTorch."""
from .._tables import Table

AS_ASKED = "as asked"


class Coverage(Table):
    """Rows of module, op, formats of the operands, how it was computed, calls, and multiply-adds."""

    @property
    def multiply_adds(self):
        return sum(row["multiply_adds"] for row in self)

    @property
    def share(self):
        """The share of multiply-adds that ran as asked; 1 if there were none."""
        asked = sum(row["multiply_adds"] for row in self if row["how"] == AS_ASKED)
        return asked / self.multiply_adds if self.multiply_adds else 1.0

    def __str__(self):
        lines = [f"{_percent(self.share)} of {self.multiply_adds:,} multiply-adds ran as asked."]
        for title, asked in (("not as asked", False), ("as asked", True)):
            rows = [row for row in self if (row["how"] == AS_ASKED) == asked]
            width = max((len(row["module"] or "(model)") for row in rows), default=0)
            if rows:
                lines += ["", f"{title}:"]
            lines += [f"  {row['module'] or '(model)':{width}}  {row['multiply_adds']:>15,}  {row['op']}, "
                      + (row["operands"] if asked else row["how"]) for row in rows]
        return "\n".join(lines)

    __repr__ = __str__


def _percent(share):
    """Never 100 % unless it is all."""
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"
