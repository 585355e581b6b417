"""The recorder under loops of every kind."""
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope.torch  # noqa: E402
from networks import MLP, amp_loop, batches, lines, plain_loop, prepared, tensors  # noqa: E402


def test_gradients_that_backward_overwrites(tmp_path):
    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.mul_(2)

    class Rude(torch.nn.Module):
        def forward(self, x):
            return Doubling.apply(x)

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Rude())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ampscope.torch.record(tmp_path, model, optimizer, activations=True):
        (model(torch.ones(2, 3)) * torch.arange(3.0)).sum().backward()
        optimizer.step()
    _, recorded = tensors(tmp_path / "gradients/step_000000.safetensors")
    assert np.array_equal(recorded["1.out.grad"], [[0, 1, 2]] * 2)
    assert np.array_equal(recorded["0.out.grad"], [[0, 2, 4]] * 2)


def test_accumulation_sums_what_backward_was_called_on(tmp_path):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    whole = batches(4)
    losses = []
    with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, every=1, activations=True):
        optimizer.zero_grad()
        for x, y in whole:
            with torch.autocast("cpu", torch.float16):
                out = model(x)
            loss = F.cross_entropy(out.float(), y)
            (scaler.scale(loss) / 4).backward()  # the scale is found behind the quotient
            losses.append(loss.item() / 4)
        expected = {n: p.grad.clone() for n, p in model.named_parameters()}
        scaler.step(optimizer)
        scaler.update()
    (m,) = lines(tmp_path / "metrics.jsonl")
    assert m["loss"] == pytest.approx(math.fsum(losses), rel=1e-6) and m["micro_batches"] == 4 and m["scale"] == 8
    _, recorded = tensors(tmp_path / "gradients/step_000000.safetensors")
    assert all(np.array_equal(recorded[n + ".grad"], g.numpy()) for n, g in expected.items())
    assert {"up.out.grad", "up@2.out.grad", "up@4.out.grad"} <= set(recorded)
    counts = {line["tensor"]: line["count"] for line in lines(tmp_path / "histograms.jsonl")}
    assert counts["up.out.grad"] == 4 * 16 * 8


def test_overflow_is_found_and_skipped(tmp_path):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, every=1):
        amp_loop(model, optimizer, scaler, batches(3))
    metrics = lines(tmp_path / "metrics.jsonl")
    assert [m["scale"] for m in metrics] == [2.0**40, 2.0**39, 2.0**38]
    assert all(m["found_inf"] and m["skipped"] and m["grad_norm"] is None and m["amax"] == {} for m in metrics)
    assert all(math.isfinite(m["loss"]) for m in metrics)
    assert json.loads((tmp_path / "result.json").read_text())["skipped"] == 3


def test_a_loss_that_is_not_finite_has_a_class(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        for factor in (math.nan, math.inf):
            optimizer.zero_grad()
            (model(batches(1)[0][0]).sum() * factor).backward()
            optimizer.step()
    metrics = lines(tmp_path / "metrics.jsonl")
    first = metrics[0]
    assert (first["loss"], first["loss_class"], first["found_inf"], first["skipped"]) == (None, "nan", True, False)


def test_none_sparse_and_shared(tmp_path):
    torch.manual_seed(0)

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 4, sparse=True)
            self.first, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.second = self.first

        def forward(self, tokens):
            return self.second(self.first(self.embed(tokens)))

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ampscope.torch.record(tmp_path, model, optimizer, every=1, activations=True):
        model(torch.tensor([1, 1, 2])).sum().backward()
        dense = model.embed.weight.grad.to_dense()
        norm = torch.cat([dense.ravel(), *(p.grad.ravel() for p in model.first.parameters())]).double().norm()
        optimizer.step()
    _, recorded = tensors(tmp_path / "gradients/step_000000.safetensors")
    assert set(recorded) == {"embed.weight.grad", "first.weight.grad", "first.bias.grad", "embed.out.grad",
                             "first.out.grad", "first@2.out.grad"}
    assert np.array_equal(recorded["embed.weight.grad"], dense.numpy())
    assert lines(tmp_path / "metrics.jsonl")[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-12)


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float64, "")])
def test_gradients_of_other_types(tmp_path, dtype, name):
    model, _ = prepared()
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        x, y = batches(1)[0]
        F.cross_entropy(model(x.to(dtype)), y).backward()
        gradients = {n: p.grad.double() for n, p in model.named_parameters()}
        optimizer.step()
    for line in lines(tmp_path / "histograms.jsonl"):
        x = gradients[line["tensor"].removesuffix(".grad")]
        assert line["format"] == name and line["zero"] == int((x == 0).sum()) and line["count"] == x.numel()
    largest = max(float(g.abs().max()) for g in gradients.values())
    assert lines(tmp_path / "metrics.jsonl")[0]["amax"]["weight_gradient"] == largest


def test_a_closure_runs_backward_within_the_step(tmp_path):
    model, optimizer = prepared()
    x, y = batches(1)[0]

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        loss = optimizer.step(closure)
    (m,) = lines(tmp_path / "metrics.jsonl")
    assert m["loss"] == float(loss.detach()) and m["grad_norm"] > 0
    assert (tmp_path / "gradients/step_000000.safetensors").exists()


def test_recorders_of_two_networks_keep_to_their_own(tmp_path):
    (g, g_optimizer), (d, d_optimizer) = prepared(1), prepared(2)
    x, y = batches(1)[0]
    with ampscope.torch.record(tmp_path / "g", g, g_optimizer, every=1), \
            ampscope.torch.record(tmp_path / "d", d, d_optimizer, every=1):
        a, b = F.cross_entropy(g(x), y), F.cross_entropy(d(x), y)
        a.backward()
        b.backward()
        g_optimizer.step()
        d_optimizer.step()
    for run, loss in (("g", a), ("d", b)):
        (m,) = lines(tmp_path / run / "metrics.jsonl")
        assert m["loss"] == float(loss.detach()) and "micro_batches" not in m


def test_gradients_that_were_cleared_do_not_count(tmp_path):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu")
    with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, every=1, activations=True):
        for x, y in batches(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                out = model(x)
            loss = F.cross_entropy(out.float(), y)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    (m,) = lines(tmp_path / "metrics.jsonl")
    assert m["loss"] == float(loss.detach()) and "micro_batches" not in m
    log = lines(tmp_path / "histograms.jsonl")
    assert {line["loss_scale"] for line in log} == {65536} and {line["count"] for line in log
                                                                if line["tensor"] == "up.out.grad"} == {16 * 8}


def test_gradients_with_a_graph(tmp_path):
    model, optimizer = prepared()
    x, y = batches(1)[0]
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        F.cross_entropy(model(x), y).backward(create_graph=True)
        norm = torch.cat([p.grad.detach().ravel() for p in model.parameters()]).double().norm()
        optimizer.step()
    assert lines(tmp_path / "metrics.jsonl")[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-12)


def test_a_full_disk_ends_the_recording_alone(tmp_path, monkeypatch):
    model, optimizer = prepared()
    recorder = ampscope.torch.record(tmp_path, model, optimizer, every=2)

    def full(*args):
        raise OSError(28, "No space left on device")

    plain_loop(model, optimizer, batches(2))
    monkeypatch.setattr(recorder._folder, "write_gradients", full)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.warns(RuntimeWarning, match="No space left on device; recording ends with step 2, training goes on"):
        plain_loop(model, optimizer, batches(3))
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    recorder.close()
    assert len(lines(tmp_path / "metrics.jsonl")) == 2 and not optimizer._optimizer_step_post_hooks


def test_steps_without_backward(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer):
        optimizer.step()
    (m,) = lines(tmp_path / "metrics.jsonl")
    assert m["loss"] is None and "loss_class" not in m and not m["found_inf"]


def test_a_scale_by_hand_is_told(tmp_path):
    model, optimizer = prepared()
    x, y = batches(1)[0]
    with ampscope.torch.record(tmp_path, model, optimizer, every=1, activations=True) as recorder:
        (F.cross_entropy(model(x), y) * 128).backward()
        recorder.take(loss_scale=128)
        for p in model.parameters():
            p.grad /= 128
        norm = torch.cat([p.grad.ravel() for p in model.parameters()]).double().norm()
        optimizer.step()
    (m,) = lines(tmp_path / "metrics.jsonl")
    assert m["scale"] == 128 and m["grad_norm"] == pytest.approx(float(norm), rel=1e-12)
    assert tensors(tmp_path / "gradients/step_000000.safetensors")[0]["loss_scale"] == "128.0"
    assert {line["loss_scale"] for line in lines(tmp_path / "histograms.jsonl")} == {128.0}


def test_an_exception_loses_nothing(tmp_path):
    model, optimizer = prepared()
    with pytest.raises(RuntimeError, match="out of memory"):
        with ampscope.torch.record(tmp_path, model, optimizer, every=2):
            plain_loop(model, optimizer, batches(3))
            raise RuntimeError("out of memory")
    assert len(lines(tmp_path / "metrics.jsonl")) == 3
    assert json.loads((tmp_path / "result.json").read_text())["stopped"] == "step 3: RuntimeError: out of memory"


def test_gradients_of_the_step_that_stops_a_run(tmp_path):
    """As of one that a script ends because they are NaN."""
    model, optimizer = prepared()
    with pytest.raises(FloatingPointError):
        with ampscope.torch.record(tmp_path, model, optimizer, every=1):
            plain_loop(model, optimizer, batches(1))
            optimizer.zero_grad()
            (model(batches(1)[0][0]) * float("nan")).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            raise FloatingPointError
    assert len(lines(tmp_path / "metrics.jsonl")) == 1
    assert np.isnan(tensors(tmp_path / "gradients/step_000001.safetensors")[1]["up.weight.grad"]).all()


def test_a_run_that_stops_in_a_step_that_is_not_recorded(tmp_path, recwarn):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=2, activations=True) as recorder:
        plain_loop(model, optimizer, batches(1))
        optimizer.zero_grad()
        model(batches(1)[0][0]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    recorder.take()
    assert len(lines(tmp_path / "metrics.jsonl")) == 1 == len(list((tmp_path / "gradients").iterdir()))
    assert not list(recwarn)


def test_a_script_that_ends_without_close(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"""
import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import ampscope.torch
from networks import batches, plain_loop, prepared
model, optimizer = prepared()
rec = ampscope.torch.record({str(tmp_path / "run")!r}, model, optimizer)
plain_loop(model, optimizer, batches(4))
raise SystemExit(3)
""")
    assert subprocess.run([sys.executable, script]).returncode == 3
    assert len(lines(tmp_path / "run/metrics.jsonl")) == 4 and (tmp_path / "run/result.json").exists()


def test_going_on_with_a_folder(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=2):
        plain_loop(model, optimizer, batches(5))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step":5,"lo')  # as a killed program leaves it
    with ampscope.torch.record(tmp_path, model, optimizer, every=2, step=3):
        plain_loop(model, optimizer, batches(3))
    assert [m["step"] for m in lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3, 4, 5]
    assert sorted({h["step"] for h in lines(tmp_path / "histograms.jsonl")}) == [0, 2, 4]


def test_bad_arguments(tmp_path):
    model, optimizer = prepared()
    with pytest.raises(ValueError, match="every"):
        ampscope.torch.record(tmp_path, model, optimizer, every=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        ampscope.torch.record(tmp_path / "file", model, optimizer)


@pytest.mark.parametrize("when", ["before", "after", "in place"])
def test_compiled_models(tmp_path, when):
    model, optimizer = prepared()
    outer = torch.compile(model, backend="aot_eager") if when == "before" else model
    with pytest.warns(ampscope.torch.PrecisionWarning, match="Compiled modules hide them") as said, \
            ampscope.torch.record(tmp_path, outer, optimizer, every=1, activations=True):
        if when == "after":
            outer = torch.compile(model, backend="aot_eager")
        if when == "in place":
            model.compile(backend="aot_eager")
        plain_loop(outer, optimizer, batches(2))
    assert len([w for w in said if w.category is ampscope.torch.PrecisionWarning and w.filename == __file__]) == 1
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path / "eager", model, optimizer, every=1):
        plain_loop(model, optimizer, batches(2))
    for step in range(2):
        ours, eager = (tensors(run / f"gradients/step_{step:06}.safetensors")[1]
                       for run in (tmp_path, tmp_path / "eager"))
        assert set(ours) == set(eager) == {n + ".grad" for n, _ in MLP().named_parameters()}
        assert all(np.allclose(ours[name], eager[name], rtol=1e-4, atol=1e-7) for name in eager)
