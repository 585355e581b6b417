"""Checkpoints of many files, as PyTorch writes them from several processes: what is counted of them is what is counted of
the same tensors whole, in one safetensors file that the safetensors package wrote."""
import json
import shutil
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
import sharded_checkpoints  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import ampscope  # noqa: E402

COUNTED = ["--kind", "weight,state", "--format", "all"]


@pytest.fixture(scope="module", params=[4, 3], ids=["4 ranks", "3 ranks"])
def saved(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("checkpoints")
    sharded_checkpoints.make(folder, request.param)
    return folder


def names(folder):
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def run(tool, *words, code=0):
    ran = subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    return ran.stdout, ran.stderr


def counts(path, *words):
    """What a report says of each tensor, without the file; and all that it says in sum."""
    report = json.loads(run("amp-histogram", path, "--json", "-", *words)[0])
    tensors = {tensor.pop("name"): tensor for tensor in report.pop("tensors")}
    for tensor in tensors.values():
        del tensor["file"]
    return tensors, report


def test_counts_are_those_of_the_whole_tensors(saved):
    for name in names(saved):
        whole, total = counts(saved / f"{name}.safetensors", *COUNTED)
        sharded, sharded_total = counts(saved / name, *COUNTED)
        assert sharded == whole and len(whole) > 8, name
        assert {k: v for k, v in sharded_total.items() if k in ("total", "formats", "groups")} == {
            k: v for k, v in total.items() if k in ("total", "formats", "groups")}
