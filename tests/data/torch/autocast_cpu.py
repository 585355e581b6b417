#!/usr/bin/env python3
"""Output dtypes of ops under torch.autocast("cpu"), as golden data: python3 autocast_cpu.py > autocast_cpu.json

An op is called with its floating operands in the given dtypes, inside a region to bfloat16 and outside one. "error"
stands for an exception. Made with Debian's python3-torch.
"""
import json

import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, t, w, b = torch.randn(4, 8), torch.rand(4, 8), torch.randn(6, 8), torch.randn(6)
q, image, kernel = torch.randn(2, 4, 8), torch.randn(1, 3, 8, 8), torch.randn(5, 3, 3, 3)
labels = torch.tensor([0, 1, 2, 3])

ONE = {  # ops of one floating operand
    "exp": lambda a: a.exp(), "log": lambda a: a.abs().log(), "pow": lambda a: a**2, "rsqrt": lambda a: a.abs().rsqrt(),
    "layer_norm": lambda a: F.layer_norm(a, (8,)), "nll_loss": lambda a: F.nll_loss(a, labels),
    "cross_entropy": lambda a: F.cross_entropy(a, labels), "softmax": lambda a: F.softmax(a, -1),
    "log_softmax": lambda a: F.log_softmax(a, -1), "sum": lambda a: a.sum(), "cumsum": lambda a: a.cumsum(0),
    "norm": lambda a: a.norm(), "prod": lambda a: a.prod(), "relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "mean": lambda a: a.mean(), "dropout": F.dropout, "scale": lambda a: a * 3.0,
    "embedding": lambda a: F.embedding(labels, a), "transpose": lambda a: a.t(),
    "batch_norm": lambda a: F.batch_norm(a, torch.zeros(8), torch.ones(8), training=True),
}
IMAGE = {"max_pool2d": lambda a: F.max_pool2d(a, 2), "avg_pool2d": lambda a: F.avg_pool2d(a, 2)}
TWO = {  # ops of two, with their shapes
    "matmul": (torch.matmul, x, w.t()), "bmm": (torch.bmm, q, q.transpose(1, 2)), "linear": (F.linear, x, w),
    "conv2d": (F.conv2d, image, kernel), "mse_loss": (F.mse_loss, x, t), "l1_loss": (F.l1_loss, x, t),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, x, t),
    "binary_cross_entropy": (F.binary_cross_entropy, t, t), "dot": (torch.dot, x[0], t[0]),
    "cat": (lambda a, c: torch.cat([a, c]), x, t), "stack": (lambda a, c: torch.stack([a, c]), x, t),
    "add": (torch.add, x, t), "mul": (torch.mul, x, t), "div": (torch.div, x, t),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def rows():
    cases = [(op, f, (x,)) for op, f in ONE.items()] + [(op, f, (image,)) for op, f in IMAGE.items()]
    cases += [(op, f[0], f[1:]) for op, f in TWO.items()]
    for enabled in (False, True):
        for op, f, operands in cases:
            for names in ([(n,) for n in DTYPES] if len(operands) == 1 else [(m, n) for m in DTYPES for n in DTYPES]):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    try:
                        output = NAMES[f(*(o.to(DTYPES[n]) for o, n in zip(operands, names))).dtype]
                    except RuntimeError:
                        output = "error"
                yield {"op": op, "autocast": enabled, "inputs": names, "output": output}


print('{"torch": "%s", "rows": [' % torch.__version__)
print(",\n".join(json.dumps(row) for row in rows()))
print("]}")
