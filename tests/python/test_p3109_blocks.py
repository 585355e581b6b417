"""Block operations of IEEE P3109 against their definitions in exact fractions."""
import itertools
from fractions import Fraction

import ampscope
import numpy as np
import pytest

SMALL, WIDE, SCALE = "binary8p3se", "bf16", "binary8p1ue"


def values(form):
    """The finite values of a format of 8 bits, from its codes."""
    table = ampscope.decode(np.arange(256, dtype=np.uint8), form)
    return sorted({Fraction(float(v)) for v in table if np.isfinite(v)})


def nearest(x, form, table=None):
    """The value next to x, ties to the even significand: of the table's neighbours, the one whose code is even."""
    table = table or values(form)
    above = next(v for v in table if v >= x)
    below = max(v for v in table if v <= x)
    if below == above or x - below != above - x:
        return below if x - below < above - x else above
    return next(v for v in (below, above) if int(ampscope.encode(np.float32(v), form)) % 2 == 0)


def fractions(block):
    return [Fraction(block.scale) * Fraction(float(e)) for e in block.elements]


def some_block(seed, scale=0.25):
    rng = np.random.default_rng(seed)
    elements = ampscope.quantize(rng.normal(0, 4, 12).astype(np.float32), SMALL)
    return ampscope.P3109Block(scale, elements, SCALE, SMALL)


def test_a_block_of_numbers_has_the_largest_as_its_scale():
    x = ampscope.quantize(np.random.default_rng(1).normal(0, 3, 40).astype(np.float32), WIDE)
    made = ampscope.p3109_block(x, SMALL, scale_format=SCALE, from_format=WIDE)
    largest = max(abs(Fraction(float(v))) for v in x)
    assert Fraction(made.scale) == nearest(largest, SCALE)
    table = values(SMALL)
    assert [Fraction(float(e)) for e in made.elements] == [
        nearest(Fraction(float(v)) / Fraction(made.scale), SMALL, table) for v in x]
    given = ampscope.p3109_block(x, SMALL, scale_format=SCALE, scale=2.0, from_format=WIDE)
    assert given.scale == 2 and float(given.elements[0]) == nearest(Fraction(float(x[0])) / 2, SMALL, table)


@pytest.mark.parametrize("name, compute", [("Add", lambda a, b: a + b), ("Multiply", lambda a, b: a * b),
                                           ("Subtract", lambda a, b: a - b)])
def test_operations_are_exact_and_projected_once(name, compute):
    x, y = some_block(2), some_block(3, 0.5)
    out = ampscope.p3109_block_operate(name, x, y, format=SMALL, scale_format=SCALE, scale=0.5)
    table = values(SMALL)
    assert out.scale == 0.5 and (out.scale_format, out.format) == (SCALE, SMALL)
    assert [Fraction(float(e)) for e in out.elements] == [
        nearest(compute(a, b) * 2, SMALL, table) for a, b in zip(fractions(x), fractions(y))]


def test_reductions_and_numbers_are_exact_and_projected_once():
    x, y = some_block(4), some_block(5, 2.0)
    table = values(SMALL)

    def reduced(name, *blocks):
        return Fraction(ampscope.p3109_block_operate(name, *blocks, format=SMALL))

    assert reduced("ReduceAdd", x) == nearest(sum(fractions(x)), SMALL, table)
    assert reduced("DotProduct", x, y) == nearest(sum(a * b for a, b in zip(fractions(x), fractions(y))), SMALL, table)
    short = x._replace(elements=x.elements[:4])
    product = list(itertools.accumulate(fractions(short), lambda a, b: a * b))[-1]
    assert reduced("ReduceMultiply", short) == nearest(product, SMALL, table)
    numbers = ampscope.p3109_block_operate("ConvertFromBlock", x, format=SMALL)
    assert [Fraction(float(n)) for n in numbers] == [nearest(f, SMALL, table) for f in fractions(x)]


def test_zeros_and_nan_are_as_the_report_has_them():
    x = np.float32([1, -2, 0])
    zero = ampscope.p3109_block(np.zeros(3, np.float32), SMALL, scale_format="binary8p3ue")
    assert zero.scale == 0 and not zero.elements.any()  # x / 0 in a block is 0
    lost = ampscope.p3109_block(x, SMALL, scale_format="binary8p3ue", scale=float("nan"))
    assert np.isnan(lost.scale) and np.isnan(lost.elements).all()
    with_nan = ampscope.p3109_block(np.float32([np.nan, 2]), SMALL, scale_format=SCALE)
    assert with_nan.scale == 2 and np.isnan(with_nan.elements[0]) and with_nan.elements[1] == 1


@pytest.mark.parametrize("call, message", [
    (lambda x: ampscope.p3109_block_operate("Add", x, format=SMALL, scale_format=SCALE, scale=1.0),
     "Add: expected 2 blocks, got 1"),
    (lambda x: ampscope.p3109_block_operate("Add", x, x, format=SMALL), "Add: expected scale= and scale_format="),
    (lambda x: ampscope.p3109_block_operate("ReduceAdd", x, format=SMALL, scale=1.0, scale_format=SCALE),
     "ReduceAdd: expected no scale"),
    (lambda x: ampscope.p3109_block_operate("ReduceAdd", format=SMALL), "ReduceAdd: expected blocks, got none"),
    (lambda x: ampscope.p3109_block_operate("DotProduct", x, x._replace(elements=x.elements[:3]), format=SMALL),
     "blocks of 12 and 3 elements"),
    (lambda x: ampscope.p3109_block_operate("CompareLess", x, x, format=SMALL, scale_format=SCALE, scale=1.0),
     "block operation CompareLess: expected"),
    (lambda x: ampscope.p3109_block_operate("Add", x, x, format=SMALL, scale_format=SCALE, scale=3.0), "scale"),
    (lambda x: ampscope.p3109_block([1.0], SMALL, scale_format=SCALE, scale=1.0, scale_policy={}), "has no effect"),
    (lambda x: ampscope.p3109_block_operate("ReduceAdd", x._replace(elements=np.float32([0.3])), format=SMALL), "0.3"),
])
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(some_block(1))
