"""Means of replicas' gradients against fractions.Fraction, rounded hop by hop by ml_dtypes or NumPy."""
import itertools
from fractions import Fraction

import ampscope
import ml_dtypes
import numpy as np
import pytest

DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


def rounded(x, dtype):
    """The number of that type nearest to a fraction, ties to even, by search among its neighbours."""
    guess = np.asarray(float(x), np.float64).astype(dtype)
    near = [np.nextafter(guess, np.asarray(end, dtype)) for end in (-np.inf, np.inf)] + [guess]
    def key(y):
        return abs(Fraction(float(y)) - x), int(y.view(f"u{y.itemsize}")) % 2
    return min(near, key=key)


def added(x, y, dtype):
    return rounded(Fraction(float(x)) + Fraction(float(y)), dtype)


def ring(x, dtype, chunk):
    total = x[(chunk + 1) % len(x)]
    for i in range(2, len(x) + 1):
        total = added(total, x[(chunk + i) % len(x)], dtype)
    return total


def pairs(x, dtype, chunk=0):
    while len(x) > 1:
        x = [added(*x[i:i + 2], dtype) if i + 1 < len(x) else x[i] for i in range(0, len(x), 2)]
    return x[0]


def folded(x, dtype, chunk=0):
    extra = len(x) - 2 ** (len(x).bit_length() - 1)
    return pairs([added(x[2 * i], x[2 * i + 1], dtype) for i in range(extra)] + x[2 * extra:], dtype)


def wide(x, dtype, chunk=0):
    total = np.float32(x[0])
    for y in x[1:]:
        total = added(total, np.float32(y), np.float32)
    return rounded(Fraction(float(total)), dtype)


def exact(x, dtype, chunk=0):
    return rounded(sum(Fraction(float(y)) for y in x), dtype)


SUMS = {"ring": ring, "tree": pairs, "halving-doubling": folded, "doubling": folded, "one-shot": wide,
        "all-to-all": wide, "exact": exact}


@pytest.mark.parametrize("algorithm, name", list(itertools.product(SUMS, DTYPES)))
def test_means_hop_by_hop(algorithm, name):
    dtype, random = DTYPES[name], np.random.default_rng(1)
    for replicas, divide in itertools.product((2, 3, 5, 8), ("before", "after", "nccl-avg")):
        x = random.standard_normal((replicas, 11)).astype(np.float32)
        one = rounded(Fraction(float(np.float32(1 / replicas))), dtype)
        want = []
        for i in range(x.shape[1]):
            sent = [Fraction(float(g)) / (replicas if divide == "before" else 1) for g in x[:, i]]
            sent = [rounded(g, dtype) for g in sent]
            if divide == "nccl-avg":
                sent = [rounded(Fraction(float(g)) * Fraction(float(one)), dtype) for g in sent]
            ends = np.cumsum([11 // replicas + (c < 11 % replicas) for c in range(replicas)])
            total = SUMS[algorithm](sent, dtype, int(np.searchsorted(ends, i, "right")))
            want.append(rounded(Fraction(float(total)) / replicas, dtype) if divide == "after" else total)
        got = ampscope.all_reduce(x, algorithm, name, divide=divide)
        assert got.dtype == np.float32 and got.tolist() == [float(w) for w in want]


def test_messages_in_blocks():
    x = np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32)

    def cast(y):
        values, scales = ampscope.block_quantize(y, "mxfp8")
        return ampscope.block_dequantize(values, scales, "mxfp8")
    half = x / 2
    # Chunk c is summed from the other replica on, and the sum is cast once more.
    want = np.concatenate([cast(cast(half[1, :32]) + half[0, :32]), cast(cast(half[0, 32:]) + half[1, 32:])])
    assert ampscope.all_reduce(x, "ring", "mxfp8").tolist() == want.tolist()
    assert ampscope.all_reduce(x, "one-shot", "mxfp8").tolist() == (cast(half[0]) + cast(half[1])).tolist()


def test_ms_amp():
    x = np.float32([[1.0, -0.5], [0.25, 3.0]])
    assert np.allclose(ampscope.all_reduce(x, scaling="ms-amp"), x.mean(0), rtol=0.1)


def test_shapes_tables_and_refusals():
    x = np.ones((3, 2, 5), np.float32)
    assert ampscope.all_reduce(x).shape == (2, 5) and ampscope.all_reduce(list(x), threads=3).tolist() == x[0].tolist()
    names = {(row["kind"], row["name"]) for row in ampscope.collectives()}
    assert {("algorithm", name) for name in SUMS} == {row for row in names if row[0] == "algorithm"}
    assert {("divide", "nccl-avg"), ("shard", "zero1"), ("shard", "fsdp")} <= names
    assert all(row["meaning"] and row["source"] for row in ampscope.collectives())
    for words, why in (({"algorithm": "star"}, "unknown algorithm 'star'; known: ring, tree"),
                       ({"format": "mxfp9"}, "or blocks: mxfp8"),
                       ({"divide": "twice"}, "known: before, after, nccl-avg"), ({"scaling": "te"}, "none, ms-amp"),
                       ({"algorithm": "doubling", "format": "mxfp8"}, "those that take mxfp8"),
                       ({"scaling": "ms-amp", "divide": "after"}, "after does not go with it"),
                       ({"scaling": "ms-amp", "divide": "nccl-avg"}, "nccl-avg does not go with it")):
        with pytest.raises(ValueError, match=why):
            ampscope.all_reduce(x, **words)
    for wrong in ([], [np.ones(2), np.ones(3)]):
        with pytest.raises(ValueError, match="one shape"):
            ampscope.all_reduce(wrong)


def test_tensors():
    torch = pytest.importorskip("torch")
    mean = ampscope.all_reduce([torch.ones(3), torch.zeros(3)], "exact", torch.bfloat16)
    assert isinstance(mean, torch.Tensor) and mean.tolist() == [0.5] * 3
    with pytest.raises(TypeError, match=r"gradients\[0\]: requires a gradient"):
        ampscope.all_reduce([torch.ones(3, requires_grad=True)])
