"""One step in several precisions: the errors of modules against other ways to compute them."""
import json
import subprocess

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402


def numbers(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


class MLP(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.act, self.down = nn.Linear(48, 64, bias), nn.ReLU(), nn.Linear(64, 40, bias)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


BATCH = numbers(32, 48), numbers(32, 40, seed=1)


def loss_of(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def compared(model, precisions, batch=BATCH, loss=loss_of, **options):
    return ampscope.torch.compare(model, batch, loss, precisions, **options)


def errors(result, module, precision=0):
    names = [m.name for m in result.findings.modules]
    return result.findings.precisions[precision].modules[names.index(module)]


def distance(x, reference):
    x, reference = (np.asarray(t.detach() if isinstance(t, torch.Tensor) else t, np.float64) for t in (x, reference))
    return np.linalg.norm(x - reference) / np.linalg.norm(reference)


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


class Odd(nn.Module):
    """Dropout, BatchNorm, a layer that is called twice, with a keyword and a dict, a buffer that is replaced."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.drop, self.layer, self.head = (nn.BatchNorm1d(48), nn.Dropout(0.3), Twice(), nn.Linear(48, 40))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps = self.steps + 1
        x = self.drop(self.norm(x))
        return self.head(self.layer(self.layer(x, more={"y": x})["out"], more={"y": x})["out"])


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(numbers(48, 48, seed=3, scale=0.1))

    def forward(self, x, *, more):
        return {"out": F.linear(x.relu_(), self.weight) + more["y"], "number": 3}


def held(model):
    return [(name, t, t.detach().clone()) for name, t in [*model.named_parameters(), *model.named_buffers()]]


@pytest.mark.parametrize("precision", ["fp32", "fp8-delayed", "amp-fp16"])
def test_all_that_a_step_changes_is_as_it_was(precision):
    model = Odd()
    loss_of(model, BATCH).backward()
    before, gradients = held(model), [(p, p.grad, p.grad.clone()) for p in model.parameters()]
    model.drop.eval()
    random = torch.get_rng_state()
    compared(model, precision)
    calls = []

    def failing(model, batch):
        calls.append(1)
        loss = loss_of(model.train(), batch)
        if len(calls) == 3:
            raise OverflowError("of the script")
        return loss
    with pytest.raises(OverflowError, match="of the script"):
        compared(model, precision, loss=failing)
    assert torch.equal(torch.get_rng_state(), random) and not model.drop.training and model.norm.training
    assert all(t is now and torch.equal(was, now) for (_, t, was), (_, now, _) in zip(before, held(model)))
    assert all(p.grad is gradient and torch.equal(gradient, was) for p, gradient, was in gradients)
    assert not model.norm._forward_hooks and not model.norm._forward_pre_hooks


def test_each_step_begins_with_the_same_state_and_draws_the_same_masks():
    result = compared(Odd(), ["fp32", "amp-bf16"])
    assert not result.findings.warnings and result.findings.precisions[0].gradient.relative < 1e-5
    assert {m.name: m.calls for m in result.findings.modules} == {"norm": 1, "drop": 1, "layer": 2, "head": 1}
    for name in ("norm", "drop"):
        assert errors(result, name, 1).own == 0
        assert errors(result, name).output.relative < 1e-5
    assert errors(result, "layer").own < 1e-5 < 1e-3 < errors(result, "layer", 1).own < 0.1
    assert errors(result, "layer").own_output.elements == 2 * 32 * 48


def test_delayed_scaling_is_measured_once_its_scales_have_settled():
    result = compared(MLP(), ["fp8-current", "fp8-delayed"], loss=lambda m, b: loss_of(m, b) * 1e-6)
    current, delayed = result.findings.precisions
    assert current.steps == 1 and delayed.steps > 2  # the first has gradients of zero, with a scale of 1
    assert delayed.gradient.relative == pytest.approx(current.gradient.relative, rel=0.5)
    for name in ("up", "down"):
        for field in ("own_output", "own_weight_gradient"):
            one, other = (getattr(errors(result, name, i), field).relative for i in (0, 1))
            assert one == pytest.approx(other, rel=0.5)


def planted():
    """A network whose first layer has a weight under whose scale E4M3 loses the others; what it multiplies is 0."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(48, 48), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(48, 40))
    with torch.no_grad():
        model[0].weight[0, 0] = 3e4
    return model


PLANTED = BATCH[0].index_fill(1, torch.tensor([0]), 0), BATCH[1]


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    class Model(MLP):
        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=reentrant)
    batch = BATCH[0].clone().requires_grad_(), BATCH[1]
    found, plain = compared(Model(), "fp8-current", batch), compared(MLP(), "fp8-current")
    assert found.findings.precisions[0].gradient.relative == plain.findings.precisions[0].gradient.relative
    for name in ("up", "down"):
        assert errors(found, name).output.relative == errors(plain, name).output.relative
        assert errors(found, name).effect.relative == errors(plain, name).effect.relative
        assert errors(found, name).own_output.relative == errors(plain, name).own_output.relative


def test_modules_that_use_weights_of_others_and_recurrent_layers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.mix, self.lstm = nn.MultiheadAttention(32, 4, batch_first=True), nn.LSTM(32, 32, batch_first=True)

        def forward(self, x):
            x, _ = self.mix(x, x, x)
            return self.lstm(x)[0]
    batch = numbers(2, 12, 32), numbers(2, 12, 32, seed=1)
    result = compared(Model(), "fp8-current", batch)
    assert not result.findings.warnings and [m.name for m in result.findings.modules] == ["mix", "lstm"]
    assert all(0.01 < errors(result, name).own < 0.5 for name in ("mix", "lstm"))
    assert errors(result, "mix").casts["weight"].nonzero == 4 * 32 * 32  # its out_proj is never called


def test_a_module_that_does_something_else_when_called_again():
    class Counting(nn.Linear):
        count = 0

        def forward(self, x):
            self.count += 1
            return super().forward(x) * self.count
    model = MLP()
    model.down = Counting(64, 40)
    result = compared(model, "amp-bf16")
    assert "down: its own errors are not known: called again with the same inputs" in result.findings.warnings[0]
    assert errors(result, "down").own_output is None and errors(result, "up").own_output is not None


def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0))


def test_a_model_of_hugging_face_with_tied_weights_and_a_cache():
    model, tokens = gpt2(), torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0))
    result = compared(model, ["fp32", "fp8-current"], {"input_ids": tokens, "labels": tokens},
                      lambda model, batch: model(**batch).loss)
    assert not result.findings.warnings
    names = {m.name for m in result.findings.modules}
    assert {"transformer.wte", "transformer.h.1.attn", "transformer.h.1.attn.c_attn", "transformer.h.0.mlp.c_proj",
            "lm_head"} <= names and "transformer.h.1" not in names
    for name in names:
        assert errors(result, name).own < 1e-5
    attention = errors(result, "transformer.h.1.attn", 1)
    assert 0 < attention.own_output.relative < errors(result, "transformer.h.1.attn.c_proj", 1).own_output.relative
    # lm_head is not scaled, and its weight is that of wte: alone each has a gradient of its own.
    assert errors(result, "transformer.wte", 1).own == 0
    assert 0 < errors(result, "lm_head", 1).own < 0.01
    head = {m.name: m for m in result.findings.modules}["lm_head"]
    assert head.parameters == 64 * 32


def test_what_amp_report_says_of_the_saved_result(tmp_path):
    result = compared(planted(), ["fp32", "fp8-current"], PLANTED)
    result.save(tmp_path / "compare.json")
    command = ["amp-report", tmp_path / "compare.json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == str(result) and said.startswith("Which layers does it hurt?")
    assert subprocess.run([*command, "--json", "-"], check=True, capture_output=True,
                          text=True).stdout == (tmp_path / "compare.json").read_text()
    subprocess.run([*command, "--html", tmp_path / "page.html"], check=True)
    assert (tmp_path / "page.html").read_text() == result.html() and "<svg" in result.svg()
    assert "srcdoc=" in result._repr_html_() and "iframe" in result._repr_html_()
    answer = ampscope.amp_report(tmp_path / "compare.json")
    assert answer == json.loads((tmp_path / "compare.json").read_text()) and answer.rows() == result.rows()
    rows = result.rows()
    assert len(rows) == 2 * 9 and [r["module"] for r in rows if r["stands_out"]] == ["0"]
    assert rows[-1]["effect"] == result.findings.precisions[1].modules[-1].effect.relative
    assert [r["rank"] for r in rows if r["precision"] == "fp8-current" and r["module"] == "0"] == [1]
    pytest.importorskip("pandas")
    assert list(result.frame()["module"]) == [row["module"] for row in rows]


def test_wrong_arguments_are_refused_in_one_line():
    model, bf16 = MLP(), MLP().bfloat16()
    two = lambda m, b: m(b[0])  # noqa: E731
    for error, words, call in (
            (TypeError, r"precisions: expected one or more names", lambda: compared(model, [])),
            (TypeError, r"precisions: expected one or more names", lambda: compared(model, [1])),
            (ValueError, r"precisions: 'fp32' occurs twice", lambda: compared(model, ["fp32", "fp32"])),
            (ValueError, r"fp9", lambda: compared(model, ["fp32", "fp9"])),
            (ValueError, r"no module 'middle'", lambda: compared(model, "fp8-current", skip=["middle"])),
            (TypeError, r"model: expected a torch.nn.Module, got list", lambda: compared([1], "fp32")),
            (TypeError, r"loss_fn: expected a function", lambda: compared(model, "fp32", loss=3)),
            (TypeError, r"not a tensor of shape \(32, 40\)", lambda: compared(model, "fp32", loss=two)),
            (TypeError, r"not float", lambda: compared(model, "fp32", loss=lambda m, b: loss_of(m, b).item())),
            (ValueError, r"depends on no weight", lambda: compared(model, "fp32", loss=lambda m, b: torch.ones(()))),
            (ValueError, r"weights in bfloat16, .*model.float\(\)", lambda: compared(bf16, "fp32")),
            (ValueError, r"'tf32' was not compared", lambda: compared(model, "fp32").keep("tf32"))):
        with pytest.raises(error, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    with ampscope.torch.emulate(model, "fp32"), pytest.raises(RuntimeError, match="emulated already"):
        compared(MLP(), "fp32")
    with torch.autocast("cpu"), pytest.raises(RuntimeError, match="within autocast"):
        compared(model, "fp32")
    with pytest.raises(OSError, match="/nowhere/c.json"):
        compared(model, "fp32").save("/nowhere/c.json")
