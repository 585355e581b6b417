"""Training against serving: how far the probabilities of tokens are apart that two programs give."""
from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import _ampscope
from ._arrays import _array_of, as_floats, as_singles


def mismatch(training: Any, serving: Any, tokens: Any = None) -> dict[str, Any]:
    """What amp-train --against says, of a user's own recordings: how far serving (a rollout's engine, q) is from
    training (p).

    training, serving   with tokens: logits, FP32, of shape (..., vocabulary); without: natural logarithms of the
                        tokens' probabilities, of any shape
    tokens              integers of shape (...), of which negative ones are left out: masked
    Returns a dict: "tokens" compared and "nonfinite" ones left out, "training_loss" and "serving_loss" (means of -log),
    "token" (NeMo-RL's token_mult_prob_error, gen_kl_error, policy_kl_error, js_divergence_error and
    sampling_importance_ratio, verl's chi2_token, and the largest difference) and, of logits, "distribution" (KL both
    ways, Jensen-Shannon, chi^2, the largest difference of a probability, and how often another token is the likeliest).
    Equal inputs give zeros exactly, and ones for ratios. sim/findings/mismatch.h has the formulas. Raises ValueError
    for shapes that do not fit and tokens outside the vocabulary.

    >>> ampscope.mismatch([[1.0, 2.0]], [[1.0, 2.25]], [0])["distribution"]["kl_training_serving"]
    """
    if tokens is None:
        p, q = (np.ascontiguousarray(as_floats(x), dtype=np.float64) for x in (training, serving))
        if p.shape != q.shape:
            raise ValueError(f"mismatch: expected two arrays of one shape, got {p.shape} and {q.shape}")
        found = json.loads(_ampscope.mismatch_of_log_probabilities(p, q))
    else:
        p, q, t = as_singles(training), as_singles(serving), _array_of(tokens)[0]
        if t.dtype.kind not in "iu":
            raise TypeError(f"tokens: expected integers, got {t.dtype}")
        if p.shape != q.shape or p.ndim == 0 or p.shape[:-1] != t.shape or p.shape[-1] == 0:
            raise ValueError("mismatch: expected logits of shape (..., vocabulary) and tokens of shape (...), got "
                             f"{p.shape}, {q.shape} and {t.shape}")
        rows = (x.reshape(-1, x.shape[-1]) for x in (p, q))
        found = json.loads(_ampscope.mismatch_of_logits(*rows, np.ascontiguousarray(t.ravel(), dtype=np.int64)))
    return {key: value for key, value in found.items() if key not in ("serving", "batch", "first_op", "ops")}
