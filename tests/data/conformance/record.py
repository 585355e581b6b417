"""Operations of IEEE 754 on exact fractions, for tests/test_exact_arithmetic.cpp:

    python tests/data/conformance/record.py > tests/data/conformance/recordings.txt        # standard library only

A line has a format, an operation by TestFloat's name, the number of cases and an FNV-1a hash of their results and
flags, word by word. Written from the standard (IEEE 754-2019, sections 4 to 7), and from OCP's where a format has no
infinities; shares nothing with ampscope.
"""
from fractions import Fraction
from math import isqrt

CASES = 6000
# Exponent and fraction bits; NaN and infinities of IEEE 754, one NaN of all ones, or neither.
FORMATS = {"fp32": (8, 23, "ieee"), "fp16": (5, 10, "ieee"), "bf16": (8, 7, "ieee"), "e5m2": (5, 2, "ieee"),
           "e4m3": (4, 3, "ones"), "e3m2": (3, 2, "none"), "e2m1": (2, 1, "none")}
OPERATIONS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "rem": 2, "sqrt": 1, "mulAdd": 3, "roundToInt": 1, "eq": 2,
              "le": 2, "lt": 2, "eq_signaling": 2, "le_quiet": 2, "lt_quiet": 2}
ROUNDINGS = ["nearest_even", "nearest_away", "toward_zero", "down", "up", "to_odd"]
INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16
NAN, INFINITE = "nan", "infinite"


def mixed(x):
    x = ((x ^ x >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ x >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ x >> 16


def power(e):
    return Fraction(2) ** e


def floor_log2(v):
    e = v.numerator.bit_length() - v.denominator.bit_length()
    return e if v >= power(e) else e - 1


class Root:
    """The square root of a positive fraction."""

    def __init__(self, square):
        self.square = square

    def log2(self):
        return floor_log2(self.square) // 2

    def below(self, unit):
        scaled = self.square / unit**2
        return isqrt(scaled.numerator // scaled.denominator)

    def against(self, v):
        return (self.square > v * v) - (self.square < v * v)


class Exact:
    def __init__(self, value):
        self.value = value

    def log2(self):
        return floor_log2(self.value)

    def below(self, unit):
        scaled = self.value / unit
        return scaled.numerator // scaled.denominator

    def against(self, v):
        return (self.value > v) - (self.value < v)


class Unit:
    """A format and the modes of one case: the number of the case decides them."""

    def __init__(self, name, case):
        self.e, self.f, self.kind = FORMATS[name]
        self.rounding = ROUNDINGS[case % 6]
        self.tiny_before, self.flush, self.exact = case // 6 % 2, case // 12 % 2, case // 24 % 2
        self.bias, self.sign = 2 ** (self.e - 1) - 1, 1 << self.e + self.f
        self.infinity = (2**self.e - 1) << self.f
        self.max_code = {"ieee": self.infinity - 1, "ones": self.sign - 2, "none": self.sign - 1}[self.kind]
        self.flags = 0

    def read(self, code):
        """Whether it is negative, its magnitude, and for a NaN whether it signals."""
        negative, k = bool(code & self.sign), code & self.sign - 1
        fraction, field = k & (1 << self.f) - 1, k >> self.f
        if k > self.max_code:
            if self.kind == "ieee" and not fraction:
                return negative, INFINITE, False
            return negative, NAN, self.kind == "ieee" and not fraction >> self.f - 1
        if field == 0 and self.flush:
            return negative, Fraction(0), False
        return negative, (fraction + (1 << self.f if field else 0)) * power(max(field, 1) - self.bias - self.f), False

    def nan(self, *operands):
        if not operands or any(signals for _, _, signals in operands):
            self.flags |= INVALID
        if self.kind == "none":
            self.flags |= INVALID
            return self.max_code
        return self.sign - 1 if self.kind == "ones" else self.infinity | 1 << self.f - 1

    def infinite(self, negative, exact=True):
        """An infinity, exact or by overflow, or what stands for it."""
        if self.kind == "ieee":
            return self.infinity | negative * self.sign
        if exact:
            self.flags |= INVALID
        return self.sign - 1 if self.kind == "ones" else self.max_code | negative * self.sign

    def integer(self, x, negative, unit):
        """x in units, rounded."""
        n = x.below(unit)
        if x.against(n * unit) == 0:
            return n
        half = x.against((2 * n + 1) * unit / 2)
        up = {"nearest_even": half > 0 or half == 0 and n % 2 == 1, "nearest_away": half >= 0, "toward_zero": False,
              "down": negative, "up": not negative, "to_odd": n % 2 == 0}[self.rounding]
        return n + up

    def store(self, negative, x):
        least = 1 - self.bias
        unit = power(max(x.log2(), least) - self.f)
        n = self.integer(x, negative, unit)
        result, sign = n * unit, negative * self.sign
        if result > self.read(self.max_code)[1]:
            self.flags |= OVERFLOW | INEXACT
            inward = self.rounding in ("toward_zero", "to_odd", "up" if negative else "down")
            return self.max_code | sign if inward else self.infinite(negative, False)
        if x.against(result) != 0:
            unbounded = power(x.log2() - self.f)
            tiny = x.against(power(least)) < 0 if self.tiny_before else (
                x.against(power(least)) < 0 and self.integer(x, negative, unbounded) * unbounded < power(least))
            self.flags |= INEXACT | (UNDERFLOW if tiny else 0)
        if self.flush and 0 < result < power(least):
            self.flags |= INEXACT | UNDERFLOW
            return sign
        if result == 0:
            return sign
        e = floor_log2(result)
        field = max(e, least) + self.bias if e >= least else 0
        significand = int(result / power(max(e, least) - self.f))
        return sign | (field << self.f) + significand - (1 << self.f if field else 0)

    def number(self, negative, v):
        return self.store(negative, Exact(v)) if v else negative * self.sign

    def add(self, x, y):
        if x[1] == INFINITE or y[1] == INFINITE:
            if x[1] == y[1] and x[0] != y[0]:
                return self.nan()
            return self.infinite((x if x[1] == INFINITE else y)[0])
        v = (-x[1] if x[0] else x[1]) + (-y[1] if y[0] else y[1])
        if v == 0:
            return (x[0] if x[0] == y[0] and x[1] == y[1] == 0 else self.rounding == "down") * self.sign
        return self.number(v < 0, abs(v))

    def product(self, x, y):
        if INFINITE in (x[1], y[1]):
            return (False, NAN, False) if 0 in (x[1], y[1]) else (x[0] != y[0], INFINITE, False)
        return x[0] != y[0], x[1] * y[1], False

    def mul(self, x, y):
        negative, v, _ = self.product(x, y)
        return self.nan() if v == NAN else self.infinite(negative) if v == INFINITE else self.number(negative, v)

    def mul_add(self, x, y, z):
        p = self.product(x, y) if NAN not in (x[1], y[1]) else None
        if p is None or z[1] == NAN:
            code = self.nan(x, y, z)
            if p is not None and p[1] == NAN:
                self.flags |= INVALID
            return code
        return self.nan() if p[1] == NAN else self.add(p, z)

    def div(self, x, y):
        negative = x[0] != y[0]
        if x[1] == y[1] == 0 or x[1] == y[1] == INFINITE:
            return self.nan()
        if x[1] == INFINITE:
            return self.infinite(negative)
        if y[1] == 0:
            self.flags |= DIVIDE_BY_ZERO
            return self.infinite(negative, False)
        return negative * self.sign if y[1] == INFINITE else self.number(negative, x[1] / y[1])

    def rem(self, x, y):
        if x[1] == INFINITE or y[1] == 0:
            return self.nan()
        if y[1] == INFINITE:
            return self.number(x[0], x[1])
        v = x[1] - round(x[1] / y[1]) * y[1]  # Python's round() takes ties to even
        return self.number(x[0] != (v < 0), abs(v))

    def sqrt(self, x):
        if x[1] == 0:
            return x[0] * self.sign
        if x[0]:
            return self.nan()
        return self.infinite(False) if x[1] == INFINITE else self.store(False, Root(x[1]))

    def round_to_int(self, x):
        if x[1] in (INFINITE, 0):
            return self.infinite(x[0]) if x[1] else x[0] * self.sign
        n = self.integer(Exact(x[1]), x[0], Fraction(1))
        if n != x[1] and self.exact:
            self.flags |= INEXACT
        return self.number(x[0], Fraction(n))

    def compare(self, op, x, y):
        if NAN in (x[1], y[1]):
            if op in ("le", "lt", "eq_signaling") or x[2] or y[2]:
                self.flags |= INVALID
            return 0
        p, q = ((-1 if n else 1) * (Fraction(2) ** 400 if v == INFINITE else v) for n, v, _ in (x, y))
        return int(p == q if op.startswith("eq") else p <= q if op.startswith("le") else p < q)

    def run(self, op, codes):
        x = [self.read(c) for c in codes]
        if op.startswith(("eq", "le", "lt")):
            return self.compare(op, *x)
        if op == "mulAdd":
            return self.mul_add(*x)
        if any(v == NAN for _, v, _ in x):
            return self.nan(*x)
        if op == "sub":
            return self.add(x[0], (not x[1][0], *x[1][1:]))
        return getattr(self, {"roundToInt": "round_to_int"}.get(op, op))(*x)


def operands(name, seed):
    """Three codes: of any numbers, of the ends of the exponent's range, or beside the first one."""
    e, f, _ = FORMATS[name]
    mask, codes = (1 << 1 + e + f) - 1, []
    for i in range(3):
        word, kind = mixed(3 * seed + i), mixed(3 * seed + i + 0x9E3779B9 & 0xFFFFFFFF) % 8
        code = word & mask
        if kind == 0:
            code &= mask >> 1 + e | 1 << e + f
        elif kind == 1:
            code |= (1 << e) - 1 << f
        elif kind < 4 and codes:
            code = codes[0] + word % 5 - 2 & mask ^ (1 << e + f if kind == 3 else 0)
        codes.append(code & mask)
    return codes


if __name__ == "__main__":
    for at, name in enumerate(FORMATS):
        for j, (op, count) in enumerate(OPERATIONS.items()):
            state = 0xCBF29CE484222325
            for case in range(CASES):
                unit = Unit(name, case)
                code = unit.run(op, operands(name, (at * 16 + j) * CASES + case)[:count])
                for word in (code, unit.flags):
                    state = (state ^ word) * 0x100000001B3 % 2**64
            print(name, op, CASES, f"{state:016x}", flush=True)
