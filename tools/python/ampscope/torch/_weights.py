"""The formats in which a model's weights are kept and used, where autocast does not decide about it."""
import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from .._conversions import quantize
from ._eager import DTYPES as _DTYPES
from ._eager import FORMATS

_HALVES = (torch.float16, torch.bfloat16)


class Weights:
    """Weights and buffers have the type of the precision's master weights until close(), as after model.bfloat16();
    a master format without a type of PyTorch's lives in FP32. Where the model computes in another, each call gets casts
    of them, whose gradients come back in the master's type: the copy that Apex O2 and Megatron keep. As in Apex,
    batch normalization keeps its own in FP32 then."""

    def __init__(self, model, precision, converts=True):
        """converts: False: the model's own weights stay as they are, in FP32, and calls get casts of them."""
        formats = precision.formats
        self._model, self._master = model, formats["master"]
        self._converts = converts or self._master not in _DTYPES
        self._kept = _DTYPES.get(self._master, torch.float32) if self._converts else torch.float32
        self._used = None if precision.autocast else _used(formats)
        self.narrows = self._used in _HALVES
        self.widens = self.narrows and formats["loss"] == "fp32"
        self._casts_each_call = self.narrows and self._used != self._kept
        is_changed = self._master != "fp32" or self.narrows
        for name, p in model.named_parameters() if is_changed else ():
            if isinstance(p, DTensor):
                raise NotImplementedError(f"emulate: {precision.name!r} changes weights, and those of this model are "
                                          "divided by fully_shard: use its MixedPrecisionPolicy")
            if p.dtype not in (torch.float32, self._kept):
                raise ValueError(f"emulate: {precision.name!r} keeps weights in {self._master}, and {name} is "
                                 f"{FORMATS.get(p.dtype, p.dtype)}")
        self._casts, self._sources, self._undo = {}, {}, []

    def install(self, undo):
        """Converts what the model has, until `undo`, an ExitStack, is closed."""
        if self._master == "fp32" or not self._converts:
            return
        for t in [*self._model.parameters(), *self._model.buffers()]:
            if t.dtype == torch.float32:
                kept = None if t.requires_grad else t.detach().clone()  # of what is not trained
                with torch.no_grad():
                    t.copy_(quantize(t.detach(), self._master))
                undo.callback(_put_back, t, kept, None if kept is None else t.detach().clone())
                _retype(t, self._kept)

    # Casts for each call.

    def source(self, tensor):
        """The parameter that a tensor is, or is a cast of; None for others."""
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        cast, parameter = self._sources.get(id(tensor), (None, None))
        return parameter if cast is tensor else None

    def forget(self):
        """Ends a step: weights are cast anew in the next. Gradients of all uses in one are added in the low format."""
        self._casts.clear()
        self._sources.clear()

    def enter(self, only=None):
        """Puts casts in the place of weights and buffers until leave(). only: the one module that gets them."""
        if not self._casts_each_call:
            return
        for module in self._model.modules() if only is None else [only]:
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                continue
            for name, p in module._parameters.items():
                if p is not None and p.dtype == torch.float32:
                    self._replace(module._parameters, name, self._cast(p))
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.dtype == torch.float32:
                    self._replace(module._buffers, name, buffer.to(self._used))
            if isinstance(module, torch.nn.RNNBase):  # it has a list of its own
                self._replace(module.__dict__, "_flat_weights", [self._cast(p) for p in module._flat_weights])

    def _replace(self, owned, name, cast):
        self._undo.append((owned, name, owned[name], cast))
        owned[name] = cast

    def leave(self):
        while self._undo:
            owned, name, original, cast = self._undo.pop()
            found, owned[name] = owned[name], original
            if not isinstance(original, torch.Tensor) or isinstance(original, torch.nn.Parameter):
                continue
            if found is not cast:  # a buffer that the call replaced
                owned[name] = found.to(original.dtype) if isinstance(found, torch.Tensor) else found
            elif cast._version:  # one that it changed
                original.copy_(cast)
        if not torch.is_grad_enabled():  # weights may be exchanged before the next call in ways that leave no trace
            for key in [key for key in self._casts if not key[1]]:
                self._sources.pop(id(self._casts.pop(key)[0]), None)

    def _cast(self, p):
        key = id(p), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        cast, state = self._casts.get(key, (None, None))
        if cast is None or state != (p._version, p.data_ptr()):
            cast = p.to(self._used)
            self._casts[key] = cast, (p._version, p.data_ptr())
            self._sources[id(cast)] = cast, p
        return cast

    def narrowed(self, inputs):
        """Arguments of the model in the type in which it computes."""
        def narrow(t):
            if not isinstance(t, torch.Tensor) or t.dtype != torch.float32:
                return t
            cast = t.to(self._used)
            if not t.requires_grad:
                cast._ampscope_unrounded = t
            return cast
        return tree_map(narrow, inputs) if self.narrows else inputs

    def unrounded(self, tensor):
        """The FP32 numbers that a tensor, or what it is a view of, was cast from, which casts with scales read; the
        tensor itself if there are none."""
        cast = tensor if tensor._base is None else tensor._base
        was = self.source(cast)
        was = getattr(cast, "_ampscope_unrounded", None) if was is None else was
        if was is None or was is cast or (not cast.is_inference() and cast._version):
            return tensor
        if not torch.equal(was.to(cast.dtype).nan_to_num(), cast.nan_to_num()):  # changed in ways that leave no trace
            return tensor
        if tensor is cast:
            return was
        if was.stride() != cast.stride():  # so that views of both are alike
            was = torch.empty_like(cast, dtype=was.dtype).copy_(was)
        offset = was.storage_offset() + tensor.storage_offset() - cast.storage_offset()
        return was.as_strided(tensor.shape, tensor.stride(), offset)


def widened(result):
    """FP32 copies of what autocast left in half precision, for a loss outside the model."""
    def widen(t):
        return t.float() if isinstance(t, torch.Tensor) and t.dtype in _HALVES else t
    return tree_map(widen, result)


def _used(formats):
    """The type in which ops compute: one for all, as PyTorch has it."""
    form = formats["activations"]
    differing = {key: formats[key] for key in ("weights", "gradients", "loss") if formats[key] != form}
    if formats["loss"] == "fp32":
        differing.pop("loss", None)
    if differing or form not in _DTYPES:
        named = ", ".join(f"{key}={f}" for key, f in {"activations": form, **differing}.items())
        raise NotImplementedError(f"emulate: {named}: a model of PyTorch's computes in one type, FP32, FP16 or BF16")
    return _DTYPES[form]


def _put_back(t, kept, rounded):
    """In FP32 again, with the numbers that were there if they are still what these were rounded to."""
    _retype(t, torch.float32)
    if kept is not None and t.shape == kept.shape:
        with torch.no_grad():
            t.copy_(torch.where((t == rounded) | (t.isnan() & rounded.isnan()), kept, t))


def _retype(t, dtype):
    """In place, the gradient, too."""
    gradient, t.grad = (t.grad, None) if t.is_leaf else (None, None)
    t.data = t.data.to(dtype)
    if gradient is not None:
        t.grad = gradient.to(dtype)
