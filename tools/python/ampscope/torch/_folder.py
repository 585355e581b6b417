"""The run folder that every tool reads: run.json, metrics.jsonl, histograms.jsonl, gradients/, result.json."""
import json
import math
import os
import pathlib

from .. import __version__, _ampscope

SCHEMA = {"schema_version": 1, "tool": "ampscope.torch", "version": __version__}
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def finite(x):
    """A number of JSON, which has no NaN and no infinity."""
    return x if x is not None and math.isfinite(x) else None


class Folder:
    """Lines are in their files when a call returns; files of tensors appear whole."""

    def __init__(self, path, first_step):
        self.path = pathlib.Path(path)
        if (self.path / "run.json").exists() and first_step == 0:
            raise FileExistsError(f"{self.path}: holds a run already; name another folder, or go on with it by step=")
        (self.path / "gradients").mkdir(parents=True, exist_ok=True)
        self._lines = {}
        for name in ("metrics.jsonl", "histograms.jsonl"):
            self._cut(self.path / name, first_step)
            self._lines[name] = open(self.path / name, "ab", buffering=0)
        for file in self.path.glob("*/step_*.safetensors"):
            if int(file.stem.removeprefix("step_")) >= first_step:
                file.unlink()
        (self.path / "result.json").unlink(missing_ok=True)

    @staticmethod
    def _cut(path, first_step):
        """Without the lines of that step and later, and without one that was cut off."""
        if not path.exists():
            return
        with open(path, encoding="utf-8") as lines:
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] < first_step]
        path.write_text("".join(kept), encoding="utf-8")

    def write(self, name, document):
        """run.json or result.json; atomic."""
        temporary = self.path / (name + ".tmp")
        temporary.write_text(json.dumps({**SCHEMA, **document}, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path / name)

    def append_metrics(self, line):
        self._append("metrics.jsonl", _encode(line))

    def append_histogram(self, histogram, *, step, tensor, kind, loss_scale, format):
        self._append("histograms.jsonl", _ampscope.histogram_line(histogram, step, tensor, kind, loss_scale, format))

    def _append(self, name, line):
        self._lines[name].write(line.encode() + b"\n")

    def write_gradients(self, step, tensors, kinds, loss_scale):
        """tensors: name -> (dtype by its name in torch, shape, bytes as an array)."""
        self._write("gradients", step, tensors, {"loss_scale": repr(loss_scale), "kinds": json.dumps(kinds)})

    def write_state(self, step, tensors):
        """Weights by their names, Adam's state as NAME.m and NAME.v; as write_gradients()."""
        (self.path / "state").mkdir(exist_ok=True)
        self._write("state", step, tensors, {})

    def _write(self, folder, step, tensors, metadata):
        _ampscope.write_tensors(str(self.path / folder / f"step_{step:06}.safetensors"),
                                [(name, *tensor) for name, tensor in tensors.items()], {"step": str(step), **metadata})

    def close(self):
        for lines in self._lines.values():
            lines.close()
