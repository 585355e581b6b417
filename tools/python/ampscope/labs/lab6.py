"""Checks of lab 6: Adam's eps, the formats of its state, and weights that do not move. Oracles: NumPy's float16, and
BF16 by its definition on FP32's bits."""
import numpy as np

from ._exercises import Wrong, call, entry, exercise, hints, number


def bf16(x):
    """Nearest-even, on the bits: BF16 is the upper half of an FP32 number."""
    bits = np.float32(x).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


@exercise("6.1")
def eps(values):
    """an eps of 1e-8 does not exist in FP16: with a gradient of 0, Adam divides 0 by 0."""
    for e in (1e-8, 1e-7, 1e-6, 1e-5):
        got = entry(values, e, f"there is no value for {e:g} yet")
        if not np.isclose(number(f"{e:g}", got), float(np.float16(e)), rtol=1e-4, atol=0):
            raise Wrong(f"FP16 does not hold {got!r} for {e:g}: it is a multiple of 2^-24 = 5.96e-8, the nearest one")


@exercise("6.2")
def first_step(relative):
    """where eps is as large as the gradient the step is half as long; below, Adam no longer forgets the gradient's
    size."""
    for g in (1.0, 1e-4, 1e-8, 1e-10, -1e-8):
        for e in (1e-8, 1e-5):
            got, wanted = number("relative", call(relative, g, e)), abs(g) / (abs(g) + e)
            if not np.isclose(got, wanted, rtol=1e-6):
                raise Wrong(f"relative({g:g}, {e:g}) is {wanted:.9g}, not {got:.9g}: in the first step m-hat is g and "
                            "v-hat is g^2; what remains of m-hat / (sqrt(v-hat) + eps)?")


@exercise("6.3")
def ratchet(stuck):
    """v in BF16 with beta2 = 0.999 can only grow: a few large gradients silence a weight for good."""
    mantissas = np.float32(1 + np.arange(128) / 128)
    for beta2 in (0.999, 0.99, 0.95):
        wanted = int((bf16(mantissas * np.float32(beta2)) == mantissas).sum())
        got = entry(stuck, beta2, f"there is no count for beta2 = {beta2} yet")
        if number(f"{beta2}", got) != wanted:
            raise Wrong(f"for beta2 = {beta2} it is not {got!r}: multiply each of the 128 numbers 1, 1 + 1/128 ... by "
                        "beta2, round to BF16, and count those that come out as they went in")


@exercise("6.4")
def lost(up, down):
    """a BF16 weight of 1 needs updates of 0.2 to 0.4 %: Adam's, about the learning rate where gradients are steady,
    never move it at 1e-3."""
    for name, got, wanted, why in (("up", up, 2.0**-8, "1 and 1 + 2^-7 are neighbours"),
                                   ("down", down, 2.0**-9, "below 1 neighbours are 2^-8 apart")):
        if number(name, got) != wanted:
            raise Wrong(f"{name} is not {got!r}: {why}, half of the distance is a tie, and 1 is the even one of the "
                        "two")


@exercise("6.5")
def stochastic(round_stochastically):
    """up in exactly as many of the 65,536 cases as the part that is cut off demands: right on average, for every
    number."""
    r = np.arange(2**16, dtype=np.uint32)
    for x in np.float32([1.0, 1 + 2**-9, 0.1, -0.1, 3.14159, -1e-3, 1e-30]):
        bits = x.view(np.uint32)
        low = int(bits) & 0xFFFF
        got = np.asarray(call(round_stochastically, np.full(2**16, x, np.float32), r))
        got = got.astype(np.float32) if got.dtype.name == "bfloat16" else got
        if got.dtype != np.float32 or got.shape != r.shape:
            raise Wrong(f"expected an array of FP32 with {r.size} elements, got {got.dtype} with {got.size}")
        toward_zero = np.uint32(int(bits) & 0xFFFF0000).view(np.float32)
        away = np.uint32((int(bits) & 0xFFFF0000) + 0x10000).view(np.float32)
        if not np.isin(got, [toward_zero, away]).all():
            raise Wrong(f"{x!r} becomes {got[~np.isin(got, [toward_zero, away])][0]!r}, which is none of its "
                        f"neighbours in BF16, {toward_zero!r} and {away!r}: are the low 16 bits cleared?")
        ups = int((got == away).sum()) if low else 0
        if ups != low:
            raise Wrong(f"{x!r} is rounded away from zero in {ups} of 65,536 cases, not in {low}: the random 16 bits "
                        f"have to decide, by an addition that carries into the upper half in {low} of the cases")


@exercise("6.6")
def kahan(step):
    """what rounding cuts off is kept and added the next time: 2 more bytes a weight, and no update is lost in the long
    run."""
    rng = np.random.default_rng(6)
    for what, updates in (("updates of 1e-4", np.full(2000, 1e-4, np.float32)),
                          ("random updates", np.float32(rng.standard_normal(500) * 1e-3))):
        weight, compensation = np.float32(1), np.float32(0)
        w, k = weight, compensation
        for i, u in enumerate(updates):
            result = call(step, weight, compensation, u)
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise Wrong("expected the new weight and the new compensation: return weight, compensation")
            weight, compensation = np.float32(result[0]), np.float32(result[1])
            k = bf16(k + u)
            new = bf16(w + k)
            k = bf16(k + (w - new))
            w = new
            if weight != w or compensation != k:
                raise Wrong(f"{what}, step {i}: weight {weight!r} and compensation {compensation!r}, not {w!r} and "
                            f"{k!r}: the three operations that the exercise describes, in this order, each rounded "
                            "to BF16, and the update not before it is added")


hints.update({
    "6.1": (
        "np.float16 rounds a number to the nearest one of FP16.",
        "The smallest number of FP16 is 2^-24, about 6e-8; what is below half of it becomes 0. float(np.float16(1e-7)) "
        "is the second value."),
    "6.2": (
        "Put t = 1 and m = v = 0 into the formulas of the reading: what are m-hat and v-hat?",
        "m-hat is g, and v-hat is g squared; its root is the magnitude of g. The learning rate drops out."),
    "6.3": (
        "NumPy multiplies all 128 at once: v * np.float32(beta2).",
        'Round the products with ampscope.quantize(..., "bf16"), compare with v, and count with .sum().'),
    "6.4": (
        "Which are the neighbours of 1 in BF16, which has 7 bits of fraction? They are not equally far away.",
        "Above 1 neighbours are 2^-7 apart, below it 2^-8. An update of exactly half of the distance is a tie, and the "
        "fraction of 1 is even."),
    "6.5": (
        "On the bits it is one addition and one more operation. How often does the sum of the lower 16 bits and a "
        "random number of 16 bits carry into the upper half?",
        "bits = x.view(np.uint32) + r; then set the lower 16 bits to zero with & 0xFFFF0000, and go back with "
        ".view(np.float32)."),
    "6.6": (
        "Write a function bf16(x) first, which rounds with ampscope.quantize and gives an np.float32; each of the "
        "three operations is one call of it.",
        "What the new weight has not taken: the compensation, less the difference between the new weight and the old "
        "one."),
})
