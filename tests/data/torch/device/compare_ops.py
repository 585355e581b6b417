"""How far a device's softmax, normalization, activations, losses, attention and trainings are from ours."""
from typing import NamedTuple

import ampscope.torch
import numpy as np
import torch

from . import attention as attentions
from . import elementwise as ops
from . import trained as trainings
from .distances import Distance, distance
from .records import bits, rounded
from .rules import values_of

# Ops that amp-train has; of the others emulate() leaves PyTorch's.
OURS = ("softmax", "softmax to fp32", "layer_norm", "gelu", "gelu_tanh", "sigmoid", "tanh", "cross_entropy")
EMULATED = {
    "fp32": ["fp32"],
    "tf32": ["tf32,accumulate=hopper-wgmma-tf32"],
    "amp-fp16": ["amp-fp16,accumulate=hopper-wgmma-fp16", "amp-fp16"],
    "amp-bf16": ["amp-bf16,accumulate=hopper-wgmma-bf16", "amp-bf16"],
}


class Calls(torch.nn.Module):
    """What emulate() takes: a module whose forward is a function."""

    def __init__(self, call):
        super().__init__()
        self.call, self.parameter = call, torch.nn.Parameter(torch.zeros(1))

    def forward(self):
        return self.call()


def emulated(call, precision="fp32", **options):
    module = Calls(call)
    with ampscope.torch.emulate(module, precision, threads=1, **options):
        return module()


def _kept(tensor, said):
    """Bits of ours, of what is kept of the device's and in its type."""
    wide = tensor.detach().double().numpy()
    with np.errstate(over="ignore"):
        codes = bits(torch.from_numpy(wide.astype(np.float16)) if said["type"] == "fp16"
                     else rounded(wide.astype(np.float32), said["type"]))
    return codes[said["rows"]] if "rows" in said else codes


def _kept_values(tensor, said):
    return values_of(_kept(tensor, said), said["type"]).astype(np.float64)


class Measured(NamedTuple):
    """How far a tensor is from ours (None if we have none), and from FP64 rounded once; and the largest errors of the
    device's and ours as shares of the largest number."""
    ours: Distance
    exact: Distance
    error: float
    our_error: float

    def __str__(self):
        texts = [] if self.ours is None else [f"ours: {self.ours}"]
        error = f"largest error {self.error:.2g} of the largest number"
        return "; ".join([*texts, f"FP64: {self.exact}",
                          error if self.ours is None else f"{error}, ours {self.our_error:.2g}"])


def _measured(recording, said, ours, exact):
    given, wanted = recording.bits(said), _kept_values(exact, said)
    finite = np.isfinite(wanted)
    size = np.abs(wanted[finite]).max()

    def error_of(values):
        return float(np.abs(values[finite] - wanted[finite]).max() / size)

    return Measured(None if ours is None else distance(_kept(ours, said), given), distance(_kept(exact, said), given),
                    error_of(recording.values(said)), 0.0 if ours is None else error_of(_kept_values(ours, said)))


def elementwise_measured(recording):
    """Cases, names of their tensors, and the distances of these to ours (the trainer's ops, which round once from more
    bits, where it has one), and to FP64 rounded once."""
    for case in recording.cases:
        op, shape, dtype = case["op"], tuple(case["shape"]), case["dtype"]
        if "error" in case:
            continue
        ours = emulated(lambda: ops.compute(op, shape, dtype, "cpu"), strict="ops")
        exact = ops.compute(op, shape, dtype, "cpu", wide=True)
        for name in [key for key in ours if key in case]:
            yield case, name, _measured(recording, case[name], ours[name] if op in OURS else None, exact[name])


def attention_measured(recording):
    """The same for attention; ours is emulated with the sums of Hopper's tensor cores."""
    for case in recording.cases:
        if "error" in case:
            continue
        shape, dtype = tuple(case["shape"]), case["dtype"]
        ours = emulated(lambda: attentions.compute(shape, dtype, case["causal"], "cpu"),
                        f"fp32,accumulate=hopper-wgmma-{dtype}")
        exact = attentions.compute(shape, dtype, case["causal"], "cpu", wide=True)
        for name in [key for key in ours if key in case]:
            rows = [t[name].reshape(-1, shape[-1]) for t in (ours, exact)]
            yield case, name, _measured(recording, case[name], *rows)


def _errors(recording, asked_of):
    yield from (f"{asked_of(case)}: error: {case['error']}" for case in recording.cases if "error" in case)


def elementwise(recording):
    def asked_of(case):
        return f"{case['op']} {case['dtype']} {'x'.join(map(str, case['shape']))}"

    for case, name, measured in elementwise_measured(recording):
        yield f"{asked_of(case)} {name}: {measured}"
    yield from _errors(recording, asked_of)


def attention(recording):
    def asked_of(case):
        causal = ", causal" if case["causal"] else ""
        return f"{case['backend']} {case['dtype']} {'x'.join(map(str, case['shape']))}{causal}"

    for case, name, measured in attention_measured(recording):
        yield f"{asked_of(case)} {name}: {measured}"
    for case in recording.cases:
        if "error" not in case:
            yield f"{asked_of(case)}: {'the same' if case['repeats'] else 'NOT the same'} a second time"
    yield from _errors(recording, asked_of)


def training_compared(case, losses):
    """Of a recorded training: the name of each other run, its losses, and how many of the first ones are equal."""
    runs = {row: lambda model, row=row: ampscope.torch.emulate(model, row, threads=1)
            for row in EMULATED[case["precision"]]}
    for name, around in ({"this processor": None} | runs).items():
        ours = trainings.train(case["network"], case["precision"], "cpu", around, "cuda" if around else "cpu")
        ours = ours[0].double().numpy()
        yield name, ours, int(np.argmax(ours != losses)) if (ours != losses).any() else len(losses)


def trained(recording):
    """Losses beside those of the emulated training with the matching sums, and of PyTorch's on this processor."""
    for case in recording.cases:
        asked = f"{case['network']} {case['precision']}"
        if "error" in case:
            yield f"{asked}: error: {case['error']}"
            continue
        losses = recording.values(case["losses"]).astype(np.float64)
        yield (f"{asked}: {losses[0]:.9g} ... {losses[-1]:.9g}, scales {case['scales']}, "
               f"{'the same' if case['repeats'] else 'NOT the same'} a second time")
        for name, ours, same in training_compared(case, losses):
            error = np.abs(ours - losses) / losses
            yield (f"  {name}: the first {same} losses are equal; off by {error[0]:.2g} at first, {error[9]:.2g} at "
                   f"step 10, {error[-1]:.2g} at the end, at most {error.max():.2g}")
