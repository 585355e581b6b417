"""torch.amp.GradScaler on the sequences of ../grad_scaler.py, and what optimizers make of what it finds."""
import time

import torch

import grad_scaler

from .records import rounded
from .rules import normal

MAKE = {"adam": lambda p, **ways: torch.optim.Adam(p, lr=1e-2, **ways),
        "adamw": lambda p, **ways: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, **ways),
        "sgd": lambda p, **ways: torch.optim.SGD(p, lr=1e-2, momentum=0.9, **ways)}
WAYS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
STEPS, FOUND = 40, {3: float("inf"), 4: float("nan"), 11: float("-inf"), 25: float("inf")}


def _handled(recorder, device, kind, way, unscales, dtype="fp32"):
    """A scaler's scale, tracker and the weights over steps some of which have a gradient that is not finite."""
    parameters = [torch.nn.Parameter(rounded(normal(200 + i, n), dtype).to(device)) for i, n in enumerate((40, 24, 5))]
    optimizer = MAKE[kind](parameters, **WAYS[way])
    scaler = torch.amp.GradScaler(device, init_scale=1000.0, growth_factor=1.5, backoff_factor=0.7, growth_interval=4)
    scaler.scale(torch.zeros(1, device=device))
    scales, trackers, weights, gradients = [], [], [], []
    for step in range(STEPS):
        for i, p in enumerate(parameters):
            p.grad = rounded(normal(210 + 3 * step + i, p.numel()), dtype).to(device)
        if step in FOUND:
            parameters[step % 3].grad[step % 5] = FOUND[step]
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler._scale.item())
        trackers.append(int(scaler._growth_tracker.item()))
        weights.append(torch.cat([p.detach().float() for p in parameters]))
        gradients.append(torch.cat([p.grad.float() for p in parameters]))
    return {"scales": recorder.keep(torch.tensor(scales)), "trackers": trackers,
            "weights": recorder.keep(torch.stack(weights), rows=[0, 3, STEPS - 1]),
            "gradients": recorder.keep(torch.stack(gradients), rows=[0, 3, STEPS - 1]),
            "steps": [float(optimizer.state[p].get("step", -1)) for p in parameters]}


def record(recorder, device):
    for kind in MAKE:
        for way in WAYS:
            for unscales in (False, True):
                for dtype in ("fp32", "bf16", "fp16"):
                    recorder.case(lambda: _handled(recorder, device, kind, way, unscales, dtype), what="optimizer",
                                  optimizer=kind, way=way, unscales=unscales, dtype=dtype)
    recorder.facts["hashes"] = hashes = []
    begin = time.monotonic()
    for number in range(3000 if device == "cuda" else 200):
        if time.monotonic() - begin > 30:
            break
        trace = [] if number < 24 else None
        hashes.append(f"{grad_scaler.sequence(number, device, trace):08x}")
        if trace:
            recorder.cases.append({"what": "sequence", "number": number, "scales_trackers": trace})
