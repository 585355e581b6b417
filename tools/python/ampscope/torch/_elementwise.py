"""PyTorch's ops that multiply no matrices, as ours: rounded once, from more bits than PyTorch's kernels have, and with
sums in the order of amp-train. Ops that are not here PyTorch rounds once, too, or amp-train does not have them."""
import torch

from ._rules import Rule


def _add(emulation, a, b, *, alpha=1):
    """The second operand is added to each part of the first whose shape it has; or the other way around."""
    return _of_two(emulation, "add", a, b) if alpha == 1 else None


def _mul(emulation, a, b):
    if isinstance(a, (int, float)):
        a, b = b, a
    if isinstance(a, torch.Tensor) and isinstance(b, (int, float)):
        return emulation.elementwise("scale", a, settings=(float(b),)) if a.is_floating_point() else None
    return _of_two(emulation, "mul", a, b)


def _of_two(emulation, op, a, b):
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in (a, b)):
        return None
    if a.dtype != b.dtype and 0 in (a.dim(), b.dim()):
        return None  # PyTorch rounds once, from the number as it is
    if a.dim() < b.dim() or (a.dim() == b.dim() and a.numel() < b.numel()):
        a, b = b, a
    while b.dim() > 1 and b.shape[0] == 1:  # as positions are broadcast over a batch
        b = b[0]
    if a.shape[a.dim() - b.dim():] != b.shape:
        return None
    dtype = torch.result_type(a, b)
    return emulation.elementwise(op, a.to(dtype), b.to(dtype))


def with_numbers(kernel):
    """PyTorch's kernel of an op on two tensors, which takes no number in place of the second, as it comes here. Numbers
    decide about the type of the result only if they are of another kind than the tensor, and then by default types."""
    def call(keyset, a, b, **kwargs):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return kernel(keyset, a, b, **kwargs)
        if isinstance(b, torch.Tensor):  # products and sums with alpha = 1, the only ones that have a number first
            a, b = b, a
        is_new = isinstance(b, float) and not (a.is_floating_point() or a.is_complex())
        number = torch.tensor(b, dtype=torch.float64 if isinstance(b, float) and not is_new else None)
        return kernel(keyset, a, number, **kwargs) if a.dim() else kernel(keyset, a[None], number, **kwargs)[0]
    return call


def _activation(name):
    return lambda emulation, x: emulation.elementwise(name, x)


def _in_place(name):
    """Computed from a copy, which backward reads again."""
    def compute(emulation, x):
        result = emulation.elementwise(name, x.clone())
        return None if result is None else x.copy_(result)
    return compute


def _gelu(emulation, x, *, approximate="none"):
    return emulation.elementwise("gelu" if approximate == "none" else "gelu_tanh", x)


def _softmax(emulation, x, dim, dtype=None):
    """From halves to FP32 in one step, as on CUDA, where the gradient is rounded once, too."""
    if dim not in (-1, x.dim() - 1) or x.dim() == 0 or dtype not in (None, x.dtype, torch.float32):
        return None
    return emulation.elementwise("softmax", x, wide=dtype == torch.float32)


def _affine(x, channels, weight, bias):
    """Weight and bias of a norm, of which one without a weight multiplies by ones. None: an error of PyTorch's."""
    if any(t is not None and t.shape != (channels,) for t in (weight, bias)):
        return None
    return x.new_ones(channels) if weight is None else weight, bias


def _layer_norm(emulation, x, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    affine = _affine(x, shape[0], weight, bias) if len(shape) == 1 and x.shape[-1:] == tuple(shape) else None
    return None if affine is None else emulation.elementwise("layer_norm", x, *affine, settings=(eps,))


def _rms_norm(emulation, x, shape, weight=None, eps=None):
    affine = _affine(x, shape[0], weight, None) if len(shape) == 1 and x.shape[-1:] == tuple(shape) else None
    return None if affine is None else emulation.elementwise(
        "rms_norm", x, affine[0], settings=(torch.finfo(x.dtype).eps if eps is None else eps,))


def _group_norm(emulation, x, groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    affine = _affine(x, x.shape[1], weight, bias) if x.dim() > 1 and groups > 0 and x.shape[1] % groups == 0 else None
    return None if affine is None else emulation.elementwise("group_norm", x, *affine, settings=(groups, eps))


def _within(indices, end):
    """Others are an error of PyTorch's."""
    return indices.numel() == 0 or (int(indices.min()) >= 0 and int(indices.max()) < end)


def _embedding(emulation, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if padding_idx != -1 or scale_grad_by_freq or sparse or len(weight) > 1 << 24 or not _within(indices, len(weight)):
        return None
    return emulation.elementwise("embedding", weight, numbers=indices)


def _cross_entropy(emulation, logits, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    """The mean, of classes by their numbers. Under autocast logits are FP32, as amp-train has it."""
    if (weight is not None or reduction != 1 or target.is_floating_point()
            or logits.dim() not in (1, 2) or logits.shape[-1] > 1 << 24):
        return None
    ignored = target == ignore_index
    if not _within(torch.where(ignored, 0, target), logits.shape[-1]):
        return None
    if torch.is_autocast_enabled("cpu"):
        logits = logits.float()
    target = torch.where(ignored, -1, target)
    return emulation.elementwise("cross_entropy", logits, numbers=target, settings=(label_smoothing, 0.0),
                                 wide=emulation.has_wide_loss)


def _mse_loss(emulation, x, target, reduction=1):
    if reduction != 1 or x.shape != target.shape or target.requires_grad:
        return None
    return emulation.elementwise("mse_loss", x, target, wide=emulation.has_wide_loss)


TAKE_NUMBERS = ("add.Tensor", "mul.Tensor")  # which PyTorch rounds once, too
IN_PLACE = ("tanh_", "sigmoid_", "silu_")  # relu_ rounds nothing
_ROWS = (("add.Tensor", _add), ("mul.Tensor", _mul), ("gelu", _gelu), ("softmax.int", _softmax),
         ("layer_norm", _layer_norm), ("rms_norm", _rms_norm), ("group_norm", _group_norm), ("embedding", _embedding),
         ("cross_entropy_loss", _cross_entropy), ("mse_loss", _mse_loss),
         *((name, _activation(name)) for name in ("relu", "tanh", "sigmoid", "silu")),
         *((name, _in_place(name.rstrip("_"))) for name in IN_PLACE))

RULES = tuple(Rule(name, compute, is_elementwise=True) for name, compute in _ROWS)
