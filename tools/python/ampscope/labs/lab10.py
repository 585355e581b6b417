"""Checks of lab 10: fused attention. Oracles: the softmax of all scores in FP64, and the bits of ampscope.attention."""
import math

import numpy as np

from .._attention import attention
from .._conversions import quantize
from ._exercises import Wrong, call, entry, exercise, hints, number

TILES = ("fused:16x64", "fused:1x64", "fused:64x16", "fused:64x128")


def operands():
    """q, k and v of two heads: 64 queries, 64 keys, 16 channels."""
    rng = np.random.default_rng(10)
    return [rng.standard_normal((1, 2, 64, 16)).astype(np.float32) for _ in range(3)]


def sums(options, most=2):
    """O before it is divided, as fused attention with these options has it, and exactly, for 64 heads of 8 queries and
    32 channels. Of 16 keys the first `most` share the largest score of every query, the others have small weights;
    values are negative numbers of BF16, from -4 to -2."""
    rng = np.random.default_rng(1)
    q, k = np.zeros((1, 64, 8, 32)), np.zeros((1, 64, 16, 32))
    q[..., 0] = np.float32(3.5 + 3.5 * rng.random((64, 8)))
    k[..., 0] = np.where(np.arange(16) < most, 1, -1.5 - np.arange(16) / 32)
    v = -quantize(2 + 2 * rng.random((1, 64, 16, 32)), "bf16").astype(float)
    out, lse = attention(q, k, v, options, scale=1, logsumexp=True)
    maximum = q[..., :1] * (2 if "max=shifted" in options and most > 1 else 1)
    o = out * np.exp(lse[..., None] - maximum)
    exact = np.exp(q[..., :1] * k[:, :, None, :, 0] - maximum) @ v
    return (quantize(o, "bf16").astype(float) if "o=bf16" in options else o), exact


def mean_error(options, most=2):
    """That of sums(), in last places of BF16 (exercise 10.3)."""
    o, exact = sums(options, most)
    return float(np.mean((o - exact) / 2.0 ** (np.frexp(exact)[1] - 8)))


def weight_error(options, rows=4096):
    """Exponents of two of (rows, error) for 16 to `rows` rows: the error is the norm of what rounding puts into the
    gradient of the queries' weights. Two keys share each row's maximum, as in sums(). The error of D = rowsum(dO O) of
    a row goes, as a factor of its x, into the weights' gradient, the sum over all rows; the gradient dO and the layer's
    inputs x are 1 in the mean, with a deviation of 1."""
    rng = np.random.default_rng(2)
    q, k = np.zeros((1, rows // 8, 8, 32)), np.zeros((1, rows // 8, 16, 32))
    q[..., 0] = np.float32(3.5 + 3.5 * rng.random((rows // 8, 8)))
    k[..., 0] = np.where(np.arange(16) < 2, 1, -1.5 - np.arange(16) / 32)
    v = -quantize(2 + 2 * rng.random((1, rows // 8, 16, 32)), "bf16").astype(float)
    out = attention(q, k, v, options, scale=1)
    p = np.exp(q[..., :1] * (k[:, :, None, :, 0] - 1))
    exact = p @ v / p.sum(-1, keepdims=True)
    grad, x = 1 + rng.standard_normal(out.shape), 1 + rng.standard_normal((rows, 16))
    summed = np.cumsum(((out - exact) * grad).sum(-1).reshape(-1, 1) * x, 0)
    return [(e, float(np.log2(np.linalg.norm(summed[2**e - 1])))) for e in range(4, int(math.log2(rows)) + 1)]


@exercise("10.1")
def tile_by_tile(add_tile):
    """the maximum of later tiles is not known, so what was summed is scaled down when a larger one comes; the result is
    the softmax of all scores, up to rounding."""
    rng = np.random.default_rng(11)
    for what, scale in (("small scores", 1), ("scores up to hundreds, where exp overflows without the maximum", 300)):
        scores, v = rng.standard_normal(24) * scale, rng.standard_normal((24, 4))
        m, l, o = -math.inf, 0.0, np.zeros(4)
        for begin in range(0, 24, 6):
            got = call(add_tile, m, l, o, scores[begin:begin + 6], v[begin:begin + 6])
            if not isinstance(got, (tuple, list)) or len(got) != 3:
                raise Wrong("return m, l and o after the tile")
            m, l, o = number("m", got[0]), number("l", got[1]), np.asarray(got[2], float)
            seen = scores[:begin + 6]
            most = float(seen.max())
            p = np.exp(seen - most)
            total = float(p.sum())
            where = f"{what}, after {begin + 6} keys"
            if m != most:
                raise Wrong(f"{where}: m is {m!r}, not {most!r}, the largest score so far")
            if not math.isclose(l, total, rel_tol=1e-9):
                raise Wrong(f"{where}: l is {l!r}, not {total!r}: the sum so far belongs to the former maximum, and "
                            "has to be multiplied by exp(former m - new m)")
            if o.shape != (4,) or not np.allclose(o, p @ v[:begin + 6], rtol=1e-9, atol=1e-12):
                raise Wrong(f"{where}: o is not the sum of P times v, with P = exp(score - m): it needs the same "
                            "factor as l")


@exercise("10.2")
def tiles(same):
    """a row knows nothing of other rows, but each tile of keys begins sums of its own: the bits depend on how the keys
    are cut, and on that alone."""
    base = attention(*operands(), "fused:64x64")
    for name in TILES:
        got = entry(same, name, f"there is no answer for {name!r} yet: True or False")
        if got not in (True, False):
            raise Wrong(f"{name}: expected True or False, got {got!r}")
        right = attention(*operands(), name).tobytes() == base.tobytes()
        if bool(got) != right:
            raise Wrong(f"{name} {'gives' if right else 'does not give'} the bits of fused:64x64: " + (
                "no sum of a row, and none of its channels, is added in another order" if right else
                "each tile of keys has sums of its own, and joining them rounds"))


@exercise("10.3")
def last_places(error):
    """errors in last places can be averaged over numbers of all sizes; what does not go away in the mean is a bias."""
    exact = np.array([-5.0, -4.01, -7.99, 3.0, 1.0, 2.0**-20, -0.3, 255.9])
    place = np.array([2.0**-5, 2.0**-5, 2.0**-5, 2.0**-6, 2.0**-7, 2.0**-27, 2.0**-9, 1.0])
    wanted = np.array([0.5, -0.25, 0.5, -0.5, 0.125, 0.25, 0.0, 0.375])
    got = np.asarray(call(error, exact + wanted * place, exact), float)
    if got.shape != exact.shape:
        raise Wrong(f"expected an error for each of {exact.size} elements, got shape {got.shape}")
    for x, g, w in zip(exact.tolist(), got.tolist(), wanted.tolist()):
        if not math.isclose(g, w, abs_tol=1e-6):
            raise Wrong(f"for an exact sum of {x!r} the error is {w!r} last places, not {g!r}: " + (
                "its sign is that of o - exact" if math.isclose(g, -w, abs_tol=1e-6) else
                "BF16 has 8 significant bits, so its last place is the power of two of the number's binade times "
                "2^-7"))


@exercise("10.4")
def moved_maximum(moved):
    """softmax is the same whatever is subtracted from all scores. With a moved maximum no P is 1, products are no
    longer numbers of BF16, and ties become as rare as they should be."""
    for scores, wanted, why in (
            ([1.0, 3.0, 2.0], 3.0, "one score alone has the maximum: nothing is to be moved"),
            ([3.0, 1.0, 3.0], 6.0, "a positive maximum that two scores share is multiplied by 2"),
            ([-2.0, -2.0, -5.0], 0.0, "a negative maximum times 2 would be below the scores, and P above 1: 0 takes "
                                      "its place"),
            ([-2.0, -3.0], -2.0, "one score alone has the maximum: nothing is to be moved"),
            ([2.5, 2.5, 2.5, 2.5], 5.0, "a positive maximum that several scores share is multiplied by 2"),
            ([0.0, 0.0, -1.0], 0.0, "0 stays: neither rule moves it")):
        got = number("the maximum", call(moved, np.array(scores)))
        if got != wanted:
            raise Wrong(f"for the scores {scores} the maximum is {got!r}, not {wanted!r}: {why}")


hints.update({
    "10.1": (
        "Begin with the new maximum: the larger one of m and the tile's. Everything that was summed so far was divided "
        "by exp(m); it should have been divided by exp of the new one.",
        "Multiply l and o by the same factor, the exponential of a difference of maxima that is never above 0, then "
        "add the tile's own sum of P, and P @ v. The first tile needs no case of its own: np.exp(-np.inf) is 0."),
    "10.2": (
        "Which additions does a row make for one channel, and in which order? Does it matter who computes the rows "
        "beside it?",
        "ampscope.attention(q, k, v, name) gives the result; compare .tobytes(), or np.array_equal, with that of "
        "fused:64x64. A tile larger than what there is ends with the last key."),
    "10.3": (
        "First the binade: the power of two at or below the magnitude of the exact sum. np.floor(np.log2(...)) is its "
        "exponent.",
        "A number between 4 and 8 has the last place 4 / 128. Divide o - exact by it."),
    "10.4": (
        "Count how many scores are equal to the maximum; with one alone it stays as it is.",
        "Twice a positive maximum lies above all scores, twice a negative one below: that is why 0 is taken instead."),
})
