#!/usr/bin/env python3
"""Steps of torch.optim.Adafactor on random gradients on the processor, as golden data.

    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 adafactor.py; done > adafactor.jsonl

prints a row for each tensor: hashes of the weight and of the second moments after some of 1,000 steps, as optimizer.py
makes them (the elements are its, too). Norms and means are sums, whose order in PyTorch depends on the processor, so
they are replaced by FP64 sums in 16 lanes, as sim/backend/kernels/kernel.h has them; and square roots of FP32 by
NumPy's, as in optimizer.py. And the first weights after 10 steps of PyTorch as it is. Recorded with torch 2.15.0.
"""
import json
import os

import numpy as np
import torch

import optimizer as common

SHAPES = [(256,), (32, 32), (32, 96), (96, 32), (2, 3, 32, 64)]
OPTIONS = [{"lr": 0.01}, {"lr": 0.5, "weight_decay": 0.1}]


def lane_sum(x):
    """Sums over the last axis: element i is added to lane i mod 16; then the upper half of the lanes to the lower."""
    x = np.concatenate([x, np.zeros(x.shape[:-1] + (-x.shape[-1] % 16,))], -1)
    lanes = np.zeros(x.shape[:-1] + (16,))
    for i in range(0, x.shape[-1], 16):
        lanes = lanes + x[..., i:i + 16]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def as_type(x, like):
    """FP64 numbers in the type of a tensor; BF16 from FP32, which is no second rounding for a norm or a mean unless it
    lies closer to a tie than FP32 can tell."""
    return torch.from_numpy(np.asarray(x)).to(like.dtype)


def vector_norm(x, dim, keepdim):
    moved = np.moveaxis(x.detach().double().numpy(), dim, -1)
    return as_type(np.sqrt(lane_sum(moved * moved)), x).unsqueeze(dim)


def norm(x, p):
    flat = x.detach().double().numpy().reshape(-1)
    return as_type(np.sqrt(lane_sum(flat * flat)), x)


def mean(x, dim, keepdim):
    total = as_type(lane_sum(np.moveaxis(x.double().numpy(), dim, -1)), x).unsqueeze(dim)
    return total.div_(x.shape[dim])


def rsqrt_(x):
    root = torch.from_numpy(np.sqrt(x.float().numpy()))
    return x.copy_(torch.from_numpy(np.float32(1) / root.numpy()))


OURS = [(torch.linalg, "vector_norm", vector_norm), (torch.Tensor, "norm", norm), (torch.Tensor, "mean", mean),
        (torch.Tensor, "rsqrt_", rsqrt_)]


def steps(shape, name, options, count):
    dtype, stream = common.DTYPES[name], common.Stream(int(np.prod(shape)))
    p = torch.nn.Parameter(stream.next(3).to(dtype).reshape(shape))
    optimizer = torch.optim.Adafactor([p], foreach=False, **options)
    for step in range(1, count + 1):
        p.grad = stream.next(12).to(dtype).reshape(shape)
        optimizer.step()
        state = optimizer.state[p]
        yield step, p.detach(), [state[k] for k in ("row_var", "col_var", "variance") if state.get(k) is not None]


def main():
    torch.set_num_threads(1)
    theirs = [getattr(owner, name) for owner, name, _ in OURS]
    for shape in SHAPES:
        for name in common.DTYPES:
            for options in OPTIONS:
                *_, (_, stock, _) = steps(shape, name, options, 10)
                for owner, function, ours in OURS:
                    setattr(owner, function, ours)
                hashes = {step: "%016x" % common.fnv([w for t in [p, *moments] for w in common.bits(t.flatten())])
                          for step, p, moments in steps(shape, name, options, common.STEPS) if step in common.SHOWN}
                for (owner, function, _), original in zip(OURS, theirs):
                    setattr(owner, function, original)
                print(json.dumps({"torch": torch.__version__, "capability": os.environ["ATEN_CPU_CAPABILITY"],
                                  "shape": shape, "dtype": name, **options, "hashes": hashes,
                                  "stock": [float(f"{x:.9g}") for x in stock.flatten().float()[:64].tolist()]}))


if __name__ == "__main__":
    main()
