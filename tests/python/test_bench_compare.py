"""tests/bench/compare: it agrees with every peer that is here, and says what is missing."""
import json
import os
import pathlib
import subprocess
import sys

COMPARE = pathlib.Path(__file__).parents[1] / "bench" / "compare"
COMMAND = [sys.executable, COMPARE, "--elements", "131072", "--rounds", "1"]


def test_results_are_those_of_every_peer_here():
    done = subprocess.run([*COMMAND, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    rows = said["rows"]
    assert {row["peer"] for row in rows} >= {"NumPy", "ml_dtypes"}
    assert {row["work"] for row in rows} >= {"quantize fp16", "encode e4m3", "histogram by powers of two"}
    assert all(row["ratio"] == row["peer_seconds"] / row["seconds"] > 0 for row in rows)
    assert all(f"compare: not installed: {name} (" in done.stderr for name in said["missing"])


def test_a_peer_that_differs_is_said_and_not_timed(tmp_path):
    (tmp_path / "gfloat").mkdir()
    (tmp_path / "gfloat/__init__.py").write_text("def round_ndarray(format, x): return x\n")
    (tmp_path / "gfloat/formats.py").write_text("".join(f"format_info_{name} = None\n" for name in (
        "binary16", "bfloat16", "ocp_e4m3", "ocp_e5m2")))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([*COMMAND, "--only", "gfloat"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1 and done.stdout == ""
    assert "compare: quantize fp16: the result is not that of gfloat\n" in done.stderr
