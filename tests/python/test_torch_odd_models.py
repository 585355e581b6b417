"""Models, parameters, optimizers and folders that are not ordinary."""
import copy
import io
import json
import math
import os
import shutil
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from ampscope.torch import _taps  # noqa: E402
from networks import MLP, batches, gradient_norm, histograms, lines, prepared, recorded  # noqa: E402


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
            wanted.append(gradient_norm(model))
            optimizer.step()
    assert [m["grad_norm"] for m in lines(tmp_path / "run/metrics.jsonl")] == pytest.approx(wanted, rel=1e-12)
    log = histograms(tmp_path / "run")
    assert (0, "late.weight.grad") not in log and log[1, "late.weight.grad"]["kind"] == "weight_gradient"
    assert log[2, "head.out.grad"]["kind"] == "weight_gradient" and log[2, "head.out.grad"]["histogram"].count == 12
    assert log[2, "head.output.out.grad"]["kind"] == "activation_gradient"
    assert log[2, "head.output.out.grad"]["histogram"].count == 16 * 3 and log[2, "phase.grad"]["histogram"].count == 8
    assert not any(name == "position.out.grad" for _, name in log)
    assert not model.position.table._backward_hooks and recorder.next_step == 3


def test_a_checkpoint_that_runs_backward_within_backward(tmp_path):
    """Reentrant, and so deep that the engine goes on in another thread, as it does on every GPU."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def nested(x, depth):
        return model(x) if not depth else checkpoint(nested, x, depth - 1, use_reentrant=True)

    with recorded(tmp_path / "run", model, optimizer, scaler=scaler, warn=False):
        loss = nested(torch.randn(3, 4, requires_grad=True), 70).square().mean()
        scaler.scale(loss).backward()
        wanted = gradient_norm(model) / 1024
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
    monkeypatch.setattr(ampscope.torch._parallel, "norms", lambda gradients: 1 / 0)
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
            wanted = gradient_norm(model)
            step()
    log = lines(tmp_path / "run/metrics.jsonl")
    assert len(log) == 3 and log[-1]["grad_norm"] == pytest.approx(wanted, rel=1e-12)


class Checkpointed(MLP):
    """Autograd sees none of its parameters but through the checkpoint."""

    def forward(self, x):
        with torch.autocast("cpu", torch.float16):
            return checkpoint(super().forward, x.requires_grad_(True), use_reentrant=True)


class CastsInside(MLP):
    def forward(self, x):
        with torch.autocast("cpu", torch.float16):
            return super().forward(x)


@pytest.mark.parametrize("network", [Checkpointed, CastsInside])
def test_casts_that_the_graph_hides(tmp_path, recwarn, network):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    call = torch.compile(model, backend="aot_eager") if network is CastsInside else model
    with ampscope.torch.record(tmp_path / "run", call, optimizer, every=1):
        for x, y in batches(2):
            optimizer.zero_grad()
            out = call(x)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):  # an evaluation of another network
                MLP()(x)
            scaler.scale(F.cross_entropy(out.float(), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["precision"]["name"], run["loss_scaler"]["name"]) == ("amp-fp16", "torch")
    assert not [w for w in recwarn if issubclass(w.category, ampscope.torch.PrecisionWarning)]


def test_folders_of_others_are_left_alone(tmp_path):
    model, optimizer = prepared()
    (tmp_path / "mine/checkpoints").mkdir(parents=True)
    checkpoint = tmp_path / "mine/checkpoints/step_000500.safetensors"
    checkpoint.write_bytes(b"mine")
    ampscope.torch.record(tmp_path / "mine", model, optimizer).close()
    assert checkpoint.read_bytes() == b"mine"
    for name in ("metrics.jsonl", "gradients/mine.npy"):
        file = tmp_path / "other" / name
        file.parent.mkdir(parents=True)
        file.write_text("{}\n")
        with pytest.raises(FileExistsError, match=f"holds {name.split('/')[0]}, but no run.json"):
            ampscope.torch.record(tmp_path / "other", model, optimizer)
        shutil.rmtree(tmp_path / "other")
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/run.json").write_text('{"tool": "amp-train"}')
    with pytest.raises(FileExistsError, match="its run.json is none of ampscope.torch"):
        ampscope.torch.record(tmp_path / "trained", model, optimizer, step=7)
    with ampscope.torch.record(tmp_path / "open", model, optimizer):
        with pytest.raises(OSError, match=f"open: process {os.getpid()} on .* is recording into it"):
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
    assert not (tmp_path / "run").exists()


def test_one_pattern_as_text(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    with recorded(tmp_path / "run", model, optimizer, activations="u*"):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert [name for _, name in histograms(tmp_path / "run") if name.endswith(".out.grad")] == ["up.out.grad"]
