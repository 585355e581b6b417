"""Runs a model of PyTorch in emulated arithmetic: its products as matrix hardware computes them, on a processor."""
import contextlib
import threading
import warnings

import torch
import torch.utils.flop_counter

from .. import _ampscope
from . import _cuda_autocast, _eager, _overrides
from ._coverage import AS_ASKED, Coverage
from ._scope import Calls, Scope, in_backward

_active = []  # the machine that is emulated, if one is
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_SKIPPED = ("head", "lm_head")
_NO_RULE = "in a form that has no rule"
_LAYERS = ("linear", "convolution")
_COMPOSITE = ("linear", "scaled_dot_product_attention")  # made of products that come here themselves


class Machine:
    """What emulate() gives: a context manager, or closed by close()."""

    def __init__(self, model, precision, seed, skip, strict, threads):
        self._precision = _ampscope.AskedPrecision(precision)
        self._refuse(model)
        self._precision.unscaled = list(_SKIPPED if skip is None else skip)
        self._in_backward = self._precision.in_backward()
        self._autocast = _DTYPES.get(self._precision.autocast)
        self._model, self._seed, self._strict, self._threads = model, seed, strict, threads
        self.scope, self._calls, self._regions = Scope(), Calls(), threading.local()
        self._states, self._step, self._stepping = {}, 0, False
        self._counts = {}
        self.ops = {}
        self._owners = {}  # the first module that has a parameter, by the parameter's id
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self._install(undo)
            self._undo = undo.pop_all()

    def _refuse(self, model):
        if _active:
            raise RuntimeError("emulate: a model is emulated already: close() that first")
        where = {p.device.type for p in model.parameters()} - {"cpu", "meta"}
        if where:
            raise NotImplementedError(f"emulate: the model is on {', '.join(sorted(where))}: what is emulated is "
                                      "computed on the processor; move it there by model.cpu()")
        if beyond := self._precision.beyond_ops:
            raise NotImplementedError(f"emulate: {self._precision.name!r} has {', '.join(beyond)}, which is up to the "
                                      "optimizer; emulate() computes products and autocast's formats")

    def _install(self, undo):
        for name, module in self._model.named_modules():
            name = _plain_name(name)
            for parameter in module.parameters(recurse=False):
                self._owners.setdefault(id(parameter), name)
            undo.callback(module.register_forward_pre_hook(self._entering(module, name)).remove)
            undo.callback(module.register_forward_hook(self._left, always_call=True).remove)
        _cuda_autocast.change(undo)
        _overrides.install(self, undo)
        undo.enter_context(torch.compiler.set_stance("force_eager"))
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # one kernel for a whole layer of a transformer
        if any(isinstance(m, torch._dynamo.OptimizedModule) or m._compiled_call_impl for m in self._model.modules()):
            warnings.warn("emulate: the model is compiled: it runs eagerly while it is emulated", stacklevel=4)
        _active.append(self)
        undo.callback(_active.remove, self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Puts back what was there before: nothing of the emulation is left but the weights that it trained."""
        self._undo.close()
        self.ops.clear()

    def _entering(self, module, name):
        place = module, name

        def hook(called, args):
            if not self.scope.stack:
                self._begin()
                self._regions.open = self._enter_autocast()
            self.scope.enter(place)
        return hook

    def _left(self, module, args, result):
        region = self._regions.open if self.scope.leave(module) else None
        if region is None:
            return None
        region.__exit__(None, None, None)
        return _widened(result) if module is self._model else None

    def _enter_autocast(self):
        if not torch.is_autocast_enabled("cpu"):
            if self._autocast is None:
                return None
            region = torch.autocast("cpu", self._autocast)
            region.__enter__()
            return region
        found = torch.get_autocast_dtype("cpu")
        if found != self._autocast:
            raise RuntimeError(f"emulate: the script's autocast casts to {_eager.FORMATS[found]}, and "
                               f"{self._precision.name!r} to {self._precision.autocast or 'nothing'}: they must agree")
        return None

    def _begin(self):
        """A call of the model after a backward pass is the next step: scales move on, and calls count from 0."""
        if in_backward() or not self._stepping:
            return
        self._stepping = False
        self._step += 1
        self._calls.begin()
        for state in self._states.values():
            state.advance()

    def context(self, layer, precision):
        state = self._states.setdefault(layer, _ampscope.EagerState()) if precision.has_recipe else None
        place = self.scope.place
        training = (place[0] if place else self._model).training
        return _ampscope.EagerContext(self._seed, self._step, self._calls.number(layer), training, self._threads, state)

    # Called by kernels.

    def take(self, name, ours, original, args, kwargs):
        """The result of an op: ours, if it is the machine's to compute."""
        tensors = [t for t in args if isinstance(t, torch.Tensor)]
        if self.scope.place is None and not any(id(t) in self._owners for t in tensors):
            return original(*args, **kwargs)
        why = _unfit(tensors, mixed=any(self.scales(t, name in _LAYERS) for t in tensors[1:]))
        result = None if why else ours(self, *args, **kwargs)
        if result is None:
            passes = why or name not in _COMPOSITE
            if passes and self._strict:
                where = self.name or "the model"
                raise NotImplementedError(f"emulate: {where}: {name} {why or _NO_RULE}: not emulated")
            result = original(*args, **kwargs)
            if passes:
                self._passed(name, why or _NO_RULE, args, kwargs, result)
        return result

    def owner(self, weight):
        """The name of the layer that a weight is used in: the module that is being called, if the weight is its own."""
        base = weight if weight._base is None else weight._base
        module, name = self.scope.place or (None, "")
        if module is not None and any(p is base for p in module._parameters.values()):
            return name
        return self._owners.get(id(base), name)

    @property
    def name(self):
        """Of the module that is being called."""
        place = self.scope.place
        return place[1] if place else ""

    def is_parameter(self, weight):
        return isinstance(weight if weight._base is None else weight._base, torch.nn.Parameter)

    def scales(self, weight, in_layer=False):
        """Whether a product with it is cast with scales: with the weight of a layer, or with any parameter."""
        if not self._precision.has_recipe or not (in_layer or self.is_parameter(weight)):
            return False
        inside = id(weight) in self._owners or self.scope.place is not None
        return inside and self._precision.scales(self.owner(weight))

    def autocast(self, tensor):
        eligible = tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(torch.get_autocast_dtype("cpu")) if eligible else tensor

    def layer(self, op, x, weight, bias, settings=()):
        call = _eager.Call(self, op, self.owner(weight), self._precision, weight=True, settings=settings)
        return getattr(_eager, op)(call, x, weight, bias)

    def product(self, a, b, bias=None, wide=False, weight=False):
        precision = self._in_backward if in_backward() and not torch.is_grad_enabled() else self._precision
        call = _eager.Call(self, "matmul", self.name, precision, weight=weight, wide=wide)
        return _eager.product(call, a, b, bias)

    # What was computed.

    def count(self, call, out, operands, gradients=None):
        depth = operands[1].shape[-2 if call.op == "matmul" else -1]
        products = 1 if gradients is None else sum(g is not None for g in gradients[:2])
        self._stepping = self._stepping or gradients is not None
        self._add(call.layer, call.op.removesuffix("-transposed"), AS_ASKED, products * out.numel() * depth)

    def _passed(self, name, why, args, kwargs, result):
        """Counts what was left to PyTorch, backward as if it were already done."""
        if why == _NO_RULE and (self.name, name, why) not in self._counts:
            warnings.warn(f"emulate: {self.name or 'the model'}: {name} is not emulated: {why}", stacklevel=2)
        overloads = getattr(torch.ops.aten, name)
        count = torch.utils.flop_counter.flop_registry.get(overloads)
        products = count(*args, **kwargs, out_val=result) // 2 if count else 0
        gradients = sum(isinstance(t, torch.Tensor) and t.requires_grad for t in args[:2])
        self._add(self.name, name, why, products * (1 + gradients * torch.is_grad_enabled()))

    def _add(self, layer, op, how, products):
        key = (layer, op, how)
        calls, total = self._counts.get(key, (0, 0))
        self._counts[key] = (calls + 1, total + products)

    def coverage(self):
        """What ran as asked and what did not, by module and op: calls, and multiply-adds in forward and backward."""
        return Coverage({"module": layer, "op": op, "how": how, "calls": calls, "multiply_adds": products}
                        for (layer, op, how), (calls, products) in self._counts.items())


def emulated_precision(parameters):
    """The precision, as run.json describes it, in which a model with one of these parameters is emulated; or None."""
    emulated = _active and any(id(p) in _active[0]._owners for p in parameters)
    return _active[0]._precision.facts() if emulated else None


def _unfit(tensors, mixed):
    """Why an op on these tensors is not emulated; None: it is."""
    tensors = [t for t in tensors if t.is_floating_point() or t.is_complex()] or tensors[:1]
    for t in tensors:
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            return f"a {type(t).__name__}"
        if t.dtype not in _eager.FORMATS:
            return f"of {str(t.dtype).removeprefix('torch.')}"
        if t.numel() == 0:
            return "without elements"
    if not mixed and len({t.dtype for t in tensors}) > 1:
        return "of different types"
    return None


def _plain_name(name):
    """The name of a module without what wrappers add."""
    return ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))


def _widened(result):
    """FP32 copies of what autocast left in half precision, for a loss outside the model."""
    def widen(t):
        return t.float() if isinstance(t, torch.Tensor) and t.dtype in (torch.float16, torch.bfloat16) else t
    return torch.utils._pytree.tree_map(widen, result)
