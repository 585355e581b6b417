"""The Python examples of the manual run, and give what they say."""
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[2] / "tools/python/README.md"


def blocks(of_torch):
    found = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    return [block for block in found if ("import torch" in block) == of_torch]


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
    block, _ = blocks(of_torch=True)
    (tmp_path / "train.py").write_text(block)
    script = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "Warning" not in script.stderr
    for command in ("amp-report run --html report.html", "amp-loss-scale run --sweep", "amp-histogram run",
                    "amp-histogram run --kind activation", "amp-adam run"):
        assert f"`{command}`" in README.read_text()
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    assert "amp-fp16" in (tmp_path / "report.html").read_text()


def test_a_model_is_emulated_in_three_precisions(tmp_path):
    pytest.importorskip("torch")
    _, block = blocks(of_torch=True)
    (tmp_path / "train.py").write_text(block)
    script = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "Warning" not in script.stderr
    said = README.read_text().partition("prints\n\n```\n")[2].partition("```")[0]
    assert script.stdout == said and "100 %" in said
    command = "amp-report runs/fp32 runs/bf16 runs/fp8 --html report.html"
    assert f"`{command}`" in README.read_text()
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    page = (tmp_path / "report.html").read_text()
    assert "hopper-wgmma-fp8" in page and "amp-bf16" in page and "cannot be told: it goes" not in page
