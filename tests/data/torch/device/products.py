"""Which sums of ours give the bits of a recorded product: rows of ampscope's table, and ways to split K.

A way to split K says which products belong to which part, and in what order the parts' sums are added: in FP32, of sums
that are kept in FP32 or rounded to the output's type before, or with each sum of two rounded to that type. Each part is
a row's sum. Ways are tried on a few elements; those that hold are then tried on all, by the hash of the whole product.
"""
import itertools

import ampscope
import numpy as np

from .distances import described
from .recording import digest
from .rules import codes_of, near
from .steps import fused, kinds

ROWS = {
    "fp16": ["hopper-wgmma-fp16", "ampere-fp16", "hopper-wgmma-fp16-acc16", "fp32", "exact", "volta-fp16",
             "ampere-fp16-acc16", "pairwise", "kahan"],
    "bf16": ["hopper-wgmma-bf16", "ampere-bf16", "fp32", "exact", "pairwise", "kahan"],
    "fp32": ["fp32", "exact", "pairwise", "kahan"],
    "tf32": ["hopper-wgmma-tf32", "ampere-tf32", "fp32", "exact"],
    "fp8": ["hopper-wgmma-fp8", "hopper-wgmma-fp8-promote128", "hopper-wgmma-fp8-promote64",
            "hopper-wgmma-fp8-promote32", "hopper-wgmma-fp8-promote256", "hopper-wgmma-fp8-promote512",
            "hopper-mma-fp8", "blackwell-fp8", "fp32", "exact"],
}
MOST_PARTS = 128


def orders_of(n):
    """Orders in which n parts are added."""
    yield "in order", [*range(n)]
    if n > 2:
        yield "last first", [n - 1, *range(n - 1)]
        yield "backwards", [*range(n)][::-1]


def runs(k, own):
    """Parts of `own` products each, and the rest."""
    return [slice(begin, min(begin + own, k)) for begin in range(0, k, own)]


def cyclic(k, n, tile):
    """n parts, each every nth tile."""
    return [np.flatnonzero(np.arange(k) // tile % n == part) for part in range(n)]


def ways(k):
    """The ways to share out k products: a name, which begins with that of our split-K if it is one, and the indices of
    each part. Runs come first, of whole tiles, the widest tiles first."""
    seen = {k}
    for tile in (128, 64, 32, 16, 8, 4, 2, 1):
        tiles = -(-k // tile)
        for n in range(2, min(tiles, MOST_PARTS) + 1):
            own = -(-tiles // n) * tile
            if own not in seen:
                seen.add(own)
                parts = runs(k, own)
                yield f"{f'split{n}: ' if tile == 128 and len(parts) == n else ''}{len(parts)} runs of {own}", parts
    for tile in (64, 32, 16, 8, 4, 2, 1):
        for n in range(2, min(-(-k // tile), 17)):
            yield f"{f'split{n}cyclic: ' if tile == 64 else ''}{n} parts of every {n}th {tile}", cyclic(k, n, tile)


class Sums:
    """A product of a (M x K) and b (N x K), as FP32 numbers of the given formats, by each row."""

    def __init__(self, a, b, a_format, b_format):
        self.a, self.b, self.formats, self.known = a, b, (a_format, b_format), {}

    def of(self, row, part=None):
        """The sums of a part's products."""
        key = row, None if part is None else (part if isinstance(part, slice) else part.tobytes()).__repr__()
        if key not in self.known:
            a, b = (self.a, self.b) if part is None else (self.a[:, part], self.b[:, part])
            self.known[key] = ampscope.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b.T), row, threads=1,
                                              a_format=self.formats[0], b_format=self.formats[1])
        return self.known[key]


def total(sums, row, way, order=None, stored="fp32", each="fp32"):
    """Parts, rounded to `stored` and added in FP32, each sum of two rounded to `each`; the first is not added to
    anything."""
    parts = [near(sums.of(row, part), stored) for part in way]
    order = range(len(parts)) if order is None else order
    result = parts[order[0]]
    for number in order[1:]:
        result = near(result + parts[number], each)
    return result


class Candidate:
    """A way to compute a product; compute(Sums) gives FP32 numbers before they are stored."""

    def __init__(self, name, compute):
        self.name, self.compute = name, compute


def candidates(kind, k, out):
    """The simple ones first."""
    for row in ROWS[kind]:
        yield Candidate(row, lambda sums, row=row: sums.of(row))
    low = [] if out == "fp32" else [(out, "fp32", f", stored as {out}"), (out, out, f", each sum {out}")]
    for row in ROWS[kind][:3 if kind == "fp8" else 1 if kind == "fp32" else 3]:
        for way, parts in ways(k):
            for (stored, each, text), (order, numbers) in itertools.product(
                    [("fp32", "fp32", ""), *low], orders_of(len(parts))):
                yield Candidate(f"{row}, {way}, added {order}{text}",
                                lambda sums, row=row, parts=parts, numbers=numbers, stored=stored, each=each:
                                total(sums, row, parts, numbers, stored, each))
    if kind != "fp32" and k <= 4096:
        for products, fraction in kinds(kind):
            yield Candidate(f"steps of {products} products, {fraction} bits",
                            lambda sums, p=products, f=fraction: fused(sums.a, sums.b, sums.formats, p, f))


def finished(x, out, rows=None, columns=None):
    """FP32 numbers as they are stored: bits."""
    return codes_of(x, out)


def search(recorded, a, b, formats, kind, out, *, rows=None, columns=None, sha=None, finish=finished):
    """The name of the first candidate that gives the recorded bits, and what was found: "all" (the hash of the whole
    product), "kept" elements only; or None and the distance of the nearest row. `finish` makes bits of sums, and of
    which rows and columns of the product they are."""
    k = a.shape[1]
    rows = np.arange(a.shape[0]) if rows is None else np.asarray(rows)
    columns = np.arange(b.shape[0] if columns is None else min(columns, b.shape[0]))
    few = np.ix_(np.unique(np.linspace(0, len(rows) - 1, 2).astype(int)), np.arange(min(len(columns), 16)))
    some_rows, some_columns = rows[few[0].ravel()], columns[few[1].ravel()]
    small, kept = Sums(a[some_rows], b[some_columns], *formats), Sums(a[rows], b[columns], *formats)
    every, best = (np.arange(a.shape[0]), np.arange(b.shape[0])), None
    for candidate in candidates(kind, k, out):
        if not np.array_equal(finish(candidate.compute(small), out, some_rows, some_columns), recorded[few]):
            continue
        if not np.array_equal(finish(candidate.compute(kept), out, rows, columns), recorded):
            continue
        if sha is None:
            return candidate.name, "kept"
        if digest(finish(candidate.compute(Sums(a, b, *formats)), out, *every)) == sha:
            return candidate.name, "all"
        best = best or (candidate.name, "kept, not all")  # few elements in a narrow type are equal by chance
    if best:
        return best
    nearest = {row: described(finish(kept.of(row), out, rows, columns), recorded) for row in ROWS[kind][:4]}
    return None, "; ".join(f"{row}: {text}" for row, text in nearest.items())
