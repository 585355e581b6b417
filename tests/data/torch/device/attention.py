"""scaled_dot_product_attention by each of its implementations, forward and backward."""
import torch
import torch.nn.functional as F

from .records import rounded
from .rules import normal

SHAPES = ((1, 2, 64, 32), (1, 1, 256, 64))
BACKENDS = {"math": "MATH", "efficient": "EFFICIENT_ATTENTION", "flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}


def inputs(shape, dtype):
    """Query, key, value, and the gradient of the output."""
    return [rounded(normal(5000 + shape[2] + i, *shape), dtype) for i in range(4)]


def compute(shape, dtype, causal, device, wide=False):
    """By whichever implementation is allowed. With `wide` the same inputs are computed with in FP64."""
    q, k, v, gradient = (t.to(device, torch.float64 if wide else None) for t in inputs(shape, dtype))
    leaves = {"dq": q, "dk": k, "dv": v}
    for leaf in leaves.values():
        leaf.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out.backward(gradient)
    return {"out": out} | {name: leaf.grad for name, leaf in leaves.items()}


def record(recorder, device):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for shape in SHAPES:
        for dtype in ("fp16", "bf16"):
            for causal in (False, True):
                base = {}
                for backend, member in BACKENDS.items():
                    def call():
                        with sdpa_kernel([getattr(SDPBackend, member)]):
                            return compute(shape, dtype, causal, device)

                    def said():
                        flat = {name: t.reshape(-1, shape[-1]) for name, t in call().items()}
                        repeated = {name: t.reshape(-1, shape[-1]) for name, t in call().items()}
                        kept = {name: recorder.keep(t, base=base.get(name),
                                                    rows=None if name == "out" or shape == SHAPES[0] else 96)
                                for name, t in flat.items()}
                        return kept | {"repeats": all(torch.equal(t, repeated[name]) for name, t in flat.items())}

                    result = recorder.case(said, kernels=True, backend=backend, dtype=dtype, shape=list(shape),
                                           causal=causal)
                    if result:
                        base.update({name: k for name, k in result.items() if name != "repeats" and name not in base})
