"""The irrational functions of IEEE P3109 v4.0 by mpmath, for tests/test_p3109_functions.cpp:

    python tests/data/p3109/functions.py > tests/data/p3109/functions.txt        # needs mpmath; minutes

A line has a function by the report's name, the operands, their number and a hash of the exact results. Operands are
all codes of a format, all pairs of codes of two, or pseudo-random FP32 numbers ("fp32") and products and pairs of them.
Of a result, the hash has its kind, the exponent of its leading bit, and its first 63 bits with one more for what lies
below. A result that agrees with a number of 63 bits to 1200 bits is taken for that number, but where the report's
formula says that it cannot be. None of ampscope, and none of its lists of special results.
"""
import multiprocessing
import sys

import mpmath
from mpmath import mp, mpf

FORMATS = ["binary4p2sf", "binary8p3se", "binary8p4se", "binary8p1uf", "binary6p1se", "binary12p7sf", "bf16"]
SAMPLES = 20000
NAN, PLUS, MINUS = "nan", "+inf", "-inf"


def mixed(x):
    x = ((x ^ x >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ x >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ x >> 16


def ieee(code, exponent_bits, fraction_bits):
    sign = -1 if code >> exponent_bits + fraction_bits else 1
    field, fraction = code >> fraction_bits & (1 << exponent_bits) - 1, code & (1 << fraction_bits) - 1
    if field == (1 << exponent_bits) - 1:
        return NAN if fraction else PLUS if sign > 0 else MINUS
    least = 2 - (1 << exponent_bits - 1) - fraction_bits
    return mpmath.ldexp(mpf(sign * (fraction + (1 << fraction_bits if field else 0))), max(field, 1) - 1 + least)


def decode(name, code):
    """Section 4.7.2."""
    if name in ("bf16", "fp32"):
        return ieee(code, 8, 7 if name == "bf16" else 23)
    k, p = map(int, name[6:-2].split("p"))
    signed, extended = name[-2] == "s", name[-1] == "e"
    half = 1 << k - 1
    if code == (half if signed else 2 * half - 1):
        return NAN
    if extended and code == (half - 1 if signed else 2 * half - 2):
        return PLUS
    if signed and code > half:
        x = decode(name, code - half)
        return MINUS if x == PLUS else -x
    t, e = code % (1 << p - 1), code >> p - 1
    bias = 1 << k - p - (1 if signed else 0)
    return mpmath.ldexp(mpf(t + (1 << p - 1 if e else 0)), max(e, 1) - bias + 1 - p)


def tan_pi(x):
    return mpmath.sinpi(x) / mpmath.cospi(x)


# Name: the function of numbers, where it is NaN or infinite, and what it is of the two infinities.
UNARY = {
    "RSqrt": (lambda x: 1 / mpmath.sqrt(x), lambda x: NAN if x <= 0 else None, mpf(0), NAN),
    "Exp": (mpmath.exp, lambda x: None, PLUS, mpf(0)),
    "Exp2": (lambda x: mpmath.power(2, x), lambda x: None, PLUS, mpf(0)),
    "ExpMinusOne": (mpmath.expm1, lambda x: None, PLUS, mpf(-1)),
    "Log": (mpmath.log, lambda x: NAN if x < 0 else MINUS if x == 0 else None, PLUS, NAN),
    "Log2": (lambda x: mpmath.log(x) / mpmath.log(2), lambda x: NAN if x < 0 else MINUS if x == 0 else None, PLUS, NAN),
    "LogOnePlus": (mpmath.log1p, lambda x: NAN if x < -1 else MINUS if x == -1 else None, PLUS, NAN),
    "Softplus": (lambda x: mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x)), lambda x: None,
                 PLUS, mpf(0)),
    "Sin": (mpmath.sin, lambda x: None, NAN, NAN),
    "Cos": (mpmath.cos, lambda x: None, NAN, NAN),
    "Tan": (mpmath.tan, lambda x: None, NAN, NAN),
    "ArcSin": (mpmath.asin, lambda x: NAN if abs(x) > 1 else None, NAN, NAN),
    "ArcCos": (mpmath.acos, lambda x: NAN if abs(x) > 1 else None, NAN, NAN),
    "ArcTan": (mpmath.atan, lambda x: None, lambda: mp.pi / 2, lambda: -mp.pi / 2),
    "SinPi": (mpmath.sinpi, lambda x: None, NAN, NAN),
    "CosPi": (mpmath.cospi, lambda x: None, NAN, NAN),
    "TanPi": (tan_pi, lambda x: NAN if mpmath.cospi(x) == 0 else None, NAN, NAN),
    "ArcSinPi": (lambda x: mpmath.asin(x) / mp.pi, lambda x: NAN if abs(x) > 1 else None, NAN, NAN),
    "ArcCosPi": (lambda x: mpmath.acos(x) / mp.pi, lambda x: NAN if abs(x) > 1 else None, NAN, NAN),
    "ArcTanPi": (lambda x: mpmath.atan(x) / mp.pi, lambda x: None, mpf(0.5), mpf(-0.5)),
    "Sinh": (mpmath.sinh, lambda x: None, PLUS, MINUS),
    "Cosh": (mpmath.cosh, lambda x: None, PLUS, PLUS),
    "Tanh": (mpmath.tanh, lambda x: None, mpf(1), mpf(-1)),
    "ArcSinh": (mpmath.asinh, lambda x: None, PLUS, MINUS),
    "ArcCosh": (mpmath.acosh, lambda x: NAN if x < 1 else None, PLUS, NAN),
    "ArcTanh": (mpmath.atanh, lambda x: NAN if abs(x) > 1 else (PLUS if x > 0 else MINUS) if abs(x) == 1 else None, NAN,
                NAN),
}


def side(name, x):
    """1 or -1 where a result beyond all precision lies above or below the number that it seems to be, in magnitude."""
    if name == "Softplus" and x > 100:
        return 1
    return -1 if name == "Tanh" and abs(x) > 100 or name == "ExpMinusOne" and x < -100 else 0


def far(name, x):
    """What is beyond 2^32768 or below its inverse, as words."""
    growing = {"Exp": x, "Exp2": x, "ExpMinusOne": max(x, 0), "Sinh": abs(x), "Cosh": abs(x), "Softplus": min(x, 0)}
    if abs(growing.get(name, 0)) < 32768:
        return None
    sign = 1 if name == "Sinh" and x < 0 else 0
    return (4 if growing[name] > 0 else 6) + sign, 0, 0


def words(compute, beyond=0):
    """The kind, exponent and bits of the number that compute() gives at the precision in force."""
    for precision in (300,) if beyond else (300, 1300):
        mp.prec = precision
        value = compute()
        if isinstance(value, str):
            return {NAN: 3, PLUS: 1, MINUS: 2}[value], 0, 0
        if value == 0:
            return 0, 0, 0
        man, exp = abs(value).man_exp
        size = int(man).bit_length()
        leading = exp + size - 1
        bits = int(man) << max(0, precision + 10 - size) >> max(0, size - precision - 10)
        head, rest, width = bits >> precision - 53, bits & (1 << precision - 53) - 1, precision - 53
        near = rest + (1 << width - 130 if precision == 300 else 1 << 80) & (1 << width) - 1
        if near >> (width - 130 if precision == 300 else 80) + 1 != 0:
            break
    else:  # a number of 63 bits, or what lies beside it
        head, rest = head + (rest >> width - 1), 0
        if beyond < 0:
            head -= 1
        if head >> 63:
            head, leading = head >> 1, leading + 1
        if not head >> 62:
            head, leading = head << 1 | 1, leading - 1
        rest = beyond
    if abs(leading) >= 32768:
        return (4 if leading > 0 else 6) + (1 if value < 0 else 0), 0, 0
    return 8 + (1 if value < 0 else 0), leading, head << 1 | (rest != 0)


def unary(name, x):
    function, special, at_plus, at_minus = UNARY[name]
    if x == NAN:
        return words(lambda: NAN)
    if isinstance(x, str):
        limit = at_plus if x == PLUS else at_minus
        return words(limit if callable(limit) else lambda: limit)
    if (known := special(x)) is not None:
        return words(lambda: known)
    return far(name, x) or words(lambda: function(x), side(name, x))


def hypot(x, y):
    if NAN in (x, y):
        return words(lambda: NAN)
    if isinstance(x, str) or isinstance(y, str):
        return words(lambda: PLUS)
    return words(lambda: mpmath.sqrt(x * x + y * y))


def arc_tan2(y, x, unit):
    """Section 4.10.15; 4.10.16 in units of pi."""
    infinite = [isinstance(v, str) for v in (y, x)]
    if NAN in (x, y) or all(infinite) or (y == 0 and x == 0):
        return words(lambda: NAN)
    if x == PLUS or (y == 0 and x != MINUS and x > 0):
        return words(lambda: mpf(0))
    if y == PLUS or (x == 0 and not infinite[0] and y > 0):
        return words(lambda: mp.pi / 2 / unit())
    if x == MINUS or (y == 0 and x < 0):
        return words(lambda: mp.pi / unit())
    if y == MINUS or (x == 0 and y < 0):
        return words(lambda: -mp.pi / 2 / unit())
    shift = 0 if x > 0 else 1 if y > 0 else -1
    return words(lambda: (mpmath.atan(y / x) + shift * mp.pi) / unit())


BINARY = {"Hypot": hypot, "ArcTan2": lambda y, x: arc_tan2(y, x, lambda: mpf(1)),
          "ArcTan2Pi": lambda y, x: arc_tan2(y, x, lambda: mp.pi)}


def sample(i):
    return decode("fp32", mixed(i))


def product(i):
    x, y = sample(2 * i), sample(2 * i + 1)
    return NAN if isinstance(x, str) or isinstance(y, str) else x * y


def line(job):
    name, operands = job
    mp.prec = 200  # operands are exact
    if name in UNARY:
        source = {"fp32": sample, "fp32*fp32": product}.get(operands, lambda i: decode(operands, i))
        bits = 16 if operands == "bf16" else int(operands[6:].split("p")[0]) if operands in FORMATS else 0
        count = 1 << bits if bits else SAMPLES
        results = (unary(name, source(i)) for i in range(count))
    elif operands == "fp32,fp32":
        count = SAMPLES
        results = (BINARY[name](sample(2 * i), sample(2 * i + 1)) for i in range(count))
    else:
        first, second = operands.split(",")
        count = 1 << 16
        results = (BINARY[name](decode(first, i >> 8), decode(second, i & 255)) for i in range(count))
    state = 0xCBF29CE484222325
    for result in results:
        mp.prec = 200
        for word in result:
            state = (state ^ word & 2**64 - 1) * 0x100000001B3 % 2**64
    return f"{name} {operands} {count} {state:016x}"


if __name__ == "__main__":
    jobs = [(name, f) for name in UNARY for f in [*FORMATS, "fp32", "fp32*fp32"]]
    jobs += [(name, f) for name in BINARY for f in ("binary8p4se,binary8p3se", "binary8p3se,binary8p4se", "fp32,fp32")]
    print("# mpmath", mpmath.__version__)
    with multiprocessing.Pool(2) as pool:
        for text in pool.imap(line, [job for job in jobs if job[0] in (sys.argv[1:] or [*UNARY, *BINARY])]):
            print(text, flush=True)
