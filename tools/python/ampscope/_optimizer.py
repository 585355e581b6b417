"""Optimizers of the trainer, on one array."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._arrays import FormatLike, as_floats, as_format


class Optimizer:
    """SGD, Adam, AdamW, Lion, Adafactor or, for a matrix, Muon in the order of operations of a row of
    ampscope.optimizers, with weights and state in any formats.

    >>> adam = ampscope.Optimizer(np.ones(3), "adamw", lr=1e-3, weight_format="bf16")
    >>> adam.step([1, 0, -1])
    {'lost': 2, 'changed': 0, 'nonfinite': 0}

    weight              any shape; values are rounded to weight_format; .weight, .m and .v are arrays of FP32 that hold
                        values of their formats
    v                   also Adafactor's: of a matrix, the second moments of its rows and then those of its columns
    betas, eps, momentum, nesterov   of the row, unless they are given; weight_decay is 0 unless it is
    state_format        of m and v, or of the one state of SGD, Lion and Muon; v_format where v's differs. Also with
                        scales, as m= of a precision: "dynamic8:256" for 8-bit Adam, "e4m3:tensor"; a tensor of less
                        than 4,096 elements or no whole blocks is kept in FP32
    rounding            how a new weight gets into its format: nearest, stochastic (by seed), or kahan
    random_bits         of stochastic rounding, 1 to 32 for each weight
    Raises ValueError for names and numbers out of range."""

    def __init__(self, weight: npt.ArrayLike, name: str = "adamw", *, lr: float = 1e-3,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float = 0.0, momentum: float | None = None, nesterov: bool | None = None,
                 weight_format: FormatLike = "fp32", state_format: FormatLike = "fp32",
                 v_format: FormatLike | None = None,
                 rounding: str = "nearest", seed: int = 0, random_bits: int = 32) -> None:
        row = _ampscope.optimizer_options(name)
        self._update = _ampscope.optimizer_update(
            name, lr, *(betas or (row.beta1, row.beta2)), row.eps if eps is None else eps, weight_decay,
            row.momentum if momentum is None else momentum, rounding, 0.0,
            row.nesterov if nesterov is None else nesterov, random_bits)
        weight = as_floats(weight)
        kept = [(as_format(weight_format), None), _kept(state_format, weight.size, True),
                _kept(v_format or state_format, weight.size, False)]
        self._formats, self._scaled = [f for f, _ in kept], [scaled for _, scaled in kept]
        self._seed, self.steps = seed, 0
        nearest = _ampscope.policy()
        self.weight = _ampscope.quantize(self._formats[0], weight, nearest)
        if row.kind == "muon" and self.weight.ndim != 2:
            raise ValueError(f"{name}: expected a matrix, got {self.weight.ndim} axes; others are left to AdamW")
        if row.factors and self.weight.ndim > 2:
            raise ValueError(f"{name}: expected a matrix or a vector, got {self.weight.ndim} axes")
        none = np.zeros(0, np.float32)
        self.m = np.zeros_like(self.weight) if self._update.options.has_m else none
        self.v = np.zeros_like(self.weight) if row.has_v or row.factors else none
        if row.factors and self.weight.ndim == 2:
            self.v = np.zeros(sum(self.weight.shape), np.float32)
        self._compensation = np.zeros_like(self.weight) if rounding == "kahan" else none

    def step(self, gradient: npt.ArrayLike) -> dict[str, int]:
        """One update by a gradient without loss scale, in FP32 or rounded to it. Returns how many weights with a
        gradient it left as they were, how many changed, and how many are not finite."""
        self.steps += 1
        gradient = np.broadcast_to(as_floats(gradient), self.weight.shape).astype(np.float32, order="C")
        counts = _ampscope.optimizer_step(self._update, self.steps, (self._seed, 0, self.steps), self._formats,
                                          self._scaled, self.weight, gradient, self.m, self.v, self._compensation)
        return dict(zip(("lost", "changed", "nonfinite"), counts))


def _kept(form: FormatLike, elements: int,
          has_negatives: bool) -> tuple[_ampscope.Format, _ampscope.ScaledFormat | None]:
    """The format of the numbers of m or v, and how they are kept under scales, if so."""
    if not isinstance(form, str) or ":" not in form:
        return as_format(form), None
    scaled = _ampscope.ScaledFormat(form, has_negatives)
    return as_format("fp32"), scaled if scaled.holds(elements) else None
