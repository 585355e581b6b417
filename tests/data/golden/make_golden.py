#!/usr/bin/env python3
"""Writes casts.txt: where the casts of ml_dtypes, PyTorch and gfloat step from one code to the next.

A cast is a staircase, so all 2^32 inputs are known from the smallest float of each step (found by bisection, for both
signs) and from a few NaNs. Formats of 16 bits keep every 151st step. Run in a throw-away environment:

    python3 -m venv v && v/bin/pip install numpy ml_dtypes gfloat torch && v/bin/python make_golden.py > casts.txt
"""
from importlib import metadata

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import torch

INFINITY = 0x7F800000
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF812345, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)


def steps(cast, bits, last, every, fnuz):
    """Float bits around every step, with their codes, for both signs; `last`: the code above the last step."""
    sign_bit = 1 << (bits - 1)
    for sign in (0, 0x80000000):
        def code(u):
            return cast((u | sign).astype(np.uint32).view(np.float32)).astype(np.int64)

        def rank(u):
            c = code(u)
            return np.where((c == sign_bit) & fnuz, last, np.minimum(c % sign_bit, last))

        wanted = np.arange(1, last + 1, every, dtype=np.int64)
        low, high = np.zeros_like(wanted), np.full_like(wanted, INFINITY)
        while (high - low > 1).any():
            middle = (low + high) // 2
            reached = rank(middle) >= wanted
            high, low = np.where(reached, middle, high), np.where(reached, low, middle)
        found = np.array(sorted({0, INFINITY} | set(high.tolist()) | set((high - 1).tolist())), np.int64)
        yield (found | sign).tolist(), code(found).tolist()


def write(profile, name, rounding, cast, bits, last, every=1, nans=True):
    def row(inputs, codes):
        print(profile, name, rounding, *(f"{b:08x}:{c:x}" for b, c in zip(inputs, codes)))

    for inputs, codes in steps(cast, bits, last, every, name.endswith("fnuz")):
        row(inputs, codes)
    if nans:
        row(NANS.tolist(), cast(NANS.view(np.float32)).tolist())


def numpy_cast(dtype, width=np.uint8):
    return lambda x: x.astype(dtype).view(width)


def torch_cast(dtype):
    return lambda x: torch.from_numpy(x.copy()).to(dtype).view(torch.uint8).numpy()


def gfloat_cast(info, mode, saturate):
    def cast(x):
        rounded = gfloat.round_ndarray(info, x.astype(np.float64), mode, sat=saturate)
        codes = gfloat.encode_ndarray(info, rounded)
        return np.where(np.isnan(rounded), 0x7F, codes)  # E4M3 overflow: gfloat writes 0xff whatever the sign
    return cast


def main():
    np.seterr(all="ignore")
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in ("ml_dtypes", "torch", "gfloat", "numpy"))
    print(f"# {versions}; made by make_golden.py\n# profile format rounding float-bits:code ...")
    even = "nearest_even"
    # The last step: to infinity (0x7c), to NaN (0x7f, or 0x80 called 128), or to the largest value if that is the end.
    for name, dtype, last in [
        ("e4m3", ml_dtypes.float8_e4m3fn, 0x7F), ("e5m2", ml_dtypes.float8_e5m2, 0x7C),
        ("e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 128), ("e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 128),
        ("e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz, 128),
        ("e4m3ieee", ml_dtypes.float8_e4m3, 0x78), ("e3m4", ml_dtypes.float8_e3m4, 0x70),
    ]:
        write("ml_dtypes", name, even, numpy_cast(dtype), 8, last)
    for name, dtype, bits, last in [
        ("e3m2", ml_dtypes.float6_e3m2fn, 6, 31), ("e2m3", ml_dtypes.float6_e2m3fn, 6, 31),
        ("e2m1", ml_dtypes.float4_e2m1fn, 4, 7),
    ]:
        # NaN becomes a zero of these there, and the largest value here.
        write("ml_dtypes", name, even, numpy_cast(dtype), bits, last, nans=False)
    write("ml_dtypes", "bf16", even, numpy_cast(ml_dtypes.bfloat16, np.uint16), 16, 0x7F80, 151)
    write("ieee", "fp16", even, numpy_cast(np.float16, np.uint16), 16, 0x7C00, 151, nans=False)
    write("torch", "e4m3", even, torch_cast(torch.float8_e4m3fn), 8, 0x7E)
    for name, dtype, last in [
        ("e5m2", torch.float8_e5m2, 0x7C), ("e4m3fnuz", torch.float8_e4m3fnuz, 128),
        ("e5m2fnuz", torch.float8_e5m2fnuz, 128),
    ]:
        write("torch-2025", name, even, torch_cast(dtype), 8, last)
    modes = {even: "TiesToEven", "nearest_away": "TiesToAway", "toward_zero": "TowardZero", "down": "TowardNegative",
             "up": "TowardPositive"}
    for name, bits, last in [("e4m3", 8, 0x7E), ("e5m2", 8, 0x7B), ("e3m2", 6, 31), ("e2m3", 6, 31), ("e2m1", 4, 7)]:
        info = getattr(gfloat.formats, "format_info_ocp_" + name)
        for rounding, mode in modes.items():
            mode = gfloat.RoundMode[mode]
            if bits == 8:  # gfloat refuses to overflow FP6 and FP4
                write("ieee", name, rounding, gfloat_cast(info, mode, False), bits, last + 1, nans=False)
            write("ocp-saturate", name, rounding, gfloat_cast(info, mode, True), bits, last, nans=False)


if __name__ == "__main__":
    main()
