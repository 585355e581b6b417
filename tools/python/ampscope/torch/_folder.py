"""The run folder that every tool reads: run.json, metrics.jsonl, histograms.jsonl, gradients/, result.json."""
import json
import math
import os
import pathlib
import re

from .. import __version__, _ampscope

SCHEMA = {"schema_version": 1, "tool": "ampscope.torch", "version": __version__}
_LOGS = ("metrics.jsonl", "histograms.jsonl")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_open = set()  # paths that a recorder of this program writes to


def finite(x):
    """A number of JSON, which has no NaN and no infinity."""
    return x if x is not None and math.isfinite(x) else None


def _steps(folder):
    """Files of tensors with their steps."""
    for file in folder.glob("step_*.safetensors"):
        if match := re.fullmatch(r"step_(\d{6,})", file.stem):
            yield int(match[1]), file


class Folder:
    """Lines are in their files when a call returns; files of tensors appear whole. Other files in the folder are left
    alone; a folder of that kind that is not a run's is refused."""

    def __init__(self, path, first_step):
        self.path = pathlib.Path(path)
        self._check(first_step)
        (self.path / "gradients").mkdir(parents=True, exist_ok=True)
        self._lines = {}
        for name in _LOGS:
            self._cut(self.path / name, first_step)
            self._lines[name] = open(self.path / name, "ab", buffering=0)
        for step, file in [*_steps(self.path / "gradients"), *_steps(self.path / "state")]:
            if step >= first_step:
                file.unlink()
        (self.path / "result.json").unlink(missing_ok=True)
        self._key = self.path.resolve()
        _open.add(self._key)

    def _check(self, first_step):
        if self.path.resolve() in _open:
            raise FileExistsError(f"{self.path}: another recorder is writing to it")
        if not (self.path / "run.json").exists():
            foreign = [name for name in (*_LOGS, "result.json", "gradients", "state") if (self.path / name).exists()]
            if foreign:
                raise FileExistsError(f"{self.path}: holds {foreign[0]}, but no run.json: name another folder")
            return
        if first_step == 0:
            raise FileExistsError(f"{self.path}: holds a run already; name another folder, or go on with it by step=")
        try:
            ours = json.loads((self.path / "run.json").read_text(encoding="utf-8"))["tool"] == SCHEMA["tool"]
        except (ValueError, LookupError, TypeError):
            ours = False
        if not ours:
            raise FileExistsError(f"{self.path}: its run.json is none of {SCHEMA['tool']}: name another folder")

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
        _open.discard(self._key)
        for lines in self._lines.values():
            lines.close()
