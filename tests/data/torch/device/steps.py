"""Fused sums with any number of products a step and any number of bits, for hardware that no row describes.

The plain twin of formats/dot.h, in FP64 over all elements of a product at once: exact as long as a step has fewer than
2^(52 - bits) terms. A zero term takes no part in the alignment.
"""
import numpy as np

LEAST = {"fp16": -14, "bf16": -126, "tf32": -126, "fp32": -126, "e4m3": -6, "e5m2": -14}
ZERO = -10000


def _exponents(x, least):
    return np.where(x == 0, ZERO, np.maximum(np.frexp(x)[1] - 1, least))


def _cut(x, exponent):
    """x towards zero to a multiple of 2^exponent."""
    return np.ldexp(np.trunc(np.ldexp(x, -exponent)), exponent)


def fused(a, b, formats, products, bits):
    """a (M x K) times b (N x K): each step adds `products` products and the sum so far, aligned to the largest exponent
    and cut off `bits` below it, and cuts the sum to FP32, or to 13 bits of fraction where it keeps 13."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    exponents = [_exponents(x, LEAST[name]) for x, name in zip((a, b), formats)]
    total = np.zeros((len(a), len(b)))
    fraction = 13 if bits == 13 else 23
    for begin in range(0, a.shape[1], products):
        part = slice(begin, begin + products)
        terms = a[:, None, part] * b[None, :, part]
        aligned = np.where(terms == 0, ZERO, exponents[0][:, None, part] + exponents[1][None, :, part])
        largest = np.maximum(aligned.max(2), _exponents(total, -126))
        unit = np.where(largest == ZERO, 0, largest - bits)
        total = _cut(terms, unit[:, :, None]).sum(2) + _cut(total, unit)
        total = _cut(total, np.where(total == 0, 0, _exponents(total, -126) - fraction))
    return total.astype(np.float32)


def kinds(kind):
    """What to try: pairs of products and bits."""
    if kind.startswith("fp8"):
        return [(products, bits) for bits in (13, 14, 12, 22, 23, 24, 25) for products in (32, 16, 8, 64)]
    return [(products, bits) for bits in (25, 24, 23, 26, 27, 22) for products in (16, 8, 4, 2, 32)]
