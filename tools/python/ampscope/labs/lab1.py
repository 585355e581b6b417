"""Checks of lab 1: formats and rounding. The oracles are NumPy's float16 and exact arithmetic."""
import math

import numpy as np

from ._exercises import Wrong, call, entry, exercise, hints, number

_CODES = np.arange(2**16, dtype=np.uint16)
_VALUES = _CODES.view(np.float16).astype(np.float64)


@exercise("1.1")
def by_hand(values):
    """(-1)^sign * 2^(exponent - 15) * 1.fraction, or 0.fraction and exponent 1 where the exponent's bits are 0."""
    why = {0x3C00: "exponent bits 01111 are 15, the bias: 2^0",
           0x4248: "exponent bits 10000: 2^1; fraction 0x248 / 1024",
           0x0003: "exponent bits 0: subnormal, 2^-14 * fraction / 1024, with no 1 before the point",
           0xF900: "sign 1, exponent bits 30: 2^15; fraction 256 / 1024",
           0x7C00: "exponent bits 31, fraction 0: infinity"}
    for code, reason in why.items():
        got = entry(values, code, f"there is no value for {code:#06x} yet")
        if number(f"{code:#06x}", got) != _VALUES[code]:
            raise Wrong(f"{code:#06x} is not {got!r}: {reason}")


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
                "smallest normal numbers, -14" if kind < 0x0400 else "look at sign, exponent and fraction again"))
        elif math.copysign(1, got) != math.copysign(1, wanted):
            raise Wrong(f"{code:#06x} gives {got}, not {wanted}: zero has a sign too")


def values_to_encode():
    """Every code's value, every midpoint between two neighbours, and the doubles next to it: without their signs."""
    finite = _VALUES[:0x7C00]
    middle = (finite[1:] + finite[:-1]) / 2
    around = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), finite])
    beyond = [65519.99, 65520.0, 65536.0, 1e30, math.inf, 2.0**-25, 2.0**-25 * (1 + 2**-20), 2.0**-26, 5e-324]
    return np.concatenate([around, beyond])


@exercise("1.3")
def encoder(encode):
    """every code's value, every midpoint between two neighbours, and the doubles next to it, with both signs."""
    x = values_to_encode()
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16).view(np.uint16)
    order = np.random.default_rng(0).permutation(len(x))  # so that no sort of fault hides behind another
    faults = {}
    for i in order:
        for sign, value in ((0, float(x[i])), (0x8000, -float(x[i]))):
            got = _code(encode, value)
            if got != (int(wanted[i]) | sign):
                fault = _fault(abs(value), got, int(wanted[i]) | sign)
                faults.setdefault(fault, (value, got, int(wanted[i]) | sign))
        if len(faults) >= 4:
            break
    if faults:
        fault = min(faults, key=list(_FAULTS).index)
        value, got, code = faults[fault]
        raise Wrong(f"{value!r} gives {got:#06x}, not {code:#06x}: {_FAULTS[fault]}")
    if not (_code(encode, math.nan) & 0x7FFF) > 0x7C00:
        raise Wrong("NaN must stay NaN: exponent bits 31, and a fraction that is not 0")


def _code(encode, x):
    code = call(encode, x)
    if not isinstance(code, (int, np.integer)):
        raise Wrong(f"expected an int, the 16 bits of the code, got {code!r} for {x!r}")
    return int(code)


_FAULTS = {  # what is told first comes first
    "sign": "the sign is the highest bit, and the rest that of the magnitude",
    "carry": "rounding up may carry into the exponent: 1.111... becomes 2. Add it; with | it is lost",
    "cut off": "the upper neighbour is nearer: round, do not cut off",
    "twice": "this is next to a middle, not in it. Rounded to FP32 first it lands there, and is then taken for a tie",
    "tie": "a tie: as near to one neighbour as to the other, so that the even code is taken",
    "flush": "below 2^-14 numbers are subnormal, multiples of 2^-24, and not zero",
    "infinity": "from 65520 on, the middle between 65504 and 2^16, nearest-even rounds to infinity",
    "zero": "zero has no highest bit: its code is 0, or 0x8000",
    "subnormal": "below 2^-14 numbers are subnormal, multiples of 2^-24, rounded like any others",
    "other": "another number of FP16 is nearer; look at exponent and fraction",
}


def _fault(x, got, code):
    if got ^ code == 0x8000:
        return "sign"
    got, code = got & 0x7FFF, code & 0x7FFF
    if code == 0x7C00:
        return "infinity"
    if x == 0:
        return "zero"
    if got == 0:
        return "flush"
    if code & 0x3FF == 0 and x < _VALUES[code] and got & 0x3FF == 0:
        return "carry"

    def is_middle(value):
        return value in ((_VALUES[code] + _VALUES[code + 1]) / 2, (_VALUES[code] + _VALUES[max(code, 1) - 1]) / 2)
    if is_middle(x):
        return "tie"
    if abs(got - code) != 1:
        return "subnormal" if x < 2.0**-14 else "other"
    if is_middle(float(np.float32(x))) and got & 1 == 0:
        return "twice"
    return "cut off" if got < code else "other"


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


hints.update({
    "1.1": (
        "Write the 16 bits down and cut them into 1, 5 and 10: 0x3C00 is 0 01111 0000000000. The table in the reading "
        "says what the middle part means.",
        "The fraction's bits count 1/1024 each: 0x248 of them are 0x248 / 1024. Where the exponent's bits are all 0, "
        "the number has no 1 before the point, and its exponent is 1 - 15."),
    "1.2": (
        "4,096 codes are wrong: all those whose exponent's bits are all 0, and all those whose exponent's bits are all "
        "1. Treat these two cases first.",
        "Exponent bits 31: math.inf with the sign where the fraction is 0, else math.nan. Exponent bits 0: sign * "
        "2.0**-14 * (fraction / 1024). A sign of -1.0 times 0.0 is the zero that you need."),
    "1.3": (
        "The four: it truncates, it makes zero of what is subnormal, it has no infinity, and it has no NaN. Treat NaN, "
        "infinity and zero before anything else.",
        "Count in steps of the format: scale x so that a step becomes 1, then round() rounds to nearest-even. A step "
        "is 2^(exponent - 10), and below the smallest normal number the exponent stays -14.",
        "Add the steps to the exponent's bits in place of joining them with |: where rounding up reaches the next "
        "power of two, the sum is right by itself."),
    "1.4": (
        "Which numbers of FP16 lie just below and above each of them, and which of the two is nearer? In a tie the one "
        "with the even fraction wins.",
        "From 2^10 to 2^11 neighbours are 1 apart, from 2^11 to 2^12 they are 2 apart. 0.1 lies between 2^-4 and 2^-3, "
        "where neighbours are 2^-14 apart."),
})
