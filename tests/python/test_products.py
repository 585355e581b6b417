"""Products and block formats from Python: each element against dot(), others' casts, and refusals in one line."""
import functools
import sys
import itertools
import pickle

import numpy as np
import pytest

import ampscope

ml_dtypes = pytest.importorskip("ml_dtypes")
rng = np.random.default_rng(3)


def normal(format, *shape):
    return ampscope.quantize(rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape), format)


def bits(x):
    return np.asarray(x, np.float32).view(np.uint32)


@pytest.mark.parametrize("row", [row["name"] for row in ampscope.accumulators()])
def test_each_element_is_the_dot_product_of_a_row_and_a_column(row):
    operands = {r["name"]: r["operands"] for r in ampscope.accumulators()}[row].split()
    a_format, b_format = ("fp16", "fp16") if operands == ["any"] else (operands[0], operands[-1])
    a, b = normal(a_format, 5, 70), normal(b_format, 70, 9)
    formats = {"a_format": a_format, "b_format": b_format}
    expected = [[ampscope.dot(line, column, row, **formats) for column in b.T] for line in a]
    assert np.array_equal(bits(ampscope.matmul(a, b, row, **formats)), bits(expected))


def test_an_epilogue_scales_adds_and_rounds():
    a, b, bias = normal("e4m3", 5, 70), normal("e4m3", 70, 9), normal("fp32", 9)
    sums, alpha = ampscope.matmul(a, b, "hopper-wgmma-fp8", a_format="e4m3"), np.float32(0.3)
    ours = ampscope.matmul(a, b, "hopper-wgmma-fp8", a_format="e4m3", alpha=alpha, bias=bias, out_format="bf16")
    assert np.array_equal(ours, ampscope.quantize(sums * alpha + bias, "bf16"))
    exact = np.float64(sums) * np.float64(alpha) + bias  # 48 bits and 24: rounded once, in FP64
    once = ampscope.matmul(a, b, "hopper-wgmma-fp8", a_format="e4m3", alpha=alpha, bias=bias, out_format="e5m2",
                           epilogue="once", saturates=True)
    assert np.array_equal(once, ampscope.quantize(exact, "e5m2", overflow="saturate_all"))
    with pytest.raises(ValueError, match="unknown epilogue 'twice'; known: each, fused, once"):
        ampscope.matmul(a, b, epilogue="twice", a_format="e4m3")
    with pytest.raises(ValueError, match="bias: expected a number for each column"):
        ampscope.matmul(a, b, bias=bias[:3], a_format="e4m3")


@pytest.mark.parametrize("name, steps, group", [("int8-affine-row", 255, 300), ("int4-affine-1x128", 15, 128)])
def test_zero_points_are_those_of_onnx(name, steps, group):
    x = (rng.standard_normal((7, 300)) + 1).astype(np.float32)
    q, scales = ampscope.block_quantize(x, name)
    for first in range(0, 300, group):  # the last group is not full
        part = x[:, first:first + group]
        least, largest = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        scale = (largest - least) / np.float32(steps)
        zero = np.rint(-least / scale)
        codes = np.clip(np.rint(part / scale[:, None]) + zero[:, None], 0, steps)
        assert np.array_equal(q[:, first:first + group], codes - zero[:, None])
        assert np.array_equal(scales[:, first // group], scale)


@pytest.mark.parametrize("fast, row", [(True, "hopper-wgmma-fp8"), (False, "hopper-wgmma-fp8-promote128")])
def test_scaled_mm_is_the_product_scaled_by_both_scales_and_rounded_twice(fast, row):
    a, b = normal("e4m3", 4, 300), normal("e4m3", 300, 6)
    sums = ampscope.matmul(a, b, row + "-split2", a_format="e4m3")
    ours = ampscope.scaled_mm(a, b, 0.7, 1.3, use_fast_accum=fast, split="split2", out_format="fp16")
    assert np.array_equal(ours, ampscope.quantize(sums * (np.float32(0.7) * np.float32(1.3)), "fp16"))
    with pytest.raises(ValueError, match="hardware: expected hopper or ada, got 'volta'"):
        ampscope.scaled_mm(a, b, hardware="volta")
    with pytest.raises(ValueError, match="torch-scaled-mm-ada: no accumulator for e4m3 times e5m2"):
        ampscope.scaled_mm(a, b, hardware="ada", b_format="e5m2")


def test_a_scale_of_one_number_is_one_of_the_tensor_in_any_shape():
    a, b = normal("e4m3", 4, 300), normal("e4m3", 300, 6)
    shapes = [[0.7], np.full((1, 1), 0.7)]
    if torch := sys.modules.get("torch"):
        shapes += [torch.tensor(0.7), torch.tensor([0.7]), torch.full((1, 1), 0.7)]
        with pytest.raises(TypeError, match="scale_a: requires a gradient"):
            ampscope.scaled_mm(a, b, torch.tensor(0.7, requires_grad=True), 1.3)
    for scale in shapes:
        assert np.array_equal(ampscope.scaled_mm(a, b, scale, 1.3), ampscope.scaled_mm(a, b, 0.7, 1.3))


@pytest.mark.parametrize("transposed", [False, True])
def test_scaled_mm_with_scales_of_rows_rounds_after_each_factor_and_the_bias(transposed):
    a, b = normal("e5m2", 5, 300), normal("e4m3", 300, 7)
    x, y = (np.float32(rng.uniform(0.5, 2, shape)) for shape in ((5, 1), (1, 7)))
    bias = ampscope.quantize(rng.standard_normal(7) * 100, "bf16")
    sums = ampscope.matmul(a, b, "hopper-wgmma-fp8-promote128", a_format="e5m2", b_format="e4m3")
    scaled = (sums * y) * x if transposed else (sums * x) * y
    assert not np.array_equal(scaled, sums * (x * y))
    ours = functools.partial(ampscope.scaled_mm, a, b, x, y, a_format="e5m2", b_format="e4m3", transposed=transposed)
    assert np.array_equal(ours(out_format="fp32"), scaled)
    assert np.array_equal(ours(bias=bias), ampscope.quantize(scaled + bias, "bf16"))
    assert np.array_equal(ours(bias=bias, out_format="fp16"), ampscope.quantize(scaled + bias, "fp16"))
    fast = ampscope.matmul(a, b, "hopper-wgmma-fp8", a_format="e5m2", b_format="e4m3")
    assert np.array_equal(ours(use_fast_accum=True, out_format="fp32"), (fast * (y if transposed else x)) *
                          (x if transposed else y))
    if not transposed:
        columns = [ampscope.scaled_mm(a, b[:, i:i + 1], x, y[:, i:i + 1], a_format="e5m2", b_format="e4m3",
                                      bias=bias[i:i + 1]) for i in range(7)]
        assert np.array_equal(np.concatenate(columns, 1), ours(bias=bias))


@pytest.mark.parametrize("arguments, said", [
    ({"bias": np.ones(6)}, "bias goes with scales of rows, .* no source says"),
    ({"transposed": True}, "transposed goes with scales of rows"),
    ({"scale_a": np.ones((4, 1))}, r"expected \(m, 1\) and \(1, n\) of matrices, got \(4, 1\) and \(\)"),
    ({"scale_a": np.ones((4, 1)), "scale_b": np.ones((1, 6)), "hardware": "ada"}, "Hopper's kernel alone"),
    ({"scale_a": np.ones((4, 1)), "scale_b": np.ones((1, 6)), "split": "split2"}, "no split-K"),
    ({"scale_a": np.ones((4, 1)), "scale_b": np.ones((1, 6)), "out_format": "e4m3"}, "bf16, fp16 or"),
    ({"scale_a": np.ones((4, 1)), "scale_b": np.ones((1, 6)), "bias": np.ones(6), "out_format": "fp32"}, "not fp32"),
    ({"scale_a": np.ones((4, 1)), "scale_b": np.ones((1, 6)), "bias": np.ones(5)}, "each of 6 columns, got \\(5,\\)"),
])
def test_scaled_mm_says_what_a_call_does_not_have(arguments, said):
    with pytest.raises(ValueError, match=said):
        ampscope.scaled_mm(normal("e4m3", 4, 32), normal("e4m3", 32, 6), **arguments)


@pytest.mark.parametrize("a, b", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)),
                                  ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
                                  ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((0, 3, 4), (0, 4, 5)), ((2, 3, 0), (0, 5)),
                                  ((6, 1, 64), (6, 64, 70))])
def test_stacks_have_numpys_shapes(a, b):
    """Sums of small integers are exact, whatever the order."""
    a, b = np.float32(rng.integers(-8, 9, a)), np.float32(rng.integers(-8, 9, b))
    for threads in (0, 1):
        ours = ampscope.matmul(a, b, threads=threads)
        assert isinstance(ours, np.ndarray) and ours.dtype == np.float32 and np.array_equal(ours, np.matmul(a, b))
        assert ours.shape == np.matmul(a, b).shape
    assert not a.size or np.array_equal(ampscope.matmul(a.tolist(), b), ours)
    if a.ndim > 1:
        turned = np.ascontiguousarray(np.swapaxes(a, -1, -2))
        assert np.array_equal(ampscope.matmul(np.swapaxes(turned, -1, -2), b), ours)


def test_dot():
    ones = np.ones(4096, np.float32)
    assert ampscope.dot(ones, ones, "fp16", a_format="fp16") == 2048  # where FP16 sums of ones stand still
    assert ampscope.dot(ones[:16], ones[:16] / 2, "exact") == 8
    assert ampscope.dot([1, 2], [3, 4], "hopper-wgmma-fp8", a_format=ml_dtypes.float8_e4m3fn, b_format="E5M2") == 11


@pytest.mark.parametrize("call, error, said", [
    (lambda: ampscope.dot([1, 2], [1, 2], "hopper-wgmma-fp8"), ValueError,
     "accumulator 'hopper-wgmma-fp8' multiplies e4m3 e5m2, not fp32: name the operands' format with a_format"),
    (lambda: ampscope.matmul([[1]], [[1]], "hopper-wgmma-fp8", a_format="fp16"), ValueError, "e4m3 e5m2, not fp16"),
    (lambda: ampscope.matmul([[1]], [[1]], "ada-e4m3", a_format="e4m3", b_format="e5m2"), ValueError, "not e5m2"),
    (lambda: ampscope.dot([1, 0.3], [1, 2], a_format="e4m3"), ValueError,
     r"a\[1\] is 0.3, which is no value of e4m3: pass ampscope.quantize\(a, 'e4m3'\)"),
    (lambda: ampscope.matmul([[1]], [[1e9]], "exact", b_format="bf16"), ValueError, r"b\[0, 0\] is 1e\+09"),
    (lambda: ampscope.matmul([[np.nan]], [[np.inf]], "exact", a_format="e4m3"), ValueError, r"b\[0, 0\] is inf"),
    (lambda: ampscope.dot([1], [1], "x"), ValueError, "unknown accumulator 'x'; known: volta-fp16"),
    (lambda: ampscope.dot([1], [1], 3), TypeError, "accumulator: expected a name of ampscope.accumulators"),
    (lambda: ampscope.dot([1, 2], [1]), ValueError, "operands differ in size"),
    (lambda: ampscope.matmul([[1, 2]], [[1, 2]]), ValueError, "matmul: 2 columns of a, 1 rows of b"),
    (lambda: ampscope.matmul(np.ones((2, 1, 1)), np.ones((3, 1, 1))), ValueError, r"stacks of \(2,\) and \(3,\)"),
    (lambda: ampscope.matmul(2, [[1]]), ValueError, "at least one dimension"),
    (lambda: ampscope.matmul(["a"], [[1]]), TypeError, "expected real numbers"),
    (lambda: ampscope.block_quantize([1.0], "mxfp9"), ValueError, "unknown block format or recipe 'mxfp9'; known: mx"),
    (lambda: ampscope.block_quantize([1.0], "te-block,wieght"), ValueError, "unknown option of a recipe 'wieght'"),
    (lambda: ampscope.block_quantize([1.0], "te-delayed"), ValueError, "te-delayed: scales follow from earlier steps"),
    (lambda: ampscope.block_quantize([1.0], "te-nvfp4,column"), ValueError, "Hadamard"),
    (lambda: ampscope.block_quantize([1.0], "torchao-rowwise-gw-hp,column"), ValueError, "does not scale that operand"),
    (lambda: ampscope.block_quantize([1.0], "mxfp8", axis=1), ValueError, "axis: 1 is none of an array of 1"),
    (lambda: ampscope.block_quantize([1.0], "mxfp8", axis="x"), TypeError, "axis: expected an integer, got 'x'"),
    (lambda: ampscope.block_quantize([1.0], 8), TypeError, r"expected a name of ampscope.recipes\(\), got 8"),
    (lambda: ampscope.block("e2m1", scale="int8"), ValueError, "scales are floating-point numbers, int8 has integers"),
    (lambda: ampscope.block("e8m0"), ValueError, "e8m0 holds scales, not numbers"),
    (lambda: ampscope.block("e2m1", scale_rounding="odd"), ValueError, "unknown rounding 'odd'"),
    (lambda: ampscope.block("e2m2x"), ValueError, "unknown format 'e2m2x'"),
    (lambda: ampscope.block("e2m1", upper="fp32"), ValueError, "unknown upper 'fp32'; known: tensor, line, none"),
    (lambda: ampscope.block("e2m1", shape=(2, 16), upper="line"), ValueError, "need blocks of one line"),
    (lambda: ampscope.block("e2m1", shape=(1, -1)), ValueError, "expected a whole number from 0"),
    (lambda: ampscope.block("e2m1", shape=16), ValueError, r"shape: expected a block such as \(1, 16\), got 16"),
    (lambda: ampscope.block_quantize([1.0], "mxfp8", seed=-3), ValueError, "seed: expected a whole number from 0"),
    (lambda: ampscope.scaled_mm([[1]], [[1]], hardware="blackwell"), ValueError, "hardware: expected hopper or ada"),
    (lambda: ampscope.scaled_mm([[1]], [[1]], split="4"), ValueError, "split: expected the end of an accumulator's"),
    (lambda: ampscope.block_dequantize([1.0], [1.0, 2.0], "mxfp8"), ValueError, "scales: expected one for each block"),
])
def test_what_is_wrong_is_said_in_one_line(call, error, said):
    with pytest.raises(error, match=said) as raised:
        call()
    assert "\n" not in str(raised.value) and "incompatible" not in str(raised.value)


def test_mx_blocks_against_a_plain_twin():
    """OCP MX 1.0, section 6.3, in NumPy and ml_dtypes' cast."""
    x = np.float32(rng.standard_normal((3, 5, 80)) * 2.0 ** rng.integers(-40, 40, (3, 5, 1)))
    x[0, 0] = 0
    for name, dtype, most, emax in (("mxfp8", ml_dtypes.float8_e4m3fn, 448, 8),
                                    ("mxfp4", ml_dtypes.float4_e2m1fn, 6, 2),
                                    ("mxfp8-e5m2", ml_dtypes.float8_e5m2, 57344, 15)):
        for axis in (-1, 0, 1):
            turned = np.moveaxis(x, axis, -1)
            values, scales = ampscope.block_quantize(x, name, axis=axis)
            assert values.shape == x.shape and values.dtype == scales.dtype == np.float32
            values, scales = np.moveaxis(values, axis, -1), np.moveaxis(scales, axis, -1)
            assert scales.shape == (*turned.shape[:-1], -(-turned.shape[-1] // 32))
            for block in range(scales.shape[-1]):
                part = turned[..., 32 * block:32 * block + 32]
                amax = np.abs(part).max(-1, keepdims=True)
                exponent = np.where(amax > 0, np.frexp(amax)[1] - 1 - emax, -127)
                assert np.array_equal(scales[..., block, None], np.ldexp(np.float32(1), exponent))
                clipped = np.clip(np.ldexp(part, -exponent), -most, most)
                assert np.array_equal(values[..., 32 * block:32 * block + 32], clipped.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("upper", (None, "tensor", "line"))
@pytest.mark.parametrize("scale, scale_type", (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2),
                                               ("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)))
@pytest.mark.parametrize("element, cast", (("e2m1", lambda x: x.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)),
                                           ("int8sym", np.rint)))
def test_blocks_of_ones_own_against_a_plain_twin(element, cast, scale, scale_type, upper):
    """The definition of the rule amax in NumPy and ml_dtypes' casts."""
    f32 = np.float32
    x = f32(rng.standard_normal((50, 96)) * 2.0 ** rng.integers(-9, 9, (50, 1)))
    x[3] = x[4, 16:32] = 0
    most, largest = f32({"e2m1": 6, "int8sym": 127}[element]), f32(ampscope.format(scale).max)
    amax = np.abs(x).reshape(50, 6, 16).max(-1)
    whole = {None: None, "tensor": amax.max(keepdims=True), "line": amax.max(1, keepdims=True)}[upper]
    u = f32([[1]]) if whole is None else np.where(whole == 0, 1, whole / most / (largest if largest < 2**64 else 1))
    wanted = np.where(amax == 0, 1, amax / most / u)
    d = np.minimum(wanted, largest).astype(scale_type).astype(f32)
    least = np.ones(1, f"u{np.dtype(scale_type).itemsize}").view(scale_type).astype(f32)
    d = np.where(d == 0, least, d)
    values, scales = ampscope.block_quantize(x, ampscope.block(
        element, scale=scale, shape=(1, 16), upper=upper, scale_rounding="nearest_even"))
    assert np.array_equal(scales, d * u)
    assert np.array_equal(values, np.clip(cast(np.clip(x / np.repeat(d * u, 16, 1), -most, most)), -most, most))


def test_every_named_block_format_is_a_case_of_block():
    x = np.float32(rng.standard_normal((150, 384)) * 2.0 ** rng.integers(-40, 40, (150, 1)))
    rules = (("mx", "mx-floor"), ("nvfp4", "nvfp4"), ("fp8-row", "torchao-pow2"), ("fp8-tensor", "te"),
             ("fp8-", "te-pow2"), ("int8-affine", "affine"), ("int4-affine", "affine"), ("int", "te"))
    seen = set()
    for row in itertools.takewhile(lambda row: not row["name"].startswith("te-"), ampscope.recipes()):
        prefix, rule = next(pair for pair in rules if row["name"].startswith(pair[0]))
        seen.add(prefix)
        element, lengths = row["weight"].split()
        shape = tuple(0 if n == "all" else int(n) for n in lengths.split("x"))
        named = ampscope.block_quantize(x, row["name"])
        same = ampscope.block_quantize(x, ampscope.block(element, shape=shape, rule=rule))
        assert np.array_equal(named.values, same.values) and np.array_equal(named.scales, same.scales), row["name"]
        assert (named.zero_points is None) == (rule != "affine")
    assert len(seen) == len(rules)


@pytest.mark.parametrize("name, bits, shape", (("int8-affine-tensor", 8, (1, 1)), ("int8-affine-row", 8, (40, 1)),
                                               ("int4-affine-1x128", 4, (40, 3))))
def test_zero_points_are_those_of_dynamic_quantize_linear(name, bits, shape):
    """ONNX's definition in NumPy: UINT8 and its zero point, here both 128 less."""
    f32 = np.float32
    x = f32(rng.standard_normal((40, 300)) + rng.integers(-3, 4, (40, 1)))
    x[7] = np.abs(x[7])
    blocks = ampscope.block_quantize(x, name)
    assert blocks.zero_points.shape == blocks.scales.shape == shape
    steps, half = f32(2**bits - 1), 2**(bits - 1)
    height, width = 40 // shape[0], 128 if shape[1] == 3 else 300
    for i, j in np.ndindex(shape):
        part = np.s_[i * height:(i + 1) * height, j * width:(j + 1) * width]
        least, largest = min(x[part].min(), f32(0)), max(x[part].max(), f32(0))
        scale = (largest - least) / steps
        zero = np.clip(np.rint((0 - least) / scale), 0, steps)
        codes = np.clip(np.rint(x[part] / scale) + zero, 0, steps)
        assert blocks.scales[i, j] == scale and blocks.zero_points[i, j] == zero - half
        assert np.array_equal(blocks.values[part] + blocks.zero_points[i, j], codes - half)
    again = pickle.loads(pickle.dumps(blocks))
    assert np.array_equal(again.zero_points, blocks.zero_points)
    values, scales = blocks
    assert values is blocks.values and scales is blocks.scales
    turned = ampscope.block_quantize(np.ascontiguousarray(x.T), name, axis=0)
    assert np.array_equal(turned.zero_points, blocks.zero_points.T)


def test_every_row_of_the_table_of_recipes_comes_back():
    """Numbers within four binades: E4M3 is off by half a unit, or an eighth where the largest of a block saturates. The
    least become zero in INT4, and in MXFP4 where its scale was rounded up."""
    x = np.float32(rng.uniform(1, 16, (130, 256)) * rng.choice([-1, 1], (130, 256)))
    for row in ampscope.recipes():
        if row["name"] in ("te-delayed", "ms-amp"):
            continue
        element, block = row["weight"].split()
        height, width = (extent if n == "all" else int(n) for n, extent in zip(block.split("x"), x.shape))
        name = row["name"] + ("" if row["weight"] == row["input"] and row["weight"] == row["gradient"] else ",weight")
        values, scales = ampscope.block_quantize(x, name)
        assert scales.shape == (-(-130 // height), -(-256 // width)), name
        whole = np.repeat(np.repeat(scales, height, 0), width, 1)[:130, :256]
        if element not in ("int8", "int4"):  # which have zero points, that the values are less of
            assert np.array_equal(ampscope.quantize(values, element), values)
        assert np.array_equal(ampscope.block_dequantize(values, scales, name), values * whole)
        most = 1 if element in ("int4sym", "int4") or "mxfp4" in name else 1 / 8 if element == "e4m3" else 0.51
        assert (np.abs(values * whole - x) / np.abs(x)).max() <= most
        turned = ampscope.block_quantize(np.ascontiguousarray(x.T), name, axis=0)
        assert np.array_equal(turned.values, values.T) and np.array_equal(turned.scales, scales.T)
        assert np.array_equal(ampscope.block_dequantize(*turned, name, axis=0), (values * whole).T)


def test_nvfp4_has_scales_of_e4m3_below_one_of_the_tensor():
    x = np.float32(rng.standard_normal((4, 64)))
    values, scales = ampscope.block_quantize(x, "nvfp4")
    tensor = np.float32(448 * 6) / np.abs(x).max()
    stored = scales * tensor
    assert np.allclose(stored, ampscope.quantize(stored, "e4m3"), rtol=1e-6) and np.isclose(stored.max(), 448)
    assert np.array_equal(values, ampscope.quantize(values, "e2m1"))


def test_small_arrays_and_empty_ones_are_blocks_too():
    for shape in ((), (1,), (33,), (0,), (2, 0), (0, 3)):
        for name in ("mxfp8", "fp8-tensor", "fp8-128x128", "nvfp4"):
            values, scales = ampscope.block_quantize(np.ones(shape), name)
            back = ampscope.block_dequantize(values, scales, name)
            assert values.shape == back.shape == shape and np.array_equal(back, np.ones(shape)), (name, shape)


def test_stochastic_rounding_of_a_recipe_has_a_seed():
    x = np.float32(rng.standard_normal((8, 64)))
    one, again, other = (ampscope.block_quantize(x, "te-nvfp4,gradient", seed=s).values for s in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)


def test_stochastic_rounding_of_a_recipe_takes_its_random_bits():
    x = np.full((64, 1024), 1.25, np.float32)  # beside 6, which sets the scale: a quarter of the way from 1 to 1.5 ...
    x[:, ::16] = 6
    up = {}
    for bits in ("", "random-bits=1", "random-bits=2", "random-bits=8"):
        values = ampscope.block_quantize(x, ",".join(filter(None, ("te-nvfp4,gradient", bits))), seed=1).values
        up[bits] = (np.delete(values, np.s_[::16], 1) > 1).mean()
    assert np.array_equal(up[""], up["random-bits=8"])  # what cvt.rs takes
    assert up["random-bits=1"] != up["random-bits=2"]


def test_tensors_of_torch_give_tensors():
    torch = pytest.importorskip("torch")
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    product = ampscope.matmul(a, b, "exact")
    assert isinstance(product, torch.Tensor) and product.dtype == torch.float32
    assert np.array_equal(product.numpy(), ampscope.matmul(a.numpy(), b.numpy(), "exact"))
    assert isinstance(ampscope.matmul(a.numpy(), b), torch.Tensor) and isinstance(ampscope.dot(b[0], b[0]), float)
    low = a.to(torch.bfloat16)
    assert torch.equal(ampscope.matmul(low, low.mT, "exact", a_format=low.dtype), ampscope.matmul(
        low.float(), low.float().mT, "exact"))
    blocks = ampscope.block_quantize(a, "mxfp8")
    assert all(isinstance(part, torch.Tensor) for part in blocks)
    assert isinstance(ampscope.block_dequantize(*blocks, "mxfp8"), torch.Tensor)
    affine = ampscope.block_quantize(a, "int8-affine-row")
    assert isinstance(affine.zero_points, torch.Tensor)
    other = affine._replace(scales=2 * affine.scales)
    assert torch.equal(other.zero_points, affine.zero_points) and torch.equal(other.scales, 2 * affine.scales)


def test_the_tables_are_what_is_taken():
    assert {"hopper-wgmma-fp8", "exact", "kahan", "fp32", "bf16"} <= {row["name"] for row in ampscope.accumulators()}
    assert {"mxfp8", "nvfp4", "te-block", "deepseek"} <= {row["name"] for row in ampscope.recipes()}
    for row in ampscope.accumulators() + ampscope.recipes():
        assert all(isinstance(text, str) and text and "\n" not in text for text in row.values())


@pytest.mark.parametrize("accumulator", ["blackwell-mxf4nvf4", "fp32", "exact", "hopper-fp16"])
@pytest.mark.parametrize("scale_format", ["e8m0", "e4m3"])
def test_products_of_blocks(accumulator, scale_format):
    """Few small numbers, whose sums are exact in any order, so that the definition is the product of what is read."""
    random = np.random.default_rng(3)
    form, block = ("fp16", 16) if accumulator == "hopper-fp16" else ("e2m1", 16)
    x, y = random.choice([-1.5, -1, 0, 0.5, 2, 3], (5, 40)), random.choice([-1, 0, 1, 6], (40, 7))
    u, v = random.choice([0.5, 1, 2], (5, 3)), random.choice([1, 4], (3, 7))
    got = ampscope.block_matmul(ampscope.Blocks(x, u), ampscope.Blocks(y, v), accumulator, a_format=form,
                                scale_format=scale_format, block=block)
    assert np.array_equal(got, (x * np.repeat(u, block, 1)[:, :40]) @ (y * np.repeat(v, block, 0)[:40]))


def test_scales_enter_the_sums_of_hardware_that_takes_them():
    """2^24, 1 and -2^24 as blocks: an FP32 total loses the 1, a sum of all four blocks at once keeps it."""
    x = np.zeros((1, 64))
    x[0, [0, 16, 32]] = 1, 1, -1
    u, v = np.array([[2.0**12, 1, 2.0**12, 1]]), np.array([[2.0**12], [1], [2.0**12], [1]])
    a, b = ampscope.Blocks(x, u), ampscope.Blocks(np.ones((64, 1)), v)
    by = {name: ampscope.block_matmul(a, b, name, a_format="e2m1", scale_format="e8m0", block=16).item()
          for name in ("fp32", "blackwell-mxf4nvf4")}
    assert by == {"fp32": 0, "blackwell-mxf4nvf4": 1}


@pytest.mark.parametrize("change, message", [
    (dict(scale_format="e8m0"), "scales of a"),
    (dict(a_format="e4m3"), "multiplies"),
    (dict(u=np.ones((4, 3))), "not those of blocks"),
    (dict(u=np.ones((4, 0)), v=np.ones((0, 3))), "not those of blocks"),
    (dict(x=np.ones(32)), "expected matrices"),
    (dict(block=32), "not those of blocks of 32"), (dict(block=0), "not those of blocks of 0"),
])
def test_products_of_blocks_that_do_not_fit(change, message):
    given = dict(x=np.ones((4, 32)), y=np.ones((32, 3)), u=np.full((4, 2), 3.0), v=np.ones((2, 3)), a_format="e2m1",
                 scale_format="e4m3", block=16) | change
    with pytest.raises(ValueError, match=message):
        ampscope.block_matmul(ampscope.Blocks(given["x"], given["u"]), ampscope.Blocks(given["y"], given["v"]),
                              "blackwell-mxf4nvf4", a_format=given["a_format"], scale_format=given["scale_format"],
                              block=given["block"])
