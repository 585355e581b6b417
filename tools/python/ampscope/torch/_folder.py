"""The run folder that every tool reads: run.json, metrics.jsonl, histograms.jsonl, gradients/, result.json."""
import itertools
import json
import math
import pathlib
import shutil
import warnings

from .. import __version__, _ampscope

LAYOUT = _ampscope.run_layout
SCHEMA = {"schema_version": LAYOUT.schema_version, "tool": "ampscope.torch", "version": __version__}
WEIGHT, WEIGHT_GRADIENT, ACTIVATION, ACTIVATION_GRADIENT, STATE = LAYOUT.kinds
GRADIENTS = (WEIGHT_GRADIENT, ACTIVATION_GRADIENT)  # only they contain a loss scale
_LOGS = (LAYOUT.metrics, LAYOUT.histograms)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def finite(x):
    """A number of JSON, which has no NaN and no infinity."""
    return x if x is not None and math.isfinite(x) else None


def _steps(folder):
    """Files of tensors with their steps."""
    for file in folder.glob("step_*"):
        if file.name.isascii() and (step := _ampscope.step_of(file.name)) is not None:
            yield step, file


def _lines_before(path, first_step):
    """What a log holds of earlier steps, without a line that was cut off; None where there is none."""
    if not path.exists():
        return None
    if not path.is_file():
        raise OSError(f"{path}: is no regular file")
    kept = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.endswith(b"\n") and json.loads(line)["step"] < first_step:
                    kept.append(line.decode())
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise OSError(f"{path}: line {number} is none of a recorder's: name another folder") from error
    return "".join(kept)


def _is_empty(path):
    return not (any(path.iterdir()) if path.is_dir() else path.stat().st_size)


def free_path(path, below=""):
    """The path, or of path-2, path-3 ... the first that holds no run; `below`: the folder in it that a run would be
    in."""
    path = pathlib.Path(path)
    path = path if path.name not in ("", "..") else path.resolve()
    names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
    return next(found for found in map(path.with_name, names) if not (found / below / LAYOUT.configuration).exists())


def open_folder(path, below, first_step, overwrite):
    """The Folder that record() is asked for, and what is to be said of it. below: a rank's folder in it, or nothing."""
    path = pathlib.Path(path)
    found = path if first_step or overwrite else free_path(path, below)
    said = f"{path} holds a run already: this one goes to {found} (overwrite=True replaces it)" if found != path else ""
    return Folder(found / below, first_step, overwrite), said


class Folder:
    """Lines are in their files when a call returns; other files appear whole. Other files in the folder are left alone;
    a folder of that kind that is not a run's is refused, as is one that another program records into. Nothing in it
    changes before all is known to fit. A folder with a run is gone on with from `first_step`, or, with `overwrite`,
    begun anew."""

    def __init__(self, path, first_step, overwrite=False):
        self.path = pathlib.Path(path)
        self._lock = _ampscope.FolderLock(str(self.path))
        self._lines = {}
        try:
            self._check(first_step, overwrite)
            kept = {name: _lines_before(self.path / name, first_step) for name in _LOGS}
            if self._lock.warning:
                warnings.warn(self._lock.warning, RuntimeWarning, stacklevel=5)
            self._begin(first_step, kept)
        except BaseException:
            self.close()
            raise

    def _check(self, first_step, overwrite):
        if not (self.path / LAYOUT.configuration).exists():
            parts = [self.path / name for name in (*_LOGS, LAYOUT.result, LAYOUT.gradients, LAYOUT.state)]
            foreign = [part.name for part in parts if part.exists() and not _is_empty(part)]
            if foreign:
                raise FileExistsError(f"{self.path}: holds {foreign[0]}, but no run.json: name another folder")
            return
        if first_step == 0 and not overwrite:
            raise FileExistsError(f"{self.path}: holds a run already; name another folder, go on with it by "
                                  "step=, or replace it by overwrite=True")
        try:
            ours = _ampscope.read_json(str(self.path / LAYOUT.configuration))["tool"] == SCHEMA["tool"]
        except (OSError, LookupError):
            ours = False
        if not ours:
            raise FileExistsError(f"{self.path}: its run.json is none of {SCHEMA['tool']}: name another folder")

    def _begin(self, first_step, kept):
        (self.path / LAYOUT.gradients).mkdir(parents=True, exist_ok=True)
        _ampscope.remove_partial_files(str(self.path))
        for name, text in kept.items():
            if text is not None:
                _ampscope.write_text(str(self.path / name), text)
            self._lines[name] = open(self.path / name, "ab", buffering=0)
        for step, file in [*_steps(self.path / LAYOUT.gradients), *_steps(self.path / LAYOUT.state)]:
            if step >= first_step:
                file.unlink()
        (self.path / LAYOUT.result).unlink(missing_ok=True)

    def write(self, name, document):
        """run.json or result.json."""
        _ampscope.write_text(str(self.path / name), json.dumps({**SCHEMA, **document}, indent=1) + "\n")

    def append_metrics(self, line):
        self._append(LAYOUT.metrics, _encode(line))

    def append_histogram(self, histogram, *, step, tensor, kind, loss_scale, format):
        self._append(LAYOUT.histograms, _ampscope.histogram_line(histogram, step, tensor, kind, loss_scale, format))

    def _append(self, name, line):
        self._lines[name].write(line.encode() + b"\n")

    def write_gradients(self, step, tensors, kinds, loss_scale):
        """tensors: name -> (dtype by its name in torch, shape, bytes as an array); kinds: name -> kind; loss_scale: of
        those that are gradients."""
        self._write(LAYOUT.gradients, step, tensors, {"loss_scale": repr(loss_scale), "kinds": json.dumps(kinds)})

    def write_state(self, step, tensors, kinds):
        """Weights by their names, Adam's state as NAME.m and NAME.v; as write_gradients()."""
        (self.path / LAYOUT.state).mkdir(exist_ok=True)
        self._write(LAYOUT.state, step, tensors, {"kinds": json.dumps(kinds)})

    def _write(self, folder, step, tensors, metadata):
        stated = {"schema_version": str(LAYOUT.schema_version), "step": str(step), **metadata}
        _ampscope.write_tensors(str(self.path / folder / _ampscope.step_file(step)),
                                [(name, *tensor) for name, tensor in tensors.items()], stated)

    def remove(self):
        """What was written since the folder was begun, which nothing of a run was in."""
        for name in (*_LOGS, LAYOUT.result, LAYOUT.configuration):
            (self.path / name).unlink(missing_ok=True)
        for name in (LAYOUT.gradients, LAYOUT.state):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def close(self):
        for lines in self._lines.values():
            lines.close()
        self._lock.release()
