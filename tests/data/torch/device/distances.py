"""How far bits are from others: numbers of units in the last place."""
import numpy as np


def ordered(codes):
    """Bits of floating-point numbers as integers in the order of the numbers; both zeros are 0."""
    wide = codes.astype(np.int64)
    sign = np.int64(1) << (8 * codes.dtype.itemsize - 1)
    return np.where(wide >= sign, sign - wide, wide)


def ulps(a, b):
    """Distances of two arrays of bits, element by element."""
    return np.abs(ordered(a) - ordered(b))


def described(a, b):
    """Of two arrays of bits: "equal", or how many elements differ and by how much."""
    distance = ulps(a, b)
    share = np.count_nonzero(a != b) / max(a.size, 1)
    if share == 0:
        return "equal"
    usual = int(np.quantile(distance, 0.99, method="lower"))
    return f"{100 * share:.3g} % differ, 99 % by at most {usual:,} ulp, all by at most {int(distance.max()):,}"
