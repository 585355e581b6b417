"""tests/data/torch/device and device_findings.py: where the device is one of our own accumulators, they name it."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import ampscope

torch = pytest.importorskip("torch")
SCRIPTS = pathlib.Path(__file__).parent.parent / "data" / "torch"
sys.path.insert(0, str(SCRIPTS))

import device_findings  # noqa: E402
from device import integers, matmul, records, rules, scaled_mm, trained  # noqa: E402
from device.recording import Recording  # noqa: E402
from device.records import NAMES, Recorder  # noqa: E402
from device.steps import fused  # noqa: E402
from device.sums import Sums, Way  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402


def written(recorder, item):
    return Recording(recorder.write(item, 0.0, None))


def product(accumulator, out=None, bias=False):
    """A product as a device with that accumulator computes it."""
    def call(a, b, added):
        name = NAMES[a.dtype]
        sums = ampscope.matmul(a.float().numpy(), b.float().numpy().T, accumulator, a_format=name)
        return records.rounded(sums + added.float().numpy() if bias else sums, out or name)
    return call


def found(recorder, folder, monkeypatch, dtype, setting, ops, k):
    monkeypatch.setattr(matmul, "OPS", ops)
    matmul._products(recorder, "cpu", dtype, [setting], list(ops), (32, 48), (k,))
    return list(device_findings.products(written(recorder, "matmul")))


@pytest.mark.parametrize("accumulator, expected", [
    ("hopper-wgmma-fp16", "= hopper-wgmma-fp16 (all)"),
    ("ampere-fp16", "= ampere-fp16 (all)"),
    ("fp32", "= fp32 (all)"),
    ("hopper-wgmma-fp16-split4", "= hopper-wgmma-fp16, split4: 4 runs of 256, added in order (all)"),
    ("ampere-fp16-split3cyclic", "= ampere-fp16, split3cyclic: 3 parts of every 3th 64, added in order (all)")])
def test_a_product_is_recognized(tmp_path, monkeypatch, accumulator, expected):
    ops = {"wide": product(accumulator, "fp32"), "again": product(accumulator, "fp32")}
    (line,) = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "fp16", "default", ops, 1024)
    assert line == f"fp16 32x48 K = 1024: fp32 {expected}: wide, default; again, default"


def test_some_rows_and_columns_of_a_product_are_enough(tmp_path, monkeypatch):
    recorder, sums = Recorder("cpu", tmp_path), product("hopper-wgmma-fp16-split2", "fp32")
    monkeypatch.setattr(matmul, "OPS", {"nt": lambda a, b, bias: sums(a, b, bias) * (torch.arange(48) < 40)})
    matmul._products(recorder, "cpu", "fp16", ["on"], ["nt"], (32, 48), (512,), rows=[0, 31, 7], columns=40)
    (line,) = device_findings.products(written(recorder, "matmul"))
    assert line == ("fp16 32x48 K = 512: fp32 = hopper-wgmma-fp16, split2: 2 runs of 256, added in order "
                    "(kept, not all): nt, on")


def test_a_bias_and_outputs_in_half_precision(tmp_path, monkeypatch):
    ops = {"linear, bias": product("hopper-wgmma-bf16", bias=True), "nt": product("hopper-wgmma-bf16")}
    lines = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "bf16", "default", ops, 256)
    assert lines == ["bf16 32x48 K = 256: bf16 = hopper-wgmma-bf16, bias added in FP32 (all): linear, bias, default",
                     "bf16 32x48 K = 256: bf16 = hopper-wgmma-bf16 (all): nt, default"]


def test_inputs_cut_to_tf32(tmp_path, monkeypatch):
    lines = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "fp32", "high",
                  {"nt": product("hopper-wgmma-tf32")}, 256)
    assert lines == ["fp32 32x48 K = 256: fp32 = cut to TF32, hopper-wgmma-tf32 (all): nt, high"]


@pytest.mark.parametrize("name, products, fraction, row", [
    ("fp16", 16, 25, "hopper-wgmma-fp16"), ("fp16", 8, 24, "ampere-fp16"), ("fp16", 4, 23, "volta-fp16"),
    ("bf16", 16, 25, "hopper-wgmma-bf16"), ("tf32", 8, 25, "hopper-wgmma-tf32"), ("tf32", 4, 24, "ampere-tf32"),
    ("e4m3", 32, 13, "hopper-wgmma-fp8"), ("e5m2", 16, 13, "ada-e5m2")])
@pytest.mark.parametrize("spread", [0, 16])
def test_steps_of_any_number_of_products(name, products, fraction, row, spread):
    x, y = (ampscope.quantize(rules.normal(seed, 9, 200, spread=spread), name) for seed in (7, 8))
    ours = ampscope.matmul(x, y.T, row, a_format=name)
    assert np.array_equal(fused(x, y, (name, name), products, fraction), ours)


def test_where_none_does_the_distance_is_said(tmp_path, monkeypatch):
    lines = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "fp16", "default",
                  {"nt": lambda a, b, bias: product("exact", "fp32")(a, b, bias) * 1.001}, 64)
    assert lines[0].startswith("fp16 32x48 K = 64: fp32 NONE: hopper-wgmma-fp16: 100 % differ, 99 % by at most")


@pytest.mark.parametrize("fast, row", [(True, "hopper-wgmma-fp8"), (False, "hopper-wgmma-fp8-promote128")])
@pytest.mark.parametrize("scales, text", [("one", ""), ("odd", ", times (scale a times scale b)"),
                                          ("rows", ", times scale a, times scale b")])
def test_a_scaled_product_is_recognized(tmp_path, monkeypatch, fast, row, scales, text):
    def multiply(a, b, scale_a, scale_b, out, fast):
        sums = ampscope.matmul(a.float().numpy(), b.float().numpy().T, row, a_format="e4m3", b_format="e5m2")
        a, b = scale_a.numpy(), scale_b.numpy()
        return records.rounded(sums * a * b if a.size > 1 else sums * (a * b), NAMES[out])

    monkeypatch.setattr(scaled_mm, "multiply", multiply)
    recorder = Recorder("cpu", tmp_path)
    scaled_mm._case(recorder, "cpu", ("e4m3", "e5m2"), (32, 48), 512, scales, torch.float32, fast, None)
    (line,) = device_findings.products(written(recorder, "scaled_mm"))
    assert line == (f"e4m3 x e5m2 32x48 K = 512: fp32 = {row}{text} (all): "
                    f"{'fast' if fast else 'not fast'}, scales {scales}")


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "e4m3", "e5m2"])
def test_inputs_are_rounded_as_torch_does_and_bits_come_back(tmp_path, name):
    x = rules.normal(1, 64, 50, spread=20)
    tensor = records.rounded(x, name)
    assert np.array_equal(records.bits(tensor), records.bits(torch.from_numpy(x).to(records.DTYPES[name])))
    recorder = Recorder("cpu", tmp_path)
    first = recorder.keep(tensor)
    close = records.rounded(x * np.float32(1.01), name)
    second = recorder.keep(close, rows=[1, 5], columns=7)
    third = recorder.keep(close, base=first)
    recording = written(recorder, "item")
    assert np.array_equal(recording.bits(first), records.bits(tensor))
    assert np.array_equal(recording.bits(second), records.bits(close)[[1, 5], :7])
    assert np.array_equal(recording.bits(third), records.bits(close))


def test_fewer_columns_than_were_asked_for(tmp_path):
    """Recordings from before 2026-11-28 say how many were asked for."""
    recorder = Recorder("cpu", tmp_path)
    tensor = records.rounded(rules.normal(1, 4, 50), "bf16")
    said = recorder.keep(tensor, rows=2, columns=256)
    assert said["columns"] == 50
    recording = written(recorder, "item")
    assert np.array_equal(recording.bits(said | {"columns": 256}), records.bits(tensor)[:2])


def test_parts_that_are_added_in_fp16(tmp_path, monkeypatch):
    """As cuBLAS adds them where sums in FP16 are allowed: see reports/torch-h200.md."""
    way = Way("hopper-wgmma-fp16-acc16", runs=8, each="fp16", stored="fp16")

    def call(a, b, bias):
        return records.rounded(way.compute(Sums(a.float().numpy(), b.float().numpy(), ("fp16", "fp16"))), "fp16")

    lines = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "fp16", "fp16 sums", {"nt": call}, 64)
    assert lines == ["fp16 32x48 K = 64: fp16 = hopper-wgmma-fp16-acc16, 8 runs of 8, added in order, each sum fp16 "
                     "(all): nt, fp16 sums"]


def test_parts_that_are_added_to_the_bias(tmp_path, monkeypatch):
    way = Way("hopper-wgmma-tf32", runs=64, bias_first=True)

    def call(a, b, bias):
        a, b = (ampscope.quantize(x.numpy(), "tf32") for x in (a, b))
        return torch.from_numpy(way.compute(Sums(a, b, ("tf32", "tf32"), bias.numpy())))

    lines = found(Recorder("cpu", tmp_path), tmp_path, monkeypatch, "fp32", "high", {"linear, bias": call}, 256)
    assert lines == ["fp32 32x48 K = 256: fp32 = nearest_even to TF32, hopper-wgmma-tf32, 4 runs of 64, added in order "
                     "to the bias (all): linear, bias, high"]


@pytest.mark.parametrize("name", trained.NETWORKS)
def test_a_network_stays_on_its_device(name):
    """Of a device that is not there, as fake tensors have it: one tensor that is made elsewhere raises."""
    network, data, _ = trained.NETWORKS[name]
    x, y = (torch.from_numpy(part) for part in data())
    named = trained.Network(network, x, y).named

    def on_device(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda", requires_grad=tensor.requires_grad)

    with FakeTensorMode(allow_non_fake_inputs=True):
        loss = network(lambda key, *_: on_device(named[key.replace(".", "_")]), on_device(x[:32]), on_device(y[:32]))
        assert loss.device.type == "cuda"


def test_sums_of_integers_wrap(tmp_path):
    recorder = Recorder("cpu", tmp_path)
    integers.record(recorder, "cpu")
    lines = list(device_findings.of_integers(written(recorder, "integers")))
    assert lines == ["any K = 16: = int32, int32-satfinite", "any K = 1024: = int32, int32-satfinite",
                     "any K = 16384: = int32, int32-satfinite", "least K = 131064: = int32, int32-satfinite",
                     "least K = 131072: = int32", "least K = 262136: = int32"]


def test_the_command_records_and_skips_what_is_there(tmp_path):
    command = [sys.executable, SCRIPTS / "device", "--device", "cpu", "--out", tmp_path, "--only", "optimizers,speed"]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert first.stdout.count(" errors\n") == 2
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.count("is there\n") == 2
    text = subprocess.run([sys.executable, SCRIPTS / "device_findings.py", tmp_path, "--only", "optimizers,speed"],
                          capture_output=True, text=True, check=True).stdout
    assert "bf16 sgd lr=0.01: = sgd" in text and "what copy" in text
