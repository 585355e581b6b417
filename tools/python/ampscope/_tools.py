"""The tools from Python: the same options, and what their --json says."""
from __future__ import annotations

import html
import json
import os
from typing import Any

from . import _ampscope
from ._tables import Table, main_table, plain_table


class Answer(dict):  # type: ignore[type-arg]
    """What a tool says with --json. rows() is its main table, frame() the same as a pandas.DataFrame."""

    def rows(self) -> Table:
        return _ROWS[self["tool"] if "tool" in self else "amp-train"](self)

    def frame(self) -> Any:
        return self.rows().frame()

    def _repr_html_(self):
        if "html" in self.__dict__:
            return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 40em; border: 0"></iframe>'
        return self.rows()._repr_html_()


def words_of(options):
    """A command line's options from keywords: underscores become hyphens, True gives a flag, lists repeat the
    option."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            for item in value:
                words += [option, _word(item)]
        elif value is not None and value is not False:
            words += [option, _word(value)]
    return words


def _word(value):
    """A value as a command line has it; dtypes of torch and NumPy are their names."""
    return str(getattr(value, "__name__", value)).removeprefix("torch.")


def command_of(paths, options):
    """A command line as the module takes it: names of files may be any bytes."""
    return [os.fsencode(word) for word in [*map(str, paths), *words_of(options)]]


def paths_or_sample(paths, options):
    """The paths; without any the sample gradients, which are the labs'."""
    if paths or options.get("merge"):
        return paths
    from .labs import data
    return (data("deep_tanh"),)


def _ask(tool, paths, options):
    """What a tool says that is part of the module. Ctrl-C ends it."""
    text, lines = tool(command_of(paths, options))
    answer = Answer(json.loads(text))
    if answer.get("errors") and not answer.rows():
        raise OSError("\n".join(lines))
    return answer


def amp_histogram(*paths: str | os.PathLike[str], **options: Any) -> Answer:
    """What amp-histogram says of gradients in files and folders: amp_histogram("run/", format="fp16,e5m2", by="layer").
    rows(): tensor, step, format and scale, and what the cast makes of the non-zero elements. Inputs that cannot be read
    are in ["errors"]. Raises OSError where none can, ValueError for options that mean nothing."""
    return _ask(_ampscope.amp_histogram, paths_or_sample(paths, options), options)


def amp_loss_scale(*paths: str | os.PathLike[str], **options: Any) -> Answer:
    """What amp-loss-scale says: recorded runs under other loss scalers; amp_loss_scale("run/", scaler=["torch",
    "megatron"]). rows(): a scaler each. Raises as amp_histogram."""
    return _ask(_ampscope.amp_loss_scale, paths, options)


def amp_adam(*paths: str | os.PathLike[str], **options: Any) -> Answer:
    """What amp-adam says: what eps and the formats of its state do to Adam on recorded gradients; amp_adam("run/",
    eps="1e-8,1e-6"). rows(): format of the state and eps. Raises as amp_histogram."""
    return _ask(_ampscope.amp_adam, paths, options)


def amp_diff(a: str | os.PathLike[str], b: str | os.PathLike[str], **options: Any) -> Answer:
    """What amp-diff says: where two recordings part. rows(): a tensor each. Raises as amp_histogram."""
    return _ask(_ampscope.amp_diff, (a, b), options)


def amp_report(*paths: str | os.PathLike[str], **options: Any) -> Answer:
    """What amp-report says: runs side by side; without paths it trains its standard comparison, which takes a quarter
    of an hour (with seeds=3, steps=150 two minutes). rows(): a precision each. In a notebook the answer shows the page;
    amp_report("runs/", html="report.html") writes it. Raises as amp_histogram."""
    page = []

    def asked(words):
        text, lines, html = _ampscope.amp_report(words)
        page.append(html)
        return text, lines
    answer = _ask(asked, paths, options)
    answer.html = page[0]
    return answer


def _cast_rows(answer):
    return main_table("histogram", (
        [*(t[key] for key in ("name", "step", "kind", "count", "zero", "nan", "inf")), name,
         *(at.get(key) for key in ("scale", "log2", "underflow", "subnormal", "normal", "overflow", "error"))]
        for t in answer["tensors"] for name, format in t["formats"].items() for at in format["scales"]))


def _scaler_rows(answer):
    return main_table("loss_scale", (
        [run["input"], *(r[key] for key in ("scaler", "steps", "skipped", "first_good_step", "final_scale")),
         r["underflow"]["elements"], r["underflow"]["nonzero"], "; ".join(alarm["text"] for alarm in r["alarms"])]
        for run in answer["inputs"] for r in run["replays"]))


def _adam_rows(answer):
    return main_table("adam", (
        [run["input"], state["format"], *(at[key] for key in ("eps", "stored", "dominated", "nonfinite")),
         state["v_underflow"], state["v_stuck"], run["total"]["nonzero"]]
        for run in answer["inputs"] for state in run["total"]["states"] for at in state["eps"]))


def _module_rows(answer):
    """Of what ampscope.torch.compare measured: a row for each precision and module."""
    plain = ("own_error", "share", "stands_out", "underflow", "saturated")
    measured = ("output", "output_gradient", "weight_gradient", "own_output", "own_input_gradient",
                "own_weight_gradient", "effect")

    def row(precision, place, module, m):
        return {"precision": precision, "module": module["name"], "type": module["type"], "rank": place,
                **{key: m[key] for key in plain}, **{key: m[key] and m[key]["relative"] for key in measured},
                "nonfinite": max(m[key]["nonfinite"] if m[key] else 0 for key in measured)}
    return Table(row(step["precision"], places.get(module["name"]), module, errors)
                 for step in answer["precisions"]
                 for places in [{name: place for place, name in enumerate(step["ranking"], 1)}]
                 for module, errors in zip(answer["modules"], step["modules"]))


def _pair_rows(answer):
    return main_table("diff", (
        [t[key] for key in ("tensor", "step", "kind", "a_dtype", "b_dtype", "elements", "differing", "max_ulps",
                            "max_relative", "max_absolute", "relative_norm")] for t in answer["tensors"]))


_ROWS = {
    "amp-histogram": _cast_rows,
    "amp-loss-scale": _scaler_rows,
    "amp-adam": _adam_rows,
    "amp-diff": _pair_rows,
    "amp-report": lambda answer: plain_table({"group": group["name"], **row}
                                             for group in answer["groups"] for row in group["rows"]),
    "ampscope.torch.compare": _module_rows,
    "amp-train": lambda answer: plain_table(answer["runs"]),
}
