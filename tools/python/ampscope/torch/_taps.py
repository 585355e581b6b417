"""The calls of torch that every training loop makes, watched while a recorder is open.

They are replaced where loops look them up, so that no loop needs a change; each does what it did, with the same
arguments and result. With the last recorder they are put back.
"""
from __future__ import annotations

import functools
import sys
import threading
import typing

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
        if torch.compiler.is_dynamo_compiling() or not _recorders or _busy.__dict__.setdefault(name, False):
            return original(*args, **kwargs)  # compiled code cannot call back
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


def listens(method):
    """For what is called in training: a fault of the recorder ends the recording, not the training."""
    @functools.wraps(method)
    def call(recorder, *args, **kwargs):
        if recorder._closed:
            return
        try:
            method(recorder, *args, **kwargs)
        except Warning:  # ours, where the user has made errors of warnings
            raise
        except Exception as error:
            recorder._give_up(error)
    return call


def hook(method):
    """For what torch itself calls, maybe in a step that it compiles, which the recorder is no part of."""
    return torch._disable_dynamo(listens(method))


def _backward(original, tensors, *args, **kwargs):
    if torch._C._current_graph_task_id() != -1:  # within another one, as reentrant checkpoints run it, on any thread
        return original(tensors, *args, **kwargs)
    roots = list(tensors) if type(tensors) in (list, tuple) else [tensors]
    _tell("before_backward", roots)
    try:
        result = original(tensors, *args, **kwargs)
    except BaseException:
        _tell("backward_failed")
        raise
    _tell("after_backward")
    return result


def _clip(original, parameters, *args, **kwargs):
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    _tell("before_clip", [p.grad for p in parameters if p.grad is not None])
    return original(parameters, *args, **kwargs)


def _group(original, tensorlists, *args, **kwargs):
    """What the clipping functions begin with, looked up by those too that a script holds since before."""
    if "clip" in sys._getframe(2).f_code.co_name:
        _tell("before_clip", tensorlists[0])
    return original(tensorlists, *args, **kwargs)


def _clear(original, owner, *args, **kwargs):
    result = original(owner, *args, **kwargs)
    _tell("after_zero_grad", owner)
    return result


def _pairs(outputs, scaled):
    if isinstance(scaled, torch.Tensor):
        return [(outputs, scaled)]
    nested = isinstance(scaled, (list, tuple))
    return [pair for parts in zip(outputs, scaled) for pair in _pairs(*parts)] if nested else []


def _scale(original, scaler, outputs):
    result = original(scaler, outputs)
    for loss, scaled in _pairs(outputs, result) if scaler.is_enabled() else ():
        if scaled.grad_fn is not None:
            # A node's metadata lives as long as the graph: backward finds it from whatever was computed from it since.
            global _scaled
            _scaled = True
            mark = scaler, scaler.get_scale(), loss.detach(), scaled.detach(), scaled._version
            scaled.grad_fn.metadata[_MARK] = mark
    return result


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
    if torch.is_autocast_enabled(region.device) and torch.is_grad_enabled():  # evaluation is no part of training
        _tell("saw_autocast", torch.get_autocast_dtype(region.device))
    return result


_MARK = "ampscope.loss_scale"
_DEPTH = 64  # nodes between a scaled loss and the root of backward: sums and quotients of losses


class Root(typing.NamedTuple):
    """What backward begins with."""
    scale: float = 1.0  # that gradients will contain
    loss: torch.Tensor | None = None  # without it; None where that is not one number
    scaler: object = None
    dtype: torch.dtype | None = None  # of the loss that was scaled


def root_of(tensors):
    """The Root that several are together, whose losses are added up. A root may be a GradientEdge, too."""
    roots = [_root(t) for t in tensors]
    return roots[0]._replace(loss=total([r.loss for r in roots]))


def _root(tensor):
    one = isinstance(tensor, torch.Tensor) and tensor.numel() == 1
    loss = tensor.detach() if one else None
    queue, seen = [tensor.grad_fn if isinstance(tensor, torch.Tensor) else tensor.node] if _scaled else [], 0
    while queue and seen < _DEPTH:
        node = queue.pop(0)
        seen += 1
        mark = None if node is None else node.metadata.get(_MARK)
        if mark:
            scaler, scale, unscaled, scaled, version = mark
            same = one and scaled.data_ptr() == loss.data_ptr() and scaled._version == version
            loss = unscaled if same else _wide(loss) / scale if one else None
            return Root(scale, loss, scaler, unscaled.dtype)
        queue += [] if node is None else [following for following, _ in node.next_functions]
    return Root(loss=loss)


def total(losses):
    """The sum, FP64 where there is more than one; None where one is None. A copy: scripts go on with their losses."""
    if any(x is None for x in losses):
        return None
    return losses[0].clone() if len(losses) == 1 else sum(map(_wide, losses))


def _wide(loss):
    return loss.reshape(()).to(torch.float32 if loss.device.type == "mps" else torch.float64)


_NODES = 100_000


def _nodes_behind(root):
    """The nodes of the graph by which a loss was computed."""
    queue, seen = [root.grad_fn], set()
    while queue and len(seen) < _NODES:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        queue += [following for following, _ in node.next_functions]


def _is_function(node):
    """Whether it is a torch.autograd.Function, of which torch knows no types."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def types_behind(root):
    """The types of what a loss was computed from; None where parts of the graph do not tell, as compiled ones."""
    types = set()
    for node in _nodes_behind(root):
        # Old versions of torch do not tell what a cast is to.
        casts = not hasattr(node, "_input_metadata") and node.name() == "ToCopyBackward0"
        if _is_function(node) or casts:
            return None
        types.update(m.dtype for m in getattr(node, "_input_metadata", ()))
    return types


def formats_untold(root):
    """What a network may compute in that the types of its parameters and autocast do not say: the names of functions
    that neither torch nor emulate() provides, and of types of less than 16 bits that it casts to."""
    functions = {type(node)._forward_cls for node in _nodes_behind(root) if _is_function(node)}
    types = {m.dtype for node in _nodes_behind(root) for m in getattr(node, "_input_metadata", ())}
    return sorted({f.__name__ for f in functions if f.__module__.partition(".")[0] not in ("torch", "ampscope")} |
                  {str(t).removeprefix("torch.") for t in types if t.is_floating_point and t.itemsize < 2})


def within_itself(optimizer):
    """Whether its step() was called by its own, as a subclass's by super(): torch calls hooks of steps for each."""
    frame, calls = sys._getframe(1), 0
    while frame is not None and calls < 2:
        if frame.f_code.co_name == "wrapper" and frame.f_globals.get("__name__") == "torch.optim.optimizer":
            calls += frame.f_locals.get("args", (None,))[0] is optimizer
        frame = frame.f_back
    return calls > 1


def _subclasses(cls):
    return [cls] + [c for direct in cls.__subclasses__() for c in _subclasses(direct)]


def _install():
    _watch(torch.autograd, "backward", _backward)
    _watch(torch.autocast, "__enter__", _enter_autocast)
    for owner in (torch.nn.utils, clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            _watch(owner, name, _clip)
    _watch(clip_grad, "_group_tensors_by_device_and_dtype", _group)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        _watch(owner, "zero_grad", _clear)
    for cls in _subclasses(torch.amp.GradScaler):
        for name, watched in (("scale", _scale), ("unscale_", _unscale), ("step", _step)):
            if name in cls.__dict__:
                _watch(cls, name, watched)
