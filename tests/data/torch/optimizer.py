#!/usr/bin/env python3
"""Updates of torch.optim over 1,000 steps of random gradients on the processor, as golden data.

    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 optimizer.py; done
    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 optimizer.py fused; done

prints the rows of optimizer.jsonl for the PyTorch and the capability it runs with: hashes of weight and state after
some steps, and the first weights at the end; with `fused`, of the kernels for fused=True on the processor. The recorded
ones: Debian's python3-torch 1.13.1 (apt), and 2.15.0 from PyPI in a throw-away environment. All tensors of a case have
one dtype. 256 elements, so that every one goes through the vector loops: PyTorch rounds differently in what is left
over at the end.

One correction: PyPI's 2.15.0 takes FP32 square roots from MKL, which are not correctly rounded (16 of 2,560 random ones
are one ulp off), so torch.sqrt of FP32 tensors is replaced by numpy's, which is.
"""
import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import torch

N, STEPS, SHOWN = 256, 1000, (1, 2, 3, 10, 100, 1000)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ADAM = {"betas": (0.9, 0.999)}
CASES = [
    ("adam", {**ADAM, "lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0}),
    ("adam", {**ADAM, "lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}),
    ("adamw", {**ADAM, "lr": 1e-3, "eps": 1e-8, "weight_decay": 0.01}),
    ("adamw", {"betas": (0.4, 0.95), "lr": 1e-2, "eps": 1e-3, "weight_decay": 0.1}),  # 1 - 0.4: the other half of lerp
    ("sgd", {"lr": 1e-2}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("sgd", {"lr": 1e-2, "momentum": 0.95, "nesterov": True, "weight_decay": 0.01}),
]
MAKE = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


class Stream:
    """One linear congruential generator an element; test_optimizer.cpp has the same."""

    def __init__(self, n=N):
        self.x = (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)

    def next(self, spread):
        """A number in [-1, 1), times 2^-(0 ... spread)."""
        self.x = self.x * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        m = (self.x >> np.uint64(40)).astype(np.int64) - (1 << 23)
        e = (self.x >> np.uint64(32)).astype(np.int64) % 256 % (spread + 1)
        return torch.from_numpy(np.ldexp(m.astype(np.float64), (-23 - e).astype(np.int32)).astype(np.float32))


def bits(tensor):
    u = tensor.detach().float().numpy().copy()
    u[np.isnan(u)] = np.nan
    return [0x7FC00000 if b & 0x7FFFFFFF > 0x7F800000 else int(b) for b in u.view(np.uint32)]


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words:
        h = (h ^ w) * 0x100000001B3 % (1 << 64)
    return h


def run(kind, options, dtype, fused):
    stream = Stream()
    p = torch.nn.Parameter(stream.next(3).to(dtype))
    optimizer = MAKE[kind]([p], **options, foreach=False, **({"fused": True} if fused else {}))
    hashes = {}
    for step in range(1, STEPS + 1):
        p.grad = stream.next(12).to(dtype)
        optimizer.step()
        if step in SHOWN:
            state = optimizer.state[p]
            tensors = [p] + [state[k] for k in ("exp_avg", "exp_avg_sq", "momentum_buffer") if state.get(k) is not None]
            hashes[step] = "%016x" % fnv([w for t in tensors for w in bits(t)])
    return hashes, ["%08x" % w for w in bits(p)[:8]]


def exact_roots():
    sqrt = torch.Tensor.sqrt
    exact = lambda t: torch.from_numpy(np.asarray(np.sqrt(t.numpy())))
    torch.Tensor.sqrt = lambda t: exact(t) if t.dtype == torch.float32 else sqrt(t)


def main():
    torch.set_num_threads(1)
    fused = sys.argv[1:] == ["fused"]
    exact_roots()
    version = "1.13.1" if torch.__version__.startswith("1.13") else torch.__version__
    for dtype in DTYPES:
        for kind, options in CASES:
            try:
                hashes, weights = run(kind, options, DTYPES[dtype], fused)
            except (RuntimeError, TypeError):
                continue  # no such kernel in this version
            print(json.dumps({"torch": version, "capability": os.environ["ATEN_CPU_CAPABILITY"], "dtype": dtype,
                              **({"fused": True} if fused else {}), "kind": kind, **options, "hashes": hashes,
                              "weights": weights}))


if __name__ == "__main__":
    main()
