"""torch._int_mm: products of INT8 with INT32 sums, also such as leave the range of INT32."""
import numpy as np
import torch

from .rules import normal

M, N = 32, 8  # the smallest that CUDA takes
LENGTHS = {"any": (16, 1024, 16384), "least": (2**17 - 8, 2**17, 2**18 - 8)}  # -128 * -128 * 2^17 = 2^31


def inputs(kind, k):
    """a of M x K, b of N x K: numbers of all sizes; or -128, with 127 in every other line of a."""
    if kind == "any":
        return [np.clip(np.rint(64 * normal(7000 + i, n, k)), -128, 127).astype(np.int8) for i, n in enumerate((M, N))]
    a, b = (np.full((n, k), -128, np.int8) for n in (M, N))
    a[1::2] = 127
    return a, b


def record(recorder, device):
    for kind, lengths in LENGTHS.items():
        for k in lengths:
            a, b = (torch.from_numpy(x).to(device) for x in inputs(kind, k))
            recorder.case(lambda: {"out": recorder.keep(torch._int_mm(a, b.t()))}, kernels=True, inputs=kind, k=k)
