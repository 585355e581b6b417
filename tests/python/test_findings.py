"""What recordings say, as objects: the fields are what the tools' --json says, and nothing starts a process."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import ampscope

GRADIENTS = pathlib.Path(__file__).parents[2] / "notebooks/data/gradients"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("findings") / "runs"
    ampscope.train(model="mlp", steps=30, precision=["fp32", "amp-fp16"], record=folder, record_every=10,
                   record_state=True)
    return folder


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    def started(*_, **__):
        raise AssertionError("a process was started")
    monkeypatch.setattr(subprocess, "Popen", started)


def test_adam(runs):
    f = ampscope.adam_findings(runs / "amp-fp16", eps="1e-8,1e-6")
    said = ampscope.amp_adam(runs / "amp-fp16", eps="1e-8,1e-6")["inputs"][0]
    assert (f.name, f.basis, f.is_exact, f.step) == (str(runs / "amp-fp16"), "recorded", True, 20)
    assert f.question.eps == [1e-6, 1e-8] and f.usual_eps == said["eps"] and f.question.options.kind == said["kind"]
    assert f.advice == said["advice"] and f.warnings == said["warnings"] == [] and f.errors == []
    for effects, total in [(f.total, said["total"]), *((t.effects, s) for t, s in zip(f.tensors, said["tensors"]))]:
        assert (effects.elements, effects.nonzero, effects.updated) == (
            total["elements"], total["nonzero"], total["updated"])
        assert dict(zip(map(str, f.question.weights), effects.lost)) == total["lost"]
        for state, expected in zip(effects.states, total["states"]):
            assert (state.v_underflow, state.v_stuck) == (expected["v_underflow"], expected["v_stuck"])
            for eps, at in zip(state.eps, expected["eps"]):
                assert (eps.dominated, eps.nonfinite) == (at["dominated"], at["nonfinite"])
                assert {str(b): n for b, n in eps.ratio.bins} == at["ratio"]["bins"]
    assert [t.muted_from for t in f.tensors] == [t["muted_from_eps"] for t in said["tensors"]]
    rows = ampscope.amp_adam(runs / "amp-fp16", eps="1e-8,1e-6").rows()
    assert f.frame().to_dict("records") == rows and f._repr_html_().count("<tr>") == len(rows) + 1


def test_loss_scale(runs):
    f = ampscope.loss_scale_findings(runs / "amp-fp16", scaler=["torch", "torch,init=2^24"], sweep=True)
    said = ampscope.amp_loss_scale(runs / "amp-fp16", scaler=["torch", "torch,init=2^24"], sweep=True)["inputs"][0]
    assert f.log.recorded_steps == len(f.log.steps) == 30 and f.log.measured_steps == said["steps_with_magnitudes"]
    assert f.recommendation["highest_safe"] == said["highest_safe_log2"] and f.advice == said["advice"]
    for ours, theirs in zip(f.replays, said["replays"]):
        r = ours.replay
        assert (ours.name, r.steps, r.skips, r.final_scale, r.first_good) == (
            theirs["scaler"], theirs["steps"], theirs["skipped"], theirs["final_scale"], theirs["first_good_step"])
        assert r.known == theirs["known"] and ours.alarms == [a["text"] for a in theirs["alarms"]]
        assert [(s.step, s.scale) for s in r.scales] == [(s["step"], s["scale"]) for s in theirs["scales"]]
        assert [(s.step, s.known) for s in r.skipped] == [(s["step"], s["known"]) for s in theirs["skipped_steps"]]
        assert [a.kind for a in r.alarms] == [a["kind"] for a in theirs["alarms"]]
    assert [s.lost for s in f.swept] == [s["lost"] for s in said["sweep"]] and f.alarms == said["alarms"]
    whole = sum((step.magnitudes for step in f.log.steps), ampscope.Histogram())
    assert whole.count > 0 and len(f.frame()) == len(f.replays) + len(f.swept)
    replays = ampscope.amp_loss_scale(runs / "amp-fp16", scaler=["torch", "torch,init=2^24"]).rows()
    assert f.frame().to_dict("records")[:2] == replays


def test_diff(runs):
    f = ampscope.diff_findings(runs / "fp32", runs / "amp-fp16")
    said = ampscope.amp_diff(runs / "fp32", runs / "amp-fp16")
    assert [s.origin for s in f.steps] == ["local", "drift", "drift"] == [s["origin"] for s in said["steps"]]
    assert f.notes == said["notes"] and f.only_a == f.only_b == []
    for p, expected in zip(f.pairs, said["tensors"]):
        assert (p.name, p.step, p.kind, p.shape) == tuple(expected[key] for key in ("tensor", "step", "kind", "shape"))
        assert p.diff.counts == expected["classes"] and p.diff.max_ulps == expected["max_ulps"]
        assert (p.diff.first is None) == (expected["first"] is None)
    assert f.first.name == said["first"]["tensor"] and f.first.diff.first.index == said["first"]["index"]
    assert f.frame().to_dict("records") == said.rows() and len(said.rows()) == len(f.pairs)
    a, b = np.ones(4, np.float32), np.float32([1, 1 + 2**-22, np.nan, -1])
    assert (a != b).sum() == 3
    for name, x in (("a", a), ("b", b)):
        np.save(runs / f"{name}.npy", x)
    total = ampscope.diff_findings(runs / "a.npy", runs / "b.npy").total
    assert total.counts["nan"] == total.counts["sign"] == total.counts["finite"] == 1 and total.differing == 3


def test_gates_of_a_diff(runs):
    asked = dict(gate=["norm<1e-9", "max-ulps <= 1e30", "missing<=0", "differ<100%"])
    f, said = (ask(runs / "fp32", runs / "amp-fp16", **asked) for ask in (ampscope.diff_findings, ampscope.amp_diff))
    assert [(g.gate.text, g.value, g.holds) for g in f.gates] == [
        (g["gate"], g["value"], g["holds"]) for g in said["gates"]]
    assert [g.value for g in f.gates] == [f.total.relative_norm, f.total.max_ulps, 0,
                                          f.total.differing / f.total.elements]
    assert [g.holds for g in f.gates] == [False, True, True, True]
    assert [(g.gate.figure, g.gate.or_equal, g.gate.limit) for g in f.gates] == [
        ("norm", False, 1e-9), ("max-ulps", True, 1e30), ("missing", True, 0), ("differ", False, 1)]
    assert ampscope.diff_findings(runs / "fp32", runs / "amp-fp16").gates == []
    squares = f.total.difference_squares, f.total.a_squares
    assert 0 < (squares[0] / squares[1])**0.5 == pytest.approx(f.total.relative_norm, rel=1e-15)


def test_histogram(runs):
    pandas = pytest.importorskip("pandas")
    asked = dict(format="fp16,e4m3", scale="3,1024", by="layer", error=True, gate="fp16.underflow<0.1%")
    f, said = (ask(GRADIENTS / "deep_tanh", **asked) for ask in (ampscope.histogram_findings, ampscope.amp_histogram))
    assert f.advice[0].startswith("FP16: 32.7 %") and f.errors == f.warnings == []
    assert [g.name for g in f.groups] == [g["name"] for g in said["groups"]] and f.total.tensors == 98
    assert [(g.gate.text, g.part, g.whole, g.holds) for g in f.gates] == [
        (g["gate"], g["count"], g["of"], g["holds"]) for g in said["gates"]]
    for tensor, expected in zip(f.tensors, said["tensors"]):
        assert (tensor.name, tensor.step) == (expected["name"], expected["step"])
        assert tensor.magnitudes.max == expected["max"] and tensor.blocks.blocks == tensor.fine.away.count == 0
        assert tensor.magnitudes.histogram.count == expected["count"] and tensor.shape == expected["shape"]
        assert tensor.unscaled[0].underflow == expected["formats"]["fp16"]["scales"][0]["underflow"]
    scales = f.kinds[0].scales
    curve = scales.curves[0]
    assert (str(curve.format), scales.rounding, scales.flush) == ("fp16", "nearest_even", False)
    assert curve.recommendation == f.formats[0].recommendation
    share = curve.unscaled.underflow / f.total.magnitudes.histogram.nonzero
    assert curve.underflow[-scales.first_log2] == share and len(curve.overflow) == len(curve.underflow)
    assert f.formats[0].recommendation["log2_scale"] == said["total"]["formats"]["fp16"]["recommended_log2_scale"]
    assert {(format, scale) for format, scale, _ in f.total.errors} >= {("fp16", 1.0), ("e4m3", 1024.0)}
    frame = f.frame()
    rows = said.rows()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(rows)
    for ours, theirs in zip(frame.to_dict("records"), rows):
        error, told = ours.pop("error"), theirs.pop("error")  # of scales that were asked for
        assert (error and (error.max_relative, error.signal)) == (told and (told["max_relative"], told["signal"]))
        assert {key: None if value != value else value for key, value in ours.items()} == theirs
    assert f._repr_html_().count("<tr>") == len(rows) + 1
    merged = runs / "all.json"
    ampscope.amp_histogram(GRADIENTS / "deep_tanh", csv=runs / "all.csv", html=runs / "all.html")
    assert (runs / "all.csv").read_text().startswith("file,tensor,step") and "<svg" in (runs / "all.html").read_text()
    merged.write_text(json.dumps(ampscope.amp_histogram(GRADIENTS / "deep_tanh")))
    assert ampscope.histogram_findings(merged, merge=True).total.magnitudes.histogram == f.total.magnitudes.histogram


def test_recipes(tmp_path):
    pandas = pytest.importorskip("pandas")
    asked = dict(recipe=["te-mxfp8", "te-nvfp4,column"], worst=3)
    f, said = (ask(GRADIENTS / "digits_cnn", **asked) for ask in (ampscope.histogram_findings, ampscope.amp_histogram))
    assert f.recipe_names == asked["recipe"]
    for entry, expected in [*zip(f.tensors, said["tensors"]), (f.total, said["total"])]:
        for name, effect in zip(f.recipe_names, entry.recipes):
            told, s = expected["recipes"][name], effect.statistics
            assert (effect.role, effect.element) == (told["role"], told["element"])
            for field in ("elements", "nonzero", "underflow", "saturated", "lost", "signal", "noise", "blocks"):
                assert getattr(s, field) == told[field], field
            assert {str(k): n for k, n in s.scales.items()} == told["scales"]["counts"]
            assert {str(k): n for k, n in s.ranges.items()} == told["log2_amax_over_least"]
            assert [(b.tensor, b.step, b.row, b.column, b.noise) for b in effect.worst] == [
                (b["tensor"], b["step"], b["row"], b["column"], b["noise"]) for b in told["worst"]]
    rows = f.recipes
    assert len(rows) == len(f.tensors) * 2 and isinstance(rows.frame(), pandas.DataFrame)
    assert rows[0]["recipe"] == "te-mxfp8" and rows._repr_html_().count("<tr>") == len(rows) + 1
    with pytest.raises(ValueError, match="blocks are the command's alone"):
        ampscope.histogram_findings(GRADIENTS / "digits_cnn", blocks=tmp_path / "x.npz", **asked)


def test_all_blocks_are_those_of_numpy(tmp_path):
    """MX blocks of 32 in a row, recomputed with NumPy."""
    x = np.random.default_rng(1).standard_normal((40, 96)).astype(np.float32)
    x *= np.exp2(np.random.default_rng(2).integers(-20, 1, x.shape)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    ampscope.amp_histogram(tmp_path / "x.npy", recipe="ocp-mxfp8", blocks=tmp_path / "blocks.npz")
    blocks = np.load(tmp_path / "blocks.npz")
    tiles = np.abs(x).reshape(40, 3, 32)
    scale = np.exp2(np.floor(np.log2(tiles.max(-1))) - 8).astype(np.float32)
    stored = ampscope.quantize(x.reshape(40, 3, 32) / scale[..., None], "e4m3", overflow="saturate_all")
    back = stored.astype(np.float64) * scale[..., None]
    name = next(iter(blocks)).split("/")[0] + "/ocp-mxfp8/"
    assert np.array_equal(blocks[name + "scale"], scale) and np.array_equal(blocks[name + "amax"], tiles.max(-1))
    assert np.array_equal(blocks[name + "least"], np.where(tiles > 0, tiles, np.inf).min(-1))
    assert np.array_equal(blocks[name + "underflow"], ((stored == 0) & (tiles > 0)).sum(-1))
    noise = ((x.reshape(40, 3, 32) - back) ** 2).sum(-1)
    np.testing.assert_allclose(blocks[name + "noise"], noise, rtol=1e-12)


def test_comparison(runs):
    f, said = ampscope.comparison_findings(runs), ampscope.amp_report(runs)
    facts, tensor = f.runs[0].facts, f.runs[0].tensors[0]
    assert (facts.tool, facts.model, facts.optimizer) == ("amp-train", "mlp", "adamw") and facts.eps == 1e-8
    assert tensor.name.endswith(".grad") and tensor.counts.underflow.keys() == {"fp16", "bf16", "e4m3", "e5m2"}
    assert [s.step for s in f.runs[0].steps] == list(range(30)) and f.runs[0].steps[0].loss > 0
    blocks = ampscope.histogram_findings(format="fp16", block=32).total.blocks
    assert blocks.blocks > 0 and all(b.mx.underflow >= b.amax.underflow >= 0 for b in blocks.formats)
    assert f.verdict == said["verdict"] and f.errors == said["errors"]
    assert [[a.question, a.words, a.reason, a.state] for a in f.answers] == [[*a.values()] for a in said["answers"]]
    (group,), (expected,) = f.groups, said["groups"]
    assert (group.name, group.margin, group.notes) == (expected["name"], expected["margin"], expected["notes"])
    assert group.reference.label == "fp32" and group.adam.advice == expected["adam"]["advice"]
    for row, told in zip(group.rows, expected["rows"]):
        assert (row.label, row.standing) == (told["precision"], told["standing"])
        assert row.distance == told["distance_from_reference"]
        assert (row.over and row.over.interval.mean) == (told["over"] and told["over"]["mean"])
        assert (row.loss.mean, row.loss.count) == (told["final_loss"]["mean"], told["final_loss"]["runs"])
        assert [run.final_loss for run in row.runs] == [run["final_loss"] for run in told["runs"]]
        assert [[(s.kind, s.first, s.last, s.steps) for s in of.spikes] for of in row.stability] == [
            [(s["kind"], s["first"], s["last"], s["steps"]) for s in run["spikes"]] for run in told["runs"]]
        assert max(size for _, size in row.stability[0].sizes) == told["stability"]["largest_gradient"]
    assert f.alarms == said["alarms"] == []
    (row,) = [row for row in group.rows if row.label == "amp-fp16"]
    assert row.stability[0].reference.label == "fp32" and row.stability[0].norms
    assert f.runs[0].steps[0].gradient_norm > 0
    log = [json.loads(line) for line in (runs / "amp-fp16/metrics.jsonl").read_text().splitlines()]
    log[20]["grad_norm"] *= 1000
    log[20]["amax"]["activation_gradient"] *= 1000
    spiked = runs.parent / "spiked/run"
    spiked.mkdir(parents=True)
    (spiked / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    (spike,) = ampscope.comparison_findings(spiked).groups[0].rows[0].stability[0].spikes
    assert (spike.kind, spike.peak, spike.growth.tensor) == ("gradient", 20, "the gradients of activations")
    assert spike.value > 10 * spike.level and (spike.growth.step, spike.growth.since) == (20, 19)
    run = f.runs[0]
    assert run.configuration["precision"]["name"] == run.label and len(run.steps) == 30 and run.result["steps"] == 30
    assert [(s.name, s.bytes, s.sha256) for run in f.runs for s in run.files] == [
        tuple(s.values()) for s in said["files"]]
    assert (f.limits.alpha, f.limits.spikes.window) == (0.05, 50) and group.comparisons == 1
    assert run.columns.first == run.tensors[0].counts.nan == 0 and len(run.recorded) == run.columns.count
    zeroed = run.tensors[0].zeroed
    assert zeroed.keys() == {"fp16", "e5m2"} and len(zeroed["fp16"]) == run.columns.count
    assert sum(share.part for share in zeroed["fp16"]) == run.tensors[0].counts.underflow["fp16"]
    del f, row
    assert group.evidence.magnitudes.nonzero > 0  # what a part points to stays
    frame = ampscope.comparison_findings(runs).frame()
    assert list(frame["standing"]) == ["reference", "unclear"] and list(frame["precision"]) == ["fp32", "amp-fp16"]
    assert frame.equals(said.frame())  # what the report's JSON says
    (row,) = [row for row in said["groups"][0]["rows"] if row["precision"] == "amp-fp16"]
    told = frame.iloc[1]
    assert (told["final_loss"], told["over"]) == (row["final_loss"]["mean"], row["over"]["mean"])
    assert "over_low" in frame and row["over"]["low"] is None  # an infinite interval
    assert told["underflow"] == row["underflow"]["part"] / row["underflow"]["whole"]


def test_known_effects(tmp_path):
    runs = tmp_path / "runs"
    ampscope.train(model="mlp", steps=100, precision=["fp32", "pure-bf16", "pure-bf16-kahan"], record=runs)
    f, said = ampscope.comparison_findings(runs), ampscope.amp_report(runs)
    (effect,), (told,) = f.groups[0].effects, said["groups"][0]["effects"]
    assert (effect.effect.claim, effect.effect.loses, effect.effect.recovers, effect.appears, effect.longest_sum) == (
        told["claim"], told["loses"], told["recovers"], told["appears"], told["longest_sum"])
    assert (effect.loses.label, effect.recovers.label, effect.effect.shows) == (
        "pure-bf16", "pure-bf16-kahan", "losses")
    assert effect.gradient_error is None and effect.difference.basis == "steps"  # one pair of runs
    assert effect.difference.interval.mean == told["difference"]["mean"] == pytest.approx(
        effect.loses.loss.mean - effect.recovers.loss.mean)


def test_what_is_refused(tmp_path):
    for asked in (ampscope.adam_findings, ampscope.loss_scale_findings):
        with pytest.raises(OSError, match="nonexistent"):
            asked("/nonexistent")
        with pytest.raises(ValueError, match="--frmat"):
            asked(GRADIENTS / "deep_tanh", frmat="fp16")
        with pytest.raises(ValueError, match="json"):
            asked(GRADIENTS / "deep_tanh", json="-")
        (tmp_path / "x.npy").write_text("no array")
        (tmp_path / "y.npy").write_text("no array")
        with pytest.raises(OSError, match=r"x.npy: .*\n.*y.npy: "):
            asked(tmp_path)
    for asked in (ampscope.histogram_findings, ampscope.comparison_findings):
        assert "nonexistent" in asked("/nonexistent").errors[0] and len(asked(tmp_path).errors) == 2
        for option in ("frmat", "json", "html"):
            with pytest.raises(ValueError, match=option):
                asked(GRADIENTS / "deep_tanh", **{option: "-"})
    for asked in (ampscope.amp_histogram, ampscope.amp_report):
        with pytest.raises(OSError, match="amp-.*nonexistent"):
            asked("/nonexistent")
    assert "nonexistent" in ampscope.diff_findings("/nonexistent", GRADIENTS).errors[0]
    with pytest.raises(OSError, match="amp-diff: .*nonexistent"):
        ampscope.amp_diff("/nonexistent", GRADIENTS)
    with pytest.raises(ValueError, match="FIGURE<LIMIT"):
        ampscope.amp_diff(GRADIENTS, GRADIENTS, gate="nan")


def test_names_may_be_any_bytes(runs, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    np.save(folder + "/x.npy", np.float32([1, 2]))
    assert ampscope.adam_findings(folder).name == ampscope.amp_adam(folder)["inputs"][0]["input"]
    assert ampscope.loss_scale_findings(folder).log.name.endswith("\N{REPLACEMENT CHARACTER}")
    assert ampscope.diff_findings(folder, folder).total.elements == 2
    pathlib.Path(folder, "y.npy").write_text("no array")
    assert len(ampscope.adam_findings(folder).errors) == len(ampscope.histogram_findings(folder).errors) == 1
    shutil.copytree(runs, folder + "/runs")
    verdict = ampscope.comparison_findings(folder + "/runs").verdict
    assert verdict == ampscope.amp_report(folder + "/runs")["verdict"]
    shutil.rmtree(folder + "/runs")
    os.remove(folder + "/x.npy")
    for asked in (ampscope.adam_findings, ampscope.loss_scale_findings, ampscope.amp_adam):
        with pytest.raises(OSError, match="y.npy: "):
            asked(folder)


def large(folder):
    for name, value in (("a", 1e-3), ("b", 2e-3)):
        np.save(folder / f"{name}.npy", np.full(30_000_000, value, np.float32))
    (folder / "log.csv").write_text("step,amax\n" + "".join(f"{i},0.5\n" for i in range(500_000)))
    return {"adam": lambda: ampscope.adam_findings(folder / "a.npy", assume_steps=100_000),
            "amp_adam": lambda: ampscope.amp_adam(folder / "a.npy", folder / "b.npy", assume_steps=100_000),
            "histogram": lambda: ampscope.histogram_findings(folder / "a.npy", threads=1, rounding="stochastic"),
            "amp_histogram": lambda: ampscope.amp_histogram(folder / "a.npy", threads=1, rounding="stochastic"),
            "amp_report": lambda: ampscope.amp_report(threads=1),
            "loss_scale": lambda: ampscope.loss_scale_findings(folder / "log.csv", sweep=True),
            "diff": lambda: ampscope.diff_findings(folder / "a.npy", folder / "b.npy", threads=1)}


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, whatever a framework that another test imported has made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_it_and_other_threads_go_on(tmp_path):
    for name, ask in large(tmp_path).items():
        counted, ended = [0], threading.Event()

        def count(counted=counted, ended=ended):
            while not ended.is_set():
                counted[0] += 1
                time.sleep(0.001)
        threads = [threading.Thread(target=count), threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))]
        began = time.monotonic()
        try:
            for thread in threads:
                thread.start()
            with pytest.raises(KeyboardInterrupt):
                ask()
            assert 0.2 < time.monotonic() - began < 10, name
        finally:
            ended.set()
        assert counted[0] > 30, name  # in 0.3 s: Python's lock was free
