"""Trainings of a small GPT and a small CNN in FP32, TF32 and mixed precision: losses of 100 steps.

The networks, their initial weights and their data are those of ../training.py. train() runs on a processor as well,
under ampscope.torch.emulate if it is asked to.
"""
import contextlib

import torch

import training

from .recording import digest
from .records import bits, setting

PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16")
NETWORKS = {  # network, data, optimizer
    "gpt": (lambda p, x, y: training.gpt(p, x, y, width=64, heads=4), lambda: training.modular(13),
            lambda p: torch.optim.AdamW(p, lr=3e-3)),
    "cnn": (training.cnn, training.digits, lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.9)),
}
BATCH = 32


class Network(torch.nn.Module):
    """A network of ../training.py, which asks for its parameters by name and returns its loss."""

    def __init__(self, network, x, y):
        super().__init__()
        self.network = network
        made = training.Parameters()
        network(made, x[:1], y[:1])
        self.named = torch.nn.ParameterDict({name.replace(".", "_"): p for name, p in made.named.items()})

    def forward(self, x, y):
        return self.network(lambda name, *_: self.named[name.replace(".", "_")], x, y)


@contextlib.contextmanager
def _settings(precision):
    with setting(torch.backends.cudnn, "deterministic", True), setting(torch.backends.cudnn, "benchmark", False), \
            setting(torch.backends.cudnn, "allow_tf32", precision == "tf32"):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def train(name, precision, device, around=None, region=None, steps=training.STEPS):
    """The losses as FP32 numbers, the scales, and the weights at the end. `around`, if given, makes of the model a
    context in which it trains; `region` is the device of torch.autocast and GradScaler, if it is another one."""
    network, data, optimizer_of = NETWORKS[name]
    x, y = (torch.from_numpy(part) for part in data())
    model = Network(network, x, y).to(device)
    batches = training.shuffled(len(x), BATCH)[:steps]
    x, y = x.to(device), y.to(device)
    dtype = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision)
    region = region or device
    losses, scales = [], []
    with _settings(precision), around(model) if around else contextlib.nullcontext():
        optimizer = optimizer_of(model.parameters())
        scaler = torch.amp.GradScaler(region, enabled=precision == "amp-fp16")
        for examples in batches:
            examples = torch.from_numpy(examples).to(device)
            with torch.autocast(region, dtype) if dtype else contextlib.nullcontext():
                loss = model(x[examples], y[examples])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach().float())
            scales.append(scaler.get_scale())
    return torch.stack(losses), scales, torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def record(recorder, device):
    for name in NETWORKS:
        for precision in PRECISIONS:
            def said():
                losses, scales, weights = train(name, precision, device)
                again, _, weights_again = train(name, precision, device)
                return {"losses": recorder.keep(losses), "weights": {"sha": digest(bits(weights))},
                        "repeats": torch.equal(losses, again) and torch.equal(weights, weights_again),
                        "scales": sorted(set(scales)), "last": float(losses[-1])}

            recorder.case(said, network=name, precision=precision)
