"""One step of a model, call by call of its modules: as it is in FP32, and how far another is from it."""
import contextlib
import copy
import functools
import math

import torch
import torch.utils.flop_counter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .._conversions import histogram
from ._activations import _has_gradient, _tensors_of
from ._eager import FORMATS
from ._parallel import named_modules
from ._scope import in_backward
from ._tensors import dense

_HALVES = (torch.float16, torch.bfloat16)


def floats_of(output):
    """The tensors in it that can have a gradient."""
    return [t for t in _tensors_of(output) if t.is_floating_point() or t.is_complex()]


class Error:
    """How far tensors are from others: |x - reference| / |reference|, in FP64."""

    def __init__(self):
        self._noise = self._signal = 0.0
        self.elements = self.nonfinite = 0

    def add(self, x, reference, scale=1.0):
        """Of x / scale."""
        x, reference = (dense(t.detach()) for t in (x, reference))
        if reference.is_complex():
            x, reference = torch.view_as_real(x), torch.view_as_real(reference)
        x, reference = x.double() / scale, reference.double()
        known = reference.isfinite()
        both = known & x.isfinite()
        self.elements += x.numel()
        self.nonfinite += int((known & ~both).sum())
        self._noise += float(torch.where(both, x - reference, 0).square().sum())
        self._signal += float(torch.where(both, reference, 0).square().sum())

    def facts(self):
        """As the file has them; None if nothing was compared."""
        if self.elements == 0:
            return None
        relative = math.sqrt(self._noise / self._signal) if self._signal else None if self._noise else 0.0
        return {"relative": relative, "elements": self.elements, "nonfinite": self.nonfinite}


def cast_counts(x, dtype, scale=1.0):
    """What nearest-even rounding to a type of 16 bits makes of x * scale."""
    n = histogram(dense(x)).classify(FORMATS[dtype], int(math.log2(scale)))
    return {"nonzero": sum(n.values()), "underflow": n["underflow"], "saturated": n["overflow"]}


class State:
    """All that a step changes of a model, and torch's random numbers: what they were, so that each step begins with
    the same."""

    def __init__(self, model):
        self._model = model
        self._modules = [(module, module.training) for module in model.modules()]
        self._held = [(of, name, tensor, None if tensor is None else tensor.detach().clone())
                      for module, _ in self._modules for of in (module._parameters, module._buffers)
                      for name, tensor in of.items()]
        self._gradients = [(p, p.grad) for p in model.parameters()]
        self._random = torch.get_rng_state()

    def now(self):
        """The same of what is there now: itself, if nothing changed."""
        same = all(tensor is None or (tensor.dtype == was.dtype and torch.equal(tensor, was))
                   for _, _, tensor, was in self._held)
        return self if same else State(self._model)

    def begin(self):
        """The next step has the state that was there, and no gradients."""
        with torch.no_grad():
            for of, name, tensor, was in self._held:
                of[name] = tensor
                if tensor is not None and (tensor.dtype != was.dtype or not torch.equal(tensor, was)):
                    tensor.copy_(was)
        for module, training in self._modules:
            module.training = training
        for parameter, _ in self._gradients:
            parameter.grad = None
        torch.set_rng_state(self._random)

    def end(self):
        self.begin()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient


class _Copying(TorchFunctionMode):
    def __init__(self, copied):
        super().__init__()
        self._copied = copied

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__deepcopy__:
            return self._copied(args[0])
        return function(*args, **(kwargs or {}))


def _copy_of(arguments, copied):
    """Of anything that a module may be called with, caches included: copied(tensor) takes each tensor's place."""
    with _Copying(copied):
        return copy.deepcopy(arguments)


class Call:
    """A call of a module in FP32: what went in and came out, the gradients of that, and the random numbers."""

    def __init__(self, arguments, random):
        self.arguments, self.random = arguments, random
        self.outputs, self.gradients = [], []
        self.input_gradients = []  # as the module alone has them

    def seen(self, output):
        self.outputs = [t.detach().clone() for t in floats_of(output)]
        self.gradients = [None] * len(self.outputs)
        for i, tensor in enumerate(floats_of(output)):
            if _has_gradient(tensor):
                tensor.register_hook(functools.partial(self._seen_gradient, i))

    def _seen_gradient(self, i, gradient):
        self.gradients[i] = gradient.detach().clone()

    def again(self, module, parameters, scale=1.0):
        """The outputs of the module called alone with these inputs, and the gradients of these inputs and of the
        parameters, where what comes back is the gradient of this call times `scale`."""
        leaves = []

        def fresh(tensor):
            new = tensor.detach().clone()
            if not tensor.requires_grad:
                return new
            leaves.append(new.requires_grad_())
            return new.clone()  # which the module may change in place
        args, kwargs = _copy_of(self.arguments, fresh)
        torch.set_rng_state(self.random)
        outputs = floats_of(module(*args, **kwargs))
        if [t.shape for t in outputs] != [t.shape for t in self.outputs]:
            raise ValueError("its outputs have other shapes than in the step")
        wanted = leaves + parameters
        back = [(out, (gradient.double() * scale).to(out.dtype) if not gradient.is_complex() else gradient * scale)
                for out, gradient in zip(outputs, self.gradients) if gradient is not None and out.requires_grad]
        if not back or not wanted:
            return outputs, [None] * len(leaves), [None] * len(parameters)
        gradients = torch.autograd.grad([out for out, _ in back], wanted, [gradient for _, gradient in back],
                                        allow_unused=True)
        return outputs, gradients[:len(leaves)], gradients[len(leaves):]


class Row:
    """A module that computes something itself: it calls no other, or has products of its own."""

    def __init__(self, name, module, called):
        self.name, self.module, self.calls = name, module, []
        self._called = called
        self.alone = None  # its weights' gradients by id, as it has them alone; None: it does not do the same alone

    @functools.cached_property
    def parameters(self):
        """Its own, and those of modules in it that it uses without calling them."""
        def of(module):
            yield from module.parameters(recurse=False)
            for child in module.children():
                if child not in self._called:
                    yield from of(child)
        return list({id(p): p for p in of(self.module) if p.requires_grad}.values())

    def run_alone(self):
        """The module by itself in FP32, for the errors that it adds by itself."""
        sums = {}
        for call in self.calls:
            outputs, call.input_gradients, gradients = call.again(self.module, self.parameters)
            error = Error()
            for out, was in zip(outputs, call.outputs):
                error.add(out, was)
            facts = error.facts()
            if facts and (facts["relative"] is None or facts["relative"] > 1e-4):
                raise ValueError("called again with the same inputs, it gives something else")
            add_gradients(sums, self.parameters, gradients)
        self.alone = sums


def add_gradients(sums, parameters, gradients, scale=1.0):
    """Adds gradients / scale to the sums in FP64, by the parameter's id."""
    for parameter, gradient in zip(parameters, gradients):
        if gradient is not None:
            gradient = dense(gradient.detach())
            wide = gradient.to(torch.complex128 if gradient.is_complex() else torch.float64) / scale
            sums[id(parameter)] = sums[id(parameter)] + wide if id(parameter) in sums else wide


class _Products(TorchDispatchMode):
    """Calls seen() for each op that multiplies matrices."""

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        packet = function.overloadpacket
        if packet in torch.utils.flop_counter.flop_registry or "scaled_dot_product" in packet.__name__:
            self._seen()
        return function(*args, **(kwargs or {}))


class _Frame:
    """A module that is being called."""

    def __init__(self, call):
        self.call, self.multiplies, self.calls_others = call, False, False


class Reference:
    """The step in FP32, as PyTorch computes it: which modules compute, and each of their calls."""

    def __init__(self, model):
        self.model = model
        self.names = {}
        for name, module in named_modules(model):
            self.names.setdefault(module, name)
        self.rows, self.called = {}, set()
        self._frames, self._copies = [], {}

    @contextlib.contextmanager
    def watching(self):
        """Forward passes in here are the step's. Inputs are copied, each once, as they are when a call begins."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._copies.clear)
            for module in self.names:
                undo.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                undo.callback(module.register_forward_hook(self._leave).remove)
            undo.enter_context(_Products(self._multiply))
            yield

    def _copied(self, tensor):
        key = id(tensor), tensor._version
        if key not in self._copies:
            new = tensor.detach().clone()
            grows = tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
            self._copies[key] = tensor, new.requires_grad_(grows)  # the tensor, so that the id stays its own
        return self._copies[key][1]

    def _enter(self, module, args, kwargs):
        if in_backward():
            return
        if self._frames:
            self._frames[-1].calls_others = True
        self.called.add(module)
        self._frames.append(_Frame(Call(_copy_of((args, kwargs), self._copied), torch.get_rng_state())))

    def _leave(self, module, args, output):
        if in_backward():
            return
        frame = self._frames.pop()
        if module in self.rows or frame.multiplies or not frame.calls_others:
            frame.call.seen(output)
            self.rows.setdefault(module, Row(self.names[module], module, self.called)).calls.append(frame.call)

    def _multiply(self):
        if self._frames:
            self._frames[-1].multiplies = True


class Seen:
    """The same step in another arithmetic: the errors of the modules' outputs and of their gradients."""

    def __init__(self, reference, scale):
        self._rows, self._scale = reference.rows, scale
        self.outputs = {module: Error() for module in self._rows}
        self.gradients = {module: Error() for module in self._rows}
        self.casts = {module: {} for module in self._rows}
        self._calls = dict.fromkeys(self._rows, 0)
        self._odd = set()

    @contextlib.contextmanager
    def watching(self):
        with contextlib.ExitStack() as undo:
            for module in self._rows:
                undo.callback(module.register_forward_hook(self._leave).remove)
            yield

    def odd(self):
        """The modules that were not called as in FP32."""
        return self._odd | {module for module, row in self._rows.items() if self._calls[module] != len(row.calls)}

    def _leave(self, module, args, output):
        if in_backward():
            return
        calls, number = self._rows[module].calls, self._calls[module]
        self._calls[module] += 1
        outputs = floats_of(output)
        if number >= len(calls) or [t.shape for t in outputs] != [t.shape for t in calls[number].outputs]:
            self._odd.add(module)
            return
        for out, was, gradient in zip(outputs, calls[number].outputs, calls[number].gradients):
            self.outputs[module].add(out, was)
            self._count(module, "output", was, out.dtype)
            if gradient is not None and _has_gradient(out):
                out.register_hook(functools.partial(self._seen_gradient, module, gradient))

    def _seen_gradient(self, module, reference, gradient):
        self.gradients[module].add(gradient, reference, self._scale)
        self._count(module, "output_gradient", reference, gradient.dtype, self._scale)

    def _count(self, module, what, reference, dtype, scale=1.0):
        if dtype in _HALVES:
            counts = cast_counts(reference, dtype, scale)
            before = self.casts[module].get(what)
            self.casts[module][what] = counts if before is None else {k: n + before[k] for k, n in counts.items()}
