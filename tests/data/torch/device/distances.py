"""How far bits are from others: numbers of units in the last place."""
from typing import NamedTuple

import numpy as np


def ordered(codes):
    """Bits of floating-point numbers as integers in the order of the numbers; both zeros are 0."""
    wide = codes.astype(np.int64)
    sign = np.int64(1) << (8 * codes.dtype.itemsize - 1)
    return np.where(wide >= sign, sign - wide, wide)


def ulps(a, b):
    """Distances of two arrays of bits, element by element."""
    return np.abs(ordered(a) - ordered(b))


class Distance(NamedTuple):
    """Of two arrays of bits: which share of the elements differs, and by how many units 99 % and all differ at most."""
    share: float
    usual: int
    most: int

    def __str__(self):
        if self.share == 0:
            return "equal"
        return f"{100 * self.share:.3g} % differ, 99 % by at most {self.usual:,} ulp, all by at most {self.most:,}"


def distance(a, b):
    away = ulps(a, b)
    return Distance(np.count_nonzero(a != b) / max(a.size, 1), int(np.quantile(away, 0.99, method="lower")),
                    int(away.max()))


def described(a, b):
    return str(distance(a, b))
