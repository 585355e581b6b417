"""What PyTorch's ops are in terms of layers and products, as one table."""
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from ._eager import FORMATS

EMPTY = "without elements"


class Rule(NamedTuple):
    """An op; what computes it, or gives None for what it does not do; which argument may be the weight of a layer:
    always, or if it is a parameter; whether it multiplies no matrices; whether integers among its operands are sizes;
    and which argument may be of another type, as a mask may."""
    name: str
    compute: Any
    weight: int | None = None
    is_layer: bool = False
    is_elementwise: bool = False
    takes_sizes: bool = False
    mask: int | None = None

    def unlike_mask(self, args):
        """Why an op with such a mask is not emulated; None: it may be."""
        mask = args[self.mask] if self.mask is not None and self.mask < len(args) else None
        return unlike(mask) if isinstance(mask, torch.Tensor) else None


def unlike(t):
    """Why an op on a tensor of such a kind is not emulated, whatever its type is; None: it may be."""
    if t.is_nested:
        return "of a nested tensor"
    if t.layout != torch.strided:
        return f"of a {str(t.layout).removeprefix('torch.')} tensor"
    return None if type(t) in (torch.Tensor, torch.nn.Parameter) else f"of a {type(t).__name__}"


def unfit(tensors):
    """Why an op on these tensors is not emulated; None: it is."""
    for t in tensors:
        if why := unlike(t):
            return why
        if t.dtype not in FORMATS:
            return f"of {str(t.dtype).removeprefix('torch.')}"
        if t.numel() == 0:
            return EMPTY
    return "of different types" if len({t.dtype for t in tensors}) > 1 else None


def _linear(emulation, x, weight, bias=None):
    if weight.dim() != 2 or (bias is not None and bias.dim() != 1):
        return None
    if emulation.is_backward_of_user:
        return emulation.product(x.flatten(0, -2), weight.mT, bias).unflatten(0, x.shape[:-1])
    return emulation.layer("linear", x, weight, bias)


def _mm(emulation, a, b):
    return _addmm(emulation, None, a, b)


def _addmm(emulation, bias, a, b, *, beta=1, alpha=1, part=None):
    """A layer if b is a parameter, as Hugging Face's Conv1D has it, or one transposed; or if a is, of columns."""
    if alpha != 1 or beta != 1 or (bias is not None and bias.shape != (b.shape[1],)):
        return _sum(bias, beta, emulation.product(a, b, wide=True), alpha, a.dtype)
    if emulation.is_parameter(b):
        if emulation.scales(b) or b.mT.is_contiguous():
            return emulation.layer("linear", a, b.t(), bias, part=part)
        return emulation.product(a, b, bias, weight=True)
    if bias is None and emulation.is_parameter(a) and emulation.scales(a):
        return emulation.layer("linear", b.t(), a, None, part=part).t()
    return emulation.product(a, b, bias)


def _sum(c, beta, product, alpha, dtype):
    """beta c + alpha product, in FP32 and rounded once; c counts for nothing if beta is 0, NaN or not."""
    if alpha != 1:
        product = product * alpha
    if c is not None and torch.broadcast_shapes(c.shape, product.shape) != product.shape:
        raise ValueError(f"emulate: a sum of {tuple(c.shape)} with products of {tuple(product.shape)}")
    if beta != 0:
        product = product + (c.float() if beta == 1 else c.float() * beta)
    return product.to(dtype)


def _bmm(emulation, a, b):
    """Each matrix of a parameter is a layer of its own: the experts of a mixture. einsum has products as one, too."""
    if emulation.is_parameter(b) and (len(b) == 1 or emulation.scales(b)):
        return torch.stack([_addmm(emulation, None, *operands, part=i) for i, operands in enumerate(zip(a, b))])
    return emulation.product(a, b)


def _baddbmm(emulation, c, a, b, *, beta=1, alpha=1):
    return _sum(c, beta, emulation.product(a, b, wide=True), alpha, a.dtype)


def _addbmm(emulation, c, a, b, *, beta=1, alpha=1):
    wide = emulation.product(a.transpose(0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2]), wide=True)
    return _sum(c, beta, wide, alpha, a.dtype)


def _mv(emulation, a, x):
    return _mm(emulation, a, x[:, None])[:, 0]


def _addmv(emulation, c, a, x, *, beta=1, alpha=1):
    return _sum(c, beta, emulation.product(a, x[:, None], wide=True)[:, 0], alpha, a.dtype)


def _dot(emulation, x, y):
    return emulation.product(x[None], y[:, None])[0, 0]


def _convolution(emulation, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, part=None):
    if x.dim() not in (3, 4):
        return None
    stride, padding, dilation, output_padding = (
        list(of) * (x.dim() - 2) if len(of) == 1 else of for of in (stride, padding, dilation, output_padding))
    if transposed:
        x, weight, stride, padding = _as_convolution(x, weight, stride, padding, dilation, output_padding, groups)
    if groups > 1 and emulation.scales_layer(emulation.layer_of(weight)):  # each has scales of its own
        biases = [None] * groups if bias is None else bias.chunk(groups)
        return torch.cat([_convolution(emulation, *operands, stride, padding, dilation, False, output_padding, 1, i)
                          for i, operands in enumerate(zip(x.chunk(groups, 1), weight.chunk(groups), biases))], 1)
    if x.dim() == 3:
        across = weight.shape[2], stride[0], padding[0], dilation[0]
        settings = (1, 1, 0, 1, *across, groups)
        return emulation.layer("conv2d", x[:, :, None], weight[:, :, None], bias, settings, part)[:, :, 0]
    settings = tuple(of[axis] for axis in (0, 1) for of in (weight.shape[2:], stride, padding, dilation))
    return emulation.layer("conv2d", x, weight, bias, (*settings, groups), part)


def _as_convolution(x, weight, stride, padding, dilation, output_padding, groups):
    """A transposed convolution as a convolution of stride 1: of the image with zeros between its pixels, by the kernel
    turned around. The products with these zeros change no sum."""
    for axis, step in enumerate(stride, 2):
        between = x.new_zeros(*x.shape[:axis + 1], step - 1, *x.shape[axis + 1:])
        x = torch.cat([x.unsqueeze(axis + 1), between], axis + 1).flatten(axis, axis + 1)
        x = x.narrow(axis, 0, x.shape[axis] - (step - 1))
    if any(extra >= max(steps) for extra, *steps in zip(output_padding, stride, dilation)):
        raise ValueError("emulate: output padding has to be smaller than stride or dilation")
    margins = []  # of the last axis first, as pad() has them
    for kernel, pad, dilate, extra in zip(weight.shape[2:], padding, dilation, output_padding):
        margin = dilate * (kernel - 1) - pad
        margins = [margin, margin + extra, *margins]
    turned = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(*range(2, x.dim()))
    return F.pad(x, margins), turned, [1] * len(stride), [0] * len(stride)


def _added(mask):
    """What a mask adds to the scores: a boolean one says which keys take part."""
    if mask.dtype != torch.bool:
        return mask.float()
    return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill_(~mask, -math.inf)


def _batched(t):
    """Matrices as B x H x ROWS x COLUMNS."""
    return t.reshape((1,) * (4 - t.dim()) + t.shape) if t.dim() < 4 else t.flatten(0, -4)


def _mask_of(mask, q, k):
    """A mask in four axes, as fused attention takes it: extents of 1 are the same for all."""
    mask = _added(mask)
    mask = mask.reshape((1,) * (q.dim() - mask.dim()) + mask.shape)
    return _batched(mask if mask.dim() < 5 else mask.expand(*q.shape[:-3], *mask.shape[-3:]))


def _fits_tiles(q, k, v, mask, scale, causal, enable_gqa):
    """Whether fused attention takes these operands. It gives a mask no gradient."""
    if mask is not None and (mask.requires_grad or mask.dim() > q.dim() or mask.numel() == 0 or any(
            m not in (1, n) for m, n in zip(mask.shape[::-1], (k.shape[-2], *q.shape[-2::-1])))):
        return False
    heads = q.shape[-3:-2] == k.shape[-3:-2] or (enable_gqa and q.shape[-3] % k.shape[-3] == 0)
    return (heads and q.shape[:-3] == k.shape[:-3] and q.shape[-1] == k.shape[-1] and k.shape == v.shape
            and (not causal or q.shape[-2] == k.shape[-2]) and 1e-30 <= scale <= 1e30)


def _attention(emulation, q, k, v, mask=None, dropout=0.0, causal=False, *, scale=None, enable_gqa=False):
    """softmax(q k^T * scale + mask) v, with scores, their scale, mask and softmax in FP32, and probabilities rounded to
    the format of v, as kernels that keep the scores on the chip do. A row without any key gives zeros. In tiles it is
    op::FusedAttention, whose mask is divided by the scale before it is added."""
    if mask is not None and (causal or mask.dim() < 2 or mask.dtype not in (torch.bool, torch.float32, q.dtype)):
        return None  # an error
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    tiles = emulation.attention != "plain" and not dropout
    if tiles and _fits_tiles(q, k, v, mask, scale, causal, enable_gqa):
        added = None if mask is None else _mask_of(mask, q, k)
        return emulation.fused_attention(*map(_batched, (q, k, v)), added, scale, causal).reshape(q.shape)
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (t.expand(*batch, *t.shape[-2:]) for t in (q, k, v))
    scores = emulation.product(q, k.mT, wide=True)
    scores = scores * scale if emulation.computes_all else scores.mul_(scale)
    empty = None
    if causal:
        scores = scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    elif mask is not None and mask.dtype == torch.bool:
        scores, empty = scores.masked_fill(~mask, -math.inf), ~mask.any(-1, keepdim=True)
    elif mask is not None:
        scores, empty = scores + mask.float(), (mask == -math.inf).all(-1, keepdim=True)
    has_empty = empty is not None and bool(empty.any())
    shares = torch.softmax(scores.masked_fill(empty, 0) if has_empty else scores, -1)
    if has_empty:
        shares = shares.masked_fill(empty, 0)
    return emulation.product(torch.dropout(shares, dropout, dropout > 0).to(v.dtype), v)


def _grouped_mm(emulation, a, b, offs=None, bias=None, out_dtype=None):
    """Rows of a, up to each offset, times a matrix of b each: the experts of a mixture, each a layer of its own."""
    if a.dim() != 2 or b.dim() != 3 or bias is not None or out_dtype not in (None, a.dtype):
        return None
    ends = offs.tolist()
    parts = [_addmm(emulation, None, a[begin:end], matrix, part=i) if end > begin else a.new_zeros(0, b.shape[2])
             for i, (begin, end, matrix) in enumerate(zip([0, *ends], ends, b))]
    return torch.cat([*parts, a.new_zeros(len(a) - ends[-1], b.shape[2])])


def _without_onednn(op):
    """In the products of PyTorch's own code, which come here, and not in one kernel of oneDNN's."""
    def compute(emulation, *args, **kwargs):
        if not torch._C._get_mkldnn_enabled():
            return None
        torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags() sets others, too, and warns of them
        try:
            return op(*args, **kwargs)
        finally:
            torch._C._set_mkldnn_enabled(True)
    return compute


def _no_rule(emulation, *args, **kwargs):
    return None


def _into(compute):
    """The form of an op that writes its result to `out`."""
    def form(emulation, *args, out, **kwargs):
        result = compute(emulation, *args, **kwargs) if out.dtype == args[0].dtype else None  # an error of PyTorch's
        return None if result is None else out.resize_(result.shape).copy_(result)
    return form


def _in_place(compute):
    return lambda emulation, c, *args, **kwargs: c.copy_(compute(emulation, c, *args, **kwargs))


_FORMS = (Rule("mm", _mm, 1), Rule("addmm", _addmm, 2), Rule("bmm", _bmm, 1), Rule("baddbmm", _baddbmm),
          Rule("addbmm", _addbmm), Rule("mv", _mv, 0), Rule("addmv", _addmv), Rule("dot", _dot))

RULES = (
    Rule("linear", _linear, 1, True), Rule("convolution", _convolution, 1, True),
    Rule("scaled_dot_product_attention", _attention, mask=3), Rule("vdot", _dot),
    Rule("_grouped_mm", _grouped_mm, 1, takes_sizes=True),
    *_FORMS, *(Rule(r.name + ".out", _into(r.compute), r.weight) for r in _FORMS),
    *(Rule(r.name + "_", _in_place(r.compute), r.weight) for r in _FORMS if r.name.startswith(("add", "badd"))),
    Rule("lstm.input", _without_onednn(torch.ops.aten.lstm.input)),
    Rule("lstm.data", _without_onednn(torch.ops.aten.lstm.data), takes_sizes=True),
    *(Rule(name, _no_rule) for name in ("_trilinear", "conv_tbc", "_addmm_activation", "_scaled_mm", "_int_mm",
                                        "_native_multi_head_attention", "_transformer_encoder_layer_fwd")),
)

# Products of nested tensors, which are PyTorch's, and counted.
OF_NESTED = tuple(Rule(name, _no_rule) for name in ("linear", "matmul", "bmm"))


# Layers under autocast that are cast with scales: the function and its operands, of which autocast casts all but the
# weight; None for others.

def _prepared(layer):
    def prepare(emulation, x, weight, bias=None, *settings):
        is_layer = weight.dim() > 1 and (bias is None or bias.dim() == 1)
        cast = emulation.autocast(x)
        if unfit([cast]) or unfit([weight]) or not is_layer or not emulation.scales(weight):
            return None
        return layer, (cast, weight, emulation.autocast(bias), *settings)
    return prepare


_scaled_linear = _prepared(F.linear)


def _scaled_addmm(emulation, bias, a, b, *, beta=1, alpha=1):
    plain = beta == 1 and alpha == 1 and bias.dim() == 1
    return _scaled_linear(emulation, a, b.t(), bias) if plain and emulation.is_parameter(b) else None


def _scaled_matmul(emulation, a, b):
    if a.dim() == b.dim() == 3 and len(a) == len(b):
        return _scaled_bmm(emulation, a, b)
    if b.dim() == 2 and emulation.is_parameter(b):
        return _scaled_linear(emulation, a, b.t())
    if a.dim() != 2 or not emulation.is_parameter(a) or not emulation.scales(a) or b.dim() > 2:
        return None
    return torch.matmul, (a, emulation.autocast(b))


def _scaled_bmm(emulation, a, b):
    scales = emulation.is_parameter(b) and emulation.scales(b)
    return (torch.bmm, (emulation.autocast(a), b)) if scales else None


LAYERS = {"linear": _scaled_linear, "addmm": _scaled_addmm, "mm": _scaled_matmul, "matmul": _scaled_matmul,
          "bmm": _scaled_bmm}
for _name in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d.input"):
    LAYERS[_name] = _prepared(getattr(F, _name.partition(".")[0]))
for _name in ("conv1d", "conv2d"):
    LAYERS[_name + ".padding"] = LAYERS[_name]
