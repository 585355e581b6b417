"""Blocks of IEEE P3109: a scale and elements, and the operations of the interim report v4.0, sections 5.1 to 5.4."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._arrays import FormatLike, as_format, as_values
from ._conversions import _policy

_REDUCTIONS = ("ReduceAdd", "ReduceMultiply", "DotProduct")


class P3109Block(NamedTuple):
    """Elements, which stand for scale * element; both are values of their formats."""
    scale: float
    elements: npt.NDArray[np.float32]
    scale_format: str
    format: str


def _described(block):
    if not isinstance(block, P3109Block):
        raise TypeError(f"block: expected a P3109Block, got {type(block).__name__}")
    scale_format, form = as_format(block.scale_format), as_format(block.format)
    scale = as_values(block.scale, scale_format, "scale")
    elements = as_values(block.elements, form, "elements")
    return scale_format, float(scale), form, np.ascontiguousarray(elements).ravel()


def p3109_block(x: npt.ArrayLike, format: FormatLike, *, scale_format: FormatLike, scale: float | None = None,
                from_format: FormatLike = "fp32", scale_policy: dict[str, Any] | None = None,
                **policy: Any) -> P3109Block:
    """A block of x, values of from_format: with that scale (ConvertToBlock), or with the largest finite magnitude,
    projected to scale_format as scale_policy says (ConvertToBlockMaxAbsFinite). The keywords of quantize() say how
    elements are projected. Raises ValueError for numbers that are no values of their formats."""
    from_format, form, scale_format = as_format(from_format), as_format(format), as_format(scale_format)
    x = np.ascontiguousarray(as_values(x, from_format, "x")).ravel()
    if scale is None:
        scale = _ampscope.p3109_block_scale(from_format, x, scale_format, _policy(scale_policy or {}, scale_format))
    elif scale_policy is not None:
        raise ValueError("scale_policy has no effect with a scale")
    numbers = P3109Block(1.0, x, "fp32", from_format.name)
    return p3109_block_operate("Convert", numbers, format=form, scale_format=scale_format, scale=scale, **policy)


def p3109_block_operate(operation: str, *blocks: P3109Block, format: FormatLike,
                        scale_format: FormatLike | None = None, scale: float | None = None, **policy: Any) -> Any:
    """An operation on blocks of one size, whose formats may differ; results are projected to format as the keywords of
    quantize() say.

    operation       result
    Add, FMA, Exp ... a P3109Block with that scale, a value of scale_format: any operation of ampscope.operations() that
                    the report has and whose result is a number, element by element; Convert gives its operand
    ConvertFromBlock  an array of scale * element
    ReduceAdd       the exact sum of the block, projected once: a float
    ReduceMultiply  its product
    DotProduct      the sum of the products of two blocks
    """
    form, described = as_format(format), [_described(b) for b in blocks]
    how = _policy(policy, form)
    whole = operation in (*_REDUCTIONS, "ConvertFromBlock")
    if whole != (scale is None) or whole != (scale_format is None):
        raise ValueError(f"{operation}: expected {'no scale' if whole else 'scale= and scale_format='} of the result")
    if not described:
        raise ValueError(f"{operation}: expected blocks, got none")
    if operation in _REDUCTIONS:
        return _ampscope.p3109_block_reduce(operation, described, form, how)
    if operation == "ConvertFromBlock":
        if len(described) != 1:
            raise ValueError(f"ConvertFromBlock: expected 1 blocks, got {len(described)}")
        return _ampscope.p3109_from_block(described[0], form, how)
    scale_form = as_format(scale_format)
    scale = float(as_values(scale, scale_form, "scale"))
    elements = _ampscope.p3109_block_operate(operation, described, scale_form, scale, form, how)
    return P3109Block(scale, elements, scale_form.name, form.name)
