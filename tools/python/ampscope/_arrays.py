"""From arrays of NumPy, ml_dtypes and torch to what the kernels take, and back."""
from __future__ import annotations

import functools
import sys
from typing import Any, Protocol, TypeVar, Union

import numpy as np

from . import _ampscope

#: A format as functions take it: a Format, a name, or a dtype of torch, NumPy or ml_dtypes.
FormatLike = Union[_ampscope.Format, str, Any]

#: A Format from any of these.
as_format = _ampscope.format


class _Tensor(Protocol):
    """What tells a tensor of torch from an array, for type checkers."""

    def detach(self) -> Any: ...


Tensor = TypeVar("Tensor", bound=_Tensor)

_NUMPY_FORMATS = {torch: format for _, format, numpy, torch, _ in _ampscope.dtypes if format and numpy}
#: Formats of element types that NumPy itself does not know, by their names in ml_dtypes and torch.
FORMATS = {name: format for name, format in _ampscope.format_aliases.items() if name not in _NUMPY_FORMATS}
#: The element type of torch that has two codes of E2M1 in a byte, the first in the low bits.
_PAIRS = "float4_e2m1fn_x2"
_CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def integer(name, value):
    """The value of an argument of that name as an int. Raises TypeError for what is none."""
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None


def format_of_dtype(name):
    """The format of an element type by its name in NumPy, ml_dtypes or torch; "" for those that are none."""
    return (_NUMPY_FORMATS | FORMATS).get(name, "")


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def array_of_torch(x):
    """An array of NumPy, and the name of its element type; of types that NumPy lacks the codes."""
    import torch
    name, x = str(x.dtype).removeprefix("torch."), x.detach().cpu()
    if name not in FORMATS:
        return x.numpy(), name
    return x.contiguous().view({1: torch.uint8, 2: torch.int16}[x.element_size()]).numpy(), name


def _array_of(x):
    """The same of anything: the codes of element types that NumPy lacks, one an element."""
    if is_torch(x):
        x, name = array_of_torch(x)
    else:
        x = np.asarray(x)
        name = x.dtype.name
    if name == _PAIRS:
        x = np.stack([x & 15, x >> 4], axis=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])
    return x, name


def like(result, *arguments):
    """The result as a tensor of torch, on the device of the first argument that is one; as it is if none is."""
    for x in arguments:
        if is_torch(x):
            return sys.modules["torch"].from_numpy(result).to(x.device)
    return result


def needs_gradient(x):
    """Whether it is a tensor of torch whose gradient is asked for."""
    return is_torch(x) and x.requires_grad and sys.modules["torch"].is_grad_enabled()


def without_gradient(**arguments):
    """Raises TypeError for an argument whose gradient is asked for, where the result has none."""
    for name, x in arguments.items():
        if needs_gradient(x):
            raise TypeError(f"{name}: requires a gradient, which the result does not have: pass {name}.detach()")


@functools.lru_cache(None)
def _straight_through():
    torch = sys.modules["torch"]

    class StraightThrough(torch.autograd.Function):
        """The second argument, whose gradient goes to the first."""

        @staticmethod
        def forward(ctx, plain, result):
            return result

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    return StraightThrough.apply


def differentiable(result, plain, *arguments):
    """like(), with the gradient of plain(*arguments), which torch computes in FP32: rounding counts as the identity."""
    result = like(result, *arguments)
    if not any(map(needs_gradient, arguments)):
        return result
    torch = sys.modules["torch"]
    singles = (x.to(result.device, torch.float32) if needs_gradient(x) else
               torch.tensor(as_singles(x), device=result.device) for x in arguments)
    return _straight_through()(plain(*singles), result)


def as_floats(x):
    """The values as FP32 or FP64, in C order: without a copy where x is so already. Integers become FP64; those beyond
    2^53 are refused, since they would be rounded before they are asked about."""
    x, name = _array_of(x)
    if name in FORMATS:
        codes = np.asarray(x, order="C").view(_CODES[x.dtype.itemsize])
        return _ampscope.decode(as_format(FORMATS[name]), codes)
    if x.dtype.kind in "iu" and x.size and max(abs(int(x.max())), abs(int(x.min()))) > 2**53:
        raise ValueError("integers beyond 2^53 are no FP64 values")
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise TypeError(f"expected real numbers of at most 64 bits, got {x.dtype}")
    wide = x.dtype == np.float64 or x.dtype.kind in "iu"
    return np.asarray(x, dtype=np.float64 if wide else np.float32, order="C")


def as_singles(x):
    """as_floats() for what takes FP32 alone. Raises ValueError for FP64 values that are not FP32's."""
    x = as_floats(x)
    if x.dtype == np.float32:
        return x
    single = x.astype(np.float32)
    if not np.array_equal(single.astype(np.float64), x, equal_nan=True):
        raise ValueError("values are not in FP32: quantize them first")
    return single


def as_values(x, format, name):
    """as_singles() for values of that format. Raises ValueError that names the argument's first other element."""
    x = as_floats(x)
    rounded = _ampscope.quantize(format, x, _ampscope.policy())
    equal = rounded == x
    others = () if equal.all() else np.argwhere(~(equal | np.isnan(rounded) & np.isnan(x)))
    if len(others):
        at = tuple(map(int, others[0]))
        place = f"{name}[{', '.join(map(str, at))}]" if at else name
        raise ValueError(f"{place} is {x[at]:.9g}, which is no value of {format}: "
                         f"pass ampscope.quantize({name}, '{format}')")
    return x.astype(np.float32, copy=False)


def as_mask(x, name):
    """What a mask adds to scores, in FP32: of booleans 0 where they are true and -infinity elsewhere."""
    array, dtype = _array_of(x)
    if dtype == "bool":
        return np.where(array, np.float32(0), np.float32(-np.inf))
    if array.dtype.kind in "iu" and dtype not in FORMATS:
        raise TypeError(f"{name}: expected booleans or floating-point numbers, got {dtype}")
    return as_values(x, as_format("fp32"), name)


def as_codes(x, format):
    """Codes of the format as unsigned integers: from integers, or from an array whose element type is that format."""
    x, name = _array_of(x)
    if x.dtype.kind in "iu" and name not in FORMATS:
        bits = as_format(format).bits
        if 8 * x.dtype.itemsize == max(8, 2 ** (bits - 1).bit_length()):  # signed where torch has no unsigned ones
            x = np.asarray(x, order="C").view(_CODES[x.dtype.itemsize])
        if x.size and bits < 8 * x.dtype.itemsize and not 0 <= int(x.min()) <= int(x.max()) < 2**bits:
            wrong = next(int(code) for code in x.flat if not 0 <= code < 2**bits)
            raise ValueError(f"codes of {format} are integers from 0 to {2**bits - 1}, got {wrong}")
        if x.dtype.itemsize == 8:  # as NumPy makes of a list
            x = x.astype(np.uint32)
    elif format_of_dtype(name) != str(format):
        raise TypeError(f"expected codes of {format}, which are integers, got values of {name}: "
                        f"ampscope.encode(x, '{format}') gives their codes")
    return np.asarray(x, order="C").view(_CODES[x.dtype.itemsize])


def typed(codes, format, dtype):
    """Codes as an array of that element type, of NumPy, ml_dtypes or torch. Raises TypeError for an element type that
    is neither this format nor integers of the codes' size."""
    torch = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(dtype, torch.dtype)
    try:
        dtype = dtype if of_torch else np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype: expected a dtype of torch, NumPy or ml_dtypes, got {dtype!r}") from None
    name = str(dtype).removeprefix("torch.") if of_torch else dtype.name
    if name == _PAIRS:
        raise TypeError(f"dtype: {name} has two codes in a byte: encode without a dtype, then join "
                        "codes[..., ::2] | codes[..., 1::2] << 4")
    integers = f"{8 * codes.dtype.itemsize}" == name.removeprefix("u").removeprefix("int")
    if format_of_dtype(name) != str(format) and not integers:
        raise TypeError(f"dtype: {name} does not hold codes of {format}; they are {codes.dtype}")
    if of_torch:
        return torch.from_numpy(codes.view({1: np.uint8, 2: np.int16, 4: np.int32}[codes.dtype.itemsize])).view(dtype)
    return codes.view(dtype)
