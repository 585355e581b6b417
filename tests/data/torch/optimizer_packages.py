#!/usr/bin/env python3
"""Updates of optimizers that are published outside PyTorch over 1,000 steps of random gradients on the processor.

    pip install lion-pytorch==0.2.5 torch-optimi==0.3.3 torchao==0.18.0    # beside torch 2.15.0
    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 optimizer_packages.py; done > optimizer_packages.jsonl

prints a row for each case as optimizer.py does, whose elements, hashes and square roots it uses: hashes of weight, m, v
and Kahan's compensation after some steps. Nothing is compiled (no Triton, no torch.compile): of torchao the function
that its optimizers compile is called. Its random bits are replaced by those of formats/random.h, for seed 1 and the
number of the step, so that both round the same weights up.
"""
import json
import os
from importlib.metadata import version

import lion_pytorch
import numpy as np
import optimi
import torch
import torchao.optim.adam
import torchao.optim.quant_utils

import optimizer as common

SEED = 1
CASES = [  # package, row of our table, options, how weights are rounded
    ("lion-pytorch", "lion", {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.0}, "nearest"),
    ("lion-pytorch", "lion", {"lr": 1e-2, "betas": (0.95, 0.4), "weight_decay": 0.1}, "nearest"),
    ("torchao", "torchao-adam", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}, "nearest"),
    ("torchao", "torchao-adamw", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, "nearest"),
    ("torchao", "torchao-adamw", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, "stochastic"),
    ("torchao", "torchao-adamw", {"lr": 1e-2, "betas": (0.4, 0.3), "eps": 1e-3, "weight_decay": 0.1}, "stochastic"),
    *[("torch-optimi", row, {"lr": lr, "betas": betas, **eps, "weight_decay": decay}, rounding)
      for rounding in ("nearest", "kahan")
      for row, lr, betas, eps, decay in (("optimi-adam", 1e-3, (0.9, 0.99), {"eps": 1e-6}, 0.1),
                                         ("optimi-adamw", 1e-3, (0.9, 0.99), {"eps": 1e-6}, 0.01),
                                         ("optimi-adamw", 1e-2, (0.4, 0.95), {"eps": 1e-3}, 0.1),
                                         ("optimi-lion", 1e-3, (0.9, 0.99), {}, 0.1))],
    ("torch-optimi", "sgd", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.05}, "kahan"),
    ("torch-optimi", "sgd", {"lr": 1e-2, "momentum": 0.0, "weight_decay": 0.05}, "kahan"),
]
OPTIMI = {"optimi-adam": optimi.Adam, "optimi-adamw": optimi.AdamW, "optimi-lion": optimi.Lion, "sgd": optimi.SGD}


def philox(counter, key):
    """Philox4x32-10 of arrays of counters."""
    c, (k0, k1) = [np.asarray(x, np.uint64) for x in counter], key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [p1 >> np.uint64(32) ^ c[1] ^ np.uint64(k0), p1 & low, p0 >> np.uint64(32) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def random_words(n, step):
    """Words of 16 bits for n elements: two in each of a group's four words."""
    groups = np.arange(n // 8)
    words = np.stack(philox((groups, groups * 0, groups * 0 + step, groups * 0), (SEED, 0)), axis=1)
    return np.stack((words & np.uint64(0xFFFF), words >> np.uint64(16)), axis=2).reshape(-1)


class TorchAo:
    """The step of torchao's optimizers, with state in the type of the weights."""

    def __init__(self, p, row, rounding, lr, betas, eps, weight_decay):
        self.p, self.options = p, (torch.tensor(lr, dtype=torch.float32), *betas, weight_decay, eps, row.endswith("w"),
                                   rounding == "stochastic")
        self.count = torch.tensor(0.0)
        self.state = {p: {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}}

    @torch.no_grad()
    def step(self):
        self.count += 1
        words = torch.from_numpy(random_words(self.p.numel(), int(self.count)).astype(np.int32))
        randint, torch.randint = torch.randint, lambda *args, **kwargs: words
        torchao.optim.adam.single_param_adam(self.p.detach(), self.p.grad, self.count, *self.state[self.p].values(),
                                             None, *self.options)
        torch.randint = randint


def make(package, row, options, rounding, p):
    if package == "lion-pytorch":
        return lion_pytorch.Lion([p], **options)
    if package == "torchao":
        return TorchAo(p, row, rounding, **options)
    return OPTIMI[row]([p], **options, kahan_sum=rounding == "kahan", foreach=False, triton=False)


def run(package, row, options, rounding, dtype):
    stream = common.Stream()
    p = torch.nn.Parameter(stream.next(3).to(dtype))
    optimizer = make(package, row, options, rounding, p)
    hashes = {}
    for step in range(1, common.STEPS + 1):
        p.grad = stream.next(12).to(dtype)
        optimizer.step()
        if step in common.SHOWN:
            state = optimizer.state[p]
            tensors = [p] + [state[k] for k in ("exp_avg", "exp_avg_sq", "kahan_comp") if state.get(k) is not None]
            hashes[step] = "%016x" % common.fnv([w for t in tensors for w in common.bits(t)])
    return hashes, ["%08x" % w for w in common.bits(p)[:8]]


def main():
    torch.set_num_threads(1)
    common.exact_roots()
    for name, dtype in common.DTYPES.items():
        for package, row, options, rounding in CASES:
            if (rounding == "kahan" and name == "fp32") or (rounding == "stochastic" and name != "bf16"):
                continue  # the packages do so only there
            hashes, weights = run(package, row, options, rounding, dtype)
            print(json.dumps({"package": f"{package} {version(package)}", "torch": torch.__version__,
                              "capability": os.environ["ATEN_CPU_CAPABILITY"], "dtype": name, "optimizer": row,
                              **options, "rounding": rounding, "hashes": hashes, "weights": weights}))


if __name__ == "__main__":
    main()
