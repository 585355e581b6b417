#!/usr/bin/env python3
"""A page on what a device did, from the recordings in FOLDER:

    PYTHONPATH=BUILD/python python3 tests/data/torch/device_report.py FOLDER DATE > reports/torch-h200.md

Every product is computed again by the way that FOLDER/products.json has for it, and compared. With `--search`, that
file is made first. It needs torch, but no device.
"""
import argparse
import collections
import os
import sys

import numpy as np
import torch

from device import compare_products
from device.compare_ops import OURS, attention_measured, elementwise_measured, training_compared
from device.recording import Recording, recorded

PRODUCTS = ("matmul", "scaled_mm")
HEAD = """# PyTorch's products on an {name}, bit for bit

Recorded on {date} on one {name} (driver {driver}) with PyTorch {torch},
CUDA {cuda}, cuBLAS {cublas} and cuDNN {cudnn}, by `tests/data/torch/device`. The recordings are in `{folder}`;
this page is made by

    PYTHONPATH=build/prof/python python3 tests/data/torch/device_report.py {folder} {date} \\
        > reports/torch-h200.md

Inputs follow from a rule (`device/rules.py`), so that a recording holds outputs only: 64 bits of each whole
output's SHA-256, and the bits of all or some of its elements. "Compared" counts elements of whole products, since the
hash is that of ours, and those that were kept are equal one by one. `tests/python/test_torch_h200.py` repeats that for
all products but the largest. A row is one of the accumulators in `formats/accumulator.h`. "Tells apart" says of how
many products, the largest left out, another row would give other bits: small ones are often equal by more than one.
One device and one version of cuBLAS were seen: how K is split, above all, may be another with the next.

What the tables say:

- FP16, BF16 and FP8 products, and FP32 ones as TF32, are chains of steps of the row for the tensor core's instruction.
  Where a library splits K, each part is a chain of its own, and the parts' sums are added in order, in FP32. Layouts
  (nt, nn, tn, linear, bmm) and allow_*_reduced_precision_reduction change none of the FP16 and BF16 bits.
- A part is as many products beside each other as "K in parts" says ("4096: 1408" are parts of 1408, 1408 and 1280);
  "8 in 16 turns" are 16 parts that take tiles of 8 products in turn.
- A bias is added to the FP32 sum, and a scale multiplies it; the one rounding to the output's type comes after. One
  scale a tensor: the sum times (scale a times scale b). Scales a row: the sum times b's, then times a's.
- use_fast_accum=False moves the sum to FP32 after each 128 products; with True it stays in the tensor core's short
  accumulator throughout.
- Most TF32 products and all with sums in FP16 ran kernels made for Ampere (cutlass_80, mma.sync): on this device
  their bits are those of the Hopper rows, too, not of Ampere's.
- Operands of TF32 products are rounded to nearest, ties to even: {ties} of the products below have operands where ties
  away from zero give other bits.
- With allow_fp16_accumulation each part is summed in FP16, and each sum of two parts is rounded to FP16. A bias is
  added in FP32.
- Small matrices are split far: even K = 16 into parts of 4 or 8. With a bias, where PyTorch takes allow_splitk=False,
  that leaves one chain at every K.
"""
OPS = """
## Elementwise ops, softmax and norms

The share of elements that differ from ours and the largest distance in units of the last place, the worse of two
shapes (64x100 and 8x1000). Ours round once from more bits; an op with * is PyTorch's own in FP64, rounded once. The
large distances are at numbers next to 0, where the device cancels or returns 0: the last column gives the largest error
of the device in FP32 as a share of the largest number.
"""
ATTENTION = """
## Attention (scaled_dot_product_attention)

The share of elements that differ from ours (emulated with the sums of Hopper's tensor cores; the worst of two shapes,
causal or not), and the distance that 99 % of them have at most; the largest errors of the device and of ours, as shares
of the largest number. PyTorch's "math" computes FP16 and BF16 in FP32 and rounds once: it is closer to FP64 than ours.
"""
TRAINING = """
## Training

100 steps with the initial weights and batches of `training.py`; the losses of `ampscope.torch.emulate` with each
setting beside the device's. "Farthest" is the largest relative difference of a loss; "processor's" is that of PyTorch
on a processor, with the same precision.
"""
OTHERS = {"hopper-wgmma-fp16": "ampere-fp16", "hopper-wgmma-bf16": "ampere-bf16", "hopper-wgmma-tf32": "ampere-tf32",
          "hopper-wgmma-fp16-acc16": "ampere-fp16-acc16", "fp32": "exact",
          "hopper-wgmma-fp8": "hopper-wgmma-fp8-promote128", "hopper-wgmma-fp8-promote128": "hopper-wgmma-fp8"}
SETTINGS = {"high": " as TF32", "fp16 sums": ", allow_fp16_accumulation"}


def setting_of(case):
    if "scales" in case:
        scales = {"one": "scales 1", "rows": "a scale a row"}.get(case["scales"], "a scale a tensor")
        return f"FP8, use_fast_accum={case['fast']}, {scales}"
    return f"{case['dtype'].upper()}{SETTINGS.get(case['setting'], '')}{', bias' if 'bias' in case['op'] else ''}"


def sum_of(found):
    begin = f"{found.operands.replace('nearest_even', 'operands to the nearest')}, " if found.operands else ""
    ending = f", {found.ending}" if found.ending else ""
    return f"{begin}{found.way.row}{', begun with the bias' if found.way.bias_first else ''}{ending}"


def splits_of(group):
    """For each K, of how many products the parts are."""
    texts = []
    for k, ways in sorted(group.items()):
        parts = [str(way.runs) if way.runs else "{1} in {0} turns".format(*way.cyclic)
                 for way in sorted(ways, key=lambda way: (way.runs, way.cyclic))]
        texts.append(f"{k}: {', '.join(parts)}")
    return "; ".join(texts) or "no"


def told_apart(recording, found):
    """Of each setting and sum: of how many products another row gives other bits, and which row that is."""
    others = [(number, what._replace(way=what.way._replace(row=OTHERS[what.way.row])))
              for number, what in found.items() if recording.cases[number]["m"] < 2048]
    counts = collections.Counter()
    for case, what, _, differences in compare_products.compared(recording, others):
        row = next(row for row, other in OTHERS.items() if other == what.way.row)
        found_sum = sum_of(what._replace(way=what.way._replace(row=row)))
        counts[setting_of(case), found_sum, what.way.row] += differences > 0
    return {(setting, text): f"{other}: {count}" for (setting, text, other), count in counts.items()}


def products_table(rows, apart):
    """A line for all cases with the same setting and sum."""
    groups = collections.defaultdict(lambda: (set(), set(), collections.defaultdict(set), [0, 0, 0]))
    for case, found, elements, differences in rows:
        outs, sizes, splits, counts = groups[setting_of(case), sum_of(found)]
        outs.add(case["out"]["type"].upper())
        sizes.add((case["m"], case["n"]))
        if found.way.parts(case["k"]):
            splits[case["k"]].add(found.way)
        for i, count in enumerate((1, elements, differences)):
            counts[i] += count
    yield "| setting | sum | K in parts | stored as | M x N | products | compared | differ | tells apart |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (setting, text), (outs, sizes, splits, counts) in groups.items():
        sizes = ", ".join(f"{m}x{n}" for m, n in sorted(sizes))
        yield (f"| {setting} | {text} | {splits_of(splits)} | {', '.join(sorted(outs))} | {sizes} | "
               f"{' | '.join(f'{count:,}' for count in counts)} | {apart.get((setting, text), '')} |")


def misses(recording, known):
    """A line for all cases that have the same bits, by no way of ours."""
    groups = collections.defaultdict(list)
    for number, case in enumerate(recording.cases):
        if "error" not in case and number not in known:
            groups[case["out"]["sha"]].append(case)
    for cases in groups.values():
        product = compare_products.Product(recording, cases[0])
        operands = next((name for name in product.asked.operands if name.startswith("nearest_even")), "")
        names = ", ".join(dict.fromkeys(map(compare_products.name_of, cases)))
        yield f"- {compare_products.subject_of(cases[0])}, {names}. As one chain, {product.nearest(operands)}."
    if not groups:
        yield "None."


def errors(recording):
    counts = collections.Counter(case["error"] for case in recording.cases if "error" in case)
    yield from (f"- {count} cases: {error}" for error, count in counts.items())


def ties(folder):
    """How many products tell ties to even from ties away from zero."""
    recording, count = Recording(recorded(folder, "matmul")), 0
    for _, found, numbers in compare_products.read(os.path.join(folder, "products.json")):
        if found.operands == "nearest_even to TF32":
            other = found._replace(operands="nearest_away to TF32")
            rows = compare_products.compared(recording, [(number, other) for number in numbers])
            count += sum(differences > 0 for *_, differences in rows)
    return count


def products(folder):
    found = collections.defaultdict(dict)
    for item, what, numbers in compare_products.read(os.path.join(folder, "products.json")):
        found[item].update(dict.fromkeys(numbers, what))
    for item, title in zip(PRODUCTS, ("Matrix products", "Scaled FP8 products (torch._scaled_mm)")):
        recording = Recording(recorded(folder, item))
        rows = list(compare_products.compared(recording, found[item].items()))
        yield f"\n## {title}\n"
        yield from products_table(rows, told_apart(recording, found[item]))
        distinct = {row[0]["out"]["sha"]: row[2] for row in rows}
        yield (f"\n{len(rows)} products, {sum(row[2] for row in rows):,} elements compared, "
               f"{sum(row[3] for row in rows)} differ; {len(distinct)} of the products are different ones, with "
               f"{sum(distinct.values()):,} elements.\nWithout a way that gives their bits:\n")
        yield from misses(recording, found[item])
        if any("error" in case for case in recording.cases):
            yield "\nRefused by PyTorch:\n"
            yield from errors(recording)


def worst(measured):
    """Of the same op: the share that differs, the largest distance, and the largest error."""
    distances = [m.ours or m.exact for m in measured]
    share, most = 100 * max(d.share for d in distances), max(d.most for d in distances)
    return f"{share:.3g} %, {most:,}" if share else "equal"


def ops_table(folder):
    groups = collections.defaultdict(list)
    for case, name, measured in elementwise_measured(Recording(recorded(folder, "elementwise"))):
        groups[case["op"], case["dtype"], "out" if name == "out" else "gradients"].append(measured)
    columns = [(dtype, name) for dtype in ("fp32", "fp16", "bf16") for name in ("out", "gradients")]
    yield "| op | " + " | ".join(f"{dtype.upper()} {name}" for dtype, name in columns) + " | largest error FP32 |"
    yield "|---" * (len(columns) + 2) + "|"
    for op in dict.fromkeys(op for op, *_ in groups):
        cells = [worst(groups[op, *column]) if groups[op, *column] else "" for column in columns]
        errors_32 = [m.error for name in ("out", "gradients") for m in groups[op, "fp32", name]]
        name = op if op in OURS else op + " *"
        yield f"| {name} | {' | '.join(cells)} | {f'{max(errors_32):.1e}' if errors_32 else ''} |"


def attention_table(folder):
    recording, groups = Recording(recorded(folder, "attention")), collections.defaultdict(list)
    for case, name, measured in attention_measured(recording):
        groups[case["backend"], case["dtype"], name].append(measured)
    names = ("out", "dq", "dk", "dv")
    yield "| implementation | type | " + " | ".join(names) + " | largest error | ours |"
    yield "|---" * (len(names) + 4) + "|"
    for backend, dtype in dict.fromkeys(key[:2] for key in groups):
        parts = [groups[backend, dtype, name] for name in names]
        every = [m for part in parts for m in part]
        cells = [f"{100 * max(m.ours.share for m in part):.2g} %, {max(m.ours.usual for m in part)} ulp"
                 for part in parts]
        yield (f"| {backend} | {dtype.upper()} | {' | '.join(cells)} | {max(m.error for m in every):.1e} | "
               f"{max(m.our_error for m in every):.1e} |")
    same = [case.get("repeats") for case in recording.cases if "error" not in case]
    yield f"\n{sum(same)} of {len(same)} cases gave the same bits a second time."


def training_table(folder):
    def texts(losses):
        return " | ".join(f"{losses[step]:.7g}" for step in (0, 9, 99))

    recording = Recording(recorded(folder, "trained"))
    yield "| network | device: loss 1 | 10 | 100 | emulate's setting | loss 1 | 10 | 100 | farthest | processor's |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for case in recording.cases:
        if "error" not in case:
            losses = recording.values(case["losses"]).astype(np.float64)
            runs = {name: ours for name, ours, _ in training_compared(case, losses)}
            far = {name: f"{(np.abs(ours - losses) / losses).max():.1e}" for name, ours in runs.items()}
            setting = list(runs)[1]
            yield (f"| {case['network']} {case['precision']} | {texts(losses)} | {setting} | {texts(runs[setting])} | "
                   f"{far[setting]} | {far['this processor']} |")
    failed = [case for case in recording.cases if "error" in case]
    if failed:
        names = ", ".join(f"{case['network']} {case['precision']}" for case in failed)
        yield f"\nNot recorded: {names}: {failed[0]['error']}"


def speeds(folder):
    texts = []
    for case in Recording(recorded(folder, "speed")).cases:
        if case["what"] == "copy":
            texts.append(f"a copy in memory {case['gb_s_read_and_written']:,.0f} GB/s, read and written")
        elif case["what"] == "matmul":
            name = "TF32" if case["precision"] == "high" else case["dtype"].upper()
            texts.append(f"{name} {case['tflops']:,.0f}")
        else:
            scales = "row" if case["rows"] else "tensor"
            texts.append(f"FP8, use_fast_accum={case['fast']}, a scale a {scales} {case['tflops']:,.0f}")
    yield "Products of 8192 x 8192 matrices, TFLOP/s: " + ";\n".join(texts) + "."


def find(folder):
    """Makes products.json."""
    entries = []
    for item in PRODUCTS:
        recording = Recording(recorded(folder, item))
        pairs = [(number, found) for number, found, _ in compare_products.searched(recording) if found]
        entries += compare_products.entries(item, pairs)
    compare_products.write(os.path.join(folder, "products.json"), entries)


def page(folder, date):
    versions = Recording(recorded(folder, "matmul")).facts["versions"]
    yield HEAD.rstrip().format(folder=folder, date=date, ties=ties(folder), **versions)
    yield from products(folder)
    yield OPS
    yield from ops_table(folder)
    yield ATTENTION
    yield from attention_table(folder)
    yield TRAINING
    yield from training_table(folder)
    yield "\n## Speed\n"
    yield from speeds(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("date", help="when FOLDER was recorded")
    parser.add_argument("--search", action="store_true", help="search for the sums of all products first (5 minutes)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.search:
        find(arguments.folder)
    for line in page(arguments.folder, arguments.date):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
