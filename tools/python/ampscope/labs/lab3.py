"""Checks of lab 3: choosing a loss scale. The oracle casts every element at every scale, with NumPy's float16."""
import numpy as np

from .._conversions import histogram
from ._exercises import Wrong, call, entry, exercise, hints, number

OUTCOMES = ("trains as FP32 does", "trains worse", "takes no step")


def rates(h):
    """Of a histogram's non-zero elements how many percent underflow and overflow in FP16, over log2 of the scale."""
    scales = range(-10, 50)
    counts = {k: h.classify("fp16", k) for k in scales}
    return {kind: [(k, 100 * counts[k][kind] / h.nonzero) for k in scales] for kind in ("underflow", "overflow")}


def _window(x, limit):
    x = x[x != 0].astype(np.float64)
    lost, over = {}, {}
    for k in range(-60, 61):
        with np.errstate(over="ignore"):
            y = (x * 2.0**k).astype(np.float16)
        lost[k], over[k] = float((y == 0).mean()), bool(np.isinf(y).any())
    return min(k for k in lost if lost[k] < limit), max(k for k in over if not over[k])


def _samples():
    rng = np.random.default_rng(3)
    wide = np.float32(rng.standard_normal(3000) * 2.0 ** rng.uniform(-30, -5, 3000))
    yield "gradients of 25 binades", wide
    yield "gradients of which half are zero", np.append(wide, np.zeros_like(wide))
    yield "a largest one that rounds to infinity, though it is below 2^16", np.append(wide, np.float32(65530 * 2.0**-9))
    yield "the same, a million times smaller", wide * np.float32(2.0**-20)
    yield "numbers that need no scale", np.float32(rng.standard_normal(1000))


@exercise("3.1")
def window(lowest_enough, highest_safe):
    """from one histogram follow the counts at every power of two, so that no scale has to be tried on the data."""
    for what, x in _samples():
        low, high = _window(x, 0.001)
        h = histogram(x)
        got = call(lowest_enough, h)
        if got != low:
            if number("lowest_enough", got) != int(got):
                raise Wrong(f"{what}: lowest_enough gives {got!r}, not {low}: expected the exponent of a power of two")
            lost = h.classify("fp16", int(got))["underflow"] / h.nonzero
            raise Wrong(f"{what}: lowest_enough gives {got!r}, not {low}: at 2^{got} {100 * lost:.3g} % of the "
                        "non-zero elements become zero; the limit is less than 0.1 %, and the scale the smallest that "
                        "keeps it")
        got = call(highest_safe, h)
        if got != high:
            raise Wrong(f"{what}: highest_safe gives {got!r}, not {high}: it is the largest exponent at which "
                        "classify() counts no overflow")


@exercise("3.2")
def choice(window, log2_scale):
    """inside the window, with room above it for larger gradients than those recorded."""
    low, high = window
    if number("log2_scale", log2_scale) != int(log2_scale):
        raise Wrong(f"expected the exponent of a power of two, got {log2_scale!r}")
    log2_scale = int(log2_scale)
    if log2_scale < low:
        raise Wrong(f"below the window: at 2^{log2_scale} more than 0.1 % of the gradients become zero")
    if log2_scale > high:
        raise Wrong(f"above the window: at 2^{log2_scale} gradients overflow, and every such step is skipped")
    if log2_scale > high - 2:
        raise Wrong(f"2^{log2_scale} leaves less than 2 binades to the first overflow: only a few steps were recorded, "
                    "and others have larger gradients")


@exercise("3.3")
def predictions(predicted, observed):
    """too small a scale loses gradients without a word, and slowly; too large a one stops training at once, and says so
    by skipped steps."""
    for case, outcome in observed.items():
        answer = entry(predicted, case, f"there is no prediction for {case!r} yet: {', '.join(map(repr, OUTCOMES))}")
        if answer not in OUTCOMES:
            raise Wrong(f"{case}: expected one of {', '.join(map(repr, OUTCOMES))}, got {answer!r}")
        if answer != outcome:
            why = {"trains as FP32 does": "nothing overflows, and next to nothing underflows" if case == "inside" else
                                          "nothing overflows, and a few percent of the smallest gradients are not "
                                          "missed: the limit of 0.1 % is a cautious one",
                   "trains worse": "far below the window most gradients are zero in FP16, and what is left trains less",
                   "takes no step": "above the window some gradient overflows in every step, and every step is skipped"}
            raise Wrong(f"{case}: it {outcome}; {why[outcome]}")


def outcome(run, reference):
    """Which of OUTCOMES a run of ampscope.train had, against the one in FP32."""
    if run["updates"]["changed"] == 0:
        return "takes no step"
    return "trains as FP32 does" if run["final_loss"] < 1.05 * reference["final_loss"] else "trains worse"


hints.update({
    "3.1": (
        'h.classify("fp16", k)["underflow"] counts the elements that become zero at scale 2^k, and ["overflow"] those '
        "that become infinite. Try every k from -60 to 60.",
        "min() and max() take a generator: min(k for k in range(-60, 61) if ...). The limit is 0.1 % of h.nonzero, and "
        "for overflow no element at all."),
    "3.2": (
        "Any exponent between the two ends keeps the recorded gradients. But nine of ten steps were not recorded.",
        "Leave some binades to the upper end, where a step is lost; the lower end is a cautious limit already."),
    "3.3": (
        "What happens to a step in which any gradient overflows? And how does a run notice that its smallest gradients "
        "are gone?",
        "Above the window every step has an overflow, and is skipped. Below it, count the binades: 8 below the end of "
        "a histogram lie few elements, 12 or 16 below it lie most."),
})
