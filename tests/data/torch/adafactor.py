#!/usr/bin/env python3
"""Steps of torch.optim.Adafactor on random gradients on the processor, as golden data.

    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 adafactor.py; done > adafactor.jsonl

prints a row for each matrix or vector: hashes of weight and second moment after some of 1,000 steps, as optimizer.py
makes them (the elements are its, too), with the sums below in place of PyTorch's, whose order depends on the processor.
And the first weights after 10 steps of PyTorch as it is. Recorded with torch 2.15.0. Where a norm is that of a tensor
or of a row, number i of its FP64 squares is added to lane i mod 16; then lane i adds lane i + 8, i + 4, i + 2, i + 1. A
column's squares are added in the order of its rows. The mean is an FP32 sum in order, divided. What follows is
rounded once to the type of the tensor.

One more correction, for c = default: what stands for rsqrt of BF16 and FP16 there rounds the root to the type as well,
which no vector code of PyTorch does, so that its FP32 numbers are computed and then rounded.
"""
import json
import os

import numpy as np
import torch

import optimizer as common

CASES = [  # shape, options
    ((32, 64), {"lr": 0.01}),
    ((64, 32), {"lr": 0.05, "weight_decay": 0.1, "beta2_decay": -0.5, "d": 2.0}),
    ((32, 32), {"lr": 0.02, "eps": [0.015625, 0.5]}),
    ((96,), {"lr": 0.01}),
    ((96,), {"lr": 0.5, "weight_decay": 0.1, "eps": [0.0009765625, 0.001]}),
]
DIGITS = {torch.float32: (24, -149), torch.bfloat16: (8, -133), torch.float16: (11, -24)}


def rounded(x, dtype):
    """FP64 numbers in another type, rounded once: PyTorch's conversion of FP64 to BF16 is one to FP32 first."""
    digits, least = DIGITS[dtype]
    x = np.asarray(x, np.float64)
    _, exponent = np.frexp(x)
    last = np.maximum(exponent - digits, least)
    whole = np.ldexp(np.rint(np.ldexp(x, -last)), last)
    return torch.from_numpy(np.asarray(np.where(np.isfinite(x), whole, x))).to(dtype)


def in_lanes(squares):
    lanes = np.zeros(16)
    for begin in range(0, len(squares), 16):
        part = squares[begin:begin + 16]
        lanes[:len(part)] += part
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def squares_of(t):
    return np.square(t.detach().double().numpy())


def norm(t, order):
    assert order == 2
    return rounded(np.sqrt(in_lanes(squares_of(t).ravel())), t.dtype)


def vector_norm(t, *, dim, keepdim):
    assert keepdim and t.dim() == 2
    squares = squares_of(t)
    if dim == -1:
        sums = np.array([[in_lanes(row)] for row in squares])
    else:
        sums = np.zeros((1, squares.shape[1]))
        for row in squares:
            sums += row
    return rounded(np.sqrt(sums), t.dtype)


def mean(t, *, dim, keepdim):
    assert dim == -2 and keepdim and t.shape[1] == 1
    total = np.float32(0)
    for x in t.float().numpy()[:, 0]:
        total += x
    return rounded([[float(total) / t.shape[0]]], t.dtype)


def inverse_root(t):
    return t.copy_((1 / torch.from_numpy(np.sqrt(t.float().numpy()))).to(t.dtype))


def steps(shape, name, options, count):
    dtype, stream = common.DTYPES[name], common.Stream(int(np.prod(shape)))
    p = torch.nn.Parameter(stream.next(3).to(dtype).reshape(shape))
    optimizer = torch.optim.Adafactor([p], **options, foreach=False)
    for step in range(1, count + 1):
        p.grad = stream.next(12).to(dtype).reshape(shape)
        optimizer.step()
        yield step, p.detach(), optimizer.state[p]


def hash_of(p, state):
    tensors = [p] + [state[key] for key in ("row_var", "col_var", "variance") if key in state]
    return "%016x" % common.fnv([w for t in tensors for w in common.bits(t.flatten())])


def main():
    torch.set_num_threads(1)
    theirs = torch.Tensor.norm, torch.Tensor.mean, torch.linalg.vector_norm, torch.Tensor.rsqrt_
    for name in common.DTYPES:
        for shape, options in CASES:
            *_, (_, stock, _) = steps(shape, name, options, 10)
            torch.Tensor.norm, torch.Tensor.mean, torch.linalg.vector_norm = norm, mean, vector_norm
            if os.environ["ATEN_CPU_CAPABILITY"] == "default" and name != "fp32":
                torch.Tensor.rsqrt_ = inverse_root
            hashes = {step: hash_of(p, state) for step, p, state in steps(shape, name, options, common.STEPS)
                      if step in common.SHOWN}
            torch.Tensor.norm, torch.Tensor.mean, torch.linalg.vector_norm, torch.Tensor.rsqrt_ = theirs
            print(json.dumps({"torch": torch.__version__, "capability": os.environ["ATEN_CPU_CAPABILITY"],
                              "shape": list(shape), "dtype": name, **options, "hashes": hashes,
                              "stock": [float(f"{x:.9g}") for x in stock.flatten().float()[:64].tolist()]}))


if __name__ == "__main__":
    main()
