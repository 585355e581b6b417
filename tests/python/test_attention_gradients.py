"""The gradients of fused attention: bit for bit those that the Python of arXiv:2510.04212 gives in BF16
(tests/data/torch/fused_attention.py), attention in FP64, and PyTorch models under emulation."""
import json
import pathlib

import ampscope
import numpy as np
import pytest

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/torch/fused_attention.json").read_text())


def bf16(codes):
    return (np.frombuffer(bytes.fromhex(codes), ">u2").astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("way", ["plain", "shifted"])
@pytest.mark.parametrize("run", RECORDED["runs"], ids=lambda run: f"{run['kind']}-{run['tiles']}")
def test_the_papers_python_bit_for_bit(run, way):
    x = {name: np.float32(run[name]).reshape(run["queries" if name in ("q", "grad") else "keys"]) * unit
         for name, unit in RECORDED["unit"].items()}
    rows, keys = run["tiles"]
    options = f"fused:{rows}x{keys},s=bf16,l=bf16,o=bf16,steps=bf16,max={way}"
    how = {"causal": run["causal"], "q_format": "bf16", "out_format": "bf16"}
    out = ampscope.attention(x["q"], x["k"], x["v"], options, **how)
    assert np.array_equal(out.ravel(), bf16(run["bf16"][way]["out"]))
    gradients = ampscope.attention_gradients(*x.values(), options, grad_format="bf16", **how)
    for name, got in zip(("grad_q", "grad_k", "grad_v"), gradients):
        assert np.array_equal(got.ravel(), bf16(run["bf16"][way][name])), name


def operands(heads=6, groups=2, queries=33, keys=33, width=16):
    rng = np.random.default_rng(7)
    shapes = (2, heads, queries, width), (2, groups, keys, width), (2, groups, keys, width), (2, heads, queries, width)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def gradients_in_fp64(q, k, v, grad, scale, causal):
    shared = q.shape[1] // k.shape[1]
    q, grad = q.astype(float), grad.astype(float)
    k, v = (np.repeat(x, shared, 1).astype(float) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool) | (not causal), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = grad @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale

    def by_group(x):
        return x.reshape(x.shape[0], -1, shared, *x.shape[2:]).sum(2)
    return ds @ k, by_group(ds.swapaxes(-1, -2) @ q), by_group(p.swapaxes(-1, -2) @ grad)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_fp64_knows_no_tiles(causal):
    x = operands()
    want = gradients_in_fp64(*x, 0.3, causal)
    results = [ampscope.attention_gradients(*x, tiles, causal=causal, scale=0.3, threads=n)
               for n, tiles in enumerate(("fused", "fused:1x1", "fused:8x4", "fused:5x32"), 1)]
    for got in results:
        assert all(g.dtype == np.float32 and abs(g - w).max() < 2e-5 for g, w in zip(got, want))
    assert len({got[1].tobytes() for got in results}) > 1  # the bits depend on tiles


def test_shapes_tensors_and_errors():
    q, k, v, grad = operands(queries=5, keys=9)
    whole = ampscope.attention_gradients(q, k, v, grad)
    alone = ampscope.attention_gradients(q[1, 0], k[1, 0], v[1, 0], grad[1, 0])
    assert np.array_equal(alone[0], whole[0][1, 0]) and [x.shape for x in alone] == [(5, 16), (9, 16), (9, 16)]
    low = ampscope.attention_gradients(q, k, v, ampscope.quantize(grad, "bf16"), grad_format="bf16")
    assert all(np.array_equal(x, ampscope.quantize(x, "bf16")) for x in low)
    with pytest.raises(ValueError, match="0.3, which is no value of bf16"):
        ampscope.attention_gradients([[1.0]], [[1.0]], [[1.0]], [[0.3]], grad_format="bf16")
    with pytest.raises(ValueError, match=r"expected a gradient of q's shape \(2, 6, 5, 16\), got \(2, 6, 5\)"):
        ampscope.attention_gradients(q, k, v, grad[..., 0])
    with pytest.raises(ValueError, match="'hopper-wgmma-bf16' does not multiply the gradient and v, fp32 times bf16"):
        ampscope.attention_gradients([[1.0]], [[1.0]], [[1.0]], [[1.0]], accumulator="hopper-wgmma-bf16",
                                     q_format="bf16")
    torch = pytest.importorskip("torch")
    tensors = ampscope.attention_gradients(*(torch.from_numpy(x) for x in (q, k, v, grad)))
    assert all(np.array_equal(t.numpy(), w) for t, w in zip(tensors, whole))


@pytest.fixture
def model():
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        def forward(self, q, k, v, **how):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)
    return Attention()


def under_emulation(model, x, precision="fp32", attention="fused:8x4", cast=lambda t: t, **how):
    """The result, its gradients from the last operand, and the coverage."""
    import torch
    q, k, v, grad = (cast(torch.from_numpy(a)).requires_grad_(i < 3) for i, a in enumerate(x))
    with ampscope.torch.emulate(model, precision, attention=attention) as machine:
        out = model(q, k, v, **how)
        out.backward(grad)
    return out.detach(), [t.grad for t in (q, k, v)], machine.coverage()


@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"scale": 0.7}], ids=str)
def test_emulated_models_attend_in_tiles(model, how):
    import ampscope.torch  # noqa: F401
    x = operands(heads=2, queries=21, keys=21)
    out, gradients, coverage = under_emulation(model, x, **how)
    options = {"causal": how.get("is_causal", False), "scale": how.get("scale")}
    assert np.array_equal(out.numpy(), ampscope.attention(*x[:3], "fused:8x4", **options))
    want = ampscope.attention_gradients(*x, "fused:8x4", **options)
    assert all(np.array_equal(g.numpy(), w) for g, w in zip(gradients, want))
    (row,) = {row["op"] for row in coverage}
    assert row == "scaled_dot_product_attention"
    assert sum(r["multiply_adds"] for r in coverage) == 7 * 2 * 2 * 21 * 21 * 16
    assert not np.array_equal(out.numpy(), under_emulation(model, x, attention="plain", **how)[0].numpy())


def test_grouped_queries_and_bf16(model):
    import torch
    import ampscope.torch  # noqa: F811
    x = operands(queries=12, keys=12)
    out, gradients, _ = under_emulation(model, x, "amp-bf16", "fused:8x8,o=bf16", lambda t: t.bfloat16(),
                                        enable_gqa=True)
    low = [torch.from_numpy(a).bfloat16().float().numpy() for a in x]
    how = {"q_format": "bf16", "out_format": "bf16"}
    assert np.array_equal(out.float().numpy(), ampscope.attention(*low[:3], "fused:8x8,o=bf16", **how))
    want = ampscope.attention_gradients(*low, "fused:8x8,o=bf16", grad_format="bf16", **how)
    assert all(np.array_equal(g.float().numpy(), w) for g, w in zip(gradients, want))


def test_what_tiles_do_not_take_is_computed_as_ever(model):
    import torch
    import ampscope.torch  # noqa: F811
    x = operands(heads=2, queries=7, keys=9)
    for how in ({"is_causal": True}, {"scale": -1}, {"scale": 0}):
        ours, plain = (under_emulation(model, x, attention=text, **how)[0] for text in ("fused", "plain"))
        assert torch.equal(ours, plain)
    with pytest.raises(ValueError, match="unknown attention 'flash'"):
        ampscope.torch.emulate(model, "fp32", attention="flash")
    with pytest.raises(TypeError, match="attention: expected a text"):
        ampscope.torch.emulate(model, "fp32", attention=None)
