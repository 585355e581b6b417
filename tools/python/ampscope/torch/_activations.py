"""Outputs of modules, seen by hooks that are there only in steps that are recorded."""
import collections.abc
import contextlib
import dataclasses
import fnmatch
import weakref

import torch

from ._parallel import plain_name


def _tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, collections.abc.Mapping):
        output = tuple(output.values())
    elif dataclasses.is_dataclass(output):
        output = tuple(getattr(output, field.name) for field in dataclasses.fields(output))
    return [t for part in output for t in _tensors_of(part)] if isinstance(output, (list, tuple)) else []


def _has_gradient(tensor):
    """Also of leaves, but theirs are weights' or inputs', whose hooks would stay."""
    return tensor.requires_grad and not tensor.is_leaf and (tensor.is_floating_point() or tensor.is_complex())


class _Hook:
    """Of one module: calls seen(name, tensor) for each of its outputs that will have a gradient."""

    def __init__(self, name, seen):
        self._name, self._seen = name, seen

    def __call__(self, module, args, output):
        if torch.compiler.is_compiling():  # compiled code cannot call back
            return
        for i, tensor in enumerate(_tensors_of(output)):
            if _has_gradient(tensor):
                self._seen(f"{self._name}.{i}" if i else self._name, tensor)

    def __reduce__(self):
        """With a module that is copied or saved goes what does nothing, and is to be had everywhere."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class Activations:
    """Calls seen(name, tensor) in forward passes, for each output of each module that `wanted` selects: True for the
    modules without children, or patterns of module names ("blocks.*.mlp")."""

    def __init__(self, model, wanted, seen):
        patterns = [wanted] if isinstance(wanted, str) else wanted

        def selected(name, module):
            return not any(module.children()) if wanted is True else any(fnmatch.fnmatchcase(name, p) for p in patterns)

        weights = {plain_name(name) for name, _ in model.named_parameters()}
        found = {}  # by name: of a wrapper and the module in it the wrapper
        for name, module in model.named_modules() if wanted else ():
            if selected(plain_name(name), module):
                found.setdefault(plain_name(name) or "model", module)
        self._hooks = [(module, _Hook(name + ".output" if name + ".out" in weights else name, seen))
                       for name, module in found.items()]
        self._handles = []
        if wanted and not self._hooks:
            raise ValueError(f"activations: {wanted!r} names none of the model's modules")

    def arm(self, armed):
        """Whether the next forward passes are watched: hooks make every call of a module slower, so that they are there
        only while they are needed."""
        if armed == bool(self._handles):
            return
        for handle in self._handles:
            handle.remove()
        self._handles = [module.register_forward_hook(hook) for module, hook in self._hooks] if armed else []


class Watched:
    """Outputs whose gradients are waited for: calls seen(name, output, gradient) with what add() was told."""

    def __init__(self, seen):
        self._seen = seen
        self._hooks = weakref.WeakSet()

    def add(self, tensor, name, output):
        hook = _GradientHook(self._seen, name, output)
        self._hooks.add(hook)
        tensor.register_hook(hook)

    def forget(self):
        """Of all. A script may keep a graph, by its last loss say, and torch never frees one that is there when Python
        ends, nor what its hooks hold."""
        for hook in self._hooks:
            hook.forget()


class _GradientHook:
    def __init__(self, seen, *known):
        self._seen, self._known = seen, known

    def __call__(self, gradient):
        if self._seen is not None:
            self._seen(*self._known, gradient)

    def forget(self):
        self._seen = self._known = None
