"""The stub that is generated says what the module has, and the package is typed as its documentation says."""
import ast
import pathlib
import subprocess
import sys

import pytest

from ampscope import _ampscope

STUB = pathlib.Path(_ampscope.__file__).with_name("_ampscope.pyi")
USE = '''
from collections.abc import Mapping
import numpy as np
import ampscope

x = ampscope.quantize([1.0, 2.0], "bf16", rounding="up")
one: float = float(x[0])
f: ampscope.Format = ampscope.format("e4m3")
largest: float = f.max
h: ampscope.Histogram = ampscope.histogram(x) + ampscope.histogram([1.0])
exponents: Mapping[int, int] = h.exponents
scale: float = ampscope.LossScaler("torch").scale
answer: ampscope.Answer = ampscope.train(model="mlp", steps=1)
rows: ampscope.Table = answer.rows()
total: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ampscope.add(1, 2, format=f)
product: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ampscope.matmul([[1.0]], x[None], "exact")
attended: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ampscope.attention([[1.0]], [[1.0]], [[1.0]], "fused:8x8")
class Tensor:  # as torch's
    def detach(self) -> "Tensor":
        return self
rounded: Tensor = ampscope.quantize(Tensor(), "bf16")
multiplied: Tensor = ampscope.matmul(rounded, rounded)
values, scales = ampscope.block_quantize(x, "mxfp8")
names: list[str] = [row["name"] for row in ampscope.recipes() + ampscope.accumulators()]
name: str = ampscope.autocast("matmul", "fp32", "fp32")
lost: int = ampscope.Optimizer([1.0]).step([0.5])["lost"]
same: bool = f == "e4m3"
found: ampscope.AdamFindings = ampscope.adam_findings("run/", eps=[1e-8])
stuck: list[int] = [state.v_stuck for state in found.total.states]
skips: int = ampscope.loss_scale_findings("run/").replays[0].replay.skips
ulps: float = ampscope.diff_findings("a.npy", "b.npy").total.max_ulps
'''


def test_the_stub_names_what_there_is():
    tree = ast.parse(STUB.read_text())
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert defined == {name for name, value in vars(_ampscope).items()
                       if isinstance(value, type) or callable(value) and not name.startswith("__")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = {m.name for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")}
            added = {"frame"} | ({"recipes"} if node.name == "HistogramFindings" else set())  # in Python
            assert members == {m for m in vars(getattr(_ampscope, node.name)) if not m.startswith("_")} - added


def test_the_package_is_typed(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(USE)
    package = str(pathlib.Path(_ampscope.__file__).parents[1])
    for text, wrong in ((USE, False), (USE + "wrong: int = f.name\n", True), (USE + "ampscope.quantize(x)\n", True)):
        (tmp_path / "use.py").write_text(text)
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "use.py"],
                              cwd=tmp_path, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "MYPYPATH": "" if "site-packages" in package else package})
        errors = [line for line in done.stdout.splitlines() if line.startswith("use.py") and ": error:" in line]
        assert bool(errors) == wrong, done.stdout + done.stderr
