"""Names that people type, arrays that come back as they came, and what was silently wrong: refused in one line."""
import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import ampscope

ml_dtypes = pytest.importorskip("ml_dtypes")
torch = pytest.importorskip("torch")
NAMES = {
    "fp32": ["FP32", "float32", "Float32", np.float32, np.dtype(np.float32), torch.float32, torch.float],
    "fp16": ["FP16", "float16", "half", np.float16, np.half, np.dtype("float16"), torch.float16, torch.half],
    "bf16": ["BF16", "bfloat16", "BFloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), torch.bfloat16],
    "tf32": ["TF32"],
    "e4m3": ["E4M3", "e4m3fn", "float8_e4m3fn", ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn],
    "e5m2": ["E5M2", "float8_e5m2", ml_dtypes.float8_e5m2, torch.float8_e5m2],
    "e4m3fnuz": ["E4M3FNUZ", ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz],
    "e5m2fnuz": [ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz],
    "e4m3b11fnuz": [ml_dtypes.float8_e4m3b11fnuz],
    "e4m3ieee": ["E4M3IEEE", ml_dtypes.float8_e4m3],
    "e3m4": ["E3M4", ml_dtypes.float8_e3m4],
    "e8m0": [ml_dtypes.float8_e8m0fnu, torch.float8_e8m0fnu],
    "int8": ["INT8", np.int8, np.dtype(np.int8), torch.int8],
    "int4": ["INT4", ml_dtypes.int4],
    "mxint8": ["MXINT8"],
    "e0m3": ["E0M3"],
    "e3m2": [ml_dtypes.float6_e3m2fn],
    "e2m3": [ml_dtypes.float6_e2m3fn],
    "e2m1": [ml_dtypes.float4_e2m1fn, torch.float4_e2m1fn_x2],
    "e6m9": ["E6M9"],
}
x = np.float32(np.arange(16).reshape(4, 4) / 4)


@pytest.mark.parametrize("name", NAMES)
def test_a_format_has_the_names_that_others_give_it(name):
    assert set(ampscope.formats) <= set(NAMES)
    for other in NAMES[name]:
        assert ampscope.format(other) == ampscope.format(name) and ampscope.format(other).name == name, other
        if isinstance(other, str):
            continue
        if not isinstance(other, torch.dtype):  # ml_dtypes and NumPy say the largest value themselves
            info = ml_dtypes.iinfo if np.dtype(other).name.startswith("int") else ml_dtypes.finfo
            assert ampscope.format(other).max == float(info(other).max)


def test_they_are_understood_wherever_a_format_is_asked():
    h = ampscope.histogram(x)
    for other in ("bfloat16", torch.bfloat16, ml_dtypes.bfloat16):
        assert np.array_equal(ampscope.quantize(x, other), ampscope.quantize(x, "bf16"))
        assert np.array_equal(ampscope.decode(ampscope.encode(x, other), other), x)
        assert ampscope.add(1, 2, format=other) == 3 and ampscope.dot([1], [2], a_format=other) == 2
        assert ampscope.store_number(1, other)[0].format == ampscope.format("bf16")
        assert ampscope.store_number(1, [other, "E4M3"])[1].format == ampscope.format("e4m3")
        assert h.classify(other) == h.classify("bf16") and h.recommend(other) == h.recommend("bf16")
        assert h.svg([other]) == h.svg(["bf16"]) == h.svg(other)
        assert ampscope.facts(other)[0]["format"] == "bf16"
        assert ampscope.autocast("matmul", torch.float32, "FP32", format=other) == "bf16"
        assert ampscope.Optimizer([1.0], weight_format=other, state_format=other).weight == 1
        assert list(ampscope.amp_histogram(format=other)["tensors"][0]["formats"]) == ["bf16"]


@pytest.mark.parametrize("call, error, said", [
    (lambda: ampscope.quantize(x, "fp17"), ValueError, "unknown format 'fp17'; known: fp32, tf32, fp16, bf16, e4m3"),
    (lambda: ampscope.quantize(x, torch.int16), ValueError, "unknown format 'int16'; known: fp32"),
    (lambda: ampscope.quantize(x, float), ValueError, "unknown format 'float'; known: fp32"),
    (lambda: ampscope.quantize(x, 3), TypeError, "expected a Format, a name such as 'bf16', or a dtype .* got int"),
    (lambda: ampscope.quantize("bf16", x), TypeError, "format: expected a Format, .* got ndarray"),
    (lambda: ampscope.format(None), TypeError, "format: expected a Format, .* got NoneType"),
    (lambda: ampscope.histogram(x).classify(None), TypeError, "format: expected a Format, .* got NoneType"),
    (lambda: ampscope.histogram(x).recommend([]), TypeError, "format: expected a Format, .* got list"),
    (lambda: ampscope.histogram(x).classify(3), TypeError, "format: expected a Format, .* got int"),
    (lambda: ampscope.histogram(x).svg(3), TypeError, "format: expected a Format, .* got int"),
    (lambda: ampscope.autocast("matmul", 3), TypeError, "format: expected a Format, .* got int"),
    (lambda: ampscope.quantize(None, "bf16"), TypeError, "expected real numbers of at most 64 bits, got object"),
    (lambda: ampscope.quantize(torch.ones(2, dtype=torch.complex64), "bf16"), TypeError, "expected real .* complex64"),
    (lambda: ampscope.quantize(x, "bf16", rounding=3), TypeError, "rounding: expected a name, got 3"),
    (lambda: ampscope.quantize(x, "bf16", seed="a"), TypeError, "seed: expected an integer, got 'a'"),
    (lambda: ampscope.quantize(x, "bf16", threads=0.5), TypeError, "threads: expected an integer, got 0.5"),
    (lambda: ampscope.quantize(x, "bf16", round="up"), TypeError, "unknown keyword 'round'; known: rounding, overflow"),
    (lambda: ampscope.quantize(x, "bf16", policy="numpy"), ValueError, "unknown profile 'numpy'; known: ieee"),
    (lambda: ampscope.encode(x, "bf16", dtype=np.float16), TypeError, "dtype: float16 does not hold codes of bf16"),
    (lambda: ampscope.encode(x, "fp16", dtype=torch.bfloat16), TypeError, "bfloat16 does not hold codes of fp16"),
    (lambda: ampscope.encode(x, "e4m3", dtype=torch.float8_e5m2), TypeError, "float8_e5m2 does not hold codes of e4m3"),
    (lambda: ampscope.encode(x, "e4m3", dtype=np.float16), TypeError, "float16 does not hold codes of e4m3"),
    (lambda: ampscope.encode(x, "e4m3", dtype=np.uint16), TypeError, "uint16 does not hold .* they are uint8"),
    (lambda: ampscope.encode(x, "e2m1", dtype=torch.float4_e2m1fn_x2), TypeError, "two codes in a byte: encode"),
    (lambda: ampscope.encode(x, "e4m3", dtype="junk"), TypeError, "dtype: expected a dtype of torch, .* got 'junk'"),
    (lambda: ampscope.encode(x, "e4m3", dtype=3), TypeError, "dtype: expected a dtype of torch, .* got 3"),
    (lambda: ampscope.decode(torch.ones(2).half(), "e4m3"), TypeError,
     r"expected codes of e4m3, which are integers, got values of float16: ampscope.encode\(x, 'e4m3'\)"),
    (lambda: ampscope.decode(torch.ones(2), "bf16"), TypeError, "got values of float32"),
    (lambda: ampscope.decode(torch.ones(2).to(torch.float8_e5m2), "e4m3"), TypeError, "got values of float8_e5m2"),
    (lambda: ampscope.decode(np.float32([1]), "bf16"), TypeError, "got values of float32"),
    (lambda: ampscope.decode([0.5], "bf16"), TypeError, "got values of float64"),
    (lambda: ampscope.decode([True], "bf16"), TypeError, "got values of bool"),
    (lambda: ampscope.decode([-1], "bf16"), ValueError, "codes of bf16 are integers from 0 to 65535, got -1"),
    (lambda: ampscope.decode(np.int64([1, 70000]), "fp16"), ValueError, "from 0 to 65535, got 70000"),
    (lambda: ampscope.decode(np.int32([300]), "e4m3"), ValueError, "from 0 to 255, got 300"),
    (lambda: ampscope.decode(np.uint8([200]), "e2m1"), ValueError, "from 0 to 15, got 200"),
    (lambda: ampscope.decode(torch.tensor([-1], dtype=torch.int32), "bf16"), ValueError, "from 0 to 65535, got -1"),
])
def test_what_is_wrong_is_refused_in_one_line(call, error, said):
    with pytest.raises(error, match=said) as raised:
        call()
    assert "\n" not in str(raised.value) and "incompatible" not in str(raised.value)


def test_codes_are_integers_or_of_the_formats_own_type():
    assert ampscope.decode([0x38, 0x40], "e4m3").tolist() == [1, 2]  # integers of a list have 64 bits
    for format, dtype in (("fp16", np.float16), ("bf16", ml_dtypes.bfloat16), ("e4m3", ml_dtypes.float8_e4m3fn),
                          ("e2m1", ml_dtypes.float4_e2m1fn), ("fp32", np.float32), ("e4m3", np.int8),
                          ("fp16", np.int16)):
        typed = ampscope.encode(x, format, dtype=dtype)
        assert typed.shape == x.shape and typed.dtype == dtype
        assert np.array_equal(ampscope.decode(typed, format), ampscope.quantize(x, format))
    for format, dtype in (("fp16", torch.half), ("e5m2", torch.float8_e5m2), ("e4m3", torch.uint8),
                          ("bf16", torch.int16)):
        typed = ampscope.encode(x, format, dtype=dtype)
        assert typed.shape == x.shape and typed.dtype == dtype
        assert np.array_equal(ampscope.decode(typed, format).numpy(), ampscope.quantize(x, format))
    assert np.array_equal(ampscope.quantize(np.ones(2, ml_dtypes.float8_e4m3), "fp32"), [1, 1])


def test_packed_pairs_are_read():
    pairs = torch.tensor([[0x21, 0xf4]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert ampscope.quantize(pairs, "fp32").tolist() == [[0.5, 1, 2, -6]]
    codes = ampscope.encode([[0.5, 1, 2, -6]], "e2m1")
    assert (codes[..., ::2] | codes[..., 1::2] << 4).tolist() == [[0x21, 0xf4]]  # as the refusal of encode() says


def test_arrays_come_back_as_the_kind_that_they_were():
    t = torch.tensor([[0.1, 448.0], [1e-8, -3.0]])
    n = t.numpy()
    for call in (lambda a: ampscope.quantize(a, "e4m3"), lambda a: ampscope.encode(a, "e4m3"),
                 lambda a: ampscope.encode(a, "bf16"), lambda a: ampscope.encode(a, "fp32"),
                 lambda a: ampscope.decode(ampscope.encode(a, "bf16"), "bf16"),
                 lambda a: ampscope.add(a, a, format="fp32"), lambda a: ampscope.fma(1, 2, a, format="fp32")):
        ours, plain = call(t), call(n)
        assert isinstance(ours, torch.Tensor) and isinstance(plain, np.ndarray) and ours.device == t.device
        assert np.array_equal(ours.numpy(), plain) and ours.numpy().dtype == plain.dtype
    assert isinstance(ampscope.quantize(t[0, 0], "e4m3"), torch.Tensor) and not ampscope.quantize(t[0, 0], "e4m3").shape
    assert isinstance(ampscope.encode(t, "fp16", dtype=np.float16), np.ndarray)
    script = "import sys, ampscope; ampscope.quantize([[1]], 'bf16'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_torchs_cast_to_e4m3_saturates_and_ocps_rule_does_not():
    values = torch.tensor([448.0, 464.0, 465.0, 1e30, float("inf"), -465.0])
    assert np.isnan(ampscope.quantize(465, "e4m3")) and ampscope.quantize(465, "e4m3", policy="torch") == 448
    assert ampscope.quantize(values, "e4m3", policy="torch").tolist() == [448, 448, 448, 448, 448, -448]
    assert torch.equal(ampscope.quantize(values, "e4m3", profile="torch"),
                       ampscope.quantize(values, "e4m3", policy="torch"))
    assert ampscope.store_number(465, ["e4m3", "e5m2"], policy="torch")[0].value == 448
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
        pytest.skip("torch 2.15 is the first that saturates")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.half,
                  torch.bfloat16):
        ours = ampscope.quantize(values * 150, dtype, policy="torch")
        assert torch.equal(ours.nan_to_num(7), (values * 150).to(dtype).float().nan_to_num(7)), dtype


def test_formats_and_histograms_are_pickled_and_copied():
    for f in (ampscope.format("e4m3"), ampscope.format("e6m9")):
        for other in (pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
            assert other == f and other.name == f.name and other.max == f.max
    h = ampscope.histogram(np.float32([0, np.nan, np.inf, 1, 1.5, 3e-40, -7]))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(h, protocol))
        assert other == h and other.exponents == h.exponents and (other.zero, other.nan, other.inf) == (1, 1, 1)
    assert copy.copy(h) == copy.deepcopy(h) == h


def test_sum_adds_histograms():
    h = [ampscope.histogram(np.float32(v)) for v in ([1, 2], [0], [np.nan, 2])]
    assert sum(h) == h[0] + h[1] + h[2] and sum(h).count == 5 and 0 + h[0] == h[0]
    with pytest.raises(TypeError, match="unsupported operand"):
        1 + h[0]
