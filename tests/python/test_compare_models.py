"""One step in several precisions: of all sorts of models, whose state stays as it was; what is refused, and reports."""
import json
import subprocess

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from compared_steps import (BATCH, MLP, PLANTED, compared, errors, loss_of, numbers, planted)  # noqa: E402
from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402


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
            (ValueError, r"has no parameters", lambda: compared(nn.ReLU(), "fp32")),
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
