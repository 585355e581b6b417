"""How far a device's softmax, normalization, activations, losses, attention and trainings are from ours."""
import ampscope.torch
import numpy as np
import torch

from . import attention as attentions
from . import elementwise as ops
from . import trained as trainings
from .distances import described
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
    codes = bits(torch.from_numpy(wide.astype(np.float16)) if said["type"] == "fp16"
                 else rounded(wide.astype(np.float32), said["type"]))
    return codes[said["rows"]] if "rows" in said else codes


def _kept_values(tensor, said):
    return values_of(_kept(tensor, said), said["type"]).astype(np.float64)


def _distances(recording, said, ours, exact):
    """In words: to ours (None if we have none) and to FP64 rounded once; and the error of both to the latter."""
    given, wanted = recording.values(said), _kept_values(exact, said)
    size = np.abs(wanted).max()
    texts = [] if ours is None else [f"ours: {described(_kept(ours, said), recording.bits(said))}"]
    texts.append(f"FP64: {described(_kept(exact, said), recording.bits(said))}")
    sets = [given] + ([] if ours is None else [_kept_values(ours, said)])
    errors = [f"{np.abs(x - wanted).max() / size:.2g}" for x in sets]
    texts.append(", ours ".join([f"largest error {errors[0]} of the largest number", *errors[1:]]))
    return "; ".join(texts)


def elementwise(recording):
    """The distance to ours (the trainer's ops, which round once from more bits, where it has one), and to FP64
    rounded once."""
    for case in recording.cases:
        op, shape, dtype = case["op"], tuple(case["shape"]), case["dtype"]
        asked = f"{op} {dtype} {shape[0]}x{shape[1]}"
        if "error" in case:
            yield f"{asked}: error: {case['error']}"
            continue
        ours = emulated(lambda: ops.compute(op, shape, dtype, "cpu"), strict="ops")
        exact = ops.compute(op, shape, dtype, "cpu", wide=True)
        for name, said in case.items():
            if name not in ours:
                continue
            yield f"{asked} {name}: {_distances(recording, said, ours[name] if op in OURS else None, exact[name])}"


def attention(recording):
    """The distance to the emulated attention with the sums of Hopper's tensor cores, and to FP64 rounded once."""
    for case in recording.cases:
        shape, dtype = tuple(case["shape"]), case["dtype"]
        asked = f"{case['backend']} {dtype} {'x'.join(map(str, shape))}{', causal' if case['causal'] else ''}"
        if "error" in case:
            yield f"{asked}: error: {case['error']}"
            continue
        ours = emulated(lambda: attentions.compute(shape, dtype, case["causal"], "cpu"),
                        f"fp32,accumulate=hopper-wgmma-{dtype}")
        exact = attentions.compute(shape, dtype, case["causal"], "cpu", wide=True)
        for name, said in case.items():
            if name not in ours:
                continue
            rows = [t[name].reshape(-1, shape[-1]) for t in (ours, exact)]
            yield f"{asked} {name}: {_distances(recording, said, *rows)}"
        yield f"{asked}: {'the same' if case['repeats'] else 'NOT the same'} a second time"


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
        runs = {row: lambda model, row=row: ampscope.torch.emulate(model, row, threads=1)
                for row in EMULATED[case["precision"]]}
        for name, around in ({"this processor": None} | runs).items():
            region = "cuda" if around else "cpu"
            ours = trainings.train(case["network"], case["precision"], "cpu", around, region)[0].double().numpy()
            error = np.abs(ours - losses) / losses
            same = int(np.argmax(ours != losses)) if (ours != losses).any() else len(losses)
            yield (f"  {name}: the first {same} losses are equal; off by {error[0]:.2g} at first, {error[9]:.2g} at "
                   f"step 10, {error[-1]:.2g} at the end, at most {error.max():.2g}")
