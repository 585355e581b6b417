"""Steps of PyTorch's optimizers in the formats of a precision: ampscope's update in place of theirs, on the weights and
the state that they hold."""
import functools
import sys
import types

import torch
from torch.distributed.tensor import DTensor

from .. import _ampscope
from .._conversions import quantize

_KNOWN = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
_MUON_KIND = getattr(torch.optim, "Muon", None)  # PyTorch 2.9 brought it
if _MUON_KIND is not None:
    _KNOWN[_MUON_KIND] = "muon"
_MUON = {"ns_coefficients": (3.4445, -4.7750, 2.0315), "ns_steps": 5, "eps": 1e-7}  # the numbers of ampscope's
_MUON_SCALES = {None: "muon", "original": "muon", "match_rms_adamw": "muon-rms", "spectral_unclamped": "muon-spectral"}
_ADAFACTOR_KIND = getattr(torch.optim, "Adafactor", None)  # and PyTorch 2.5 this
if _ADAFACTOR_KIND is not None:
    _KNOWN[_ADAFACTOR_KIND] = "adafactor"
_WHOLE = tuple(kind for kind in (_MUON_KIND, _ADAFACTOR_KIND) if kind is not None)  # steps that need whole tensors
_STATE = {"exp_avg": "m", "momentum_buffer": "m", "exp_avg_sq": "v", "row_var": "v", "col_var": "v", "variance": "v"}
_COMPENSATION = "compensation"  # Kahan's, in an optimizer's state
_SCALED_LAYERS = ("Linear", "Conv1D", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d")


class Optimizers:
    """Hyperparameters, state, the number of the step and what a scheduler or a scaler does to them are PyTorch's, so
    that checkpoints are; the step itself is that of amp-train."""

    def __init__(self, precision, optimizers, seed):
        self._optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        self._precision, self._seed = precision, seed
        self._places = {}  # of each parameter, by its id: its optimizer and its number
        self._steps = {}  # of SGD, which does not count its own
        self._layers = set()  # ids of the weights that layers cast with scales
        for optimizer in self._optimizers:
            _check(optimizer)
            if (isinstance(optimizer, _WHOLE) or _is_jordans(optimizer)) and any(precision.scaled_state):
                raise NotImplementedError(f"optimizer: {type(optimizer).__name__} with weights or state under a scale "
                                          "is not emulated")
        self._place()

    def _place(self):
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    self._places.setdefault(id(p), (optimizer, len(self._places)))

    def _steps_here(self, params):
        if params and any(id(p) not in self._places for p in params):
            self._place()  # groups may have been added
        return bool(params) and id(params[0]) in self._places

    def install(self, model, scales, undo):
        """Replaces the steps until `undo`, an ExitStack, is closed. scales(name): whether the layer of that name is
        cast with scales, so that its master weight may be kept under one."""
        for name, module in model.named_modules():
            named = any(kind.__name__ in _SCALED_LAYERS for kind in type(module).__mro__)
            if named and isinstance(getattr(module, "weight", None), torch.Tensor) and scales(name):
                self._layers.add(id(module.weight))
        undo.callback(self._restore)
        for optimizer in self._optimizers:
            for p, state in optimizer.state.items():
                for key in state.keys() & _STATE.keys():
                    self._hold(p, key)
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if kept := self._scaled(p)[0]:
                        stored = _held(p.detach())
                        _ampscope.keep_scaled(kept, stored.numpy())
                        p.data.copy_(stored)
        for name, ours in (("adam", self._adam), ("sgd", self._sgd), ("_muon", self._muon),
                           ("_adafactor", self._adafactor)):
            module = sys.modules.get(f"torch.optim.{name}")
            if module is None:
                continue
            name = name.removeprefix("_")
            original = getattr(module, name)
            setattr(module, name, functools.partial(ours, original))
            undo.callback(setattr, module, name, original)
        for optimizer in filter(_is_jordans, self._optimizers):
            undo.callback(functools.partial(vars(optimizer).update, step=optimizer.step) if "step" in vars(optimizer)
                          else functools.partial(vars(optimizer).pop, "step"))
            step = torch.optim.Optimizer.profile_hook_step(self._jordan)
            step._wrapped_by_lr_sched = True  # a scheduler that exists warns of steps that it does not know
            optimizer.step = types.MethodType(step, optimizer)

    def _restore(self):
        """State in the type that PyTorch gives it: that of its parameter."""
        for optimizer in self._optimizers:
            for p, state in optimizer.state.items():
                state.pop(_COMPENSATION, None)
                for key in state.keys() & _STATE.keys():
                    if state[key] is not None:
                        state[key] = state[key].to(p.dtype)

    def _hold(self, p, key):
        """State of a parameter in FP32, as values of the precision's format."""
        state = self._places[id(p)][0].state[p]
        t = state.get(key)
        if t is not None and t.dtype != torch.float32:
            state[key] = t = t.float()
        return t

    def _scaled(self, p):
        """How weight, m and v are kept under scales; None where they are not."""
        weight, *state = self._precision.scaled_state
        weight = None if self._precision.has_recipe and id(p) not in self._layers else weight
        return [weight, *(f if f and f.holds(p.numel()) else None for f in state)]

    # The functions that the steps of PyTorch's optimizers call.

    def _adam(self, original, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **settings):
        if not self._steps_here(params):
            return original(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **settings)
        if _found_inf(settings):
            return None
        name = "adamw" if settings["decoupled_weight_decay"] else "adam"
        update = self._update(name, settings, betas=(float(settings["beta1"]), float(settings["beta2"])),
                              eps=settings["eps"])
        for p, g, step in zip(params, grads, state_steps):
            step += 1
            self._step(update, int(step), int(step) - 1, p, _unscaled(g, settings), self._hold(p, "exp_avg"),
                       self._hold(p, "exp_avg_sq"))
        return None

    def _sgd(self, original, params, grads, momentum_buffers, *args, **settings):
        if not self._steps_here(params):
            return original(params, grads, momentum_buffers, *args, **settings)
        if _found_inf(settings):
            return None
        momentum = settings["momentum"]
        update = self._update("sgd", settings, momentum=momentum, dampening=settings["dampening"],
                              nesterov=settings["nesterov"])
        for i, (p, g) in enumerate(zip(params, grads)):
            m = momentum_buffers[i] if momentum else None
            t = 1 if m is None else 2
            if momentum:
                m = momentum_buffers[i] = torch.zeros_like(p, dtype=torch.float32) if m is None else m.float()
            number = self._steps[id(p)] = self._steps.get(id(p), -1) + 1
            self._step(update, t, number, p, _unscaled(g, settings), m, None)
        return None

    def _muon(self, original, params, grads, momentum_buffers, **settings):
        if not self._steps_here(params):
            return original(params, grads, momentum_buffers, **settings)
        _check_muon(settings)  # groups may have been added or changed
        update = self._update(_MUON_SCALES[settings["adjust_lr_fn"]], settings, momentum=settings["momentum"],
                              nesterov=settings["nesterov"])
        for i, (p, g) in enumerate(zip(params, grads)):
            number = self._steps[id(p)] = self._steps.get(id(p), -1) + 1
            momentum_buffers[i] = self._hold(p, "momentum_buffer")
            self._step(update, number + 1, number, p, g, momentum_buffers[i], None)
        return None

    @torch.no_grad()
    def _jordan(self, optimizer, closure=None):
        """The whole step of Keller Jordan's Muon: no function in it has both the weight and its state."""
        loss = None
        optimizer._opt_called = True  # what a scheduler's wrapper notes
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in optimizer.param_groups:
            self._steps_here(group["params"])
            _check_jordan(group)
            update = self._update("muon-jordan", group, momentum=group["momentum"], nesterov=True)
            for p in group["params"]:
                optimizer.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                number = self._steps[id(p)] = self._steps.get(id(p), -1) + 1
                gradient = torch.zeros_like(p) if p.grad is None else p.grad
                self._step(update, number + 1, number, p, gradient, self._hold(p, "momentum_buffer"), None)
        return loss

    def _adafactor(self, original, params, grads, row_vars, col_vars, variances, state_steps, *args, **settings):
        if not self._steps_here(params):
            return original(params, grads, row_vars, col_vars, variances, state_steps, *args, **settings)
        update = self._update("adafactor", settings, eps=settings["eps1"] or 0.0,
                              more=(settings["beta2_decay"], settings["eps2"], settings["d"]))
        for p in params:
            _check_adafactor(p, settings["eps1"])
        for p, g, step in zip(params, grads, state_steps):
            step += 1
            state = [self._hold(p, key) for key in (("row_var", "col_var") if p.dim() == 2 else ("variance",))]
            v = torch.cat([t.flatten() for t in state])
            self._step(update, int(step), int(step) - 1, p, _unscaled(g, settings), None, v)
            for t, stepped in zip(state, v.split([t.numel() for t in state])):
                t.copy_(stepped.view_as(t))
        return None

    def _update(self, name, settings, betas=(0.0, 0.0), eps=0.0, momentum=0.0, dampening=0.0, nesterov=False,
                more=None):
        return _ampscope.optimizer_update(name + ("-fused-cpu" if settings.get("fused") else ""),
                                          float(settings["lr"]), *betas, eps, settings["weight_decay"], momentum,
                                          self._precision.update, dampening, nesterov,
                                          self._precision.update_random_bits, precision=self._precision,
                                          adafactor=more)

    def _step(self, update, t, number_of_step, p, gradient, m, v):
        optimizer, number = self._places[id(p)]
        formats, lost = self._precision.formats, None
        if self._precision.update == "kahan":
            optimizer.state[p].setdefault(_COMPENSATION, torch.zeros_like(p, dtype=torch.float32))
            lost = self._hold(p, _COMPENSATION)  # a checkpoint's are of the weight's type
        held = [_held(t) for t in (p.detach(), m, v, lost)]
        gradient = quantize(gradient.detach().float().contiguous(), formats["master"])
        weight, *others = (t.numpy() for t in held)
        scaled = self._scaled(p)
        plain = [_ampscope.format("fp32" if under else formats[key])
                 for key, under in zip(("master", "m", "v"), [None, *scaled[1:]])]
        _ampscope.optimizer_step(update, t, (self._seed, number, number_of_step), plain, scaled, weight,
                                 gradient.numpy(), *others)
        with torch.no_grad():
            for t, stepped in zip((p, m, v, lost), held):
                if t is not None and stepped.data_ptr() != t.data_ptr():
                    t.copy_(stepped)


def _held(t):
    """A tensor's values in FP32 and C order: in its own memory where they are. Of none, no values."""
    return torch.zeros(0) if t is None else t.float().contiguous()


def _unscaled(gradient, settings):
    """A gradient as the step reads it: without the scale that fused steps take off themselves."""
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    if settings.get("grad_scale") is not None:
        gradient = gradient / settings["grad_scale"]
    return -gradient if settings["maximize"] else gradient


def _found_inf(settings):
    return settings.get("found_inf") is not None and bool(settings["found_inf"])


def _check(optimizer):
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError("emulate: optimizer: expected one of torch.optim, or a list of them, got "
                        f"{type(optimizer).__name__}")
    if type(optimizer) not in _KNOWN and not _is_jordans(optimizer):
        kind = type(optimizer)
        raise NotImplementedError(f"optimizer: {kind.__module__}.{kind.__qualname__} is not emulated; torch.optim's "
                                  f"{', '.join(known.__name__ for known in _KNOWN)} and Keller Jordan's "
                                  "SingleDeviceMuon are")
    for group in optimizer.param_groups:
        if isinstance(optimizer, _MUON_KIND or ()):
            _check_muon(group)
        if _is_jordans(optimizer):
            _check_jordan(group)
        for option in ("amsgrad", "differentiable"):
            if group.get(option):
                raise NotImplementedError(f"optimizer: {option}=True is not emulated")
        for p in group["params"]:
            if isinstance(p, DTensor):
                raise NotImplementedError("optimizer: steps on weights that fully_shard divides are not emulated")
            if p.is_complex():
                raise NotImplementedError("optimizer: steps on complex weights are not emulated")
            if isinstance(optimizer, _ADAFACTOR_KIND or ()):
                _check_adafactor(p, group["eps"][0])


def _is_jordans(optimizer):
    """Whether it is the Muon for one device of github.com/KellerJordan/Muon, which is in no package of PyPI."""
    module = sys.modules.get(type(optimizer).__module__)
    return type(optimizer).__name__ == "SingleDeviceMuon" and hasattr(module, "zeropower_via_newtonschulz5")


def _check_jordan(group):
    if not group["momentum"]:
        raise NotImplementedError("optimizer: Muon without momentum is not emulated")
    if any(p.dim() != 2 for p in group["params"]):
        raise NotImplementedError("optimizer: Keller Jordan's Muon on weights of other than two axes is not emulated")


def _check_adafactor(p, eps):
    if p.dim() > 2:
        raise NotImplementedError("optimizer: Adafactor's steps on weights of more than two axes are not emulated")
    if eps == 0:
        raise NotImplementedError("optimizer: Adafactor with a first eps of 0 is not emulated")


def _check_muon(group):
    if group["adjust_lr_fn"] not in _MUON_SCALES:
        raise NotImplementedError(f"optimizer: adjust_lr_fn={group['adjust_lr_fn']!r} is not emulated")
    if not group["momentum"]:
        raise NotImplementedError("optimizer: Muon without momentum is not emulated")
    for option, number in _MUON.items():
        asked = tuple(group[option]) if isinstance(number, tuple) else group[option]
        if asked != number:
            raise NotImplementedError(f"optimizer: {option}={group[option]!r} is not emulated, {number!r} is")
