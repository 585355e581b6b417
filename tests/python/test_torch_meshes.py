"""Tensors that ranks hold in parts, along any dimension and on meshes of two: merged, they are the whole tensors.

What they are checked against is full_tensor(), which torch gathered at the moment of recording, and, for networks of
small integers, the recording of one process that trains with the batches of all."""
import itertools
import json
import math
import pathlib
import shutil
import types

import pytest

torch = pytest.importorskip("torch")
if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
    pytest.skip("torch has no fully_shard", allow_module_level=True)
import sharded_training  # noqa: E402
from networks import lines, raw, tensors  # noqa: E402

import ampscope.torch  # noqa: E402
from ampscope import _ampscope  # noqa: E402
from ampscope.torch import _folder, _parallel  # noqa: E402

WHOLE = [*(f"{world}/{name}" for world in (2, 3, 4) for name in ("ddp", "ddp_exact", "fsdp", "fsdp_exact")),
         *(f"4/{name}" for name in ("hsdp", "hsdp_exact", "fsdp_tp", "tp", "placements"))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return sharded_training.make(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def merged(trained, tmp_path_factory):
    """Merged runs by their names, and what their tensors were."""
    found = {}

    def get(name):
        if name not in found:
            run = shutil.copytree(trained / name, tmp_path_factory.mktemp("merged") / "run")
            ampscope.torch.merge_ranks(run)
            found[name] = run, torch.load(trained / f"{name}.pt")
        return found[name]
    return get


def kind_of(name):
    return "weight_gradient" if name.endswith(".grad") else "state" if name[-2:] in (".m", ".v") else "weight"


def state_of(whole):
    """As state/ has it: moments are zeros before the first step, and always for SGD."""
    weights = {name: tensor for name, tensor in whole.items() if kind_of(name) == "weight"}
    return {name + suffix: tensor if not suffix else whole.get(name + suffix, torch.zeros_like(tensor))
            for name, tensor in weights.items() for suffix in ("", ".m", ".v")}


def as_one_process(folder, run, seen):
    """The folder that one process would have recorded, which has had all tensors whole."""
    recorded = json.loads((run / "run.json").read_text())
    recorder = _folder.Folder(folder, 0)
    recorder.write("run.json", {key: facts for key, facts in recorded.items() if key != "ranks"})
    for step, (_, whole) in enumerate(seen):
        gradients = {name: tensor for name, tensor in whole.items() if kind_of(name) == "weight_gradient"}
        weights = {name: tensor for name, tensor in whole.items() if kind_of(name) == "weight"}
        for name, tensor in {**(weights if recorded["recording"]["weights"] else {}), **gradients}.items():
            recorder.append_histogram(ampscope.histogram(tensor), step=step, tensor=name, kind=kind_of(name),
                                      loss_scale=1.0, format="fp32")
        recorder.append_metrics(lines(run / "metrics.jsonl")[step])
        for write, named in ((recorder.write_gradients, gradients), (recorder.write_state, state_of(whole))):
            kept = {name: ("float32", list(t.shape), t.contiguous().numpy().reshape(-1).view("u1"))
                    for name, t in named.items()}
            write(step, kept, {name: kind_of(name) for name in kept}, *([1.0] if named is gradients else []))
    recorder.write("result.json", json.loads((run / "result.json").read_text()))
    recorder.close()
    return folder


def norm_of(tensors_):
    """To the last place: squares of FP32 numbers are exact in FP64, and so is their sum as fsum() rounds it."""
    return math.sqrt(math.fsum(x * x for t in tensors_ for x in t.double().flatten().tolist()))


@pytest.mark.parametrize("name", WHOLE)
def test_merged_tensors_are_whole(merged, name, recwarn):
    run, seen = merged(name)
    assert not [w for w in recwarn if w.category is RuntimeWarning]
    for step, (losses, whole) in enumerate(seen):
        gradients = {n: t for n, t in whole.items() if kind_of(n) == "weight_gradient"}
        for folder, expected in (("gradients", gradients), ("state", state_of(whole))):
            metadata, found = tensors(run / folder / f"step_{step:06}.safetensors")
            assert {n: (t.shape, t.tobytes()) for n, t in found.items()} == {n: raw(t) for n, t in expected.items()}
            assert json.loads(metadata["kinds"]) == {n: kind_of(n) for n in expected}
        line = lines(run / "metrics.jsonl")[step]
        assert line["loss"] == (None if None in losses else math.fsum(losses) / len(losses))
        assert "grad_norms" not in line
        assert abs(line["grad_norm"] - norm_of(gradients.values())) <= 4 * math.ulp(line["grad_norm"])
        assert line["amax"]["weight_gradient"] == max(float(t.abs().max()) for t in gradients.values())


@pytest.mark.parametrize("name", WHOLE)
def test_histograms_and_tools_are_those_of_one_process(merged, name, tmp_path):
    """Lines of histograms are the same to the bytes."""
    run, seen = merged(name)
    one = as_one_process(tmp_path / "one", run, seen)
    log, expected = (sorted(line for line in (folder / "histograms.jsonl").read_bytes().splitlines()
                            if b".out" not in line) for folder in (run, one))
    assert log == expected and log
    for answer in [ampscope.amp_histogram] + [ampscope.amp_adam] * ("exact" not in name):  # those have SGD
        options = {"kind": "weight_gradient"} if answer is ampscope.amp_histogram else {}
        texts = [json.dumps(dict(answer(str(folder), **options))).replace(str(folder), "") for folder in (run, one)]
        assert texts[0] == texts[1] and ("up.weight.grad" in texts[0] or "cube.grad" in texts[0])
    differences = ampscope.amp_diff(str(run), str(one))
    assert differences["total"]["elements"] and not differences["total"]["differing"]
    assert not differences["only_a"] and not differences["only_b"]


@pytest.mark.parametrize("name", ["2/ddp_exact", "2/fsdp_exact", "4/ddp_exact", "4/fsdp_exact", "4/hsdp_exact"])
def test_one_process_with_the_batches_of_all_trains_the_same(merged, name, tmp_path):
    """Where every sum is exact, and so is the mean over ranks; each has 2 micro-batches."""
    run, _ = merged(name)
    model = sharded_training.prepared(sharded_training.Integers)
    optimizer = sharded_training.exact_sgd(model)
    with ampscope.torch.record(tmp_path / "one", model, optimizer, every=1, state=True):
        for step in range(sharded_training.STEPS):
            x, y = (torch.cat(parts) for parts in zip(*(sharded_training.Integers.data(step, rank, micro_batch)
                                                        for rank in range(int(name[0])) for micro_batch in range(2))))
            sharded_training.Integers.loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    logs = [sorted((folder / "histograms.jsonl").read_bytes().splitlines()) for folder in (run, tmp_path / "one")]
    assert logs[0] == logs[1] and len(logs[0]) == 4 * sharded_training.STEPS
    for folder, step in itertools.product(("gradients", "state"), range(sharded_training.STEPS)):
        (_, a), (_, b) = (tensors(path / folder / f"step_{step:06}.safetensors") for path in (run, tmp_path / "one"))
        assert {n: t.tobytes() for n, t in a.items()} == {n: t.tobytes() for n, t in b.items()}
    for a, b in zip(lines(run / "metrics.jsonl"), lines(tmp_path / "one/metrics.jsonl"), strict=True):
        assert (a["loss"], a["amax"]) == (b["loss"], b["amax"]) and a["loss"] and any(a["amax"].values())
        assert abs(a["grad_norm"] - b["grad_norm"]) <= 2 * math.ulp(b["grad_norm"])


@pytest.mark.parametrize("name, micro_batches", [
    ("2/fsdp", 3), ("3/ddp", 2), ("3/fsdp", 3), ("4/fsdp", 3), ("4/fsdp_tp", 2), ("4/hsdp", 2), ("4/hsdp_exact", 2),
    ("4/tp", None)])
def test_micro_batches_whose_gradients_no_parameter_has_yet_count(merged, name, micro_batches):
    """FSDP keeps them after set_requires_gradient_sync(False) and set_requires_all_reduce(False)."""
    run, _ = merged(name)
    assert [line.get("micro_batches") for line in lines(run / "metrics.jsonl")] == [micro_batches] * 2
    log, _ = _ampscope.read_histogram_log(str(run / "histograms.jsonl"))
    counts = [line["histogram"].count for line in log if line["tensor"] == "up.out.grad"]
    assert counts == ([int(name[0]) * 3 * 4 * 4 * 24] * 2 if "/fsdp" in name and "tp" not in name else [])
    precision = json.loads((run / "run.json").read_text())["precision"]["name"]
    assert precision == ("master-bf16" if micro_batches == 3 or name == "4/hsdp" else "fp32")


@pytest.mark.parametrize("name, left_out, said", [
    ("summands", {"norm.weight.grad", "norm.bias.grad"},
     r"of all gradients \(2, the first is norm.bias.grad, Partial\(sum\) on rank "),
    ("gapped", {"gapped.grad", "gapped", "gapped.m", "gapped.v"},
     r"of all gradients, and the optimizer's state \(1, the first is gapped, _StridedShard")])
def test_what_cannot_be_joined_is_left_out_and_said(trained, tmp_path, name, left_out, said):
    run = shutil.copytree(trained / f"4/{name}", tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="parts that cannot be joined are left out, .*" + said):
        ampscope.torch.merge_ranks(run)
    assert "cannot be joined" in json.loads((run / "result.json").read_text())["warnings"][0]
    assert (run / "state").exists() == (name == "summands")
    log, _ = _ampscope.read_histogram_log(str(run / "histograms.jsonl"))
    for step, (_, whole) in enumerate(torch.load(trained / f"4/{name}.pt")):
        expected = {n: t for n, t in whole.items() if kind_of(n) == "weight_gradient" and n not in left_out}
        _, found = tensors(run / f"gradients/step_{step:06}.safetensors")
        assert {n: (t.shape, t.tobytes()) for n, t in found.items()} == {n: raw(t) for n, t in expected.items()}
        assert {line["tensor"] for line in log if line["step"] == step} == set(expected)
        line = lines(run / "metrics.jsonl")[step]
        assert line["grad_norm"] is None and line["amax"] == {} and whole.keys() & left_out


def edited(path, edit):
    """A JSON file, or a log of which each line is edited; None drops it."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        edit(document)
        path.write_text(json.dumps(document))
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines(path) if edit(line) is not False))


def of_shard(rank, tensor, **changes):
    """What changes in run.json of a rank."""
    def edit(run):
        edited(run / f"rank_{rank}/run.json", lambda document: document["ranks"]["shards"][tensor].update(changes))
    return edit


def drop_line(rank, tensor):
    def edit(run):
        edited(run / f"rank_{rank}/histograms.jsonl", lambda line: line["tensor"] != tensor)
    return edit


def replace_rank(rank, other):
    """By a rank of another recording."""
    def edit(run):
        shutil.rmtree(run / f"rank_{rank}")
        shutil.copytree(other(run), run / f"rank_{rank}")
    return edit


def other_settings(run):
    edited(run / "rank_1/run.json", lambda document: document["optimizer"].update(lr=0.25))


def other_bits(folder):
    """The last element of a file changes."""
    def edit(run):
        file = run / f"rank_2/{folder}/step_000001.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    return edit


def other_type(run):
    file = run / "rank_1/gradients/step_000001.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"F32"', b'"I32"'))


def other_rows(run):
    shutil.copy(run / "rank_0/gradients/step_000001.safetensors", run / "rank_3/gradients/step_000001.safetensors")


def silent(run):
    edited(run / "rank_3/run.json", lambda document: document["ranks"]["shards"].pop("up.bias"))


def other_count(run):
    def edit(line):
        if line["tensor"] == "up.bias.grad" and line["step"] == 1:
            line.update(count=line["count"] + 1, zero=line["zero"] + 1)
    edited(run / "rank_3/histograms.jsonl", edit)


@pytest.mark.parametrize("name, edit, said", [
    ("fsdp_exact", lambda run: shutil.rmtree(run / "rank_3"), "holds 3 ranks of 4: rank_3 is missing"),
    ("fsdp_exact", replace_rank(1, lambda run: run / "rank_2"), "rank_1: run.json is of rank 2, not of rank 1"),
    ("fsdp_exact", replace_rank(1, lambda run: run.parent / "others"),
     "recordings of different runs: the number of ranks is 4 on rank 0, 3 on rank 1"),
    ("fsdp_exact", other_settings,
     "recordings of different runs: optimizer/lr in run.json is 0.5 on rank 0, 0.25 on rank 1"),
    ("fsdp_exact", of_shard(1, "up.weight", offset=[2, 0]), r"up.weight: what rank 1 holds, \[3, 6\] at \[2, 0\], "
     r"overlaps what rank 0 does, \[3, 6\] at \[0, 0\]"),
    ("fsdp_exact", of_shard(1, "up.weight", size=[2, 6]), r"up.weight: none of the ranks that have it, 0, 1, 2, 3, "
     r"holds its element \[5, 0\]"),
    ("fsdp_exact", of_shard(3, "up.weight", offset=[8, 0], size=[3, 6]),
     r"up.weight: what rank 3 holds, \[3, 6\] at \[8, 0\], is not within \[10, 6\]"),
    ("fsdp_exact", of_shard(2, "up.weight", shape=[11, 6]),
     r"up.weight: its shape is \[10, 6\] on rank 0, \[11, 6\] on rank 2"),
    ("fsdp_exact", drop_line(1, "up.bias.grad"),
     r"step 0, up.bias.grad: none of the ranks that have it, 0, 2, 3, holds its element \[3\]"),
    ("fsdp_exact", silent, r"up.bias: none of the ranks that have it, 0, 1, 2, holds its element \[9\]"),
    ("hsdp_exact", silent, "step 0, up.bias.grad: run.json of rank 3 does not say which part of it the rank holds"),
    ("fsdp_exact", other_rows,
     r"step 1, up.weight.grad: the file of rank 3 holds \[3, 6\], run.json says \[1, 6\] at \[9, 0\]"),
    ("fsdp_exact", other_type, "step 1, up.weight.grad: its type is float32 on rank 0, int32 on rank 1"),
    ("hsdp_exact", other_bits("state"), r"step 1, .*: ranks 0 and 2 hold copies that differ"),
    ("hsdp_exact", other_bits("gradients"), r"step 1, .*: ranks 0 and 2 hold copies that differ"),
    ("hsdp_exact", other_count, "step 1, up.bias.grad: ranks 1 and 3 hold copies that differ")])
def test_ranks_that_contradict_each_other(trained, tmp_path, name, edit, said):
    run = shutil.copytree(trained / f"4/{name}", tmp_path / "run")
    shutil.copytree(trained / "3/fsdp_exact/rank_1", tmp_path / "others")
    edit(run)
    with pytest.raises(ValueError, match=said) as error:
        ampscope.torch.merge_ranks(run)
    assert str(error.value).startswith(str(run)) and "\n" not in str(error.value)
    assert sorted(path.name for path in run.iterdir() if not path.name.startswith("rank_")) == []


def files_of(run):
    return {path.relative_to(run): path.read_bytes() for path in run.rglob("*")
            if path.is_file() and not path.relative_to(run).parts[0].startswith("rank_")}


def test_a_rank_that_lacks_a_tensor_of_which_it_holds_nothing(trained, merged, tmp_path):
    run = shutil.copytree(trained / "4/fsdp_exact", tmp_path / "run")
    drop_line(3, "down.weight.grad")(run)
    ampscope.torch.merge_ranks(run)
    assert len(files_of(run)) == 8 and files_of(run) == files_of(merged("4/fsdp_exact")[0])


def test_a_norm_of_copies_and_of_others(trained, merged, tmp_path):
    """As of weights that two stages of a pipeline share: the ranks' norms do not tell that of all gradients."""
    run = shutil.copytree(trained / "4/fsdp_tp", tmp_path / "run")
    for name in ("up.weight", "up.bias", "down.weight", "down.bias"):
        of_shard(1, name, group=1)(run)
    with pytest.warns(RuntimeWarning, match="rank 1 has one norm of copies and of what no other rank holds"):
        ampscope.torch.merge_ranks(run)
    assert {line["grad_norm"] for line in lines(run / "metrics.jsonl")} == {None}
    found, expected = files_of(run), files_of(merged("4/fsdp_tp")[0])
    assert {name for name in found if found[name] != expected[name]} == {pathlib.Path(n) for n in
                                                                         ("metrics.jsonl", "result.json")}


def test_recordings_that_have_only_the_shapes_of_what_is_divided_by_rows(trained, merged, tmp_path):
    """As ampscope wrote them at first, without norms of groups."""
    run = shutil.copytree(trained / "4/fsdp_exact", tmp_path / "run")
    for rank in range(4):
        edited(run / f"rank_{rank}/run.json", lambda document: document["ranks"].update(
            shards={name: fact["shape"] for name, fact in document["ranks"]["shards"].items()}))
        edited(run / f"rank_{rank}/metrics.jsonl", lambda line: bool(line.pop("grad_norms")))
    ampscope.torch.merge_ranks(run)
    assert len(files_of(run)) == 8 and files_of(run) == files_of(merged("4/fsdp_exact")[0])


class Mesh:
    """A stand-in for a DeviceMesh, which needs processes."""

    def __init__(self, shape, coordinate):
        self.mesh, self._coordinate = torch.empty(shape), list(coordinate)

    def get_coordinate(self):
        return self._coordinate


def placed(shape, mesh, placements, numel):
    """A stand-in for a DTensor."""
    return types.SimpleNamespace(shape=shape, device_mesh=mesh, placements=placements,
                                 to_local=lambda: torch.empty(numel))


def chunk(tensor, parts, dim, at):
    found = tensor.chunk(parts, dim)
    return found[at] if at < len(found) else tensor.narrow(dim, 0, 0)


def test_places_of_parts():
    """The box is the part that torch.chunk() cuts, first by the mesh's first dimension, or of a _StridedShard by its
    second: all small shapes, which no mesh divides evenly."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
    checked = 0
    for shape, mesh in itertools.product(itertools.product(range(1, 10), (1, 4, 5)), ((2, 2), (3, 2), (2, 3), (1, 4))):
        whole = torch.arange(math.prod(shape)).reshape(shape)
        ways = [(a, b) for a in (Shard(0), Shard(1), Replicate()) for b in (Shard(0), Shard(1), Replicate())]
        ways += [(_StridedShard(dim, split_factor=mesh[1]), Shard(dim)) for dim in (0, 1)]
        for placements, at in itertools.product(ways, itertools.product(*map(range, mesh))):
            local, order = whole, (1, 0) if isinstance(placements[0], _StridedShard) else (0, 1)
            for i in order:
                if not placements[i].is_replicate():
                    local = chunk(local, mesh[i], placements[i].dim, at[i])
            place = _parallel._place(placed(shape, Mesh(mesh, at), placements, local.numel()))
            box = whole
            for dim, (begin, size) in enumerate(zip(place["offset"], place["size"])):
                box = box.narrow(dim, begin, size)
            assert place["shape"] == list(shape) and torch.equal(box.reshape(local.shape), local)
            checked += 1
    assert checked == 27 * 11 * (4 + 6 + 6 + 4)


def test_a_gradient_that_is_placed_otherwise_in_another_step(monkeypatch):
    """run.json has one place for all steps."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    monkeypatch.setattr(_parallel, "rank", lambda: (0, 2))
    shards, mesh = _parallel.Shards(), Mesh((2,), (0,))
    copies, summands, rows = (placed((4,), mesh, (placement,), numel)
                              for placement, numel in ((Replicate(), 4), (Partial(), 4), (Shard(0), 2)))
    groups = [shards.note(tensor, "w", suffix) for tensor, suffix in ((copies, ""), (copies, ".grad"), (rows, ".grad"))]
    assert groups == [1, 1, 2] and list(shards.facts) == ["w", "w.grad"]
    assert shards.facts["w.grad"] == {"shape": [4], "offset": [0], "size": [2], "group": 2}
    assert shards.note(summands, "w", ".grad") == 2 and shards.facts["w.grad"]["unknown"] == "placements that change"
    assert shards.note(torch.ones(3), "v") == 0 and "v" not in shards.facts
