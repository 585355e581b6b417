"""What recordings say, as objects with the fields of the C++ structs of sim/findings."""
from __future__ import annotations

import os
from typing import Any

from . import _ampscope
from ._ampscope import AdamFindings, DiffFindings, LossScaleFindings
from ._conversions import quantize
from ._tools import Table, command_of


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


def _adam_rows(f):
    return Table({"format": str(format), "eps": eps, "stored": quantize(eps, format).item(),
                  "dominated": at.dominated, "nonfinite": at.nonfinite, "v_underflow": state.v_underflow,
                  "v_stuck": state.v_stuck, "nonzero": f.total.nonzero}
                 for format, state in zip(f.question.states, f.total.states)
                 for eps, at in zip(f.question.eps, state.eps))


def _scaler_rows(f):
    return Table({"name": s.name, "steps": s.replay.steps, "skips": s.replay.skips, "first_good": s.replay.first_good,
                  "final_scale": s.replay.final_scale, "underflow": s.replay.underflow, "nonzero": s.replay.nonzero,
                  "alarms": "; ".join(s.alarms)} for s in [*f.replays, *f.swept])


def _pair_rows(f):
    return Table({"name": p.name, "step": p.step, "kind": p.kind, "a_dtype": p.a_dtype, "b_dtype": p.b_dtype,
                  **{field: getattr(p.diff, field) for field in ("elements", "differing", "max_ulps", "max_relative",
                                                                 "max_absolute", "relative_norm")}}
                 for p in f.pairs)


for _kind, _rows in ((AdamFindings, _adam_rows), (LossScaleFindings, _scaler_rows), (DiffFindings, _pair_rows)):
    _kind.frame = lambda self, rows=_rows: rows(self).frame()
    _kind._repr_html_ = lambda self, rows=_rows: rows(self)._repr_html_()
