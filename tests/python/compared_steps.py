"""A small network, and what ampscope.torch.compare says of it, for tests of that."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import ampscope.torch


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


def planted():
    """A network whose first layer has a weight under whose scale E4M3 loses the others; what it multiplies is 0."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(48, 48), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(48, 40))
    with torch.no_grad():
        model[0].weight[0, 0] = 3e4
    return model


PLANTED = BATCH[0].index_fill(1, torch.tensor([0]), 0), BATCH[1]
