"""Inputs by rule, and the rounding of FP32 numbers to the types that a device has: numpy only, no torch.

A recording does not hold its inputs: they follow from the functions here, wherever they run.
"""
import functools

import numpy as np

UNSIGNED = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
SUMS = (16, 32, 64, 256, 1024, 4096, 16384)  # K of the recorded products
SCALES = {"one": (1.0, 1.0), "powers": (2.0**-3, 2.0**5), "odd": (0.7, 1.3)}  # of a and of b, one for all elements


def words(seed, count):
    """splitmix64 of a counter."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
        z = ((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
        z = ((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return z ^ (z >> np.uint64(31))


def normal(seed, *shape, spread=0):
    """FP32 numbers close to normal ones, each the sum of eight uniform ones; times 2^-(0 ... spread)."""
    count = int(np.prod(shape))
    pairs, low = words(2 * seed, 2 * count).reshape(count, 2), np.uint64(0x0000FFFF0000FFFF)
    pairs = ((pairs & low) + (pairs >> np.uint64(16) & low)).sum(1)  # of 16-bit numbers, in two halves
    parts = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    x = (parts.astype(np.int64) - 4 * 65535) / (65536 * np.sqrt(8 / 12))
    if spread:
        x = np.ldexp(x, -((words(2 * seed + 1, count) >> np.uint64(40)) % np.uint64(spread + 1)).astype(np.int64))
    return x.astype(np.float32).reshape(shape)


def whole(seed, below, *shape):
    """Whole numbers from 0 to below - 1."""
    return ((words(2 * seed, int(np.prod(shape))) >> np.uint64(33)) % np.uint64(below)).astype(np.int64).reshape(shape)


def _fp8_codes(x, exponent_bits, fraction_bits, largest):
    """Codes of the nearest values, ties to the even code."""
    code = np.arange(largest + 1)
    e, f = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    values = np.ldexp(f + np.where(e > 0, 1 << fraction_bits, 0), np.maximum(e, 1) - bias - fraction_bits)
    middle = (values[1:] + values[:-1]) / 2
    size = np.abs(x.astype(np.float64))
    nearest = np.searchsorted(middle, size)
    nearest += (nearest % 2 == 1) & (middle[np.minimum(nearest, largest - 1)] == size)
    return (nearest | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def codes_of(x, name):
    """The bits of the values of that type nearest to FP32 numbers, as unsigned numbers in their shape."""
    x = np.ascontiguousarray(x, np.float32)
    u = x.view(np.uint32)
    if name == "fp32":
        return u
    if name == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint16)
    if name == "bf16":
        return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return _fp8_codes(x, 4, 3, 0x7E) if name == "e4m3" else _fp8_codes(x, 5, 2, 0x7B)


def values_of(codes, name):
    """The FP32 numbers of bits of that type."""
    codes = np.ascontiguousarray(codes)
    if name == "fp32":
        return codes.view(np.float32)
    if name == "fp16":
        return codes.view(np.float16).astype(np.float32)
    if name == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32)
    size = codes & 0x7F
    if name == "e4m3":
        e, f, bias, fraction_bits, special = size >> 3, size & 7, 7, 3, np.where(size == 0x7F, np.nan, 0)
    else:
        e, f, bias, fraction_bits = size >> 2, size & 3, 15, 2
        special = np.where(e < 31, 0, np.where(f == 0, np.inf, np.nan))
    whole_part = f + np.where(e > 0, 1 << fraction_bits, 0)
    sizes = np.ldexp(whole_part.astype(np.float64), np.maximum(e, 1).astype(int) - bias - fraction_bits)
    return np.copysign(np.where(special == 0, sizes, special), np.where(codes & 0x80, -1, 1)).astype(np.float32)


def near(x, name):
    """FP32 numbers, each the value of that type that is nearest."""
    return values_of(codes_of(x, name), name)


_normal = functools.cache(normal)  # for all formats


@functools.lru_cache(2)  # cases with the same inputs follow each other
def product_inputs(m, n, k, dtype, spread=0):
    """Of matmul.py, as FP32 numbers: a of M x K, b of N x K, a bias of N numbers."""
    seed = 1000 + k + 20 * spread
    return (near(_normal(seed, m, k, spread=spread), dtype), near(_normal(seed + 1, n, k, spread=spread), dtype),
            near(_normal(seed + 2, n), dtype))


@functools.lru_cache(2)
def scaled_inputs(m, n, k, a_format, b_format):
    """Of scaled_mm.py, as FP32 numbers: a of M x K, b of N x K."""
    return near(4 * _normal(3000 + k, m, k), a_format), near(4 * _normal(3001 + k, n, k), b_format)


def scales_of(kind, m, n):
    """Of a and b: a number each, or a number for each row of a and of b."""
    if kind in SCALES:
        return tuple(np.full((1, 1), s, np.float32) for s in SCALES[kind])
    return tuple(np.exp2(normal(3500 + i, size, 1)).astype(np.float16).astype(np.float32)
                 for i, size in enumerate((m, n)))
