"""Attention in tiles, as fused kernels compute it."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _ampscope
from ._arrays import FormatLike, as_format, as_mask, as_values, integer, like, without_gradient


def attention(q: Any, k: Any, v: Any, options: str = "fused", *, causal: bool = False, mask: Any = None,
              scale: float | None = None, accumulator: str = "fp32", q_format: FormatLike = "fp32",
              k_format: FormatLike | None = None, v_format: FormatLike | None = None, out_format: FormatLike = "fp32",
              logsumexp: bool = False, threads: int = 0) -> Any:
    """softmax(scale q k^T + mask) v for each head, tile by tile with a running maximum and sum, as FlashAttention-2
    computes it (arXiv:2307.08691): sim/program/ops/attention.h has the order of operations and every rounding. q is
    B x H x Q x D, k and v are B x G x K x D, where G divides H; axes before the last two may be left out. Returns FP32
    of q's shape, as a tensor of torch where an operand is one; with `logsumexp` also that of each row.

    options             what amp-train --attention takes: "fused:64x32,p=e4m3,o=bf16,max=shifted" (queries and keys of a
                        tile, on which the bits depend; formats of P, of scores s, of the row's sum l, of O, of all
                        steps; offset, p-sum).
                        "plain" is refused: matmul() and a softmax compute it
    causal              query i sees keys 0 ... i
    mask                H x Q x K or the like, where axes may be left out or be 1: booleans, of which True lets a key
                        take part, or numbers that are added to the scaled scores. Where it is False or -infinity, a
                        key counts for nothing; a query that sees none has zeros. It is divided by the scale, where
                        what is beyond FP32 counts as its largest number. It has no gradient, and `causal` is none
                        beside it
    scale               of scores; 1 / sqrt(D) unless given
    accumulator         a row of ampscope.accumulators(), or several joined by +: each product, q k^T and P v, has the
                        first that takes its operands
    q_format ...        what the operands are values of; k's is q's unless given, v's is k's, P's is q's
    out_format          the format to which O / l is rounded once
    Raises ValueError for other values, shapes and options, and for formats that no accumulator multiplies, TypeError
    for a tensor that requires a gradient. The result does not depend on threads (0: all cores)."""
    shape, *call = _call(q, k, v, mask, options, causal, scale, accumulator, q_format, k_format, v_format, out_format)
    out, lse = _ampscope.attention(*call, integer("threads", threads))
    out = like(out.reshape(shape), q, k, v)
    return (out, like(lse.reshape(shape[:-1]), q, k, v)) if logsumexp else out


def attention_gradients(q: Any, k: Any, v: Any, grad: Any, options: str = "fused", *, causal: bool = False,
                        mask: Any = None, scale: float | None = None, accumulator: str = "fp32",
                        q_format: FormatLike = "fp32", k_format: FormatLike | None = None,
                        v_format: FormatLike | None = None, out_format: FormatLike = "fp32",
                        grad_format: FormatLike = "fp32", threads: int = 0) -> Any:
    """The gradients of q, k and v from `grad`, that of the result of attention(), which the other arguments are those
    of: three arrays of FP32 in their shapes, or tensors of torch. It computes forward again, and then backward in tiles
    as FlashAttention-2 does; sim/program/ops/attention.h has its order of operations and roundings. `ds` of the options
    is the format of P and dS, q's unless given.

    grad_format         what grad is values of, and the format to which each gradient is rounded once
    accumulator         as in attention(); the five products of backward have it, too
    Raises as attention() does."""
    without_gradient(grad=grad)
    grad_format = as_format(grad_format)
    shape, q_full, k_full, v_full, mask_full, *how = _call(q, k, v, mask, options, causal, scale, accumulator, q_format,
                                                           k_format, v_format, out_format)
    given = as_values(grad, grad_format, "grad")
    if given.shape != shape:
        raise ValueError(f"attention_gradients: expected a gradient of q's shape {shape}, got {given.shape}")
    all_of = _ampscope.attention_gradients(q_full, k_full, v_full, mask_full,
                                           np.ascontiguousarray(given.reshape(q_full.shape)), *how, grad_format,
                                           integer("threads", threads))
    return tuple(like(x.reshape(np.shape(of)), q, k, v, grad) for x, of in zip(all_of, (q, k, v)))


def _mask_of(mask, axes):
    """What is added to scores, in FP32 and with four axes; None for no mask."""
    if mask is None:
        return None
    without_gradient(mask=mask)
    values = as_mask(mask, "mask")
    if values.ndim > axes:
        raise ValueError(f"attention: expected a mask of at most {axes} axes, as q has, got {values.shape}")
    return np.ascontiguousarray(values.reshape((1,) * (4 - values.ndim) + values.shape))


def _call(q, k, v, mask, options, causal, scale, accumulator, q_format, k_format, v_format, out_format):
    """The shape of q, and what a call has but for its threads: arrays with four axes, and settings."""
    for name, text in (("options", options), ("accumulator", accumulator)):
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected a text, got {text!r}")
    without_gradient(q=q, k=k, v=v)
    q_format = as_format(q_format)
    k_format = q_format if k_format is None else as_format(k_format)
    v_format = k_format if v_format is None else as_format(v_format)
    arrays = [as_values(x, format, name) for x, format, name in ((q, q_format, "q"), (k, k_format, "k"),
                                                                 (v, v_format, "v"))]
    shapes = [x.shape for x in arrays]
    if len({len(shape) for shape in shapes}) > 1 or not 2 <= len(shapes[0]) <= 4 or shapes[1] != shapes[2]:
        raise ValueError("attention: expected B x H x Q x D and twice B x G x K x D, got " +
                         " and ".join(map(str, shapes)))
    full = [np.ascontiguousarray(x.reshape((1,) * (4 - x.ndim) + x.shape)) for x in arrays]
    if scale is None:
        scale = 1 / math.sqrt(max(shapes[0][-1], 1))
    return (shapes[0], *full, _mask_of(mask, len(shapes[0])), options, bool(causal), float(scale), accumulator,
            q_format, k_format, v_format, as_format(out_format))
