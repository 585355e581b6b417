"""From arrays of NumPy, ml_dtypes and torch to what the kernels take, and back."""
import sys

import numpy as np

from . import _ampscope

#: Formats of element types that NumPy itself does not know, by their names in ml_dtypes and torch.
FORMATS = {torch: format for _, format, numpy, torch, bits in _ampscope.dtypes if format and not numpy and bits >= 8}
FORMATS |= {"float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1"}  # ml_dtypes: a byte a number
_NUMPY_FORMATS = {torch: format for _, format, numpy, torch, _ in _ampscope.dtypes if format and numpy}
_CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def format_of_dtype(name):
    """The format of an element type by its name in NumPy, ml_dtypes or torch; "" for those that are none."""
    return (_NUMPY_FORMATS | FORMATS).get(name, "")


def as_format(format):
    """A Format from itself or its name."""
    return format if isinstance(format, _ampscope.Format) else _ampscope.format(format)


def _is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def array_of_torch(x):
    """An array of NumPy, and the name of its element type; of types that NumPy lacks the codes."""
    import torch
    name, x = str(x.dtype).removeprefix("torch."), x.detach().cpu()
    if name not in FORMATS:
        return x.numpy(), name
    return x.contiguous().view({1: torch.uint8, 2: torch.int16}[x.element_size()]).numpy(), name


def as_floats(x):
    """The values as FP32 or FP64, in C order: without a copy where x is so already. Integers become FP64; those beyond
    2^53 are refused, since they would be rounded before they are asked about."""
    if _is_torch(x):
        x, name = array_of_torch(x)
    else:
        x = np.asarray(x)
        name = x.dtype.name
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


def as_codes(x):
    """Codes as unsigned integers; of typed arrays (bfloat16 ...) those they hold."""
    if _is_torch(x):
        x, _ = array_of_torch(x)
    x = np.asarray(x, order="C")
    if x.dtype.itemsize not in _CODES or x.dtype.kind == "f" and x.dtype.itemsize == 8:
        raise TypeError(f"expected codes of 8, 16 or 32 bits, got {x.dtype}")
    return x.view(_CODES[x.dtype.itemsize])


def typed(codes, dtype):
    """Codes as an array of that element type, of NumPy, ml_dtypes or torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return torch.from_numpy(codes.view({1: np.uint8, 2: np.int16, 4: np.int32}[codes.dtype.itemsize])).view(dtype)
    return codes.view(dtype)
