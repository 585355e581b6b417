"""Conversions and arithmetic from Python: every code against NumPy and ml_dtypes, every kind of array, bad input."""
import numpy as np
import pytest

import ampscope

ml_dtypes = pytest.importorskip("ml_dtypes")
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
         "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz}


def codes_of(format):
    f = ampscope.format(format)
    return np.arange(2**f.bits, dtype=np.uint8 if f.bits <= 8 else np.uint16)


@pytest.mark.parametrize("format", TYPES)
def test_every_code_is_the_value_that_others_read(format):
    codes = codes_of(format)
    ours = ampscope.decode(codes, format)
    theirs = codes.view(TYPES[format]).astype(np.float32)
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(ours)[~np.isnan(ours)], np.signbit(theirs)[~np.isnan(ours)])
    finite = ~np.isnan(ours)
    assert np.array_equal(ampscope.encode(ours, format)[finite], codes[finite])


@pytest.mark.parametrize("format", TYPES)
def test_floats_round_as_others_round_them(format):
    """Floats of all exponents and signs, with 2^14 - 1 between them, and the neighbours of every value's midpoint."""
    x = np.arange(0, 2**32, 2**14 - 1, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = np.unique(ampscope.decode(codes_of(format), format))
    values = values[np.isfinite(values)]
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    x = np.concatenate([x, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))])
    ours = ampscope.encode(x, format, dtype=TYPES[format], profile="ml_dtypes")
    with np.errstate(all="ignore"):
        theirs = x.astype(TYPES[format])
    mine, other = ours.astype(np.float32), theirs.astype(np.float32)
    assert np.array_equal(mine, other, equal_nan=True)
    assert np.array_equal(ampscope.quantize(x, format, profile="ml_dtypes"), other, equal_nan=True)


def test_arrays_of_every_kind_are_taken():
    x = [[1.0, 2.5], [-3.25, 1000.0]]
    expected = np.float32(x)
    for array in (x, np.float64(x), np.float32(x).T.copy().T, np.asarray(x, ml_dtypes.bfloat16), np.float16(x)):
        y = ampscope.quantize(array, "bf16")
        assert y.dtype == np.float32 and y.shape == (2, 2)
        assert np.array_equal(y, ampscope.quantize(np.asarray(array).astype(np.float64), "bf16"))
    assert np.array_equal(ampscope.quantize(np.arange(5), "fp32"), np.arange(5))
    assert ampscope.quantize(np.float32(0.1), "e4m3").shape == ()
    assert ampscope.quantize(np.empty((0, 3), np.float32), "fp16").shape == (0, 3)
    assert np.array_equal(ampscope.quantize(1 + 2**-30, "fp32", rounding="up"), np.float32(1 + 2**-23))
    assert np.array_equal(expected, np.float32(x))  # inputs stay as they are


def test_arrays_are_not_copied_where_their_layout_allows():
    from ampscope import _arrays
    for dtype in (np.float32, np.float64):
        x = np.ones((3, 4), dtype)
        assert _arrays.as_floats(x) is x
    codes = np.zeros(4, np.uint16)
    assert np.shares_memory(_arrays.as_codes(codes, "fp16"), codes)
    assert not np.shares_memory(_arrays.as_floats(np.ones((3, 4), np.float32).T), x)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.1, 448.0, 1e-8, -3.0])
    for dtype, format in ((torch.float8_e4m3fn, "e4m3"), (torch.bfloat16, "bf16"), (torch.float8_e5m2, "e5m2")):
        assert torch.equal(ampscope.quantize(x.to(dtype), "fp32"), x.to(dtype).float())
        typed = ampscope.encode(x, format, dtype=dtype)
        assert typed.dtype == dtype and torch.equal(typed.float(), x.to(dtype).float())


def test_stochastic_rounding_by_seed():
    x = np.full(100_000, 1 + 2**-9, np.float32)  # a quarter of BF16's step above 1
    one = ampscope.quantize(x, "bf16", rounding="stochastic", seed=1)
    assert np.array_equal(one, ampscope.quantize(x, "bf16", rounding="stochastic", seed=1, threads=1))
    assert not np.array_equal(one, ampscope.quantize(x, "bf16", rounding="stochastic", seed=2))
    assert abs((one > 1).mean() - 0.25) < 0.01
    parts = [ampscope.quantize(x[at:at + 25_000], "bf16", rounding="stochastic", seed=1, first_index=at)
             for at in range(0, 100_000, 25_000)]
    assert np.array_equal(one, np.concatenate(parts))


def test_arithmetic_is_correctly_rounded():
    values = ampscope.decode(codes_of("fp16"), "fp16")
    rng = np.random.default_rng(1)
    a, b = rng.choice(values, 50_000), rng.choice(values, 50_000)
    with np.errstate(all="ignore"):  # FP32 holds sums and products of FP16 well enough for one more rounding
        for ours, exact in ((ampscope.add, a.astype(np.float64) + b), (ampscope.mul, a.astype(np.float64) * b),
                            (ampscope.sub, a.astype(np.float64) - b)):
            once = exact.astype(np.float16).astype(np.float32)
            assert np.array_equal(ours(a, b, format="fp16"), once, equal_nan=True)
    assert ampscope.fma(1.0, 2.0, 3.0, format="e5m2") == 5


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="unknown format 'e9m9'|e9m9"):
        ampscope.quantize([1.0], "e9m9")
    with pytest.raises(ValueError, match="unknown rounding 'near'; known: nearest_even"):
        ampscope.quantize([1.0], "bf16", rounding="near")
    with pytest.raises(TypeError):
        ampscope.quantize(["a"], "bf16")
    with pytest.raises(TypeError, match="complex"):
        ampscope.quantize(np.array([1j]), "bf16")
    with pytest.raises(ValueError, match="2\\^53"):
        ampscope.quantize(np.array([2**60]), "bf16")
    with pytest.raises(ValueError, match="not in FP32"):
        ampscope.encode(np.array([0.1]), "bf16")


def test_a_format_knows_its_facts():
    f = ampscope.format("e4m3")
    assert (f.bits, f.max, f.min_normal, f.min_subnormal, f.epsilon) == (8, 448, 2**-6, 2**-9, 0.125)
    assert f == ampscope.format("e4m3") and f != ampscope.format("e5m2") and hash(f) == hash(ampscope.format("e4m3"))
    assert (f.first_overflow, f.tie_overflows, f.last_to_zero, f.binades) == (464, False, 2**-10, 18)
    assert repr(f) == "ampscope.format('e4m3')" and f.facts()["name"] == "e4m3"
    assert {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"} <= set(ampscope.formats)
    for name in ampscope.formats:
        if name in TYPES and name != "fp16":
            info = ml_dtypes.finfo(TYPES[name])
            assert ampscope.format(name).max == float(info.max)
            assert ampscope.format(name).min_normal == float(info.smallest_normal)


def test_formats_of_ieee_p3109_and_integers_by_name():
    f = ampscope.format("Binary8p3")
    assert (str(f), f.bits, f.max, f.min_subnormal, f.has_infinity) == ("binary8p3se", 8, 49152, 2**-17, True)
    values = ampscope.decode(np.uint8([0x40, 0x7F, 0x80, 0xFF]), f)
    assert np.array_equal(values, [1, np.inf, np.nan, -np.inf], equal_nan=True)
    saturated = ampscope.quantize([-np.inf, -7, 1e10], "binary8p3uf", profile="p3109-sat-finite")
    assert saturated.tolist() == [0, 0, ampscope.format("binary8p3uf").max]
    with pytest.raises(ValueError, match="beyond those of FP32"):
        ampscope.format("binary10p1se")
    x = np.float32([-1000, -127.6, -2.5, 0.4, 1.5, 1000])
    assert ampscope.quantize(x, "int8").tolist() == [-128, -128, -2, 0, 2, 127]
    assert ampscope.encode(x, "int8sym").view(np.int8).tolist() == [-127, -127, -2, 0, 2, 127]
    assert ampscope.decode(np.int8([-128, -1, 5]).view(np.uint8), "int8").tolist() == [-128, -1, 5]
    assert ampscope.quantize(x, "e0m3").tolist() == [-7, -7, -2, 0, 2, 7]


@pytest.mark.parametrize("variant, ups", [("a", 76), ("b", 77), ("c", 77)])
def test_stochastic_rounding_with_few_bits(variant, ups):
    x = np.full(1 << 20, 1 + 0.3 / 8, np.float32)  # 0.3 of the way to the next E4M3 value; 0.3 * 256 = 76.8
    rounded = ampscope.quantize(x, "e4m3", rounding="stochastic", random_bits=8, stochastic_variant=variant, seed=1)
    assert abs((rounded > 1).mean() - ups / 256) < 4 * (0.21 / x.size) ** 0.5
    for bits in (0, 33):
        with pytest.raises(ValueError, match="random_bits: expected 1 to 32"):
            ampscope.quantize(x, "e4m3", rounding="stochastic", random_bits=bits)
    with pytest.raises(ValueError, match="random_bits changes nothing: the rounding is nearest_even, not stochastic"):
        ampscope.quantize(x, "e4m3", random_bits=8)
    with pytest.raises(ValueError, match="stochastic_variant changes nothing: the rounding is up"):
        ampscope.encode(x, "e4m3", rounding="up", stochastic_variant=variant)


def test_a_number_in_each_format():
    rng = np.random.default_rng(2)
    for x in [*rng.standard_normal(100) * 10.0 ** rng.integers(-12, 12, 100), 0.0, -0.0, np.inf, np.nan]:
        for stored in ampscope.store_number(x, ["fp16", "bf16", "e4m3", "e5m2"], overflow="saturate"):
            once = ampscope.quantize([x], stored.format, overflow="saturate")[0]
            assert np.array_equal(stored.value, once, equal_nan=True)
            assert stored.error == (float(once) - x if x and np.isfinite(x) else None)
            if stored.neighbours:
                assert ampscope.decode(np.uint32([stored.neighbours[0]]), stored.format)[0] <= once
    tenth, = ampscope.store_number("0.1" + "0" * 400 + "1", ["bf16"])
    assert tenth.code == 0x3dcd and not tenth.is_exact and tenth.flags == ["inexact"]
    assert ampscope.store_number(1e6, ["fp16"])[0].flags == ["inexact", "overflow"]
    assert [(s.in_place_of, s.flags) for s in ampscope.store_number("nan", ["e2m1", "fp16"])] == [
        ("NaN", ["invalid"]), (None, [])]
    assert ampscope.store_number("inf", ["e4m3"])[0].in_place_of == "infinity"
    assert len(ampscope.store_number(1.0)) == len(ampscope.formats)
    with pytest.raises(ValueError, match="neither a format nor a number"):
        ampscope.store_number("one", ["fp16"])
