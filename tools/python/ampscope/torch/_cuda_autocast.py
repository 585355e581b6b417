"""torch.autocast("cuda") on a machine without CUDA: the lists of CUDA's autocast, and GradScaler("cuda"), on the
processor."""
import functools
import threading
import warnings

import torch
from torch.utils._pytree import tree_map

from .. import autocast_ops, autocast_rule

_regions = threading.local()  # number of autocast("cuda") regions that a thread is in
_open = []  # not empty while a model is emulated
_HALVES = (torch.float16, torch.bfloat16)


def in_region():
    return getattr(_regions, "depth", 0) > 0


def kernels():
    """(op with overload, kernel) for each op that the lists of CUDA and those of the processor do not treat alike.
    kernel(op) takes the op's arguments, and is called with autocast of the processor excluded."""
    rules = {"lower precision": _lower, "fp32": _wide, "fp32 output": _wide_output, "widest": _widest,
             "banned": _banned}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        on_cuda, on_cpu = (torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
                           for key in ("AutocastCUDA", "AutocastCPU"))
        if not name.startswith("aten::") or not (on_cuda or on_cpu):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        wanted, usual = (_class_of(base, policy) if known else "unlisted"
                         for policy, known in (("cuda", on_cuda), ("cpu", on_cpu)))
        if wanted != usual and base in autocast_ops:
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
            yield name.removeprefix("aten::"), op, rules.get(wanted, unlisted)


def _class_of(op, policy):
    try:
        return autocast_rule(op, "fp32", policy=policy)[2]
    except ValueError:
        return "banned"


def _cast(args, kwargs, dtype):
    def cast(t):
        eligible = isinstance(t, torch.Tensor) and t.is_floating_point() and t.dtype != torch.float64
        return t.to(dtype) if eligible else t
    return tree_map(cast, (args, kwargs))


def _lower(op, args, kwargs):
    args, kwargs = _cast(args, kwargs, torch.get_autocast_dtype("cpu"))
    return op(*args, **kwargs)


def _wide(op, args, kwargs):
    args, kwargs = _cast(args, kwargs, torch.float32)
    return op(*args, **kwargs)


def _wide_output(op, args, kwargs):
    """The op itself reads halves and gives FP32, unless the call names another type."""
    place = [a.name for a in op._schema.arguments].index("dtype") if "dtype" in str(op._schema) else None
    if place is None:
        return _wide(op, args, kwargs)
    given = args[place] if place < len(args) else kwargs.get("dtype")
    if given is None and args[0].dtype in _HALVES:
        if place < len(args):
            args = args[:place] + (torch.float32,) + args[place + 1:]
        else:
            kwargs = {**kwargs, "dtype": torch.float32}
    return op(*args, **kwargs)


def _widest(op, args, kwargs):
    found = []
    tree_map(lambda t: found.append(t.dtype) if isinstance(t, torch.Tensor) else None, (args, kwargs))
    return _wide(op, args, kwargs) if torch.float32 in found else op(*args, **kwargs)


def _banned(op, args, kwargs):
    raise RuntimeError(f"{op}: unsafe to autocast; binary_cross_entropy_with_logits is safe")


def unlisted(op, args, kwargs):
    return op(*args, **kwargs)


def _for_processor(region, device):
    """Whether what is made for CUDA is to be made for the processor instead."""
    region._ampscope_cuda = bool(_open) and device == "cuda" and not torch.cuda.is_available()
    return region._ampscope_cuda


def _make_autocast(original, self, device_type, dtype=None, *args, **kwargs):
    if _for_processor(self, device_type):
        device_type, dtype = "cpu", dtype or torch.float16
    original(self, device_type, dtype, *args, **kwargs)


def _make_scaler(original, self, device="cuda", *args, **kwargs):
    original(self, "cpu" if _for_processor(self, device) else device, *args, **kwargs)


def _notice_idle(original, self, outputs):
    """A script that makes GradScaler("cuda") before emulate() has one that PyTorch has disabled."""
    if not self.is_enabled() and self._device == "cuda" and not torch.cuda.is_available():
        warnings.warn('emulate: this GradScaler("cuda") is disabled and scales nothing, as FP16 wants it to. If the '
                      "script did not ask for that: PyTorch disables it where there is no CUDA; make it inside of "
                      "emulate()", stacklevel=3)
    return original(self, outputs)


def _enter(original, self):
    _regions.depth = getattr(_regions, "depth", 0) + getattr(self, "_ampscope_cuda", False)
    return original(self)


def _leave(original, self, *error):
    _regions.depth = getattr(_regions, "depth", 0) - getattr(self, "_ampscope_cuda", False)
    return original(self, *error)


def _asked(original, device="cuda", *args):
    """The state of autocast, as scripts and torch.amp.custom_fwd ask for it."""
    return original("cpu" if device == "cuda" and not torch.cuda.is_available() else device, *args)


def _cast_inputs(original, value, device, dtype):
    return original(value, "cpu" if device == "cuda" and not torch.cuda.is_available() else device, dtype)


def change(undo, needs_scaler):
    """Changes autocast and GradScaler until `undo`, an ExitStack, is closed. needs_scaler: that FP16's gradients want a
    loss scale, so that a scaler which does nothing is noticed."""
    _open.append(True)
    undo.callback(_open.clear)
    autocast, scaler = torch.amp.autocast, torch.amp.GradScaler
    for owner, name, ours in ((autocast, "__init__", _make_autocast), (autocast, "__enter__", _enter),
                              (autocast, "__exit__", _leave), (scaler, "__init__", _make_scaler)):
        replace(owner, name, ours, undo)
    if needs_scaler:
        replace(scaler, "scale", _notice_idle, undo)
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        replace(torch, name, _asked, undo)
    replace(torch.amp.autocast_mode, "_cast", _cast_inputs, undo)


def replace(owner, name, ours, undo):
    """owner.name becomes ours(original, ...). If somebody else replaces it meanwhile, as a recorder does, ours stays in
    between and does what the original did."""
    original = owner.__dict__[name]

    @functools.wraps(original)
    def call(*args, **kwargs):
        return ours(original, *args, **kwargs)

    setattr(owner, name, call)
    undo.callback(lambda: setattr(owner, name, original) if owner.__dict__[name] is call else None)
