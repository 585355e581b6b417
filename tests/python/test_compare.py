"""One step in several precisions: the errors of modules against other ways to compute them."""
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from compared_steps import (BATCH, MLP, PLANTED, compared, distance, errors, loss_of, numbers,  # noqa: E402
                            planted)
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402


def reference_step(model=None):
    """Input and weight of `down`, and the gradients of its output and weights, by autograd."""
    model = model or MLP()
    h = model.act(model.up(BATCH[0])).detach()
    out = model.down(h).detach().requires_grad_()
    (g,) = torch.autograd.grad(F.mse_loss(out, BATCH[1]), out)
    return (t.detach().numpy() for t in (h, model.down.weight, g))


def in_fp8(x, dtype):
    """With one scale, from its largest magnitude, as FP32 computes it."""
    x = np.asarray(x, np.float32)
    scale = np.float32(ml_dtypes.finfo(dtype).max) / np.abs(x).max()
    return (x * scale).astype(dtype).astype(np.float64), 1 / np.float64(scale), scale


def half(x, dtype):
    return np.asarray(x, np.float32).astype(dtype).astype(np.float64)


def test_own_errors_in_fp8_are_those_by_hand():
    """Operands are rounded to BF16 by autocast (weights are not), then to FP8, results to BF16; sums are exact here."""
    found = errors(compared(MLP(), "fp8-current,accumulate=exact"), "down")
    x, w, g = reference_step()
    bf16, e4m3, e5m2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
    (xq, xs, _), (wq, ws, _), (gq, gs, _) = in_fp8(half(x, bf16), e4m3), in_fp8(w, e4m3), in_fp8(half(g, bf16), e5m2)
    out, wide = half(xq @ wq.T * xs * ws, bf16), np.float64
    for measured, by_hand, fp32 in (
            (found.own_output, out, x.astype(wide) @ w.T),
            (found.own_input_gradient, half(gq @ wq * gs * ws, bf16), g.astype(wide) @ w),
            (found.own_weight_gradient, gq.T @ xq * gs * xs, g.T.astype(wide) @ x)):
        assert measured.relative == pytest.approx(distance(by_hand, fp32), rel=1e-4)
        assert measured.elements == by_hand.size and measured.nonfinite == 0
    # The input of `up` is the same in the step, so that it inherits nothing; that of `down` is not.
    up = errors(compared(MLP(), "fp8-current"), "up")
    assert up.output.relative == up.own_output.relative
    assert found.output.relative > found.own_output.relative > 0.01


def test_casts_are_counted_where_they_happen():
    model = MLP()
    with torch.no_grad():
        model.down.weight[3, 5] = 2e4  # so that most of the others become zero
    found = errors(compared(model, "fp8-current"), "down").casts
    x, w, g = reference_step(model)
    operands = {"weight": (w, ml_dtypes.float8_e4m3fn)}
    for what, (values, dtype) in operands.items():
        q, _, _ = in_fp8(values, dtype)
        assert (found[what].nonzero, found[what].underflow, found[what].saturated) == (
            np.count_nonzero(values), np.count_nonzero((q == 0) & (values != 0)), 0)
    assert found["weight"].underflow > 800
    assert set(found) == {"input", "weight", "gradient", "output", "output_gradient"}
    with ampscope.torch.emulate(model, "fp8-current"):  # the inputs that it has in the step, which differ from FP32's
        h = model.act(model.up(BATCH[0]).bfloat16()).detach().float().numpy()
    assert found["input"].nonzero == np.count_nonzero(h)


def test_delayed_scaling_saturates_where_a_tensor_has_grown():
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.scale = nn.Linear(16, 16), 0.25

        def forward(self, x):
            self.scale *= 4
            return self.layer(x * self.scale)
    with ampscope.torch.emulate(model := Growing(), "fp8-delayed") as machine:
        for _ in range(2):
            machine._emulation.casts = {}
            model(numbers(32, 16)).sum().backward()
            counts = machine._emulation.casts["layer"].counts["input"]
    scale = np.float32(448) / np.abs(numbers(32, 16).bfloat16().float().numpy()).max()
    grown = (numbers(32, 16) * 4).bfloat16().float().numpy() * scale
    assert counts["saturated"] == np.count_nonzero(np.abs(grown) > 464) > 0  # once, though backward repeats the cast


def test_fp16_is_measured_under_its_loss_scale():
    result = compared(MLP(), "amp-fp16,accumulate=exact")
    found, x, w, g = errors(result, "down"), *reference_step()
    scaled = half(g * np.float32(65536), np.float16)
    assert result.findings.precisions[0].loss_scale == 65536
    xh, wh = half(x, np.float16), half(w, np.float16)
    assert found.own_output.relative == pytest.approx(
        distance(half(xh @ wh.T, np.float16), x.astype(np.float64) @ w.T), rel=1e-3)
    assert found.own_input_gradient.relative == pytest.approx(
        distance(half(scaled @ wh, np.float16) / 65536, g.astype(np.float64) @ w), rel=1e-3)
    lost = found.casts["output_gradient"]
    assert (lost.nonzero, lost.underflow) == (np.count_nonzero(g), np.count_nonzero((scaled == 0) & (g != 0)))


def test_a_loss_scale_that_overflows_is_halved():
    batch = BATCH[0], BATCH[1] * 3e4
    step = compared(MLP(), "amp-fp16", batch, lambda m, b: loss_of(m, b) * 32).findings.precisions[0]
    assert step.loss_scale < 65536 and step.steps == 1 + np.log2(65536 / step.loss_scale)
    assert step.gradient.nonfinite == 0 and step.gradient.relative < 0.01


@pytest.mark.parametrize("precision", ["fp8-current", "amp-bf16", "tf32"])
def test_errors_in_the_step_are_those_of_an_emulated_step(precision):
    result = compared(MLP(), precision)
    plain, model, seen = MLP(), MLP(), {}
    outputs = plain(BATCH[0])
    F.mse_loss(outputs, BATCH[1]).backward()
    for name in ("up", "down"):
        getattr(model, name).register_forward_hook(lambda m, a, out, name=name: seen.update({name: out}))
    with ampscope.torch.emulate(model, precision):
        F.mse_loss(model(BATCH[0]), BATCH[1]).backward()
    assert errors(result, "down").output.relative == pytest.approx(distance(seen["down"].float(), outputs))
    for name in ("up", "down"):
        measured = errors(result, name).weight_gradient.relative
        assert measured == pytest.approx(distance(getattr(model, name).weight.grad, getattr(plain, name).weight.grad))
    both = [np.concatenate([p.grad.numpy().ravel() for p in m.parameters()]) for m in (model, plain)]
    assert result.findings.precisions[0].gradient.relative == pytest.approx(distance(*both), rel=1e-12)


@pytest.mark.parametrize("precision", ["fp8-current", "amp-bf16", "tf32"])
def test_the_effect_of_a_module_is_that_of_emulating_it_alone(precision):
    result, plain = compared(MLP(True), precision), MLP(True)
    loss_of(plain, BATCH).backward()
    for name in ("up", "down"):
        model = MLP(True)
        with ampscope.torch.emulate(getattr(model, name), precision, skip=[]):
            loss_of(model, BATCH).backward()
        both = [np.concatenate([p.grad.numpy().ravel() for p in m.parameters()]) for m in (model, plain)]
        assert errors(result, name).effect.relative == pytest.approx(distance(*both), rel=1e-12)
    assert errors(result, "act").effect is None  # it adds no error


@pytest.mark.parametrize("precision", ["master-bf16", "pure-bf16", "pure-bf16-kahan"])
def test_effects_where_a_module_has_casts_of_its_weights(precision):
    """By hand: all but one module in FP32, and that one as a whole in BF16."""
    model, batch = nn.Sequential(nn.Linear(48, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 40)), BATCH
    result = compared(model, precision, batch)

    def gradient(low):
        def module(place, x):
            if place != low:
                return model[place](x)
            weights = {name: p.bfloat16() for name, p in model[place].named_parameters()}
            return torch.func.functional_call(model[place], weights, (x.bfloat16(),)).float()
        model.zero_grad()
        x = batch[0]
        for place in range(len(model)):
            x = module(place, x)
        loss_of(lambda _: x, batch).backward()
        return np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    for place in range(len(model)):
        found = errors(result, str(place)).effect.relative
        assert found == pytest.approx(distance(gradient(place), gradient(None)), rel=1e-2)


class Attention(nn.Module):
    """Products of its own between those of two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj(F.scaled_dot_product_attention(q, k, v))


def test_a_module_with_products_of_its_own_adds_only_their_errors():
    batch = numbers(2, 24, 32), numbers(2, 24, 32, seed=1)
    result = compared(Attention(), "fp8-current", batch)
    own = errors(result, "").own_output.relative
    assert [m.name for m in result.findings.modules] == ["qkv", "proj", ""]
    model = Attention()
    q, k, v = (t.bfloat16() for t in model.qkv(batch[0]).chunk(3, -1))
    shares = torch.softmax(q.float() @ k.float().mT / 32**0.5, -1).bfloat16().float()
    by_hand = model.proj((shares @ v.float()).bfloat16().float())
    assert own == pytest.approx(distance(by_hand, model(batch[0])), rel=0.01)
    assert own < errors(result, "qkv").own_output.relative / 3


@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16", "mxfp8", "master-bf16", "pure-bf16"])
def test_the_effect_of_a_layer_that_attention_reads_beside_others(precision):
    """Attention refuses operands of different types, as those of one layer in half precision and others in FP32."""
    class Separate(Attention):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))

        def forward(self, x):
            return self.proj(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))

    result = compared(Separate(), precision, (numbers(2, 24, 32), numbers(2, 24, 32, seed=1)))
    assert all(errors(result, name).effect.relative > 0 for name in "qkv")


def test_delayed_scaling_is_measured_once_its_scales_have_settled():
    result = compared(MLP(), ["fp8-current", "fp8-delayed"], loss=lambda m, b: loss_of(m, b) * 1e-6)
    current, delayed = result.findings.precisions
    assert current.steps == 1 and delayed.steps > 2  # the first has gradients of zero, with a scale of 1
    assert delayed.gradient.relative == pytest.approx(current.gradient.relative, rel=0.5)
    for name in ("up", "down"):
        for field in ("own_output", "own_weight_gradient"):
            one, other = (getattr(errors(result, name, i), field).relative for i in (0, 1))
            assert one == pytest.approx(other, rel=0.5)


def test_a_bad_layer_is_found_and_keeping_it_helps_most():
    precision, model = "fp8-current", planted()
    result = compared(model, precision, PLANTED)
    (step,) = result.findings.precisions
    assert result.keep(precision) == ["0"] and step.kept.modules == ["0"]
    assert "Keep 0 in higher precision: it adds " in " ".join(str(result).split())
    layers = [m.name for m in result.findings.modules if m.type == "Linear"]
    without = {name: compared(model, precision, PLANTED, skip=[name], effects=False) for name in layers}
    left = {name: other.findings.precisions[0].gradient.relative for name, other in without.items()}
    assert min(left, key=left.get) == "0" and left["0"] < step.gradient.relative / 2
    assert step.kept.gradient.relative == left["0"]


def test_without_effects_own_errors_rank():
    result = compared(planted(), "fp8-current", PLANTED, effects=False)
    (step,) = result.findings.precisions
    assert not step.by_effect and step.modules[0].effect is None
    own = [m.own for m in step.modules]
    assert [r.error for r in step.ranking] == sorted((e for e in own if e), reverse=True)
    assert sum(r.share for r in step.ranking) == pytest.approx(1)


def test_infinite_elements_are_counted_and_not_hidden():
    model = MLP()
    with torch.no_grad():
        model.down.weight[0] = 1e5
    result = compared(model, ["amp-fp16", "amp-bf16"])
    step = result.findings.precisions[0]
    assert step.loss is None and step.steps == 1 and errors(result, "down").output.nonfinite == 32
    assert errors(result, "down").own_output.nonfinite == 32 and errors(result, "down").own == float("inf")
    assert errors(result, "up").own_output.nonfinite == 0 and "down" in result.keep("amp-fp16")
    assert "elements of the model's gradient are infinite or NaN. Keep " in " ".join(str(result).split())
    assert errors(result, "down", 1).output.nonfinite == 0


def test_what_is_not_finite_in_fp32_is_left_out_with_a_word():
    batch = BATCH[0].clone(), BATCH[1]
    batch[0][0, 0] = float("nan")
    result = compared(MLP(), "amp-bf16", batch, lambda m, b: F.mse_loss(m(b[0])[1:], b[1][1:]))
    assert errors(result, "up").output.relative == pytest.approx(0.003, rel=0.5)
    assert "FP32's own gradient is infinite or NaN" in " ".join(result.findings.warnings)
