"""What an emulation computed, and what it left to PyTorch."""
import torch
import torch.utils.flop_counter

from .._tables import Table

AS_ASKED = "as asked"
_BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def types_of(args):
    return " x ".join(str(t.dtype).removeprefix("torch.") for t in args[:2] if isinstance(t, torch.Tensor))


def multiply_adds_of(name, args, kwargs, result):
    """Multiply-adds of an op that was left to PyTorch."""
    short = name.partition(".")[0].rstrip("_")
    if short in ("mv", "dot", "vdot", "addmv"):  # which PyTorch does not count
        return args[1 if short == "addmv" else 0].numel()
    if short == "_trilinear":
        return result.numel() * args[0].shape[-1] * args[2].shape[-1] if result.dim() else 0
    if short == "_int_mm":
        return result.numel() * args[0].shape[-1]
    if any(isinstance(t, torch.Tensor) and t.is_nested for t in args):
        return _of_nested(short, args)
    count = torch.utils.flop_counter.flop_registry.get(getattr(torch.ops.aten, short, None))
    return count(*args, **kwargs, out_val=result) // 2 if count and args[0].layout == torch.strided else 0


def _of_nested(name, args):
    """The same of tensors that are lists of tensors, which PyTorch does not count either."""
    lists = [t.detach().unbind() if t.is_nested else [t] for t in args[:2] if isinstance(t, torch.Tensor)]
    lists = [of * max(map(len, lists)) if len(of) == 1 else of for of in lists]
    columns = 0 if name == "linear" else -1
    return sum(a.numel() * b.shape[columns] for a, b in zip(*lists))


class Coverage(Table):
    """Rows of module, op, formats of the operands, how it was computed, calls, and multiply-adds.

    roundings   a Table of the ops that multiply no matrices and were PyTorch's in the model's first call: how many
                elements of their results differ from those of amp-train's ops, which are rounded once from more bits,
                and by how many units in the last place at most. Empty with strict="ops"
    unused      accumulators that the precision names and that no product so far had operands for
    left_out    a Table of the operands that the recipe's library does not cast or refuses, as its blocks do not fill
                them (TransformerEngine's MXFP8: both axes must be multiples of 32): module, operand, the first such
                shape. Here they are cast, and the last block of a line has what is left
    """

    def __init__(self, rows, roundings, unused=(), left_out=()):
        super().__init__(rows)
        self.roundings, self.unused, self.left_out = Table(roundings), list(unused), Table(left_out)

    @property
    def multiply_adds(self):
        return sum(row["multiply_adds"] for row in self)

    @property
    def share(self):
        """The share of multiply-adds that ran as asked; 1 if there were none."""
        asked = sum(row["multiply_adds"] for row in self if row["how"] == AS_ASKED)
        return asked / self.multiply_adds if self.multiply_adds else 1.0

    def __str__(self):
        ran = f"{_percent(self.share)} of {self.multiply_adds:,} multiply-adds ran as asked."
        lines = [ran if self else "No product of the model ran."]
        if self and self.unused:
            lines.append(f"No product had operands that {' or '.join(self.unused)} takes.")
        if self.left_out:
            lines += ["", "cast here, but not by the recipe's library, whose blocks these shapes do not fill:"]
            modules = dict.fromkeys(row["module"] for row in self.left_out)
            width = max(len(module or "(model)") for module in modules)
            lines += [f"  {module or '(model)':{width}}  " + ", ".join(
                f"{row['operand']} {row['shape']}" for row in self.left_out if row["module"] == module)
                for module in modules]
        for title, asked in (("not as asked", False), ("as asked", True)):
            rows = [row for row in self if (row["how"] == AS_ASKED) == asked]
            width = max((len(row["module"] or "(model)") for row in rows), default=0)
            if rows:
                lines += ["", f"{title}:"]
            lines += [f"  {row['module'] or '(model)':{width}}  {row['multiply_adds']:>15,}  {row['op']}, "
                      + (row["operands"] if asked else row["how"]) for row in rows]
        return "\n".join(lines + _rounding_lines(self.roundings))

    __repr__ = __str__


def _percent(share):
    """Never 100 % unless it is all."""
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def _rounding_lines(rows):
    if not rows:
        return []
    width = max(len(f"{row['op']}, {row['type']}") for row in rows)
    return ["", "other ops are PyTorch's; beside those of strict=\"ops\", in the first call:"] + [
        f"  {row['op'] + ', ' + row['type']:{width}}  "
        + (f"{row['differing']:,} of {row['elements']:,} elements differ, by at most {row['max_ulps']:,} ulp"
           if row["differing"] else f"none of {row['elements']:,} elements differ") for row in rows]


class Roundings:
    """How far results of PyTorch's ops are from ours, by op and type."""

    def __init__(self):
        self._found = {}

    def add(self, op, theirs, ours):
        """ours: None where there is none."""
        if ours is None or theirs.numel() == 0:
            return
        apart = _ulps(theirs, ours)
        key = op.partition(".")[0], str(theirs.dtype).removeprefix("torch.")
        elements, differing, most = self._found.get(key, (0, 0, 0))
        self._found[key] = (elements + apart.numel(), differing + int(apart.count_nonzero()),
                            max(most, int(apart.max())))

    def rows(self):
        return [{"op": op, "type": dtype, "elements": elements, "differing": differing, "max_ulps": most}
                for (op, dtype), (elements, differing, most) in self._found.items()]


def _ulps(a, b):
    """How many numbers of their type apart, element by element; every NaN is one number, beside infinity."""
    def place(x):
        bits = x.detach().abs().view(_BITS[x.dtype]).long()
        beyond = torch.tensor(torch.inf, dtype=x.dtype).view(_BITS[x.dtype]).long() + 1
        return torch.where(x.isnan(), beyond, bits * torch.where(x.signbit(), -1, 1))
    return (place(a) - place(b)).abs()
