"""Which sums of ours give the bits of a recorded product: rows of ampscope's table, and ways to split K.

A way to split K says which products belong to which part, in what order the parts' sums are added in FP32, and to what
they are rounded before. Each part is a row's sum. Ways are tried on a few elements; those that hold are then tried on
all, by the hash of the whole product.
"""
import itertools

import ampscope
import numpy as np

from .distances import described
from .records import bits, digest, rounded, values_of
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
PARTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 21, 22, 24, 27, 28, 32, 48, 64, 128)


def rows_first(n):
    """Orders in which n parts are added."""
    yield "in order", [*range(n)]
    if n > 2:
        yield "last first", [n - 1, *range(n - 1)]
        yield "backwards", [*range(n)][::-1]


def ways(k, fine):
    """The ways to share out k products: a name, which begins with that of our split-K if it is one, and the indices of
    each part. `fine`: tiles of less than 16, too."""
    seen = set()
    for tile in ((128, 64, 32, 16) + ((8, 4, 2, 1) if fine else ())):
        tiles = -(-k // tile)
        for n in PARTS:
            if n > tiles:
                break
            own = -(-tiles // n) * tile
            begins = tuple(range(0, k, own))
            if len(begins) > 1 and begins not in seen:
                seen.add(begins)
                ours = f"split{n}: " if tile == 128 and len(begins) == n else ""
                yield f"{ours}{len(begins)} runs of {own}", [slice(b, min(b + own, k)) for b in begins]
            if n <= 8 and tiles > n:
                ours = f"split{n}cyclic: " if tile == 64 else ""
                yield f"{ours}{n} parts of every {n}th {tile}", [
                    np.flatnonzero(np.arange(k) // tile % n == part) for part in range(n)]


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


def total(sums, row, way, order, stored):
    """Parts, rounded to `stored` and added in FP32; the first is not added to anything."""
    parts = [values_of(bits(rounded(p, stored)), stored) for p in (sums.of(row, part) for part in way)]
    result = parts[order[0]]
    for number in order[1:]:
        result = result + parts[number]
    return result


class Candidate:
    """A way to compute a product; compute(Sums) gives FP32 numbers before they are stored."""

    def __init__(self, name, compute):
        self.name, self.compute = name, compute


def candidates(kind, k, out):
    """The simple ones first."""
    for row in ROWS[kind]:
        yield Candidate(row, lambda sums, row=row: sums.of(row))
    for row in ROWS[kind][:5 if kind == "fp8" else 3]:
        for (way, parts), stored in itertools.product(ways(k, kind == "fp32"), dict.fromkeys(("fp32", out))):
            if len(parts) > 32 and kind != "fp32":
                continue
            for order, numbers in rows_first(len(parts)):
                name = f"{row}, {way}, added {order}" + ("" if stored == "fp32" else f", stored as {stored}")
                yield Candidate(name, lambda sums, row=row, parts=parts, numbers=numbers, stored=stored:
                                total(sums, row, parts, numbers, stored))
    if kind != "fp32" and k <= 4096:
        for products, fraction in kinds(kind):
            yield Candidate(f"steps of {products} products, {fraction} bits",
                            lambda sums, p=products, f=fraction: fused(sums.a, sums.b, sums.formats, p, f))


def finished(x, out, rows=None, columns=None):
    """FP32 numbers as they are stored: bits."""
    return bits(rounded(x, out))


def search(recorded, a, b, formats, kind, out, *, rows=None, columns=None, sha=None, finish=finished):
    """The name of the first candidate that gives the recorded bits, and what was found: "all" (the hash of the whole
    product), "kept" elements only; or None and the distance of the nearest row. `finish` makes bits of sums, and of
    which rows and columns of the product they are."""
    k = a.shape[1]
    rows = np.arange(a.shape[0]) if rows is None else np.asarray(rows)
    columns = np.arange(b.shape[0] if columns is None else columns)
    few = np.ix_(np.unique(np.linspace(0, len(rows) - 1, 3).astype(int)), np.arange(min(len(columns), 24)))
    some_rows, some_columns = rows[few[0].ravel()], columns[few[1].ravel()]
    small, kept = Sums(a[some_rows], b[some_columns], *formats), Sums(a[rows], b[columns], *formats)
    for candidate in candidates(kind, k, out):
        if not np.array_equal(finish(candidate.compute(small), out, some_rows, some_columns), recorded[few]):
            continue
        if not np.array_equal(finish(candidate.compute(kept), out, rows, columns), recorded):
            continue
        if sha is None or a.shape[0] * b.shape[0] * k > 1 << 31:
            return candidate.name, "kept"
        whole = candidate.compute(Sums(a, b, *formats))
        every = np.arange(a.shape[0]), np.arange(b.shape[0])
        return candidate.name, "all" if digest(finish(whole, out, *every)) == sha else "kept, not all"
    nearest = {row: described(finish(kept.of(row), out, rows, columns), recorded) for row in ROWS[kind][:4]}
    return None, "; ".join(f"{row}: {text}" for row, text in nearest.items())
