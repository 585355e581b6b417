"""Checks of lab 1: formats and rounding. The oracles are NumPy's float16 and exact arithmetic."""
import math

import numpy as np

from ._exercises import Wrong, call, exercise, number

_CODES = np.arange(2**16, dtype=np.uint16)
_VALUES = _CODES.view(np.float16).astype(np.float64)


@exercise("1.1")
def by_hand(values):
    """(-1)^sign * 2^(exponent - 15) * 1.fraction, or 0.fraction and exponent 1 where the exponent's bits are 0."""
    why = {0x3C00: "exponent bits 01111 are 15, the bias: 2^0", 0x4248: "exponent bits 10000: 2^1; fraction 0x248 / "
                                                                        "1024",
           0x0001: "exponent bits 0: subnormal, 2^-14 * fraction / 1024, with no 1 before the point",
           0xFBFF: "sign 1, exponent bits 30: 2^15; fraction 1023 / 1024", 0x7C00: "exponent bits 31, fraction 0: "
                                                                                   "infinity"}
    for code, reason in why.items():
        if values.get(code) in (None, ...):
            raise Wrong(f"there is no value for {code:#06x} yet")
        if number(f"{code:#06x}", values[code]) != _VALUES[code]:
            raise Wrong(f"{code:#06x} is not {values[code]!r}: {reason}")


@exercise("1.2")
def decoder(decode):
    """all 65,536 codes, with both zeros, subnormals, infinities and NaN."""
    for code in map(int, _CODES):
        wanted = float(_VALUES[code])
        got = number(f"{code:#06x}", call(decode, code))
        kind = code & 0x7FFF
        if math.isnan(wanted):
            if not math.isnan(got):
                raise Wrong(f"{code:#06x} gives {got}, but exponent bits 31 with a fraction that is not 0 are NaN")
        elif got != wanted:
            raise Wrong(f"{code:#06x} gives {got}, not {wanted}: " + (
                "exponent bits 31 and fraction 0 are infinity" if kind == 0x7C00 else
                "the exponent's bits are 0, so that it is subnormal: no 1 before the point, and the exponent of the "
                "smallest "
                "normal numbers, -14" if kind < 0x0400 else "look at sign, exponent and fraction again"))
        elif math.copysign(1, got) != math.copysign(1, wanted):
            raise Wrong(f"{code:#06x} gives {got}, not {wanted}: zero has a sign too")


def _midpoints():
    finite = _VALUES[:0x7C00]
    middle = (finite[1:] + finite[:-1]) / 2
    around = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), finite])
    beyond = [65519.99, 65520.0, 65536.0, 1e30, math.inf, 2.0**-25, 2.0**-25 * (1 + 2**-20), 2.0**-26, 5e-324]
    return np.concatenate([around, beyond])


@exercise("1.3")
def encoder(encode):
    """every code's value, every midpoint between two neighbours, and the doubles next to it, with both signs."""
    x = _midpoints()
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16).view(np.uint16)
    order = np.random.default_rng(0).permutation(len(x))  # so that no sort of fault hides behind another
    faults = {}
    for i in order:
        for sign, value in ((0, float(x[i])), (0x8000, -float(x[i]))):
            got = call(encode, value)
            if got != (int(wanted[i]) | sign):
                faults.setdefault(_reason(abs(value), got, int(wanted[i])), (value, got, int(wanted[i]) | sign))
        if len(faults) >= 3:
            break
    if faults:
        reason, (value, got, code) = min(faults.items(), key=lambda item: abs(item[1][0]))
        shown = f"{got:#06x}" if isinstance(got, (int, np.integer)) else repr(got)
        raise Wrong(f"{value!r} gives {shown}, not {code:#06x}: {reason}")
    if not (call(encode, math.nan) & 0x7FFF) > 0x7C00:
        raise Wrong("NaN must stay NaN: exponent bits 31, and a fraction that is not 0")


def _reason(x, got, code):
    if code == 0x7C00:
        return "from 65520 on, the middle between 65504 and 2^16, nearest-even rounds to infinity"
    if x == 0:
        return "zero has no highest bit: its code is 0, or 0x8000"
    if got in (0, 0x8000):
        return "below 2^-14 numbers are subnormal, multiples of 2^-24, and not zero"
    if x in ((_VALUES[code] + _VALUES[code + 1]) / 2, (_VALUES[code] + _VALUES[max(code, 1) - 1]) / 2):
        return "a tie: as near to one neighbour as to the other, so that the even code is taken"
    if x < 2.0**-14:
        return "below 2^-14 numbers are subnormal, multiples of 2^-24, rounded like any others"
    return "the nearer of its neighbours is another"


@exercise("1.4")
def sums(one_and, largest_odd, ones, tenth):
    """FP16 has 11 significant bits: beyond 2^11 not even the odd integers, and a sum of ones stands still there."""
    answers = {"one_and": (one_and, float(np.float16(1) + np.float16(2.0**-11)),
                           "1 + 2^-11 is the middle between 1 and 1 + 2^-10: a tie, and the fraction of 1 is even"),
               "largest_odd": (largest_odd, 2047.0, "above 2048 = 2^11 neighbours are 2 apart: the odd numbers are "
                                                    "gone"),
               "ones": (ones, 2048.0, "2048 + 1 is a tie between 2048 and 2050, and 2048 is even; so it stays there"),
               "tenth": (tenth, float(np.float16(0.1)), "the nearest multiple of 2^-14 to 0.1 (1638 of them)")}
    for name, (got, wanted, reason) in answers.items():
        if got is ... or got is None:
            raise Wrong(f"there is no {name} yet")
        if number(name, got) != wanted:
            raise Wrong(f"{name} is not {got!r}: {reason}")
