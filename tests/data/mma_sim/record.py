"""Records dot products as MMA-Sim (microsoft/MMA-Sim, MIT licence) computes them, by running its Python:

    python tests/data/mma_sim/record.py MMA_SIM > tests/data/mma_sim/recordings.txt

The argument is a work tree of that repository. Run by hand with torch from PyPI; rows run side by side on all cores.

A line is a row of accumulator.h, the formats of its operands, the format of scales and how many numbers share one ("-"
and 0 without), a kind of input, the seed, the number of dot products, that of multiplications in each, and a hash of
the results: FP32 words, in which every NaN is 0x7fffffff and -0 is +0, since the Python keeps the sign of no zero.
tests/test_mma_sim.cpp makes the same inputs.
"""
import multiprocessing
import pathlib
import subprocess
import sys

import numpy
import torch

torch.set_num_threads(1)
MMA_SIM = sys.argv[1]
sys.path[:0] = [MMA_SIM, str(pathlib.Path(__file__).parents[1])]
from hardware_inputs import KINDS, codes, fnv, values, words  # noqa: E402
from mmasim.simulator import arithmetic  # noqa: E402

WITHOUT_ZEROS = ["ordinary", "cancelling", "specials"]


def addend(kind, word):
    """The sum so far, in FP32."""
    code = codes("fp32", "ordinary" if kind == "cancelling" else kind, numpy.array([word, word], dtype=numpy.uint32))[0]
    return values("fp32", numpy.array([0 if word % 4 == 0 else code]))[0]


def scales(name, kind, word):
    """Scales: ordinary ones, or any that the format has; in "specials" a few are NaN."""
    exotic = kind in ("any", "subnormal", "zeros")
    if name == "e8m0":
        code = (word >> 8) % 255 if exotic else 115 + (word >> 8) % 25
        code = numpy.where((kind == "specials") & ((word >> 20) % 64 == 0), 255, code)
        return torch.from_numpy(code.astype(numpy.uint8)).view(torch.float8_e8m0fnu)
    code = (word >> 8) % 256 if exotic else 0x28 + (word >> 8) % 0x20
    code = numpy.where((code & 0x7F) == 0x7F, code & 0x80, code)
    code = numpy.where((kind == "specials") & ((word >> 20) % 64 == 0), 0x7F | code, code)
    return torch.from_numpy(code.astype(numpy.uint8)).view(torch.float8_e4m3fn)


def fp4_with_scales(a, b, c, sa, sb):
    return arithmetic.nv_fused_dot_add_with_block_scale(a, b, c, sa, sb, 35)


def mx_with_scales(a, b, c, sa, sb):
    return arithmetic.nv_fused_dot_add(a, b, c, 25, "f32", sa[0], sb[0])


def cdna2(a, b, c):
    a, b, c = (arithmetic.flush_denormal(x.clone()) for x in (a, b, c.reshape(1)))
    c = c[0] + arithmetic.pairwise_dot(a.float(), b.float(), True)
    return arithmetic.flush_denormal(c.reshape(1), keep_sign=True)[0]


def xf32(x):
    """What MMA-Sim reads of FP32. But NaN stays NaN: cut like a number, it becomes infinite where its first ten
    fraction bits are zero."""
    return torch.where(torch.isnan(x), x, arithmetic.truncate_to_tf32(x))


def cdna3(a, b, c):
    if a.dtype == torch.float32:
        a, b = xf32(a), xf32(b)
    return torch.tensor(arithmetic.amd_fused_dot_rd_add(a, b, c, 24, a.element_size() == 1), dtype=torch.float32)


# (row, a, b, scales, block, multiplications, function)
ROWS = [("blackwell-mxf4nvf4", "e2m1", "e2m1", s, block, 64, fp4_with_scales)
        for s in ("e4m3", "e8m0") for block in (16, 32)]
ROWS += [("blackwell-fp8", a, b, "e8m0", 32, 32, mx_with_scales) for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"))]
ROWS += [(row, f, f, "-", 0, k, cdna2) for row, f, k in
         (("cdna2-fp16", "fp16", 4), ("cdna2-bf16", "bf16", 2), ("cdna2-1k-bf16", "bf16", 4))]
ROWS += [(row, f, f, "-", 0, k, cdna3) for row, f, k in
         (("cdna3-fp16", "fp16", 8), ("cdna3-bf16", "bf16", 8), ("cdna3-xf32", "fp32", 4))]
ROWS += [("cdna3-fp8", f, f, "-", 0, 16, cdna3) for f in ("e4m3fnuz", "e5m2fnuz")]
COUNT = 100000


def record(task):
    (row, a_format, b_format, scale, block, k, function), kind, seed = task
    results = []
    for line in range(COUNT):
        w = [words(seed, 8 * line + i, n) for i, n in enumerate((k, k, 1, k // (block or k), k // (block or k)))]
        b_kind = "ordinary" if kind == "cancelling" else kind
        a, b = values(a_format, codes(a_format, kind, w[0])), values(b_format, codes(b_format, b_kind, w[1]))
        if kind == "cancelling":  # both factors of a pair agree but for a sign, except in its last pair
            b[1:-1:2] = b[0:-2:2]
        c = addend(kind, int(w[2][0]))
        extra = [scales(scale, kind, w[3]), scales(scale, kind, w[4])] if scale != "-" else []
        if row == "blackwell-mxf4nvf4" and torch.isinf(c):  # which its Python cannot take apart
            c = torch.tensor(1.0)
        d = function(a, b, c, *extra)
        bits = int(d.view(torch.int32).item()) & 0xFFFFFFFF
        if d != d:
            bits = 0x7FFFFFFF
        if bits == 0x80000000:
            bits = 0
        results.append(bits)
    return f"{row} {a_format} {b_format} {scale} {block} {kind} {seed} {COUNT} {k} {fnv(results)}"


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", MMA_SIM, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"# torch {torch.__version__}, MMA-Sim {commit or sys.argv[2]}", flush=True)
    # This version gives zero factors the exponent -126 each, scales on top, so that a zero beside a large scale or
    # factor cuts off other terms. Its authors have since made the exponent of zeros a parameter: here zeros are left
    # out where it matters.
    kinds = {"blackwell-fp8": WITHOUT_ZEROS, **{row[0]: [k for k in KINDS if k != "zeros"] for row in ROWS
                                                if row[0].startswith("cdna3")}}
    tasks = [(row, kind, 100 * r + i) for r, row in enumerate(ROWS) for i, kind in enumerate(KINDS)
             if kind in kinds.get(row[0], KINDS)]
    with multiprocessing.Pool() as pool:
        for text in pool.imap(record, tasks):
            print(text, flush=True)
