"""Checks of lab 8, and its GPUs: devices that convert FP32 to FP16 and add up, each with a bug."""
import numpy as np

from .._conversions import quantize
from .._products import dot
from ._exercises import Wrong, call, entry, exercise, hints, number

BUGS = ("truncates", "rounds ties away from zero", "flushes subnormals", "saturates instead of overflowing",
        "rounds twice", "loses the sign of zero")


ACCUMULATORS = ("exact", "fp32", "pairwise", "kahan", "hopper-wgmma-fp8", "hopper-mma-fp8", "ada-e5m2", "blackwell-fp8")


def gpu_a(x):
    return quantize(x, "fp16", subnormals="flush_output")


def gpu_b(x):
    return quantize(x, "fp16", rounding="nearest_away")


def gpu_c(x):
    return quantize(x, "fp16", overflow="saturate_all")


def gpu_d(x):
    return quantize(quantize(x, "e5m12"), "fp16")


def gpu_e(x):
    return quantize(x, "fp16") + np.float32(0)


def gpu_dot(a, b):
    return dot(a, b, "hopper-wgmma-fp8", a_format="e5m2")


def reference(x):
    """FP32 to FP16, nearest-even, by NumPy."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def probes():
    """FP32 numbers around everything that can go wrong: FP16's numbers, the middles between them, what is next to both,
    at every exponent; zeros, infinities and NaN."""
    values = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (values[1:-1] + values[:-2]) / 2
    x = np.concatenate([values, middles, [65520.0, 65519.99, 1e30, np.nan]]).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    return np.concatenate([x, -x])


@exercise("8.1")
def mismatches(differ):
    """bits decide: two NaN agree, but +0 and -0 do not."""
    a = np.float32([1, 0.0, -0.0, np.nan, np.inf, 2.0**-24, np.nan, 3])
    b = np.float32([1, -0.0, -0.0, np.nan, -np.inf, 0.0, 1.0, 3])
    b[3:4] = np.uint32([0xFFC12345]).view(np.float32)  # of another sign and payload
    wanted = np.array([0, 1, 0, 0, 1, 1, 1, 0], bool)
    got = np.asarray(call(differ, a, b))
    if got.shape != wanted.shape:
        raise Wrong(f"expected a bool for each of {wanted.size} elements, got shape {got.shape}")
    for x, y, w, g in zip(a, b, wanted, got):
        if bool(g) != w:
            both_nan = np.isnan(x) and np.isnan(y)
            raise Wrong(f"{x} and {y} {'differ' if w else 'do not differ'}: " + (
                "zeros have signs; compare signbit too" if x == y == 0 else
                "two NaN are no mismatch, whatever their bits" if both_nan else "compare the values"))


_GPUS = {
    "a": (gpu_a, "flushes subnormals", "every mismatch is where the right result is subnormal, and the device gives 0"),
    "b": (gpu_b, "rounds ties away from zero",
          "every mismatch is in the middle between two numbers of FP16, and the device took the larger magnitude"),
    "c": (gpu_c, "saturates instead of overflowing",
          "every mismatch is where the right result is infinite; the device gives 65504"),
    "d": (gpu_d, "rounds twice",
          "mismatches lie next to the middles, not in them: a first rounding to a few more bits moved them there, and "
          "the second one then saw a tie"),
    "e": (gpu_e, "loses the sign of zero", "values agree everywhere; only the sign of zeros does not"),
}


@exercise("8.2")
def diagnosis(bugs):
    """where mismatches lie tells what is wrong: ends of the range, ties, their neighbours, zeros."""
    for name, (_, bug, why) in _GPUS.items():
        got = entry(bugs, name, f"there is no diagnosis of gpu_{name} yet: one of {', '.join(map(repr, BUGS))}")
        if got not in BUGS:
            raise Wrong(f"gpu_{name}: expected one of {', '.join(map(repr, BUGS))}, got {got!r}")
        if got != bug:
            raise Wrong(f"gpu_{name} does not do that: {why}")


@exercise("8.3")
def witness(find):
    """a mismatch that fits on a line is worth more than a million in a file: it can go into a bug report."""
    x = probes()
    for name, (gpu, bug, _) in _GPUS.items():
        got = number(f"gpu_{name}", call(find, gpu, x))
        value = np.float32(got)
        right, device = reference([value]), gpu(np.float32([value]))
        if right[0] == device[0] and np.signbit(right[0]) == np.signbit(device[0]):
            raise Wrong(f"gpu_{name} is right about {got!r}: that is no mismatch")
        wrong = [v for v in x if np.isfinite(v)]
        r, d = reference(wrong), gpu(np.float32(wrong))
        least = min(abs(v) for v, p, q in zip(wrong, r, d) if p != q or np.signbit(p) != np.signbit(q))
        if abs(value) != least:
            raise Wrong(f"gpu_{name} differs at {got!r}, but also at +-{least!r}, which is smaller: take the smallest "
                        "magnitude")


@exercise("8.4")
def accumulator(name):
    """a device is known by the bits that it drops: a handful of dot products tells accumulators apart."""
    if name not in ACCUMULATORS:
        raise Wrong(f"expected one of {', '.join(map(repr, ACCUMULATORS))}, got {name!r}")
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = (quantize(np.float32(rng.standard_normal(64) * 2.0 ** rng.uniform(-6, 6, 64)), "e5m2") for _ in range(2))
        ours, device = dot(a, b, name, a_format="e5m2"), gpu_dot(a, b)
        if ours != device:
            raise Wrong(f"{name} gives {ours!r} where the device gives {device!r}: try many random dot products, and "
                        "drop every candidate that differs once")


hints.update({
    "8.1": (
        "a == b is right but for two cases: NaN is not equal to itself, and 0.0 == -0.0.",
        "np.signbit tells the zeros apart, but look at the sign only where not both are NaN; np.isnan finds those."),
    "8.2": (
        "For each device take the x for which differ(gpu(x), reference(x)) holds, and print a few: input, right "
        "result, the device's result. Then look into the table of suspects.",
        "Where are the inputs: next to a middle between two numbers of FP16, or in the middle? What is the right "
        "result: subnormal, infinite, a zero?"),
    "8.3": (
        "Three steps: the finite inputs, those among them that differ, and of these the one with the smallest "
        "magnitude.",
        "wrong[np.argmin(np.abs(wrong))] is the last step."),
    "8.4": (
        "Begin with all candidates, and drop each one that once gives another result than gpu_dot.",
        "Products of very different sizes tell them apart: multiply random numbers by 2.0 ** rng.uniform(-6, 6, 64), "
        "round to E5M2, and try a few hundred pairs."),
})
