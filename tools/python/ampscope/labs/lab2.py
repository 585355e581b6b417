"""Checks of lab 2: reading gradients. The oracle is NumPy's cast to float16."""
import math

import numpy as np

from .._runs import read_tensors
from ._exercises import Wrong, call, exercise, hints, number


def two_logs():
    """Gradients of the same layers in one step, one half of each recorded as it was, the other while it contained a
    loss scale."""
    from . import data
    tensors, _ = read_tensors(data("digits_cnn") / "step_000600.safetensors")
    gradients = [g.ravel() for name, g in tensors.items() if name.endswith(".out.grad")]
    a, b = (np.concatenate([g[i::2] for g in gradients]) for i in range(2))
    return a, b * np.float32(2.0**13)


def _cast(x):
    with np.errstate(over="ignore"):
        y = np.abs(x.astype(np.float16).astype(np.float64))
    magnitude = np.abs(x.astype(np.float64))
    some = np.isfinite(magnitude) & (magnitude > 0)
    return {"zero": int((magnitude == 0).sum()), "underflow": int((some & (y == 0)).sum()),
            "subnormal": int((some & (y > 0) & (y < 2.0**-14)).sum()), "overflow": int((some & np.isinf(y)).sum())}


_CASES = (
    ("numbers around the ends of FP16", np.float32([0.0, -0.0, 1.0, 2.0**-24, 2.0**-25, -(2.0**-25), 2.0**-25 * 1.001,
                                                    2.0**-14, 2.0**-14 * 0.9999, 2.0**-15, 65504, 65519, 65520, -1e5]),
     "2^-25 is a tie with zero, and becomes zero; what is a little above survives. 0.9999 * 2^-14 rounds up to a "
     "normal number. 65519 still rounds down to 65504, 65520 does not"),
    ("an array with NaN and infinities", np.float32([np.nan, np.inf, -np.inf, 1.0, 1e-9]),
     "what was NaN or infinite before the cast did not overflow in it"),
    ("random numbers of all sizes", np.float32(np.random.default_rng(1).standard_normal(5000)
                                               * 2.0 ** np.random.default_rng(2).uniform(-40, 20, 5000)),
     "count after rounding"))


@exercise("2.1")
def counts(count):
    """zero before the cast is not underflow, rounding decides at both ends, and -0 is a zero."""
    for what, x, why in _CASES:
        got, wanted = call(count, x), _cast(x)
        for name, value in wanted.items():
            if not isinstance(got, dict) or name not in got:
                raise Wrong(f"expected a dict with {', '.join(wanted)}, got {got!r}")
            if np.ndim(got[name]) != 0:
                raise Wrong(f"{what}: {name} is an array of shape {np.shape(got[name])}: count its elements")
            if got[name] != value:
                raise Wrong(f"{what}: {name} is {value}, not {got[name]}: {why}")


@exercise("2.2")
def denominators(of_all, of_nonzero, zero_after):
    """one tensor, one format, three rates from 11 % to 73 %: a percentage without its denominator says nothing."""
    from . import data
    tensors, _ = read_tensors(data("digits_cnn") / "step_000600.safetensors")
    x = np.concatenate([g.ravel() for name, g in tensors.items() if name.endswith(".out.grad")])
    c = _cast(x)
    wanted = {
        "of_all": (of_all, c["underflow"] / x.size, "underflow over all elements"),
        "of_nonzero": (of_nonzero, c["underflow"] / (x.size - c["zero"]), "underflow over what was not zero before"),
        "zero_after": (zero_after, (c["zero"] + c["underflow"]) / x.size, "all that is zero after the cast, over all"),
    }
    for name, (got, value, meaning) in wanted.items():
        got = number(name, got)
        if not math.isclose(got, value, rel_tol=5e-3):
            hint = "; this looks like a percentage" if math.isclose(got, 100 * value, rel_tol=5e-3) else next(
                (f"; this is {other}" for other, (_, v, _) in wanted.items() if math.isclose(got, v, rel_tol=5e-3)), "")
            raise Wrong(f"{name}, {meaning}, is not {got:.4g}{hint}")


@exercise("2.3")
def published(become_zero, of_nonzero, left, fits):
    """as shares of one whole, 66.8, 31 and 5.3 add up to 103.1, so they cannot have the same denominator; they fit if
    5.3 is a share of what was not zero."""
    wanted = {
        "become_zero": (become_zero, 100 - 66.8 - 5.3, "what is neither zero before nor left after, of all"),
        "of_nonzero": (of_nonzero, (100 - 66.8 - 5.3) / (100 - 66.8) * 100, "the same, of what is not zero before"),
        "left": (left, 100 - 66.8 - 31, "all, less those that are zero before, less 31 % of all"),
        "fits": (fits, (100 - 66.8) * (1 - 0.053), "94.7 % of the 33.2 % of all that were not zero before"),
    }
    for name, (got, value, meaning) in wanted.items():
        if abs(number(name, got) - value) > 0.06:
            raise Wrong(f"{name} is not {got!r}: it is {meaning}, in percent")


@exercise("2.4")
def threshold(largest_lost):
    """numbers between 2^-25 and 2^-24 are rounded up to 2^-24: a binade more survives than "below 2^-24 is lost"
    says."""
    x = number("largest_lost", largest_lost)
    if x <= 0:
        raise Wrong("it is a positive number")
    if np.float16(x) != 0:
        raise Wrong(f"FP16 keeps {x!r}, as {float(np.float16(x))!r}")
    if np.float16(np.nextafter(x, 1)) == 0:
        raise Wrong(f"{x!r} is lost, but so is the next double above it: think of the tie with zero")


@exercise("2.5")
def scaled(which, log2_scale):
    """the histograms have one shape, 13 binades apart: a log of scaled gradients shows nothing of what underflows
    without."""
    if which not in ("a", "b"):
        raise Wrong(f"which: expected 'a' or 'b', got {which!r}")
    if which == "a":
        raise Wrong("a scale above 1 makes numbers larger, not smaller; which of the two is larger?")
    exponent = number("log2_scale", log2_scale)
    if exponent > 100:
        raise Wrong(f"the exponent of the scale is asked for, not the scale: {exponent:g} is 2^{math.log2(exponent):g}")
    if abs(exponent - 13) >= 0.5:  # a ratio of medians is near a power of two, not one
        raise Wrong(f"2^{exponent:g} does not carry one histogram onto the other: compare medians of the magnitudes "
                    "that are not zero, or binades, of many elements and not of the largest alone")


hints.update({
    "2.1": (
        "x.astype(np.float16) is the cast. Compare what there was before with what there is after it, and let NumPy "
        "count with .sum().",
        "Only elements that are finite and not 0 before the cast can be lost in it. Of them, which are 0 after the "
        "cast, which are infinite, and whose magnitude is below 2.0**-14 but not 0?"),
    "2.2": (
        "All three begin with the counts of your function for x; only what you divide, and by what, differs.",
        "Zero after the cast are the elements that were zero before and those that underflow. np.count_nonzero(x) is "
        "the number of elements that were not zero."),
    "2.3": (
        "Take 100 elements. 66.8 of them are zero before the cast, so that 33.2 are not.",
        "If 5.3 elements of the 100 are left, 100 - 66.8 - 5.3 became zero. For `fits`, 5.3 % of the 33.2 are left, "
        "and the others became zero."),
    "2.4": (
        "The smallest number of FP16 is 2^-24. What does nearest-even make of a number half as large?",
        "Half of the smallest number is a tie between it and zero, and zero is the even one. Anything larger is nearer "
        "to 2^-24."),
    "2.5": (
        "A loss scale multiplies every gradient by the same power of two, so that it moves the histogram and does not "
        "change its shape. Which of the two lies higher?",
        "Compare a number that many elements decide, such as the median of np.abs(b[b != 0]), with that of a; log2 of "
        "the ratio is near the exponent. The largest element alone may mislead."),
})
