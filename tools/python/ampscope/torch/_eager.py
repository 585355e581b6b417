"""Products of PyTorch's tensors computed by the ops of ampscope's own networks, with their gradients."""
import torch

from .. import _ampscope

FORMATS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_MOST_OPS = 4096  # of different shapes that are kept


class Call:
    """A call of an op in a layer: what the autograd Function needs besides tensors."""

    def __init__(self, machine, op, layer, precision, *, weight=False, wide=False, settings=(), view=None):
        self.machine, self.op, self.layer, self.precision = machine, op, layer, precision
        self.weight, self.wide, self.settings, self.view = weight, wide, settings, view
        self.context = machine.context(layer, precision)

    def prepared(self, operands, needs):
        """The op for these operands, which is kept."""
        described = tuple(None if t is None else (tuple(t.shape), FORMATS[t.dtype], self.weight and i == 1, need)
                          for i, (t, need) in enumerate(zip(operands, needs)))
        result = "fp32" if self.wide else FORMATS[operands[0].dtype]
        key = (self.op, self.layer, id(self.precision), described, result, self.settings)
        ops = self.machine.ops
        if key not in ops:
            if len(ops) >= _MOST_OPS:
                ops.clear()
            ops[key] = _ampscope.EagerOp(self.op, self.precision, self.layer, list(described), result,
                                         list(self.settings))
        return ops[key]


def _addresses(tensors):
    return [0 if t is None else t.data_ptr() for t in tensors]


class _Product(torch.autograd.Function):
    """call.op of x, y and a bias or None. Saved are the tensors themselves; casts are computed again in backward."""

    @staticmethod
    def forward(ctx, call, *operands):
        ctx.call = call
        ctx.save_for_backward(*operands)
        ctx.needs = ctx.needs_input_grad[1:]
        laid = [None if t is None else t.detach().contiguous() for t in operands]
        op = call.prepared(laid, ctx.needs)
        out = operands[0].new_empty(op.shape, dtype=torch.float32 if call.wide else operands[0].dtype)
        op.forward(_addresses(laid), out.data_ptr(), call.context)
        call.machine.count(call, out, laid)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        call = ctx.call
        operands = [None if t is None else t.detach().contiguous() for t in ctx.saved_tensors]
        op = call.prepared(operands, ctx.needs)
        gradients = [torch.empty_like(t) if need else None for t, need in zip(operands, ctx.needs)]
        gradient = gradient.to(operands[0].dtype).contiguous()
        op.backward(_addresses(operands), gradient.data_ptr(), _addresses(gradients), call.context)
        call.machine.count(call, gradient, operands, gradients)
        return None, *gradients


def linear(call, x, weight, bias):
    """x W^T + bias; W is OUT x IN."""
    return _Product.apply(call, x, weight, bias)


def conv2d(call, x, weight, bias):
    """Images as PyTorch has them, N x C x H x W, and weights OUT x C x KERNEL x KERNEL."""
    out = _Product.apply(call, x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1).flatten(1), bias)
    return out.permute(0, 3, 1, 2)


def product(call, a, b, bias=None):
    """a b + bias of matrices, or of equally many."""
    if not b.is_contiguous() and b.mT.is_contiguous():
        call.op, b = "matmul-transposed", b.mT
    return _Product.apply(call, a, b, bias)
