#!/usr/bin/env python3
"""Fused attention by the Python of arXiv:2510.04212, on the processor, as golden data.

    git clone https://github.com/ucker/why-low-precision-training-fails
    python3 fused_attention.py why-low-precision-training-fails/attention.py > fused_attention.json

runs FlashAttentionFunction, whose tensors all have the operands' type, on small operands: random ones, ones of which
several keys share a row's maximum (with values of one sign, the failure), and ones whose maxima are negative; with
and without the paper's fix (STABLE=1), which moves such maxima. Operands have few bits, so that products in BF16 are
sums that FP32 holds, or nearly so, and depend on no processor: the script stops where a product is not the exact sum
rounded once. A run has the operands in units of `unit`, and O, the logarithms of the sums and the gradients as codes
in hexadecimal, in BF16 and where heads are few in FP32, too. Where a causal mask hides a whole tile of a row, their
fix also moves a negative maximum to 0, since all of its scores are equal; maxima of causal rows are positive here.
Recorded with torch 2.15.0 and their commit 02f0ab6.
"""
import importlib.util
import json
import os
import sys
import types

import torch

UNIT = {"q": 1 / 4, "k": 1 / 4, "v": 1 / 16, "grad": 1 / 8}
CASES = [  # kind, heads, queries, keys, width, tiles of queries and keys, causal
    ("random", 2, 16, 16, 16, 8, 8, False),
    ("random", 1, 13, 21, 4, 5, 8, False),
    ("shared", 2, 16, 16, 16, 16, 16, False),
    ("shared", 2, 21, 21, 16, 8, 5, True),
    ("shared", 1, 12, 20, 4, 4, 6, False),
    ("shared", 1, 24, 24, 16, 32, 32, True),
    ("negative", 2, 16, 12, 16, 8, 4, False),
]


def load(path):
    """Their module. einops is needed for masks alone, which these calls do not have."""
    sys.modules.setdefault("einops", types.SimpleNamespace(rearrange=None))
    spec = importlib.util.spec_from_file_location("attention", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs = module.einsum

    def checked(text, a, b):
        out = theirs(text, a, b)
        if out.dtype == torch.bfloat16:
            exact = theirs(text, a.double(), b.double()).float().bfloat16()
            assert torch.equal(out, exact), "this product depends on the processor"
        return out

    module.einsum = checked
    return module.FlashAttentionFunction


def operands(kind, heads, queries, keys, width, seed):
    random = torch.Generator().manual_seed(seed)

    def draw(least, most, *shape):
        return torch.randint(least, most + 1, (1, heads, *shape), generator=random)

    q, k = draw(-6, 6, queries, width), draw(-6, 6, keys, width)
    v, grad = draw(-64, 64, keys, width), draw(-16, 16, queries, width)
    if kind != "random":  # the first channel decides: the same key again and again, and keys with lower scores
        v, k = -draw(32, 63, keys, width), k // 4
        repeated = torch.rand(keys, generator=random) < 0.3
        repeated[:3] = True
        k[:, :, repeated] = k[:, :, :1].clone()
        sign = 1 if kind == "shared" else -1
        q[..., 0] = draw(8, 14, queries) * sign
        k[..., 0] = torch.where(repeated, *((7, -3) if sign > 0 else (3, 7)))
        q[..., 1:] //= 6
    return {"q": q, "k": k, "v": v, "grad": grad}


def codes(x):
    """All of them in hexadecimal, one after the other."""
    return x.detach().contiguous().view(torch.uint8).reshape(-1, x.itemsize).flip(1).numpy().tobytes().hex()


def results(attention, integers, dtype, tiles, causal, fix):
    os.environ["STABLE"] = str(int(fix))
    x = {n: (i * UNIT[n]).to(dtype).requires_grad_(n != "grad") for n, i in integers.items()}
    out = attention.apply(x["q"], x["k"], x["v"], None, causal, *tiles)
    lse = out.grad_fn.saved_tensors[4]
    gradients = torch.autograd.grad(out, (x["q"], x["k"], x["v"]), x["grad"])
    return {n: codes(y) for n, y in zip(("out", "lse", "grad_q", "grad_k", "grad_v"), (out, lse, *gradients))}


def main():
    attention = load(sys.argv[1])
    torch.set_num_threads(1)
    runs = []
    for seed, (kind, heads, queries, keys, width, *tiles, causal) in enumerate(CASES):
        integers = operands(kind, heads, queries, keys, width, seed)
        run = {"kind": kind, "queries": [1, heads, queries, width], "keys": [1, heads, keys, width], "tiles": tiles,
               "causal": causal, **{n: x.flatten().tolist() for n, x in integers.items()}}
        for name, dtype in [("bf16", torch.bfloat16), ("fp32", torch.float32)][:1 + (heads == 1)]:
            run[name] = {way: results(attention, integers, dtype, tiles, causal, way == "shifted")
                         for way in ("plain", "shifted")}
        runs.append(run)
    text = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    print(json.dumps({"torch": torch.__version__, "unit": UNIT})[:-1] + ', "runs": [\n' + text + "\n]}")


main()
