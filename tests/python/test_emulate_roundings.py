"""What coverage() says of ops that multiply no matrices: how far PyTorch's results are from ours."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch.utils.checkpoint  # noqa: E402
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402

OPS = {
    "relu": lambda x, w: x.relu(), "tanh": lambda x, w: x.tanh(), "gelu": lambda x, w: F.gelu(x),
    "sigmoid": lambda x, w: x.sigmoid(), "softmax": lambda x, w: x.softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, (64,), w), "rms_norm": lambda x, w: F.rms_norm(x, (64,), w),
}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Op(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.calls = function, []

    def forward(self, *args):
        self.calls.append(self.function(*args))
        return self.calls[-1]


def apart(a, b):
    """Units in the last place, counted on the numbers of the type in their order."""
    signed = np.int32 if a.dtype == torch.float32 else np.int16

    def place(x):
        bits = x.detach().numpy().view(signed) if signed is np.int32 else x.detach().view(torch.int16).numpy()
        bits = bits.astype(np.int64)
        return np.where(bits < 0, np.iinfo(signed).min - bits, bits)
    return np.abs(place(a) - place(b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_distances_are_those_of_the_numbers(name, dtype):
    torch.manual_seed(1)
    operands = torch.randn(128, 64).to(DTYPES[dtype]), torch.randn(64).to(DTYPES[dtype])
    model, exact = Op(OPS[name]), Op(OPS[name])
    with ampscope.torch.emulate(model, "fp32") as machine:
        model(*operands)
        model(*(t * 2 for t in operands))  # only the first call is compared
    with ampscope.torch.emulate(exact, "fp32", strict="ops") as strict:
        exact(*operands)
    assert torch.equal(model.calls[0], OPS[name](*operands))  # PyTorch's own
    distance = apart(model.calls[0], exact.calls[0])
    assert machine.coverage().roundings == [{"op": name, "type": dtype, "elements": 128 * 64,
                                             "max_ulps": distance.max(), "differing": np.count_nonzero(distance)}]
    assert not strict.coverage().roundings
    assert distance.max() == 0 if name == "relu" else dtype != "float32" or distance.max() > 0


def test_losses_within_the_model_are_compared_once():
    model = Op(lambda x, target: F.cross_entropy(x, target))
    with ampscope.torch.emulate(model, "amp-bf16") as machine:
        for _ in range(3):
            model(torch.randn(8, 4).requires_grad_(), torch.arange(8) % 4).backward()
    (row,) = machine.coverage().roundings
    assert row["op"] == "cross_entropy_loss" and row["elements"] == 1


def test_infinities_and_nan_count_as_numbers():
    model = Op(lambda x: F.gelu(x))
    with ampscope.torch.emulate(model, "fp32") as machine:
        model(torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1.0]))
    (row,) = machine.coverage().roundings
    assert row["elements"] == 5 and row["max_ulps"] <= 1 and str(row["elements"]) in str(machine.coverage())


def test_after_the_first_call_the_kernels_are_pytorchs_again():
    before = torch._C._dispatch_dump("aten::gelu")
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    with ampscope.torch.emulate(model, "fp32"):
        assert torch._C._dispatch_dump("aten::gelu") != before
        model(torch.randn(2, 4))
        assert torch._C._dispatch_dump("aten::gelu") == before
    with ampscope.torch.emulate(model[0], "fp32"):  # closed before it was called
        pass
    assert torch._C._dispatch_dump("aten::gelu") == before


def test_comparing_changes_no_random_numbers():
    """Products that a module makes between other ops, rounded stochastically, and made again by a checkpoint."""
    def layers(x, w):
        return F.linear(F.gelu(F.linear(x, w) * 2 + 1), w)

    def trained(compares):
        torch.manual_seed(0)
        model = Op(lambda x, w: torch.utils.checkpoint.checkpoint(layers, x, w, use_reentrant=False))
        model.weight = nn.Parameter(torch.randn(16, 16))
        with ampscope.torch.emulate(model, "nvfp4", seed=5) as machine:
            if not compares:
                machine._emulation.stop_comparing()
            model(torch.randn(16, 16), model.weight).float().sum().backward()
        return model.weight.grad, machine.coverage().roundings
    (a, compared), (b, none) = trained(True), trained(False)
    assert torch.equal(a, b) and [row["op"] for row in compared] == ["gelu"] and not none


def test_what_strict_ops_leaves_to_pytorch_is_a_line_without_products():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(0))
    with ampscope.torch.emulate(model, "fp32", strict="ops") as machine:
        model(torch.randn(2, 4))
    found = {(row["module"], row["op"], row["how"], row["multiply_adds"]) for row in machine.coverage()}
    assert ("1", "softmax.int", "in a form that has no rule", 0) in found and machine.coverage().share == 1
