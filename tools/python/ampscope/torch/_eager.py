"""PyTorch's tensors computed with by the ops of ampscope's own networks, and their gradients."""
import torch

from .. import _ampscope

FORMATS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
DTYPES = {form: dtype for dtype, form in FORMATS.items()}
PRODUCTS = ("linear", "conv2d", "matmul", "matmul-transposed")
_MOST_OPS = 4096  # of different shapes that are kept


class Call:
    """A call of an op in a layer: what the autograd Function needs besides tensors."""

    def __init__(self, emulation, op, layer, precision, part=None, *, weight=False, result=None, settings=()):
        """result: the type of the result if it is not that of the first operand."""
        self.emulation, self.op, self.layer, self.precision = emulation, op, layer, precision
        self.weight, self.result, self.settings = weight, result, settings
        self.context = emulation.context(layer, part, op in PRODUCTS)

    def prepared(self, operands, needs):
        """The op for these operands, and what its products multiply in forward and in backward: both are kept."""
        described = tuple(None if t is None else (tuple(t.shape), FORMATS[t.dtype], self.weight and i == 1, need)
                          for i, (t, need) in enumerate(zip(operands, needs)))
        result = FORMATS[self.result or operands[0].dtype]
        key = (self.op, self.layer, id(self.precision), described, result, self.settings)
        ops = self.emulation.ops
        if key not in ops:
            if len(ops) >= _MOST_OPS:
                ops.clear()
            op = _ampscope.EagerOp(self.op, self.precision, self.layer, list(described), result, list(self.settings))
            self.emulation.note_left_out(self.layer, op.left_out(self.precision, self.layer))
            ops[key] = op, op.operands(False), op.operands(True)
        return ops[key]


def products_of(call, out, operands, gradients):
    """What a call, forward or backward, counts as: the op's name, and multiply-adds; None if it multiplies nothing."""
    if call.op.startswith("fused"):  # two products of all queries and keys, in backward five
        products = 2 if gradients is None else 5
        return "scaled_dot_product_attention", products * operands[0].numel() * operands[1].shape[-2]
    if call.op not in PRODUCTS:
        return None
    products = 1 if gradients is None else sum(g is not None for g in gradients[:2])
    depth = operands[1].shape[-2 if call.op == "matmul" else -1]
    return call.op.removesuffix("-transposed"), products * out.numel() * depth


def _laid(tensors):
    """Tensors as the ops read them: in C order."""
    return [None if t is None else t.detach().resolve_neg().contiguous() for t in tensors]


def _addresses(tensors):
    return [0 if t is None else t.data_ptr() for t in tensors]


class _Op(torch.autograd.Function):
    """call.op of its operands, of which a bias may be None. Saved are the tensors themselves; casts are computed again
    in backward."""

    @staticmethod
    def forward(ctx, call, *operands):
        ctx.call = call
        ctx.save_for_backward(*operands)
        ctx.needs = ctx.needs_input_grad[1:]
        laid = _laid(operands)
        op, multiplied, _ = call.prepared(laid, ctx.needs)
        out = operands[0].new_empty(op.shape, dtype=call.result or operands[0].dtype)
        op.forward(_addresses(laid), out.data_ptr(), call.context)
        call.emulation.count(call, multiplied, out, laid)
        return out

    @staticmethod
    def backward(ctx, gradient):
        if torch.is_grad_enabled():
            raise NotImplementedError("emulate: gradients of gradients (create_graph=True) are not emulated")
        call = ctx.call
        operands = _laid(ctx.saved_tensors)
        op, _, multiplied = call.prepared(operands, ctx.needs)
        gradients = [torch.empty_like(t) if need else None for t, need in zip(operands, ctx.needs)]
        (gradient,) = _laid([gradient.to(DTYPES[op.gradient_format])])
        op.backward(_addresses(operands), gradient.data_ptr(), _addresses(gradients), call.context)
        call.emulation.count(call, multiplied, gradient, operands, gradients)
        return None, *gradients


def is_ours(node):
    """Whether a node of the graph is that of an op that was computed here."""
    return isinstance(node, _Op._backward_cls)


def is_transformed():
    """Whether gradients are being computed in another way than by backward()."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def _apply(call, *operands):
    if is_transformed():
        raise NotImplementedError("emulate: gradients by torch.func and forward_ad are not emulated; those by "
                                  "backward() are")
    return _Op.apply(call, *operands)


def linear(call, x, weight, bias):
    """x W^T + bias; W is OUT x IN."""
    return _apply(call, x, weight, bias)


def conv2d(call, x, weight, bias):
    """Images as PyTorch has them, N x C x H x W, and weights OUT x C x KERNEL ROWS x KERNEL COLUMNS. The result lies in
    memory as the image does."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    out = _apply(call, x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1).flatten(1), bias)
    return out.permute(0, 3, 1, 2) if last else out.permute(0, 3, 1, 2).contiguous()


def product(call, a, b, bias=None):
    """a b + bias of matrices, or of equally many."""
    if not b.is_contiguous() and b.stride(-2) == 1:  # so that a copy, if one is needed, is of whole lines
        call.op, b = "matmul-transposed", b.mT
    return _apply(call, a, b, bias)


def attention(call, q, k, v, mask):
    """Fused attention, which call.op describes; of FP32 the mask, or None."""
    return _apply(call, q, k, v, mask)


def elementwise(call, *operands):
    """An op that multiplies no matrices."""
    return _apply(call, *operands)
