"""Answers that students give: the check of each says what is wrong with it."""
import functools
import json
import math
import pathlib

import numpy as np
import pytest

import ampscope
from ampscope import labs
from ampscope.labs import lab1, lab8, lab12, lab13

VALUES = {0x3C00: 1.0, 0x4248: 3.140625, 0x0003: 3 * 2.0**-24, 0xF900: -40960.0, 0x7C00: math.inf}


def decoder(subnormals=True, infinity=True, nan=True, signed_zero=True):
    def decode(code):
        sign, exponent, fraction = -1.0 if code & 0x8000 else 1.0, code >> 10 & 31, code & 1023
        if exponent == 31 and fraction and nan:
            return math.nan
        if exponent == 31 and not fraction and infinity:
            return sign * math.inf
        if code == 0x8000 and not signed_zero:
            return 0.0
        if exponent == 0 and subnormals:
            return sign * 2.0**-14 * (fraction / 1024)
        return sign * 2.0 ** (exponent - 15) * (1 + fraction / 1024)
    return decode


@functools.cache
def codes_of_all(**policy):
    """The codes of all that lab 1.3 tries, at once: a call for each of its 250,000 numbers would take half a minute."""
    x = lab1.values_to_encode()
    x = np.concatenate([x, -x])
    return dict(zip(x.tolist(), ampscope.encode(ampscope.quantize(x, "fp16", **policy), "fp16").tolist(), strict=True))


def encoder(**policy):
    def encode(x):
        code = codes_of_all(**policy).get(x) if x != 0 else None
        return int(ampscope.encode(ampscope.quantize(x, "fp16", **policy), "fp16")) if code is None else code
    return encode


def without_nan(x):
    return encoder()(0.0 if math.isnan(x) else x)


def carry_lost(x):
    code = encoder()(x)
    up = code & 0x3FF == 0 and abs(x) < abs(float(ampscope.decode(np.uint16([code]), "fp16")[0]))
    exponent = (code >> 10 & 31) - 1
    return code & 0x8000 | exponent << 10 | 1024 if up and 0 < exponent < 30 else code


def lowest(h, denominator):
    return min(k for k in range(-60, 61) if h.classify("fp16", k)["underflow"] < 0.001 * denominator)


def highest(h):
    return max(k for k in range(-60, 61) if h.classify("fp16", k)["overflow"] == 0)


def count(threshold=None, zero_is_underflow=False, infinite_overflows=False):
    def count(x):
        with np.errstate(all="ignore"):
            y = np.abs(x.astype(np.float16).astype(float))
        some = np.isfinite(x) & (x != 0)
        under = some & (np.abs(x) < threshold if threshold else y == 0) | ((x == 0) if zero_is_underflow else False)
        return {"zero": int((x == 0).sum()), "underflow": int(under.sum()),
                "subnormal": int((some & (y > 0) & (y < 2.0**-14)).sum()),
                "overflow": int((np.isinf(y) & (some | infinite_overflows)).sum())}
    return count


class Scaler:
    """torch's, with a fault."""

    def __init__(self, scale, growth, backoff, interval, fault):
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.fault, self.clean = fault, 0

    def update(self, found):
        if found:
            scale = self.scale * self.backoff
            self.scale = scale if self.fault == "fp64" else float(np.float32(scale))
            if self.fault != "keeps counting":
                self.clean = 0
            return
        self.clean += 1
        if self.clean >= self.interval:
            with np.errstate(over="ignore"):
                grown = float(np.float32(self.scale * (2 if self.fault == "doubles" else self.growth)))
            if grown < math.inf or self.fault == "infinite":
                self.scale = grown
            self.clean = 0


def scaler(fault):
    return lambda *options: Scaler(*options, fault)


def quarters(x, r):
    """Up where the nearest is up: not by chance."""
    return ampscope.quantize(x, "bf16")


def not_cleared(x, r):
    return (x.view(np.uint32) + r).view(np.float32)


def kahan_without(weight, compensation, update):
    return np.float32(ampscope.quantize(weight + update, "bf16")), np.float32(0)


def kahan(weight, compensation, update):
    def bf16(x):
        return np.float32(ampscope.quantize(x, "bf16"))
    compensation = bf16(compensation + update)
    new = bf16(weight + compensation)
    return new, bf16(compensation + (weight - new))


def tile(of_l=True, of_o=True):
    def add_tile(m, l, o, scores, v):
        most = max(m, scores.max())
        factor, p = np.exp(m - most), np.exp(scores - most)
        return most, l * (factor if of_l else 1) + p.sum(), o * (factor if of_o else 1) + p @ v
    return add_tile


def place(exact):
    return 2.0 ** (np.floor(np.log2(abs(exact))) - 7)


def stochastic(chance=lambda part: part, grid=lab12.E2M1, signed=True):
    def stochastic(x, u):
        size = np.abs(x)
        below = np.searchsorted(grid, size, side="right") - 1
        low, high = grid[below], grid[np.minimum(below + 1, grid.size - 1)]
        part = (size - low) / np.where(high > low, high - low, 1)
        y = np.where(u < chance(part) * (high > low), high, low)
        return np.copysign(y, x) if signed else y
    return stochastic


def error_of_mean(seeds=range):
    gradient = lab12.tensors()["gradient"]
    return lambda n: lab12.relative_error(np.mean([lab12.stochastically(gradient, s) for s in seeds(n)], 0), gradient)


def hadamard(factor=0.25, before=lab12.SIGNS, after=1):
    return lambda x: (x.reshape(-1, 16) * before @ lab12.HADAMARD * factor * after).reshape(x.shape)


def differing(different=np.not_equal, factor=1, axes=(1, 0)):
    return lambda w, recipe: factor * different(*(lab12.cast(w, recipe, axis=axis) for axis in axes)).mean()


def four_over_six(tops=(4, 6), error=np.abs):
    def four_over_six(block):
        scales = [np.abs(block).max() / top for top in tops]
        ys = [ampscope.quantize(block / s, "e2m1", overflow="saturate") * s for s in scales]
        return min(ys, key=lambda y: error(y - block).mean())
    return four_over_six


def interval(ddof=1, n=8):
    def interval(x):
        half = lab12.T_7 * x.std(ddof=ddof) / math.sqrt(n)
        return x.mean() - half, x.mean() + half
    return interval


def ring(first=1, each=lab13.bf16, sent=lab13.bf16, chunks=True):
    def ring(x):
        n, rows, mean = len(x), sent(x), np.empty(x.shape[1])
        for c in range(n):
            chunk, order = slice(16 * c, 16 * c + 16), [((c if chunks else 0) + first + k) % n for k in range(n)]
            total = rows[order[0], chunk]
            for r in order[1:]:
                total = each(total + rows[r, chunk])
            mean[chunk] = lab13.bf16(lab13.bf16(total) / np.float32(n))
        return mean
    return ring


def tree(halves=lambda rows: (rows[::2], rows[1::2]), each=lab13.bf16):
    def tree(x):
        rows = lab13.bf16(x)
        while len(rows) > 1:
            rows = each(sum(halves(rows)))
        return lab13.bf16(rows[0] / np.float32(len(x)))
    return tree


def power(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def noise(rows, n=None):
    x = np.float64(rows)
    return np.sqrt(x.var(0, ddof=1).sum() / (n or len(x))) / np.linalg.norm(x.mean(0))


FINE = {how: how not in ("ring, bf16", "all-to-all, mxfp8") for how in lab13.CHOICES}
STOPS = {"bf16": 256, "fp16": 2048, "e4m3": 16}
LOWER = {case: case[1] == "mxfp4" for case in lab12.CASES}
TOLD = {name: name == "fp32" for name in lab12.FINAL_LOSSES if name != "plain"}
SATURATED = {(464.0, "nan"): 448, (465.0, "nan"): math.nan, (1e6, "nan"): math.nan, (465.0, "saturate"): 448}
H = (lambda h: 0), (lambda h: 0)
WRONG = [
    ("1.1", [VALUES | {0x0003: 3 * 2.0**-14}], "subnormal"), ("1.1", [{}], "no value for 0x3c00"),
    ("1.2", [decoder(subnormals=False)], "subnormal"), ("1.2", [decoder(infinity=False)], "are infinity"),
    ("1.2", [decoder(nan=False)], "are NaN"), ("1.2", [decoder(signed_zero=False)], "zero has a sign"),
    ("1.3", [encoder(rounding="nearest_away")], "a tie"), ("1.3", [encoder(rounding="toward_zero")], "do not cut off"),
    ("1.3", [encoder(subnormals="flush")], "subnormal"), ("1.3", [encoder(overflow="saturate_all")], "from 65520 on"),
    ("1.3", [without_nan], "NaN must stay NaN"), ("1.3", [lambda x: encoder()(abs(x))], "the sign is"),
    ("1.3", [carry_lost], "with | it is lost"), ("1.3", [lambda x: encoder()(float(np.float32(x)))], "taken for a tie"),
    ("1.3", [lambda x: float(encoder()(x))], "expected an int"), ("1.1", [[1.0]], "expected a dict"),
    ("1.4", [1.0, 2049, 2048, 1638 * 2.0**-14], "largest_odd is not 2049"),
    ("1.4", [1.0, 2047, 2048, 0.1], "tenth is not"),
    ("2.1", [count(threshold=2.0**-24)], "2^-25 is a tie"), ("2.1", [count(zero_is_underflow=True)], "underflow is"),
    ("2.1", [count(infinite_overflows=True)], "did not overflow in it"), ("2.1", [lambda x: 3], "expected a dict"),
    ("2.2", [0.2880, 0.2880, 0.7336], "this is of_nonzero"),
    ("2.2", [10.78, 0.2880, 0.7336], "looks like a percentage"),
    ("2.1", [lambda x: count()(x) | {"zero": x == 0}], "count its"),
    ("2.3", [31, 84, 2.2, 31.4], "become_zero is not 31"), ("2.3", [27.9, 84, 2.2, 27.9], "fits is not 27.9"),
    ("2.4", [2.0**-24], "FP16 keeps"),
    ("2.4", [2.0**-26], "the next double above"), ("2.5", ["a", 13], "which of the two is larger"),
    ("2.5", ["b", 12], "does not carry"), ("2.5", ["b", 8192], "8192 is 2^13"),
    ("3.1", H, "the limit is less than 0.1 %"), ("3.1", [lambda h: lowest(h, h.count), highest], "half are zero"),
    ("3.1", [lambda h: lowest(h, h.nonzero), lambda h: 15 - max(h.exponents)], "below 2^16"),
    ("3.2", [(12, 32), 12.5], "expected the exponent"), ("3.2", [20, (12, 32)], "keep the form"),
    ("3.2", [(12, 32), 31], "less than 2 binades"),
    ("3.2", [(12, 32), 11], "below the window"), ("3.2", [(12, 32), 33], "above the window"),
    ("3.3", [{"inside": "explodes"}, {"inside": "trains worse"}], "expected one of"),
    ("3.3", [{"inside": "trains worse"}, {"inside": "takes no step"}], "every step is skipped"),
    ("4.1", [{case: "fp16" for case in labs.lab4.CASES}], "softmax sums exponentials"),
    ("4.1", [{**{case: ampscope.autocast(*call) for case, call in labs.lab4.CASES.items()},
              "mean of an fp16 tensor": "fp32"}], "mean is on no list"),
    ("4.2", [dict.fromkeys(("layer_norm", "linear", "gelu", "linear2", "add"), "fp16")], "its input is cast to FP32"),
    ("4.3", [["matmul"]], "gives the same format on both"), ("4.3", [["softmax"]], "are missing"),
    ("4.4", ["fp16", "fp16", "fp16", "before .grad"], "has a .grad in FP32"),
    ("4.4", ["fp16", "fp32", "fp32", "before .grad"], "keeps the copy"),
    ("4.4", ["fp16", "fp32", "fp16", "in the optimizer"], "cannot bring it back"),
    ("5.1", [scaler("keeps counting")], "whole interval"), ("5.1", [scaler("infinite")], "infinite in FP32 stays"),
    ("5.1", [scaler("fp64")], "rounds the product to FP32"), ("5.1", [scaler("doubles")], "multiply it by growth"),
    ("5.1", [lambda *o: object()], "has no scale"),
    ("5.2", [["zero_grad", "forward under autocast", "scale(loss).backward()", "clip", "unscale_", "step", "update"]],
     "65,536 times"), ("5.2", [["step"]], "each of these once"),
    ("5.2", [["forward under autocast", "scale(loss).backward()", "zero_grad", "unscale_", "clip", "step", "update"]],
     "throws the gradients away"), ("5.3", [1.0], "divided by 65536"),
    ("5.4", [4, 4], "in_10000"), ("5.4", [5, 8], "before_first_step"), ("5.5", [165, 144], "tie with zero"),
    ("5.5", [166, 166], "2^-128"), ("5.6", [{s: True for s in labs.lab5.STATEMENTS}], "scaled gradients, in backward"),
    ("6.1", [{1e-8: 1e-8, 1e-7: 2**-23, 1e-6: 1e-6, 1e-5: 1e-5}], "multiple of 2^-24"),
    ("6.2", [lambda g, e: 1.0], "v-hat is g^2"), ("6.3", [{0.999: 0, 0.99: 0, 0.95: 0}], "for beta2 = 0.999"),
    ("6.4", [2.0**-8, 2.0**-8], "down is not"), ("6.5", [quarters], "random 16 bits"),
    ("6.5", [not_cleared], "low 16 bits"),
    ("6.6", [kahan_without], "each rounded to BF16"), ("6.6", [lambda w, k, u: w], "return weight, compensation"),
    ("7.1", [{(464.0, "nan"): math.nan}], "448 is even"),
    ("7.1", [{(464.0, "nan"): 448, (465.0, "nan"): math.inf}], "no infinity"),
    ("7.1", [SATURATED | {(-1e6, "saturate"): 448}], "keeps its sign"),
    ("7.2", [lambda x: 448 / x.max()], "the largest magnitude"),
    ("7.2", [lambda x: 448 / max(np.abs(x).max(), 1e-30)], "a tensor of zeros"),
    ("7.3", [lambda b: math.frexp(float(np.abs(b).max()))[1] - 9] * 2, "448 or less"),
    ("7.4", [lambda x: ampscope.quantize(x, "e4m3", overflow="saturate")], "block of 32"),
    ("7.5", [13, 64], "growing a + b"), ("7.5", [14, 128], "2^14 times"),
    ("8.1", [lambda a, b: a != b], "zeros have signs"),
    ("8.1", [lambda a, b: (a != b) | (np.signbit(a) != np.signbit(b))], "two NaN"),
    ("8.1", [lambda a, b: a.view(np.uint32) != b.view(np.uint32)], "whatever their bits"),
    ("8.2", [dict.fromkeys("abcde", "truncates")], "where the right result is subnormal"),
    ("8.3", [lambda gpu, x: 1.0], "that is no mismatch"),
    ("8.3", [lambda gpu, x: max(x[np.isfinite(x) & (gpu(x) != lab8.reference(x))], default=0.0)], "is smaller"),
    ("8.4", ["fp32"], "drop every candidate"), ("8.4", ["hoper"], "expected one of"),
    ("10.1", [lambda m, l, o, s, v: (min(m, s.max()), l, o)], "the largest score so far"),
    ("10.1", [tile(of_l=False)], "l is"), ("10.1", [tile(of_o=False)], "it needs the same factor"),
    ("10.1", [lambda m, l, o, s, v: (m, l)], "return m, l and o"),
    ("10.2", [dict.fromkeys(labs.lab10.TILES, True)], "fused:64x16 does not give"),
    ("10.2", [dict.fromkeys(labs.lab10.TILES, False)], "fused:16x64 gives the bits"),
    ("10.2", [dict.fromkeys(labs.lab10.TILES, "yes")], "True or False"),
    ("10.3", [lambda o, exact: (exact - o) / place(exact)], "its sign"),
    ("10.3", [lambda o, exact: (o - exact) / place(exact) / 2], "8 significant bits"),
    ("10.4", [lambda s: 2 * s.max()], "alone has the maximum"), ("10.4", [np.max], "is multiplied by 2"),
    ("10.4", [lambda s: s.max() * (2 if (s == s.max()).sum() > 1 else 1)], "0 takes its place"),
    ("12.1", [stochastic(chance=lambda part: part >= 0.5)], "the mean of 1,000 roundings of 0.3 is 0.5"),
    ("12.1", [stochastic(chance=lambda part: 0.5)], "the mean of 1,000"),
    ("12.1", [lambda x, u: x[:3]], "1,000 results"),
    ("12.1", [stochastic(grid=np.array([0, 1, 2, 3, 4, 6]))], "its neighbours in E2M1 are 0 and 0.5"),
    ("12.1", [stochastic(signed=False)], "are -0 and -0.5"), ("12.1", [lambda x, u: np.floor(2 * x + u) / 2], "2.5"),
    ("12.1", [lambda x, u: np.where(x == 1.5, 2, stochastic()(x, u))], "stays as it is"),
    ("12.2", [error_of_mean(lambda n: [0] * n), 3], "the casts are all the same"),
    ("12.2", [error_of_mean(lambda n: range(1, n + 1)), 3], "stochastically(gradient, 0)"),
    ("12.2", [error_of_mean(), 2], "the smallest n"),
    ("12.3", [hadamard(factor=1), LOWER], "grown by 4"), ("12.3", [hadamard(before=1), LOWER], "by its sign first"),
    ("12.3", [hadamard(before=1, after=lab12.SIGNS), LOWER], "by its sign first"),
    ("12.3", [lambda x: hadamard()(x).ravel(), LOWER], "the shape of x"),
    ("12.3", [hadamard(), dict.fromkeys(LOWER, True)], "the error is 0.0674 without and 0.0799 with"),
    ("12.3", [hadamard(), dict.fromkeys(LOWER, "yes")], "expected True or False"),
    ("12.4", [differing(np.equal)], "the share that is the same"), ("12.4", [differing(factor=100)], "a percentage"),
    ("12.4", [differing(axes=(1, 1))], "what backward does"),
    ("12.5", [four_over_six(tops=(6,))], "the larger one"),
    ("12.5", [four_over_six(error=np.square)], "not of squares"), ("12.5", [lambda block: block], "yours has 0"),
    ("12.5", [lambda block: block[:4]], "expected 16 numbers"),
    ("12.6", [interval(ddof=0), TOLD], "n - 1"), ("12.6", [interval(n=1), TOLD], "1 / sqrt(n)"),
    ("12.6", [lambda x: (0, 1), TOLD], "times its deviation"), ("12.6", [lambda x: 1, TOLD], "return two numbers"),
    ("12.6", [interval(), TOLD | {"4-over-6": True}], "the interval from -0.0026 to 0.0084"),
    ("12.6", [interval(), dict.fromkeys(TOLD, False)], "is 0 in it"), ("12.6", [interval(), {"fp32": 1}], "no answer"),
    ("12.6", [interval(), {"fp32": "yes"}], "expected True or False"),
    ("13.1", [ring(chunks=False, first=0)], "all chunks are summed from replica 0"),
    ("13.1", [ring(first=0)], "from replica c on"), ("13.1", [ring(each=np.float32)], "after each addition"),
    ("13.1", [ring(sent=np.float32, each=np.float32)], "after each addition"),
    ("13.1", [ring(sent=np.float32)], "round them before"), ("13.1", [lambda x: x], "means, got shape"),
    ("13.1", [lambda x: x[0]], "round them before"),
    ("13.2", [tree(each=np.float32)], "are rounded to BF16"), ("13.2", [ring(chunks=False, first=0)], "one after the"),
    ("13.2", [tree(lambda rows: np.split(rows, 2))], "the first half to the second"),
    ("13.3", [lambda x, y: y[-1] / y[0], lab13.GROWTH], "slope of the line"),
    ("13.3", [power, dict.fromkeys(lab13.GROWTH, "root")], "tree, bf16: from 8 to 256"),
    ("13.3", [power, dict.fromkeys(lab13.GROWTH, "hardly")], "ring, fp32: from 8 to 256"),
    ("13.3", [power, dict.fromkeys(lab13.GROWTH, 0.5)], "'root' or 'hardly'"),
    ("13.4", [STOPS | {"bf16": 128}, 0.25], "it comes further"), ("13.4", [STOPS | {"e4m3": 17}, 0.25], "a tie"),
    ("13.4", [STOPS, 1.0], "divided by 1,024"), ("13.4", [{}, 0.25], "no sum for bf16"),
    ("13.5", [lambda x: noise(x, 1), FINE], "1 / sqrt(N)"), ("13.5", [lambda x: 1.0, FINE], "sum of all variances"),
    ("13.5", [noise, FINE | {"ring, bf16": True}], "ring, bf16: at 1,024 replicas the error is 0.17"),
    ("13.5", [noise, FINE | {"ring, fp16": False}], "a tenth of the noise 0.04"), ("13.5", [noise, {}], "no answer"),
    ("13.5", [noise, dict.fromkeys(FINE, "yes")], "expected True or False"),
]


RIGHT = [  # in other forms than the solutions
    ("2.2", [0.108, 0.288, 0.734]), ("2.5", ["b", 13.137]), ("3.2", [(12, 32), 22.0]),
    ("4.1", [{case: ampscope.autocast(*call).upper() for case, call in labs.lab4.CASES.items()}]),
    ("4.4", ["FP16", "float32", "torch.float16", "before .grad"]),
    ("5.2", [["forward under autocast", "scale(loss).backward()", "unscale_", "clip", "step", "update", "zero_grad"]]),
    ("6.1", [{1e-8: 0.0, 1e-7: 1.1920929e-07, 1e-6: 1.0132789e-06, 1e-5: 1.001358e-05}]),
    ("6.6", [lambda w, k, u: list(kahan(w, k, u))]),
    ("12.1", [lambda x, u: -stochastic()(-x, u)]), ("12.3", [hadamard(), {case: int(v) for case, v in LOWER.items()}]),
    ("12.5", [four_over_six(tops=(6, 4))]), ("12.6", [lambda x: np.array(interval()(x)), TOLD]),
    ("13.1", [lambda x: ampscope.all_reduce(x, "ring", "bf16", divide="after")]), ("13.2", [tree()]),
    ("13.4", [STOPS, np.float32(0.25)]), ("13.5", [noise, FINE]),
]


@pytest.mark.parametrize("exercise, answers", RIGHT, ids=lambda x: x if isinstance(x, str) else "")
def test_right_answers_in_other_forms(exercise, answers):
    assert labs.check(exercise, *answers), labs.check(exercise, *answers)


@pytest.mark.parametrize("exercise, answers, says", WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_answers(exercise, answers, says):
    verdict = labs.check(exercise, *answers)
    assert not verdict and says in verdict.text, verdict


def test_each_exercise_has_a_wrong_answer():
    """Those of labs 9 and 11, which need torch, are in test_labs_torch.py and test_labs_emulation.py."""
    assert {name for name, *_ in WRONG} == {name for name in labs.exercises if name.split(".")[0] not in ("9", "11")}


def test_what_lab_12_says():
    """The losses are those of the report, and the text's figures those of its tensors."""
    report = json.loads((pathlib.Path(__file__).parents[2] / "reports/fp4/report.json").read_text())
    rows = {row["precision"]: [run["final_loss"] for run in row["runs"]] for row in report["groups"][0]["rows"]}
    names = {"fp32": "fp32", "plain": "nvfp4-plain", **{name: f"nvfp4-plain,scaling-{option}" for name, option in (
        ("stochastic rounding", "gradient-rounding=stochastic"), ("Hadamard transform", "hadamard=te"),
        ("weights in 16 x 16", "weight-block=16x16"), ("4-over-6", "4over6=mae,scaling-e4m3-max=256"))}}
    assert {name: [round(loss, 4) for loss in rows[row]] for name, row in names.items()} == lab12.FINAL_LOSSES
    ends = {how: lab12.descent(how)[-1] for how in ("fp32", "nearest", "stochastic")}
    assert ends["fp32"] < 1e-4 and 0.5 < ends["nearest"] < 0.7 and 1 / 80 < ends["stochastic"] < 1 / 60
    x = lab12.tensors()["gradient"]
    values, scales = ampscope.block_quantize(x, "nvfp4-plain,gradient")
    with np.errstate(divide="ignore", invalid="ignore"):
        clipped = np.abs(x) / np.repeat(scales, 16, axis=1) > 6
    mean = np.mean([np.float64(lab12.stochastically(x, seed)) for seed in range(64)], 0)
    left = np.linalg.norm((mean - x)[clipped]) / np.linalg.norm(x)
    assert 0.015 < left < 0.018 and 0.019 < lab12.relative_error(mean, x) < 0.022


def test_what_lab_13_says():
    """The law describes both orders with one number, and the text's figures are those of its gradients."""
    rows, real = lab13.independent(), lab13.gradients()
    for n in (64, 256, 1024):
        ring_, tree_ = (lab13.error(rows[:n], how) for how in ("ring, bf16", "tree, bf16"))
        epsilons = ring_ / math.sqrt(n / 2), tree_ / math.sqrt(math.log2(n) + 2)
        assert np.allclose(epsilons, 0.0018, atol=0.0002)
    errors = {how: lab13.errors(real, how) for how in ("ring, bf16", "tree, bf16", "all-to-all, mxfp8")}
    assert 45 < errors["ring, bf16"][-1] / errors["tree, bf16"][-1] < 55
    tenths = [lab13.noise_of(real[:n]) / 10 for n in lab13.COUNTS]
    beyond = [n for n, e, tenth in zip(lab13.COUNTS, errors["all-to-all, mxfp8"], tenths) if e > tenth]
    assert beyond == [256, 512, 1024]
    for divide in ("before", "after"):
        assert ampscope.all_reduce(np.ones((1024, 1)), "ring", "bf16", divide=divide).item() == 0.25
