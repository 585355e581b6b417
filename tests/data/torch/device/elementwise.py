"""Softmax, normalization, activations, cross entropy, and their gradients."""
import torch
import torch.nn.functional as F

from .records import rounded
from .rules import normal, whole

SHAPES = ((64, 100), (8, 1000))
OPS = {
    "softmax": lambda x, w, b, y: F.softmax(x, -1),
    "softmax to fp32": lambda x, w, b, y: F.softmax(x, -1, dtype=torch.promote_types(x.dtype, torch.float32)),
    "log_softmax": lambda x, w, b, y: F.log_softmax(x, -1),
    "log_softmax to fp32": lambda x, w, b, y: F.log_softmax(x, -1, dtype=torch.promote_types(x.dtype, torch.float32)),
    "layer_norm": lambda x, w, b, y: F.layer_norm(x, x.shape[-1:], w, b),
    "gelu": lambda x, w, b, y: F.gelu(x),
    "gelu_tanh": lambda x, w, b, y: F.gelu(x, approximate="tanh"),
    "silu": lambda x, w, b, y: F.silu(x),
    "sigmoid": lambda x, w, b, y: torch.sigmoid(x),
    "tanh": lambda x, w, b, y: torch.tanh(x),
    "exp": lambda x, w, b, y: torch.exp(x),
    "rsqrt": lambda x, w, b, y: torch.rsqrt(x.abs()),
    "sum": lambda x, w, b, y: x.sum(-1),
    "mean": lambda x, w, b, y: x.mean(-1),
    "cross_entropy": lambda x, w, b, y: F.cross_entropy(x, y),
}


def inputs(shape, dtype):
    """x, weight and bias in that type, labels, and the gradient of an output of that shape."""
    rows, columns = shape
    seed = 4000 + rows
    return (rounded(3 * normal(seed, rows, columns), dtype), rounded(1 + normal(seed + 1, columns) / 4, dtype),
            rounded(normal(seed + 2, columns), dtype), torch.from_numpy(whole(seed + 3, columns, rows)))


def compute(op, shape, dtype, device, wide=False):
    """The output of an op, and the gradients of x, weight and bias, if they have one. The gradient of the output
    follows a rule; that of a loss is 1. With `wide` the same inputs are computed with in FP64."""
    x, w, b, y = (t.to(device) for t in inputs(shape, dtype))
    leaves = {"dx": x, "dw": w, "db": b}
    if wide:
        leaves = {name: leaf.double() for name, leaf in leaves.items()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    out = OPS[op](*leaves.values(), y)
    gradient = rounded(normal(4500, *out.shape), "fp32" if "to fp32" in op else dtype)
    out.backward(torch.ones_like(out) if out.dim() == 0 else gradient.to(out))
    return {"out": out} | {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def record(recorder, device):
    for dtype in ("fp32", "fp16", "bf16"):
        for shape in SHAPES:
            for op in OPS:
                if "to fp32" in op and dtype == "fp32":
                    continue
                rows = None if shape == SHAPES[0] and dtype != "fp32" else shape[0] // 4
                if "to fp32" in op:
                    rows = 2

                def said():
                    return {name: recorder.keep(t, rows=rows if t.dim() == 2 else None)
                            for name, t in compute(op, shape, dtype, device).items()}

                recorder.case(said, op=op, dtype=dtype, shape=list(shape))
