"""Decides what becomes of each op while a model is emulated: whose it is, in which layer, and how it is computed."""
import contextlib
import functools
import threading
import warnings
import weakref

import torch

from .. import _ampscope
from . import _eager
from ._coverage import AS_ASKED, Coverage, Roundings, multiply_adds_of, types_of
from ._lint import user_line
from ._parallel import named_modules
from ._rules import EMPTY, unfit
from ._scope import Calls, Scope, in_backward
from ._weights import Weights, widened

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_NO_RULE = "in a form that has no rule"
# Made of products that come here themselves.
_COMPOSITE = ("linear", "scaled_dot_product_attention", "lstm.input", "lstm.data")


class Emulation:
    def __init__(self, model, precision, seed, strict, threads, converts=True, attention="plain"):
        self._precision, self.attention = precision, attention
        self._in_backward = functools.cache(precision.in_backward)  # by layer
        self.scales_layer, self._has_recipe = functools.cache(precision.scales), precision.has_recipe
        self.autocast_dtype = _DTYPES.get(self._precision.autocast)
        self._model, self._seed, self._strict, self._threads = model, seed, strict, threads
        self._learn()
        self.weights = Weights(model, precision, converts)
        self._scope, self._local = Scope(), threading.local()
        self._calls, self._evaluation = Calls(), Calls()
        self._counts, self._left_out, self._lock = {}, {}, threading.Lock()
        self._roundings = Roundings()
        self._compares, self.when_compared = strict != "ops", None  # whether PyTorch's ops are compared; called then
        self._step, self._stepping = 0, False
        self.states, self.ops = {}, {}
        self.casts = None  # a dict: what casts with scales do is counted there, by layer
        self.only = None  # a module: only its own products are emulated

    def _learn(self):
        """Whose the modules and parameters are that the model has now."""
        self._names = weakref.WeakKeyDictionary((module, name) for name, module in named_modules(self._model))
        self._others = weakref.WeakSet()  # modules that were called in the model and are none of its own
        self._owners = {}  # the parameter, the first module that has it, and its name there, by the parameter's id
        for module, name in self._names.items():
            for key, parameter in module.named_parameters(recurse=False):
                self._owners.setdefault(id(parameter), (weakref.ref(parameter), name, key))
        self._wide = weakref.WeakSet(m for m, name in self._names.items() if self._precision.autocast and
                                     self._precision.leaves_autocast(name))

    def again(self, module=None):
        """The next call, of a module by itself, belongs to the step that was last, and is the first in it. module: only
        the products that it makes itself, not those of modules in it, are emulated from now on; None: all."""
        self.only, self._stepping = module, False
        self._calls.begin()
        self._evaluation.begin()

    def described(self, parameters):
        return self._precision.facts() if any(self._owner_of(p) is not None for p in parameters) else None

    def close(self):
        self.unwind()
        self._calls.begin()
        self.ops.clear()

    # Calls of all modules.

    def inputs_of(self, module, args, kwargs):
        """What a module is called with: in FP32 outside autocast, and in the type in which the model computes."""
        if self._scope.stack and module not in self._names and module not in self._others:  # added meanwhile
            self._learn()
            if module not in self._names:
                self._others.add(module)
        if module in self._wide:
            return widened((args, kwargs))
        begins = self.only is None and module in self._names and not self._scope.stack and self._is_whole(module)
        return self.weights.narrowed((args, kwargs)) if begins else (args, kwargs)

    def _is_whole(self, module):
        """Whether an outermost call is none of a part of the model, as a checkpoint makes it in a backward pass."""
        return module is self._model or not in_backward()

    def enter(self, module, args):
        name = self._names.get(module)
        if name is None:
            return
        if not self._scope.stack:
            self._begin()
            self._local.region = self._enter_autocast()
            self.weights.enter(self.only)
        self._enter_policy(module)
        self._scope.enter((module, name))

    def leave(self, module, args, result):
        is_last = self._scope.leave(module)
        self._leave_policy(module)
        if not is_last:
            return None
        if module is self._model:
            self.stop_comparing()
        self.weights.leave()
        widens = self._leave_autocast() or self.weights.widens
        return widened(result) if widens and self._is_whole(module) else None

    def _enter_policy(self, module):
        """Leaves autocast, or enters it again, where that is the policy of a module and not of the one around it."""
        around = bool(self._scope.stack) and self._scope.stack[-1][0] in self._wide
        if (module in self._wide) != around:
            region = torch.autocast("cpu", self.autocast_dtype, enabled=around)
            region.__enter__()
            self._policies.append((module, region))

    def _leave_policy(self, module):
        """`module`: the one that is left; None: all are."""
        while self._policies and module in (None, self._policies[-1][0]):
            self._policies.pop()[1].__exit__(None, None, None)
            if module is not None:
                break

    @property
    def _policies(self):
        """The modules on this thread whose policy changed autocast, and the regions that did."""
        if not hasattr(self._local, "policies"):
            self._local.policies = []
        return self._local.policies

    def unwind(self):
        """Leaves all modules of this thread: after an exception for which PyTorch calls no hooks, for instance."""
        self._scope.stack.clear()
        self._leave_policy(None)
        self.weights.leave()
        self._leave_autocast()

    def _enter_autocast(self):
        if not torch.is_autocast_enabled("cpu"):
            if self.autocast_dtype is None:
                return None
            region = torch.autocast("cpu", self.autocast_dtype)
            region.__enter__()
            return region
        found = torch.get_autocast_dtype("cpu")
        if found != self.autocast_dtype:
            raise RuntimeError(f"emulate: the script's autocast casts to {_eager.FORMATS[found]}, and "
                               f"{self._precision.name!r} to {self._precision.autocast or 'nothing'}: they must agree")
        return None

    def _leave_autocast(self):
        """Returns whether there was a region of ours."""
        region, self._local.region = getattr(self._local, "region", None), None
        if region is not None:
            region.__exit__(None, None, None)
        return region is not None

    def _begin(self):
        """A call of the model after a backward pass is the next step: scales move on, and calls count from 0."""
        self._local.evaluates = not in_backward() and not torch.is_grad_enabled()
        if in_backward():
            return
        if self._stepping:
            self.stop_comparing()
            self._stepping = False
            self._step += 1
            self.weights.forget()
            for state in self.states.values():
                state.advance()
            self._calls.begin()
        if self._local.evaluates:  # with numbers of its own, so that training goes on as without it
            self._evaluation.begin()

    # Whose a tensor or a call is.

    @property
    def is_inside(self):
        """Whether the model is being computed, forward or backward."""
        return self._scope.place is not None

    @property
    def computes_all(self):
        """Whether ops that multiply no matrices are ours, too."""
        return self._strict == "ops"

    @property
    def is_under_way(self):
        """Whether a call of the model, or a backward pass, has not ended yet."""
        return bool(self._scope.stack) or in_backward()

    @property
    def casts_by_autocast(self):
        return self.autocast_dtype is not None

    @property
    def name(self):
        """Of the module that is being computed."""
        place = self._scope.place
        return place[1] if place else ""

    def _owner_of(self, tensor):
        """The name of the first module that has this parameter; None for other tensors."""
        owned = self._owners.get(id(tensor))
        return owned[1] if owned is not None and owned[0]() is tensor else None

    def _name_in_layer(self, weight):
        """What a module calls its weight, if not "weight": one that has several keeps a state for each."""
        owned = self._owners.get(id(self._parameter_of(weight)))
        return None if owned is None or owned[2] == "weight" else owned[2]

    def layer_of(self, weight):
        """The layer that a weight is used in: the module that is being computed if the weight is its own."""
        parameter = self._parameter_of(weight)
        module, name = self._scope.place or (None, "")
        if parameter is None:
            return name
        if module is not None and any(self.weights.source(p) is parameter for p in module._parameters.values()):
            return name
        owner = self._owner_of(parameter)
        return name if owner is None else owner

    def _parameter_of(self, tensor):
        """The parameter that a tensor is, is a view of, or is a cast of; None for others."""
        return self.weights.source(tensor if tensor._base is None else tensor._base)

    @property
    def is_backward_of_user(self):
        """Whether the backward of a user's own Function is running, whose products are none of a layer's forward.
        Within a module, or in our own backward, it is a part without gradients that a checkpoint computes again."""
        return (in_backward() and not torch.is_grad_enabled() and not self._scope.stack
                and not _eager.is_ours(torch._C._current_autograd_node()))

    def is_parameter(self, tensor):
        return self._parameter_of(tensor) is not None and not self.is_backward_of_user

    def scales(self, weight):
        """Whether a layer with that weight is cast with scales."""
        if not self._has_recipe or self.is_backward_of_user:
            return False
        return (self.is_inside or self._owner_of(weight) is not None) and self.scales_layer(self.layer_of(weight))

    def autocast(self, tensor):
        eligible = tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(torch.get_autocast_dtype("cpu")) if eligible else tensor

    # How it is computed.

    def take(self, rule, original, args, kwargs):
        """The result of an op: by its rule, if it is the model's."""
        tensors = [t for i, t in enumerate(args) if isinstance(t, torch.Tensor) and i != rule.mask
                   and not (rule.takes_sizes and not t.is_floating_point())]
        if not self.is_inside and all(self._owner_of(self._parameter_of(t)) is None for t in tensors):
            return original(*args, **kwargs)
        if self.only is not None and self.name != self._names[self.only]:
            return original(*args, **kwargs)
        if rule.is_elementwise:
            return self._take_elementwise(rule, original, args, kwargs)
        weight = args[rule.weight] if rule.weight is not None and rule.weight < len(args) else None
        alone = weight is not None and (rule.is_layer or self.is_parameter(weight)) and self.scales(weight)
        why = (unfit([t for t in tensors if not (alone and t is weight)]) or (unfit([weight]) if alone else None)
               or rule.unlike_mask(args))
        try:
            result = None if why else rule.compute(self, *args, **kwargs)
        except ValueError:
            alike = (t.to(tensors[0].dtype) if isinstance(t, torch.Tensor) and alone else t for t in args)
            original(*alike, **kwargs)  # shapes that do not fit are an error of PyTorch's, too, in its own words
            raise
        if result is not None:
            return result
        passes = why != EMPTY and (why is not None or rule.name not in _COMPOSITE)
        if passes and self._strict:
            where = self.name or "the model"
            raise NotImplementedError(f"emulate: {where}: {rule.name} {why or _NO_RULE}: not emulated")
        result = original(*args, **kwargs)
        if passes:
            self._passed(rule.name, why or _NO_RULE, args, kwargs, result)
        return result

    def _take_elementwise(self, rule, original, args, kwargs):
        """PyTorch's result, compared with ours; ours with strict="ops"."""
        if not self.is_inside or self.is_backward_of_user:
            return original(*args, **kwargs)
        if not self.computes_all:
            return self._compared(rule, original, args, kwargs)
        result = rule.compute(self, *args, **kwargs)
        if result is None:
            result = original(*args, **kwargs)
            if result.is_floating_point():
                self._add(self.name, rule.name, types_of(args), _NO_RULE, 0)
        return result

    def stop_comparing(self):
        if self._compares:
            self._compares = False
            self.when_compared()

    def _compared(self, rule, original, args, kwargs):
        """PyTorch's result; ops that it is made of are not compared by themselves, nor what ours does not compute."""
        ours = self._compares and not getattr(self._local, "comparing", False) and not _eager.is_transformed()
        if not ours:
            return original(*args, **kwargs)
        self._local.comparing = True
        try:
            result = original(*args, **kwargs)
            with torch.no_grad(), contextlib.suppress(ValueError):  # of operands that ours does not take
                self._roundings.add(rule.name, result, rule.compute(self, *args, **kwargs))
        finally:
            self._local.comparing = False
        return result

    def layer(self, op, x, weight, bias, settings=(), part=None):
        """A layer that recipes scale; `part`: which of those in one module."""
        part = tuple(of for of in (self._name_in_layer(weight), part) if of is not None) or None
        layer, result = self.layer_of(weight), x.dtype
        if self.scales_layer(layer):
            x, weight = self.weights.unrounded(x), self.weights.unrounded(weight)
        call = _eager.Call(self, op, layer, self._precision, part, weight=True, result=result, settings=settings)
        return getattr(_eager, op)(call, x, weight, bias)

    def elementwise(self, op, *operands, numbers=None, settings=(), wide=False):
        """An op that multiplies no matrices; None for types that it does not take. numbers: an operand of integers."""
        if unfit([t for t in operands if t is not None]) or (numbers is not None and numbers.numel() == 0):
            return None
        if numbers is not None:
            operands += (numbers.float(),)
        call = _eager.Call(self, op, self.name, self._precision, settings=settings,
                           result=torch.float32 if wide else None)
        return _eager.elementwise(call, *operands)

    @property
    def has_wide_loss(self):
        return self._precision.formats["loss"] == "fp32"

    def product(self, a, b, bias=None, wide=False, weight=False):
        """a b + bias, not scaled. wide: in FP32, whatever the operands are."""
        precision = self._in_backward(self.name) if self.is_backward_of_user else self._precision
        self._stepping = self._stepping or self.is_backward_of_user
        call = _eager.Call(self, "matmul", self.name, precision, weight=weight,
                           result=torch.float32 if wide else None)
        return _eager.product(call, a, b, bias)

    def fused_attention(self, q, k, v, mask, scale, causal):
        """Of B x H x Q x D, and of B x G x K x D twice; mask: FP32, B x H x Q x K or extents of 1, added to scores."""
        call = _eager.Call(self, self.attention, self.name, self._precision, settings=(float(scale), float(causal)))
        return _eager.attention(call, q, k, v, mask)

    def context(self, layer, part, is_product):
        state = casts = None
        calls = self._evaluation if self._scope.stack and self._local.evaluates else self._calls
        number = calls.number(layer) if is_product else 0  # others have no random numbers
        if is_product and self.scales_layer(layer):
            with self._lock:
                state = self.states.setdefault((layer, part), _ampscope.EagerState())
                if self.casts is not None:
                    casts = self.casts.setdefault(layer, _ampscope.EagerCasts())
        place = self._scope.place
        training = (place[0] if place else self._model).training
        return _ampscope.EagerContext(self._seed, self._step, number, training,
                                      self._threads or torch.get_num_threads(), state, casts)

    # What was computed.

    def count(self, call, multiplied, out, operands, gradients=None):
        self._stepping = self._stepping or gradients is not None
        counted = _eager.products_of(call, out, operands, gradients)
        if counted is not None:
            self._add(call.layer, counted[0], multiplied, AS_ASKED, counted[1])

    def note_left_out(self, layer, operands):
        """Keeps the first shape of each operand that the recipe's library would not cast."""
        with self._lock:
            for operand, shape in operands:
                self._left_out.setdefault((layer, operand), shape)

    def _passed(self, name, why, args, kwargs, result):
        """Counts what was left to PyTorch. The products of its backward come here by themselves, but those of
        convolutions and nested tensors, which are counted at once."""
        if why == _NO_RULE and all((self.name, name, why) != (m, op, how) for m, op, _, how in self._counts):
            warnings.warn_explicit(f"emulate: {self.name or 'the model'}: {name} is not emulated: {why}", UserWarning,
                                   *user_line())
        products = multiply_adds_of(name, args, kwargs, result)
        if torch.is_grad_enabled() and (name == "convolution" or any(
                isinstance(t, torch.Tensor) and t.is_nested for t in args)):
            products *= 1 + sum(t.requires_grad for t in args[:2])
        self._add(self.name, name, types_of(args), why, products)

    def _add(self, layer, op, operands, how, products):
        with self._lock:
            calls, total = self._counts.get((layer, op, operands, how), (0, 0))
            self._counts[layer, op, operands, how] = (calls + 1, total + products)

    def coverage(self):
        layers = list(dict.fromkeys(layer for layer, *_ in self._counts))  # in the order of their first calls
        rows = sorted(self._counts.items(), key=lambda row: layers.index(row[0][0]))
        multiplied = {form for _, _, operands, how in self._counts if how == AS_ASKED for form in operands.split(" x ")}
        return Coverage(({"module": layer, "op": op, "operands": operands, "how": how, "calls": calls,
                          "multiply_adds": products} for (layer, op, operands, how), (calls, products) in rows),
                        self._roundings.rows(), self._precision.unused_accumulators(sorted(multiplied)),
                        ({"module": layer, "operand": operand, "shape": shape}
                         for (layer, operand), shape in self._left_out.items()))
