#!/usr/bin/env python3
"""Steps of torch.optim.Muon on random gradients on the processor, as golden data.

    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 muon.py; done > muon.jsonl

prints a row for each matrix: hashes of weight and momentum after some of 1,000 steps, as optimizer.py makes them (the
elements are its, too), with every product of matrices replaced by the one below, as those of PyTorch depend on the
processor: FP32 sums in the order of k, from +0, then alpha times the sum and beta times the addend, added and rounded
once. And the first weights after 10 steps of PyTorch as it is. Recorded with torch 2.15.0.
"""
import json
import os

import numpy as np
import torch

import optimizer as common

CASES = [  # rows, columns, type, options
    (16, 16, "fp32", {"lr": 0.02}),
    (12, 40, "fp32", {"lr": 0.02, "weight_decay": 0.0}),
    (40, 12, "fp32", {"lr": 0.02, "adjust_lr_fn": "original"}),
    (40, 12, "fp32", {"lr": 1e-3, "momentum": 0.4, "adjust_lr_fn": "match_rms_adamw"}),
    (12, 40, "bf16", {"lr": 1e-3, "adjust_lr_fn": "match_rms_adamw"}),
    (40, 12, "bf16", {"lr": 0.02}),
]


def product(a, b):
    """FP32 sums; each product of two BF16 numbers is an FP32 number."""
    x, y = a.float().numpy(), b.float().numpy()
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total += np.outer(x[:, k], y[k])
    return torch.from_numpy(total)


def addmm(addend, a, b, *, beta=1, alpha=1):
    return (product(a, b) * alpha + addend.float() * beta).to(a.dtype)


def steps(rows, columns, name, options, count):
    dtype, stream = common.DTYPES[name], common.Stream(rows * columns)
    p = torch.nn.Parameter(stream.next(3).to(dtype).reshape(rows, columns))
    optimizer = torch.optim.Muon([p], **options)
    for step in range(1, count + 1):
        p.grad = stream.next(12).to(dtype).reshape(rows, columns)
        optimizer.step()
        yield step, p.detach(), optimizer.state[p]["momentum_buffer"]


def main():
    torch.set_num_threads(1)
    theirs = torch.Tensor.__matmul__, torch.addmm
    for rows, columns, name, options in CASES:
        *_, (_, stock, _) = steps(rows, columns, name, options, 10)
        torch.Tensor.__matmul__, torch.addmm = lambda a, b: product(a, b).to(a.dtype), addmm
        hashes = {step: "%016x" % common.fnv(common.bits(p.flatten()) + common.bits(m.flatten()))
                  for step, p, m in steps(rows, columns, name, options, common.STEPS) if step in common.SHOWN}
        torch.Tensor.__matmul__, torch.addmm = theirs
        print(json.dumps({"torch": torch.__version__, "capability": os.environ["ATEN_CPU_CAPABILITY"], "rows": rows,
                          "columns": columns, "dtype": name, **options, "hashes": hashes,
                          "stock": [float(f"{x:.9g}") for x in stock.flatten().float()[:64].tolist()]}))


if __name__ == "__main__":
    main()
