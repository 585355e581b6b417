"""The recorder against what the loop itself sees: gradients, scales, norms; and that it changes nothing."""
import json
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import amp_loop, batches, lines, plain_loop, prepared, tensors  # noqa: E402


@pytest.mark.parametrize("clip", [None, 0.1])
def test_gradients_are_those_that_backward_left(tmp_path, clip):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    seen = []

    def look():
        seen.append(({n: p.grad.clone() for n, p in model.named_parameters()}, scaler.get_scale()))

    with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, every=2):
        amp_loop(model, optimizer, scaler, batches(5), clip, look)
    metrics = lines(tmp_path / "metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3, 4]
    for m, (gradients, scale) in zip(metrics, seen):
        unscaled = torch.cat([g.double().ravel() / scale for g in gradients.values()])
        assert m["scale"] == scale and not m["found_inf"] and not m["skipped"] and m["lr"] == 0.01
        assert m["grad_norm"] == pytest.approx(float(unscaled.norm()), rel=1e-12)
        assert m["amax"]["weight_gradient"] == float(unscaled.abs().max())
    for step in (0, 2, 4):
        metadata, recorded = tensors(tmp_path / f"gradients/step_{step:06}.safetensors")
        assert (metadata["step"], float(metadata["loss_scale"])) == (str(step), 1024.0)
        assert set(recorded) == {n + ".grad" for n in seen[step][0]}
        for name, gradient in seen[step][0].items():
            assert np.array_equal(recorded[name + ".grad"], gradient.numpy())
    assert not (tmp_path / "gradients/step_000001.safetensors").exists()
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["steps"], result["skipped"], result["stopped"], result["warnings"]) == (5, 0, "", [])
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["precision"]["name"], run["loss_scaler"]["name"], run["optimizer"]["lr"]) == ("amp-fp16", "torch", 0.01)


def keys_of(value, at=""):
    """The keys of run.json that hold a value, as JSON pointers."""
    if not isinstance(value, dict) or at in KEYS:
        return {at}
    return set().union(*(keys_of(below, f"{at}/{key}") for key, below in value.items()))


KEYS = ampscope._ampscope.run_layout.keys  # and who writes them


def test_run_json_has_the_keys_of_its_schema_and_no_other(tmp_path):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu")
    with ampscope.torch.record(tmp_path / "amp", model, optimizer, scaler=scaler):
        amp_loop(model, optimizer, scaler, batches(2), None)
    model, _ = prepared()
    groups = [{"params": list(model.up.parameters())}, {"params": list(model.down.parameters()), "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    with ampscope.torch.record(tmp_path / "plain", model, optimizer):
        plain_loop(model, optimizer, batches(2))
    model, optimizer = prepared()
    with ampscope.torch.emulate(model, "fp8-current,accumulate-backward=kahan"), \
            ampscope.torch.record(tmp_path / "emulated", model, optimizer):
        plain_loop(model, optimizer, batches(2))
    with ampscope.torch.emulate(model, "tf32"), ampscope.torch.record(tmp_path / "tf32", model, optimizer):
        plain_loop(model, optimizer, batches(2))
    written = set().union(*(keys_of(json.loads((tmp_path / run / "run.json").read_text()))
                            for run in ("amp", "plain", "emulated", "tf32")))
    schema = {key for key, writer in KEYS.items() if writer != "trainer"}
    assert written == {key for key in schema if not key.startswith("/ranks/")}  # those have a test of their own


def test_training_is_the_same_to_the_bit(tmp_path):
    states = []
    for recorded in (False, True):
        model, optimizer = prepared()
        scaler = torch.amp.GradScaler("cpu")
        if recorded:
            with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, every=3, activations=True):
                amp_loop(model, optimizer, scaler, batches(12), clip=0.5)
        else:
            amp_loop(model, optimizer, scaler, batches(12), clip=0.5)
        states.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*states))


def test_what_is_watched_is_put_back(tmp_path):
    watched = [(torch.autograd, "backward"), (torch.nn.utils, "clip_grad_norm_"), (torch.amp.GradScaler, "step"),
               (torch.autocast, "__enter__")]
    before = [owner.__dict__[name] for owner, name in watched]
    model, optimizer = prepared()
    first = ampscope.torch.record(tmp_path / "a", model, optimizer)
    second = ampscope.torch.record(tmp_path / "b", *prepared())
    first.close()
    assert [owner.__dict__[name] for owner, name in watched] != before
    second.close()
    second.close()
    assert [owner.__dict__[name] for owner, name in watched] == before
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_without_a_scaler_gradients_are_taken_before_clipping(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path / "clipped", model, optimizer, every=1):
        plain_loop(model, optimizer, batches(1), clip=1e-3)
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path / "plain", model, optimizer, every=1):
        plain_loop(model, optimizer, batches(1))
    a, b = (tensors(tmp_path / run / "gradients/step_000000.safetensors")[1] for run in ("clipped", "plain"))
    assert all(np.array_equal(a[name], b[name]) for name in b)
    assert lines(tmp_path / "clipped/metrics.jsonl")[0] == lines(tmp_path / "plain/metrics.jsonl")[0]
    assert json.loads((tmp_path / "plain/run.json").read_text())["precision"]["name"] == "fp32"


def test_histograms_alone_are_exact(tmp_path):
    for only in (False, True):
        model, optimizer = prepared()
        scaler = torch.amp.GradScaler("cpu")
        with ampscope.torch.record(tmp_path / str(only), model, optimizer, scaler=scaler, every=2, activations=True,
                                   store="histograms" if only else "tensors"):
            amp_loop(model, optimizer, scaler, batches(3))
    assert (tmp_path / "True/histograms.jsonl").read_bytes() == (tmp_path / "False/histograms.jsonl").read_bytes()
    assert not list((tmp_path / "True/gradients").iterdir())
    counts = []
    for name in ("True", "False"):
        said = subprocess.run(["amp-histogram", tmp_path / name, "--json", "-"], check=True, capture_output=True)
        counts.append({(t["name"], t["step"]): t["formats"] for t in json.loads(said.stdout)["tensors"]})
    assert counts[0] == counts[1] and len(counts[0]) == 12
    log, warnings = ampscope._ampscope.read_histogram_log(str(tmp_path / "True/histograms.jsonl"))
    assert not warnings and {line["step"] for line in log} == {0, 2}
    recorded = {step: tensors(tmp_path / f"False/gradients/step_{step:06}.safetensors")[1] for step in (0, 2)}
    for line in log:
        x = recorded[line["step"]][line["tensor"]]
        assert line["histogram"] == ampscope.histogram(x) and line["loss_scale"] == 65536
        assert line["format"] == ("fp16" if x.dtype == np.float16 else "fp32")
    assert {line["tensor"] for line in log if line["kind"] == "activation_gradient"} == {"up.out.grad", "down.out.grad"}


def test_state_before_the_step(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=2, state=True):
        plain_loop(model, optimizer, batches(2))
        before = {n: (p.detach().clone(), *(optimizer.state[p][k].clone() for k in ("exp_avg", "exp_avg_sq")))
                  for n, p in model.named_parameters()}
        plain_loop(model, optimizer, batches(1))
    metadata, state = tensors(tmp_path / "state/step_000002.safetensors")
    kinds = {name: "state" if name.endswith((".m", ".v")) else "weight" for name in state}
    assert metadata == {"schema_version": "2", "step": "2", "kinds": json.dumps(kinds)}
    assert len(state) == 3 * len(before)
    for name, values in before.items():
        for suffix, value in zip(("", ".m", ".v"), values):
            assert np.array_equal(state[name + suffix], value.numpy())
    assert not tensors(tmp_path / "state/step_000000.safetensors")[1]["up.weight.m"].any()
    adam = subprocess.run(["amp-adam", tmp_path], check=True, capture_output=True, text=True).stdout
    assert "exact: the state before the step was recorded" in adam


def test_gradients_of_activations(tmp_path):
    model, optimizer = prepared()
    (x, y), = batches(1)
    out = model.up(x)
    out.retain_grad()
    F.cross_entropy(model.down(torch.relu(out)), y).backward()
    with ampscope.torch.record(tmp_path, model, optimizer, activations=["u*"]):
        plain_loop(model, optimizer, [(x, y)])
    metadata, recorded = tensors(tmp_path / "gradients/step_000000.safetensors")
    assert np.array_equal(recorded["up.out.grad"], out.grad.numpy())
    assert json.loads(metadata["kinds"])["up.out.grad"] == "activation_gradient" and "down.out.grad" not in recorded
    assert lines(tmp_path / "metrics.jsonl")[0]["amax"]["activation_gradient"] == float(out.grad.abs().max())
    assert not model.up._forward_hooks
    with pytest.raises(ValueError, match="names none"):
        ampscope.torch.record(tmp_path / "b", model, optimizer, activations=["nothing"])


def test_every_tool_reads_the_folder(tmp_path):
    for name, dtype in (("fp32", None), ("fp16", torch.float16)):
        model, optimizer = prepared()
        scaler = torch.amp.GradScaler("cpu", enabled=dtype is not None)
        with ampscope.torch.record(tmp_path / name, model, optimizer, scaler=scaler, every=5, activations=True,
                                   store="histograms"):
            (amp_loop if dtype else lambda m, o, s, d: plain_loop(m, o, d))(model, optimizer, scaler, batches(20))
    command = ["amp-report", tmp_path, "--markdown", "-"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "MLP; 2 recorded runs" in report and "| fp32 |" in report and "| amp-fp16 |" in report
    replay = subprocess.run(["amp-loss-scale", tmp_path / "fp16"], check=True, capture_output=True, text=True).stdout
    assert "20 steps" in replay and "loss scaler torch" in replay
