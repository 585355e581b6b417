"""Records how torchao scales: MX blocks in all four modes, float8 tensors. Run by hand with torch and torchao from
PyPI:

    python tests/data/torchao/scales.py > tests/data/torchao/scales.txt

Blocks are made of words of a linear congruential generator, so that tests/test_block_torchao.cpp makes the same ones.
"""
import numpy
import torch
import torchao
from torchao.float8.float8_utils import amax_to_scale, to_fp8_saturated
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx

BLOCKS = 600


def words(count, seed):
    out, x = numpy.empty(count, dtype=numpy.uint32), seed
    for i in range(count):
        x = (x * 1664525 + 1013904223) % 2**32
        out[i] = x
    return out


def blocks():
    """Exponents of a block lie in 16 binades, which begin anywhere."""
    w = words(BLOCKS * 33, 1).reshape(BLOCKS, 33)
    first = (w[:, :1] >> 8) % 224 + 8
    return ((w[:, 1:] & 0x807FFFFF) | ((first + (w[:, 1:] >> 24) % 16) << 23)).astype(numpy.uint32).view(numpy.float32)


def just_above_powers(largest):
    """amax of which max / amax lies up to 99 steps below a power of two, where FP32's log2 is an integer already."""
    powers = numpy.float32(largest) * numpy.exp2(numpy.arange(-48, 116, dtype=numpy.float32))
    powers = powers[numpy.isfinite(powers)]
    return (powers.view(numpy.uint32)[:, None] + numpy.arange(100, dtype=numpy.uint32)).view(numpy.float32).flatten()


def fnv(data):
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ int(byte)) * 0x01000193 % 2**32
    return h


print(f"# torch {torch.__version__}, torchao {torchao.__version__}")
x = torch.from_numpy(blocks())
for element in (torch.float8_e4m3fn, torch.float8_e5m2):
    for mode in ScaleCalculationMode:
        scale, data = to_mx(x, element, 32, scaling_mode=mode)
        bytes_ = scale.view(torch.uint8).flatten().tolist()
        name = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}[element]
        print("mx", mode.value, name, f"{fnv(data.view(torch.uint8).flatten().tolist()):08x}", bytes(bytes_).hex())
amax = torch.from_numpy(numpy.abs(blocks()[:, 0]).copy())
for element in (torch.float8_e4m3fn, torch.float8_e5m2):
    for pow2 in (False, True):
        s = torch.stack([amax_to_scale(a, element, round_scales_to_power_of_2=pow2) for a in amax])
        q = to_fp8_saturated(x * s[:, None], element)
        name = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}[element]
        print("float8", "pow2" if pow2 else "exact", name, f"{fnv(q.view(torch.uint8).flatten().tolist()):08x}",
              s.numpy().view(numpy.uint32).astype(">u4").tobytes().hex())
special = numpy.array([0, 0x1, 0x7FFFFF, 0x2B8CBCCC, 0x2B8CBCCD, 0x7F7FFFFF, 0x7F800000, 0x7FC00000],
                      dtype=numpy.uint32)
for element in (torch.float8_e4m3fn, torch.float8_e5m2):
    for pow2 in (False, True):
        amax = torch.from_numpy(numpy.concatenate([just_above_powers(torch.finfo(element).max),
                                                   special.view(numpy.float32)]))
        s = torch.stack([amax_to_scale(a, element, round_scales_to_power_of_2=pow2) for a in amax])
        name = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}[element]
        print("edges", "pow2" if pow2 else "exact", name, f"{fnv(s.numpy().view(numpy.uint8)):08x}",
              s[-len(special):].numpy().view(numpy.uint32).astype(">u4").tobytes().hex())
