"""Checkpoints of many files, as PyTorch writes them from several processes: what the tools say of them is what they say
of the same tensors whole, in one safetensors file that the safetensors package wrote, and what NumPy says."""
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
import sharded_checkpoints  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

COUNTED = ["--kind", "all", "--format", "all"]


@pytest.fixture(scope="module", params=[4, 3, 2], ids="{} ranks".format)
def saved(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("checkpoints")
    sharded_checkpoints.make(folder, request.param)
    return folder


def names(folder):
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def run(tool, *words, code=0):
    ran = subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    return ran.stdout, ran.stderr.splitlines()


def answer(tool, *words, code=0):
    return json.loads(run(tool, *words, "--json", "-", code=code)[0])


def counts(path, *words, code=0):
    """What a report says of each tensor, without the file; and of all, without sums that depend on their order."""
    report = answer("amp-histogram", path, *words, code=code)
    tensors = {tensor.pop("name"): tensor for tensor in report["tensors"]}
    for tensor in tensors.values():
        del tensor["file"]
    total = {key: value for key, value in report["total"].items() if not key.startswith("sum")}
    return tensors, total


def test_counts_are_those_of_the_whole_tensors(saved):
    for name in names(saved):
        assert counts(saved / name, *COUNTED) == counts(saved / f"{name}.safetensors", *COUNTED), name


def test_counts_that_depend_on_places_are_those_of_the_whole_tensors(saved):
    kinds = ["--kind", "weight_gradient"]  # what a file without an optimizer's state is taken to hold
    for words in (["--block", "3", "--error"], ["--recipe", "te-block,2d,input,block=2x3"],
                  ["--recipe", "te-mxfp8,input,block=1x4", "--recipe", "torchao-rowwise,input"]):
        for name in ("tensors", "safetensors"):
            sharded, whole = (counts(saved / path, *kinds, *words)
                              for path in (name, f"{name}.safetensors"))
            assert sharded[0] == whole[0] and any("blocks" in t or "recipes" in t for t in whole[0].values()), words


def test_counts_are_those_of_numpy(saved):
    tensors, _ = counts(saved / "tensors", "--kind", "weight", "--format", "fp16")
    for name, tensor in load_file(saved / "tensors.safetensors").items():
        x = tensor.double().numpy()
        with np.errstate(over="ignore"):
            half = x.astype(np.float32).astype(np.float16) if tensor.dtype != torch.float64 else x.astype(np.float16)
        said, = tensors[name]["formats"]["fp16"]["scales"]
        assert tensors[name]["shape"] == list(x.shape) and tensors[name]["count"] == x.size
        assert tensors[name]["zero"] == np.sum(x == 0) and tensors[name]["max"] == np.max(np.abs(x))
        assert said["underflow"] == np.sum((half == 0) & (x != 0)) and said["overflow"] == np.sum(np.isinf(half))


def test_diff_pairs_elements_by_their_place_in_the_whole_tensor(saved, tmp_path):
    for name in ("tensors", "safetensors", "fsdp"):
        same = answer("amp-diff", saved / name, saved / f"{name}.safetensors")
        assert same["total"]["differing"] == 0 and not same["only_a"] and not same["only_b"]
    whole = load_file(saved / "tensors.safetensors")
    for tensor, place in (("both", (4, 3)), ("cube", (2, 1, 5)), ("transposed", (7, 4)), ("long", (150, 2000))):
        changed = {**whole, tensor: whole[tensor].clone()}
        changed[tensor][place] += 1
        save_file(changed, tmp_path / "changed.safetensors")
        found, = [t for t in answer("amp-diff", saved / "tensors", tmp_path / "changed.safetensors")["tensors"]
                  if t["differing"]]
        assert found["tensor"] == tensor and found["differing"] == 1
        assert found["first"]["index"] == np.ravel_multi_index(place, whole[tensor].shape)


def adam_of(path, *words):
    found, = answer("amp-adam", path, "--eps", "1e-3,1e-5,1e-6,1e-7", "--state", "fp32", *words)["inputs"]
    return found


def test_adam_answers_from_the_state_in_a_checkpoint(saved):
    networks = [name for name in names(saved) if name.startswith("fsdp")]
    assert len(networks) in (2, 4)
    for name in networks:
        found, whole = adam_of(saved / name), load_file(saved / f"{name}.safetensors")
        assert (found["basis"], found["exact"], found["step"], found["warnings"]) == ("checkpoint", True, 3, [])
        assert (found["lr"], found["beta1"], found["beta2"], found["eps"]) == (0.003, 0.8, 0.98, 1e-6)
        weights = {key[len("model."):]: value.numpy() for key, value in whole.items() if key.startswith("model.")}
        m, v = ({p: whole[f"optim.state.{p}.{kind}"].numpy() for p in weights if p != "seen"}
                for kind in ("exp_avg", "exp_avg_sq"))
        has_gradient = {p: (m[p] != 0) | (v[p] != 0) for p in m}
        root = {p: np.sqrt(v[p] / np.float32(1 - 0.98 ** 3), dtype=np.float32) for p in m}
        assert found["total"]["elements"] == sum(x.size for x in m.values())
        assert found["total"]["nonzero"] == sum(x.sum() for x in has_gradient.values())
        for said in found["total"]["states"][0]["eps"]:
            assert said["dominated"] == sum(np.sum(has_gradient[p] & (root[p] < np.float32(said["eps"]))) for p in m)
        lost = 0
        for p in m:  # torch's own step on the weights
            weight = torch.nn.Parameter(torch.from_numpy(weights[p].copy()))
            decay = 0.1 if weight.ndim > 1 else 0
            step = torch.from_numpy(m[p]) * -(0.003 / (1 - 0.8 ** 3)) / (
                torch.from_numpy(v[p]).sqrt() / (1 - 0.98 ** 3) ** 0.5 + 1e-6)
            after = weight.detach() * (1 - 0.003 * decay) + step
            lost += int(((after == weight.detach()) & torch.from_numpy(has_gradient[p])).sum())
        assert found["total"]["updated"] == found["total"]["nonzero"]
        assert found["total"]["lost"]["fp32"] == lost


def test_adam_answers_the_same_from_one_file(saved, tmp_path):
    """A .pt with the state dicts of a model and its optimizer, who counts the parameters."""
    torch.manual_seed(0)
    model = sharded_checkpoints.Network()
    optimizer = sharded_checkpoints.trained(model)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, tmp_path / "a.pt")
    names = [name for group in optimizer.param_groups for p in group["params"]
             for name, q in model.named_parameters() if q is p]
    moments = optimizer.state_dict()["state"].values()
    state = {f"optim.state.{name}.{key}": value for own, name in zip(moments, names) for key, value in own.items()}
    save_file({**{f"model.{k}": v for k, v in model.state_dict().items()}, **state}, tmp_path / "b.safetensors")
    given = ["--lr", "0.003", "--beta1", "0.8", "--beta2", "0.98", "--at", "1e-6"]
    counted, named = adam_of(tmp_path / "a.pt"), adam_of(tmp_path / "b.safetensors", *given)
    assert counted["step"] == named["step"] == 3 and counted["eps"] == named["eps"]
    assert counted["total"]["states"] == named["total"]["states"]
    assert "does not say the optimizer's settings" in named["warnings"][0]


def test_adam_reads_the_names_and_steps_of_other_frameworks(tmp_path):
    m, v = torch.tensor([0.5, 0.0, -1.0]), torch.tensor([0.25, 0.0, 2.0 ** -60])
    save_file({"w": torch.ones(3), "optimizer.state.exp_avg.w": m, "optimizer.state.exp_avg_sq.w": v,
               "optimizer.state.fp32_param.w": torch.full((3,), 1.0 + 2.0 ** -20)}, tmp_path / "megatron.safetensors")
    found = adam_of(tmp_path / "megatron.safetensors", "--lr", "1e-9")
    assert found["total"]["nonzero"] == 2 and found["total"]["updated"] == 2 and found["step"] is None
    assert any("bias" in warning for warning in found["warnings"])
    assert {e["dominated"] for e in found["total"]["states"][0]["eps"] if e["eps"] > 2.0 ** -30} == {1}


def equal_layers(**options):
    """A model whose weights all have one shape, and its optimizer after three steps; the tenth layer's moments are 0.
    By name, the tenth layer comes after the first."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(12)])
    optimizer = torch.optim.AdamW(model.parameters(), eps=1e-6, **options)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    still = optimizer.state[model[10].weight]
    still["exp_avg"].zero_()
    still["exp_avg_sq"].zero_()
    return model, optimizer


def still_tensors(found):
    return [tensor["tensor"] for tensor in found["tensors"] if tensor["nonzero"] == 0]


def test_counted_parameters_are_named_only_where_it_is_sure_which_they_are(tmp_path):
    import torch.distributed.checkpoint as dcp
    model, optimizer = equal_layers()
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    torch.save(state, tmp_path / "one.pt")
    found = adam_of(tmp_path / "one.pt")
    assert still_tensors(found) == ["model.10.weight"] and not found["warnings"]
    assert {tensor["tensor"] for tensor in found["tensors"]} == {f"model.{name}" for name in model.state_dict()}
    assert found["total"]["updated"] == found["total"]["nonzero"] > 0

    dcp.save(state, checkpoint_id=tmp_path / "dcp")  # sorted by name when it is read, as safetensors are
    folder = tmp_path / "checkpoint-1000"
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    for path in (tmp_path / "dcp", folder):
        found = adam_of(path)
        assert still_tensors(found) == ["10"] and found["total"]["updated"] == 0 and found["exact"]
        assert [warning for warning in found["warnings"] if "the optimizer counts its parameters" in warning]
        text = " ".join(run("amp-adam", path)[0].split())
        assert "which weights are those of 0, 1, 10 and 9 more is not known." in text

    halves = [{"params": list(model[6:].parameters())}, {"params": list(model[:6].parameters())}]
    torch.save({"model": model.state_dict(), "optim": trained_halves(model, halves)}, tmp_path / "halves.pt")
    found = adam_of(tmp_path / "halves.pt")  # two groups: the order is not the model's
    assert {tensor["tensor"] for tensor in found["tensors"]} == {str(i) for i in range(12)}

    layers = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(3, 2, bias=False))
    small = torch.optim.AdamW(layers.parameters())
    layers(torch.randn(2, 4)).sum().backward()
    small.step()
    save_file(layers.state_dict(), folder / "model.safetensors")
    torch.save(small.state_dict(), folder / "optimizer.pt")
    found = adam_of(folder)
    assert [tensor["tensor"] for tensor in found["tensors"]] == ["0.weight", "1.weight"]
    assert found["total"]["updated"] == found["total"]["nonzero"] > 0 and not found["lost_exact"]
    text = " ".join(run("amp-adam", folder)[0].split())
    assert "This is an estimate: the step is made once more, from the weights after it" in text


def trained_halves(model, halves):
    optimizer = torch.optim.AdamW(halves)
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def test_settings_that_are_tensors_are_read(tmp_path):
    import torch.distributed.checkpoint as dcp
    model, optimizer = equal_layers(lr=torch.tensor(0.25), betas=(0.5, 0.75))
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    torch.save(state, tmp_path / "one.pt")
    dcp.save(state, checkpoint_id=tmp_path / "dcp")
    for path in (tmp_path / "one.pt", tmp_path / "dcp"):
        found = adam_of(path)
        assert (found["lr"], found["beta1"], found["beta2"], found["eps"]) == (0.25, 0.5, 0.75, 1e-6)
        assert not [warning for warning in found["warnings"] if "optimizer's settings" in warning]
    assert still_tensors(adam_of(tmp_path / "one.pt")) == ["model.10.weight"]


def test_the_number_of_steps_is_read_wherever_it_stands(tmp_path):
    moments = {"exp_avg": torch.tensor([0.5, -1.0]), "exp_avg_sq": torch.tensor([0.25, 2.0])}
    group = {"lr": 0.5, "betas": (0.5, 0.75), "eps": 1e-6, "weight_decay": 0.0, "params": [0]}

    def of(own, shared):
        torch.save({"state": {0: {**moments, **own}}, "param_groups": [{**group, **shared}]}, tmp_path / "o.pt")
        found = adam_of(tmp_path / "o.pt")
        return found["step"], found["basis"], found["exact"]

    for own, shared in (({"step": torch.tensor(3.0)}, {}), ({"step": 3}, {}), ({}, {"step": 3}),
                        ({}, {"step": torch.tensor(3, dtype=torch.int32)})):
        assert of(own, shared) == (3, "checkpoint", True), (own, shared)
    for own, shared in (({}, {}), ({"step": 0}, {}), ({}, {"step": "three"})):
        assert of(own, shared) == (None, "unnumbered", False), (own, shared)


def test_optimizers_that_are_not_adam_are_named(tmp_path):
    _, largest = equal_layers(amsgrad=True)
    torch.save(largest.state_dict(), tmp_path / "largest.pt")
    assert [warning for warning in adam_of(tmp_path / "largest.pt")["warnings"] if "AMSGrad" in warning]
    model, _ = equal_layers()
    descent = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    descent.step()  # with the gradients of the last backward pass
    torch.save({"model": model.state_dict(), "optim": descent.state_dict()}, tmp_path / "sgd.pt")
    error, = run("amp-adam", tmp_path / "sgd.pt", code=1)[1]
    assert "holds the state of an optimizer, but not Adam's m and v" in error


def test_what_is_whole_of_a_damaged_checkpoint_is_counted(saved, tmp_path):
    from torch.distributed.checkpoint import FileSystemReader
    folder, whole = tmp_path / "damaged", counts(saved / "tensors.safetensors", *COUNTED)[0]
    shutil.copytree(saved / "tensors", folder)
    second, data = folder / "__1_0.distcp", (folder / "__1_0.distcp").read_bytes()

    def left_with(says):
        left, errors = counts(folder, *COUNTED, code=1)[0], run("amp-histogram", folder, *COUNTED, code=1)[1]
        assert len(errors) == 1 and re.search(says, errors[0]), errors
        assert 0 < len(left) < len(whole) and all(left[name] == whole[name] for name in left)
        return left

    second.unlink()
    left_with("names __1_0.distcp, which is not there; [0-9]+ tensors are missing")
    second.write_bytes(data[:len(data) // 2])
    left_with(r"__1_0.distcp: byte \d+: the file ends here; it is truncated")
    shards = FileSystemReader(folder).read_metadata().storage_data
    name, begin = next((index.fqn, stored.offset) for index, stored in shards.items()
                       if stored.relative_path == second.name and index.offset is not None)
    at = data.index(b"data/0", begin)  # in the header of the shard's numbers, whose checksum is to be wrong
    at += len("data/0") + int.from_bytes(data[data.rindex(b"PK\3\4", 0, at) + 28:][:2], "little")
    second.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1:])
    assert set(left_with(f"__1_0.distcp: byte {begin}: member 'archive/data/0': CRC error")) == set(whole) - {name}


def test_an_index_of_hugging_face(saved, tmp_path):
    whole, weight_map, folder = load_file(saved / "tensors.safetensors"), {}, tmp_path / "model"
    folder.mkdir()
    for i, name in enumerate(sorted(whole)):
        weight_map[name] = f"model-{i % 3 + 1:05}-of-00003.safetensors"
    for file in set(weight_map.values()):
        save_file({n: t for n, t in whole.items() if weight_map[n] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert counts(folder, *COUNTED) == counts(saved / "tensors.safetensors", *COUNTED)
    (folder / "model-00002-of-00003.safetensors").unlink()
    left, errors = counts(folder, code=1)[0], run("amp-histogram", folder, code=1)[1]
    assert len(errors) == 1 and "names model-00002-of-00003.safetensors, which is not there" in errors[0]
    assert set(left) == {n for n, file in weight_map.items() if "00002" not in file}


def sparse_shard(path, name, rows, columns, total, first):
    """A shard of safetensors whose numbers are a hole in the file."""
    size = rows * columns * 4
    header = json.dumps({"__metadata__": {"DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": first}})},
                         name: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def test_two_hundred_gigabytes_take_little_memory_and_say_how_long_they_take(tmp_path):
    for half in range(2):  # columns of one tensor, so that each row is read from both files
        sparse_shard(tmp_path / f"shard-0000{half + 1}-model-00001-of-00001.safetensors", "w", 250_000, 100_000, 2,
                     [0, 100_000 * half])
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) > 200e9
    reader, terminal = pty.openpty()

    def prepare():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs are deaf to it, and what they start

    tool = subprocess.Popen(["amp-histogram", str(tmp_path), "--kind", "weight"], stdout=subprocess.DEVNULL,
                            stderr=terminal, preexec_fn=prepare)
    time.sleep(5)
    peak = int(re.search(r"VmHWM:\s*(\d+) kB", pathlib.Path(f"/proc/{tool.pid}/status").read_text()).group(1))
    tool.send_signal(signal.SIGINT)
    assert tool.wait(timeout=10) == -signal.SIGINT
    os.close(terminal)
    text = os.read(reader, 1 << 16).decode()
    assert peak < 60_000, f"{peak} KiB"
    left = re.findall(r"(\d+\.?\d*) (s|min|h) left", text)
    assert left, text
    amount, unit = left[-1]
    assert float(amount) * {"s": 1, "min": 60, "h": 3600}[unit] > 5, text


def test_the_package_reads_a_checkpoint_by_its_folder(tmp_path):
    ampscope = pytest.importorskip("ampscope")
    data = pathlib.Path(__file__).parents[1] / "data/checkpoints"
    for name, model in (("distributed", "model."), ("safetensors", "")):
        tensors, _ = ampscope.read_tensors(data / name)
        for key, shape in (("both", (3, 5)), ("rows", (5, 2)), ("columns", (2, 7))):
            assert np.array_equal(tensors[model + key], np.arange(np.prod(shape)).reshape(shape))
    found = ampscope.adam_findings(data / "distributed")
    assert (found.basis, found.is_exact, found.step) == ("checkpoint", True, 4)
    shutil.copytree(data / "distributed", tmp_path / "c")
    (tmp_path / "c/__2_0.distcp").unlink()
    with pytest.raises(OSError, match="names __2_0.distcp, which is not there"):
        ampscope.read_tensors(tmp_path / "c")
