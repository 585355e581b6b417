"""The recorder's folder, without torch: one writer at a time, and nothing changes before all is known to fit."""
import importlib
import importlib.resources
import json
import subprocess
import sys
import types

import pytest

from ampscope import _ampscope


@pytest.fixture
def Folder(monkeypatch):
    """The class, though its package imports torch, which it does not need."""
    package = types.ModuleType("ampscope.torch")
    package.__path__ = [str(importlib.resources.files("ampscope") / "torch")]
    monkeypatch.setitem(sys.modules, "ampscope.torch", package)
    monkeypatch.delitem(sys.modules, "ampscope.torch._folder", raising=False)
    yield importlib.import_module("ampscope.torch._folder").Folder
    for module in ("_folder", "_ranks", "_shards"):
        sys.modules.pop(f"ampscope.torch.{module}", None)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def begun(Folder, path):
    """A folder with steps 0 to 3."""
    folder = Folder(path, 0)
    folder.write("run.json", {})
    for step in range(4):
        folder.append_metrics({"step": step})
    folder.write("result.json", {})
    folder.close()


def test_one_writer(Folder, tmp_path):
    begun(Folder, tmp_path / "run")
    assert not (tmp_path / "run/.lock").exists()
    first = Folder(tmp_path / "run", 4)
    with pytest.raises(OSError, match=r"run: process \d+ on .* is recording into it"):
        Folder(tmp_path / "run", 4)
    (tmp_path / "fp32").symlink_to(tmp_path / "run")
    refused = subprocess.run(["amp-train", "--precision", "fp32", "--steps", "1", "--record", tmp_path],
                             capture_output=True, text=True)
    assert refused.returncode == 1 and "is recording into it" in refused.stderr
    first.close()
    script = f"from ampscope import _ampscope; lock = _ampscope.FolderLock({str(tmp_path / 'run')!r})"
    other = subprocess.Popen([sys.executable, "-c", script + "; print('held', flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(OSError, match=f"process {other.pid} on"):
        Folder(tmp_path / "run", 4)
    other.kill()
    other.wait()
    Folder(tmp_path / "run", 4).close()


def test_ranks_and_what_merges_them_share_a_folder(Folder, tmp_path):
    ranks = [Folder(tmp_path / f"rank_{rank}", 0) for rank in range(2)]
    for number, rank in enumerate(ranks):
        rank.write("run.json", {"ranks": {"rank": number, "of": 2, "weights": "own"}})
        rank.append_metrics({"step": 0, "loss": float(number), "scale": 1.0, "found_inf": False, "skipped": False,
                             "grad_norm": 3.0, "lr": 0.1, "amax": {}})
        rank.append_histogram(_ampscope.Histogram(), step=0, tensor="w.grad", kind="weight_gradient", loss_scale=1.0,
                              format="fp32")
    for rank in ranks:
        rank.write("result.json", {"warnings": [], "stopped": ""})
        rank.close()
    merge_ranks = importlib.import_module("ampscope.torch._ranks").merge_ranks
    merge_ranks(tmp_path)
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] == 0.5
    assert (tmp_path / "result.json").exists() and not (tmp_path / ".lock").exists()
    with pytest.raises(FileExistsError, match="holds a run already"):
        merge_ranks(tmp_path)


def test_what_is_refused_stays(Folder, tmp_path):
    begun(Folder, tmp_path)
    (tmp_path / "gradients/step_000003.safetensors").write_bytes(b"3")
    (tmp_path / "histograms.jsonl").write_text('{"step":0}\n{"no step":1}\n')
    before = contents(tmp_path)
    with pytest.raises(OSError, match="histograms.jsonl: line 2 is none of a recorder's"):
        Folder(tmp_path, 2)
    with pytest.raises(FileExistsError, match="holds a run already"):
        Folder(tmp_path, 0)
    assert contents(tmp_path) == before
    (tmp_path / "histograms.jsonl").write_text('{"step":0}\n{"st')
    (tmp_path / "gradients/step_000001.safetensors.77-0.partial").write_bytes(b"half")
    (tmp_path / "gradients/mine.77-0.partial").write_bytes(b"mine")
    Folder(tmp_path, 2).close()
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0, 1]
    assert (tmp_path / "histograms.jsonl").read_text() == '{"step":0}\n'
    assert [path.name for path in (tmp_path / "gradients").iterdir()] == ["mine.77-0.partial"]
    assert not (tmp_path / "result.json").exists()


def test_nothing_is_left_of_a_folder_that_was_not_begun(Folder, tmp_path):
    _ampscope.FolderLock(str(tmp_path / "a/b")).release()
    assert not (tmp_path / "a").exists()
