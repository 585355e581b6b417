"""Loops that are right but not ordinary: batches that are given up, gradients cleared in other ways, backward passes of
others, copies of the model, optimizers and parameters of other kinds."""
import copy
import io
import json
import math
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # noqa: E402  held since before a recorder is open

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from ampscope.torch import _taps  # noqa: E402
from networks import MLP, batches, lines, prepared, tensors  # noqa: E402


def recorded(path, model, optimizer, **options):
    return ampscope.torch.record(path, model, optimizer, **{"every": 1, "activations": True, **options})


def norm(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return float(torch.cat([torch.view_as_real(g).ravel() if g.is_complex() else g.ravel()
                            for g in gradients]).double().norm())


def histograms(path):
    log, faults = ampscope._ampscope.read_histogram_log(str(path / "histograms.jsonl"))
    assert not faults
    return {(line["step"], line["tensor"]): line for line in log}


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
            wanted.append((loss.item(), norm(model)))
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
                gone = norm(model)
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
    """A discriminator: frozen while the generator learns through it, with a scaler of its own; autograd.grad, as for
    gradient penalties and adversarial inputs; and a backward that fails."""
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise RuntimeError("out of memory")

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
        with pytest.raises(RuntimeError, match="out of memory"):
            scaler.scale(Breaks.apply(model(x)).sum()).backward()
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
    assert amax["activation"] == float(out.grad.abs().max()) / 16


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
            wanted.append((loss, norm(model) / 1024))
            scaler.step(optimizer)
            scaler.update()
    log = lines(tmp_path / "run/metrics.jsonl")
    assert [(m["loss"] and pytest.approx(m["loss"], rel=1e-6), pytest.approx(m["grad_norm"], rel=1e-12))
            for m in log] == wanted
    assert {m["scale"] for m in log} == {1024.0} and {m["loss"] for m in log[2:]} == {None}
    assert not [w for w in recwarn if issubclass(w.category, ampscope.torch.PrecisionWarning)]


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


def test_clipping_of_each_micro_batch(tmp_path):
    model, optimizer = prepared()
    with recorded(tmp_path / "run", model, optimizer):
        for x, y in batches(3):
            F.cross_entropy(model(x), y).backward()
            wanted = norm(model)
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
        wanted = norm(model)
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
        wanted = norm(model)
        optimizer.step()
        optimizer.zero_grad()
        optimizer.step()
    with_gradients, without = lines(tmp_path / "run/metrics.jsonl")
    assert with_gradients["grad_norm"] == pytest.approx(wanted, rel=1e-12) and with_gradients["loss"] is None
    assert without["grad_norm"] is None and without["found_inf"] is False
    assert {step for step, _ in histograms(tmp_path / "run")} == {0}


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


def test_copies_of_a_model_are_not_watched(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer):
        copied = copy.deepcopy(model)
        torch.optim.swa_utils.AveragedModel(model)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        F.cross_entropy(copied(x), y).backward()
        buffer.seek(0)
        assert torch.equal(torch.load(buffer, weights_only=False)(x), model(x))
        per_sample = torch.func.vmap(torch.func.grad(lambda p, a, b: F.cross_entropy(
            torch.func.functional_call(model, p, (a[None],)), b[None])), (None, 0, 0))
        assert per_sample(dict(model.named_parameters()), x, y)["up.weight"].shape == (16, 8, 4)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert histograms(tmp_path / "run")[0, "up.out.grad"]["histogram"].count == 16 * 8
    assert b"ampscope" not in buffer.getvalue()


def test_parameters_of_other_kinds(tmp_path):
    """Complex ones, one that a module returns as it is, one that is named as outputs are, and ones added later."""
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.position = nn.Linear(4, 4), Position()
            self.head, self.late = Head(), nn.Linear(3, 3)
            self.phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x):
            return self.late(self.head((self.up(x) + self.position()) * self.phase.abs()))

    class Position(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(4))

        def forward(self):
            return self.table

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Parameter(torch.randn(4, 3))

        def forward(self, x):
            return x @ self.out

    torch.manual_seed(0)
    model = Odd()
    optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if not n.startswith("late")], 0.1)
    model.late.requires_grad_(False)
    wanted = []
    with recorded(tmp_path / "run", model, optimizer) as recorder:
        for i, (x, y) in enumerate(batches(3)):
            if i == 1:
                model.late.requires_grad_(True)
                optimizer.add_param_group({"params": model.late.parameters()})
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            wanted.append(norm(model))
            optimizer.step()
    assert [m["grad_norm"] for m in lines(tmp_path / "run/metrics.jsonl")] == pytest.approx(wanted, rel=1e-12)
    log = histograms(tmp_path / "run")
    assert (0, "late.weight.grad") not in log and log[1, "late.weight.grad"]["kind"] == "weight"
    assert log[2, "head.out.grad"]["kind"] == "weight" and log[2, "head.out.grad"]["histogram"].count == 12
    assert log[2, "head.output.out.grad"]["kind"] == "activation"
    assert log[2, "head.output.out.grad"]["histogram"].count == 16 * 3 and log[2, "phase.grad"]["histogram"].count == 8
    assert not any(name == "position.out.grad" for _, name in log)
    assert not model.position.table._backward_hooks and recorder.next_step == 3


def test_a_checkpoint_that_runs_backward_within_backward(tmp_path):
    """Reentrant, and so deep that the engine goes on in another thread, as it does on every GPU."""
    from torch.utils.checkpoint import checkpoint
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def nested(x, depth):
        return model(x) if not depth else checkpoint(nested, x, depth - 1, use_reentrant=True)

    with recorded(tmp_path / "run", model, optimizer, scaler=scaler, warn=False):
        loss = nested(torch.randn(3, 4, requires_grad=True), 70).square().mean()
        scaler.scale(loss).backward()
        wanted = norm(model) / 1024
        scaler.step(optimizer)
    line, = lines(tmp_path / "run/metrics.jsonl")
    assert (line["loss"], line["scale"], line["grad_norm"]) == (loss.item(), 1024.0, pytest.approx(wanted, rel=1e-12))


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.Adafactor(p) if hasattr(torch.optim, "Adafactor") else pytest.skip("torch has none"),
    lambda p: torch.optim.SGD([{"params": p, "betas": (0.9, 0.99, 0.999), "eps": (None, 1e-3)}], 0.1),
    lambda p: torch.optim.Adam(p, torch.tensor(0.1))], ids=["Adafactor", "three betas", "a tensor as lr"])
def test_optimizers_with_other_settings(tmp_path, optimizer):
    model = MLP()
    optimizer = optimizer(model.parameters())
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = torch.tensor(math.inf)
        optimizer.step()
    first, second = lines(tmp_path / "run/metrics.jsonl")
    assert first["lr"] > 0 and second["lr"] is None
    assert json.loads((tmp_path / "run/run.json").read_text())["optimizer"]["kind"] == type(optimizer).__name__.lower()


def test_a_fault_of_the_recorder_ends_it_alone(tmp_path, monkeypatch):
    model, optimizer = prepared()
    monkeypatch.setattr(ampscope.torch._recorder, "norms", lambda gradients: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError.*recording ends with step 0, training goes on"):
        with recorded(tmp_path / "run", model, optimizer):
            for x, y in batches(2):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    assert not _taps._recorders


def test_a_step_that_is_compiled(tmp_path):
    model, optimizer = prepared()

    @torch.compile(fullgraph=False, backend="eager")
    def step():
        optimizer.step()

    # Old versions of torch do not compile it as one graph, with a recorder or without.
    @torch.compile(fullgraph=hasattr(torch.nn.utils, "get_total_norm"), backend="eager")
    def clip():
        torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1e9)

    with recorded(tmp_path / "run", model, optimizer):
        for x, y in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip()
            wanted = norm(model)
            step()
    log = lines(tmp_path / "run/metrics.jsonl")
    assert len(log) == 3 and log[-1]["grad_norm"] == pytest.approx(wanted, rel=1e-12)


def test_folders_of_others_are_left_alone(tmp_path):
    model, optimizer = prepared()
    (tmp_path / "mine/checkpoints").mkdir(parents=True)
    checkpoint = tmp_path / "mine/checkpoints/step_000500.safetensors"
    checkpoint.write_bytes(b"mine")
    ampscope.torch.record(tmp_path / "mine", model, optimizer).close()
    assert checkpoint.read_bytes() == b"mine"
    for name in ("metrics.jsonl", "gradients"):
        folder = tmp_path / f"other_{name}"
        folder.mkdir()
        (folder / name).write_text("{}\n") if "." in name else (folder / name).mkdir()
        with pytest.raises(FileExistsError, match=f"holds {name}, but no run.json"):
            ampscope.torch.record(folder, model, optimizer)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/run.json").write_text('{"tool": "amp-train"}')
    with pytest.raises(FileExistsError, match="its run.json is none of ampscope.torch"):
        ampscope.torch.record(tmp_path / "trained", model, optimizer, step=7)
    with ampscope.torch.record(tmp_path / "open", model, optimizer):
        with pytest.raises(FileExistsError, match="another recorder is writing to it"):
            ampscope.torch.record(tmp_path / "open", model, optimizer, step=1)
    with pytest.raises(TypeError, match="expected a torch.amp.GradScaler, got object"):
        ampscope.torch.record(tmp_path / "wrapped", model, optimizer, scaler=object())
    assert not (tmp_path / "wrapped").exists() and not _taps._recorders


def test_warnings_that_are_errors_leave_nothing_behind(tmp_path):
    model = MLP().half()
    optimizer = torch.optim.Adam(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ampscope.torch.PrecisionWarning, match="eps = 1e-08 is 0"):
            recorded(tmp_path / "run", model, optimizer)
    assert not _taps._recorders and not optimizer._optimizer_step_pre_hooks and not model.up._forward_hooks


def test_one_pattern_as_text(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer, activations="u*"):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert [name for _, name in histograms(tmp_path / "run") if name.endswith(".out.grad")] == ["up.out.grad"]
