"""Dtypes of results under torch.autocast, by real calls, in lines as in ../autocast_calls.txt; and casts of weights."""
import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .records import attempt, notes_of, rounded
from .rules import normal

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Casts(TorchDispatchMode):
    """Counts the casts of tensors of one shape."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.dtypes = tuple(shape), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten._to_copy and tuple(args[0].shape) == self.shape:
            self.dtypes.append(str(result.dtype).removeprefix("torch."))
        return result


def _cached(recorder, device, dtype, cached):
    """Three uses of a weight in a region: its casts, and the gradient, a sum of three contributions."""
    x = [rounded(normal(100 + i, 8, 32), "fp32").to(device) for i in range(3)]
    weight = torch.nn.Parameter(rounded(normal(103, 32, 16), "fp32").to(device))
    with Casts(weight.shape) as forward, torch.autocast(device, dtype, cache_enabled=cached):
        y = [a @ weight for a in x]
    with Casts(weight.shape) as backward:
        sum(a.float().sum() * (i + 1) / 3 for i, a in enumerate(y)).backward()
    return {"forward": forward.dtypes, "backward": backward.dtypes, "output": str(y[0].dtype),
            "gradient": recorder.keep(weight.grad)}


def _changed(device, dtype, cached):
    """Whether a product in the region sees the change of a weight after the first one."""
    x, weight = torch.ones(4, 4, device=device), torch.nn.Parameter(torch.ones(4, 4, device=device))
    with torch.autocast(device, dtype, cache_enabled=cached):
        before = x @ weight
        with torch.no_grad():
            weight.mul_(2)
        after = x @ weight
    with torch.autocast(device, dtype, cache_enabled=cached):
        next_region = x @ weight
    return {"sums": [float(y[0, 0]) for y in (before, after, next_region)]}


def _without_gradient_first(device, dtype, cached):
    """Whether a weight that was first cast under no_grad gets a gradient."""
    x, weight = torch.ones(4, 4, device=device), torch.nn.Parameter(torch.ones(4, 4, device=device))
    with torch.autocast(device, dtype, cache_enabled=cached):
        with torch.no_grad():
            x @ weight
        y = x @ weight
    if y.requires_grad:
        y.float().sum().backward()
    return {"requires_grad": y.requires_grad, "gradient": None if weight.grad is None else str(weight.grad.dtype)}


def record(recorder, device):
    for name, dtype in FORMATS.items():
        for cached in (True, False):
            recorder.case(lambda: _cached(recorder, device, dtype, cached), what="casts", format=name, cached=cached)
            recorder.case(lambda: _changed(device, dtype, cached), what="changed", format=name, cached=cached)
            recorder.case(lambda: _without_gradient_first(device, dtype, cached), what="no_grad first", format=name,
                          cached=cached)
    _lines(recorder, device)


def _lines(recorder, device):
    """The table of dtypes. An op that crashes the process, or after which the device does not work any more, is left
    out when the item begins anew: notes say which ops were begun and what they gave."""
    import autocast_calls
    if device == "cuda":
        torch.cuda.synchronize()  # what does not work now is no op's fault
    path = notes_of(recorder.folder, "autocast")
    before = open(path).read() if os.path.exists(path) else ""
    done = {(name, op): line or f"{device} {op} died" for name, op, line in
            (note.split("\t") for note in before.splitlines())}
    with open(path, "a") as notes:
        notes.write("\n" if before and not before.endswith("\n") else "")
        for name, dtype in FORMATS.items():
            torch.set_autocast_dtype(device, dtype)
            for op in sorted(autocast_calls.CALLS):
                if (name, op) in done or (device == "cuda" and "cpu" in op):
                    continue
                notes.write(f"{name}\t{op}\t")
                notes.flush()
                line, error = attempt(lambda: autocast_calls.line(device, op, real=True))
                done[name, op] = line or f"{device} {op} {error}"
                if device == "cuda" and attempt(torch.cuda.synchronize)[1]:
                    os._exit(1)
                notes.write(done[name, op] + "\n")
                notes.flush()
    recorder.facts["lines"] = {name: [done[key] for key in sorted(done) if key[0] == name] for name in FORMATS}
    os.remove(path)
