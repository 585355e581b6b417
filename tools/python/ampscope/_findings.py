"""What recordings say, as objects with the fields of the C++ structs of sim/findings."""
from __future__ import annotations

import json
import math
import os
from typing import Any

from . import _ampscope
from ._ampscope import AdamFindings, ComparisonFindings, DiffFindings, HistogramFindings, LossScaleFindings
from ._tables import Table, main_table, plain_table
from ._tools import command_of, paths_or_sample


def adam_findings(path: str | os.PathLike[str], **options: Any) -> AdamFindings:
    """What eps and the formats of its state do to Adam, on a run folder or on recorded gradients; the options are those
    of amp-adam: adam_findings("run/", eps="1e-8,1e-6", state="fp32,bf16"). frame(): format of the state and eps. Ctrl-C
    ends it. Raises OSError where nothing can be read, ValueError for options that mean nothing."""
    return _ampscope.adam_findings(command_of([path], options))


def loss_scale_findings(path: str | os.PathLike[str], **options: Any) -> LossScaleFindings:
    """What other loss scalers would have done with a run folder, recorded gradients or a log; the options are those of
    amp-loss-scale: loss_scale_findings("run/", scaler=["torch", "megatron"], sweep=True). frame(): a scaler each.
    Raises as adam_findings."""
    return _ampscope.loss_scale_findings(command_of([path], options))


def diff_findings(a: str | os.PathLike[str], b: str | os.PathLike[str], **options: Any) -> DiffFindings:
    """Where two recordings part; the options are those of amp-diff. frame(): a tensor each. What cannot be read is in
    errors. Raises ValueError for options that mean nothing."""
    return _ampscope.diff_findings(command_of([a, b], options))


def histogram_findings(*paths: str | os.PathLike[str], **options: Any) -> HistogramFindings:
    """Which gradients in files and folders underflow or overflow in which format; the options are those of
    amp-histogram: histogram_findings("run/", format="fp16,e5m2", recipe=["te-mxfp8", "te-nvfp4"]). frame(): tensor,
    format and scale; recipes: a Table of tensor and recipe. What cannot be read is in errors. Ctrl-C ends it. Raises
    ValueError for options that mean nothing."""
    return _ampscope.histogram_findings(command_of(paths_or_sample(paths, options), options))


def comparison_findings(*paths: str | os.PathLike[str], **options: Any) -> ComparisonFindings:
    """Runs side by side; without paths it trains the standard comparison, which takes a quarter of an hour. The options
    are those of amp-report. frame(): a precision each. What cannot be read is in errors. Raises as
    histogram_findings."""
    return _ampscope.comparison_findings(command_of(paths, options))


def _exact_log2(x):
    significand, exponent = math.frexp(x)
    return exponent - 1 if significand == 0.5 else None


def _cast_rows(f):
    tensors = [([t.name, t.step, t.kind, h.count, h.zero, h.nan, h.inf],
                {(format, scale): error for format, scale, error in t.errors})
               for t in f.tensors for h in [t.magnitudes.histogram]]
    return main_table("histogram", (
        [*tensor, format, scale, _exact_log2(scale), n.underflow, n.subnormal, n.normal, n.overflow,
         errors.get((format, scale))]
        for i, format, scale, n in f.rows() for tensor, errors in [tensors[i]]))


def _recipe_rows(f):
    return Table({"tensor": t.name, "step": t.step, "kind": t.kind, "recipe": name, "role": e.role,
                  "element": e.element, "block": e.block and f"{e.block[0]}x{e.block[1]}",
                  **{field: getattr(e.statistics, field) for field in
                     ("elements", "nonzero", "underflow", "saturated", "lost", "sqnr", "mean_squared_error", "blocks",
                      "zero_scales", "saturated_scales", "least_scale", "largest_scale", "spread")}}
                 for t in f.tensors for name, e in zip(f.recipe_names, t.recipes) if e.tensors)


def _precision_rows(f):
    return plain_table(json.loads(_ampscope.comparison_rows(f)))


def _adam_rows(f):
    return main_table("adam", (
        [f.name, str(asked), eps, f.question.stored_eps(s, e), state.eps[e].dominated, state.eps[e].nonfinite,
         state.v_underflow, state.v_stuck, f.total.nonzero]
        for s, (asked, state) in enumerate(zip(f.question.states, f.total.states))
        for e, eps in enumerate(f.question.eps)))


def _scaler_rows(f):
    return main_table("loss_scale", (
        [f.log.name, s.name, r.steps, r.skips, r.first_good, r.final_scale, r.underflow, r.nonzero, "; ".join(s.alarms)]
        for s in [*f.replays, *f.swept] for r in [s.replay]))


def _pair_rows(f):
    return main_table("diff", (
        [p.name, p.step, p.kind, p.a_dtype, p.b_dtype, d.elements, d.differing, d.max_ulps, d.max_relative,
         d.max_absolute, d.relative_norm] for p in f.pairs for d in [p.diff]))


for _kind, _rows in ((AdamFindings, _adam_rows), (LossScaleFindings, _scaler_rows), (DiffFindings, _pair_rows),
                     (HistogramFindings, _cast_rows), (ComparisonFindings, _precision_rows)):
    _kind.frame = lambda self, rows=_rows: rows(self).frame()
    _kind._repr_html_ = lambda self, rows=_rows: rows(self)._repr_html_()
HistogramFindings.recipes = property(_recipe_rows)
