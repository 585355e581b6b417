"""Checks of lab 11: a model of PyTorch under emulation. The oracles are ampscope.torch's emulate and compare, which the
tests of the package hold to amp-train's own networks. PyTorch is imported where it is used."""
import contextlib
import math

import numpy as np

from .._conversions import quantize
from ._exercises import Wrong, call, entry, exercise, hints, number
from .lab9 import require_torch

STEPS = 80
LEARNING_RATE = 0.005
FP8 = "fp8-current"
FORMATS = ("blocks.0.up, forward", "blocks.0.up, backward", "head, forward", "head, backward")
LEAST_FP8, MOST_ERROR, MOST_LOSS = 0.95, 0.06, 1.25  # what exercise 11.5 asks for; the last of FP32's


def network():
    """The checkpoint of this lab, always with the same weights: two residual blocks with SwiGLU. Channel 0 belongs to
    the flag, input 15, alone; in block 1 it has grown as in trained language models."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.RMSNorm(64)
            self.gate = torch.nn.Linear(64, 128, bias=False)
            self.up = torch.nn.Linear(64, 128, bias=False)
            self.down = torch.nn.Linear(128, 64, bias=False)

        def forward(self, x):
            h = self.norm(x)
            return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(16, 64, bias=False)
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.norm, self.head = torch.nn.RMSNorm(64), torch.nn.Linear(64, 16)

        def forward(self, x):
            x = self.embed(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(11)
    model = Network()
    with torch.no_grad():
        for weight in (model.embed.weight, model.blocks[0].down.weight, model.blocks[1].down.weight):
            weight[0] = 0
        model.embed.weight[:, 15] = model.head.weight[:, 0] = 0
        model.embed.weight[0, 15] = 50
        for weight in (model.blocks[1].gate.weight, model.blocks[1].up.weight):
            weight[7] = 0
            weight[7, 0] = 200
    return model


def batches():
    """What it learns, always the same: STEPS pairs of 128 records and 16 numbers that depend on them. Of each batch the
    first record has the flag, input 15, and nothing else."""
    import torch
    generator = torch.Generator().manual_seed(11)
    directions = torch.randn(15, 16, generator=generator) / 2.5
    for _ in range(STEPS):
        x = torch.randn(128, 16, generator=generator)
        x[:, 15] = 0
        x[0] = torch.eye(16)[15]
        yield x, torch.sin(x[:, :15] @ directions)


def loss_of(model, batch):
    """The mean of squared errors over the records without the flag."""
    x, y = batch
    return ((model(x) - y) ** 2)[x[:, 15] == 0].mean()


def operands(name):
    """What a layer of the checkpoint multiplies in its first step in FP32: a dict of its "input", its "weight", and
    the "gradient" of its output, as arrays of NumPy."""
    model, seen = network(), {}
    layer = model.get_submodule(name)

    def watch(layer, inputs, output):
        seen["input"] = inputs[0].detach().numpy()
        output.register_hook(lambda gradient: seen.update(gradient=gradient.numpy()))
    layer.register_forward_hook(watch)
    loss_of(model, next(batches())).backward()
    return {"input": seen["input"], "weight": layer.weight.detach().numpy(), "gradient": seen["gradient"]}


def errors(layers):
    """How far the gradient of the whole model is from FP32's in the first step, in FP8 but for what is said of these
    layers, and which share of the multiply-adds has operands in FP8. Gradients that are not finite are infinitely far
    away."""
    from ..torch import compare, emulate
    model = network()
    result = compare(model, next(batches()), loss_of, FP8, effects=False, layers=layers)
    with emulate(model, FP8, layers=layers) as machine:
        loss_of(model, next(batches())).backward()
    gradient = result.findings.precisions[0].gradient
    return math.inf if gradient.nonfinite else gradient.relative, _share(machine.coverage())


def end(losses):
    """Where a training ends: the mean of its last ten losses."""
    return sum(losses[-10:]) / 10


def _share(coverage):
    """Of multiply-adds, those with both operands in FP8."""
    eight = [row["multiply_adds"] for row in coverage if all(f in ("e4m3", "e5m2") for f in _formats(row))]
    return sum(eight) / coverage.multiply_adds


def _formats(row):
    return row["operands"].split(" x ")


@contextlib.contextmanager
def _one_thread():
    """Several threads make so small a network slower. A machine that a student's function leaves open is closed."""
    import torch

    from ..torch import _emulate
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
        if _emulate._machines:
            raise Wrong("the machine is still open: call its close() after the loop, or use it in a `with`")
    finally:
        torch.set_num_threads(threads)
        for machine in list(_emulate._machines):
            machine.close()


def losses(precision, **options):
    """The losses of the checkpoint in STEPS steps of training in a precision; options as emulate has them."""
    import torch

    from ..torch import emulate
    model, losses = network(), []
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    with emulate(model, precision, **options):
        for batch in batches():
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def _shown(precision, options):
    return f"train({precision!r}" + "".join(f", {key}={value!r}" for key, value in options.items()) + ")"


@exercise("11.1")
def emulated(train):
    """the loop is as it was, and its losses are those of the precision that was asked for."""
    require_torch()
    if not callable(train):
        raise Wrong(f"expected a function, got {train!r}")
    references = []
    for precision, options in (("fp32", {}), (FP8, {}), (FP8, {"layers": {"embed": "fp32"}})):
        shown = _shown(precision, options)
        with _one_thread():
            references.append(losses(precision, **options))
            got = call(lambda p, options=options: train(p, **options), precision)
        if not isinstance(got, (tuple, list)) or len(got) != 2 or not hasattr(got[1], "multiply_adds"):
            raise Wrong(f"{shown}: return the losses, and what the machine's coverage() gives")
        found, coverage = got
        if len(found) != STEPS:
            raise Wrong(f"{shown}: it gives {len(found)} losses, not {STEPS}: one of each step")
        if not coverage:
            raise Wrong(f"{shown}: no product ran in the machine: it has to be open while the loop runs, and it has to "
                        "be given the model that is trained")
        same = [i for i, reference in enumerate(references) if np.allclose(found, reference, rtol=1e-6)]
        if len(references) - 1 not in same:
            raise Wrong(f"{shown}: these are not the losses of this precision" + (
                ", but those of FP32: hand the precision on" if 0 in same else
                ", but those without these options: hand **options on" if same else
                f": the first is {found[0]:.6g}, not {references[-1][0]:.6g}. Train the model of network() with learn"))


@exercise("11.2")
def predicted(formats):
    """inputs and weights in E4M3, gradients in E5M2, which has more range; the head, whose errors go into every loss,
    is left out of a recipe and runs as autocast has it."""
    right = dict(zip(FORMATS, ("e4m3 x e4m3", "e5m2 x e4m3", "bf16 x bf16", "bf16 x bf16")))
    for case, wanted in right.items():
        got = entry(formats, case, f"there is no answer for {case!r} yet: two formats, such as 'fp32 x fp32'")
        if not isinstance(got, str) or " ".join(got.lower().split()) != wanted:
            raise Wrong(f"{case}: the operands are not {got!r}: " + (
                "the head is not scaled, unless it is asked for, and what is not scaled runs under autocast"
                if "head" in case else "the first operand of backward's products is a gradient, which needs range more "
                "than precision" if "backward" in case else "the recipe casts what the layer multiplies: its input and "
                "its weight"))


@exercise("11.3")
def share(fp8):
    """work that did not run in FP8 shows in no loss curve; it shows here."""
    require_torch()
    from ..torch._coverage import Coverage
    rows = [("e4m3 x e4m3", 350), ("e5m2 x e4m3", 250), ("bf16 x bf16", 240), ("e4m3 x bf16", 100), ("fp32 x fp32", 60)]
    for kept, wanted, what in ((5, 0.6, ""), (1, 1.0, ", all of them in E4M3")):
        table = Coverage([{"module": "x", "op": "linear", "operands": operands, "how": "as asked", "calls": 1,
                           "multiply_adds": n} for operands, n in rows[:kept]], [])
        got = number("fp8", call(fp8, table))
        if not math.isclose(got, wanted, rel_tol=1e-9):
            raise Wrong(f"for a table of {table.multiply_adds} multiply-adds{what}, it is {wanted}, not {got:.6g}: " + (
                "a product with one operand in BF16 runs in BF16" if math.isclose(got, 0.7) else
                "this is a percentage, and a share is asked for" if math.isclose(got, 100 * wanted) else
                "gradients are cast to E5M2, which is an FP8 format, too" if math.isclose(got, 0.35) else
                "rows count by their multiply_adds, not each as one" if math.isclose(got, 2 / 5) else
                "add up the multiply_adds of the rows whose operands are both E4M3 or E5M2, and divide by all"))


@exercise("11.4")
def suspect(module, operand, lost):
    """one element, millions of times as large as the others, sets the scale of the whole tensor, and the others become
    zero: the layer does nothing any more."""
    require_torch()
    for name, answer, known in (("module", module, [n for n, m in network().named_modules() if hasattr(m, "weight")]),
                                ("operand", operand, ["input", "weight", "gradient"])):
        if answer not in known:
            raise Wrong(f"{name}: expected one of {', '.join(known)}, got {answer!r}")
    for what, x in (("numbers of one size", np.float32([1, -2, 0, 0.5])),
                    ("an outlier", np.float32([1e6, 3.0, 0, -3.0, 0.01, 1e5]))):
        some = x[x != 0]
        wanted = float((quantize(some * (np.float32(448) / np.abs(x).max()), "e4m3") == 0).mean())
        got = number("lost", call(lost, x))
        if not math.isclose(got, wanted, abs_tol=1e-9):
            raise Wrong(f"lost: {what}, {x.tolist()}: it is {wanted:.6g}, not {got:.6g}: of the elements that are not "
                        "zero, those that E4M3 makes zero after the largest magnitude was taken to 448")
    if module != "blocks.1.down":
        raise Wrong(f"module is not {module!r}: which module, alone in FP8, moves the model's gradient most? It is the "
                    "first of the table")
    if operand != "input":
        raise Wrong(f"operand is not {operand!r}: apply `lost` to the three of operands({module!r}), and compare")


@exercise("11.5")
def decision(layers):
    """a scale of its own for each 32 numbers, and the outlier costs its own block only: the layer stays in FP8, and
    the gradient is as near as FP8 can bring it."""
    require_torch()
    if not isinstance(layers, dict) or not layers:
        raise Wrong(f"expected a dict such as {{'head': 'fp32'}}, got {layers!r}")
    with _one_thread():
        error, kept = errors(layers)
        ends = end(losses("fp32")), end(losses(FP8, layers=layers))
    said = f"the gradient is {100 * error:.1f} % away from FP32's, {100 * kept:.1f} % of the multiply-adds are in FP8"
    if kept < LEAST_FP8:
        raise Wrong(f"{said}: that is too little FP8. " + (
            "The layer is the right one: is there a recipe in FP8 whose scales belong to fewer elements?"
            if error <= MOST_ERROR else "Change the layer that hurts, and no other."))
    if not error <= MOST_ERROR:
        raise Wrong(f"{said}: the layer that hurts still has one scale for its whole input, or none")
    if not ends[1] <= MOST_LOSS * ends[0]:
        raise Wrong(f"in the first step all is well, but the training ends at a loss of {ends[1]:.3g}, FP32's at "
                    f"{ends[0]:.3g}: a scale that follows from earlier steps knows the outlier from the second on")


hints.update({
    "11.1": (
        "ampscope.torch.emulate(model, precision, **options) gives a machine, which is open from then on until its "
        "close(). What has to happen meanwhile?",
        "Use it in a `with ... as machine:`, call learn(model) in there, and return its losses together with "
        "machine.coverage()."),
    "11.2": (
        "Lab 7: which format is for precision, and which for range? And what does help(ampscope.torch.emulate) say of "
        "skip=, where it is not given?",
        "Forward multiplies input and weight. Backward multiplies the gradient of the output with the weight, and with "
        "the input. The head is left to autocast."),
    "11.3": (
        "Each row is a dict with \"operands\", such as 'e5m2 x e4m3', and \"multiply_adds\".",
        "Add up row[\"multiply_adds\"] of the rows in whose operands every format is one of FP8's two, and divide by "
        "coverage.multiply_adds."),
    "11.4": (
        "The table of compare() begins with the module that has the largest effect. For `lost`, take the largest "
        "magnitude to 448 as in lab 7, and cast.",
        "operands(module) has three arrays; print lost of each. Most of the weight and of the gradient survives."),
    "11.5": (
        "layers={NAME: \"bf16\"} would do for the gradient, but takes a sixth of the work out of FP8. Which of lab 7's "
        "ways to scale confines an outlier?",
        "A policy may name another recipe for one layer: a precision whose blocks have 32 elements."),
})
