"""Runs a model of PyTorch in emulated arithmetic: its products as matrix hardware computes them, on a processor."""
import contextlib
import warnings

import torch
import torch.nn.modules.module as all_modules

from .. import _ampscope
from . import _cuda_autocast, _overrides
from ._emulation import Emulation
from ._optimizers import Optimizers
from ._parallel import named_modules

_machines = []  # the one that is open, if one is
_NOT_SCALED = ("head", "lm_head")  # the last part of a module's name


class Machine:
    """What emulate() gives: open until close(), or the end of a `with` statement. Then it is closed for good, and only
    coverage() can be asked of it."""

    def __init__(self, model, precision, optimizer, seed, skip, layers, strict, threads, converts=True,
                 attention="plain"):
        _check(model, precision, seed, skip, layers, strict, threads)
        if not isinstance(attention, str):
            raise TypeError(f"emulate: attention: expected a text such as 'fused', got {attention!r}")
        if _machines:
            raise RuntimeError("emulate: a model is emulated already: close() that first")
        where = {p.device.type for p in model.parameters()} - {"cpu", "meta"}
        if where:
            raise NotImplementedError(f"emulate: the model is on {', '.join(sorted(where))}: what is emulated is "
                                      "computed on the processor; move it there by model.cpu()")
        asked = _ampscope.AskedPrecision(precision)
        kept = "scaling=none" if asked.has_recipe or skip is None else "fp32"
        asked.set_layers(_policies([name for name, _ in named_modules(model)], skip, layers, kept))
        if optimizer is None and asked.optimizer_keys:
            raise ValueError(f"emulate: {precision!r} has {', '.join(asked.optimizer_keys)}: name the optimizer that "
                             "steps so, optimizer=")
        self._optimizers = Optimizers(asked, [] if optimizer is None else optimizer, seed)
        self._emulation = Emulation(model, asked, seed, strict, threads, converts,
                                    _ampscope.canonical_attention(attention))
        _check_optimizer(model, optimizer)
        self._closed = False
        with contextlib.ExitStack() as undo:
            self._install(model, undo)
            self._undo = undo.pop_all()

    def _install(self, model, undo):
        emulation = self._emulation
        _machines.append(self)
        undo.callback(_machines.clear)
        entered = all_modules.register_module_forward_pre_hook(emulation.enter)
        left = all_modules.register_module_forward_hook(emulation.leave, always_call=True)
        for remove in (entered.remove, left.remove):
            undo.callback(remove)
        _cuda_autocast.replace(torch.nn.Module, "__call__", _call, undo)
        self._optimizers.install(model, emulation.scales_layer, undo)
        emulation.weights.install(undo)
        _cuda_autocast.change(undo, needs_scaler=emulation.autocast_dtype == torch.float16)
        _overrides.install(emulation, undo)
        undo.enter_context(torch.compiler.set_stance("force_eager"))
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # one kernel for a whole layer of a transformer
        undo.callback(emulation.close)
        if any(isinstance(m, torch._dynamo.OptimizedModule) or m._compiled_call_impl for m in model.modules()):
            warnings.warn("emulate: the model is compiled: it runs eagerly while it is emulated", stacklevel=4)

    def __enter__(self):
        if self._closed:
            raise RuntimeError("emulate: this machine is closed; emulate() gives another")
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Puts back what was there before: nothing of the emulation is left but the weights that it trained."""
        self._closed = True
        self._undo.close()

    def coverage(self):
        """What ran as asked and what did not, by module, op and formats of the operands, as numbers of calls and
        multiply-adds, forward and backward together: a table that prints as text."""
        return self._emulation.coverage()


def _call(original, module, *args, **kwargs):
    """Module.__call__, with inputs in the type that the emulation gives them; it hears of exceptions for which PyTorch
    calls no hooks, too."""
    if not _machines:  # closed, but still called by what was put around it meanwhile
        return original(module, *args, **kwargs)
    emulation = _machines[0]._emulation
    try:
        args, kwargs = emulation.inputs_of(module, args, kwargs)
        return original(module, *args, **kwargs)
    except Exception:
        raise
    except BaseException:
        emulation.unwind()
        raise


def _check(model, precision, seed, skip, layers, strict, threads):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"emulate: model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(precision, str):
        raise TypeError(f"emulate: precision: expected a text such as 'amp-bf16', got {type(precision).__name__}")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ValueError(f"emulate: seed: expected a whole number from 0 to 2^64 - 1, got {seed!r}")
    if not (skip is None or isinstance(skip, str) or _are_texts(skip)):
        raise TypeError(f"emulate: skip: expected names of modules such as ['lm_head'], got {skip!r}")
    if layers is not None and not (isinstance(layers, dict) and _are_texts([*layers, *layers.values()])):
        raise TypeError(f"emulate: layers: expected a dict such as {{'lm_head': 'fp32'}}, got {layers!r}")
    if strict not in (False, True, "ops"):
        raise ValueError(f"emulate: strict: expected False, True or 'ops', got {strict!r}")
    if not isinstance(threads, int) or not 0 <= threads <= _ampscope.most_threads:
        raise ValueError(f"emulate: threads: expected a number from 0 (as PyTorch) to {_ampscope.most_threads}, got "
                         f"{threads!r}")


def _check_optimizer(model, optimizer):
    own = {id(p) for p in model.parameters()}
    for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
        groups = getattr(one, "param_groups", [])
        if groups and not any(id(p) in own for group in groups for p in group["params"]):
            raise ValueError(f"emulate: optimizer: this {type(one).__name__} has no parameter of the model")


def _are_texts(values):
    return isinstance(values, (list, tuple, set, frozenset)) and all(isinstance(text, str) for text in values)


def _policies(modules, skip, layers, kept):
    """The table of policies of layers: (module or pattern, text) each. Raises ValueError for what names no module."""
    if skip is None:
        skipped = [name for name in modules if name.rpartition(".")[2] in _NOT_SCALED]
    else:
        skipped = [skip] if isinstance(skip, str) else list(skip)
        if "" in skipped:
            raise ValueError("emulate: skip: expected names of modules such as ['lm_head'], got an empty one")
    policies = []
    for option, rows in (("skip", dict.fromkeys(skipped, kept)), ("layers", layers or {})):
        for written, text in rows.items():
            for pattern in _ampscope.expand_blocks(written, list(modules)):
                if not any(_ampscope.names_module(pattern, name) for name in modules):
                    raise ValueError(f"{option}: the model has no module {pattern!r}")
                policies.append((pattern, text))
    return policies


def emulated_precision(parameters):
    """The precision, as run.json describes it, in which a model with one of these parameters is emulated; or None."""
    return _machines[0]._emulation.described(parameters) if _machines else None
