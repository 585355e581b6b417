"""Checks of lab 13: collectives. Oracles: the bits of ampscope.all_reduce, means in FP64, and lines through
logarithms."""
import functools
import math
import tempfile

import numpy as np

from .._collectives import all_reduce
from .._conversions import quantize
from .._runs import read_tensors
from .._training import train
from ._exercises import Wrong, call, entry, exercise, hints, number

COUNTS = [2**k for k in range(1, 11)]
GROWTH = {"ring, fp32": "root", "ring, bf16": "root", "tree, bf16": "hardly", "all-to-all, bf16": "hardly"}
CHOICES = ["ring, fp32", "ring, fp16", "ring, bf16", "tree, bf16", "all-to-all, bf16", "all-to-all, mxfp8"]


def bf16(x):
    """x rounded to BF16, as FP32."""
    return np.float32(quantize(x, "bf16"))


def independent():
    """1,024 replicas of 512 normal numbers, which have nothing to do with each other."""
    return np.float32(np.random.default_rng(13).standard_normal((1024, 512)))


@functools.cache
def gradients():
    """The gradients of 1,024 replicas, one in each row: all weights of a small network that is to read digits, before
    its first step, each for another digit. They are computed by ampscope.train, which takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        train(model="mlp", width=16, precision="fp32", batch=1, steps=1, replicas=1024, record=folder + "/run",
              record_replicas=True)
        tensors, _ = read_tensors(folder + "/run/fp32/replicas/step_000000.safetensors")
    names = [name.removeprefix("replica_0.") for name in tensors if name.startswith("replica_0.")]
    return np.stack([np.concatenate([tensors[f"replica_{r}.{name}"].ravel() for name in names]) for r in range(1024)])


def error(rows, how):
    """|mean - exact| / |exact| of the mean of these replicas' gradients; how: algorithm and format, "ring, bf16"."""
    exact = np.float64(rows).mean(0)
    algorithm, format = how.split(", ")
    mean = all_reduce(rows, algorithm, format, divide="after")
    return float(np.linalg.norm(np.float64(mean) - exact) / np.linalg.norm(exact))


def errors(rows, how):
    """The errors of the means of 2, 4 ... 1,024 replicas."""
    return [error(rows[:n], how) for n in COUNTS]


def noise_of(rows):
    """By how much the mean differs by chance from that of unlimited data, relative to the mean."""
    x = np.float64(rows)
    return float(np.sqrt(x.var(0, ddof=1).sum() / len(x)) / np.linalg.norm(x.mean(0)))


def _cases(counts):
    rng = np.random.default_rng(14)
    for n in counts:
        yield n, np.float32(rng.standard_normal((n, 16 * n)))


def _got(function, x):
    got = np.asarray(call(function, x))
    if got.shape != x.shape[1:]:
        raise Wrong(f"for {x.shape[0]} replicas of {x.shape[1]} numbers, expected {x.shape[1]} means, got shape "
                    f"{got.shape}")
    return got


def _same(a, b):
    return np.array_equal(np.float32(a), np.float32(b))


def _in_order(x, first, round_each=bf16):
    """The mean of rows that are added one after the other, from row `first` on around."""
    rows = bf16(np.roll(x, -first, axis=0))
    total = rows[0]
    for row in rows[1:]:
        total = round_each(total + row)
    return bf16(bf16(total) / np.float32(len(x)))


def _unrounded(x):
    total = x[0]
    for row in x[1:]:
        total = bf16(total + row)
    return bf16(total / np.float32(len(x)))


@exercise("13.1")
def around(ring):
    """the very bits of a ring: N - 1 roundings for each sum, and another order for each chunk."""
    for n, x in _cases((2, 4, 8, 5)):
        got, wanted = _got(ring, x), all_reduce(x, "ring", "bf16", divide="after")
        if _same(got, wanted):
            continue
        first = [_in_order(x, c) for c in range(n)]
        raise Wrong(f"with {n} replicas, {int((got != wanted).sum())} of {got.size} means are other numbers: " + (
            "all chunks are summed from replica 0 on; chunk c begins with replica c + 1" if _same(got, first[0]) else
            "chunk c is summed from replica c on; it begins with replica c + 1"
            if _same(got, np.concatenate([first[c][16 * c:16 * c + 16] for c in range(n)])) else
            "the sum is not rounded to BF16 after each addition"
            if np.allclose(got, np.float64(bf16(x)).mean(0), rtol=2.0**-8, atol=1e-7) else
            "gradients are sent in BF16: round them before they are added, the sum after each addition, and the mean"))


@exercise("13.2")
def paired(tree):
    """log2 N roundings on the way of each number to the sum, in place of N - 1."""
    for n, x in _cases((2, 4, 16)):
        got, wanted = _got(tree, x), all_reduce(x, "tree", "bf16", divide="after")
        if not _same(got, wanted):
            raise Wrong(f"with {n} replicas, {int((got != wanted).sum())} of {got.size} means are other numbers: " + (
                "these are sums one after the other" if _same(got, _in_order(x, 0)) else
                "replica 0 is added to 1, 2 to 3 ...; you seem to add the first half to the second"
                if _same(got, _folded(x)) else
                "gradients, each sum of two, and the mean are rounded to BF16"))


def _folded(x):
    rows = bf16(x)
    while len(rows) > 1:
        rows = bf16(rows[:len(rows) // 2] + rows[len(rows) // 2:])
    return bf16(rows[0] / np.float32(len(x)))


@exercise("13.3")
def law(power, growth):
    """errors of N roundings of either sign add up as a random walk does; with log2 N roundings, or one, there is hardly
    a walk."""
    counts = np.array([8, 16, 64, 256])
    for factor, exponent in ((0.001, 0.5), (3.0, 0.0), (1e-7, 1.0)):
        got = number("power", call(power, counts, factor * counts**exponent))
        if not math.isclose(got, exponent, abs_tol=1e-6):
            raise Wrong(f"errors {factor:g} N^{exponent:g} grow with the power {exponent:g}, not {got:.4g}: it is the "
                        "slope of the line through the logarithms of both")
    for how, wanted in GROWTH.items():
        got = entry(growth, how, f"there is no answer for {how!r} yet: 'root' or 'hardly'")
        if got not in ("root", "hardly"):
            raise Wrong(f"{how}: expected 'root' or 'hardly', got {got!r}")
        if got != wanted:
            of_8, of_256 = (error(independent()[:n], how) for n in (8, 256))
            raise Wrong(f"{how}: from 8 to 256 replicas, 32 times as many, the error grows {of_256 / of_8:.1f} times; "
                        "the root of 32 is 5.7")


@exercise("13.4")
def still(sums, mean):
    """the next number is two away, and one more is a tie that goes back to the even one: the sum stands still, and all
    further replicas are lost."""
    for format, wanted in (("bf16", 256), ("fp16", 2048), ("e4m3", 16)):
        got = number(format, entry(sums, format, f"there is no sum for {format} yet"))
        if got != wanted:
            raise Wrong(f"{format}: the sum of ones does not stop at {got:g}: " + (
                "it comes further; try ampscope.add" if got < wanted else
                "it never comes as far. Where numbers are two apart, one more is a tie: to which side does it go?"))
    if number("mean", mean) != 0.25:
        raise Wrong(f"mean is not {mean!r}: the sum of 1,024 ones stops at 256, and is divided by 1,024")


@exercise("13.5")
def safe(noise, fine):
    """the mean of a batch is uncertain anyway: an error of a tenth of that makes it half a percent worse. More is lost
    by a ring in BF16, and by FP8 messages; all else is fine."""
    x = gradients()
    for n in (64, 1024):
        got, wanted = number("noise", call(noise, x[:n])), noise_of(x[:n])
        if not math.isclose(got, wanted, rel_tol=2e-3 if n > 64 else 1e-6):
            raise Wrong(f"of {n} replicas it is {wanted:.4f}, not {got:.4f}: " + (
                "the mean of N deviates by 1 / sqrt(N) of what one of them does"
                if math.isclose(got, wanted * math.sqrt(n), rel_tol=0.01) else
                "the root is taken of the sum of all variances; it is divided by the norm of the mean"))
    limit = noise_of(x) / 10
    for how in CHOICES:
        got = entry(fine, how, f"there is no answer for {how!r} yet: True or False")
        if got not in (True, False):
            raise Wrong(f"{how}: expected True or False, got {got!r}")
        if bool(got) != (error(x, how) < limit):
            raise Wrong(f"{how}: at 1,024 replicas the error is {error(x, how):.2g}, a tenth of the noise {limit:.2g}")


hints.update({
    "13.1": (
        "Go chunk by chunk: columns 16 c to 16 c + 16. The k-th replica of its sum is number (c + k) % N, with k from "
        "1 to N.",
        "Round the gradients to BF16 first, the sum after each addition, and the mean after the division by N."),
    "13.2": (
        "rows[::2] and rows[1::2] are the even and the odd ones.",
        "Begin with bf16(gradients); as long as there is more than one row, replace the rows by the rounded sums of "
        "neighbours. Divide what is left by N, and round."),
    "13.3": (
        "log(error) = log(factor) + power * log(N): a line. np.polyfit(x, y, 1)[0] is its slope.",
        "Count the roundings that a number takes part in on its way to the sum: in a ring, in a tree, and where the "
        "sum is rounded once."),
    "13.4": (
        "Let the program find it: s = 0, and s = ampscope.add(s, 1, format=...) until it stays as it was.",
        "BF16 has 8 significant bits, FP16 has 11, E4M3 has 4. Which is the first whole number that they do not hold?"),
    "13.5": (
        "x.var(0, ddof=1) is the variance of each element over the replicas; the mean of N has an N-th of it.",
        "np.sqrt(variances.sum() / N) / np.linalg.norm(mean), in FP64. Then compare error(rows, how) with a tenth."),
})
