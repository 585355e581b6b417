"""Outputs of modules and weights as the recorder takes them, against what the modules themselves return."""
import collections
import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ampscope  # noqa: E402
from networks import MLP, amp_loop, batches, plain_loop, prepared, recorded, tensors  # noqa: E402

BOTH = {"what": "both", "weights": True}


def of_step(run, step=0):
    return tensors(run / f"gradients/step_{step:06}.safetensors")


def log_of(run):
    """(step, tensor) -> line of histograms.jsonl."""
    return {(line["step"], line["tensor"]): line for line in ampscope.Run(run).histograms}


def trained(path, model, x, steps=1, **options):
    """Some steps of gradient descent on the sum of squares of what the model returns."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with recorded(path, model, optimizer, **options):
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()


def test_outputs_in_the_type_that_they_have(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        up = model.up(x)
        down = model.down(torch.relu(up))
    before = {name: p.detach().clone().numpy() for name, p in model.named_parameters()}
    scaler = torch.amp.GradScaler("cpu")
    with recorded(tmp_path, model, optimizer, scaler=scaler, **BOTH):
        amp_loop(model, optimizer, scaler, [(x, y)])
    metadata, kept = of_step(tmp_path)
    kinds = json.loads(metadata["kinds"])
    assert metadata["schema_version"] == "2" and set(kinds) == set(kept)
    assert collections.Counter(kinds.values()) == {"weight": 4, "weight_gradient": 4, "activation": 2,
                                                   "activation_gradient": 2}
    for name, output in (("up.out", up), ("down.out", down)):
        assert kinds[name] == "activation" and kept[name].dtype == np.float16
        assert kept[name].tobytes() == output.numpy().tobytes()
    for name, weight in before.items():
        assert kinds[name] == "weight" and kept[name].tobytes() == weight.tobytes()
    log = log_of(tmp_path)
    for name, tensor in kept.items():
        line = log[0, name]
        scaled = kinds[name].endswith("_gradient")
        assert (line["kind"], line["loss_scale"]) == (kinds[name], 65536 if scaled else 1)
        assert line["histogram"] == ampscope.histogram(tensor).scaled(-16 if scaled else 0)
        assert line["format"] == ("fp16" if tensor.dtype == np.float16 else "fp32")


@pytest.mark.parametrize("what, kinds", [("gradients", {"activation_gradient", "weight_gradient"}),
                                         ("outputs", {"activation", "weight_gradient"})])
def test_either(tmp_path, what, kinds):
    model, optimizer = prepared()
    with recorded(tmp_path, model, optimizer, what=what):
        plain_loop(model, optimizer, batches(2))
    assert set(json.loads(of_step(tmp_path, 1)[0]["kinds"]).values()) == kinds
    assert json.loads((tmp_path / "run.json").read_text())["recording"]["activations"] == what


@pytest.mark.parametrize("store", ["tensors", "histograms"])
def test_training_is_the_same_to_the_bit(tmp_path, store):
    states = []
    for path in (None, tmp_path):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu")
        if path:
            with recorded(path, model, optimizer, scaler=scaler, every=2, store=store, **BOTH):
                amp_loop(model, optimizer, scaler, batches(7), clip=0.5)
        else:
            amp_loop(model, optimizer, scaler, batches(7), clip=0.5)
        states.append([p.detach().clone() for p in model.parameters()] + [torch.rand(1)])
    assert all(torch.equal(a, b) for a, b in zip(*states))
    assert bool(list((tmp_path / "gradients").iterdir())) == (store == "tensors")


def test_histograms_are_those_of_the_tensors(tmp_path):
    for store in ("tensors", "histograms"):
        model, optimizer = prepared()
        with recorded(tmp_path / store, model, optimizer, store=store, **BOTH):
            plain_loop(model, optimizer, batches(3))
    assert (tmp_path / "tensors/histograms.jsonl").read_bytes() == (
        tmp_path / "histograms/histograms.jsonl").read_bytes()


def test_what_follows_in_place_changes_nothing(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    (x, _), = batches(1)
    with torch.no_grad():
        first = model[0](x).numpy()
    trained(tmp_path, model, x, what="outputs")
    kept = of_step(tmp_path)[1]
    assert np.array_equal(kept["0.out"], first) and (first < 0).any()
    assert np.array_equal(kept["1.out"], np.maximum(first, 0))


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    number: int
    right: torch.Tensor


class Split(nn.Module):
    """Returns the halves of an output in the container that `make` makes of them."""

    def __init__(self, make):
        super().__init__()
        self.linear, self.make = nn.Linear(4, 8), make

    def forward(self, x):
        return self.make(*self.linear(x).chunk(2, dim=1))


class Sum(nn.Module):
    def __init__(self, make, parts):
        super().__init__()
        self.split, self.parts = Split(make), parts

    def forward(self, x):
        return sum(self.parts(self.split(x)))


@pytest.mark.parametrize("make, parts", [
    (lambda a, b: (a, b), tuple), (lambda a, b: [a, [b]], lambda x: [x[0], *x[1]]),
    (lambda a, b: {"a": a, "b": b}, dict.values),
    (lambda a, b: collections.UserDict(a=a, b=b), lambda x: x.values()),
    (lambda a, b: Pair(a, 1, b), lambda x: (x.left, x.right))])
def test_outputs_in_containers(tmp_path, make, parts):
    model = Sum(make, parts)
    (x, _), = batches(1)
    left, right = model.split.linear(x).detach().chunk(2, dim=1)
    trained(tmp_path, model, x, activations="split", what="outputs")
    kept = of_step(tmp_path)[1]
    assert {name for name in kept if ".out" in name} == {"split.out", "split.1.out"}
    assert np.array_equal(kept["split.out"], left.numpy()) and np.array_equal(kept["split.1.out"], right.numpy())


class Tied(nn.Module):
    """One layer, called three times."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


def test_every_call_counts(tmp_path):
    model = Tied()
    (x, _), = batches(1)
    outputs = [x]
    with torch.no_grad():
        for _ in range(3):
            outputs.append(model.layer(outputs[-1]))
    trained(tmp_path, model, x, **BOTH)
    kept = of_step(tmp_path)[1]
    # In the order in which their gradients come by: the last call first.
    for name, output in zip(("layer@3", "layer@2", "layer"), outputs[1:]):
        assert np.array_equal(kept[name + ".out"], output.numpy()) and name + ".out.grad" in kept
    assert log_of(tmp_path)[0, "layer.out"]["histogram"] == ampscope.histogram(np.stack(outputs[1:]))
    assert sum(name.endswith("weight") for name in kept) == 1


class Repeated(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))

    def forward(self, x):
        x = x.clone().requires_grad_()
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_computes_twice_counts_once(tmp_path, reentrant):
    (x, _), = batches(1)
    for path, kind in (("plain", None), ("checkpoint", reentrant)):
        torch.manual_seed(3)
        trained(tmp_path / path, Repeated(kind), x, steps=2, what="both")
    plain, repeated = log_of(tmp_path / "plain"), log_of(tmp_path / "checkpoint")
    assert len([name for _, name in plain if name.endswith(".out")]) == 8
    assert plain == repeated


def test_evaluation_does_not_count(tmp_path):
    for path, evaluates in (("plain", False), ("evaluated", True)):
        model, optimizer = prepared()
        with recorded(tmp_path / path, model, optimizer, what="both"):
            for batch in batches(2):
                if evaluates:
                    with torch.no_grad():
                        model(batch[0] * 2)
                    with torch.inference_mode():
                        model(batch[0] * 3)
                    model.eval()
                    model(batch[0] * 4)  # builds a graph, of which nothing comes
                    model.train()
                plain_loop(model, optimizer, [batch])
    assert log_of(tmp_path / "plain") == log_of(tmp_path / "evaluated")


def test_a_graph_that_is_gone_through_twice(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path, model, optimizer, what="both"):
        optimizer.zero_grad()
        out = model(x)
        F.cross_entropy(out, y).backward(retain_graph=True)
        out.pow(2).sum().backward()
        optimizer.step()
    log = log_of(tmp_path)
    assert log[0, "down.out"]["histogram"] == ampscope.histogram(out.detach().numpy())
    assert log[0, "down.out.grad"]["histogram"].count == 2 * out.numel()


def test_another_network_between_forward_and_backward(tmp_path):
    model, optimizer = prepared()
    other = MLP()
    (x, y), = batches(1)
    with recorded(tmp_path, model, optimizer, what="outputs"):
        optimizer.zero_grad()
        out = model(x)
        F.cross_entropy(other(x), y).backward()
        F.cross_entropy(out, y).backward()
        optimizer.step()
    assert log_of(tmp_path)[0, "down.out"]["histogram"] == ampscope.histogram(out.detach().numpy())


def test_weights_are_those_before_the_step(tmp_path):
    model = MLP()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    (x, y), = batches(1)
    before = model.up.weight.detach().clone().numpy()

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with recorded(tmp_path, model, optimizer, weights=True):
        optimizer.step(closure)
    assert np.array_equal(of_step(tmp_path)[1]["up.weight"], before)
    assert not np.array_equal(model.up.weight.detach().numpy(), before)


def test_options_that_mean_nothing(tmp_path):
    def refused(error, match, **options):
        with pytest.raises(error, match=match):
            ampscope.torch.record(tmp_path / "run", *prepared(), **options)
        assert not (tmp_path / "run").exists()

    refused(ValueError, "what: expected gradients or outputs or both, got 'all'", activations=True, what="all")
    refused(ValueError, "store: expected tensors or histograms, got 'disk'", store="disk")
    refused(ValueError, "what: outputs of no module; activations= says of which", what="outputs")
    refused(TypeError, 'histograms_only: write store="histograms"', histograms_only=True)
