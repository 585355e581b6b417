"""The tools, runs and optimizers from Python: against the commands, torch's rules and the files themselves."""
import html
import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import ampscope

GRADIENTS = pathlib.Path(__file__).parents[2] / "notebooks/data/gradients"
DATA = pathlib.Path(__file__).parents[1] / "data"


def said(*command):
    words = [*map(str, command), "--json", "-"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    shutil.rmtree(folder)
    ampscope.train(model="mlp", steps=30, precision=["fp32", "amp-fp16"], record=folder, record_every=10)
    return folder


def test_each_tool_says_what_its_command_says(runs):
    run = runs / "amp-fp16"
    assert ampscope.amp_histogram(run, format="fp16,bf16") == said("amp-histogram", run, "--format", "fp16,bf16")
    sample = ampscope.amp_histogram(GRADIENTS / "deep_tanh", format="fp16")
    assert ampscope.amp_histogram(format="fp16")["total"] == sample["total"]
    assert ampscope.histogram_findings(format="fp16").total.magnitudes.histogram.count == sample["total"]["count"]
    assert ampscope.amp_loss_scale(run, scaler=["torch", "megatron"]) == said(
        "amp-loss-scale", run, "--scaler", "torch", "--scaler", "megatron")
    assert ampscope.amp_adam(run) == said("amp-adam", run)
    assert ampscope.amp_diff(runs / "fp32", run) == said("amp-diff", runs / "fp32", run)
    report = ampscope.amp_report(runs)
    assert report == said("amp-report", runs)
    assert report.html.startswith("<!DOCTYPE html>") and "srcdoc" in report._repr_html_()


@pytest.mark.parametrize("ask", [ampscope.amp_histogram, ampscope.amp_loss_scale, ampscope.amp_adam, ampscope.amp_diff,
                                 ampscope.amp_report], ids=lambda ask: ask.__name__)
def test_pages_are_those_of_the_commands(runs, tmp_path, ask):
    """Byte for byte, with the command that gives the same page and JSON, and with all that went wrong."""
    run, page = tmp_path / "run", tmp_path / "page.html"
    shutil.copytree(runs / "amp-fp16", run)
    (run / "gradients/step_000007.safetensors").write_text("no tensors")
    with open(run / "metrics.jsonl", "a") as log:
        log.write("no step\n{}\n")
    paths = [run, run] if ask is ampscope.amp_diff else [run]
    ask(*paths, html=page)
    ours = page.read_text()
    page.unlink()
    command = [ask.__name__.replace("_", "-"), *map(str, paths), "--html", str(page), "--json", "-"]
    lines = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
    assert ours == page.read_text()
    for line in lines:
        assert html.escape(line.removeprefix(command[0] + ": ").removeprefix("warning: "), quote=False) in ours
    assert lines and " ".join(command) in ours


def test_rows_and_frames(runs):
    pandas = pytest.importorskip("pandas")
    run = runs / "amp-fp16"
    histogram = ampscope.amp_histogram(GRADIENTS / "deep_tanh", format="fp16", by="layer")
    first = next(r for r in histogram.rows() if r["scale"] == 1)
    assert first["underflow"] + first["subnormal"] + first["normal"] + first["overflow"] == (
        first["elements"] - first["zero"] - first["nan"] - first["inf"])
    answers = [histogram, ampscope.amp_loss_scale(run), ampscope.amp_adam(run), ampscope.amp_diff(runs / "fp32", run),
               ampscope.amp_report(runs), ampscope.train(model="mlp", steps=3, precision=["fp32", "tf32"])]
    for answer, column in zip(answers, ("underflow", "skipped", "dominated", "tensor", "final_loss", "final_loss")):
        frame = answer.frame()
        assert isinstance(frame, pandas.DataFrame) and len(frame) == len(answer.rows()) > 0 and column in frame.columns
        if "html" not in answer.__dict__:
            assert answer._repr_html_().count("<tr>") == len(frame) + 1
    assert list(answers[-1].frame()["precision"]) == ["fp32", "tf32"]
    h = ampscope.histogram(np.float32([1e-9, 1, 1e9]))
    assert h.frame(["fp16"], [0, 1]).to_dict("records")[0] == {
        "format": "fp16", "log2_scale": 0, "underflow": 1, "subnormal": 0, "normal": 1, "overflow": 1}
    assert "448" in ampscope.format("e4m3")._repr_html_()


def test_what_a_tool_refuses(tmp_path):
    with pytest.raises(ValueError, match="--frmat"):
        ampscope.amp_histogram(GRADIENTS / "deep_tanh", frmat="fp16")
    with pytest.raises(OSError, match="/nonexistent: "):
        ampscope.amp_loss_scale("/nonexistent")
    (tmp_path / "x.npy").write_text("no array")
    both = ampscope.amp_histogram(GRADIENTS / "deep_tanh", tmp_path / "x.npy")
    assert len(both["errors"]) == 1 and both["tensors"]


def test_runs(runs):
    run = ampscope.Run(runs / "amp-fp16")
    assert len(run.metrics) == 30 and run.configuration["precision"]["name"] == "amp-fp16" and run.result["steps"] == 30
    arrays, metadata = ampscope.read_tensors(run.gradients[1])
    assert (metadata["step"], float(metadata["loss_scale"])) == ("10", 65536)
    for line in run.histograms:
        if line["step"] == 10:
            assert line["histogram"] == ampscope.histogram(arrays[line["tensor"]], scale=65536)
    assert "30 steps" in repr(run)
    with pytest.raises(OSError):
        ampscope.Run(runs)


def test_tensors_of_every_kind(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", a=x.astype(np.float16), b=np.arange(3))
    np.savez_compressed(tmp_path / "z.npz", a=x.astype(np.float64))
    for file, name, expected in (("x.npy", "x", x), ("x.npz", "a", x.astype(np.float16)), ("x.npz", "b", np.arange(3)),
                                 ("z.npz", "a", x.astype(np.float64))):
        arrays, metadata = ampscope.read_tensors(tmp_path / file)
        assert arrays[name].dtype == expected.dtype and np.array_equal(arrays[name], expected) and metadata == {}
    torch = pytest.importorskip("torch")
    t = torch.tensor([[0.5, -3.0], [1e-3, 8.0]])
    torch.save({"w": t.bfloat16(), "v": t.to(torch.float8_e5m2), "u": t}, tmp_path / "t.pt")
    arrays, _ = ampscope.read_tensors(tmp_path / "t.pt")
    assert np.array_equal(arrays["w"], t.bfloat16().float().numpy())
    assert np.array_equal(arrays["v"], t.to(torch.float8_e5m2).float().numpy())
    assert np.array_equal(arrays["u"], t.numpy())
    with pytest.raises(OSError, match="broken.pt"):
        (tmp_path / "broken.pt").write_bytes(b"PK\3\4")
        ampscope.read_tensors(tmp_path / "broken.pt")


@pytest.mark.parametrize("size", [0, 11, 20])
@pytest.mark.parametrize("name, state", [("muon", "m"), ("adamw", "m"), ("adamw", "v"), ("lion", "m")])
def test_state_that_does_not_fit_the_weight_is_refused(name, state, size):
    optimizer = ampscope.Optimizer(np.ones((3, 4), np.float32), name)
    setattr(optimizer, state, np.zeros(size, np.float32))
    with pytest.raises(ValueError, match=f"{state} has {size} numbers, and the weight 12"):
        optimizer.step(np.ones((3, 4), np.float32))


@pytest.mark.parametrize("name, kind, options", [
    ("adamw", "AdamW", {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("adam", "Adam", {"lr": 1e-3, "weight_decay": 0.01}), ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9})])
def test_optimizers_are_torchs(name, kind, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    weight, gradients = rng.standard_normal(999).astype(np.float32), rng.standard_normal((5, 999)).astype(np.float32)
    ours = ampscope.Optimizer(weight, name, **options)
    p = torch.nn.Parameter(torch.tensor(weight))
    theirs = getattr(torch.optim, kind)([p], foreach=False, **options)
    for g in gradients:
        p.grad = torch.tensor(g)
        theirs.step()
        assert ours.step(g)["changed"] > 990
    assert np.abs(ours.weight - p.detach().numpy()).max() < 1e-6  # torch contracts to fused multiply-adds where it can


def test_state_of_8_bits_is_torchaos():
    """Oracle: what tests/data/torch/optimizer_state.py recorded of torchao; whose elements are spelled again here."""
    recorded = [json.loads(line) for line in (DATA / "torch/optimizer_state.jsonl").read_text().splitlines()]
    runs = [r for r in recorded if r["capability"] == "default" and r.get("dtype") == "fp32"
            and r["package"].startswith("torchao") and r["weight_decay"]]
    assert len(runs) == 6
    for run in runs:
        x = (np.arange(4608, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        drawn = []
        for spread in [3] + 10 * [12]:
            x = x * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            m = (x >> np.uint64(40)).astype(np.int64) - (1 << 23)
            e = (x >> np.uint64(32)).astype(np.int64) % 256 % (spread + 1)
            drawn.append(np.ldexp(m.astype(np.float64), -23 - e).astype(np.float32))
        adam = ampscope.Optimizer(drawn[0], run["optimizer"], state_format=run["state"],
                                  **{key: run[key] for key in ("lr", "betas", "eps", "weight_decay")})
        for step, g in enumerate(drawn[1:], 1):
            g = np.ldexp(g, -4 * (np.arange(4608) // 256))
            g[-256:] *= step >= 5
            adam.step(g)
            if str(step) in run["hashes"]:
                h = 0xCBF29CE484222325
                for word in np.concatenate((adam.weight, adam.m, adam.v)).view(np.uint32).tolist():
                    h = (h ^ word) * 0x100000001B3 % (1 << 64)
                assert run["hashes"][str(step)] == f"{h:016x}", (run["state"], step)
    small = ampscope.Optimizer(np.ones(4095), state_format="dynamic8:256")
    small.step(np.linspace(0.1, 1, 4095))
    assert len(np.unique(small.m)) > 4000  # no table has so many
    for wrong in ("dynamic8", "dynamic8:tensor", "fp16:256"):
        with pytest.raises(ValueError):
            ampscope.Optimizer(np.ones(4096), state_format=wrong)


def test_state_and_weights_in_other_formats():
    adam = ampscope.Optimizer(np.ones(4), lr=3e-3, weight_format="bf16")
    assert adam.step([1, -1, 0, 2]) == {"lost": 1, "changed": 2, "nonfinite": 0}  # 1 - 2^-8 is BF16, 1 + 2^-8 is not
    kahan = ampscope.Optimizer(np.ones(1), lr=1e-3, weight_format="bf16", rounding="kahan")
    for _ in range(100):
        kahan.step(-1)
    assert abs(kahan.weight[0] - 1.1) < 0.01
    poison = ampscope.Optimizer(np.ones(2), eps=1e-8, weight_format="fp16", state_format="fp16")
    assert poison.step([0, 1e-3])["nonfinite"] == 2  # v and eps are both 0
    stochastic = [ampscope.Optimizer(np.ones(1000), lr=1e-4, weight_format="bf16", rounding="stochastic", seed=s)
                  for s in (1, 1, 2)]
    for o in stochastic:
        o.step(-1)
    assert np.array_equal(stochastic[0].weight, stochastic[1].weight)
    assert not np.array_equal(stochastic[0].weight, stochastic[2].weight)
    few = [ampscope.Optimizer(np.ones(1000), "sgd", lr=1, weight_format="bf16", rounding="stochastic", random_bits=b)
           for b in (1, 4, 32)]  # 2^-13 is 1/32 of the distance to the number below 1
    assert [500, 62, 31] == pytest.approx([o.step(np.full(1000, 2.0**-13))["changed"] for o in few], rel=0.5)
    for wrong in ({"name": "adamz"}, {"lr": -1}, {"rounding": "up"}, {"state_format": "e9m9"}, {"random_bits": 33}):
        with pytest.raises(ValueError):
            ampscope.Optimizer(np.ones(1), **wrong)
    with pytest.raises(ValueError):
        adam.step(np.ones(5))


def test_autocast_is_torchs(tmp_path):
    assert ampscope.autocast("matmul", "fp32", "fp32") == "fp16"
    assert ampscope.autocast("softmax", "fp16") == "fp32"
    assert ampscope.autocast("softmax", "fp16", policy="cpu") == "fp16"
    assert ampscope.autocast_rule("layer_norm", "fp16")[:2] == (["fp32"], "fp32")
    assert ampscope.autocast("add", "fp16", "fp32", enabled=False) == "fp32"
    assert [ampscope.autocast("linear", "fp32", "fp32", policy=p) for p in ("cuda", "cpu", "mps", "xpu")] == [
        "fp16", "bf16", "fp16", "fp16"]
    assert ampscope.autocast("softmax", "fp16", dtype="fp16") == "fp16"
    assert ampscope.autocast_rule("no_such_op", "fp16", "fp32") == (["fp16", "fp32"], "fp32", "unlisted")
    with pytest.raises(ValueError, match="binary_cross_entropy"):
        ampscope.autocast("binary_cross_entropy", "fp16", "fp16")
    with pytest.raises(ValueError, match="takes no dtype"):
        ampscope.autocast("exp", "fp16", dtype="fp16")
    with pytest.raises(ValueError, match="known: cuda, cpu, mps, xpu"):
        ampscope.autocast("exp", "fp16", policy="tpu")
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 4)
    calls = {"matmul": lambda a: a @ a, "linear": lambda a: torch.nn.functional.linear(a, a),
             "softmax": lambda a: a.softmax(-1), "relu": torch.relu, "gelu": torch.nn.functional.gelu,
             "sum": torch.sum, "exp": torch.exp, "tanh": torch.tanh,
             "layer_norm": lambda a: torch.nn.functional.layer_norm(a, (4,))}
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    for low in (torch.float16, torch.bfloat16):
        for given in (torch.float32, low):
            with torch.autocast("cpu", low):
                for op, call in calls.items():
                    operands = [names[given]] * (2 if op in ("matmul", "linear") else 1)
                    assert names[call(x.to(given)).dtype] == ampscope.autocast(op, *operands, format=names[low],
                                                                               policy="cpu"), (op, given)


def test_lines():
    picture = ampscope.lines({"a": [1, float("nan"), 3], "b": [(0, 1), (2, 2)]}, title="Two", x_label="step")
    assert picture._repr_svg_().startswith("<svg") and "Two" in picture.svg
    other = ampscope.lines({"b": [(0, 1), (2, 2)], "a": [1, float("nan"), 3]}, title="Two", x_label="step")
    assert picture.svg == other.svg
    with pytest.raises(ValueError, match="no two points"):
        ampscope.lines({"a": [1]})
