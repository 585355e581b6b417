#!/usr/bin/env python3
"""Steps of torch.optim.Muon and of Keller Jordan's Muon on random gradients on the processor, as golden data.

    git clone https://github.com/KellerJordan/Muon && git -C Muon checkout 857d1ad
    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 muon.py Muon/muon.py; done > muon.jsonl

prints a row for each matrix: hashes of weight and momentum after some of 1,000 steps, as optimizer.py makes them (the
elements are its, too), with every product of matrices replaced by the one below, as those of PyTorch depend on the
processor: FP32 sums in the order of k, from +0, then alpha times the sum and beta times the addend, added and rounded
once; his code has no addend. And the first weights after 10 steps of PyTorch as it is. Recorded with torch 2.15.0.
"""
import importlib.util
import json
import os
import sys

import numpy as np
import torch

import optimizer as common

CASES = [  # our row, rows, columns, type, options
    ("muon", 16, 16, "fp32", {"lr": 0.02}),
    ("muon", 12, 40, "fp32", {"lr": 0.02, "weight_decay": 0.0}),
    ("muon", 40, 12, "fp32", {"lr": 0.02}),
    ("muon-rms", 40, 12, "fp32", {"lr": 1e-3, "momentum": 0.4}),
    ("muon-rms", 12, 40, "bf16", {"lr": 1e-3}),
    ("muon", 40, 12, "bf16", {"lr": 0.02}),
    ("muon-spectral", 12, 40, "fp32", {"lr": 0.05}),
    ("muon-jordan", 16, 16, "fp32", {"lr": 0.02}),
    ("muon-jordan", 12, 40, "fp32", {"lr": 0.02, "weight_decay": 0.1}),
    ("muon-jordan", 40, 12, "fp32", {"lr": 0.02, "momentum": 0.4}),
    ("muon-jordan", 12, 40, "bf16", {"lr": 0.02}),
    ("muon-jordan", 40, 12, "bf16", {"lr": 0.02, "weight_decay": 0.1}),
]
SCALES = {"muon": "original", "muon-rms": "match_rms_adamw", "muon-spectral": "spectral_unclamped"}


def product(a, b):
    """FP32 sums; each product of two BF16 numbers is an FP32 number."""
    x, y = a.float().numpy(), b.float().numpy()
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total += np.outer(x[:, k], y[k])
    return torch.from_numpy(total)


def addmm(addend, a, b, *, beta=1, alpha=1):
    return (product(a, b) * alpha + addend.float() * beta).to(a.dtype)


def keller_jordans(path):
    spec = importlib.util.spec_from_file_location("keller_jordan", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SingleDeviceMuon


def steps(kind, rows, columns, name, options, count):
    dtype, stream = common.DTYPES[name], common.Stream(rows * columns)
    p = torch.nn.Parameter(stream.next(3).to(dtype).reshape(rows, columns))
    if kind in SCALES:
        optimizer = torch.optim.Muon([p], **options, adjust_lr_fn=SCALES[kind])
    else:
        optimizer = keller_jordans(sys.argv[1])([p], **options)
    for step in range(1, count + 1):
        p.grad = stream.next(12).to(dtype).reshape(rows, columns)
        optimizer.step()
        yield step, p.detach(), optimizer.state[p]["momentum_buffer"]


def main():
    torch.set_num_threads(1)
    theirs = torch.Tensor.__matmul__, torch.addmm
    for case in CASES:
        kind, rows, columns, name, options = case
        *_, (_, stock, _) = steps(*case, 10)
        torch.Tensor.__matmul__, torch.addmm = lambda a, b: product(a, b).to(a.dtype), addmm
        hashes = {step: "%016x" % common.fnv(common.bits(p.flatten()) + common.bits(m.flatten()))
                  for step, p, m in steps(*case, common.STEPS) if step in common.SHOWN}
        torch.Tensor.__matmul__, torch.addmm = theirs
        print(json.dumps({"torch": torch.__version__, "capability": os.environ["ATEN_CPU_CAPABILITY"],
                          "optimizer": kind, "rows": rows, "columns": columns, "dtype": name, **options,
                          "hashes": hashes,
                          "stock": [float(f"{x:.9g}") for x in stock.flatten().float()[:64].tolist()]}))


if __name__ == "__main__":
    main()
