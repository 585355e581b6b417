"""The calls of torch that every training loop makes, watched while a recorder is open.

They are replaced where loops look them up, so that no loop needs a change; each does what it did, with the same
arguments and result. With the last recorder they are put back.
"""
import functools
import threading

import torch
from torch.nn.utils import clip_grad

_recorders = []
_replaced = []  # (owner, name, what was there)
_busy = threading.local()
_scaled = False  # whether a loss was ever scaled: else no graph is searched for where


def add(recorder):
    if not _recorders:
        _install()
    _recorders.append(recorder)


def remove(recorder):
    _recorders.remove(recorder)
    if not _recorders:
        for owner, name, original in reversed(_replaced):
            setattr(owner, name, original)
        _replaced.clear()


def _watch(owner, name, watched):
    """Replaces owner.name by watched(original, ...); calls of it inside of itself go to the original at once."""
    original = owner.__dict__[name]

    @functools.wraps(original)
    def call(*args, **kwargs):
        inside = _busy.__dict__.setdefault(name, False)
        if inside or not _recorders:
            return original(*args, **kwargs)
        _busy.__dict__[name] = True
        try:
            return watched(original, *args, **kwargs)
        finally:
            _busy.__dict__[name] = False

    _replaced.append((owner, name, original))
    setattr(owner, name, call)


def _tell(event, *args):
    for recorder in tuple(_recorders):
        getattr(recorder, event)(*args)


def _backward(original, tensors, *args, **kwargs):
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    _tell("before_backward", roots)
    result = original(roots, *args, **kwargs)
    _tell("after_backward")
    return result


def _clip(original, parameters, *args, **kwargs):
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    _tell("before_clip", parameters)
    return original(parameters, *args, **kwargs)


def _scale(original, scaler, outputs):
    scaled = original(scaler, outputs)
    if scaler.is_enabled() and isinstance(scaled, torch.Tensor) and scaled.grad_fn is not None:
        # A node's metadata lives as long as the graph: backward finds it from whatever was computed from it since.
        global _scaled
        _scaled = True
        scaled.grad_fn.metadata[_MARK] = (scaler.get_scale(), outputs.detach(), scaled.detach())
        _tell("saw_scale", scaler, outputs)
    return scaled


def _unscale(original, scaler, optimizer):
    if scaler.is_enabled():
        _tell("before_unscale", scaler, optimizer)
    return original(scaler, optimizer)


def _step(original, scaler, optimizer, *args, **kwargs):
    if not scaler.is_enabled():
        return original(scaler, optimizer, *args, **kwargs)
    _tell("before_scaler_step", scaler, optimizer)
    try:
        result = original(scaler, optimizer, *args, **kwargs)
    except BaseException:
        _tell("scaler_step_failed", optimizer)
        raise
    _tell("after_scaler_step", scaler, optimizer)
    return result


def _enter_autocast(original, region):
    result = original(region)
    if torch.is_autocast_enabled(region.device):
        _tell("saw_autocast", torch.get_autocast_dtype(region.device))
    return result


_MARK = "ampscope.loss_scale"
_DEPTH = 64  # nodes between a scaled loss and the root of backward: sums and quotients of losses


def scale_in(root):
    """The loss scale that what is computed from `root` backward contains (1: none), and the loss without it."""
    loss, queue, seen = root.detach(), [root.grad_fn] if _scaled else [], 0
    while queue and seen < _DEPTH:
        node = queue.pop(0)
        seen += 1
        mark = None if node is None else node.metadata.get(_MARK)
        if mark:
            scale, unscaled, scaled = mark
            return scale, unscaled if scaled.data_ptr() == loss.data_ptr() else loss.double() / scale
        queue += [] if node is None else [following for following, _ in node.next_functions]
    return 1.0, loss


def _subclasses(cls):
    return [cls] + [c for direct in cls.__subclasses__() for c in _subclasses(direct)]


def _install():
    _watch(torch.autograd, "backward", _backward)
    _watch(torch.autocast, "__enter__", _enter_autocast)
    # Scripts that hold a clipping function since before reach the inner one at least.
    for owner in (torch.nn.utils, clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_", "_clip_grads_with_norm_"):
            if name in owner.__dict__:
                _watch(owner, name, _clip)
    for cls in _subclasses(torch.amp.GradScaler):
        for name, watched in (("scale", _scale), ("unscale_", _unscale), ("step", _step)):
            if name in cls.__dict__:
                _watch(cls, name, watched)
