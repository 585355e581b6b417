"""Kernels of PyTorch that are replaced while a model is emulated: those of the ops that multiply matrices, those that
strict="ops" asks for (which without it are replaced in the model's first call, and compared with ours), and those that
autocast treats otherwise on CUDA. Each asks the emulation first; what is not its own goes to the kernel that was there.
"""
import contextlib
import functools
import warnings

import torch

from . import _cuda_autocast, _elementwise
from ._rules import LAYERS, OF_NESTED, RULES

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_emulation = []  # the one that is open
_kernels = {}  # ours by op and key: PyTorch never lets go of one, so each is made once and knows no emulation
_elementwise_kernels = set()  # those of them that multiply no matrices


def install(emulation, undo):
    """Replaces the kernels until `undo`, an ExitStack, is closed."""
    _emulation.append(emulation)
    undo.callback(_emulation.clear)
    if not _kernels:
        _make_kernels()
    _replace(_kernels.keys() - _elementwise_kernels, undo)
    others = undo.enter_context(contextlib.ExitStack())
    compared = {(name, key) for name, key in _elementwise_kernels
                if name not in (*_elementwise.TAKE_NUMBERS, *_elementwise.IN_PLACE)}
    _replace(_elementwise_kernels if emulation.computes_all else compared, others)
    emulation.when_compared = others.close


def _replace(kernels, undo):
    library = torch.library.Library("aten", "IMPL")
    undo.callback(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        for name, key in kernels:
            library.impl(name, _kernels[name, key], key, with_keyset=True, allow_override=True)


def _make_kernels():
    for rule in (*RULES, *_elementwise.RULES):
        if rule.is_elementwise:
            _elementwise_kernels.update((rule.name, key) for key in ("AutogradCPU", "CPU"))
        if torch._C._dispatch_has_kernel(f"aten::{rule.name}"):
            for key in ("AutogradCPU", "CPU"):
                _kernels[rule.name, key] = _product(_kernel_of(rule.name, key), rule, key)
    for rule in OF_NESTED:
        key = "AutogradNestedTensor"
        _kernels[rule.name, key] = _product(_kernel_of(rule.name, key), rule, "AutogradCPU")
    for name, prepare in LAYERS.items():
        _kernels[name, "AutocastCPU"] = _layer(_kernel_of(name, "AutocastCPU"), prepare)
    for name, op, ours in _cuda_autocast.kernels():
        known = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")
        _kernels[name, "AutocastCPU"] = _cast(_kernel_of(name, "AutocastCPU") if known else None, name, op, ours)


def _kernel_of(name, key):
    return torch.library.get_kernel(f"aten::{name}", key)


def _product(original, rule, key):
    """Emulated, if it is one of the model's. PyTorch skips the kernels of autograd for tensors of inference mode."""
    original = original.call_boxed
    if rule.name in _elementwise.TAKE_NUMBERS:
        original = _elementwise.with_numbers(original)

    def kernel(keyset, *args, **kwargs):
        if key == "AutogradCPU" or torch.is_inference_mode_enabled() or all(
                t.is_inference() for t in args if isinstance(t, torch.Tensor)):
            return _emulation[0].take(rule, functools.partial(original, keyset), args, kwargs)
        return original(keyset, *args, **kwargs)
    return kernel


def _layer(original, prepare):
    """Layers that are cast with scales get their weight as it is, not as autocast would cast it."""
    def kernel(keyset, *args, **kwargs):
        prepared = prepare(_emulation[0], *args, **kwargs)
        if prepared is None:
            return original.call_boxed(keyset, *args, **kwargs)
        layer, operands = prepared
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return layer(*operands)
    return kernel


def _composite(name):
    return _kernels.get((name, "AutogradCPU")) or _kernel_of(name, "AutogradCPU").call_boxed


def _cast(original, name, op, ours):
    """An op by the lists of CUDA in the model, and in regions that say so."""
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CompositeImplicitAutograd")
    parts = _composite(name) if is_composite else None  # which autocast may know, if not the whole

    def kernel(keyset, *args, **kwargs):
        for_cuda = _emulation[0].is_inside or _cuda_autocast.in_region()
        if original is not None and not for_cuda:
            return original.call_boxed(keyset, *args, **kwargs)
        if parts is not None and (not for_cuda or ours is _cuda_autocast.unlisted):
            return parts(keyset, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return ours(op, args, kwargs) if for_cuda else op(*args, **kwargs)
    return kernel
