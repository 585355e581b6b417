"""Conversions and arithmetic of whole arrays."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._arrays import (FormatLike, Tensor, as_codes, as_floats, as_format, as_singles, as_values, differentiable,
                      integer, like, typed, without_gradient)
from ._tables import Table

_KEYWORDS = f"""
    Keywords: rounding ({', '.join(_ampscope.roundings)}),
    overflow ({', '.join(_ampscope.overflows)}), subnormals ({', '.join(_ampscope.subnormals)}),
    profile (a row of ampscope.profiles that sets them all), or policy: the row by which that library casts to this
    very format ("torch": 465 gives 448 in E4M3, as in torch 2.15, where OCP's rule, the default, gives NaN); and of
    stochastic rounding seed, stream, step, first_index, random_bits (1 to 32) and stochastic_variant ("a", "b" or "c"
    of IEEE P3109: how what is discarded is cut to these bits). The result does not depend on threads (0: all cores).
    Tensors of torch give tensors of torch, other arrays those of NumPy. Raises ValueError for
    names that are none, TypeError for arguments of another kind."""
_POLICY = {**dict.fromkeys(("rounding", "overflow", "subnormals", "profile", "stochastic_variant"), str),
           **dict.fromkeys(("seed", "stream", "step", "first_index", "random_bits"), int)}


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Operation(Protocol):
    @overload
    def __call__(self, a: Tensor, b: Any = ..., c: Any = ..., *, format: FormatLike, threads: int = ...,
                 **policy: Any) -> Tensor: ...

    @overload
    def __call__(self, a: npt.ArrayLike, b: npt.ArrayLike = ..., c: npt.ArrayLike = ..., *, format: FormatLike,
                 threads: int = ..., **policy: Any) -> npt.NDArray[np.float32]: ...


def _documented(function: _Function) -> _Function:
    function.__doc__ += _KEYWORDS
    return function


def _policy(keywords, format):
    """The Policy that keywords of a conversion to the format ask for."""
    if "policy" in keywords:
        keywords = {**keywords, "profile": _ampscope.profile_for(keywords["policy"], format)}
        del keywords["policy"]
    for name, value in keywords.items():
        if name not in _POLICY:
            raise TypeError(f"unknown keyword '{name}'; known: {', '.join(_POLICY)}, policy")
        if _POLICY[name] is str and not isinstance(value, str):
            raise TypeError(f"{name}: expected a name, got {value!r}")
    return _ampscope.policy(**{name: value if _POLICY[name] is str else integer(name, value)
                               for name, value in keywords.items()})


@overload
def quantize(x: Tensor, format: FormatLike, *, threads: int = ..., **policy: Any) -> Tensor: ...


@overload
def quantize(x: npt.ArrayLike, format: FormatLike, *, threads: int = ...,
             **policy: Any) -> npt.NDArray[np.float32]: ...


@_documented
def quantize(x, format, *, threads=0, **policy):
    """x rounded once to the format: FP32 with the shape of x. x holds real numbers: of NumPy, ml_dtypes, torch, or a
    list; a byte of torch's float4_e2m1fn_x2 holds two. Gradients of a tensor of torch pass straight through: the
    gradient of x is that of the result, whatever rounding made of it, also where it overflowed.
    """
    f = as_format(format)
    rounded = _ampscope.quantize(f, as_floats(x), _policy(policy, f), integer("threads", threads))
    return differentiable(rounded, lambda x: x, x)


@_documented
def encode(x: Any, format: FormatLike, *, dtype: Any = None, threads: int = 0, **policy: Any) -> Any:
    """The codes of x in the format: unsigned integers of 8, 16 or 32 bits, or an array of `dtype` that holds them:
    integers of that size, or the format's own (np.float16, ml_dtypes.bfloat16, torch.float8_e4m3fn ...). Codes have no
    gradient: a tensor that requires one is refused where dtype is a floating-point type.
    """
    f = as_format(format)
    if getattr(dtype, "is_floating_point", False):
        without_gradient(x=x)
    codes = _ampscope.encode(f, as_singles(x), _policy(policy, f), integer("threads", threads))
    return like(codes, x) if dtype is None else typed(codes, f, dtype)


@overload
def decode(codes: Tensor, format: FormatLike, *, threads: int = ...) -> Tensor: ...


@overload
def decode(codes: npt.ArrayLike, format: FormatLike, *, threads: int = ...) -> npt.NDArray[np.float32]: ...


def decode(codes, format, *, threads=0):
    """The values of codes, exactly, as FP32. NaN is canonical. Codes are integers, or an array whose element type is
    the format, whose gradient is that of the result. Tensors of torch give tensors of torch. Raises TypeError for
    values of another type, and ValueError for integers that are no codes of the format."""
    f = as_format(format)
    return differentiable(_ampscope.decode(f, as_codes(codes, f), integer("threads", threads)), lambda x: x, codes)


@_documented
def store_number(number: str | float, formats: FormatLike | Iterable[FormatLike] | None = None,
                 **policy: Any) -> list[_ampscope.NumberInFormat]:
    """What each format makes of one number: code, value, error and neighbours. The number is a float, or text of any
    length ("0.1", "0x1.8p-3", "inf"), which each format rounds only once; formats: all of ampscope.formats.
    """
    wanted = _ampscope.formats_in(_ampscope.formats if formats is None else formats)
    text = number if isinstance(number, str) else float(number).hex()
    return [_ampscope.store_number(text, [f], _policy(policy, f))[0] for f in wanted]


def _operation(name: str, meaning: str, plain: Callable[..., Any]) -> _Operation:
    def operation(a, b=0.0, c=0.0, *, format, threads=0, **policy):
        singles = np.broadcast_arrays(as_singles(a), as_singles(b), as_singles(c))
        x, y, z = (np.asarray(operand, order="C") for operand in singles)
        f = as_format(format)
        result = _ampscope.apply(name, f, x, y, z, _policy(policy, f), integer("threads", threads))
        return differentiable(result, lambda *xyz: plain(*xyz).expand(result.shape), a, b, c)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = (f"{meaning}, correctly rounded to the format, element by element; operands are values of "
                         "it. Gradients of tensors of torch are those of torch's operation: rounding counts as the "
                         "identity.\n" + _KEYWORDS)
    return operation


add = _operation("add", "a + b", lambda a, b, c: a + b)
sub = _operation("sub", "a - b", lambda a, b, c: a - b)
mul = _operation("mul", "a * b", lambda a, b, c: a * b)
div = _operation("div", "a / b", lambda a, b, c: a / b)
sqrt = _operation("sqrt", "The square root of a", lambda a, b, c: a.sqrt())
fma = _operation("fma", "a * b + c, rounded once", lambda a, b, c: a * b + c)


@_documented
def operate(operation: str, *operands: Any, format: FormatLike, threads: int = 0, **policy: Any) -> Any:
    """An operation by its name in IEEE P3109's interim report v4.0 ("Exp", "Hypot", "MinimumFinite", "CompareLess",
    "Class" ...) or in Berkeley TestFloat ("rem", "roundToInt" ...): a row of ampscope.operations(), element by element.
    Operands are values of the format, binary8p3 or any other. Numbers are FP32 and correctly rounded, also those of
    functions that are not rational; what is true or not is bool, a class is uint8 (0 NaN, 1 to 7 from -infinity to
    infinity). Results have no gradient: a tensor that requires one is refused.
    """
    for x in operands:
        without_gradient(operand=x)
    f = as_format(format)
    singles = np.broadcast_arrays(*(as_values(x, f, "operand") for x in operands)) if operands else []
    result = _ampscope.operate(operation, f, [np.asarray(x, order="C") for x in singles], _policy(policy, f),
                               integer("threads", threads))
    kind = next(row["result"] for row in operations() if row["name"] == operation)
    return like(result if kind == "number" else result.astype(bool if kind == "truth" else np.uint8), *operands)


def operations() -> Table:
    """What operate() takes: the name of each operation, its number of operands, and what its result is."""
    return Table(dict(zip(("name", "operands", "result"), row)) for row in _ampscope.operations())


def histogram(x: Any, *, scale: float = 1) -> _ampscope.Histogram:
    """The exact Histogram of the magnitudes of x / scale; scale, the loss scale that gradients still contain, is a
    power of two. Raises ValueError."""
    exponent = np.log2(scale) if scale > 0 else np.nan
    if not np.isfinite(exponent) or exponent != np.floor(exponent):
        raise ValueError(f"scale: {scale} is no power of two")
    counted = _ampscope.histogram(as_floats(x))
    return counted if exponent == 0 else counted.scaled(-int(exponent))
