"""The operations of IEEE P3109 v4.0 with their flags, for tests/test_p3109_by_name.cpp:

    python tests/data/p3109/operations.py > tests/data/p3109/operations.txt        # needs mpmath; minutes

A line has a format, an operation by the report's name, the number of cases and an FNV-1a hash of their results and
flags, word by word. The number of a case decides how it rounds and saturates. Exact fractions, mpmath for what is no
fraction (functions.py), and sections 4.7, 4.10 to 4.13 and 4.16 of the report. The report has no flags: they are
IEEE 754's, invalid for a NaN from operands that are none, and divide by zero for an infinity from finite operands.
"""
import multiprocessing
from fractions import Fraction

import functions
import mpmath
from functions import MINUS, NAN, PLUS, mixed
from mpmath import mp

CASES = 216
FORMATS = ["binary8p4se", "binary8p3sf", "binary8p1uf", "binary5p3ue", "bf16", "fp32"]
ROUNDINGS = ["nearest_even", "nearest_away", "toward_zero", "down", "up", "to_odd"]
SATURATIONS = ["finite", "propagate", "none"]
INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16


def power(e):
    return Fraction(2) ** e


def floor_log2(v):
    e = v.numerator.bit_length() - v.denominator.bit_length()
    return e if v >= power(e) else e - 1


def fraction_of(x):
    """An mpf, exactly."""
    if isinstance(x, str) or x == 0:
        return x if isinstance(x, str) else Fraction(0)
    man, exp = abs(x).man_exp
    return (-1 if x < 0 else 1) * int(man) * power(exp)


class Format:
    def __init__(self, name):
        self.name = name
        if name in ("fp32", "bf16"):
            self.p, self.bias, self.signed, self.extended, self.bits = 24 if name == "fp32" else 8, 127, True, True, 32
            self.bits = 32 if name == "fp32" else 16
            self.infinity = 255 << self.p - 1
            self.nan, self.max = self.infinity + (1 << self.p - 2), self.infinity - 1
        else:
            self.bits, self.p = map(int, name[6:-2].split("p"))
            self.signed, self.extended = name[-2] == "s", name[-1] == "e"
            self.bias = 1 << self.bits - self.p - self.signed
            self.nan = (1 << self.bits - self.signed) - (0 if self.signed else 1)
            self.infinity = self.nan - 1
            self.max = self.nan - 1 - self.extended
        self.half = 1 << self.bits - 1
        self.largest = self.value(self.max)

    def value(self, code):
        mp.prec = 200
        return fraction_of(functions.decode(self.name, code))

    def code(self, x):
        """Of a number that the format has, section 4.7.6."""
        if x < 0:
            return self.half + self.code(-x)
        if x == 0:
            return 0
        e = max(floor_log2(x), 1 - self.bias)
        s = int(x / power(e - self.p + 1))
        implicit = 1 << self.p - 1
        return s if s < implicit else s - implicit + (e + self.bias) * implicit


def rounded(f, rounding, x, least):
    """Section 4.7.4: a multiple of the unit at x, at least that of the binade `least`."""
    size = abs(x)
    q = max(floor_log2(size), least) - f.p + 1
    n, rest = divmod(size, power(q))
    odd = n % 2 == 1 if f.p > 1 else n != 0 and (q + f.bias) % 2 != 0
    up = {"nearest_even": rest > power(q) / 2 or rest == power(q) / 2 and odd, "nearest_away": rest >= power(q) / 2,
          "toward_zero": False, "down": rest > 0 and x < 0, "up": rest > 0 and x > 0,
          "to_odd": rest > 0 and not odd}[rounding]
    return (n + up) * power(q) * (-1 if x < 0 else 1)


def below_range(f, rounding, saturation, infinite):
    """Of a format without sign."""
    if saturation != "none" or (not infinite and rounding in ("toward_zero", "up")):
        return 0, OVERFLOW | INEXACT
    return f.nan, INVALID


def project(f, rounding, saturation, x):
    """Sections 4.7.3 to 4.7.6: a code and flags."""
    if x == NAN:
        return f.nan, 0
    if x in (PLUS, MINUS):
        sign = f.half if x == MINUS else 0
        if sign and not f.signed:
            return below_range(f, rounding, saturation, True)
        if saturation == "finite":
            return f.max + sign, 0
        return (f.infinity + sign, 0) if f.extended else (f.max + sign, INVALID)
    if x == 0:
        return 0, 0
    least = 1 - f.bias
    y = rounded(f, rounding, x, least)
    if y < 0 and not f.signed:
        return below_range(f, rounding, saturation, False)
    sign = f.half if y < 0 else 0
    if abs(y) > f.largest:
        inward = rounding == "toward_zero" or rounding == ("up" if x < 0 else "down")
        if rounding == "to_odd":  # that of the two whose code is odd
            inward = f.max % 2 == 1
        infinite = saturation == "none" and not inward and f.extended
        return (f.infinity if infinite else f.max) + sign, OVERFLOW | INEXACT
    flags = 0
    if y != x:
        unbounded = rounded(f, rounding, x, -10**6)
        tiny = abs(x) < power(least) and abs(unbounded) < power(least)
        flags = INEXACT | (UNDERFLOW if tiny else 0)
    return f.code(y), flags


def of_words(w):
    """What functions.words() has found, as a fraction; what its last bit leaves open makes no difference."""
    kind, leading, bits = w
    if kind < 4:
        return [Fraction(0), PLUS, MINUS, NAN][kind]
    size = power(4000 if kind < 6 else -4000) if kind < 8 else bits * power(leading - 63)
    return -size if kind % 2 else size


def mpf_of(x):
    mp.prec = 200
    return x if isinstance(x, str) else mpmath.mpf(x.numerator) / x.denominator


def infinite(x):
    return x in (PLUS, MINUS)


def negated(x):
    return {NAN: NAN, PLUS: MINUS, MINUS: PLUS}[x] if isinstance(x, str) else -x


def sign(x):
    return {PLUS: 1, MINUS: -1}[x] if isinstance(x, str) else (x > 0) - (x < 0)


def absolute(x):
    return x if x == NAN or sign(x) >= 0 else negated(x)


def add(x, y):
    if NAN in (x, y) or (infinite(x) and infinite(y) and x != y):
        return NAN
    return x if infinite(x) else y if infinite(y) else x + y


def multiply(x, y):
    if NAN in (x, y):
        return NAN
    if infinite(x) or infinite(y):
        return [NAN, PLUS, MINUS][sign(x) * sign(y)]
    return x * y


def divide(x, y):
    if NAN in (x, y) or y == 0 or (infinite(x) and infinite(y)):
        return NAN
    return [NAN, PLUS, MINUS][sign(x) * sign(y)] if infinite(x) else Fraction(0) if infinite(y) else x / y


def sqrt(x):
    if x == NAN or sign(x) < 0:
        return NAN
    return x if infinite(x) else of_words(functions.words(lambda: mpmath.sqrt(mpf_of(x))))


def less(x, y):
    """Of two that are no NaN."""
    low, high = Fraction(-2) ** 2001, Fraction(2) ** 2000
    return {PLUS: high, MINUS: low}.get(x, x) < {PLUS: high, MINUS: low}.get(y, y)


def minimum(x, y):
    return NAN if NAN in (x, y) else x if less(x, y) else y


def maximum(x, y):
    return NAN if NAN in (x, y) else y if less(x, y) else x


def magnitude(of_equal, larger):
    def choose(x, y):
        if NAN in (x, y):
            return NAN
        if absolute(x) == absolute(y):
            return of_equal(x, y)
        return x if less(absolute(x), absolute(y)) != larger else y
    return choose


def number(choose):
    return lambda x, y: y if x == NAN else x if y == NAN else choose(x, y)


def finite(choose):
    return number(lambda x, y: choose(x, y) if infinite(x) == infinite(y) else y if infinite(x) else x)


def clamp(x, low, high):
    if NAN in (x, low, high) or less(high, low):
        return NAN
    return low if less(x, low) else high if less(high, x) else x


def compare(holds):
    return lambda f, x, y: NAN not in (x, y) and holds(less(x, y), x == y)


def neighbour(f, x, above):
    """Section 4.16."""
    numbers = [f.value(c) for c in range(1 << f.bits)]
    beyond = [v for v in numbers if v != NAN and x != NAN and (less(x, v) if above else less(v, x))]
    if not beyond:
        return f.nan
    best = beyond[0]
    for v in beyond:
        best = v if (less(v, best) if above else less(best, v)) else best
    return f.infinity + (f.half if best == MINUS else 0) if infinite(best) else f.code(best)


def class_of(f, x):
    if isinstance(x, str):
        return {NAN: 0, MINUS: 1, PLUS: 7}[x]
    normal = abs(x) >= power(1 - f.bias)
    return 4 if x == 0 else (2 if normal else 3) if x < 0 else 6 if normal else 5


NUMBERS = {
    "Abs": (1, absolute), "Negate": (1, negated),
    "CopySign": (2, lambda x, y: NAN if NAN in (x, y) else negated(absolute(x)) if sign(y) < 0 else absolute(x)),
    "Add": (2, add), "Subtract": (2, lambda x, y: add(x, negated(y))), "Multiply": (2, multiply), "Divide": (2, divide),
    "Recip": (1, lambda x: divide(Fraction(1), x)), "Sqrt": (1, sqrt),
    "FMA": (3, lambda x, y, z: add(multiply(x, y), z)), "FAA": (3, lambda x, y, z: add(add(x, y), z)),
    "Clamp": (3, clamp),
    "Minimum": (2, minimum), "Maximum": (2, maximum), "MinimumNumber": (2, number(minimum)),
    "MaximumNumber": (2, number(maximum)), "MinimumFinite": (2, finite(minimum)), "MaximumFinite": (2, finite(maximum)),
    "MinimumMagnitude": (2, magnitude(minimum, False)), "MaximumMagnitude": (2, magnitude(maximum, True)),
    "MinimumMagnitudeNumber": (2, number(magnitude(minimum, False))),
    "MaximumMagnitudeNumber": (2, number(magnitude(maximum, True))),
}
for name in functions.UNARY:
    NUMBERS[name] = 1, lambda x, name=name: of_words(functions.unary(name, mpf_of(x)))
for name, function in functions.BINARY.items():
    NUMBERS[name] = 2, lambda x, y, function=function: of_words(function(mpf_of(x), mpf_of(y)))
VALUES = {
    "CompareLess": (2, compare(lambda below, same: below)),
    "CompareLessEqual": (2, compare(lambda below, same: below or same)),
    "CompareEqual": (2, compare(lambda below, same: same)),
    "CompareGreaterEqual": (2, compare(lambda below, same: not below)),
    "CompareGreater": (2, compare(lambda below, same: not below and not same)),
    "TotalOrder": (2, lambda f, x, y: x == NAN or (y != NAN and (less(x, y) or x == y))),
    "IsZero": (1, lambda f, x: x == 0), "IsOne": (1, lambda f, x: x == 1), "IsNaN": (1, lambda f, x: x == NAN),
    "IsSignMinus": (1, lambda f, x: x != NAN and sign(x) < 0), "IsFinite": (1, lambda f, x: not isinstance(x, str)),
    "IsInfinite": (1, lambda f, x: infinite(x)), "IsNormal": (1, lambda f, x: class_of(f, x) in (2, 6)),
    "IsSubnormal": (1, lambda f, x: class_of(f, x) in (3, 5)), "Class": (1, class_of),
    "NextGreaterThan": (1, lambda f, x: neighbour(f, x, True)),
    "NextLessThan": (1, lambda f, x: neighbour(f, x, False)),
}


def operands(f, seed):
    """Three codes: any, near zero or the end of the codes, near one, beside the first."""
    mask, one, codes = (1 << f.bits) - 1, f.code(Fraction(1)), []
    for i in range(3):
        word, kind = mixed(3 * seed + i), mixed(3 * seed + i + 0x9E3779B9 & 0xFFFFFFFF) % 8
        code = word & mask
        if kind == 0:
            code &= f.half | 7
        elif kind == 1:
            code |= f.half - 8
        elif kind == 2:
            code = one + word % 7 - 3 ^ (word >> 8) % 2 * f.half
        elif kind == 3 and codes:
            code = codes[0] + word % 3 - 1
        codes.append(code & mask)
    return codes


def run(f, op, case, codes):
    x = [f.value(c) for c in codes]
    if op in VALUES:
        count, rule = VALUES[op]
        return int(rule(f, *x[:count])), 0
    count, rule = NUMBERS[op]
    x = x[:count]
    result = rule(*x)
    code, flags = project(f, ROUNDINGS[case % 6], SATURATIONS[case // 6 % 3], result)
    if result == NAN and NAN not in x:
        flags |= INVALID
    if infinite(result) and not any(isinstance(v, str) for v in x):
        flags = DIVIDE_BY_ZERO
    return code, flags


def line(job):
    at, name, op = job
    f, state = Format(name), 0xCBF29CE484222325
    for case in range(CASES):
        for word in run(f, op, case, operands(f, at * CASES + case)):
            state = (state ^ word) * 0x100000001B3 % 2**64
    return f"{name} {op} {CASES} {state:016x}"


if __name__ == "__main__":
    jobs = [(name, op) for name in FORMATS for op in [*NUMBERS, *VALUES]
            if not (op.startswith("Next") and name in ("bf16", "fp32"))]
    with multiprocessing.Pool(2) as pool:
        for text in pool.imap(line, [(at, *job) for at, job in enumerate(jobs)]):
            print(text, flush=True)
