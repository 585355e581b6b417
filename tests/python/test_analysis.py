"""Histograms, loss scalers and training from Python, against NumPy, the command-line tools and torch's rule."""
import json
import subprocess

import numpy as np
import pytest

import ampscope


def test_a_histogram_counts_what_casts_do():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(200_000) * 2.0**rng.uniform(-36, 20, 200_000)).astype(np.float32)
    x[:5] = [0, -0.0, np.nan, np.inf, -np.inf]
    h = ampscope.histogram(x)
    assert (h.zero, h.nan, h.inf, h.count) == (2, 1, 2, x.size)
    finite = x[np.isfinite(x) & (x != 0)]
    assert h.nonzero == finite.size == sum(h.exponents.values())
    for log2_scale in (-3, 0, 10):
        with np.errstate(all="ignore"):
            cast = np.abs((finite.astype(np.float64) * 2.0**log2_scale).astype(np.float16).astype(np.float64))
        assert h.classify("fp16", log2_scale) == {
            "underflow": int((cast == 0).sum()), "subnormal": int(((cast > 0) & (cast < 2**-14)).sum()),
            "normal": int(((cast >= 2**-14) & np.isfinite(cast)).sum()), "overflow": int(np.isinf(cast).sum())}
    assert ampscope.histogram(x[:1000]) + ampscope.histogram(x[1000:]) == h
    assert ampscope.histogram(x * np.float32(1024), scale=1024).exponents == h.exponents
    assert h.classify(ampscope.format("fp16")) == h.classify("fp16", 0)
    assert h.svg().startswith("<svg") and "fp16" in h._repr_svg_()
    with pytest.raises(ValueError, match="no power of two"):
        ampscope.histogram(x, scale=3)


def test_recommendations_are_the_tools(tmp_path):
    x = np.float32(2.0**-np.arange(10, 34))
    np.save(tmp_path / "x.npy", x)
    report = json.loads(subprocess.run(["amp-histogram", tmp_path / "x.npy", "--format", "fp16", "--json", "-"],
                                       check=True, capture_output=True, text=True).stdout)["total"]["formats"]["fp16"]
    ours = ampscope.histogram(x).recommend(ampscope.format("fp16"))
    assert ours["log2_scale"] == report["recommended_log2_scale"]
    assert list(ours["window"]) == report["window_log2"]


def test_a_loss_scaler_moves_as_torch_says():
    scaler = ampscope.LossScaler("torch", init_scale=2.0**16, growth_interval=3)
    assert [scaler.update(found) for found in (False, True, False, False, False)] == ["step", "skip"] + ["step"] * 3
    assert (scaler.scale, scaler.growth_tracker) == (2.0**16, 0)
    with pytest.raises(ValueError):
        ampscope.LossScaler("torhc")
    assert "megatron" in ampscope.loss_scalers


def test_training_is_the_commands():
    precisions = ["fp32", "amp-fp16", "pure-bf16", "pure-bf16-stochastic", "pure-bf16-kahan"]
    words = ["--model", "mlp", "--steps", "12", "--precision", ",".join(precisions), "--seed", "3",
             "--statistics-every", "4", "--nesterov", "--momentum", "0.9", "--optimizer", "sgd"]
    tool = json.loads(subprocess.run(["amp-train", *words, "--json", "-"], check=True, capture_output=True,
                                     text=True).stdout)
    assert ampscope.train(model="mlp", steps=12, precision=precisions, seed=3, statistics_every=4, nesterov=True,
                          momentum=0.9, optimizer="sgd") == tool
    assert len({run["fingerprint"] for run in tool["runs"]}) == len(precisions)
    with pytest.raises(ValueError):
        ampscope.train(model="mlp", presicion="fp32")
    with pytest.raises(OSError, match="/nonexistent.npz: cannot open"):
        ampscope.train(model="mlp", data="/nonexistent.npz")


def test_version_is_the_projects():
    printed = subprocess.run(["amp-format", "--version"], check=True, capture_output=True, text=True).stdout
    assert printed == f"amp-format {ampscope.__version__}\n"
