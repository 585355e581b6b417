"""Operands of every kind from a seed, to record models of matrix hardware; tests/hardware_inputs.h has the same."""
import numpy
import torch

# Exponent bits, fraction bits; which codes are not finite: those of IEEE 754, all ones, or negative zero.
FORMATS = {"fp32": (8, 23, "ieee"), "fp16": (5, 10, "ieee"), "bf16": (8, 7, "ieee"), "e5m2": (5, 2, "ieee"),
           "e4m3": (4, 3, "ones"), "e4m3fnuz": (4, 3, "zero"), "e5m2fnuz": (5, 2, "zero"), "e2m1": (2, 1, "none")}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e5m2": torch.float8_e5m2,
          "e4m3": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz}
FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
KINDS = ["ordinary", "any", "cancelling", "subnormal", "zeros", "specials"]


def mixed(x):
    """A hash of each 32-bit word."""
    x = numpy.asarray(x).astype(numpy.uint32)
    x = (x ^ (x >> 16)) * numpy.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * numpy.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def words(seed, line, n):
    base = numpy.uint32(seed) * numpy.uint32(0x9E3779B9) + numpy.uint32(line)
    return mixed(mixed(base) + numpy.arange(n, dtype=numpy.uint32))


def codes(name, kind, word):
    """Codes of the format from random words; NaN and infinities only if the kind is "specials"."""
    code, negative_zero = any_codes(name, kind, word), 1 << (FORMATS[name][0] + FORMATS[name][1])
    finite = FORMATS[name][2] != "zero" or kind == "specials"
    return code if finite else numpy.where(code == negative_zero, numpy.uint32(0), code)


def any_codes(name, kind, word):
    exponent_bits, fraction_bits, nonfinite = FORMATS[name]
    ieee, ones = nonfinite == "ieee", nonfinite == "ones"
    bits, bias = 1 + exponent_bits + fraction_bits, 2 ** (exponent_bits - 1) - 1
    top = numpy.uint32(2**exponent_bits - 1)
    sign, fraction = (word >> 31) << (bits - 1), word & numpy.uint32(2**fraction_bits - 1)
    binade = (bias - 3 + ((word >> 23) & numpy.uint32(7)).astype(numpy.int64)).clip(0, int(top)).astype(numpy.uint32)
    middle = sign | (binade << fraction_bits) | fraction
    anything = mixed(word + numpy.uint32(1)) & numpy.uint32((1 << bits) - 1)
    exponent = (anything >> fraction_bits) & top
    full = (anything & numpy.uint32(2**fraction_bits - 1)) == 2**fraction_bits - 1
    special = (exponent == top) & (ieee | (ones & full))
    finite = numpy.where(special, anything ^ numpy.uint32(1 << (bits - 2)), anything)
    if ieee:  # ordinary numbers are finite, too
        too_large = ((middle >> fraction_bits) & top) == top
        middle = numpy.where(too_large, middle ^ numpy.uint32(1 << fraction_bits), middle)
    elif ones:
        nan = (middle | numpy.uint32(1 << (bits - 1))) == (1 << bits) - 1
        middle = numpy.where(nan, middle ^ numpy.uint32(1), middle)
    odd = numpy.arange(len(word)) % 2 == 1
    if kind == "any":
        return finite
    if kind == "cancelling":  # of a pair, the second is the first with the other sign
        return numpy.where(odd, numpy.roll(middle, 1) ^ numpy.uint32(1 << (bits - 1)), middle)
    if kind == "subnormal":
        return sign | (((word >> 23) & numpy.uint32(1)) << fraction_bits) | fraction
    if kind == "zeros":
        return numpy.where((word >> 22) & 1, sign, finite)
    if kind == "specials":
        special = anything | (top << fraction_bits) if ieee else anything | (1 << (bits - 1)) - 1 if ones else anything
        if nonfinite == "zero":
            special = numpy.full(len(word), 1 << (bits - 1), numpy.uint32)
        return numpy.where((word >> 18) % 16 == 0, special, middle)
    return middle


def values(name, code):
    """Floats of the codes."""
    if name == "e2m1":
        return torch.tensor([FP4[c & 7] * (-1 if c & 8 else 1) for c in code], dtype=torch.float32)
    width = {"fp32": numpy.uint32, "fp16": numpy.uint16, "bf16": numpy.uint16}.get(name, numpy.uint8)
    raw = torch.from_numpy(code.astype(width).view({4: numpy.int32, 2: numpy.int16, 1: numpy.int8}[width().itemsize]))
    return raw.view(DTYPES[name])


def fnv(words32):
    """FNV-1a of the bytes of 32-bit words."""
    h = 0xCBF29CE484222325
    for byte in numpy.asarray(words32, dtype="<u4").tobytes():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{h:016x}"
