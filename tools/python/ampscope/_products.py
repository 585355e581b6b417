"""Sums and products of matrix hardware, and tensors whose blocks share scales."""
from __future__ import annotations

import math
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._arrays import (FormatLike, Tensor, as_format, as_singles, as_values, differentiable, integer, like,
                      without_gradient)
from ._conversions import add, mul, quantize
from ._tables import Table


def _operands(a, b, accumulator, a_format, b_format):
    """What both sums need: operands that are values of their formats, and these."""
    if not isinstance(accumulator, str):
        raise TypeError(f"accumulator: expected a name of ampscope.accumulators(), got {accumulator!r}")
    a_format = as_format(a_format)
    b_format = a_format if b_format is None else as_format(b_format)
    return as_values(a, a_format, "a"), as_values(b, b_format, "b"), a_format, b_format


def dot(a: Any, b: Any, accumulator: str = "fp32", *, a_format: FormatLike = "fp32",
        b_format: FormatLike | None = None, c: float = 0.0) -> float:
    """a . b + c as that accumulator adds up: a row of ampscope.accumulators(), or a format for a chain of fused
    multiply-adds in it. Operands are values of their formats, which decide how hardware reads them. Returns a float,
    which has no gradient: matmul() of two vectors has one. Raises ValueError for other values, and for formats that the
    accumulator does not multiply, TypeError for a tensor that requires a gradient."""
    without_gradient(a=a, b=b, c=c)
    a, b, a_format, b_format = _operands(a, b, accumulator, a_format, b_format)
    return _ampscope.dot(a.ravel(), b.ravel(), a_format, b_format, accumulator, float(c))


@overload
def matmul(a: Tensor, b: Any, accumulator: str = ..., *, a_format: FormatLike = ..., b_format: FormatLike | None = ...,
           alpha: float = ..., bias: Any = ..., out_format: FormatLike = ..., epilogue: str = ...,
           saturates: bool = ..., threads: int = ...) -> Tensor: ...


@overload
def matmul(a: npt.ArrayLike, b: npt.ArrayLike, accumulator: str = ..., *, a_format: FormatLike = ...,
           b_format: FormatLike | None = ..., alpha: float = ..., bias: Any = ..., out_format: FormatLike = ...,
           epilogue: str = ..., saturates: bool = ..., threads: int = ...) -> npt.NDArray[np.float32]: ...


def matmul(a, b, accumulator="fp32", *, a_format="fp32", b_format=None, alpha=1.0, bias=None, out_format="fp32",
           epilogue="each", saturates=False, threads=0):
    """The matrix product, batched as numpy.matmul: each element is dot() of a row of a and a column of b, bit for bit,
    but a NaN is canonical. Tensors of torch give a tensor of torch. Its gradients are those of torch's product of the
    same values in FP32: what the accumulator rounds counts as the identity, and they are not rounded to any format. The
    result does not depend on threads (0: all cores). What a library's kernel does to the sums before it stores them:

    alpha, bias         the result is alpha * sum + bias, which has a number for each column (without one, +0 is added)
    out_format          the format of the result; FP8 saturates if `saturates`
    epilogue            where it is rounded: "each", the product and the sum to FP32, then to out_format; "fused", one
                        fused multiply-add in FP32, then to out_format; "once", to out_format alone
    Raises ValueError as dot() does, and for shapes that do not
    match."""
    x, y, a_format, b_format = _operands(a, b, accumulator, a_format, b_format)
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul: operands have at least one dimension")
    rows, columns = x.ndim > 1, y.ndim > 1
    x, y = x if rows else x[None], y if columns else y[:, None]
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"matmul: {x.shape[-1]} columns of a, {y.shape[-2]} rows of b")
    try:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: stacks of {x.shape[:-2]} and {y.shape[:-2]} matrices do not match") from None
    shape = (*batch, x.shape[-2], y.shape[-1])
    if y.ndim == 2:  # one matrix below the other
        x, y = x.reshape(1, math.prod(x.shape[:-1]), x.shape[-1]), y[None]
    else:
        x, y = (np.broadcast_to(z, batch + z.shape[-2:]).reshape(math.prod(batch), *z.shape[-2:]) for z in (x, y))
    without_gradient(alpha=alpha, bias=bias)
    out = _ampscope.matmul(np.ascontiguousarray(x), np.ascontiguousarray(y), a_format, b_format, accumulator,
                           float(alpha), np.float32([]) if bias is None else as_singles(bias).ravel(),
                           as_format(out_format), epilogue, bool(saturates), integer("threads", threads)).reshape(shape)
    out = out if columns else out[..., 0]
    return differentiable(out if rows else out[..., 0, :] if columns else out[..., 0],
                          lambda a, b: (a @ b) * float(alpha), a, b)


def scaled_mm(a: Any, b: Any, scale_a: Any = 1.0, scale_b: Any = 1.0, *, a_format: FormatLike = "e4m3",
              b_format: FormatLike | None = None, out_format: FormatLike = "bf16", use_fast_accum: bool = False,
              hardware: str = "hopper", split: str = "", bias: Any = None, transposed: bool = False,
              threads: int = 0) -> Any:
    """torch._scaled_mm of two matrices.

    A scale a tensor    of one number in any shape: as an H100 ("hopper") or an RTX 4060 ("ada") computes it, matmul()
                        with sums and epilogue of that call, as mmaemu 0.1.0 states them (PyTorch 2.7.1, cuBLASLt
                        12.8.3.14). How many parts the library adds K in is its own decision, by shape: `split` is the
                        end of an accumulator's name ("split4", "split4cyclic", "split4pairs"). No bias, as no source
                        says where cuBLASLt rounds it
    Scales of rows      scale_a of (m, 1) and scale_b of (1, n), on Hopper, as PyTorch's own kernel states it
                        (RowwiseScaledMM.cu, commit 01386a0): sums that are never split, times scale_a, times scale_b,
                        plus bias, a number for each column (+0 without), each rounded to FP32; then to `out_format`,
                        fp32 (without a bias), bf16 or fp16. `transposed`: the kernel computes the transposed product,
                        also its own decision, by shape, and multiplies by scale_b first
    Raises ValueError as matmul() does, and for what the call does not have."""
    a_format = as_format(a_format)
    b_format = a_format if b_format is None else as_format(b_format)
    if hardware not in ("hopper", "ada"):
        raise ValueError(f"hardware: expected hopper or ada, got {hardware!r}")
    if split and not split.startswith("split"):
        raise ValueError(f"split: expected the end of an accumulator's name, such as 'split4', got {split!r}")
    accumulator, epilogue = _ampscope.library_call(f"torch-scaled-mm-{hardware}", a_format, b_format,
                                                   bool(use_fast_accum), split)
    without_gradient(scale_a=scale_a, scale_b=scale_b)
    if any(math.prod(np.shape(scale)) != 1 for scale in (scale_a, scale_b)):
        if hardware != "hopper" or split:
            raise ValueError("scales of rows are known of Hopper's kernel alone, which has no split-K")
        return _scaled_by_rows(a, b, scale_a, scale_b, bias, transposed, accumulator, a_format, b_format,
                               as_format(out_format), threads)
    if bias is not None or transposed:
        raise ValueError(f"{'transposed' if bias is None else 'bias'} goes with scales of rows, (m, 1) and (1, n): "
                         "where cuBLASLt rounds with a scale a tensor, no source says")
    alpha = np.multiply(*(np.float32(np.asarray(scale).reshape(())) for scale in (scale_a, scale_b)))
    return matmul(a, b, accumulator, a_format=a_format, b_format=b_format, alpha=float(alpha), out_format=out_format,
                  epilogue=epilogue, saturates=True, threads=threads)


def _scaled_by_rows(a, b, scale_a, scale_b, bias, transposed, accumulator, a_format, b_format, out_format, threads):
    """scaled_mm() with a scale for each row of a and each column of b."""
    sums = matmul(a, b, accumulator, a_format=a_format, b_format=b_format, threads=threads)
    shapes = tuple(map(tuple, (np.shape(scale_a), np.shape(scale_b))))
    if sums.ndim != 2 or shapes != ((sums.shape[0], 1), (1, sums.shape[1])):
        raise ValueError(f"scales of rows: expected (m, 1) and (1, n) of matrices, got {shapes[0]} and {shapes[1]} for "
                         f"a result of {tuple(sums.shape)}")
    if out_format.name not in ("bf16", "fp16") + (("fp32",) if bias is None else ()):
        raise ValueError("out_format: with scales of rows torch stores bf16, fp16 or, without a bias, fp32, not "
                         f"{out_format.name}")
    if bias is not None and tuple(np.shape(bias)) != (sums.shape[1],):
        raise ValueError(f"bias: expected a number for each of {sums.shape[1]} columns, got {tuple(np.shape(bias))}")
    first, second = (scale_b, scale_a) if transposed else (scale_a, scale_b)
    scaled = mul(mul(sums, first, format="fp32", threads=threads), second, format="fp32", threads=threads)
    total = add(scaled, np.float32(0) if bias is None else bias, format="fp32", threads=threads)
    return quantize(total, out_format, threads=threads)


class Blocks(NamedTuple("Blocks", [("values", Any), ("scales", Any)])):
    """A tensor in blocks: values of the element format, and the scale by which those of each block are multiplied.
    Where blocks have zero points ("int8-affine-row"), zero_points has one a block beside its scale, and the codes to
    store are values + zero_points of their block; otherwise it is None."""
    zero_points: Any = None

    def _replace(self, **fields: Any) -> "Blocks":
        zero_points = fields.pop("zero_points", self.zero_points)
        replaced = super()._replace(**fields)
        replaced.zero_points = zero_points
        return replaced


def _matrix(x, axis):
    """x as a matrix of C order whose columns lie along the axis, and the shape that it has with this axis last."""
    if not -max(x.ndim, 1) <= axis < max(x.ndim, 1):
        raise ValueError(f"axis: {axis} is none of an array of {x.ndim} dimensions")
    turned = np.moveaxis(x, axis, -1) if x.ndim else x[None]
    return np.ascontiguousarray(turned.reshape(math.prod(turned.shape[:-1]), turned.shape[-1])), turned.shape


def block(element: FormatLike, *, shape: tuple[int, int] = (1, 32), rule: str = "amax",
          scale: FormatLike | None = None, upper: str | None = None, scale_rounding: str | None = None) -> str:
    """The name of a block format of one's own, for block_quantize() and `amp-histogram --recipe`; a precision of
    amp-train takes the same as options: "general,scaling-format=e2m1,scaling-scale=e4m3".

    element             the format of the numbers
    shape               the block: across and along the axis that products sum over; 0 for the whole extent
    rule                how scales follow from the largest magnitude of a block: "amax" or that of a library, which says
                        the rest itself; block("e4m3", rule="mx-floor") is "mxfp8", and so is every named block format
    scale               by the rule amax, the format of the scales (E8M0 unless given): the block's largest magnitude
                        over the element's largest number, not 0
    upper               by the rule amax, a second level (none unless given): an FP32 scale of the "tensor", or of each
                        "line" of blocks, that takes the largest block's scale to the scale format's largest number
    scale_rounding      by the rule amax, how scales are rounded: "up" unless given, so that no number saturates
    block("e2m1", scale="e4m3", shape=(1, 16), upper="tensor", scale_rounding="nearest_even") is like NVFP4, and
    block("e4m3") like MXFP8 with scales rounded up, but for where their libraries round.
    Raises ValueError for unknown names, and for what does not go together."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ValueError(f"shape: expected a block such as (1, 16), got {shape!r}")
    across, along = shape
    options = {"format": as_format(element).name, "rule": rule,
               "block": f"{integer('shape', across)}x{integer('shape', along)}",
               "scale": None if scale is None else as_format(scale).name, "upper": upper,
               "scale-rounding": scale_rounding}
    name = ",".join(["general", *(f"{key}={value}" for key, value in options.items() if value is not None)])
    _ampscope.block_quantize(name, np.zeros((1, 1), np.float32), 0)
    return name


def block_quantize(x: Any, scaling: str, *, axis: int = -1, seed: int = 0) -> Blocks:
    """x in blocks that share a scale, as (values, scales): x is about values * scale of the block. `scaling` is a row
    of ampscope.recipes(): a block format ("mxfp8"), or the operand of a recipe, an input unless it says otherwise
    ("te-block,weight"); or what block() makes. Blocks lie along the axis, which products sum over; all other axes
    together are the rows.

    values              FP32 of the shape of x that are values of the element format; what exceeds it saturates.
                        Those of blocks with zero points ("int8-affine-row") are codes less the zero point; the
                        result has these as .zero_points, laid out like scales
    scales              FP32, one a block. Where blocks are one row high, the shape of x with the number of blocks in
                        place of the axis; else a matrix (blocks below each other, beside each other), along the axis
                        last, but as x itself lies if x is a matrix. NVFP4: E4M3's scale divided by the tensor's
    seed                of stochastic rounding, if the recipe rounds so
    Tensors of torch give tensors of torch. The gradient of x is that of the values divided by their scale, so that it
    passes unchanged through both block_quantize() and block_dequantize(); scales count as constants, and 0, that of a
    block of zeros, as 1. Raises ValueError for unknown names, and for recipes whose scales do not follow from the
    tensor alone."""
    if not 0 <= integer("seed", seed) < 1 << 64:
        raise ValueError(f"seed: expected a whole number from 0 to 2^64 - 1, got {seed}")
    values = as_singles(x)
    matrix, shape = _matrix(values, integer("axis", axis))
    codes, scales, zeros = _ampscope.block_quantize(_name(scaling), matrix, integer("seed", seed))

    def laid_out(of_blocks):
        if len(of_blocks) == len(matrix):
            of_blocks = of_blocks.reshape(*shape[:-1], of_blocks.shape[-1])
        return like(_turned(of_blocks, axis, values), x)

    scales = laid_out(scales)
    blocks = Blocks(differentiable(_turned(codes.reshape(shape), axis, values),
                                   lambda x: x / _factors(x, scales, scaling, axis), x), scales)
    blocks.zero_points = None if zeros is None else laid_out(zeros)
    return blocks


def block_matmul(a: Blocks, b: Blocks, accumulator: str = "fp32", *, a_format: FormatLike,
                 b_format: FormatLike | None = None, scale_format: FormatLike, block: int, threads: int = 0) -> Any:
    """The product of two matrices in blocks along the axis that it sums over, as block_quantize(a, ..., axis=1) and
    block_quantize(b, ..., axis=0) make them. An accumulator that takes scales within its sums, as Blackwell's
    "blackwell-fp8" and "blackwell-mxf4nvf4" do, does so; any other adds up each block, and an FP32 total takes
    these sums times both scales by fused multiply-adds. The result is FP32, every NaN canonical, and has no gradient.

    a, b                values of a_format and b_format (the same unless given), m x k and k x n; scales that are values
                        of scale_format ("e8m0", "e4m3", "fp32"), m x K and K x n
    block               how many numbers share a scale: 32 in MX, 16 in NVFP4; the last of the K blocks may be shorter
    NVFP4's second scale is none of these: multiply it onto the result. Raises ValueError for other values and shapes,
    and for formats that the accumulator does not multiply."""
    x, y, a_format, b_format = _operands(a.values, b.values, accumulator, a_format, b_format)
    scale_format = as_format(scale_format)
    u, v = (as_values(z.scales, scale_format, f"scales of {name}") for z, name in ((a, "a"), (b, "b")))
    if any(z.ndim != 2 for z in (x, y, u, v)) or x.shape[1] != y.shape[0]:
        raise ValueError(f"block_matmul: expected matrices that match, got {x.shape} and {y.shape}")
    blocks = -(-x.shape[1] // block) if integer("block", block) > 0 else 0
    if block < 1 or u.shape != (x.shape[0], blocks) or v.shape != (blocks, y.shape[1]):
        raise ValueError(f"block_matmul: scales of {u.shape} and {v.shape} are not those of blocks of {block} in "
                         f"{x.shape} times {y.shape}")
    product = _ampscope.block_matmul(*(np.ascontiguousarray(z) for z in (x, y, u, v.T)), a_format, b_format,
                                     scale_format, block, accumulator, integer("threads", threads))
    return like(product, a.values, b.values)


@overload
def block_dequantize(values: Tensor, scales: Any, scaling: str, *, axis: int = ...) -> Tensor: ...


@overload
def block_dequantize(values: npt.ArrayLike, scales: npt.ArrayLike, scaling: str, *,
                     axis: int = ...) -> npt.NDArray[np.float32]: ...


def block_dequantize(values, scales, scaling, *, axis=-1):
    """values * scale of their block, in FP32: the way back from block_quantize() with the same scaling and axis. The
    gradient of the values is that of the product. Raises TypeError for scales that require a gradient."""
    without_gradient(scales=scales)
    x, scale = as_singles(values), as_singles(scales)
    matrix, shape = _matrix(x, integer("axis", axis))
    if scale.ndim > 1 and scale.ndim == x.ndim:
        scale = np.moveaxis(scale, axis, -1)
    out = _ampscope.block_dequantize(_name(scaling), matrix, np.ascontiguousarray(scale))
    return differentiable(_turned(out.reshape(shape), axis, x),
                          lambda values: values * _factors(values, scales, scaling, axis), values)


def _factors(x, scales, scaling, axis):
    """By how much gradients of each element of a tensor differ from those of its block's values."""
    factors = block_dequantize(x.new_ones(x.shape), scales, scaling, axis=axis)
    return factors.where(factors != 0, 1)


def _turned(result, axis, x):
    """A result of _matrix() with the axes of x."""
    if x.ndim == 0:
        return result.reshape(())
    return np.ascontiguousarray(np.moveaxis(result, -1, axis)) if result.ndim == x.ndim else result


def _name(scaling):
    if not isinstance(scaling, str):
        raise TypeError(f"scaling: expected a name of ampscope.recipes(), got {scaling!r}")
    return scaling


def accumulators() -> Table:
    """The accumulators of dot() and matmul(): the formats that each multiplies, how its parameters are known, and what
    it does. NAME-promoteN adds sums of N products in FP32."""
    return Table(dict(zip(("name", "operands", "evidence", "meaning"), row)) for row in _ampscope.accumulators())


def recipes() -> Table:
    """What block_quantize() takes: block formats and scaling recipes, with the element format and the block (rows x
    columns) of each operand of a linear layer, and their source."""
    return Table(dict(zip(("name", "input", "weight", "gradient", "source"), row)) for row in _ampscope.recipes())
