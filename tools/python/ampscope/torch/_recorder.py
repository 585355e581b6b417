"""The recorder: what it knows of a step, and when it takes the gradients."""
import atexit
import contextlib
import math
import pathlib
import time
import warnings

import numpy as np
import torch

from .. import _ampscope
from .._arrays import array_of_torch, as_floats, format_of_dtype
from . import _describe, _taps
from ._activations import Activations
from ._folder import Folder, finite
from ._lint import Lint, user_line


def _dense(gradient):
    """A gradient as an ordinary tensor: this rank's part of a distributed one; of a sparse one all elements."""
    if type(gradient) is torch.Tensor and not gradient.is_sparse:
        return gradient
    gradient = gradient.detach()
    gradient = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return gradient.to_dense() if gradient.is_sparse else gradient


def _raw(tensor):
    """Element type, shape and bytes of a tensor on the host, as files hold them."""
    array, dtype = array_of_torch(tensor)
    return dtype, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _norms(gradients):
    """The 2-norm of all and the largest magnitude, NaN or infinity where an element is; those of a device are left
    there, as tensors of one element, so that it is not waited for."""
    try:  # of ordinary FP32 gradients on the processor, where torch takes three times as long
        return _ampscope.norms([g.numpy() for g in gradients])
    except (RuntimeError, TypeError):
        pass
    parts = [g.detach().coalesce().values() if g.is_sparse else _dense(g) for g in gradients]
    parts = [p for p in parts if p.numel()]
    if not parts:
        return 0.0, 0.0
    wide = torch.float32 if parts[0].device.type == "mps" else torch.float64  # in which squares do not overflow
    norms = [n.to(parts[0].device, wide) for n in torch._foreach_norm(parts, 2, dtype=wide)]
    largest = [n.to(parts[0].device, wide) for n in torch._foreach_norm(parts, math.inf)]
    return torch.stack(norms).norm(), torch.stack(largest).max()


_SECONDS = 1  # that files may be behind: writing each step costs more than all else


class Recorder:
    """What record() gives; close() ends it, as does the end of a `with` block or of the program."""

    def __init__(self, path, model, optimizer, scaler, every, activations, histograms_only, state, name, step, warn):
        if every < 1:
            raise ValueError(f"every: expected at least 1, got {every}")
        self._optimizer = _describe.inner_optimizer(optimizer)
        inner = _describe.inner_model(model)
        self._parameters = _describe.parameters_of(inner, self._optimizer)
        self._tensors_trained = [p for _, p in self._parameters]
        self._every, self._histograms_only, self._with_state = every, histograms_only, state
        self._activations = Activations(inner, activations, self._saw_activation)
        rank, ranks = _describe.rank()
        self._folder = Folder(pathlib.Path(path) / f"rank_{rank}" if ranks > 1 else path, step)
        self._configuration = {
            **_describe.configuration(model, self._parameters, self._optimizer, scaler, name),
            "recording": {"every": every, "activations": bool(activations), "histograms_only": histograms_only}}
        if ranks > 1:
            self._configuration["ranks"] = {
                "rank": rank, "of": ranks, "weights": "all-reduced" if _describe.is_replicated(model) else "own"}
        self._lint, self._name = Lint(warn), name
        self._where = user_line()
        self._step = self._first_step = step
        self._autocast = None  # dtype, once seen, and where
        self._skipped, self._scale = 0, 1.0
        self._pending = []  # lines of metrics.jsonl that are not written, and numbers of them that may be on a device
        self._written = time.monotonic()
        self._closed = False
        self._begin_step()
        self._folder.write("run.json", self._configuration)
        self._activations.arm(self._recorded())
        self._hooks = [self._optimizer.register_step_pre_hook(self._before_step),
                       self._optimizer.register_step_post_hook(self._after_step)]
        _describe.check_formats(self._parameters, self._optimizer, scaler, self._lint)
        _taps.add(self)
        atexit.register(self.close)

    # What users call.

    def take(self, loss_scale=None):
        """Takes the gradients of this step as they are now. Loops of torch need no such call; one that scales its loss
        by hand, or changes gradients by code of its own before the optimizer's step, calls it after backward and says
        which loss scale they contain."""
        if self._taken or not self._backwards:
            return
        self._taken = True
        if loss_scale is not None:
            self._contained = float(loss_scale)
            for entry in self._histograms.values():  # activations', which were seen in backward
                entry[3] = self._contained
        with torch.no_grad():
            self._measured = _norms([p.grad for p in self._tensors_trained if p.grad is not None])
        if self._recorded():
            for name, parameter in self._parameters:
                if parameter.grad is not None:
                    self._count(name + ".grad", "weight", _dense(parameter.grad))
            self._safely(self._write_recorded)
            if self._with_state and not self._closed:
                self._safely(self._write_state)

    def close(self, stopped=""):
        """Ends the recording; what was recorded is complete. Calls after the first do nothing."""
        if self._closed:
            return
        self._detach()
        self._flush()
        self._folder.write("run.json", self._configuration)
        self._folder.write("result.json", {"steps": self._step - self._first_step, "skipped": self._skipped,
                                           "scale": self._scale, "stopped": stopped, "warnings": self._lint.lines})
        self._folder.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close(f"step {self._step}: {kind.__name__}: {error}" if kind else "")

    def _detach(self):
        self._closed = True
        atexit.unregister(self.close)
        _taps.remove(self)
        self._activations.arm(False)
        for hook in self._hooks:
            hook.remove()

    def _safely(self, write):
        """A full disk ends the recording, not the training."""
        try:
            write()
        except OSError as error:
            warnings.warn(f"{self._folder.path}: {error}; recording ends with step {self._step}, training goes on",
                          RuntimeWarning, stacklevel=2)
            self._detach()
            with contextlib.suppress(OSError):  # what else there is may still find room
                self._flush()
            self._folder.close()

    # What the taps tell, in the order of a step.

    def saw_autocast(self, dtype):
        if self._autocast is None:
            self._autocast = str(dtype).removeprefix("torch."), user_line()

    def saw_scale(self, scaler, loss):
        if self._configuration["loss_scaler"]["name"] == "none":  # it was not given
            self._configuration["loss_scaler"] = _describe.scaler_facts(scaler)
        if loss.dtype == torch.float16 and scaler.get_scale() >= 65520:
            self._lint(f"a loss in FP16 times a loss scale of {scaler.get_scale():g} is infinity, and so is the "
                       "gradient "
                       "that backward begins with: FP16 ends at 65504. Compute the loss in FP32.")
        if self._autocast and self._autocast[0] == "bfloat16":
            self._lint("a loss scaler with BF16 changes nothing but the time: BF16 has the exponents of FP32. "
                       "Is enabled= inverted?")
        elif self._autocast is None and all(p.dtype == torch.float32 for _, p in self._parameters):
            self._lint("a loss scaler in training that is in FP32 throughout changes nothing: no autocast was entered.")

    def before_backward(self, roots):
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            self._lint("backward under autocast: matrix products of backward, and casts to FP32, are then chosen "
                       "again by "
                       "autocast's lists. End the autocast region before loss.backward().")
        found = [_taps.scale_in(root) for root in roots]
        self._root = found[0][0], sum(loss for _, loss in found if loss.numel() == 1)
        self._marks = self._mark()
        if self._backwards and not self._marks:  # gradients were cleared: begin anew
            self._begin_gradients()
        self._in_backward = self._root[0]

    def after_backward(self):
        marks = self._mark()
        if marks == self._marks:
            return  # of another network
        scale, loss = self._root
        self._loss = self._loss + loss if self._backwards else loss
        self._backwards += 1
        self._contained = scale
        self._marks = marks

    def before_clip(self, parameters):
        ours = {id(p) for p in self._tensors_trained}
        if self._taken or not self._backwards or not any(id(p) in ours for p in parameters):
            return
        if self._contained != 1:
            self._lint(f"clipping before unscale_: gradients still contain the loss scale {self._contained:g}, and are "
                       "clipped as if they were as much larger. Call scaler.unscale_(optimizer) first.")
        self.take()

    def before_unscale(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer or not self._backwards:
            return
        if self._unscaled:
            self._lint("unscale_ twice since the last update(): torch raises RuntimeError.")
        self._unscaled = True
        self._take_before(scaler)

    def before_scaler_step(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer:
            return
        self._in_scaler = True
        if not self._unscaled:
            self._take_before(scaler)

    def after_scaler_step(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer:
            return
        self._in_scaler = False
        found = scaler._found_inf_per_device(optimizer)
        self._end_step(found_inf=any(bool(f) for f in found.values()), scaled=True)

    def scaler_step_failed(self, optimizer):
        self._in_scaler = False

    # Hooks of the optimizer and of activations.

    def _before_step(self, optimizer, args, kwargs):
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if self._in_scaler or closure is not None:
            return  # a closure runs backward within the step
        if self._backwards and not self._unscaled and self._contained != 1 and self._mark() == self._marks:
            self._lint(f"optimizer.step() with gradients that still contain the loss scale {self._contained:g}. Call "
                       "scaler.step(optimizer).")
        self._note_changes()
        self.take()

    def _after_step(self, optimizer, args, kwargs):
        if self._in_scaler:
            return
        self.take()
        self._end_step(found_inf=None, scaled=False)

    def _saw_activation(self, name, gradient):
        if self._recorded() and not self._taken:
            self._count(name, "activation", _dense(gradient))

    # A step.

    def _recorded(self):
        return self._step % self._every == 0

    def _begin_step(self):
        self._taken = self._unscaled = self._in_scaler = self._changed = False
        self._begin_gradients()
        self._marks = []
        self._measured = 0.0, 0.0

    def _begin_gradients(self):
        self._backwards, self._loss, self._contained, self._in_backward = 0, math.nan, 1.0, 1.0
        self._histograms, self._tensors, self._largest_activation = {}, {}, 0.0

    def _mark(self):
        """Of each gradient which object it is, and how often it was written; nothing where there is none at all."""
        gradients = [p.grad for p in self._tensors_trained]
        written = [g._version for g in gradients if g is not None]
        return [*map(id, gradients), *written] if written else []

    def _note_changes(self):
        if not self._taken and self._backwards and self._mark() != self._marks:
            self._changed = True
            if self._contained != 1:
                self._lint(f"gradients were changed before unscale_ while they contained the loss scale "
                           f"{self._contained:g}: clip, and whatever depends on their size, after scaler.unscale_.")

    def _take_before(self, scaler):
        """Before the scaler divides by its scale."""
        if self._backwards and self._contained == 1 and scaler.get_scale() != 1:
            self._lint(f"gradients are divided by the loss scale {scaler.get_scale():g}, but backward did not begin at "
                       "scaler.scale(loss).")
        self._note_changes()
        self.take()

    def _count(self, name, kind, gradient):
        gradient = gradient.detach().cpu()
        if kind == "activation":
            gradient = gradient.clone()  # what follows in backward may be written into the same memory
        scale = self._in_backward if kind == "activation" else self._contained
        format = format_of_dtype(str(gradient.dtype).removeprefix("torch."))
        entry = self._histograms.setdefault(name, [_ampscope.Histogram(), kind, format, scale, 0])
        histogram, largest = _ampscope.measure(as_floats(gradient))
        entry[0] += histogram
        entry[-1] += 1
        if kind == "activation":
            self._largest_activation = max(self._largest_activation, largest)
        if not self._histograms_only:
            key = name if entry[-1] == 1 else f"{name.removesuffix('.out.grad')}@{entry[-1]}.out.grad"
            self._tensors[key] = _raw(gradient)

    def _write_recorded(self):
        if self._configuration["recording"]["activations"] and not any(
                kind == "activation" for _, kind, *_ in self._histograms.values()):
            self._lint("activations=: no gradient of a module's output came by. Compiled modules hide them; those of "
                       "weights "
                       "are recorded.", self._where)
        for name, (histogram, kind, format, scale, _) in self._histograms.items():
            self._folder.append_histogram(histogram, step=self._step, tensor=name, kind=kind, loss_scale=scale,
                                          format=format)
        if self._tensors:
            kinds = {name: "activation" if name.endswith(".out.grad") else "weight" for name in self._tensors}
            self._folder.write_gradients(self._step, self._tensors, kinds, self._contained)

    def _write_state(self):
        """Weights, and what Adam knows of them, before the step: zeros before the first."""
        tensors = {}
        for name, parameter in self._parameters:
            kept = self._optimizer.state.get(parameter, {})
            for suffix, key in (("", None), (".m", "exp_avg"), (".v", "exp_avg_sq")):
                value = parameter if key is None else kept.get(key, torch.zeros_like(parameter))
                tensors[name + suffix] = _raw(_dense(value.detach()).cpu())
        self._folder.write_state(self._step, tensors)

    def _end_step(self, found_inf, scaled):
        """found_inf: as the scaler says; None without one, where the gradients tell."""
        if self._step == self._first_step:
            cast_to = self._autocast and self._autocast[0]
            self._configuration["precision"] = _describe.precision(self._parameters, cast_to, self._name)
            self._folder.write("run.json", self._configuration)
            if self._autocast and self._autocast[0] == "float16" and not scaled and self._contained == 1:
                self._lint("autocast to FP16 without a loss scaler: gradients below 2^-24 become zero. Is enabled= of "
                           "GradScaler inverted?", self._autocast[1])
        line = {"step": self._step, "loss": None, "scale": self._contained, "found_inf": found_inf,
                "skipped": bool(found_inf) and scaled, "grad_norm": None,
                "lr": float(self._optimizer.param_groups[0]["lr"]), "amax": {}}
        if self._recorded() and self._largest_activation:
            line["amax"]["activation"] = self._largest_activation / self._contained
        if self._backwards > 1:
            line["micro_batches"] = self._backwards
        if self._changed:
            line["changed_after_backward"] = True
        self._pending.append((line, *self._measured, self._loss if self._backwards else None))
        self._skipped += line["skipped"]
        self._scale = self._contained
        if self._recorded() or time.monotonic() - self._written > _SECONDS:
            self._safely(self._flush)
        self._step += 1
        self._begin_step()
        self._activations.arm(self._recorded() and not self._closed)

    def _flush(self):
        """Writes lines whose numbers were left on their device, which is waited for here."""
        for line, norm, largest, loss in self._pending:
            norm, largest = float(norm), float(largest)
            line["grad_norm"] = finite(norm / line["scale"])
            if loss is not None:
                loss = float(loss)
                line["loss"] = finite(loss)
                if not math.isfinite(loss):
                    line["loss_class"] = "nan" if math.isnan(loss) else "inf"
            if line["found_inf"] is None:
                line["found_inf"] = not math.isfinite(largest)
            if math.isfinite(largest):
                line["amax"]["weight"] = largest / line["scale"]
            self._folder.append_metrics(line)
        self._pending.clear()
        self._written = time.monotonic()
