"""Which sums of ours give the bits of a recorded product: rows of ampscope's table, and ways to split K.

Ways are tried on a few elements; those that hold are then tried on all that were kept, and by the hash of the whole
product.
"""
import itertools
from typing import NamedTuple

import numpy as np

from .distances import described
from .recording import digest
from .steps import kinds
from .sums import Asked, Way, orders_of

ROWS = {
    "fp16": ["hopper-wgmma-fp16", "ampere-fp16", "hopper-wgmma-fp16-acc16", "fp32", "exact", "volta-fp16",
             "ampere-fp16-acc16", "pairwise", "kahan"],
    "fp16 sums": ["hopper-wgmma-fp16-acc16", "ampere-fp16-acc16", "hopper-wgmma-fp16", "exact"],
    "bf16": ["hopper-wgmma-bf16", "ampere-bf16", "fp32", "exact", "pairwise", "kahan"],
    "fp32": ["fp32", "exact", "pairwise", "kahan"],
    "tf32": ["hopper-wgmma-tf32", "ampere-tf32", "fp32", "exact"],
    "fp8": ["hopper-wgmma-fp8", "hopper-wgmma-fp8-promote128", "hopper-wgmma-fp8-promote64",
            "hopper-wgmma-fp8-promote32", "hopper-wgmma-fp8-promote256", "hopper-wgmma-fp8-promote512",
            "hopper-mma-fp8", "blackwell-fp8", "fp32", "exact"],
    "fp8 promoted": ["hopper-wgmma-fp8-promote128", "hopper-wgmma-fp8-promote64", "hopper-wgmma-fp8-promote256",
                     "hopper-wgmma-fp8", "fp32", "exact"],
}
# Of how many of them parts are tried.
SPLIT = {"fp16": 3, "fp16 sums": 3, "bf16": 2, "fp32": 1, "tf32": 2, "fp8": 1, "fp8 promoted": 1}
MOST_RUNS, MOST_CYCLIC = 128, 33


def splits(k):
    """The ways to share out k products: runs of whole tiles, the widest tiles first, and tiles taken in turn."""
    seen = {k}
    for tile in (128, 64, 32, 16, 8, 4, 2, 1):
        tiles = -(-k // tile)
        for n in range(2, min(tiles, MOST_RUNS) + 1):
            own = -(-tiles // n) * tile
            if own not in seen:
                seen.add(own)
                yield Way(runs=own)
    for tile in (64, 32, 16, 8, 4, 2, 1):
        yield from (Way(cyclic=(n, tile)) for n in range(2, min(-(-k // tile) - 1, MOST_CYCLIC) + 1))


def candidates(kind, k, out, biased):
    """The simple ones first."""
    yield from map(Way, ROWS[kind])
    types = [("fp32", "fp32")] + ([] if out == "fp32" else [(out, "fp32"), (out, out)])
    for row in ROWS[kind][:SPLIT[kind]]:
        for split in splits(k):
            for (stored, each), order in itertools.product(types, orders_of(len(split.parts(k)))):
                yield split._replace(row=row, order=order, stored=stored, each=each)
            if biased:
                yield split._replace(row=row, bias_first=True)
    if kind != "fp32" and k <= 4096:
        yield from (Way(steps=steps) for steps in kinds(kind))


class Found(NamedTuple):
    """A way that gives the recorded bits, how the operands are read and what ends it, and of how many elements: "all",
    by the hash of the whole product, or "kept" ones."""
    way: Way
    operands: str
    ending: str
    of: str

    def text(self, k):
        begin, end = (f"{self.operands}, " if self.operands else ""), (f", {self.ending}" if self.ending else "")
        return f"= {begin}{self.way.name(k)}{end} ({self.of})"


class Product:
    """A recorded product, to be compared with ours."""

    def __init__(self, recording, case):
        said = self.said = case["out"]
        self.asked, self.given = Asked(case), recording.bits(said)
        m, n = said["shape"]
        self.rows = np.asarray(said.get("rows", np.arange(m)))
        self.columns = np.arange(min(said.get("columns", n), n))
        self.every = np.arange(m), np.arange(n)

    def ours(self, way, operands, ending, rows, columns, sums=None):
        """Our bits of some rows and columns."""
        sums = sums or self.asked.sums(operands, rows, columns)
        return self.asked.endings[ending](way.compute(sums), self.said["type"], rows, columns)

    def differences(self, found, sums=None):
        """Of how many elements ours are compared, and how many differ. Where the hash of the whole product is ours, all
        its elements are compared; otherwise those that were kept are, and one counts as different if all are equal."""
        whole = self.ours(found.way, found.operands, found.ending, *self.every, sums)
        kept = int(np.count_nonzero(whole[np.ix_(self.rows, self.columns)] != self.given))
        return (whole.size, kept) if digest(whole) == self.said["sha"] else (self.given.size, max(kept, 1))

    def nearest(self, operands="", ending=""):
        """How far the nearest rows are, in words."""
        kept = self.asked.sums(operands, self.rows, self.columns)
        ours = {row: self.ours(Way(row), operands, ending, self.rows, self.columns, kept)
                for row in ROWS[self.asked.operands[operands][0]][:4]}
        return "; ".join(f"{row}: {described(bits, self.given)}" for row, bits in ours.items())

    def search(self):
        """What is found, and None; or None, and how far the nearest rows are in words."""
        asked, out, best, misses = self.asked, self.said["type"], None, []
        few = np.unique(np.linspace(0, len(self.rows) - 1, 2).astype(int)), np.arange(min(len(self.columns), 16))
        small = self.rows[few[0]], self.columns[few[1]]
        for (operands, (kind, *_)), ending in itertools.product(asked.operands.items(), asked.endings):
            first, kept = asked.sums(operands, *small), asked.sums(operands, self.rows, self.columns)
            for way in candidates(kind, asked.k, out, asked.biased and not ending):
                if not np.array_equal(self.ours(way, operands, ending, *small, first), self.given[np.ix_(*few)]) or \
                        not np.array_equal(self.ours(way, operands, ending, self.rows, self.columns, kept), self.given):
                    continue
                if digest(self.ours(way, operands, ending, *self.every)) == self.said["sha"]:
                    return Found(way, operands, ending, "all"), None
                # Few elements of a narrow type may be equal by chance.
                best = best or Found(way, operands, ending, "kept, not all")
            misses.append(", ".join(filter(None, (operands, ending))) + ": " * bool(operands or ending) +
                          self.nearest(operands, ending))
        return best, None if best else " / ".join(misses)
