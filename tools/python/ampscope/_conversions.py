"""Conversions and arithmetic of whole arrays."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._arrays import as_codes, as_floats, as_format, as_singles, typed

_KEYWORDS = """
    Keywords: rounding (nearest_even, nearest_away, toward_zero, down, up, to_odd, stochastic), overflow (infinity,
    saturate, saturate_all), subnormals (keep, flush_input, flush_output, flush), profile (a row of ampscope.profiles
    that sets them all), and of stochastic rounding seed, stream, step, first_index and random_bits (16 or 32).
    The result does not depend on threads (0: all cores). Raises ValueError for names that are none."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Operation(Protocol):
    def __call__(self, a: npt.ArrayLike, b: npt.ArrayLike = ..., c: npt.ArrayLike = ..., *,
                 format: _ampscope.Format | str, threads: int = ..., **policy: Any) -> npt.NDArray[np.float32]: ...


def _documented(function: _Function) -> _Function:
    function.__doc__ += _KEYWORDS
    return function


@_documented
def quantize(x: npt.ArrayLike, format: _ampscope.Format | str, *, threads: int = 0,
             **policy: Any) -> npt.NDArray[np.float32]:
    """x rounded once to the format: an array of FP32 with the shape of x. x holds real numbers: of NumPy, ml_dtypes,
    torch, or a list.
    """
    return _ampscope.quantize(as_format(format), as_floats(x), _ampscope.policy(**policy), threads)


@_documented
def encode(x: npt.ArrayLike, format: _ampscope.Format | str, *, dtype: Any = None, threads: int = 0,
           **policy: Any) -> Any:
    """The codes of x in the format: unsigned integers of 8, 16 or 32 bits, or an array of `dtype` that holds them
    (np.float16, ml_dtypes.bfloat16, torch.float8_e4m3fn ...).
    """
    codes = _ampscope.encode(as_format(format), as_singles(x), _ampscope.policy(**policy), threads)
    return codes if dtype is None else typed(codes, dtype)


def decode(codes: npt.ArrayLike, format: _ampscope.Format | str, *, threads: int = 0) -> npt.NDArray[np.float32]:
    """The values of codes, exactly, as FP32; bits of a code beyond the format's are ignored. NaN is canonical."""
    return _ampscope.decode(as_format(format), as_codes(codes), threads)


@_documented
def store_number(number: str | float, formats: Iterable[_ampscope.Format | str] | None = None,
                 **policy: Any) -> list[_ampscope.NumberInFormat]:
    """What each format makes of one number: code, value, error and neighbours. The number is a float, or text of any
    length ("0.1", "0x1.8p-3", "inf"), which each format rounds only once; formats: all of ampscope.formats.
    """
    wanted = [as_format(format) for format in (_ampscope.formats if formats is None else formats)]
    return _ampscope.store_number(number if isinstance(number, str) else float(number).hex(), wanted,
                                  _ampscope.policy(**policy))


def _operation(name: str, meaning: str) -> _Operation:
    def operation(a, b=0.0, c=0.0, *, format, threads=0, **policy):
        a, b, c = np.broadcast_arrays(as_singles(a), as_singles(b), as_singles(c))
        a, b, c = (np.asarray(x, order="C") for x in (a, b, c))
        return _ampscope.apply(name, as_format(format), a, b, c, _ampscope.policy(**policy), threads)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = (f"{meaning}, correctly rounded to the format, element by element; operands are values of "
                         "it.\n" +
                         _KEYWORDS)
    return operation


add = _operation("add", "a + b")
sub = _operation("sub", "a - b")
mul = _operation("mul", "a * b")
div = _operation("div", "a / b")
sqrt = _operation("sqrt", "The square root of a")
fma = _operation("fma", "a * b + c, rounded once")


def dot(a: npt.ArrayLike, b: npt.ArrayLike, accumulator: str = "fp32", *, a_format: _ampscope.Format | str = "fp32",
        b_format: _ampscope.Format | str | None = None, c: float = 0.0) -> float:
    """a . b + c as that accumulator adds up: a row of matrix hardware (hopper-wgmma-fp8 ...), exact, pairwise, kahan,
    or a format for a chain of fused multiply-adds in it. Operands are values of their formats, which decide how
    hardware reads them. Returns a float. Raises ValueError."""
    a, b = as_singles(a).ravel(), as_singles(b).ravel()
    return _ampscope.dot(a, b, str(a_format), str(b_format or a_format), accumulator, c)


def histogram(x: npt.ArrayLike, *, scale: float = 1) -> _ampscope.Histogram:
    """The exact Histogram of the magnitudes of x / scale; scale, the loss scale that gradients still contain, is a
    power of two. Raises ValueError."""
    exponent = np.log2(scale) if scale > 0 else np.nan
    if not np.isfinite(exponent) or exponent != np.floor(exponent):
        raise ValueError(f"scale: {scale} is no power of two")
    counted = _ampscope.histogram(as_floats(x))
    return counted if exponent == 0 else counted.scaled(-int(exponent))
