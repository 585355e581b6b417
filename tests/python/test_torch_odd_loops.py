"""Loops that are right but not ordinary: batches that are given up, gradients cleared in other ways, backward passes of
others."""
import math

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # noqa: E402  held since before a recorder is open

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import batches, gradient_norm, histograms, lines, prepared, recorded, tensors  # noqa: E402


def scaled_backward(model, x, y, scaler):
    with torch.autocast("cpu", torch.float16):
        out = model(x)
    loss = F.cross_entropy(out.float(), y)
    scaler.scale(loss).backward()
    return loss


@pytest.mark.parametrize("scaled", [False, True])
def test_a_batch_that_is_given_up_leaves_nothing(tmp_path, recwarn, scaled):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    wanted = []
    with recorded(tmp_path / "run", model, optimizer, scaler=scaler):
        for i, (x, y) in enumerate(batches(4)):
            optimizer.zero_grad()
            x = x * (math.nan if i == 1 else 1)
            loss = scaled_backward(model, x, y, scaler) if scaled else F.cross_entropy(model(x), y)
            loss if scaled else loss.backward()
            scaler.unscale_(optimizer)
            if not torch.isfinite(clip_grad_norm_(model.parameters(), 1e9)):
                scaler.update() if scaled else None
                continue
            wanted.append((loss.item(), gradient_norm(model)))
            scaler.step(optimizer)
            scaler.update()
    assert [(m["loss"], m["grad_norm"]) for m in lines(tmp_path / "run/metrics.jsonl")] == [
        pytest.approx(w, rel=1e-12) for w in wanted]
    assert not any(m["found_inf"] for m in lines(tmp_path / "run/metrics.jsonl")) and not list(recwarn)
    log = histograms(tmp_path / "run")
    assert {step for step, _ in log} == {0, 1, 2} and not any(line["histogram"].nan for line in log.values())
    assert len(lines(tmp_path / "run/histograms.jsonl")) == len(log)


def test_a_step_that_fails_is_begun_anew(tmp_path):
    class Fails(torch.optim.SGD):
        fail = True

        def step(self):
            if Fails.fail:
                Fails.fail = False
                raise RuntimeError("once")
            super().step()

    model, _ = prepared()
    torch.optim.SGD(model.parameters(), 0.1)  # torch then calls hooks of SGD's step and of the subclass's
    optimizer = Fails(model.parameters(), 0.1)
    wanted = []
    with recorded(tmp_path / "run", model, optimizer):
        for x, y in batches(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            try:
                gone = gradient_norm(model)
                optimizer.step()
                wanted.append((loss.item(), gone))
            except RuntimeError:
                pass
    log = lines(tmp_path / "run/metrics.jsonl")
    assert [m["step"] for m in log] == [0, 1, 2]
    assert [(m["loss"], m["grad_norm"]) for m in log] == [pytest.approx(w, rel=1e-12) for w in wanted]


@pytest.mark.parametrize("clear", ["optimizer", "model"])
def test_gradients_that_are_set_to_zero(tmp_path, clear):
    model, optimizer = prepared()
    owner = optimizer if clear == "optimizer" else model
    (x, y), (probe, z) = batches(2)
    F.cross_entropy(model(x), y).backward()
    with recorded(tmp_path / "run", model, optimizer):
        owner.zero_grad(set_to_none=False)
        F.cross_entropy(model(probe), z).backward()  # thrown away
        owner.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    line, = lines(tmp_path / "run/metrics.jsonl")
    assert line["loss"] == loss.item() and "micro_batches" not in line
    assert histograms(tmp_path / "run")[0, "up.out.grad"]["histogram"].count == 16 * 8


def test_backward_passes_of_others_do_not_count(tmp_path):
    """A discriminator: frozen while the generator learns through it, with a scaler of its own; and autograd.grad, as
    for gradient penalties and adversarial inputs."""
    torch.manual_seed(0)
    generator, model = nn.Linear(4, 4), nn.Linear(4, 1)
    other, optimizer = (torch.optim.SGD(m.parameters(), 0.1) for m in (generator, model))
    scaler, theirs = (torch.amp.GradScaler("cpu", init_scale=s) for s in (16.0, 65536.0))
    x = torch.randn(16, 4)
    with recorded(tmp_path / "run", model, optimizer, scaler=scaler):
        with torch.autocast("cpu", torch.float16):
            loss = F.softplus(-model(generator(x)).float()).mean()
        model.requires_grad_(False)
        theirs.scale(loss).backward()
        theirs.step(other)
        theirs.update()
        model.requires_grad_(True)
        optimizer.zero_grad()
        x.requires_grad_(True)
        torch.autograd.grad(scaler.scale(model(x).sum()), x)
        with torch.autocast("cpu", torch.float16):
            out = model(x.detach())
        out.retain_grad()
        scaler.scale(F.softplus(out.float()).mean()).backward()
        scaler.step(optimizer)
    line = histograms(tmp_path / "run")[0, "model.out.grad"]
    assert line["loss_scale"] == 16.0 and line["histogram"] == ampscope.histogram(out.grad.float().numpy())
    amax = lines(tmp_path / "run/metrics.jsonl")[0]["amax"]
    assert amax["activation_gradient"] == float(out.grad.abs().max()) / 16


def test_a_backward_that_fails_does_not_count(tmp_path):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise RuntimeError("out of memory")

    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer):
        with pytest.raises(RuntimeError, match="out of memory"):
            F.cross_entropy(model.down(torch.relu(Breaks.apply(model.up(x)))), y).backward()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert histograms(tmp_path / "run")[0, "down.out.grad"]["histogram"].count == 16 * 3


def test_scaled_losses_of_other_forms(tmp_path, recwarn):
    """Lists of losses, a loss that is divided in place, a root that is no scalar, a GradientEdge."""
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def losses():
        with torch.autocast("cpu", torch.float16):
            out = model(x).float()
        return F.cross_entropy(out, y), out.square().mean()

    def run_list():
        one, two = losses()
        torch.autograd.backward(scaler.scale([one, two]))
        return float(one.double() + two.double())

    def in_place():
        scaled = scaler.scale(losses()[0])
        scaled /= 4
        scaled.backward()
        return float(scaled) / 1024

    def vector():
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        scaler.scale(F.cross_entropy(out.float(), y, reduction="none")).backward(torch.full((16,), 1 / 16))

    def edge():
        torch.autograd.backward(torch.autograd.graph.get_gradient_edge(scaler.scale(losses()[0])), torch.ones(()))

    wanted = []
    with recorded(tmp_path / "run", model, optimizer, scaler=scaler):
        takes_edges = "GradientEdge" in str(torch.autograd.backward.__annotations__["tensors"])
        loops = (run_list, in_place, vector, edge) if takes_edges else (run_list, in_place, vector)
        for (x, y), loop in zip(batches(4), loops):
            optimizer.zero_grad()
            loss = loop()
            wanted.append((loss, gradient_norm(model) / 1024))
            scaler.step(optimizer)
            scaler.update()
    log = lines(tmp_path / "run/metrics.jsonl")
    assert [(m["loss"] and pytest.approx(m["loss"], rel=1e-6), pytest.approx(m["grad_norm"], rel=1e-12))
            for m in log] == wanted
    assert {m["scale"] for m in log} == {1024.0} and {m["loss"] for m in log[2:]} == {None}
    assert not [w for w in recwarn if issubclass(w.category, ampscope.torch.PrecisionWarning)]


@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_that_the_script_goes_on_with(tmp_path, scaled):
    """As it averages it over ranks, in place; what scale() gives is what it gives without a recorder."""
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    wanted = []
    with recorded(tmp_path / "run", model, optimizer, scaler=scaler, every=100):
        assert isinstance(scaler.scale([torch.ones(()), torch.ones(())]), list)
        for x, y in batches(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) if not scaled else scaled_backward(model, x, y, scaler)
            loss if scaled else loss.backward()
            wanted.append(loss.item())
            scaler.step(optimizer)
            scaler.update()
            averaged = loss.detach()
            averaged /= 2
    assert [m["loss"] for m in lines(tmp_path / "run/metrics.jsonl")] == wanted


def test_losses_of_16_bits_are_summed_in_64(tmp_path):
    model, optimizer = prepared()
    wanted = 0.0
    with recorded(tmp_path / "run", model, optimizer, activations=False):
        for x, y in batches(64):
            loss = F.cross_entropy(model(x), y).bfloat16() / 64
            wanted += float(loss)
            loss.backward()
        optimizer.step()
    assert lines(tmp_path / "run/metrics.jsonl")[0]["loss"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_with_a_graph_that_are_accumulated(tmp_path):
    """Each sum is a new tensor, which may lie where the last but one was."""
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with recorded(tmp_path / "run", model, optimizer):
        for x, _ in batches(16):
            model(x).square().mean().backward(create_graph=True)
        optimizer.step()
    line, = lines(tmp_path / "run/metrics.jsonl")
    assert line["micro_batches"] == 16 and "changed_after_backward" not in line


def test_clipping_of_each_micro_batch(tmp_path):
    model, optimizer = prepared()
    with recorded(tmp_path / "run", model, optimizer):
        for x, y in batches(3):
            F.cross_entropy(model(x), y).backward()
            wanted = gradient_norm(model)
            clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    line, = lines(tmp_path / "run/metrics.jsonl")
    assert line["grad_norm"] == pytest.approx(wanted, rel=1e-12) and line["micro_batches"] == 3
    kept = {name for step, name in histograms(tmp_path / "run") if name.endswith("weight.grad")}
    assert kept == {"up.weight.grad", "down.weight.grad"} and len(lines(tmp_path / "run/histograms.jsonl")) == 6


@pytest.mark.parametrize("clip", [lambda p: clip_grad_norm_(p, 0.01), lambda p: clip_grad_value_(p, 1e-4)])
def test_clipping_functions_that_a_script_holds(tmp_path, clip):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer):
        F.cross_entropy(model(x), y).backward()
        wanted = gradient_norm(model)
        clip(model.parameters())
        optimizer.step()
    line, = lines(tmp_path / "run/metrics.jsonl")
    assert line["grad_norm"] == pytest.approx(wanted, rel=1e-12) and "changed_after_backward" not in line


def test_gradients_that_no_backward_left(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer, activations=False):
        for p, g in zip(model.parameters(), torch.autograd.grad(F.cross_entropy(model(x), y), model.parameters())):
            p.grad = g
        wanted = gradient_norm(model)
        optimizer.step()
        optimizer.step()  # again, with the same
        optimizer.zero_grad()
        optimizer.step()
    first, second, without = lines(tmp_path / "run/metrics.jsonl")
    assert first["grad_norm"] == second["grad_norm"] == pytest.approx(wanted, rel=1e-12) and first["loss"] is None
    assert without["grad_norm"] is None and without["found_inf"] is False
    assert {step for step, _ in histograms(tmp_path / "run")} == {0, 1}


def test_state_before_a_closure(tmp_path):
    model, optimizer = prepared()
    before = []

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with recorded(tmp_path / "run", model, optimizer, state=True):
        for x, y in batches(3):
            before.append(model.up.weight.detach().clone().numpy())
            optimizer.step(closure)
    for step, weight in enumerate(before):
        assert (tensors(tmp_path / f"run/state/step_{step:06}.safetensors")[1]["up.weight"] == weight).all()
