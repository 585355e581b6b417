"""Operations by name from Python: against NumPy in double precision and ml_dtypes' casts, and refusals in one line."""
import numpy as np
import pytest

import ampscope

ml_dtypes = pytest.importorskip("ml_dtypes")
rng = np.random.default_rng(5)
FUNCTIONS = {"Exp": np.exp, "Exp2": np.exp2, "ExpMinusOne": np.expm1, "Log": np.log, "Log2": np.log2,
             "LogOnePlus": np.log1p, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "ArcSin": np.arcsin,
             "ArcCos": np.arccos, "ArcTan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh,
             "ArcSinh": np.arcsinh, "ArcCosh": np.arccosh, "ArcTanh": np.arctanh, "Sqrt": np.sqrt,
             "Abs": np.abs, "Negate": np.negative}
PAIRS = {"Add": np.add, "Subtract": np.subtract, "Multiply": np.multiply, "Hypot": np.hypot, "ArcTan2": np.arctan2,
         "Minimum": np.minimum, "Maximum": np.maximum, "MinimumNumber": np.fmin, "MaximumNumber": np.fmax}
COMPARISONS = {"CompareLess": np.less, "CompareLessEqual": np.less_equal, "CompareEqual": np.equal,
               "CompareGreater": np.greater, "CompareGreaterEqual": np.greater_equal}


def same(a, b):
    """Equal as the report has it: NaN is NaN, and there is no -0."""
    return np.array_equal(np.float32(a), np.float32(b), equal_nan=True)


@pytest.mark.parametrize("name, cast, codes", (("e4m3", ml_dtypes.float8_e4m3fn, 256),
                                               ("e5m2", ml_dtypes.float8_e5m2, 256),
                                               ("bf16", ml_dtypes.bfloat16, 65536)))
def test_functions_are_those_of_numpy_rounded_once(name, cast, codes):
    """Every code; a double is right to 53 bits, and none of these lies so near to the middle of two numbers."""
    x = ampscope.decode(np.arange(codes), name)
    x = x + np.float32(0)  # -0 counts as 0
    with np.errstate(all="ignore"):
        for operation, function in FUNCTIONS.items():
            expected = function(np.float64(x)).astype(cast)
            got = ampscope.operate(operation, x, format=name)
            assert got.dtype == np.float32 and same(got, expected), operation


def test_pairs_and_comparisons_are_those_of_numpy():
    x, y = (v.ravel() + np.float32(0) for v in np.meshgrid(*[ampscope.decode(np.arange(256), "e4m3")] * 2))
    with np.errstate(all="ignore"):
        for operation, function in PAIRS.items():
            exact = function(np.float64(x), np.float64(y))
            if operation == "ArcTan2":
                exact[(x == 0) & (y == 0)] = np.nan  # the report's
            expected = exact.astype(ml_dtypes.float8_e4m3fn)
            assert same(ampscope.operate(operation, x, y, format="e4m3"), expected), operation
    for operation, function in COMPARISONS.items():
        got = ampscope.operate(operation, x, y, format="e4m3")
        assert got.dtype == bool and np.array_equal(got, function(x, y)), operation


def test_classes_and_neighbours():
    x = ampscope.decode(np.arange(256), "binary8p3")
    kinds = ampscope.operate("Class", x, format="binary8p3")
    assert kinds.dtype == np.uint8
    least, normal = ampscope.format("binary8p3").min_subnormal, ampscope.format("binary8p3").min_normal
    bounds = (-np.inf, -normal, -least, 0, least, normal, np.inf)
    for value, kind in zip(x, kinds):
        below = sum(value >= bound for bound in bounds)
        expected = 0 if np.isnan(value) else below if value >= 0 else {True: 1}.get(
            value == -np.inf, 2 if value <= -normal else 3)
        assert kind == expected, value
    above = ampscope.operate("NextGreaterThan", x, format="binary8p3")
    order = np.sort(x[~np.isnan(x)])
    assert np.array_equal(above[np.argsort(x)][:254], order[1:])


def test_shapes_policies_and_threads():
    x = ampscope.quantize(rng.standard_normal((3, 1, 5)), "bf16")
    y = ampscope.quantize(rng.standard_normal((4, 1)), "bf16")
    assert ampscope.operate("Hypot", x, y, format="bf16").shape == (3, 4, 5)
    down, up = (ampscope.operate("Exp", x, format="bf16", rounding=way) for way in ("down", "up"))
    assert (down < up).all()
    exact = np.exp(np.float64(x))
    assert (down < exact).all() and (exact < up).all()
    many = np.full(100_000, 0.5)
    drawn = [ampscope.operate("Exp", many, format="e4m3", rounding="stochastic", seed=1, threads=n) for n in (1, 2)]
    assert np.array_equal(*drawn) and set(np.unique(drawn[0])) == {1.625, 1.75}
    assert abs(drawn[0].mean(dtype=np.float64) - np.exp(0.5)) < 4 * 0.0625 / 100_000 ** 0.5  # no bias
    assert ampscope.operate("Exp", [], format="bf16").shape == (0,)
    assert ampscope.operate("Exp", 1024, format="binary8p3", profile="p3109-sat-none") == np.inf


def test_what_is_taken_and_what_is_not():
    torch = pytest.importorskip("torch")
    names = {row["name"]: row for row in ampscope.operations()}
    assert len(names) == 82 and names["FAA"]["operands"] == 3 and names["Class"]["result"] == "class"
    assert isinstance(ampscope.operate("Exp", torch.zeros(2), format="bf16"), torch.Tensor)
    for arguments, error, said in (
            (("Expo", 1), ValueError, "unknown operation 'Expo'; known: add, sub"),
            (("Exp",), ValueError, "Exp: expected 1 operands"),
            (("Hypot", 1), ValueError, "Hypot: expected 2 operands"),
            (("Exp", 1.3), ValueError, "operand is 1.3, which is no value of bf16"),
            (("NextLessThan", 1), ValueError, "needs a format with one NaN"),
            (("Exp", torch.zeros(1, requires_grad=True)), TypeError, "requires a gradient")):
        with pytest.raises(error, match=said) as raised:
            ampscope.operate(*arguments, format="bf16")
        assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="holds scales"):
        ampscope.operate("Exp", 1, format="e8m0")
