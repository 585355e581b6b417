"""Weights and state of torch.optim's optimizers over 1,000 steps of gradients of all magnitudes."""
import functools

import numpy as np
import torch

from optimizer import Stream

from .records import rounded

COUNT, STEPS, SHOWN, SCALE, FOUND_EVERY = 64, 1000, (1, 2, 3, 10, 100, 1000), 1000.0, 7
ADAM = {"betas": (0.9, 0.999)}
CASES = [
    ("adam", {**ADAM, "lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0}),
    ("adam", {**ADAM, "lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}),
    ("adamw", {**ADAM, "lr": 1e-3, "eps": 1e-8, "weight_decay": 0.01}),
    ("sgd", {"lr": 1e-2}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.05}),
]
MAKE = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
WAYS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
        "fused, scaled": {"fused": True}, "capturable": {"foreach": False, "capturable": True},
        "foreach, capturable": {"foreach": True, "capturable": True}}
FACTORS = np.ldexp(np.float32(1), -2 * np.arange(COUNT)).astype(np.float32)  # of gradients: to 2^-126


@functools.cache
def inputs():
    """FP32 weights, and gradients of all steps."""
    stream = Stream(COUNT)
    weights = stream.next(3).numpy()
    return weights, np.stack([stream.next(12).numpy() * FACTORS for _ in range(STEPS)])


def _run(recorder, device, kind, options, way, dtype):
    """Two tensors, of 40 and 24 elements. With a scale, gradients are divided by it, and some steps are skipped."""
    weights, gradients = inputs()
    parameters = [torch.nn.Parameter(rounded(part, dtype).to(device)) for part in np.split(weights, [40])]
    parts = [rounded(part, dtype).to(device) for part in np.split(gradients, [40], 1)]
    optimizer = MAKE[kind](parameters, **options, **WAYS[way])
    scaled = way == "fused, scaled"
    if scaled:
        optimizer.grad_scale = torch.tensor(SCALE, device=device)
    said = {"state": {}}
    for step in range(1, STEPS + 1):
        for p, part in zip(parameters, parts):
            p.grad = part[step - 1].clone()
        if scaled:
            optimizer.found_inf = torch.tensor(float(step % FOUND_EVERY == 0), device=device)
        optimizer.step()
        if step in SHOWN:
            state = [optimizer.state[p] for p in parameters]
            rows = [torch.cat([p.detach() for p in parameters])]
            rows += [torch.cat([s[name] for s in state]) for name in ("exp_avg", "exp_avg_sq", "momentum_buffer")
                     if state[0].get(name) is not None]
            said["state"][step] = recorder.keep(torch.stack(rows))
    return said


def record(recorder, device):
    for dtype in ("fp32", "bf16"):
        for way in WAYS:
            for kind, options in CASES:
                if kind == "sgd" and "capturable" in way:
                    continue
                recorder.case(lambda: _run(recorder, device, kind, options, way, dtype), optimizer=kind,
                              options=options, way=way, dtype=dtype)
