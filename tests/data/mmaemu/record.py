"""Records products as mmaemu 0.1.0 computes torch._scaled_mm on a processor:

    pip install mmaemu==0.1.0 && python tests/data/mmaemu/record.py > tests/data/mmaemu/recordings.txt

Shapes are the smallest of its recorded tables (cuBLASLt 12.8.3.14 on an H100 PCIe and an RTX 4060) for each number of
parts of split-K and each order in which they are added, with fast accumulation and without, in BF16; other outputs,
formats and kinds of input on the first of them. Only what mmaemu has replayed on that hardware is asked of it.

A line is the profile, the formats of operands and of the output, m, n, k, whether accumulation is fast, the parts and
their order, a kind of input, a seed, and a hash of the output as FP32 words, NaN 0x7fc00000.
"""
import pathlib
import sys
import warnings

import mmaemu
import numpy
import torch
from mmaemu.platform.splitk_table import resolve_splitk

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from hardware_inputs import codes, fnv, values, words  # noqa: E402

warnings.simplefilter("ignore")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn}
TABLES = {"hopper": "heur_h100pcie_lt12.8.3.14", "ada": "heur_rtx4060_lt12.8.3.14"}
ORDERS = {"none": "-", "contiguous": "runs", "serial": "cyclic", "pairwise": "pairs"}


def shapes(profile):
    """The smallest shape of each split, order and speed, in BF16 with torch's workspace."""
    data = pathlib.Path(mmaemu.__file__).parent / "platform/data"
    table = numpy.load(data / f"{TABLES[profile]}.npz")
    chosen = (table["ws"] == 1) & (table["out"] == 1) & (table["fa"] == 0) & (table["fb"] == 0) & (table["K"] >= 1024)
    m, n, k = (table[c][chosen].astype(numpy.int64) for c in "MNK")
    found = {}
    fast, split, custom = (table[c][chosen] for c in ("fast", "splitK", "custom"))
    order = custom == 1 if profile == "ada" else numpy.zeros(len(custom), bool)
    for i in numpy.argsort(m * n * k, kind="stable"):
        if m[i] * n[i] * k[i] > 2**28:
            break
        case = (bool(fast[i]), int(split[i]), bool(order[i]) and split[i] > 1)
        found.setdefault(case, (int(m[i]), int(n[i]), int(k[i])))
    return sorted((shape, fast) for (fast, _, _), shape in found.items())


def scale(seed, i):
    """A scale from 2^-8 to 2."""
    word = int(words(seed, i, 1)[0])
    return torch.tensor((1 + (word & 0x7FFFFF) / 2**23) * 2.0 ** ((word >> 24) % 9 - 8), dtype=torch.float32)


def record(profile, a, b, out, shape, fast, kind, seed):
    m, n, k = shape
    x, y = (torch.stack([values(f, codes(f, kind, words(seed, first + i, k))) for i in range(count)])
            for f, first, count in ((a, 0, m), (b, 1 << 20, n)))
    try:
        split = resolve_splitk(m, n, k, a_dtype=x.dtype, b_dtype=y.dtype, out_dtype=DTYPES[out], use_fast_accum=fast,
                               profile=profile)
    except mmaemu.errors.SplitKUnknownError:
        return
    if split.source != "table" or not split.verified:
        return
    d = mmaemu.scaled_mm(x, y.t(), scale(seed, 1 << 21), scale(seed, (1 << 21) + 1), out_dtype=DTYPES[out],
                         use_fast_accum=fast, profile=profile, backend="reference")
    bits = d.float().contiguous().view(torch.int32).numpy().view(numpy.uint32).ravel()
    bits = numpy.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, bits)
    print(profile, a, b, out, *shape, int(fast), split.S, ORDERS[split.scheme], kind, seed, fnv(bits), flush=True)


print(f"# torch {torch.__version__}, mmaemu {mmaemu.__version__}", flush=True)
seed = 0
for profile in TABLES:
    of_profile = shapes(profile)
    for shape, fast in of_profile:
        record(profile, "e4m3", "e4m3", "bf16", shape, fast, "ordinary", seed := seed + 1)
    for shape, fast in of_profile[:4]:
        for out in DTYPES:
            for kind in ("any", "zeros", "subnormal", *(["specials"] if out == "bf16" else [])):
                record(profile, "e4m3", "e4m3", out, shape, fast, kind, seed := seed + 1)
                if profile == "hopper":
                    record(profile, "e5m2", "e4m3", out, shape, fast, kind, seed := seed + 1)
