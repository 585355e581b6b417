"""Gradients of module outputs, seen by hooks that do nothing in steps that are not recorded."""
import fnmatch
import functools

import torch


def _tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = tuple(output.values())
    return [t for part in output for t in _tensors_of(part)] if isinstance(output, (list, tuple)) else []


class Activations:
    """Calls seen(name, gradient) for each output of each module that `wanted` selects: True for the modules without
    children, or patterns of module names ("blocks.*.mlp")."""

    def __init__(self, model, wanted, seen):
        def selected(name, module):
            return not any(module.children()) if wanted is True else any(fnmatch.fnmatchcase(name, p) for p in wanted)

        self._modules = [(n, m) for n, m in model.named_modules() if selected(n, m)] if wanted else []
        self._seen = seen
        self._handles = []
        if wanted and not self._modules:
            raise ValueError(f"activations: {wanted!r} names none of the model's modules")

    def arm(self, armed):
        """Whether the next forward passes are watched: hooks make every call of a module slower, so that they are there
        only while they are needed."""
        if armed == bool(self._handles):
            return
        for handle in self._handles:
            handle.remove()
        self._handles = [module.register_forward_hook(functools.partial(self._forward, name or "model"))
                         for name, module in self._modules] if armed else []

    def _forward(self, name, module, args, output):
        if torch.compiler.is_compiling():  # compiled code cannot call back
            return
        for i, tensor in enumerate(_tensors_of(output)):
            if tensor.requires_grad and tensor.is_floating_point():
                tensor.register_hook(functools.partial(self._seen, f"{name}.{i}.out.grad" if i else f"{name}.out.grad"))
