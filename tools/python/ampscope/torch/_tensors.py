"""Tensors as the recorder keeps them: on the host, with their exact histograms."""
import math
import shutil

import numpy as np
import torch

from .. import _ampscope
from .._arrays import array_of_torch, as_floats, format_of_dtype
from ._folder import ACTIVATION, ACTIVATION_GRADIENT, GRADIENTS, STATE, WEIGHT, WEIGHT_GRADIENT


def dense(gradient):
    """A gradient as an ordinary tensor: this rank's part of a distributed one; of a sparse one all elements; of a
    complex one real and imaginary parts."""
    if type(gradient) is torch.Tensor and not gradient.is_sparse and not gradient.is_complex():
        return gradient
    gradient = gradient.detach()
    gradient = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return _real(gradient.to_dense() if gradient.is_sparse else gradient)


def _real(tensor):
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def raw(tensor):
    """Element type, shape and bytes of a tensor on the host, as files hold them."""
    array, dtype = array_of_torch(tensor)
    return dtype, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def norms(gradients):
    """The 2-norm of all and the largest magnitude, NaN or infinity where an element is; those of a device are left
    there, as tensors of one element, so that it is not waited for."""
    try:  # of ordinary FP32 gradients on the processor, where torch takes three times as long
        return _ampscope.norms([g.numpy() for g in gradients])
    except (RuntimeError, TypeError):
        pass
    two, largest = each_norm(gradients), each_norm(gradients, math.inf)
    return (two.norm(), largest.max()) if two.numel() else (0.0, 0.0)


def each_norm(gradients, order=2):
    """The norm of each gradient that has elements, as one tensor, on the device of the first."""
    parts = [_real(g.detach().coalesce().values()) if g.is_sparse else dense(g) for g in gradients]
    parts = [p for p in parts if p.numel()]
    if not parts:
        return torch.zeros(0)
    wide = torch.float32 if parts[0].device.type == "mps" else torch.float64  # in which squares do not overflow
    found = torch._foreach_norm(parts, order, dtype=wide) if order == 2 else torch._foreach_norm(parts, order)
    return torch.stack([n.to(parts[0].device, wide) for n in found])


def state_of(parameters, optimizer, shards):
    """Weights, and what Adam knows of them as NAME.m and NAME.v: zeros before its first step. Gives the tensors and
    their kinds by name. shards: what notes where they are."""
    tensors, kinds = {}, {}
    for name, parameter in parameters:
        kept = optimizer.state.get(parameter, {})
        for suffix, key in (("", None), (".m", "exp_avg"), (".v", "exp_avg_sq")):
            value = parameter if key is None else kept.get(key, torch.zeros_like(parameter))
            shards.note(value, name, suffix)
            tensors[name + suffix] = raw(dense(value.detach()).cpu())
            kinds[name + suffix] = STATE if key else WEIGHT
    return tensors, kinds


def _size(size):
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


class Seen:
    """A tensor as it is at this moment: its histogram, which is exact, its largest magnitude, the format that it
    exists in, and with `keep` a copy: what follows in training may be written into the same memory."""

    def __init__(self, tensor, keep):
        with torch.no_grad():
            held = dense(tensor).detach().to("cpu", copy=keep)
        self.histogram, self.largest = _ampscope.measure(as_floats(held))
        self.format = format_of_dtype(str(held.dtype).removeprefix("torch."))
        self.raw = raw(held) if keep else None


class _Sum:
    """Tensors of one name and kind in one step: those of all calls of a module, of all micro-batches."""

    def __init__(self, format, scale):
        self.format, self.scale = format, scale  # scale: the loss scale that they contain
        self.histogram, self.largest, self.count = _ampscope.Histogram(), 0.0, 0

    def add(self, seen):
        self.histogram += seen.histogram
        self.largest = max(self.largest, seen.largest) if math.isfinite(seen.largest) else math.inf
        self.count += 1


class Records:
    """What is recorded of one step. Activations and their gradients pass by while backward runs, which may turn out to
    be another network's, or to fail: they wait until keep_passing()."""

    def __init__(self, keep):
        self._keeps = keep  # tensors, too
        self._passing = []  # (name, output or None, gradient or None), both as Seen
        self._counted = set()  # outputs, of which several backward passes may come by
        self._sums = {}  # (name, kind) -> _Sum
        self._tensors = {}  # name in the file -> (kind, raw tensor)

    def passing(self, name, output, gradient):
        self._passing.append((name, output, gradient))

    def drop_passing(self):
        self._passing.clear()

    def keep_passing(self, scale):
        for name, output, gradient in self._passing:
            if output is not None and output not in self._counted:
                self._counted.add(output)
                self._keep(name, ".out", ACTIVATION, output, 1.0)
            if gradient is not None:
                self._keep(name, ".out.grad", ACTIVATION_GRADIENT, gradient, scale)
        self._passing.clear()

    def keep_gradients(self, named, scale):
        """Of all weights, as they are now; those taken before are forgotten."""
        self._sums = {key: kept for key, kept in self._sums.items() if key[1] != WEIGHT_GRADIENT}
        self._tensors = {name: kept for name, kept in self._tensors.items() if kept[0] != WEIGHT_GRADIENT}
        for name, gradient in named:
            self._keep(name, ".grad", WEIGHT_GRADIENT, Seen(gradient, self._keeps), scale)

    def keep_weights(self, weights):
        for name, seen in weights:
            self._keep(name, "", WEIGHT, seen, 1.0)

    def rescale(self, scale):
        """The loss scale that all gradients contain, as the user says."""
        for (_, kind), kept in self._sums.items():
            if kind in GRADIENTS:
                kept.scale = scale

    def _keep(self, name, suffix, kind, seen, scale):
        kept = self._sums.setdefault((name + suffix, kind), _Sum(seen.format, scale))
        kept.add(seen)
        if seen.raw:
            repeated = f"@{kept.count}" if kept.count > 1 else ""
            self._tensors[name + repeated + suffix] = kind, seen.raw

    def cost_text(self, every, folder):
        """What it takes to keep these tensors of every `every`-th step in a folder."""
        sizes = [(data.nbytes, kind) for kind, (_, _, data) in self._tensors.values()]
        step = sum(size for size, _ in sizes)
        of_activations = sum(size for size, kind in sizes if kind in (ACTIVATION, ACTIVATION_GRADIENT))
        room = shutil.disk_usage(folder).free // max(step, 1)
        return (f"each recorded step, one of {every}, takes {_size(step)}, {_size(of_activations)} of it for "
                f"activations; {folder} has room for {room} of them. "
                'store="histograms" takes kilobytes a step')

    def has_activations(self):
        return any(kind in (ACTIVATION, ACTIVATION_GRADIENT) for _, kind in self._sums)

    def largest_gradient(self):
        """The largest magnitude of activations' gradients, without the loss scale; infinity where an element is not
        finite, None where there are none."""
        return max((kept.largest / kept.scale for (_, kind), kept in self._sums.items() if kind == ACTIVATION_GRADIENT),
                   default=None)

    def __bool__(self):
        return bool(self._sums)

    def write(self, folder, step, scale):
        for (name, kind), kept in self._sums.items():
            folder.append_histogram(kept.histogram, step=step, tensor=name, kind=kind, loss_scale=kept.scale,
                                    format=kept.format)
        if self._tensors:
            folder.write_gradients(step, {name: tensor for name, (_, tensor) in self._tensors.items()},
                                   {name: kind for name, (kind, _) in self._tensors.items()}, scale)
