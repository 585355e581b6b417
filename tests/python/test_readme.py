"""The Python examples of the manual run, and give what they say."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROJECT = pathlib.Path(__file__).parents[2]
README = PROJECT / "tools/python/README.md"


def blocks(of_torch, readme=README):
    found = re.findall(r"^```python\n(.*?)^```$", readme.read_text(), re.M | re.S)
    return [block for block in found if ("import torch" in block) == of_torch]


def run(block, folder):
    """What a script prints."""
    (folder / "train.py").write_text(block)
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side, and OpenMP's threads wait by spinning
    script = subprocess.run([sys.executable, "train.py"], cwd=folder, check=True, capture_output=True, text=True,
                            env=alone)
    assert "Warning" not in script.stderr
    return script.stdout


def test_examples():
    (block,) = blocks(of_torch=False)
    names = {}
    for line in block.splitlines():
        code, _, said = line.partition("  # ")
        if said and "=" not in code.split("(")[0]:
            assert str(eval(code, names)) == said.strip(), line
        else:
            exec(code, names)


def test_a_recorded_run_becomes_a_report(tmp_path):
    pytest.importorskip("torch")
    block, *_ = blocks(of_torch=True)
    run(block, tmp_path)
    for command in ("amp-report run --html report.html", "amp-loss-scale run --sweep", "amp-histogram run",
                    "amp-histogram run --kind activation", "amp-adam run"):
        assert f"`{command}`" in README.read_text()
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    assert "amp-fp16" in (tmp_path / "report.html").read_text()


def test_a_model_is_emulated_in_three_precisions(tmp_path):
    pytest.importorskip("torch")
    _, block, _ = blocks(of_torch=True)
    printed = run(block, tmp_path)
    said = README.read_text().partition("prints\n\n```\n")[2].partition("```")[0]
    assert printed == said and "100 %" in said
    command = "amp-report runs/fp32 runs/bf16 runs/fp8 --html report.html"
    assert f"`{command}`" in README.read_text()
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    page = (tmp_path / "report.html").read_text()
    assert "hopper-wgmma-fp8" in page and "amp-bf16" in page and "cannot be told: it goes" not in page


def test_a_step_is_taken_apart(tmp_path):
    pytest.importorskip("torch")
    *_, block = blocks(of_torch=True)
    assert run(block, tmp_path).strip() == block.strip().splitlines()[-1].partition("# ")[2]
    said = README.read_text().partition("It ends with\n\n```\n")[2].partition("```")[0]
    report = subprocess.run(["amp-report", "compare.json"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.strip() and report.stdout.endswith("\n" + said)
    command = "amp-report compare.json --html layers.html"
    assert f"`{command}`" in README.read_text()
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    assert "<svg" in (tmp_path / "layers.html").read_text()


def test_a_model_of_hugging_face_in_fp8(tmp_path):
    """The example of the project's own README."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    front = PROJECT / "README.md"
    (block,) = blocks(of_torch=True, readme=front)
    (tmp_path / "README.md").write_text(front.read_text())
    assert run(block, tmp_path).startswith("100 % of ")
    for command in ("amp-report runs/* --html runs.html", "amp-report layers.json --html layers.html"):
        assert f"`{command}`" in front.read_text()
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True)
    page = (tmp_path / "runs.html").read_text()
    assert "hopper-wgmma-fp8" in page and "amp-bf16" in page
    of_bf16, of_fp8 = json.loads((tmp_path / "layers.json").read_text())["precisions"]
    assert "`lm_head` leads" in front.read_text() and of_bf16["ranking"][0] == "lm_head"
    assert "`c_proj` are among the first" in front.read_text()
    assert any(name.endswith("c_proj") for name in of_fp8["ranking"][:3])
    assert "Which layers does it hurt?" in (tmp_path / "layers.html").read_text()
