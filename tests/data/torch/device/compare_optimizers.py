"""Which of ours steps as a device's optimizers did: a row of ampscope.optimizers, with contracted products or without.
"""
import collections
import functools
import itertools

import ampscope
import numpy as np

from .distances import described
from .optimizers import FOUND_EVERY, SCALE, SHOWN, inputs
from .records import bits, rounded

ROWS = {kind: [kind, f"{kind}-fused", f"{kind}-fused-cpu", f"{kind}-1", f"apex-{kind}"]
        for kind in ("sgd", "adam", "adamw")}
UNSCALED = {  # what may become of a gradient that is divided by a scale
    "": lambda g, dtype: g / np.float32(SCALE),
    ", times the reciprocal": lambda g, dtype: g * (np.float32(1) / np.float32(SCALE)),
    ", the gradient rounded": lambda g, dtype: rounded(g / np.float32(SCALE), dtype).float().numpy(),
}


@functools.cache
def steps(row, contract, options, dtype, end):
    """Bits of weights and state after the steps that are shown. `end`: a row of UNSCALED; None if nothing is scaled."""
    options, unscaled = dict(options), None if end is None else UNSCALED[end]
    weights, gradients = (rounded(x, dtype).float().numpy() for x in inputs())
    ours = ampscope.Optimizer(weights, row, lr=options["lr"], betas=options.get("betas", (0.9, 0.999)),
                              eps=options.get("eps", 1e-8), weight_decay=options.get("weight_decay", 0.0),
                              momentum=options.get("momentum", 0.0), weight_format=dtype, state_format=dtype)
    o = ours._update.options
    ours._update = ampscope._ampscope.optimizer_update(
        row, o.learning_rate, o.beta1, o.beta2, o.eps, o.weight_decay, o.momentum, "nearest", 0.0, False, 32, contract)
    found = {}
    for step in range(1, len(gradients) + 1):
        gradient = gradients[step - 1]
        if not unscaled:
            ours.step(gradient)
        elif step % FOUND_EVERY:
            ours.step(unscaled(gradient, dtype))
        if step in SHOWN:
            rows = [x for x in (ours.weight, ours.m, ours.v) if x.size]
            found[step] = bits(rounded(np.stack(rows), dtype))
    return found


def optimizers(recording):
    """A line a case: the rows that give all its bits; or until which step the nearest does, and how far it is off."""
    groups = collections.defaultdict(list)
    for case in recording.cases:
        kind = case["optimizer"]
        options = " ".join(f"{key}={value}" for key, value in case["options"].items())
        asked = f"{case['dtype']} {kind} {options}"
        if "error" in case:
            groups[asked, "error: " + case["error"]].append(case["way"])
            continue
        given = {int(step): recording.bits(said) for step, said in case["state"].items()}
        whole, near = [], []
        options = tuple((key, tuple(x) if isinstance(x, list) else x) for key, x in case["options"].items())
        rows = [row for row in ROWS[kind] if row in ampscope.optimizers]
        ends = UNSCALED if "scaled" in case["way"] else [None]
        for row, contract, end in itertools.product(rows, (False, True), ends):
            ours = steps(row, contract, options, case["dtype"], end)
            name = row + (" contracted" if contract else "") + (end or "")
            good = [step for step in given if np.array_equal(ours[step], given[step])]
            if len(good) == len(given):
                whole.append(name)
            else:
                first = min(step for step in given if step not in good)
                near.append((-len(good), np.count_nonzero(ours[first] != given[first]),
                             f"{name}: differs from step {first} on, {_by_row(ours, given, first)}"))
        text = f"= {', '.join(whole)}" if whole else "NONE; " + min(near)[2]
        groups[asked, text].append(case["way"])
    for (asked, text), ways in groups.items():
        yield f"{asked}: {text}: {'; '.join(ways)}"


def _by_row(ours, given, first):
    """Of weights and each state, at the first step that differs and at the last."""
    return "; ".join(f"step {step} " + ", ".join(
        f"{name} {described(a, b)}" for name, a, b in zip(("weight", "m", "v"), ours[step], given[step])
        if not np.array_equal(a, b)) for step in dict.fromkeys((first, max(given))))
