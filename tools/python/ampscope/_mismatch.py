"""Training against serving: how far the probabilities of tokens are apart that two programs give."""
from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import _ampscope
from ._arrays import _array_of, as_floats


def mismatch(training: Any, serving: Any, tokens: Any = None) -> dict[str, Any]:
    """What amp-train --against says, of a user's own recordings: how far serving (a rollout's engine, q) is from
    training (p).

    training, serving   with tokens: logits of shape (..., vocabulary), -inf for what cannot come; without: natural
                        logarithms of the tokens' probabilities, of any shape
    tokens              integers of shape (...), of which negative ones are left out: masked
    Returns a dict: "tokens" compared and "nonfinite" ones left out (with logits that are NaN or inf, or of tokens that
    have no probability), "training_loss" and "serving_loss" (means of -log),
    "token" (NeMo-RL's token_mult_prob_error, gen_kl_error, policy_kl_error, js_divergence_error and
    sampling_importance_ratio, verl's chi2_token, and the largest difference) and, of logits, "distribution" (KL both
    ways, Jensen-Shannon, chi^2, the largest difference of a probability, and how often another token is the likeliest).
    Equal inputs give zeros exactly, and ones for ratios. sim/findings/mismatch.h has the formulas. Raises ValueError
    for shapes that do not fit, tokens outside the vocabulary and probabilities above 1.

    >>> ampscope.mismatch([[1.0, 2.0]], [[1.0, 2.25]], [0])["distribution"]["kl_training_serving"]
    0.005902749169648829
    """
    p, q = as_floats(training), as_floats(serving)
    if tokens is None:
        p, q = p.astype(np.float64, copy=False), q.astype(np.float64, copy=False)
        if p.shape != q.shape:
            raise ValueError(f"mismatch: expected two arrays of one shape, got {p.shape} and {q.shape}")
        if max(p.max(initial=0), q.max(initial=0)) > 1e-6:  # what FP32 leaves of log 1
            raise ValueError("mismatch: expected logarithms of probabilities, none above 0; logits need tokens")
        found = json.loads(_ampscope.mismatch_of_log_probabilities(p, q))
    else:
        t = _array_of(tokens)[0]
        if t.dtype.kind not in "iu":
            raise TypeError(f"tokens: expected integers, got {t.dtype}")
        if p.shape != q.shape or p.ndim == 0 or p.shape[:-1] != t.shape or p.shape[-1] == 0:
            raise ValueError("mismatch: expected logits of shape (..., vocabulary) and tokens of shape (...), got "
                             f"{p.shape}, {q.shape} and {t.shape}")
        if t.size and int(t.max()) >= p.shape[-1]:
            raise ValueError(f"tokens: {int(t.max())} is no token of {p.shape[-1]}")
        dtype = np.result_type(p, q)
        rows = (x.astype(dtype, copy=False).reshape(-1, x.shape[-1]) for x in (p, q))
        found = json.loads(_ampscope.mismatch_of_logits(*rows, np.ascontiguousarray(t.ravel(), dtype=np.int64)))
    return {key: value for key, value in found.items() if key not in ("serving", "batch", "first_op", "ops")}
