"""The recorder: what it knows of a step, and when it takes the gradients."""
import atexit
import contextlib
import math
import sys
import warnings

import torch

from . import _describe, _parallel, _taps
from ._activations import Activations, Watched
from ._changes import Changes
from ._folder import ACTIVATION_GRADIENT, LAYOUT, open_folder
from ._lint import Lint, user_line
from ._metrics import Metrics
from ._taps import hook, listens
from ._tensors import Records, Seen, state_of


class Recorder:
    """What record() gives; close() ends it, as does the end of a `with` block or of the program."""

    def __init__(self, path, model, optimizer, scaler, every, activations, what, weights, store, state, name, step,
                 overwrite, warn):
        _describe.check_options(every, activations, what, store)
        self._where, self._lint, self._name = user_line(), Lint(warn), name
        self._optimizer = _describe.inner_optimizer(optimizer)
        if not self._optimizer.param_groups:
            raise ValueError("optimizer: it has no parameters")
        self._model = _parallel.inner_model(model)
        self._parameters, self._folder = [], None
        self._shards, self._fsdp = _parallel.Shards(), _parallel.fsdp_groups(self._model)
        self._find_parameters()
        self._every, self._with_weights, self._with_state = every, weights, state
        self._keeps, self._takes = store == "tensors", ("gradients", "outputs") if what == "both" else (what,)
        self._configuration = {
            **_describe.configuration(model, self._parameters, self._optimizer, scaler, name),
            "recording": {"every": every, "activations": what if activations else "none", "weights": weights,
                          "store": store}}
        ranks = _parallel.rank_facts(model, self._shards.facts)
        self._configuration |= {"ranks": ranks} if ranks else {}
        self._activations = Activations(self._model, activations, self._saw_output)
        self._outputs = Watched(self._saw_gradient)
        self._step = self._first_step = step
        self._entered = {}  # types that autocast regions cast to, and where they were entered
        self._autocast = None  # the one of this network, once known
        self._cast = _parallel.fsdp_dtype(model)
        self._untold = []  # what may be of formats that types do not tell
        self._skipped, self._scale = 0, 1.0
        self._cost_told = False
        self._changes = Changes(self._lint, not ranks)  # several ranks may average theirs
        self._closed, self._hooks = False, []
        self._begin_step()
        _describe.check_formats(self._parameters, self._optimizer, scaler, self._lint)
        self._folder, said = open_folder(path, f"rank_{ranks['rank']}" if ranks else "", step, overwrite)
        self._talks = warn and ranks.get("rank", 0) == 0
        self._say(said)
        self._metrics = Metrics(self._folder, self._lint)
        _taps.add(self)
        atexit.register(self.close)
        try:
            self._folder.write(LAYOUT.configuration, self._configuration)
            self._activations.arm(self._recorded())
            self._hooks = [self._optimizer.register_step_pre_hook(self._before_step),
                           self._optimizer.register_step_post_hook(self._after_step)]
        except BaseException:
            self._detach()
            self._folder.close()
            raise

    # What users call.

    def take(self, loss_scale=None):
        """Takes the gradients of this step as they are now. Loops of torch need no such call; one that scales its loss
        by hand, or changes gradients by code of its own before the optimizer's step, calls it after backward and says
        which loss scale they contain."""
        named = [(name, p.grad) for name, p in self._parameters if p.grad is not None]
        if self._taken or self._closed or not named:
            return
        self._taken = True
        self._keep_weights()
        if loss_scale is not None:
            self._contained = float(loss_scale)
            self._records.rescale(self._contained)
        with torch.no_grad():
            self._measured = self._shards.norms(named)
            if self._recorded():
                self._records.keep_gradients(named, self._contained)

    def close(self, stopped=""):
        """Ends the recording; what was recorded is complete, with the gradients of a step that was not ended. Calls
        after the first do nothing."""
        if self._closed:
            return
        try:
            if self._taken and self._records:
                self._write_records()
            self._metrics.flush()
            self._folder.write(LAYOUT.configuration, self._configuration)
            self._folder.write(LAYOUT.result, {"steps": self._step - self._first_step, "skipped": self._skipped,
                                              "scale": self._scale, "stopped": stopped, "warnings": self._lint.lines})
        except OSError as error:
            self._give_up(error)
            return
        self._detach()
        self._folder.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close(f"step {self._step}: {kind.__name__}: {error}" if kind else "")

    @property
    def path(self):
        """The folder that is recorded into, as a pathlib.Path: this rank's."""
        return self._folder.path

    @property
    def next_step(self):
        """The number of the step that comes next."""
        return self._step

    def _say(self, text):
        if self._talks and text:
            print(f"ampscope: {text}", file=sys.stderr)

    def _detach(self):
        self._closed = True
        atexit.unregister(self.close)
        _taps.remove(self)
        self._activations.arm(False)
        self._outputs.forget()
        for handle in self._hooks:
            handle.remove()
        self._begin_gradients()  # what is kept of them goes

    def _give_up(self, error):
        """A full disk, or what the recorder does not know: training goes on."""
        what = error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        warnings.warn(f"{self._folder.path}: {what}; recording ends with step {self._step}, training goes on",
                      RuntimeWarning, stacklevel=2)
        self._detach()
        with contextlib.suppress(Exception):  # what else there is may still find room
            self._metrics.flush()
        self._folder.close()

    # What the taps tell, in the order of a step.

    def saw_autocast(self, dtype):
        if self._step == self._first_step:  # later it is known
            self._entered[dtype] = user_line()

    @listens
    def before_backward(self, roots):
        self._find_parameters()
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            self._lint("backward under autocast: matrix products of backward, and casts to FP32, are then chosen again "
                       "by autocast's lists. End the autocast region before loss.backward().")
        self._root = _taps.root_of(roots)
        self._began_at = user_line()
        tells = self._step == self._first_step and isinstance(roots[0], torch.Tensor)
        self._types = _taps.types_behind(roots[0]) if tells else None
        self._untold = _taps.formats_untold(roots[0]) if tells else []
        if not self._changes.begin_backward(self._gradients()) and self._backwards:
            self._begin_gradients()
        self._in_backward = True

    @listens
    def backward_failed(self):
        self._in_backward = False
        self._records.drop_passing()

    @listens
    def after_backward(self):
        self._in_backward = False
        if self._changes.are_none(self._gradients()):  # of another network
            self._records.drop_passing()
            return
        scale, loss, scaler, dtype = self._root
        if self._step == self._first_step:
            self._learn(scaler)
        _describe.check_loss(dtype, scale, self._lint)
        if self._unscaled:
            self._lint("backward after unscale_: gradients that contain the loss scale are added to gradients that do "
                       "not. Call unscale_ after the last backward of a step.")
        elif self._backwards and scale != self._contained:
            self._lint(f"gradients that contain the loss scale {scale:g} are added to gradients that contain "
                       f"{self._contained:g}. Within a step it has to stay the same.")
        self._loss = _taps.total([self._loss, loss]) if self._backwards else loss
        self._backwards += 1
        self._records.keep_passing(scale)
        if not self._unscaled:
            self._contained, self._taken = scale, False  # what was taken before is not all
        self._changes.end_backward(self._gradients(), 1.0 if self._unscaled else self._contained)

    @listens
    def after_zero_grad(self, owner):
        of_model = isinstance(owner, torch.nn.Module) and _parallel.inner_model(owner) is self._model
        if (owner is self._optimizer or of_model) and (self._taken or self._backwards):
            self._begin_gradients()

    @listens
    def before_clip(self, gradients):
        ours = {id(p.grad) for p in self._tensors_trained if p.grad is not None}
        if self._taken or not any(id(g) in ours for g in gradients):
            return
        if self._contained != 1:
            self._lint(f"clipping before unscale_: gradients still contain the loss scale {self._contained:g}, and are "
                       "clipped as if they were as much larger. Call scaler.unscale_(optimizer) first.")
        self.take()

    @listens
    def before_unscale(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer:
            return
        if self._unscaled:
            self._lint("unscale_ twice since the last update(): torch raises RuntimeError.")
        self._take_before(scaler)
        self._unscaled = True

    @listens
    def before_scaler_step(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer:
            return
        self._keep_state()
        self._in_scaler = True
        if not self._unscaled:
            self._take_before(scaler)

    @listens
    def after_scaler_step(self, scaler, optimizer):
        if _describe.inner_optimizer(optimizer) is not self._optimizer:
            return
        self._in_scaler = False
        found = scaler._found_inf_per_device(optimizer)
        self._end_step(found_inf=any(bool(f) for f in found.values()), scaled=True)

    def scaler_step_failed(self, optimizer):
        self._in_scaler = False

    # Hooks of the optimizer, of modules and of their outputs.

    @hook
    def _before_step(self, optimizer, args, kwargs):
        if self._in_scaler or _taps.within_itself(optimizer):
            return
        self._keep_state()
        if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None:  # args[0] is the optimizer
            return  # a closure runs backward within the step
        scaled = self._backwards and not self._unscaled and self._contained != 1
        if scaled and self._changes.are_none(self._gradients()):
            self._lint(f"optimizer.step() with gradients that still contain the loss scale {self._contained:g}. Call "
                       "scaler.step(optimizer).")
        self._note_changes()
        self.take()

    @hook
    def _after_step(self, optimizer, args, kwargs):
        if self._in_scaler or _taps.within_itself(optimizer):
            return
        self.take()
        self._end_step(found_inf=None, scaled=False)

    @hook
    def _saw_output(self, name, tensor):
        """In a forward pass. An output is taken now, since what follows may be in place, and counts once its gradient
        comes by: those of passes without backward, and of those that a checkpoint repeats, never do."""
        output = Seen(tensor, self._keeps) if "outputs" in self._takes and self._recorded() else None
        self._outputs.add(tensor, name, output)

    @hook
    def _saw_gradient(self, name, output, gradient):
        if self._in_backward and self._recorded():
            taken = Seen(gradient, self._keeps) if "gradients" in self._takes else None
            self._records.passing(name, output, taken)

    # A step.

    def _recorded(self):
        return self._step % self._every == 0

    def _begin_step(self):
        self._in_scaler = self._state_kept = self._in_backward = False
        self._weights = None
        self._changes.begin_step()
        self._begin_gradients()

    def _begin_gradients(self):
        """Nothing was seen of this step, or what was seen was cleared."""
        self._taken = self._unscaled = False
        self._backwards, self._loss, self._contained = 0, None, 1.0
        self._changes.begin_gradients()
        self._began_at = self._where
        self._measured = {}, []
        self._records = Records(self._keeps)

    def _find_parameters(self):
        """Also those that were added to the optimizer since."""
        if sum(len(group["params"]) for group in self._optimizer.param_groups) != len(self._parameters):
            self._parameters = _describe.parameters_of(self._model, self._optimizer)
            self._tensors_trained = [p for _, p in self._parameters]
            for name, parameter in self._parameters:
                self._shards.note(parameter, name)
            if self._folder is not None:  # groups of later ones
                facts = _describe.optimizer_facts(self._optimizer, self._parameters)
                self._configuration["optimizer"]["groups"] = facts.get("groups", {})
                self._folder.write(LAYOUT.configuration, self._configuration)

    def _learn(self, scaler):
        """From the first backward that was this network's: what autocast casts to, and which scaler there is."""
        stored = {p.dtype for p in self._tensors_trained}
        self._autocast = self._autocast or _describe.autocast_of(self._entered, stored, self._types)
        if scaler is None:
            return
        if self._configuration["loss_scaler"]["name"] == "none":  # it was not given
            self._configuration["loss_scaler"] = _describe.scaler_facts(scaler)
            _describe.check_half(self._parameters, self._lint)
        _describe.check_scaler(stored | {self._autocast, self._cast}, self._types is not None, self._lint)

    def _gradients(self):
        return [p.grad for p in self._tensors_trained if p.grad is not None] + _parallel.undivided(self._fsdp)

    def _note_changes(self):
        """Of the script's, since backward."""
        if self._backwards and not self._taken:
            self._changes.note(self._gradients(), self._contained)

    def _take_before(self, scaler):
        """Before the scaler divides by its scale."""
        if self._backwards and self._contained == 1 and scaler.get_scale() != 1:
            self._lint(f"gradients are divided by the loss scale {scaler.get_scale():g}, but backward did not begin at "
                       "scaler.scale(loss).")
        self._note_changes()
        self.take(None if self._backwards else scaler.get_scale())

    def _write_records(self):
        wanted = self._configuration["recording"]["activations"] != "none" and self._backwards
        if wanted and not self._records.has_activations():
            self._lint("activations=: no gradient of a module's output came by. Compiled modules hide them; those of "
                       "weights are recorded.", self._where)
        self._records.keep_weights(self._weights or [])
        if wanted and self._keeps and not self._cost_told:
            self._cost_told = True
            self._say(self._records.cost_text(self._every, self._folder.path))
        self._records.write(self._folder, self._step, self._contained)

    def _keep_weights(self):
        """Before the step, as forward and backward saw them."""
        if self._with_weights and self._weights is None and self._recorded():
            keep = self._keeps and not self._with_state  # state/ has them already
            self._weights = [(name, Seen(parameter, keep)) for name, parameter in self._parameters]

    def _keep_state(self):
        """Before the step."""
        self._keep_weights()
        if not self._with_state or self._state_kept or not self._recorded():
            return
        self._state_kept = True
        self._folder.write_state(self._step, *state_of(self._parameters, self._optimizer, self._shards))

    def _end_step(self, found_inf, scaled):
        """found_inf: as the scaler says; None without one, where the gradients tell."""
        if self._step == self._first_step:
            self._describe_precision(scaled)
        line = {"step": self._step, "loss": None, "scale": self._contained, "found_inf": found_inf,
                "skipped": bool(found_inf) and scaled, "grad_norm": None,
                **_describe.step_settings(self._optimizer, self._configuration["optimizer"]), "amax": {}}
        if self._recorded():
            largest = self._records.largest_gradient()
            if largest is not None and math.isfinite(largest):
                line["amax"][ACTIVATION_GRADIENT] = largest
            if self._records:
                self._write_records()
        if self._backwards > 1:
            line["micro_batches"] = self._backwards
        if self._changes.were_made:
            line["changed_after_backward"] = True
        self._metrics.append(line, *self._measured, self._loss, self._began_at)
        self._skipped += line["skipped"]
        if self._step - self._first_step == self._skipped:  # the first that was not skipped
            _describe.check_masters(self._parameters, self._optimizer, self._lint)
        self._scale = self._contained
        if self._recorded() or self._metrics.are_late():
            self._metrics.flush()
        self._step += 1
        self._begin_step()
        self._activations.arm(self._recorded())

    def _describe_precision(self, scaled):
        self._configuration["precision"] = _describe.precision(self._parameters, self._autocast, self._cast,
                                                                     self._name)
        self._folder.write(LAYOUT.configuration, self._configuration)
        if not self._name:
            _describe.check_told(self._untold, self._configuration["precision"]["name"], self._lint, self._where)
        if torch.float16 in (self._autocast, self._cast) and not scaled and self._contained == 1:
            _describe.check_unscaled(self._autocast, self._lint, self._entered.get(self._autocast, self._where))
