"""Ranks that train together: a folder each, merged exactly."""
import json
import os
import re
import shutil
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
import ampscope.torch  # noqa: E402
from ampscope.torch import _ranks  # noqa: E402
from networks import histograms, lines, prepared, tensors  # noqa: E402

WORKER = """
import os, sys
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist, torch.nn.functional as F
import ampscope.torch
from networks import batches, prepared
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{store}", rank=rank, world_size=2)
model, optimizer = prepared()
ddp = torch.nn.parallel.DistributedDataParallel(model)
with ampscope.torch.record({run!r}, ddp, optimizer, every=2, activations=True, what="both", weights=True,
                           store="histograms"):
    for x, y in batches(5, seed=rank):
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    run = folder / "run"
    script = folder / "train.py"
    script.write_text(WORKER.format(tests=os.path.dirname(__file__), store=folder / "store", run=str(run)))
    workers = [subprocess.Popen([sys.executable, script, str(rank)]) for rank in range(2)]
    assert [w.wait(timeout=300) for w in workers] == [0, 0]
    return run


def test_merged_is_the_sum(ranks):
    ampscope.torch.merge_ranks(ranks)
    parts, merged = [histograms(ranks / f"rank_{r}") for r in range(2)], histograms(ranks)
    assert set(merged) == set(parts[0]) and {step for step, _ in merged} == {0, 2, 4}
    assert {line["kind"] for line in merged.values()} == {"weight", "weight_gradient", "activation",
                                                          "activation_gradient"}
    for key, line in merged.items():
        a, b = (part[key]["histogram"] for part in parts)
        if line["kind"] in ("weight", "weight_gradient"):
            assert line["histogram"] == a == b
        else:
            assert a != b and line["histogram"] == a + b
    metrics = [[json.loads(x) for x in (p / "metrics.jsonl").read_text().splitlines()]
               for p in (ranks, ranks / "rank_0", ranks / "rank_1")]
    for m, a, b in zip(*metrics, strict=True):
        assert m["loss"] == (a["loss"] + b["loss"]) / 2 and m["grad_norm"] == a["grad_norm"] == b["grad_norm"]
        if m["step"] % 2 == 0:
            assert m["amax"]["activation_gradient"] == max(a["amax"]["activation_gradient"],
                                                           b["amax"]["activation_gradient"])
    report = subprocess.run(["amp-report", ranks], check=True, capture_output=True, text=True).stdout
    assert "MLP; 1 recorded run" in report
    with pytest.raises(FileExistsError):
        ampscope.torch.merge_ranks(ranks)


@pytest.fixture(scope="module")
def ranks_with_tensors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensors")
    script = folder / "train.py"
    text = WORKER.format(tests=os.path.dirname(__file__), store=folder / "store", run=str(folder / "run"))
    script.write_text(text.replace('store="histograms"', "state=True"))
    workers = [subprocess.Popen([sys.executable, script, str(rank)]) for rank in range(2)]
    assert [w.wait(timeout=300) for w in workers] == [0, 0]
    return folder / "run"


def test_what_is_the_same_on_every_rank_is_kept(ranks_with_tensors, tmp_path):
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    ampscope.torch.merge_ranks(run)
    for step in (0, 2, 4):
        file = f"step_{step:06}.safetensors"
        (metadata, merged), (_, first), (_, second) = (tensors(run / part / "gradients" / file)
                                                       for part in ("", "rank_0", "rank_1"))
        assert set(merged) == {name for name in first if ".out" not in name} and any(".out" in name for name in first)
        assert set(json.loads(metadata["kinds"]).values()) == {"weight_gradient"}  # weights are in state/
        for name, tensor in merged.items():
            assert tensor.tobytes() == first[name].tobytes() == second[name].tobytes()
        assert (run / "state" / file).read_bytes() == (run / "rank_0/state" / file).read_bytes()
    adam = ampscope.adam_findings(run)
    assert adam.basis == "recorded" and len(adam.tensors) == 4 and adam.total.updated > 0
    merged, parts = (ampscope.histogram_findings(*paths) for paths in ([run], [run / "rank_0", run / "rank_1"]))
    assert {t.kind for t in merged.tensors} == {"weight_gradient", "activation_gradient"}

    def count(found, kind):
        return sum(t.magnitudes.histogram.count for t in found.tensors if t.kind == kind)

    assert count(merged, "activation_gradient") == count(parts, "activation_gradient")
    assert count(merged, "weight_gradient") == count(parts, "weight_gradient")  # equal ones count once
    report = subprocess.run(["amp-report", run], check=True, capture_output=True, text=True).stdout
    assert "Adam" in report


def test_state_of_which_each_rank_has_a_part_stays_there(ranks_with_tensors, tmp_path):
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    file = run / "rank_1/state/step_000002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    said = r"the state of some steps is left out (1, the first is step 2: rank 1 has another than rank 0)"
    with pytest.warns(RuntimeWarning, match=re.escape(f"{run}: {said}") + "$"):
        ampscope.torch.merge_ranks(run)
    assert [p.name for p in sorted((run / "state").iterdir())] == ["step_000000.safetensors", "step_000004.safetensors"]
    assert json.loads((run / "result.json").read_text())["warnings"] == [said]


def without_low_bit(file, tensor):
    """What the file is with the lowest bit of the tensor's first element flipped."""
    data = bytearray(file.read_bytes())
    n = int.from_bytes(data[:8], "little")
    data[8 + n + json.loads(data[8:8 + n])[tensor]["data_offsets"][0]] ^= 1
    return bytes(data)


@pytest.mark.parametrize("weights", ["all-reduced", "own"])  # promised by DDP, or found
def test_copies_of_gradients_have_the_same_bits(ranks_with_tensors, tmp_path, weights):
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    for rank in range(2):
        file = run / f"rank_{rank}/run.json"
        file.write_text(file.read_text().replace('"all-reduced"', f'"{weights}"'))
    file = run / "rank_1/gradients/step_000002.safetensors"
    whole = file.read_bytes()
    file.write_bytes(without_low_bit(file, "up.weight.grad"))
    said = re.escape(f"{run}: step 2, up.weight.grad: ranks 0 and 1 hold copies that differ")
    with pytest.raises(ValueError, match=f"^{said}$"):
        ampscope.torch.merge_ranks(run)
    file.write_bytes(whole.replace(b'"loss_scale":"1.0"', b'"loss_scale":"2.0"'))
    with pytest.raises(ValueError, match="step 2: the loss scale of gradients is 1.0 on rank 0, 2.0 on rank 1$"):
        ampscope.torch.merge_ranks(run)


def test_steps_of_which_a_rank_lacks_tensors(ranks_with_tensors, tmp_path):
    """Step 0 was not to be recorded, as no rank has it."""
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    for file in ("rank_0/gradients/step_000000", "rank_1/gradients/step_000000", "rank_1/gradients/step_000002",
                 "rank_0/gradients/step_000004", "rank_0/state/step_000000", "rank_1/state/step_000000",
                 "rank_1/state/step_000004"):
        (run / f"{file}.safetensors").unlink()
    said = ("gradients of some steps are merged only as histograms (2, the first is step 2: rank 1 lacks them); "
            "the state of some steps is left out (1, the first is step 4: rank 1 lacks it)")
    with pytest.warns(RuntimeWarning, match=re.escape(f"{run}: {said}") + "$"):
        ampscope.torch.merge_ranks(run)
    assert json.loads((run / "result.json").read_text())["warnings"] == [said]
    assert not list((run / "gradients").iterdir()) and {step for step, _ in histograms(run)} == {0, 2, 4}
    assert [p.name for p in (run / "state").iterdir()] == ["step_000002.safetensors"]


def test_stages_of_a_pipeline_stay_apart_as_tensors(ranks_with_tensors, tmp_path):
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    for rank, stage in enumerate(("up.", "down.")):
        folder = run / f"rank_{rank}"
        of_stage = [line for line in lines(folder / "histograms.jsonl") if line["tensor"].startswith(stage)]
        steps = [{**line, "grad_norm": rank} for line in lines(folder / "metrics.jsonl")]
        for name, kept in (("histograms.jsonl", of_stage), ("metrics.jsonl", steps)):
            (folder / name).write_text("".join(json.dumps(line) + "\n" for line in kept))
        (folder / "run.json").write_text((folder / "run.json").read_text().replace('"all-reduced"', '"own"'))
    with pytest.warns(RuntimeWarning, match=r"only as histograms \(3, the first is step 0: run.json does not say"):
        ampscope.torch.merge_ranks(run)
    assert not list((run / "gradients").iterdir()) and len({tensor for _, tensor in histograms(run)}) == 12


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_merge_that_fails_leaves_nothing(ranks_with_tensors, tmp_path, monkeypatch):
    run = shutil.copytree(ranks_with_tensors, tmp_path / "run")
    file = run / "rank_1/gradients/step_000004.safetensors"
    whole = file.read_bytes()

    def fails(error):
        with pytest.raises(error):
            ampscope.torch.merge_ranks(run)
        assert sorted(path.name for path in run.iterdir()) == ["rank_0", "rank_1"]

    file.write_bytes(whole[:-20])
    fails(OSError)
    file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fails(RuntimeWarning)
    file.write_bytes(whole)
    with monkeypatch.context() as patched:
        patched.setattr(_ranks, "_merged_result", interrupted)
        fails(KeyboardInterrupt)
    ampscope.torch.merge_ranks(run)
    assert (run / "result.json").exists()


def copied(ranks, folder, weights, change=lambda rank, name, line: line):
    """The ranks' recordings, with run.json and each line as change() gives them; None drops it."""
    for rank in range(2):
        source, target = ranks / f"rank_{rank}", folder / f"rank_{rank}"
        target.mkdir(parents=True)
        run = json.loads((source / "run.json").read_text())
        run["ranks"]["weights"] = weights
        (target / "run.json").write_text(json.dumps(change(rank, "run.json", run)))
        for name in ("metrics.jsonl", "histograms.jsonl"):
            lines = (change(rank, name, json.loads(line)) for line in (source / name).read_text().splitlines())
            (target / name).write_text("".join(json.dumps(line) + "\n" for line in lines if line))
        result = change(rank, "result.json", json.loads((source / "result.json").read_text()))
        if result:
            (target / "result.json").write_text(json.dumps(result))
    ampscope.torch.merge_ranks(folder)
    return json.loads((folder / "run.json").read_text())["ranks"]["weights"], histograms(folder)


def test_run_json_of_ranks_has_the_keys_of_its_schema(ranks, tmp_path):
    copied(ranks, tmp_path / "same", "all-reduced")
    written = {f"/ranks/{key}" for folder in ("same", "same/rank_0")
               for key in json.loads((tmp_path / folder / "run.json").read_text())["ranks"]}
    keys = {key for key in ampscope._ampscope.run_layout.keys if key.startswith("/ranks/")}
    assert written == keys - {"/ranks/shards"}  # of fully_shard, whose test is in test_torch_sharded.py


def test_gradients_that_were_reduced_unseen_count_once(ranks, tmp_path):
    """By hand, or in a framework that hides its wrapper of the model: what tells is that ranks hold the same."""
    weights, merged = copied(ranks, tmp_path / "same", "own")
    assert weights == "all-reduced" and merged[0, "up.weight.grad"] == histograms(ranks / "rank_0")[0, "up.weight.grad"]

    def other_norm(rank, name, line):
        return {**line, "grad_norm": line["grad_norm"] + rank} if name == "metrics.jsonl" else line

    def other_histogram(rank, name, line):
        changes = rank and line.get("tensor") == "down.bias.grad"
        return {**line, "count": line["count"] + 1, "zero": line["zero"] + 1} if changes else line

    one = histograms(ranks / "rank_0")[0, "up.weight.grad"]["histogram"]
    for number, change in enumerate((other_norm, other_histogram)):
        with pytest.warns(RuntimeWarning, match=r"run.json does not say which, .* \(8, the first is down.bias"):
            weights, merged = copied(ranks, tmp_path / f"parts{number}", "own", change)
        assert weights == "own" and merged[0, "up.weight.grad"]["histogram"] == one + one


@pytest.mark.parametrize("of_rank_1, steps, said", [
    (lambda step: step > 3, [0, 1, 2, 3], "the recording of rank 1 ends at step 3: steps that not all ranks have are "
                                          "left out (1, the first is 4); rank 1 did not end"),
    (lambda step: step < 2, [2, 3, 4], "the recording of rank 1 lacks step 0: steps that not all ranks have are left "
                                       "out (2, the first is 0); rank 1 did not end"),
    (lambda step: True, [], "the recording of rank 1 holds no step: steps that not all ranks have are left out (5, the "
                            "first is 0); rank 1 did not end"),
    (lambda step: False, [0, 1, 2, 3, 4], "rank 1 did not end")])
def test_a_rank_that_died(ranks, tmp_path, of_rank_1, steps, said):
    """It leaves what it recorded, without a result.json, and maybe with half a line."""
    def died(rank, name, line):
        if name == "result.json":
            return None if rank else {**line, "warnings": ["train.py:3: said by rank 0"]}
        return None if rank == 1 and name != "run.json" and of_rank_1(line["step"]) else line

    run = tmp_path / "run"
    with pytest.warns(RuntimeWarning) as heard:
        weights, merged = copied(ranks, run, "own", died)
    assert [(str(w.message), w.filename) for w in heard] == [(f"{run}: {said}", __file__)]
    assert {step for step, _ in merged} == {0, 2, 4} & set(steps) and (not steps or weights == "all-reduced")
    result = json.loads((run / "result.json").read_text())
    assert result["warnings"] == ["train.py:3: said by rank 0", said] and result["stopped"] == ""
    assert (result["steps"], result["skipped"], result["scale"]) == (len(steps), 0, 1.0)
    assert [line["step"] for line in ampscope.Run(run).metrics] == steps
    if steps:
        told = subprocess.run(["amp-report", run], check=True, capture_output=True, text=True)
        assert said in " ".join((told.stdout + told.stderr).split())


def test_ranks_that_all_died_at_once(ranks, tmp_path):
    def died(rank, name, line):
        return None if name == "result.json" else line

    with pytest.warns(RuntimeWarning, match="run: ranks 0, 1 did not end$"):
        copied(ranks, tmp_path / "run", "own", died)


def test_half_a_line_of_a_rank_that_died(ranks, tmp_path):
    for rank in ("rank_0", "rank_1"):
        shutil.copytree(ranks / rank, tmp_path / "run" / rank, ignore=shutil.ignore_patterns("result.json"))
    for name in ("metrics.jsonl", "histograms.jsonl"):
        log = tmp_path / "run/rank_1" / name
        log.write_bytes(log.read_bytes()[:-20])
    with pytest.warns(RuntimeWarning, match="rank 1 ends at step 3: .*; ranks 0, 1 did not end$"):
        ampscope.torch.merge_ranks(tmp_path / "run")


def test_ranks_that_ended_say_nothing(ranks, tmp_path, recwarn):
    stops = {0: "", 1: "step 5: KeyboardInterrupt: "}
    copied(ranks, tmp_path / "run", "own", lambda rank, name, line:
           {**line, "stopped": stops[rank]} if name == "result.json" else line)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert not recwarn.list and result["warnings"] == [] and result["stopped"] == stops[1] and result["steps"] == 5


def test_a_tensor_that_one_rank_lacks(ranks, tmp_path):
    def without(rank, name, line):
        return None if rank == 1 and line.get("tensor") == "up.out.grad" else line

    _, merged = copied(ranks, tmp_path / "run", "all-reduced", without)
    assert merged[2, "up.out.grad"] == histograms(ranks / "rank_0")[2, "up.out.grad"]


def test_what_cannot_be_merged(ranks, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no folders rank_0"):
        ampscope.torch.merge_ranks(tmp_path)
    shutil.copytree(ranks / "rank_0", tmp_path / "rank_0")
    with pytest.raises(ValueError, match="holds 1 ranks of 2"):
        ampscope.torch.merge_ranks(tmp_path)
    shutil.copytree(ranks / "rank_1", tmp_path / "rank_1")
    log = tmp_path / "rank_1/histograms.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    changed = next(line for line in lines if line["tensor"] == "up.weight.grad")
    line = lines.index(changed) + 1
    for field, said in (("zero", f"histograms.jsonl: line {line} cannot be read"),  # it is not what its count says
                        ("count", "step 0, up.weight.grad: ranks 0 and 1 hold copies that differ")):
        changed[field] += 1
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(ValueError, match=said):
            ampscope.torch.merge_ranks(tmp_path)
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("facts, said", [
    (None, "run.json is of rank none, not of rank 0"), ({"rank": 0, "weights": "own"}, "run.json has no ranks/of"),
    ({"rank": 0, "of": 1}, "run.json has no ranks/weights")])
def test_facts_that_run_json_lacks(tmp_path, facts, said):
    (tmp_path / "rank_0").mkdir()
    (tmp_path / "rank_0/run.json").write_text(json.dumps({"schema_version": 2, "ranks": facts}))
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))}/rank_0: {said}$"):
        ampscope.torch.merge_ranks(tmp_path)


def test_steps_in_which_ranks_differ():
    from ampscope.torch._ranks import _merged_step
    a = {"step": 3, "loss": 1.0, "scale": 8.0, "found_inf": False, "skipped": False, "grad_norm": 3.0, "lr": 0.1,
         "amax": {"weight_gradient": 2.0}}
    largest = {"weight_gradient": 5.0, "activation_gradient": 1.0}
    b = {**a, "loss": 3.0, "found_inf": True, "grad_norm": 4.0, "amax": largest}
    parts, copies, unknown = ([{0: True}, {0: counted}] for counted in (True, False, None))
    merged = _merged_step([a, b], parts)
    assert (merged["loss"], merged["found_inf"], merged["skipped"], merged["grad_norm"]) == (2.0, True, False, 5.0)
    assert merged["amax"] == largest and _merged_step([a, b], copies)["grad_norm"] == 3.0
    merged = _merged_step([a, b], unknown)
    assert merged["grad_norm"] is None and merged["amax"] == {"activation_gradient": 1.0}
    broken = _merged_step([a, {**b, "loss": None, "loss_class": "nan", "grad_norm": None}], parts)
    assert (broken["loss"], broken["loss_class"], broken["grad_norm"]) == (None, "nan", None)
    for key, called in (("scale", "loss scale"), ("lr", "learning rate")):
        with pytest.raises(ValueError, match=f"step 3: ranks differ in their {called}"):
            _merged_step([a, {**b, key: 4.0}], copies)


def test_ranks_of_schema_version_1(ranks, tmp_path):
    """Where kinds are called weight and activation, but are gradients."""
    old = {"weight_gradient": "weight", "activation_gradient": "activation"}

    def change(rank, name, line):
        if name in ("run.json", "result.json"):
            return {**line, "schema_version": 1}
        if name == "metrics.jsonl":
            return {**line, "amax": {old[kind]: x for kind, x in line["amax"].items()}}
        kind = old.get(line.pop("kind"))
        del line["schema_version"]
        return {**line, "kind": kind} if kind else None

    _, merged = copied(ranks, tmp_path, "all-reduced", change)
    parts = [histograms(ranks / f"rank_{r}") for r in range(2)]
    assert {line["kind"] for line in merged.values()} == set(old)
    for key, line in merged.items():
        a, b = (part[key] for part in parts)
        assert line["kind"] == a["kind"] and line["histogram"] in (a["histogram"], a["histogram"] + b["histogram"])
    run = ampscope.Run(tmp_path)
    assert run.configuration["schema_version"] == 2 and set(run.metrics[0]["amax"]) == set(old)


def test_ranks_that_have_not_found_each_other_yet(tmp_path, monkeypatch):
    """record() before init_process_group: torchrun has told each process which it is."""
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        model, optimizer = prepared()
        ampscope.torch.record(tmp_path / "run", model, optimizer, every=1).close()
        assert (tmp_path / f"run/rank_{rank}/run.json").exists()
    assert not (tmp_path / "run-2").exists()
