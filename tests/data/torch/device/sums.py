"""Sums of products as devices compute them: by a row of ampscope's table, and with K split into parts.

Each part is a row's sum. The parts' sums are added in FP32, or with each sum of two rounded to the output's type.
numpy and ampscope only.
"""
from typing import NamedTuple

import ampscope
import numpy as np

from .rules import codes_of, near, product_inputs, scaled_inputs, scales_of
from .steps import fused


def runs(k, own):
    """Parts of `own` products each, and the rest."""
    return [slice(begin, min(begin + own, k)) for begin in range(0, k, own)]


def cyclic(k, n, tile):
    """n parts, each every nth tile."""
    return [np.flatnonzero(np.arange(k) // tile % n == part) for part in range(n)]


def orders_of(n):
    """Orders in which n parts are added."""
    orders = {"in order": [*range(n)]}
    if n > 2:
        orders |= {"last first": [n - 1, *range(n - 1)], "backwards": [*range(n)][::-1]}
    return orders


class Sums:
    """A product of a (M x K) and b (N x K), as FP32 numbers of the given formats, by each row. A bias is there for
    kernels that begin with it."""

    def __init__(self, a, b, formats, bias=None):
        self.a, self.b, self.formats, self.bias, self.known = a, b, formats, bias, {}

    def of(self, row, part=None):
        """The sums of a part's products."""
        key = row, None if part is None else (part if isinstance(part, slice) else part.tobytes()).__repr__()
        if key not in self.known:
            a, b = (self.a, self.b) if part is None else (self.a[:, part], self.b[:, part])
            self.known[key] = ampscope.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b.T), row, threads=1,
                                              a_format=self.formats[0], b_format=self.formats[1])
        return self.known[key]


class Way(NamedTuple):
    """A way to compute a product."""
    row: str = ""
    runs: int = 0  # how many products a part has beside each other; 0: it has no such parts
    cyclic: tuple = ()  # how many parts, and of how many products are the tiles that they take in turn
    order: str = "in order"  # in which the parts are added
    stored: str = "fp32"  # what the parts are rounded to
    each: str = "fp32"  # what each sum of two parts is rounded to
    bias_first: bool = False  # the first part is added to the bias
    steps: tuple = ()  # without a row: the number of products of a step, and of bits that are kept

    def parts(self, k):
        """The indices of each part's products."""
        return runs(k, self.runs) if self.runs else cyclic(k, *self.cyclic) if self.cyclic else []

    def compute(self, sums):
        """FP32 numbers before they are stored."""
        if self.steps:
            return fused(sums.a, sums.b, sums.formats, *self.steps)
        ways = self.parts(sums.a.shape[1])
        if not ways:
            return sums.of(self.row)
        parts = [near(sums.of(self.row, part), self.stored) for part in ways]
        result = sums.bias if self.bias_first else None
        for number in orders_of(len(parts))[self.order]:
            result = parts[number] if result is None else near(result + parts[number], self.each)
        return result

    def name(self, k):
        """In words; begins with the name of our own split-K if it is one."""
        if self.steps:
            return "steps of {} products, {} bits".format(*self.steps)
        count = len(self.parts(k))
        if not count:
            return self.row
        if self.runs:
            own = f"split{count}: " if self.runs == -(-k // 128 // count) * 128 else ""
            text = f"{own}{count} runs of {self.runs}"
        else:
            n, tile = self.cyclic
            text = f"{f'split{n}cyclic: ' if tile == 64 else ''}{n} parts of every {n}th {tile}"
        text = f"{self.row}, {text}, added {self.order}"
        if self.bias_first:
            text += " to the bias"
        if self.each != "fp32":
            return f"{text}, each sum {self.each}"
        return text if self.stored == "fp32" else f"{text}, stored as {self.stored}"


def finished(x, out, rows=None, columns=None):
    """FP32 numbers as they are stored: bits."""
    return codes_of(x, out)


SCALINGS = {
    "times (scale a times scale b)": lambda x, a, b: x * (a * b),
    "times scale a, times scale b": lambda x, a, b: x * a * b,
    "times both, rounded once": lambda x, a, b: (x.astype(np.float64) * a * b).astype(np.float32),
    "times scale b, times scale a": lambda x, a, b: x * b * a,
}


class Asked:
    """What a case of matmul.py or scaled_mm.py asked for: .operands, of each way to read them its kind, a, b and
    formats; .endings, what may be done to sums before they are stored; .bias, and whether it is added."""

    def __init__(self, case):
        self.m, self.n, self.k = case["m"], case["n"], case["k"]
        self.bias, self.biased = None, "bias" in case.get("op", "")
        if "scales" in case:
            formats, kind = (case["a"], case["b"]), "fp8" if case["fast"] else "fp8 promoted"
            self.operands = {"": (kind, *scaled_inputs(self.m, self.n, self.k, *formats), formats)}
            # That of each kind of scales first which gives the bits of all cases: a narrow output may hide the order.
            names = list(SCALINGS) if case["scales"] != "rows" else list(SCALINGS)[::-1]
            self.endings = {"": finished} if case["scales"] == "one" else {
                name: self._scaled(SCALINGS[name], *scales_of(case["scales"], self.m, self.n)) for name in names}
            return
        dtype = case["dtype"]
        a, b, self.bias = product_inputs(self.m, self.n, self.k, dtype, case.get("spread", 0))
        kind = "fp16 sums" if case["setting"] == "fp16 sums" else dtype
        self.operands = {"": (kind, a, b, (dtype, dtype))}
        if dtype == "fp32" and case["setting"] != "highest":
            cut = {"cut to TF32": ("tf32", a, b, ("fp32", "fp32"))}
            rounded = {f"{rounding} to TF32": ("tf32", *(ampscope.quantize(x, "tf32", rounding=rounding)
                                                         for x in (a, b)), ("tf32", "tf32"))
                       for rounding in ("nearest_even", "nearest_away")}
            self.operands = cut | rounded | self.operands
        self.endings = {"": finished}
        if self.biased:
            self.endings = {"bias added in FP32": self._biased(lambda x, out: x),
                            "rounded, then bias added": self._biased(near), "": finished}

    @staticmethod
    def _scaled(order, scale_a, scale_b):
        def finish(x, out, rows, columns):
            a, b = (s if s.size == 1 else s[part] for s, part in ((scale_a, rows), (scale_b, columns)))
            return finished(order(x, a, b.T), out)
        return finish

    def _biased(self, before):
        return lambda x, out, rows, columns: finished(before(x, out) + self.bias[columns], out)

    def sums(self, operands, rows=slice(None), columns=slice(None)):
        _, a, b, formats = self.operands[operands]
        return Sums(a[rows], b[columns], formats, None if self.bias is None else self.bias[columns])
