"""Checks of lab 7: FP8. Oracles: ml_dtypes' rule for E4M3 by its definition, exact arithmetic, and recorded
hardware."""
import math

import numpy as np

from .._conversions import decode, quantize
from ._exercises import Wrong, call, entry, exercise, hints, number

_E4M3 = np.unique(decode(np.uint8([c for c in range(256) if c & 0x7F != 0x7F]), "e4m3")).astype(float)


def _lost(x, scale, format="e4m3"):
    """What becomes of x if it is multiplied by the scale, cast, and divided by the scale."""
    y = quantize(x * scale, format, overflow="saturate") / scale
    some = x != 0
    return {"become zero": int((y[some] == 0).sum()), "of": int(some.sum()),
            "relative error": float(np.linalg.norm(y - x) / np.linalg.norm(x))}


def what_casts_lose(gradients):
    """Rows of a table: each way to scale and cast, and what is lost of these gradients."""
    blocks = gradients[: gradients.size // 32 * 32].reshape(-1, 32)
    amax = np.maximum(np.abs(blocks).max(1, keepdims=True), 1e-30)
    largest, one = np.abs(gradients).max(), np.float32(1)
    up = 2.0 ** np.floor(np.log2(np.float32(448) / amax))  # so that nothing is beyond 448
    down = 2.0 ** (8 - np.floor(np.log2(amax)))  # by the rule of the specification
    return [{"cast": "E4M3, no scale", **_lost(gradients, one)},
            {"cast": "E5M2, no scale", **_lost(gradients, one, "e5m2")},
            {"cast": "E4M3, one scale", **_lost(gradients, np.float32(448) / largest)},
            {"cast": "E5M2, one scale", **_lost(gradients, np.float32(57344) / largest, "e5m2")},
            {"cast": "E4M3, blocks of 32", **_lost(blocks, np.float32(448) / amax)},
            {"cast": "E4M3, MX rounded up", **_lost(blocks, up.astype(np.float32))},
            {"cast": "E4M3, MX by floor", **_lost(blocks, down.astype(np.float32))}]


@exercise("7.1")
def policies(values):
    """E4M3 has no infinity: beyond 464, casts of ml_dtypes' and older PyTorch's kind give NaN, those of training
    recipes 448."""
    wanted = {(464.0, "nan"): 448.0, (465.0, "nan"): math.nan, (1e6, "nan"): math.nan, (465.0, "saturate"): 448.0,
              (-1e6, "saturate"): -448.0}
    for (x, policy), value in wanted.items():
        got = number(f"{x:g}, {policy}", entry(values, (x, policy), f"there is no value for {x:g} with {policy!r} yet"))
        if got != value and not (math.isnan(got) and math.isnan(value)):
            raise Wrong(f"{x:g} with {policy!r} is not {got!r}: " + (
                "464 is the middle between 448 and what would be 480; 448 is even, so that it is still in range"
                if x == 464 else "there is no infinity in E4M3" if math.isinf(got) else
                "what saturates keeps its sign" if got == -value else
                "it is beyond the largest number, 448, by more than half a step"))


@exercise("7.2")
def tensor_scale(scale):
    """the largest element lands on 448, whatever the tensor is; one outlier decides for all."""
    rng = np.random.default_rng(7)
    for what, x in (("random numbers", rng.standard_normal(100)), ("small ones", rng.standard_normal(100) * 1e-6),
                    ("with an outlier", np.append(rng.standard_normal(99), 1e4)),
                    ("negative ones", -rng.random(10) - 1)):
        x = np.float32(x)
        got = number("scale", call(scale, x))
        wanted = float(np.float32(448) / np.abs(x).max())
        if not math.isclose(got, wanted, rel_tol=1e-6):
            raise Wrong(f"{what}: {got!r}, not {wanted!r}: elements are multiplied by it before the cast, and then "
                        "the largest magnitude has to be 448")
    if number("scale", call(scale, np.zeros(4, np.float32))) != 1:
        raise Wrong("a tensor of zeros: its scale is 1, not 448 / 0")


@exercise("7.3")
def mx_scales(floor, ceil):
    """the floor rule of the OCP specification clips every block whose largest element is above 1.75 times its power of
    two; rounding up clips none."""
    rng = np.random.default_rng(8)
    blocks = np.float32(rng.standard_normal((500, 32)) * 2.0 ** rng.integers(-20, 20, (500, 1)))
    blocks[0] = 448
    blocks[1] = np.nextafter(np.float32(448), np.float32(1000))
    for block in blocks:
        amax = float(np.abs(block).max())
        got = call(floor, block)
        if got != math.floor(math.log2(amax)) - 8:
            raise Wrong(f"floor: a block whose largest magnitude is {amax:.9g} gets 2^{got}, not "
                        f"2^{math.floor(math.log2(amax)) - 8}: the binade of the largest magnitude has to land on "
                        "E4M3's highest binade")
        got = call(ceil, block)
        wanted = next(k for k in range(-160, 160) if amax / 2.0**k <= 448)
        if got != wanted:
            raise Wrong(f"ceil: a block whose largest magnitude is {amax:.9g} gets 2^{got}, not 2^{wanted}: the "
                        "smallest power of two that brings it to 448 or less")


@exercise("7.4")
def error(cast_in_blocks):
    """an outlier costs its own block its small numbers, and no other."""
    rng = np.random.default_rng(9)
    x = np.float32(rng.standard_normal(512) * 0.01)
    x[100] = 3e4
    got = np.asarray(call(cast_in_blocks, x))
    if got.shape != x.shape:
        raise Wrong(f"expected an array of the shape of x, {x.shape}, got {got.shape}")
    for begin in range(0, x.size, 32):
        block = x[begin:begin + 32].astype(float)
        k = next(k for k in range(-160, 160) if np.abs(block).max() / 2.0**k <= 448)
        wanted = [_E4M3[_nearest(v / 2.0**k)] * 2.0**k for v in block]
        if not np.array_equal(got[begin:begin + 32].astype(float), wanted):
            at = begin + int(np.flatnonzero(got[begin:begin + 32].astype(float) != wanted)[0])
            raise Wrong(f"element {at}, {x[at]!r}, becomes {got[at]!r}, not {np.float32(wanted[at - begin])!r}: divide "
                        "by the scale of its block of 32 (rounded up), cast to E4M3, multiply again")


def _nearest(v):
    """Index of the nearest E4M3 number, ties to the even one."""
    i = int(np.clip(np.searchsorted(_E4M3, v), 1, _E4M3.size - 1))
    low, high = v - _E4M3[i - 1], _E4M3[i] - v
    if low != high:
        return i - 1 if low < high else i
    return i if (i - _E4M3.size // 2) % 2 == 0 else i - 1


@exercise("7.5")
def accumulator(lost_from, hopper_sum):
    """13 bits below the largest term and no more: that is why DeepSeek-V3 adds up every 128 products in FP32."""
    if number("lost_from", lost_from) != 14:
        raise Wrong(f"lost_from is not {lost_from!r}: try dot([2^-a], [2^-b], 'hopper-wgmma-fp8', c=1) for growing a + "
                    "b until the result is 1")
    if number("hopper_sum", hopper_sum) != 64:
        raise Wrong(f"hopper_sum is not {hopper_sum!r}: products of 2^-8 are lost once the sum is 2^14 times as large")


hints.update({
    "7.1": (
        "The largest number of E4M3 is 448, and the next one would be 480. Which numbers are nearer to 448?",
        "464 is the tie between them, and 448 is the even one. Beyond it a cast without saturation has only NaN to "
        "give; with it, the largest number of the same sign."),
    "7.2": (
        "Which factor carries the largest magnitude of x to E4M3's largest number?",
        "Take the magnitudes first: the largest element may be negative. And test for 0 before you divide."),
    "7.3": (
        "math.frexp(amax) gives a number between 0.5 and 1 and an exponent; the binade of amax has that exponent less "
        "1. It is safer than log2 near powers of two.",
        "E4M3's largest number, 448, is 1.75 times 2^8. `floor` is the difference of the two exponents; `ceil` is the "
        "same or one more, and a division by 2.0**k tells which."),
    "7.4": (
        "Go over x in steps of 32. Each block has an exponent, ceil(block), and its elements are divided by 2.0**that.",
        'ampscope.quantize(block / s, "e4m3") * s, with s a np.float32 so that the result stays FP32.'),
    "7.5": (
        "Let the program find it: for n = 1, 2, 3 ... add a product of 2^-n to c = 1, until the result is 1. Factors "
        "such as 2^-(n // 2) stay within the range of E5M2.",
        "For hopper_sum call ampscope.dot with x for both operands and no c."),
})
