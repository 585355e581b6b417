"""Losses with strict="ops"."""
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ampscope.torch  # noqa: E402


class Loss(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets, label_smoothing=self.smoothing)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7, 1.0])
def test_label_smoothing(smoothing, training):
    """Oracle: PyTorch's in FP64, from which one rounding leads to FP32; its own in FP32 has several. A model that is
    evaluated has the function's smoothing, too."""
    torch.manual_seed(int(10 * smoothing))
    logits, targets = 4 * torch.randn(200, 50), torch.randint(50, (200,))
    targets[::7] = -100
    ours, theirs = logits.clone().requires_grad_(), logits.double().requires_grad_()
    model = Loss(smoothing).train(training)
    with ampscope.torch.emulate(model, "fp32", strict="ops"):
        got = model(ours, targets)
        got.backward()
    want = F.cross_entropy(theirs, targets, label_smoothing=smoothing)
    want.backward()
    assert got.item() == want.float().item()
    assert torch.equal(ours.grad, theirs.grad.float())
    assert ours.grad[1].any() and not ours.grad[7].any()
