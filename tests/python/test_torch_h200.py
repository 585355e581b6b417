"""The products that PyTorch computed on an NVIDIA H200 have, bit for bit, the sums of our rows of its tensor cores.

tests/data/torch/h200/ holds what was recorded, and products.json which of our ways was found for which case
(device_report.py finds it again). Here every way is computed once more and compared with every case: with all elements
of the product through its hash, and one by one with those that were kept. Inputs follow from the rule in rules.py.
"""
import collections
import pathlib
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parent.parent / "data" / "torch"
sys.path.insert(0, str(SCRIPTS))

from device import compare_products  # noqa: E402
from device.products import Found, Product  # noqa: E402
from device.recording import Recording, digest  # noqa: E402
from device.sums import Way  # noqa: E402

H200 = SCRIPTS / "h200"
LARGE = 2048  # products of that size take long: only device_report.py computes them
# Products a part where K is split, by type, size and K; of other sizes and K it is one chain.
HALF_RUNS = {(dtype, *size, k): run for dtype in ("fp16", "bf16") for size, k, run in (
    ((64, 64), 4096, 1408), ((64, 64), 16384, 1408), ((128, 128), 4096, 1408), ((256, 256), 4096, 1408),
    ((256, 256), 16384, 2752), ((16, 512), 4096, 1408))}
HALF_RUNS |= {("fp16", 128, 128, 16384): 1408, ("bf16", 128, 128, 16384): 1536,
              ("fp16", 16, 512, 16384): 1408, ("bf16", 16, 512, 16384): 1536}
FP8_RUNS = {64: 2816, 128: 2816, 256: 5504}


def recording_of(item):
    return Recording(str(H200 / f"{item}.npz"))


def found_in(item):
    """What was found, by the number of the case."""
    return {number: found for of, found, numbers in compare_products.read(H200 / "products.json") if of == item
            for number in numbers}


@pytest.fixture(scope="module")
def matmul():
    return recording_of("matmul")


def counted(recording, expected, name_of):
    """How many elements of what is expected(number, case) are compared with the device's, by the name of the case, and
    how many of all differ. A case without a name takes no part."""
    counts = collections.Counter()
    pairs = [(number, expected(number, case)) for number, case in enumerate(recording.cases)
             if "error" not in case and case["m"] < LARGE and name_of(case)]
    for case, _, elements, differences in compare_products.compared(recording, pairs):
        counts[name_of(case)] += elements
        counts["differences"] += differences
    return counts


def half(number, case):
    """What is expected of FP16 and BF16 products: a chain of Hopper's tensor core, in runs added in order in FP32, and
    a bias added in FP32 before the one rounding."""
    run = HALF_RUNS.get((case["dtype"], case["m"], case["n"], case["k"]), 0)
    way = Way(f"hopper-wgmma-{case['dtype']}", runs=0 if "no split" in case["setting"] else run)
    return Found(way, "", "bias added in FP32" if "bias" in case["op"] else "", "")


def test_fp16_and_bf16_products(matmul):
    def name_of(case):
        kind = next((kind for kind in ("bias", "to fp32") if kind in case["op"]), "")
        return case["dtype"] != "fp32" and case["setting"] != "fp16 sums" and f"{case['dtype']} {kind}".strip()

    assert counted(matmul, half, name_of) == {
        "fp16": 1732608, "fp16 to fp32": 1560576, "fp16 bias": 114688,
        "bf16": 1732608, "bf16 to fp32": 1560576, "bf16 bias": 114688, "differences": 0}


@pytest.mark.parametrize("dtype, setting, row, operands, unknown, elements", [
    ("fp16", "fp16 sums", "hopper-wgmma-fp16-acc16", "", 0, 172032),
    ("fp32", "high", "hopper-wgmma-tf32", "nearest_even to TF32", 2, 835584),
    ("fp32", "highest", "fp32", "", 0, 802816)])
def test_products_in_parts_of_many_sizes(matmul, dtype, setting, row, operands, unknown, elements):
    """Sums in FP16, TF32 and FP32: each way to split K is in products.json."""
    found = found_in("matmul")
    cases = {number for number, case in enumerate(matmul.cases)
             if "error" not in case and case["m"] < LARGE and (case["dtype"], case["setting"]) == (dtype, setting)}
    known = cases & found.keys()
    assert len(cases - known) == unknown
    ways = collections.Counter((found[number].way.row, found[number].operands) for number in known)
    in_fp32 = {("fp32", ""): 1} if setting == "high" else {}  # of 16x512 with K = 256, which ran without tensor cores
    assert ways == {(row, operands): len(known) - len(in_fp32)} | in_fp32
    chosen = [matmul.cases[number] for number in known]
    counts = counted(matmul, lambda number, case: found[number], lambda case: "elements" if case in chosen else "")
    assert counts == {"elements": elements, "differences": 0}


def scaled(number, case):
    """What is expected of _scaled_mm: one chain, whose sum is kept short with fast accumulation and moved to FP32 after
    each 128 products without; and where the scales come in. K is split in one case only."""
    row = "hopper-wgmma-fp8" if case["fast"] else "hopper-wgmma-fp8-promote128"
    split = case["fast"] and case["scales"] == "one" and case["k"] == 16384
    endings = {"one": "", "rows": "times scale b, times scale a"}
    return Found(Way(row, runs=FP8_RUNS[case["m"]] if split else 0), "",
                 endings.get(case["scales"], "times (scale a times scale b)"), "")


def test_scaled_products():
    def name_of(case):
        return f"{'fast' if case['fast'] else 'not fast'}, {case['scales']}"

    each = {"one": 827392, "powers": 110592, "odd": 110592, "rows": 765952}
    assert counted(recording_of("scaled_mm"), scaled, name_of) == {
        f"{fast}, {scales}": count for fast in ("fast", "not fast") for scales, count in each.items()} | {
        "differences": 0}


def alter(recording, key):
    """Flips the lowest bit of the first word of an array."""
    base, planes = recording.arrays[key]
    planes = planes.copy()
    planes[0, 0] ^= 1 if not base else 2
    recording.arrays[key] = base, planes


def kept(recording):
    """What is said of each tensor of which bits were kept."""
    for case in recording.cases:
        yield from (said for said in case.values() if isinstance(said, dict) and "key" in said)


@pytest.mark.parametrize("item, arrays", [("matmul", 259), ("scaled_mm", 257), ("attention", 120),
                                          ("elementwise", 184), ("trained", 4)])
def test_arrays_have_the_bits_whose_hash_names_them(item, arrays):
    """Also of what is only measured, not equal to ours: attention, elementwise ops, losses."""
    recording = recording_of(item)
    tensors = {said["key"]: said for said in kept(recording)}
    assert tensors.keys() == recording.arrays.keys() and len(tensors) == arrays
    for key, said in tensors.items():
        assert digest(recording.bits(said)) == key
        before = recording.arrays[key]
        alter(recording, key)
        assert digest(recording.bits(said)) != key
        recording.arrays[key] = before


def test_a_word_that_is_altered_is_found(matmul):
    recording = recording_of("matmul")
    number, case = next((number, case) for number, case in enumerate(recording.cases) if case["k"] == 1024)
    expected = half(number, case)
    assert Product(recording, case).differences(expected) == (64 * 64, 0)
    alter(recording, case["out"]["key"])
    assert Product(recording, case).differences(expected) == (64 * 64, 1)


def test_another_row_or_another_hash_is_found(matmul):
    number, case = next((number, case) for number, case in enumerate(matmul.cases)
                        if case["k"] == 1024 and case["op"] == "nt to fp32")
    product = Product(matmul, case)
    expected = half(number, case)
    size, differences = product.differences(expected._replace(way=Way(f"ampere-{case['dtype']}")))
    assert size == 64 * 64 and differences > size // 10
    product.said = product.said | {"sha": "0" * 16}
    assert product.differences(expected)[1] == 1
