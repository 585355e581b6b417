"""What scripts do that a recorder has to bear: schedules, parameter groups, second runs, large activations."""
import json
import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import batches, lines, plain_loop, prepared, tensors  # noqa: E402

STEPS = 12


def grouped():
    """A network in two parameter groups, of which one does not decay and learns less."""
    model, _ = prepared()
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0, "lr": 1e-3, "eps": 1e-5}]
    return model, torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory):
    """A run of such a network under a schedule that cycles betas too, the settings of each step by group, and
    sqrt(v_hat) after the last one by parameter."""
    path = tmp_path_factory.mktemp("scheduled") / "run"
    model, optimizer = grouped()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [1e-2, 1e-3], total_steps=STEPS)
    settings = []
    with ampscope.torch.record(path, model, optimizer, every=1, state=True):
        for x, y in batches(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            settings.append([(g["lr"], *g["betas"], g["eps"], g["weight_decay"]) for g in optimizer.param_groups])
            optimizer.step()
            schedule.step()
    roots = {}
    for group, used in zip(optimizer.param_groups, settings[-1]):
        for p in group["params"]:
            name = next(n for n, other in model.named_parameters() if other is p)
            roots[name] = (optimizer.state[p]["exp_avg_sq"].double() / (1 - used[2] ** STEPS)).sqrt().numpy()
    return path, settings, roots


def test_settings_of_each_step_and_group(scheduled):
    path, settings, roots = scheduled
    first = json.loads((path / "run.json").read_text())["optimizer"]
    assert first["groups"] == {name: 1 for name in roots if name.endswith("bias")}
    for line, groups in zip(lines(path / "metrics.jsonl"), settings, strict=True):
        recorded = [{**first, "lr": line["lr"], **differing} for differing in line["groups"]]
        assert [tuple(g[key] for key in ("lr", "beta1", "beta2", "eps", "weight_decay")) for g in recorded] == groups
    assert len({group[0][1] for group in settings}) > 4  # beta1 is cycled


@pytest.mark.parametrize("without_state", [False, True])
def test_adam_is_torchs_under_a_schedule(scheduled, without_state, tmp_path):
    path, settings, roots = scheduled
    if without_state:  # from the gradients of all steps
        for part in ("run.json", "metrics.jsonl", "gradients"):
            (tmp_path / part).symlink_to(path / part)
        path = tmp_path
    magnitudes = np.sort(np.concatenate([root.ravel() for root in roots.values()]))
    gaps = np.diff(np.log(magnitudes))
    sweep = [float(math.exp(np.log(magnitudes[i:i + 2]).mean())) for i in np.argsort(gaps)[-5:]]
    found = ampscope.adam_findings(path, eps=sweep)
    assert found.basis == ("contiguous" if without_state else "recorded")
    for tensor in found.tensors:
        name = tensor.name.removesuffix(".grad")
        lr, beta1, beta2, eps, decay = settings[-1][1 if name.endswith("bias") else 0]
        used = tensor.settings
        assert (used.learning_rate, used.beta1, used.beta2, used.weight_decay) == (lr, beta1, beta2, decay)
        assert found.question.eps[tensor.usual_eps] == eps
        for i, value in enumerate(found.question.eps):
            if value in sweep:
                assert tensor.effects.states[0].eps[i].dominated == int((roots[name] < value).sum())


def test_groups_that_are_added_later(tmp_path):
    model, _ = prepared()
    optimizer = torch.optim.AdamW(model.down.parameters(), 0.01)
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        plain_loop(model, optimizer, batches(2))
        optimizer.add_param_group({"params": list(model.up.parameters()), "lr": 1e-4})
        plain_loop(model, optimizer, batches(2))
        written = json.loads((tmp_path / "run.json").read_text())  # before the end
    assert written["optimizer"]["groups"] == {"up.weight": 1, "up.bias": 1}
    assert ["groups" in line for line in lines(tmp_path / "metrics.jsonl")] == [False, False, True, True]
    assert lines(tmp_path / "metrics.jsonl")[3]["groups"] == [{}, {"lr": 1e-4}]
    rates = {t.name: t.settings.learning_rate for t in ampscope.adam_findings(tmp_path).tensors}
    assert rates == {"down.weight.grad": 0.01, "down.bias.grad": 0.01, "up.weight.grad": 1e-4, "up.bias.grad": 1e-4}


def test_what_the_tool_says_of_groups(scheduled):
    said = subprocess.run(["amp-adam", scheduled[0]], check=True, capture_output=True, text=True)
    text = " ".join(said.stdout.split())
    rates = sorted(group[0] for group in scheduled[1][-1])
    assert f"Parameter groups differ: learning rate {rates[0]:g} to {rates[1]:g}, eps 1e-08 to 1e-05" in text
    assert "eps differs by parameter group" in " ".join(said.stderr.split())


UNCLOSED = """
import sys
import torch, ampscope.torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.AdamW(model.parameters())
rec = ampscope.torch.record(sys.argv[1], model, optimizer, every=2, activations=True, what="both", warn=False)
for step in range(5):
    loss = model(torch.randn(16, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step < 4:
        optimizer.step()
END
"""


@pytest.mark.parametrize("end", ["", "rec.close()", "raise RuntimeError", "del rec"])
def test_a_script_that_ends_with_the_graph_of_its_last_loss(tmp_path, end):
    """Nothing is lost, and nothing of ours outlives Python, which nanobind would complain of."""
    script = UNCLOSED.replace("END", end)
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "run"], capture_output=True, text=True)
    assert "leaked" not in ended.stderr
    assert ended.stderr.endswith("RuntimeError\n") if "raise" in end else ended.stderr == ""
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["steps"] == len(lines(tmp_path / "run/metrics.jsonl")) == 4
    for step in (0, 2, 4):  # that of the step that was not ended, too
        _, recorded = tensors(tmp_path / f"run/gradients/step_{step:06}.safetensors")
        assert {"0.weight.grad", "0.out", "0.out.grad"} <= set(recorded)


def test_a_second_run_of_a_script(tmp_path, capfd):
    for _ in range(3):
        model, optimizer = prepared()
        with ampscope.torch.record(tmp_path / "run", model, optimizer) as recorder:
            plain_loop(model, optimizer, batches(2))
    assert recorder.path == tmp_path / "run-3"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-2", "run-3"]
    assert all(len(lines(p / "metrics.jsonl")) == 2 for p in tmp_path.iterdir())
    said = capfd.readouterr().err.splitlines()
    assert said == [f"ampscope: {tmp_path}/run holds a run already: this one goes to {tmp_path}/run-{number} "
                    "(overwrite=True replaces it)" for number in (2, 3)]


def test_a_run_that_is_replaced(tmp_path, capfd):
    for steps in (5, 2):
        model, optimizer = prepared()
        with ampscope.torch.record(tmp_path, model, optimizer, every=1, state=True, overwrite=True):
            plain_loop(model, optimizer, batches(steps))
    assert len(lines(tmp_path / "metrics.jsonl")) == 2 and len(list(tmp_path.glob("*/step_*"))) == 4
    assert {line["step"] for line in lines(tmp_path / "histograms.jsonl")} == {0, 1}
    assert capfd.readouterr().err == ""
    (tmp_path / "run.json").write_text('{"tool": "other"}')
    with pytest.raises(FileExistsError, match="its run.json is none of ampscope.torch"):
        ampscope.torch.record(tmp_path, model, optimizer, overwrite=True)


@pytest.mark.parametrize("options, told", [({"what": "both"}, True), ({"what": "both", "warn": False}, False),
                                           ({"what": "both", "store": "histograms"}, False), ({}, False)])
def test_what_activations_cost_is_said_before_they_are_written(tmp_path, capfd, options, told):
    model, optimizer = prepared(width=512)
    activations = {"activations": True} if "what" in options else {}
    recorder = ampscope.torch.record(tmp_path, model, optimizer, every=4, **activations, **options)
    written = recorder._folder.write_gradients
    said = []

    def write(*args):
        said.append(capfd.readouterr().err)
        written(*args)

    recorder._folder.write_gradients = write
    plain_loop(model, optimizer, batches(9))
    recorder.close()
    if not told:
        assert not any(said) and capfd.readouterr().err == ""
        return
    assert len(said) == 3 and said[1:] == ["", ""]
    _, recorded = tensors(tmp_path / "gradients/step_000000.safetensors")
    sizes = [sum(t.nbytes for name, t in recorded.items() if wanted(name)) / 1e6
             for wanted in (lambda name: True, lambda name: ".out" in name)]
    assert said[0].startswith(f"ampscope: each recorded step, one of 4, takes {sizes[0]:.1f} MB, {sizes[1]:.1f} MB of "
                              f"it for activations; {tmp_path} has room for ")
