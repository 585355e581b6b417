"""The coefficients in formats/scalar_math_gelu.h, scalar_math_silu.h and scalar_math_estimate.h, by interpolation at
Chebyshev's nodes with 60 digits.

    python3 tests/data/mpmath/gelu.py        # needs mpmath
"""

import mpmath
from mpmath import cos, erfc, exp, mpf, pi, sqrt

mpmath.mp.dps = 60


def interpolate(f, low, high, degree):
    """Coefficients in powers of s of the polynomial that meets f at Chebyshev's nodes of [low, high]."""
    count = degree + 1
    middle, radius = (low + high) / 2, (high - low) / 2
    nodes = [middle + radius * cos(pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    matrix = mpmath.matrix(count, count)
    values = mpmath.matrix(count, 1)
    for row, s in enumerate(nodes):
        for column in range(count):
            matrix[row, column] = s**column
        values[row] = f(s)
    return list(mpmath.lu_solve(matrix, values))


def relative_error(f, coefficients, low, high):
    """log2 of the largest relative error at 401 points."""
    points = [low + (high - low) * (k + mpf(1) / 3) / 401 for k in range(401)]
    return mpmath.log(max(abs(mpmath.polyval(coefficients[::-1], s) / f(s) - 1) for s in points), 2)


def show(name, f, low, high, degree):
    coefficients = interpolate(f, low, high, degree)
    print(f"{name}: error 2^{mpmath.nstr(relative_error(f, coefficients, low, high), 4)}")
    print(", ".join(float(c).hex() for c in coefficients))


def mills(s):
    t = 5 * (1 + s) / (1 - s)
    return (1 + t) * erfc(t / sqrt(mpf(2))) * exp(t * t / 2) / 2


def erf_derivative(x):
    return erfc(-x / sqrt(mpf(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi)


def tanh_derivative(x):
    slope, cubic = 2 * sqrt(2 / pi), mpf("0.044715")
    s = 1 / (1 + exp(-slope * (x + cubic * x**3)))
    return s + x * s * (1 - s) * slope * (1 + 3 * cubic * x * x)


def silu_derivative(x):
    s = 1 / (1 + exp(-x))
    return s + x * s * (1 - s)


show("mills", mills, mpf(-1), mpf(35) / 45, 23)
for name, f, near in (("gelu_derivative", erf_derivative, "-0.752"),
                      ("gelu_tanh_derivative", tanh_derivative, "-0.752"),
                      ("silu_derivative", silu_derivative, "-1.278")):
    zero = mpmath.findroot(f, mpf(near), tol=1e-50)
    print(f"{name}: zero {float(zero).hex()} {float(zero - mpf(float(zero))).hex()}")
    show(name, lambda d: f(zero + d) / d, mpf(-1) / 4, mpf(1) / 4, 13)


def tail(t):
    return erfc(t / sqrt(mpf(2))) * exp(t * t / 2) / 2


def estimated(s, f):
    """f of t = 4 (1 + s) / (1 - s), which is 8 at s = 1/3."""
    return f(4 * (1 + s) / (1 - s))


slope_zero = -mpmath.findroot(erf_derivative, mpf("-0.752"), tol=1e-50)
half = mpmath.log(2) / 2
show("estimate of exp", exp, -half, half, 9)
show("estimate of mills", lambda s: estimated(s, lambda t: (t + 4) * tail(t)), mpf(-1), mpf(1) / 3, 12)
show("estimate of mills_slope",
     lambda s: estimated(s, lambda t: (tail(t) - t / sqrt(2 * pi)) / (t - slope_zero)), mpf(-1), mpf(1) / 3, 12)
