"""Checks of lab 12: training in FP4. Oracles: the casts of ampscope.block_quantize, sums in FP64, Student's t."""
import math

import numpy as np

from .._conversions import quantize
from .._products import block_dequantize, block_quantize
from ._exercises import Wrong, call, entry, exercise, hints, number
from ._notebooks import data

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SIGNS = np.float32(np.random.default_rng(12).choice([-1, 1], 16))
HADAMARD = np.float64([[(-1) ** bin(i & j).count("1") for j in range(16)] for i in range(16)])
CASES = [(tensor, format) for tensor in ("gradient", "outliers") for format in ("nvfp4", "mxfp4")]
ALONG, SQUARE = "nvfp4-plain,weight", "te-nvfp4,weight"  # blocks of 1 x 16 and of 16 x 16
T_7 = 2.3646  # of 8 seeds: a part of 0.95 of Student's t with 7 degrees of freedom lies between -T_7 and T_7
FINAL_LOSSES = {  # of the eight seeds in reports/fp4, in the order of the seeds
    "fp32": [2.1660, 2.1272, 2.1440, 2.1560, 2.1233, 2.1595, 2.1464, 2.1775],
    "plain": [2.1952, 2.1564, 2.1775, 2.1888, 2.1444, 2.1762, 2.1879, 2.1922],
    "stochastic rounding": [2.1953, 2.1497, 2.1758, 2.1823, 2.1540, 2.1720, 2.1826, 2.1997],
    "Hadamard transform": [2.2053, 2.1544, 2.1768, 2.1717, 2.1382, 2.1792, 2.1880, 2.1969],
    "weights in 16 x 16": [2.1819, 2.1595, 2.1819, 2.1745, 2.1446, 2.1838, 2.1859, 2.2104],
    "4-over-6": [2.1904, 2.1607, 2.1711, 2.1758, 2.1419, 2.1779, 2.1794, 2.1983],
}


def cast(x, recipe="nvfp4-plain,gradient", axis=-1, seed=0):
    """x as a product in FP4 reads it: cast to blocks with scales, and multiplied by these again."""
    return block_dequantize(*block_quantize(x, recipe, axis=axis, seed=seed), recipe, axis=axis)


def stochastically(x, seed):
    """The same with NVFP4's elements rounded stochastically; other random numbers for each seed."""
    return cast(x, "nvfp4-plain,gradient,rounding=stochastic", seed=seed)


def tensors():
    """Three matrices: the gradient of a convolution's outputs, channel by channel, of a network that learned to read
    digits; normal numbers of which every sixteenth is 50 times as large; and normal numbers."""
    gradient = _gradients()["c3.out.grad"]
    normal = np.float32(np.random.default_rng(1).standard_normal((256, 256)))
    outliers = normal.copy()
    outliers[:, ::16] *= 50
    return {"gradient": np.ascontiguousarray(gradient.transpose(1, 0, 2, 3).reshape(64, -1)), "outliers": outliers,
            "normal": normal}


def _gradients():
    from .._runs import read_tensors
    return read_tensors(data("digits_cnn") / "step_000600.safetensors")[0]


def relative_error(y, x):
    """|y - x| / |x|, of all elements together."""
    return float(np.linalg.norm(np.float64(y) - x) / np.linalg.norm(np.float64(x)))


def back(y):
    """The inverse of the transform of exercise 12.3: the matrix is its own inverse, but for a factor."""
    return np.float32(y.reshape(-1, 16) @ HADAMARD / 4 * SIGNS).reshape(y.shape)


def _transformed(x):  # summed in FP64, so that FP32 has the same bits on every processor
    return np.float32(x.reshape(-1, 16) * SIGNS @ HADAMARD / 4).reshape(x.shape)


def descent(how, steps=400):
    """The error of 240 weights in each step of gradient descent with gradients in "fp32", or in NVFP4 rounded to the
    "nearest", or "stochastic". In each block of 16 one more weight has a gradient of 1 or -1, by chance; those of the
    others are 0.05 times what they are off."""
    rng = np.random.default_rng(3)
    weights, goal, errors = np.zeros((16, 16), np.float32), np.float32(rng.standard_normal((16, 16))), []
    for step in range(steps):
        gradient = np.float32(0.05) * (weights - goal)
        gradient[:, 0] = rng.choice([-1, 1], 16)
        if how != "fp32":
            gradient = stochastically(gradient, step) if how == "stochastic" else cast(gradient)
        weights = weights - np.float32(0.5) * gradient
        errors.append(relative_error(weights[:, 1:], goal[:, 1:]))
    return errors


def _recipe(format):
    return "nvfp4-plain,gradient" if format == "nvfp4" else format


def what_the_transform_does():
    """Rows of a table: of each tensor in each format the error of a cast, and the share of non-zero numbers that it
    makes zero, without the transform of exercise 12.3 and with it."""
    for tensor, format in CASES:
        row = {"tensor": tensor, "format": format}
        for what, x in (("plain", tensors()[tensor]), ("transformed", _transformed(tensors()[tensor]))):
            y = cast(x, _recipe(format))
            row |= {f"error, {what}": round(relative_error(y, x), 4),
                    f"zeros, {what}": f"{float((y[x != 0] == 0).mean()):.1%}"}
        yield row


def differences():
    """By how much plain NVFP4's final loss exceeds each other one, seed by seed."""
    return {name: np.array(FINAL_LOSSES["plain"]) - losses for name, losses in FINAL_LOSSES.items() if name != "plain"}


def what_seeds_say():
    """Rows of a table: of these differences the mean, how much one seed's deviates, and how often the first is
    larger."""
    return [{"plain NVFP4 less": name, "mean": round(float(x.mean()), 4), "deviation of a seed":
             round(float(x.std(ddof=1)), 4), "seeds in which plain is worse": f"{int((x > 0).sum())} of {x.size}"}
            for name, x in differences().items()]


def _interval(x):
    mean, half = float(x.mean()), T_7 * float(x.std(ddof=1)) / math.sqrt(x.size)
    return mean - half, mean + half


@exercise("12.1")
def rounded(stochastic):
    """up as often as the number is near: one result is further away than the nearest, but the mean of many is the
    number itself."""
    u = (np.arange(1000) + 0.5) / 1000
    for x in (0.3, 0.1, 1.2, 2.75, 3.25, 5.0, 4.5, -0.2, -1.9, -5.5, 0.0, 1.5, -3.0, 6.0):
        got = np.asarray(call(stochastic, np.full(1000, x), u), float)
        if got.shape != (1000,):
            raise Wrong(f"expected 1,000 results for 1,000 numbers, got shape {got.shape}")
        low, high = E2M1[E2M1 <= abs(x)][-1], E2M1[E2M1 >= abs(x)][0]
        odd = [y for y in got.tolist() if y not in (math.copysign(low, x), math.copysign(high, x))]
        if odd:
            raise Wrong(f"{x} became {odd[0]!r}: its neighbours in E2M1 are {math.copysign(low, x):g} and "
                        f"{math.copysign(high, x):g}" if low != high else
                        f"{x} became {odd[0]!r}: it is a number of E2M1, and stays as it is")
        if abs(got.mean() - x) > 0.002 * max(high - low, 1):
            raise Wrong(f"the mean of 1,000 roundings of {x} is {got.mean():.6g}: the probability of the upper one of "
                        "its neighbours has to be the part of the way to it that the number lies at")


@exercise("12.2")
def averaged(error_of_mean, steps):
    """a rounding to the nearest makes the same error in every step; stochastic ones differ, and average out."""
    x = tensors()["gradient"]
    for n in (1, 4):
        wanted = relative_error(np.mean([np.float64(stochastically(x, seed)) for seed in range(n)], 0), x)
        got = number("error_of_mean", call(error_of_mean, n))
        if not math.isclose(got, wanted, rel_tol=1e-3):
            raise Wrong(f"error_of_mean({n}) is {wanted:.4f}, not {got:.4f}: " + (
                "use the seeds 0, 1, 2 ...: with one seed for all, the casts are all the same" if n > 1 else
                "the relative error of stochastically(gradient, 0)"))
    if number("steps", steps) != 3:
        nearest = relative_error(cast(x), x)
        raise Wrong(f"steps is not {steps!r}: it is the smallest n whose error_of_mean(n) is below {nearest:.4f}, the "
                    "error of the cast to the nearest")


@exercise("12.3")
def transformed(hadamard, lower):
    """a block of 16 with a scale of its own holds its largest element nearly exactly; mixed with the others it is exact
    no more. Power-of-two scales of MXFP4 held no element exactly, and there the transform gains."""
    rng = np.random.default_rng(5)
    for shape in ((16,), (3, 64)):
        x = np.float32(rng.standard_normal(shape))
        got, wanted = np.asarray(call(hadamard, x)), _transformed(x)
        if got.shape != x.shape:
            raise Wrong(f"expected the shape of x, {x.shape}, got {got.shape}")
        if not np.allclose(got, wanted, atol=1e-5):
            size = float(np.linalg.norm(got) / np.linalg.norm(x))
            raise Wrong("the numbers are not those of the transform: " + (
                f"their norm has grown by {size:.3g}, and it should stay: divide by 4" if abs(size - 1) > 0.01 else
                "each number is multiplied by its sign first, then blocks of 16 by the matrix"))
    for case in CASES:
        tensor, format = case
        got = entry(lower, case, f"there is no answer for {case} yet: True or False")
        x = tensors()[tensor]
        plain, mixed = (relative_error(cast(t, _recipe(format)), t) for t in (x, _transformed(x)))
        if got not in (True, False):
            raise Wrong(f"{case}: expected True or False, got {got!r}")
        if bool(got) != (mixed < plain):
            raise Wrong(f"{case}: the error is {plain:.4f} without and {mixed:.4f} with the transform")


@exercise("12.4")
def two_matrices(differing):
    """with blocks along the sum, forward and backward multiply with two different matrices, and the gradient is not
    that of the network that was run; a block of 16 x 16 is the same from both sides."""
    rng = np.random.default_rng(6)
    for rows in (64, 32):
        w = np.float32(rng.standard_normal((rows, 64)))
        for recipe in (ALONG, SQUARE):
            got = number("differing", call(differing, w, recipe))
            wanted = float((cast(w, recipe, axis=1) != cast(w, recipe, axis=0)).mean())
            if not math.isclose(got, wanted, abs_tol=1e-9):
                raise Wrong(f"{recipe}, a matrix of {rows} x 64: it is {wanted:.4f}, not {got:.4f}: " + (
                    "this is a percentage, and a share is asked for" if math.isclose(got, 100 * wanted) else
                    "this is the share that is the same" if math.isclose(got, 1 - wanted) else
                    "cast(w, recipe, axis=1) is what forward reads, cast(w, recipe, axis=0) what backward does; "
                    "compare the two, element by element"))


def _with_scale(block, scale):
    return quantize(block / scale, "e2m1", overflow="saturate").astype(float) * scale


@exercise("12.5")
def four_or_six(four_over_six):
    """between 4 and 6 E2M1 has no number, so that elements near five sixths of the largest suffer most; a block that
    has some takes its largest to 4."""
    rng = np.random.default_rng(7)
    takes = []
    for i in range(200):
        block = rng.standard_normal(16) * 2.0 ** rng.integers(-9, 9)
        four, six = (_with_scale(block, np.abs(block).max() / top) for top in (4, 6))
        errors = [float(np.abs(y - block).mean()) for y in (four, six)]
        squares = [float(((y - block) ** 2).mean()) for y in (four, six)]
        if abs(errors[0] / errors[1] - 1) < 1e-6:
            continue
        takes.append(errors[0] < errors[1])
        got = np.asarray(call(four_over_six, block), float)
        if got.shape != block.shape:
            raise Wrong(f"expected 16 numbers, got shape {got.shape}")
        if not np.allclose(got, four if takes[-1] else six, rtol=1e-6, atol=0):
            raise Wrong(f"block {i}: to 4 its mean error is {errors[0]:.4g}, to 6 {errors[1]:.4g}; yours has " + (
                f"{float(np.abs(got - block).mean()):.4g}" if not np.allclose(got, six if takes[-1] else four) else
                "the larger one: compare the means of |error|, not of squares"
                if (squares[0] < squares[1]) != takes[-1] else "the larger one"))


@exercise("12.6")
def seeds(interval, told):
    """eight seeds can tell that FP4 costs something; that a part of the recipe wins something they cannot tell, nor
    that it wins nothing: an effect below 0.001 would need hundreds of seeds."""
    rng = np.random.default_rng(8)
    for eight in (rng.standard_normal(8), 0.01 + 0.001 * rng.standard_normal(8)):
        got = call(interval, eight)
        if not isinstance(got, (tuple, list, np.ndarray)) or len(got) != 2:
            raise Wrong("interval: return two numbers, its lower and its upper end")
        got, wanted = [number("interval", x) for x in got], _interval(eight)
        if not np.allclose(got, wanted, rtol=1e-6):
            ratio = (got[1] - got[0]) / (wanted[1] - wanted[0])
            ends = "from {:.4g} to {:.4g}, not from {:.4g} to {:.4g}".format(*wanted, *got)
            raise Wrong(f"interval: it reaches {ends}: " + (
                "the deviation of seeds has n - 1 in its denominator (ddof=1)"
                if math.isclose(ratio, math.sqrt(7 / 8)) else
                "the mean of n numbers deviates by 1 / sqrt(n) of what one does"
                if math.isclose(ratio, math.sqrt(8)) else "the mean, less and plus T_7 times its deviation"))
    for name, eight in differences().items():
        answer = entry(told, name, f"there is no answer for {name!r} yet: True or False")
        if answer not in (True, False):
            raise Wrong(f"{name}: expected True or False, got {answer!r}")
        low, high = _interval(eight)
        if bool(answer) != (low > 0 or high < 0):
            raise Wrong(f"{name}: the differences to plain, seed by seed, have the interval from {low:.4f} to "
                        f"{high:.4f}; is 0 in it?")


hints.update({
    "12.1": (
        "Take magnitudes, and give the sign back in the end. np.searchsorted(E2M1, x, side=\"right\") - 1 is the index "
        "of the neighbour below.",
        "With low and high its neighbours, a number lies at the part (x - low) / (high - low) of the way; it goes up "
        "where u is smaller than that part. 6 has no neighbour above: np.minimum keeps the index in range."),
    "12.2": (
        "np.mean of a list of arrays, with axis 0, is their mean, element by element.",
        "Cast the gradient with each seed in range(n), take the mean, and give its relative_error. Then try n = 1, 2, "
        "3 ... until it is below that of cast(gradient)."),
    "12.3": (
        "x.reshape(-1, 16) has a block in each row. A product with a matrix of +1 and -1 makes every result a sum of "
        "16 numbers: its size grows, but by how much?",
        "Multiply rows by SIGNS, then by HADAMARD, divide by 4, and give the result the shape of x. For the "
        "predictions: back(cast(hadamard(x), recipe)) beside cast(x, recipe)."),
    "12.4": (
        "Two casts of the same matrix: cast(w, recipe, axis=1) has blocks along its rows, axis=0 along its columns.",
        "The mean of an array of True and False is the share of True."),
    "12.5": (
        "amax / 6 is the scale that takes the largest magnitude to 6. Divide by it, cast to E2M1, multiply again; the "
        "same with 4.",
        "Two candidates, and the one whose np.abs(candidate - block).mean() is smaller. "
        "min(candidates, key=...) takes a function."),
    "12.6": (
        "The runs are paired: seed by seed, the difference of two final losses. Their mean has an interval.",
        "differences.std(ddof=1) / np.sqrt(8) is how much the mean deviates by chance. Told is what has an interval "
        "without 0."),
})
