"""Gradients as the recorder keeps them: on the host, with their exact histograms."""
import math

import numpy as np
import torch

from .. import _ampscope
from .._arrays import array_of_torch, as_floats, format_of_dtype


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
    parts = [_real(g.detach().coalesce().values()) if g.is_sparse else dense(g) for g in gradients]
    parts = [p for p in parts if p.numel()]
    if not parts:
        return 0.0, 0.0
    wide = torch.float32 if parts[0].device.type == "mps" else torch.float64  # in which squares do not overflow
    two = [n.to(parts[0].device, wide) for n in torch._foreach_norm(parts, 2, dtype=wide)]
    largest = [n.to(parts[0].device, wide) for n in torch._foreach_norm(parts, math.inf)]
    return torch.stack(two).norm(), torch.stack(largest).max()


def state_of(parameters, optimizer):
    """Weights, and what Adam knows of them as NAME.m and NAME.v: zeros before its first step."""
    tensors = {}
    for name, parameter in parameters:
        kept = optimizer.state.get(parameter, {})
        for suffix, key in (("", None), (".m", "exp_avg"), (".v", "exp_avg_sq")):
            value = parameter if key is None else kept.get(key, torch.zeros_like(parameter))
            tensors[name + suffix] = raw(dense(value.detach()).cpu())
    return tensors


class Gradients:
    """What is recorded of one step. Gradients of activations pass by while backward runs, which may turn out to be
    another network's, or to fail: they wait until keep_passing()."""

    def __init__(self, histograms_only):
        self._histograms_only = histograms_only
        self._passing = []  # (name, tensor on the host) of activations
        self._seen = {}  # (name, kind) -> [histogram, format, loss scale, largest magnitude, how often]
        self._tensors = {}  # name in the file -> (kind, raw tensor)

    def passing(self, name, gradient):
        # A copy: what follows in backward may be written into the same memory.
        self._passing.append((name, dense(gradient).detach().to("cpu", copy=True)))

    def drop_passing(self):
        self._passing.clear()

    def keep_passing(self, scale):
        for name, gradient in self._passing:
            self._keep(name, "activation", gradient, scale)
        self._passing.clear()

    def keep_weights(self, named, scale):
        """Of all weights, as they are now; those taken before are forgotten."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[1] == "activation"}
        self._tensors = {name: kept for name, kept in self._tensors.items() if kept[0] == "activation"}
        for name, gradient in named:
            self._keep(name, "weight", dense(gradient).detach().to("cpu", copy=not self._histograms_only), scale)

    def rescale(self, scale):
        """The loss scale that all of them contain, as the user says."""
        for seen in self._seen.values():
            seen[2] = scale

    def _keep(self, name, kind, gradient, scale):
        format = format_of_dtype(str(gradient.dtype).removeprefix("torch."))
        seen = self._seen.setdefault((name, kind), [_ampscope.Histogram(), format, scale, 0.0, 0])
        histogram, largest = _ampscope.measure(as_floats(gradient))
        seen[0] += histogram
        seen[3] = max(seen[3], largest) if math.isfinite(largest) else math.inf
        seen[-1] += 1
        if not self._histograms_only:
            key = name if seen[-1] == 1 else f"{name.removesuffix('.out.grad')}@{seen[-1]}.out.grad"
            self._tensors[key] = kind, raw(gradient)

    def has_activations(self):
        return any(kind == "activation" for _, kind in self._seen)

    def largest_activation(self):
        """The largest magnitude, without the loss scale; infinity where an element is not finite."""
        return max((largest / scale for (_, kind), (_, _, scale, largest, _) in self._seen.items()
                    if kind == "activation"), default=0.0)

    def __bool__(self):
        return bool(self._seen)

    def write(self, folder, step, scale):
        for (name, kind), (histogram, format, contained, *_) in self._seen.items():
            folder.append_histogram(histogram, step=step, tensor=name, kind=kind, loss_scale=contained, format=format)
        if self._tensors:
            folder.write_gradients(step, {name: tensor for name, (_, tensor) in self._tensors.items()},
                                   {name: kind for name, (kind, _) in self._tensors.items()}, scale)
