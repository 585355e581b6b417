"""What the recorder cannot know, or what its record cannot show, is said: never a wrong answer from what is missing."""
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import batches, prepared  # noqa: E402


def trained(path, dtype, scaler=None, steps=3, kind=torch.optim.AdamW):
    """A network whose gradients are far too small for FP16 without a loss scale."""
    model, _ = prepared()
    optimizer = kind(model.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ampscope.torch.record(path, model, optimizer, scaler=scaler):
            for x, y in batches(steps):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype, enabled=dtype is not None):
                    out = model(x)
                (F.cross_entropy(out.float(), y) * 1e-5).backward()
                optimizer.step()
    return path


def test_fp16_without_a_scaler_is_unknown_and_fp32_is_not(tmp_path):
    flushed, whole = trained(tmp_path / "fp16", torch.float16), trained(tmp_path / "fp32", None)
    scale = ampscope.loss_scale_findings(flushed)
    assert scale.recommendation["known"] == "unknown" and scale.recommendation["log2_scale"] is None
    assert scale.recommendation["unknown_below_log2"] == -25 and scale.recommendation["recorded_zeros"] > 0
    said = [scale.advice, ampscope.comparison_findings(flushed).verdict[1],
            ampscope.histogram_findings(flushed, format="fp16").kinds[0].advice[0]]
    for text in said:
        assert "unknown" in text and "what underflowed was never recorded" in text and "To find out, record" in text
        assert "no loss scal" not in text and "needs none here" not in text
    run = ampscope.comparison_findings(flushed).runs[0]
    assert run.censoring.hides and run.censoring.below_log2 == -25 and run.censoring.zeros > 0
    told = ampscope.loss_scale_findings(whole).recommendation
    assert told["known"] == "exact" and told["log2_scale"] > 0 and told["unknown_below_log2"] is None
    assert not ampscope.comparison_findings(whole).runs[0].censoring.hides


def test_sgd_hears_nothing_of_eps(tmp_path):
    assert not any(s.startswith("Adam") for s in
                   ampscope.comparison_findings(trained(tmp_path / "sgd", None, kind=torch.optim.SGD)).verdict)
    assert any(s.startswith("Adam") for s in ampscope.comparison_findings(trained(tmp_path / "adam", None)).verdict)


class ByHand(torch.autograd.Function):
    """A matrix product whose operands are in FP8, as only its author knows."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.to(torch.float8_e4m3fn).float() @ w.to(torch.float8_e4m3fn).float().t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class Casts(torch.nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(torch.float8_e4m3fn).float(), self.bias)


class Hidden(torch.nn.Linear):
    def forward(self, x):
        return ByHand.apply(x, self.weight) + self.bias


@pytest.mark.parametrize("layer, through", [(Casts, "float8_e4m3fn"), (Hidden, "ByHand")])
@pytest.mark.parametrize("name", [None, "fp8-by-hand"])
def test_formats_by_hand_ask_for_a_name(tmp_path, layer, through, name):
    torch.manual_seed(0)
    model = torch.nn.Sequential(layer(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with ampscope.torch.record(tmp_path / "run", model, optimizer, name=name):  # here
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
    said = [str(w.message) for w in heard if issubclass(w.category, ampscope.torch.PrecisionWarning)]
    if name:
        assert not said
    else:
        assert len(said) == 1 and f"it goes through {through}. The run is called fp32" in said[0] and "name=" in said[0]
    assert ampscope.comparison_findings(tmp_path / "run").runs[0].label == (name or "fp32")
