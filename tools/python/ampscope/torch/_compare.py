"""Measures one step of a model in several precisions beside FP32's, and what each of its modules adds to the error."""
import contextlib
import html
import json
import math
import os
import warnings

import torch
from torch.utils._pytree import tree_map

from .. import __version__, _ampscope
from .._tools import _ROWS
from . import _emulate
from ._parallel import class_name
from ._step import Error, Reference, Seen, State, add_gradients

_OWN = ("own_output", "own_input_gradient", "own_weight_gradient")
_MOST_STEPS = 40  # in one precision: from the largest loss scale down to the smallest


class Comparison:
    """What compare() measured: prints as the tables that amp-report shows; notebooks show its page with pictures."""

    def __init__(self, text):
        self.findings = _ampscope.StepComparison(text)  # all numbers, as objects

    def rows(self):
        """A Table with a row for each precision and module, in the order of the model."""
        answer = json.loads(self.findings.json())
        return _ROWS[answer["tool"]](answer)

    def frame(self):
        """rows() as a pandas.DataFrame."""
        return self.rows().frame()

    def keep(self, precision):
        """The names of the modules that stand out in that precision: those to keep in a higher one."""
        for step in self.findings.precisions:
            if step.precision == precision:
                return self.findings.standing_out(step)
        raise ValueError(f"keep: {precision!r} was not compared")

    def save(self, path):
        """Writes a file that amp-report reads. Raises OSError."""
        self.findings.save(os.fsencode(path))

    def html(self):
        """The page that amp-report --html writes."""
        return self.findings.html()

    def svg(self):
        """The pictures of that page."""
        return self.findings.svg()

    def __str__(self):
        return self.findings.text()

    __repr__ = __str__

    def _repr_html_(self):
        page = html.escape(self.html())
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


class Measurement:
    """One call of compare()."""

    def __init__(self, model, batch, loss_fn, precisions, options):
        self._model, self._batch, self._loss_fn, self._options = model, batch, loss_fn, options
        self._precisions = _checked(precisions)
        _check(model, loss_fn)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("compare: the model has no parameters, whose gradients could be compared")
        self._state = State(model)
        try:
            for precision in self._precisions:
                with _emulated(model, precision, options):  # raises before any work if that is not possible
                    pass
        finally:
            self._state.end()
        self._warnings = []

    def run(self):
        try:
            with torch.enable_grad():
                self._in_fp32()
                steps = [self._in_precision(precision) for precision in self._precisions]
                document = self._document(steps)
                self._keep_apart(document)
        finally:
            self._state.end()
        return Comparison(json.dumps(document))

    def _step(self, scale=1.0, watching=contextlib.nullcontext):
        """The loss of a step, whose gradients are `scale` times as large."""
        self._state.begin()
        with watching():
            loss = self._loss_fn(self._model, self._batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TypeError("compare: loss_fn(model, batch) has to give the loss as a tensor of one number, not "
                            f"{what}")
        if not loss.requires_grad:
            raise ValueError("compare: the loss of loss_fn(model, batch) depends on no weight of the model")
        (loss.reshape(()) if scale == 1 else loss.reshape(()) * scale).backward()
        return float(loss.detach())

    def _in_fp32(self):
        self._reference = Reference(self._model)
        with _eagerly():
            self._loss = self._step(watching=self._reference.watching)
            self._gradients = {id(p): p.grad for p in self._parameters if p.grad is not None}
            if not self._gradients:
                raise ValueError("compare: no weight of the model has a gradient")
            self._rows = list(self._reference.rows.values())
            if not self._rows:
                raise ValueError("compare: loss_fn(model, batch) calls no module of the model")
            for row in self._rows:
                self._try(row, row.run_alone)
        if not all(g.isfinite().all() for g in self._gradients.values()):
            self._warn("FP32's own gradient is infinite or NaN in places: these are left out of all errors")

    def _try(self, row, measure):
        """What it gives; None if that fails, which a module called alone may, with a warning."""
        try:
            return measure()
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._warn(f"{row.name or 'the model'}: its own errors are not known: {reason}")
            return None

    def _warn(self, text):
        if text not in self._warnings:
            self._warnings.append(text)

    def _in_precision(self, precision):
        asked = _ampscope.AskedPrecision(precision)
        scale, used = asked.loss_scale, None
        with self._in(precision) as emulation:
            for steps in range(1, _MOST_STEPS + 1):
                emulation.casts = {}
                seen = Seen(self._reference, scale)
                loss = self._step(scale, seen.watching)
                scales = [s for state in emulation.states.values() for s in state.scales()]
                if scale > 1 and math.isfinite(loss) and self._overflows():
                    scale /= 2  # as a loss scaler does
                elif not asked.is_delayed or _is_settled(scales, used):
                    break
                used = scales
            casts, emulation.casts = emulation.casts, None
            measured = {"precision": precision, "loss": loss if math.isfinite(loss) else None,
                        "loss_scale": scale, "steps": steps, "gradient": self._gradient_error(scale), "kept": None,
                        "modules": self._in_step(seen, casts, scale)}
            self._state.begin()
            for row, errors in zip(self._rows, measured["modules"]):
                errors |= self._own_errors(row, emulation, scale)
            for row, errors in zip(self._rows, measured["modules"]):
                errors["effect"] = self._effect(row, errors, emulation, scale)
        return measured

    @contextlib.contextmanager
    def _in(self, precision, unscaled=()):
        """Steps in a precision begin with weights as it keeps them, which are put back in the end."""
        before = self._state
        before.begin()
        try:
            with _emulated(self._model, precision, self._options, unscaled) as emulation:
                self._state = before.now()
                yield emulation
        finally:
            self._state = before
            before.begin()

    def _overflows(self):
        return any(not (p.grad.isfinite() | ~self._gradients[id(p)].isfinite()).all() for p in self._parameters
                   if p.grad is not None and id(p) in self._gradients)

    def _gradient_error(self, scale, parameters=None):
        error = Error()
        for p in self._parameters if parameters is None else parameters:
            if id(p) in self._gradients:
                reference = self._gradients[id(p)]
                error.add(torch.zeros_like(reference) if p.grad is None else p.grad, reference, scale)
        return error.facts()

    def _in_step(self, seen, casts, scale):
        """The errors of each module in the step, with what is inherited, and its casts."""
        modules = []
        for row in self._rows:
            known = row.module not in seen.odd()
            if not known:
                self._warn(f"{row.name or 'the model'}: it is not called in every precision as in FP32: the errors of "
                           "its outputs are not known")
            modules.append({"output": seen.outputs[row.module].facts() if known else None,
                            "output_gradient": seen.gradients[row.module].facts() if known else None,
                            "weight_gradient": self._gradient_error(scale, row.parameters),
                            "casts": seen.casts[row.module]})
        places = {row.name: place for place, row in enumerate(self._rows)}
        for layer, of in casts.items():
            while layer not in places and layer:  # a layer whose weights another module uses
                layer = layer.rpartition(".")[0]
            if layer in places:
                _add_casts(modules[places[layer]]["casts"], of.counts)
        return modules

    def _own_errors(self, row, emulation, scale):
        none = dict.fromkeys(_OWN)
        return (row.alone is not None and self._try(row, lambda: self._alone(row, emulation, scale))) or none

    def _effect(self, row, errors, emulation, scale):
        """The error of the model's gradient in a step with only this module in the precision; None if that is not
        asked for, or if the module adds no error."""
        own = [errors[key] for key in _OWN if errors[key]]
        if not self._options["effects"] or (own and not any(e["relative"] != 0 or e["nonfinite"] for e in own)):
            return None
        emulation.again(row.module)
        with self._only(row, emulation):
            self._step(scale)
        return self._gradient_error(scale)

    def _alone(self, row, emulation, scale):
        """The errors that a module adds by itself: where its inputs and the gradient of its output are FP32's."""
        emulation.again(row.module)
        output, inputs, weights, sums = Error(), Error(), Error(), {}
        with self._only(row, emulation):
            for call in row.calls:
                outputs, input_gradients, gradients = call.again(row.module, row.parameters, scale)
                for out, was in zip(outputs, call.outputs):
                    output.add(out, was)
                for gradient, was in zip(input_gradients, call.input_gradients):
                    if gradient is not None and was is not None:
                        inputs.add(gradient, was, scale)
                add_gradients(sums, row.parameters, gradients, scale)
        for key, was in row.alone.items():
            weights.add(sums.get(key, torch.zeros_like(was)), was)
        return dict(zip(_OWN, (output.facts(), inputs.facts(), weights.facts())))

    @contextlib.contextmanager
    def _only(self, row, emulation):
        """Other modules that compute something compute it in FP32, also where they call this one or it calls them."""
        before = []  # whether autocast was on, by the calls that are under way

        def enter(module, args, kwargs):
            is_it = module is row.module
            before.append(torch.is_autocast_enabled("cpu"))
            torch.set_autocast_enabled("cpu", is_it and emulation.casts_by_autocast)
            return emulation.weights.narrowed((args, kwargs)) if is_it else floats_to(torch.float32, (args, kwargs))

        def leave(module, args, output):
            was = before.pop()
            if emulation.is_under_way:  # else the emulation, whose hooks come first, has put it back
                torch.set_autocast_enabled("cpu", was)
            return floats_to(torch.float32, output) if module is row.module and not was else None

        def floats_to(dtype, tensors):
            return tree_map(lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t,
                            tensors)

        with contextlib.ExitStack() as undo:
            for module in self._reference.rows:
                undo.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                undo.callback(module.register_forward_hook(leave, always_call=True).remove)
            yield

    def _document(self, steps):
        modules = [{"name": row.name, "type": type(row.module).__name__, "calls": len(row.calls),
                    "parameters": sum(p.numel() for p in row.parameters)} for row in self._rows]
        return {"tool": "ampscope.torch.compare", "schema_version": 1, "version": __version__,
                "model": class_name(self._model), "loss": self._loss if math.isfinite(self._loss) else None,
                "modules": modules, "precisions": steps, "warnings": self._warnings}

    def _keep_apart(self, document):
        """Adds to each precision with scales the step with those modules unscaled that stand out."""
        findings = _ampscope.StepComparison(json.dumps(document))
        for judged, step in zip(findings.precisions, document["precisions"]):
            names = findings.standing_out(judged)
            if names and all(names) and _ampscope.AskedPrecision(step["precision"]).has_recipe:
                with self._in(step["precision"], names):
                    for _ in range(step["steps"]):
                        self._step(step["loss_scale"])
                    step["kept"] = {"modules": names, "gradient": self._gradient_error(step["loss_scale"])}


@contextlib.contextmanager
def _emulated(model, precision, options, unscaled=()):
    """The emulation of a model, in which these layers, besides those that the user names, are not cast with scales."""
    stepless = torch.optim.SGD(model.parameters(), 0.0)  # for precisions that keep weights in another format
    layers = dict(options["layers"] or {})
    for name in unscaled:
        layers[name] = f"{layers[name]},scaling=none" if name in layers else "scaling=none"
    with _emulate.Machine(model, precision, stepless, options["seed"], options["skip"], layers, False,
                          options["threads"], False) as machine:
        yield machine._emulation


@contextlib.contextmanager
def _eagerly():
    with contextlib.ExitStack() as undo:
        undo.enter_context(torch.compiler.set_stance("force_eager"))
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "User provided device_type of 'cuda', but CUDA")  # FP32 wants no autocast
        yield


def _is_settled(scales, before):
    """Whether no scale moved by more than a factor of two."""
    return (before is not None and len(scales) == len(before)
            and all(b / 2 <= s <= b * 2 for s, b in zip(scales, before)))


def _add_casts(casts, counts):
    for what, n in counts.items():
        before = casts.get(what)
        casts[what] = n if before is None else {key: n[key] + before[key] for key in n}


def _checked(precisions):
    """The precisions as a list of texts."""
    texts = [precisions] if isinstance(precisions, str) else list(precisions)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("compare: precisions: expected one or more names, as ['amp-bf16', 'fp8-current']")
    twice = [text for i, text in enumerate(texts) if text in texts[:i]]
    if twice:
        raise ValueError(f"compare: precisions: {twice[0]!r} occurs twice")
    for text in texts:
        _ampscope.AskedPrecision(text)
    return texts


def _check(model, loss_fn):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"compare: model: expected a torch.nn.Module, got {type(model).__name__}")
    if not callable(loss_fn):
        raise TypeError(f"compare: loss_fn: expected a function of model and batch, got {type(loss_fn).__name__}")
    if _emulate._machines:
        raise RuntimeError("compare: a model is emulated already: close() that first")
    if torch.is_autocast_enabled("cpu"):
        raise RuntimeError("compare: it is called within autocast, and FP32 is what it compares with")
    other = {str(p.dtype).removeprefix("torch.") for p in model.parameters()} - {"float32"}
    if other:
        raise ValueError(f"compare: the model has weights in {', '.join(sorted(other))}, and FP32 is what it compares "
                         "with: model.float()")
