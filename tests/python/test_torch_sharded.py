"""Networks of which each rank holds a part, and names that wrappers within a network would add to."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import batches, histograms, lines, plain_loop, prepared, raw, tensors  # noqa: E402

FULLY_SHARDED = """
import contextlib, sys
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
import ampscope.torch
from networks import GPT

rank, folder = int(sys.argv[1]), {folder!r}
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=2)

class Tempered(GPT):
    def __init__(self):
        super().__init__(vocabulary=33, width=16, context=8)  # 33 rows, of which rank 1 holds one less
        self.temperature = torch.nn.Parameter(torch.ones(1))  # one row, which rank 0 holds

    def forward(self, tokens):
        return super().forward(tokens) * self.temperature

def train(model, recorded):
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    torch.manual_seed(rank)
    seen = []
    with ampscope.torch.record(recorded, model, optimizer, every=1, state=True, activations="blocks.*",
                               warn=False) if recorded else contextlib.nullcontext():
        for _ in range(3):
            tokens = torch.randint(0, 33, (2, 8))
            F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()).backward()
            if hasattr(model, "set_requires_gradient_sync"):
                local = {{n + ".grad": p.grad.to_local().clone() for n, p in model.named_parameters()}}
                whole = {{n + ".grad": p.grad.full_tensor() for n, p in model.named_parameters()}}
                state = {{n + ".v": optimizer.state[p]["exp_avg_sq"].full_tensor()
                         for n, p in model.named_parameters() if p in optimizer.state}}
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()
                seen.append((local, whole, state, float(norm)))
            optimizer.step()
            optimizer.zero_grad()
    return seen, [p.full_tensor().detach() for p in model.parameters()] if seen else []

for name, dtype in (("fp32", None), ("master-bf16", torch.bfloat16)):
    for recorded in (None, folder + "/" + name):
        torch.manual_seed(0)
        model, policy = Tempered(), MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for part in (*model.blocks, model):
            fully_shard(part, mp_policy=policy)
        torch.save(train(model, recorded), f"{{folder}}/{{name}}_{{recorded is not None}}_{{rank}}.pt")
train(FullyShardedDataParallel(Tempered(), use_orig_params=True, device_id=torch.device("cpu")), folder + "/flat")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("torch has no fully_shard")
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "train.py").write_text(FULLY_SHARDED.format(tests=os.path.dirname(__file__), folder=str(folder)))
    workers = [subprocess.Popen([sys.executable, folder / "train.py", str(rank)]) for rank in range(2)]
    assert [w.wait(timeout=300) for w in workers] == [0, 0]
    return folder


@pytest.mark.parametrize("name", ["fp32", "master-bf16"])
def test_fully_sharded(sharded, name):
    run = sharded / name
    ranks = [torch.load(sharded / f"{name}_True_{rank}.pt") for rank in range(2)]
    for rank, (seen, weights) in enumerate(ranks):
        alone = torch.load(sharded / f"{name}_False_{rank}.pt")[1]
        assert [raw(t) for t in weights] == [raw(t) for t in alone]
        for step, (local, *_) in enumerate(seen):
            _, recorded = tensors(run / f"rank_{rank}/gradients/step_{step:06}.safetensors")
            found = {n: (t.shape, t.tobytes()) for n, t in recorded.items() if ".out" not in n}
            assert found == {n: raw(t) for n, t in local.items()} and "blocks.1.out.grad" in recorded
        told = json.loads((run / f"rank_{rank}/run.json").read_text())
        assert (told["model"]["name"], told["precision"]["name"]) == ("Tempered", name)
        assert told["ranks"]["shards"]["head.weight"] == {"shape": [33, 16], "offset": [17 * rank, 0],
                                                          "size": [17 - rank, 16], "group": 1}
        assert "/ranks/shards" in ampscope._ampscope.run_layout.keys
    ampscope.torch.merge_ranks(run)
    for step, (_, whole, state, norm) in enumerate(ranks[0][0]):
        _, merged = tensors(run / f"gradients/step_{step:06}.safetensors")
        assert {n: (t.shape, t.tobytes()) for n, t in merged.items()} == {n: raw(t) for n, t in whole.items()}
        assert all(histograms(run)[step, n]["histogram"] == ampscope.histogram(t) for n, t in whole.items())
        _, merged = tensors(run / f"state/step_{step:06}.safetensors")
        assert len(merged) == 3 * len(whole) and all(merged[n].tobytes() == raw(t)[1] for n, t in state.items())
        assert lines(run / "metrics.jsonl")[step]["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert ampscope.adam_findings(run).basis == "recorded"
    said = subprocess.run(["amp-report", run], check=True, capture_output=True, text=True).stdout
    assert "Tempered; 1 recorded run" in said and "Adam" in said


def ranks_alone(run, folder):
    """Without what test_fully_sharded may have merged."""
    return shutil.copytree(run, folder, ignore=lambda path, names:
                           [name for name in names if path == str(run) and not name.startswith("rank_")])


def test_steps_of_which_a_rank_lacks_its_parts(sharded, tmp_path):
    run = ranks_alone(sharded / "fp32", tmp_path / "run")
    for file in ("rank_1/gradients/step_000001", "rank_0/state/step_000002"):
        (run / f"{file}.safetensors").unlink()
    said = ("gradients of some steps are merged only as histograms (1, the first is step 1: rank 1 lacks them); "
            "the state of some steps is left out (1, the first is step 2: rank 0 lacks it)")
    with pytest.warns(RuntimeWarning, match=re.escape(said) + "$"):
        ampscope.torch.merge_ranks(run)
    assert json.loads((run / "result.json").read_text())["warnings"] == [said]
    assert [sorted(int(p.name[5:11]) for p in (run / name).iterdir()) for name in ("gradients", "state")] == [[0, 2],
                                                                                                              [0, 1]]


def with_facts(run, rank, tensor, change):
    file = run / f"rank_{rank}/run.json"
    document = json.loads(file.read_text())
    document["ranks"]["shards"][tensor] = change(document["ranks"]["shards"][tensor])
    if document["ranks"]["shards"][tensor] == "dropped":
        del document["ranks"]["shards"][tensor]
    file.write_text(json.dumps(document))


def test_state_that_is_ordinary_but_differs(sharded, tmp_path):
    run = ranks_alone(sharded / "fp32", tmp_path / "run")
    for rank in range(2):
        with_facts(run, rank, "temperature", lambda fact: "dropped")
    with pytest.warns(RuntimeWarning, match=r"the state of some steps is left out \(3, the first is step 0: rank 1 has "
                                            r"another temperature.* than rank 0\)$"):
        ampscope.torch.merge_ranks(run)
    assert not (run / "state").exists() and len(list((run / "gradients").iterdir())) == 3


@pytest.mark.parametrize("change, said", [
    (lambda fact: {key: fact[key] for key in ("shape", "size", "group")}, "offset is missing, and no list of lengths"),
    (lambda fact: {**fact, "size": None}, "size is null, and no list of lengths"),
    (lambda fact: {**fact, "size": [1.5, 16]}, "size is [1.5, 16], and no list of lengths"),
    (lambda fact: {**fact, "shape": [-1, 16]}, "shape is [-1, 16], and no list of lengths"),
    (lambda fact: {**fact, "group": None}, "group is None, and no number"),
    (lambda fact: None, "the entry is null, and no list of lengths"),
    (lambda fact: [], "the entry is a shape without rows")])
def test_places_that_run_json_does_not_tell(sharded, tmp_path, change, said):
    run = ranks_alone(sharded / "fp32", tmp_path / "run")
    with_facts(run, 1, "head.weight", change)
    place = f"{run}: rank_1/run.json: ranks/shards, head.weight: {said}"
    with pytest.raises(ValueError, match=f"^{re.escape(place)}$"):
        ampscope.torch.merge_ranks(run)


def test_names_without_the_wrappers_of_sharding(sharded, tmp_path):
    told = json.loads((sharded / "flat/rank_0/run.json").read_text())
    assert told["model"]["name"] == "Tempered" and "shards" not in told["ranks"]
    recorded = [name for rank in range(2) for _, name in histograms(sharded / f"flat/rank_{rank}")]
    assert {"blocks.1.out.grad", "head.weight.grad", "embed.weight.grad"} <= set(recorded)
    assert not any("_fsdp_wrapped_module" in name for name in recorded)
    run = shutil.copytree(sharded / "flat", tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="different parts, and run.json does not say which, are added up"):
        ampscope.torch.merge_ranks(run)
    assert histograms(run)[0, "head.weight.grad"]["histogram"].count == 33 * 16
    assert not list((run / "gradients").iterdir())


def test_names_without_the_wrappers_of_checkpoints_and_compilation(tmp_path):
    wrapper = pytest.importorskip("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    model, _ = prepared()
    model.up, model.down = wrapper.checkpoint_wrapper(model.up), torch.compile(model.down, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters())
    with ampscope.torch.record(tmp_path, model, optimizer, every=1, activations=["up", "down"]):
        plain_loop(model, optimizer, batches(1))
    of_weights = {f"{layer}.{part}.grad" for layer in ("up", "down") for part in ("weight", "bias")}
    assert {name for _, name in histograms(tmp_path)} == of_weights | {"up.out.grad", "down.out.grad"}


@pytest.mark.parametrize("dtype, scaled, said", [
    (torch.float16, False, "casts of FSDP to FP16 without a loss scaler"), (torch.float16, True, None),
    (torch.bfloat16, True, "a loss scaler with BF16 changes nothing"), (torch.bfloat16, False, None)])
def test_scalers_with_what_fsdp_computes_in(tmp_path, recwarn, dtype, scaled, said):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("torch has no fully_shard")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, _ = prepared()
        fsdp.fully_shard(model, mp_policy=fsdp.MixedPrecisionPolicy(dtype, torch.float32, torch.float32))
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        with ampscope.torch.record(tmp_path / "run", model, optimizer, scaler=scaler, every=1):
            for x, y in batches(2):
                optimizer.zero_grad()
                scaler.scale(torch.nn.functional.cross_entropy(model(x), y)).backward()
                scaler.step(optimizer)
                scaler.update()
    finally:
        torch.distributed.destroy_process_group()
    heard = [str(w.message) for w in recwarn if issubclass(w.category, ampscope.torch.PrecisionWarning)]
    assert len(heard) == (said is not None) and all(said in text for text in heard)
    precision = json.loads((tmp_path / "run/run.json").read_text())["precision"]
    format = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    assert precision["name"] == f"master-{format}" and precision["formats"]["gradients"] == format
