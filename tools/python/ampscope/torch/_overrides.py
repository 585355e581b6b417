"""Kernels of PyTorch that are replaced while a machine is emulated: those of the ops that multiply matrices.

Each asks the machine first, which computes what is its own; all else goes to the kernel that was there.
"""
import functools
import math
import warnings

import torch

from . import _cuda_autocast

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


_machine = []  # the one that is emulated
_kernels = {}  # ours by op and key: PyTorch never lets go of one, so each is made once and knows no machine


def install(machine, undo):
    """Replaces the kernels until `undo`, an ExitStack, is closed."""
    _machine.append(machine)
    undo.callback(_machine.clear)
    library = torch.library.Library("aten", "IMPL")
    undo.callback(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        if not _kernels:
            _make_kernels()
        for (name, key), kernel in _kernels.items():
            library.impl(name, kernel, key, with_keyset=True, allow_override=True)


def _make_kernels():
    for name, ours in PRODUCTS.items():
        for key in ("AutogradCPU", "CPU"):
            _kernels[name, key] = _product(_kernel_of(name, key), name, ours, key)
    for name, ours in LAYERS.items():
        _kernels[name, "AutocastCPU"] = _layer(_kernel_of(name, "AutocastCPU"), ours)
    for name, op, ours in _cuda_autocast.kernels():
        known = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")
        _kernels[name, "AutocastCPU"] = _cast(_kernel_of(name, "AutocastCPU") if known else None, name, op, ours)


def _kernel_of(name, key):
    return torch.library.get_kernel(f"aten::{name}", key)


def _product(original, name, ours, key):
    """Emulated, if it is one of the model's. In inference mode PyTorch skips the kernels of autograd."""
    def kernel(keyset, *args, **kwargs):
        if key == "AutogradCPU" or torch.is_inference_mode_enabled():
            return _machine[0].take(name, ours, functools.partial(original.call_boxed, keyset), args, kwargs)
        return original.call_boxed(keyset, *args, **kwargs)
    return kernel


def _layer(original, ours):
    """Layers that are cast with scales get their weight as it is, not as autocast would cast it."""
    def kernel(keyset, *args, **kwargs):
        compute = ours(_machine[0], *args, **kwargs)
        if compute is None:
            return original.call_boxed(keyset, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return compute()
    return kernel


def _cast(original, name, op, ours):
    """An op by the lists of CUDA in the model, and in regions that say so."""
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CompositeImplicitAutograd")
    parts = _kernel_of(name, "AutogradCPU") if is_composite else None  # which autocast may know, if not the whole

    def kernel(keyset, *args, **kwargs):
        for_cuda = _machine[0].scope.place or _cuda_autocast.in_region()
        if original is not None and not for_cuda:
            return original.call_boxed(keyset, *args, **kwargs)
        if parts is not None and (not for_cuda or ours is _cuda_autocast.unlisted):
            return parts.call_boxed(keyset, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return ours(op, args, kwargs) if for_cuda else op(*args, **kwargs)
    return kernel


# What an op is in terms of products. Each function gives the result, or None for what it does not do.

def _linear(machine, x, weight, bias=None):
    return machine.layer("linear", x, weight, bias)


def _mm(machine, a, b):
    return _addmm(machine, None, a, b)


def _addmm(machine, bias, a, b, *, beta=1, alpha=1):
    """A layer if b is a parameter, as Hugging Face's Conv1D has it, or one transposed."""
    fits = bias is None or (beta == 1 and alpha == 1 and bias.shape == (b.shape[1],))
    if fits and machine.is_parameter(b):
        if machine.scales(b) or b.mT.is_contiguous():  # products of another layout cost a copy
            return machine.layer("linear", a, b.t(), bias)
        return machine.product(a, b, bias, weight=True)
    if fits:
        return machine.product(a, b, bias)
    return _sum(bias, beta, machine.product(a, b, wide=True), alpha, a.dtype)


def _sum(c, beta, product, alpha, dtype):
    """beta c + alpha product, in FP32 and rounded once; c counts for nothing if beta is 0, NaN or not."""
    if alpha != 1:
        product = product * alpha
    if beta != 0:
        product = product + (c.float() if beta == 1 else c.float() * beta)
    return product.to(dtype)


def _bmm(machine, a, b):
    return machine.product(a, b)


def _baddbmm(machine, c, a, b, *, beta=1, alpha=1):
    return _sum(c, beta, machine.product(a, b, wide=True), alpha, a.dtype)


def _addbmm(machine, c, a, b, *, beta=1, alpha=1):
    wide = machine.product(a.transpose(0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2]), wide=True)
    return _sum(c, beta, wide, alpha, a.dtype)


def _mv(machine, a, x):
    return machine.product(a, x[:, None])[:, 0]


def _addmv(machine, c, a, x, *, beta=1, alpha=1):
    return _sum(c, beta, machine.product(a, x[:, None], wide=True)[:, 0], alpha, a.dtype)


def _dot(machine, x, y):
    return machine.product(x[None], y[:, None])[0, 0]


def _convolution(machine, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if x.dim() not in (3, 4):
        return None
    if transposed:
        x, weight, stride, padding = _as_convolution(x, weight, stride, padding, dilation, output_padding, groups)
    if groups > 1:
        return torch.cat([_convolution(machine, *part, stride, padding, dilation, False, output_padding, 1)
                          for part in zip(x.chunk(groups, 1), weight.chunk(groups),
                                          [None] * groups if bias is None else bias.chunk(groups))], 1)
    if x.dim() == 3:
        across = weight.shape[2], stride[0], padding[0], dilation[0]
        out = machine.layer("conv2d", x[:, :, None], weight[:, :, None], bias, (1, 1, 0, 1, *across))
        return out[:, :, 0]
    settings = tuple(part[axis] for axis in (0, 1) for part in (weight.shape[2:], stride, padding, dilation))
    return machine.layer("conv2d", x, weight, bias, settings)


def _as_convolution(x, weight, stride, padding, dilation, output_padding, groups):
    """A transposed convolution as a convolution of stride 1: of the image with zeros between its pixels, by the kernel
    turned around. The products with these zeros change no sum."""
    axes = range(2, x.dim())
    spread = x.new_zeros(*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], stride)))
    spread = spread.index_put(tuple(torch.arange(0, n, s if i > 1 else 1).view(-1, *[1] * (x.dim() - 1 - i))
                                    for i, (n, s) in enumerate(zip(spread.shape, (1, 1, *stride)))), x)
    margins = [d * (k - 1) - p for k, p, d in zip(weight.shape[2:], padding, dilation)]
    spread = torch.nn.functional.pad(spread, [m for before, after in reversed([
        (m, m + o) for m, o in zip(margins, output_padding)]) for m in (before, after)])
    turned = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(*axes)
    return spread, turned, [1] * len(margins), [0] * len(margins)


def _attention(machine, q, k, v, mask=None, dropout=0.0, causal=False, *, scale=None, enable_gqa=False):
    """softmax(q k^T * scale + mask) v, with scores, their scale, mask and softmax in FP32, and probabilities rounded to
    the format of v, as kernels that keep the scores on the chip do."""
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = machine.product(q, k.mT, wide=True) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
    shares = torch.softmax(scores, -1)
    if mask is not None and mask.dtype == torch.bool:
        shares = shares.masked_fill(~mask.any(-1, keepdim=True), 0)  # a row without any key gives zeros
    return machine.product(torch.dropout(shares, dropout, dropout > 0).to(v.dtype), v)


def _grouped_mm(machine, a, b, offs=None, bias=None, out_dtype=None):
    """Rows of a, up to each offset, times a matrix of b each: the experts of a mixture."""
    if a.dim() != 2 or b.dim() != 3 or bias is not None or out_dtype not in (None, a.dtype):
        return None
    ends = offs.tolist()
    parts = [machine.product(a[begin:end], matrix) if end > begin else a.new_zeros(0, b.shape[2])
             for begin, end, matrix in zip([0, *ends], ends, b)]
    return torch.cat([*parts, a.new_zeros(len(a) - ends[-1], b.shape[2])])


PRODUCTS = {"linear": _linear, "mm": _mm, "addmm": _addmm, "bmm": _bmm, "baddbmm": _baddbmm, "addbmm": _addbmm,
            "mv": _mv, "addmv": _addmv, "dot": _dot, "convolution": _convolution,
            "scaled_dot_product_attention": _attention, "_grouped_mm": _grouped_mm}


def _scaled_linear(machine, x, weight, bias=None):
    return _scaled(machine, torch.nn.functional.linear, x, weight, bias)


def _scaled(machine, layer, x, weight, bias, *settings):
    """The layer of operands as they are cast for a product with scales; None if the layer has none."""
    if not machine.scales(weight, in_layer=True):
        return None
    x, bias = machine.autocast(x), machine.autocast(bias)
    return lambda: layer(x, weight, bias, *settings)


def _scaled_addmm(machine, bias, a, b, *, beta=1, alpha=1):
    if beta != 1 or alpha != 1 or not machine.scales(b):
        return None
    return _scaled_linear(machine, a, b.t(), bias)


def _scaled_matmul(machine, a, b):
    return _scaled_linear(machine, a, b.t()) if b.dim() == 2 and machine.scales(b) else None


def _scaled_conv(layer):
    def ours(machine, x, weight, bias=None, *settings):
        return _scaled(machine, layer, x, weight, bias, *settings)
    return ours


LAYERS = {"linear": _scaled_linear, "addmm": _scaled_addmm, "mm": _scaled_matmul, "matmul": _scaled_matmul}
for _name in ("conv1d", "conv2d"):
    LAYERS[_name] = LAYERS[_name + ".padding"] = _scaled_conv(getattr(torch.nn.functional, _name))
