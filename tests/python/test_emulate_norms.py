"""Group normalisation and SiLU of models with strict="ops", bit for bit: by a definition in NumPy, and in FP80."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Op(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def computed(function, operands, gradient, precision="fp32"):
    """The result and the gradients of all operands, and the lines of coverage()."""
    operands = [t.clone().requires_grad_() for t in operands]
    with ampscope.torch.emulate(Op(function), precision, strict="ops") as machine:
        out = machine._emulation._model(*operands)
        out.backward(gradient.to(out.dtype))
    return [out.detach(), *(t.grad for t in operands)], machine.coverage()


def lane_sum(x):
    """Of FP64 numbers: lane i mod 16 adds its own in order; then lane i adds lanes i + 8, i + 4, i + 2 and i + 1."""
    lanes = np.zeros(16)
    for i, v in enumerate(x):
        lanes[i % 16] += v
    for half in (8, 4, 2, 1):
        lanes[:half] += lanes[half:2 * half]
    return lanes[0]


def group_norm(x, groups, weight, bias, gradient, eps):
    """The result and the gradients of x, weight and bias in FP64, not yet rounded."""
    channels, shape = x.shape[1], x.shape
    x, gradient = (np.float64(t).reshape(len(t) * groups, channels // groups, -1) for t in (x, gradient))
    weight, bias = (np.float64(t).reshape(groups, -1, 1) for t in (weight, bias))
    out, to_x = np.empty_like(x), np.empty_like(x)
    sums, blocks = np.zeros((2, groups, channels // groups)), []
    for r, (row, g) in enumerate(zip(x, gradient)):
        group, count = r % groups, row.size
        d = row - lane_sum(row.ravel()) / count
        inverse = 1 / np.sqrt(lane_sum((d * d).ravel()) / count + eps)
        out[r] = d * inverse * weight[group] + bias[group]
        wide = g * weight[group]
        along = lane_sum((wide * (d * inverse)).ravel()) / count
        to_x[r] = (wide - lane_sum(wide.ravel()) / count - d * inverse * along) * inverse
        if r % 32 == 0:  # so many rows are added up by themselves
            blocks.append(np.zeros_like(sums))
        blocks[-1][0, group] += [lane_sum(line) for line in g * (d * inverse)]
        blocks[-1][1, group] += [lane_sum(line) for line in g]
    for block in blocks:
        sums += block
    return [out.reshape(shape), to_x.reshape(shape), *sums.reshape(2, channels)]


def rounded(x, dtype):
    """FP64 to the type in one step: torch rounds by way of FP32, which hides no tie of a random number."""
    return torch.from_numpy(np.asarray(x)).to(dtype)


CASES = [((20, 6, 5, 3), 3), ((3, 8, 33), 1), ((40, 4, 2, 2), 4), ((9, 12), 2)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, groups", CASES, ids=str)
def test_group_norm_is_the_definition(shape, groups, dtype):
    torch.manual_seed(2)
    like, kind = torch.randn(shape, dtype=torch.float64), TYPES[dtype]
    x, gradient = (like * 2 + 0.5).to(kind), torch.randn(shape).to(kind)
    weight, bias = (torch.randn(shape[1]).to(kind) for _ in "wb")
    got, coverage = computed(lambda x, w, b: F.group_norm(x, groups, w, b, 1e-3), (x, weight, bias), gradient)
    want = group_norm(*(t if isinstance(t, int) else t.double().numpy() for t in (x, groups, weight, bias, gradient)),
                      1e-3)
    for name, a, b in zip(("result", "x", "weight", "bias"), got, want):
        assert a.dtype == kind and torch.equal(a, rounded(b, kind)), name
    assert not list(coverage)  # nothing was left to PyTorch
    plain = [t.double() for t in (x, weight, bias)]
    near = F.group_norm(plain[0], groups, *plain[1:], 1e-3)
    assert torch.allclose(got[0].double(), near, rtol=2 * torch.finfo(kind).eps, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16", "amp-bf16", "pure-bf16"])
def test_modules_normalise_in_fp32_under_autocast(precision):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 2, 1))
    seen = {}
    for i in (1, 2, 3):
        model[i].register_forward_hook(lambda m, args, out, i=i: seen.update({i: (args[0].dtype, out.dtype)}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ampscope.torch.emulate(model, precision, optimizer=optimizer, strict="ops") as machine:
        model(torch.randn(4, 2, 6, 6)).sum().backward()
    low = {"fp32": torch.float32, "amp-fp16": torch.float16}.get(precision, torch.bfloat16)
    wide = low if precision == "pure-bf16" else torch.float32
    assert seen[1] == (low, wide) and seen[2] == (wide, wide) and seen[3][0] == wide  # SiLU keeps the type that comes
    assert machine.coverage().share == 1 and all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("dtype", TYPES)
def test_norms_without_weights_multiply_by_ones(dtype):
    torch.manual_seed(5)
    kind = TYPES[dtype]
    x, gradient, bias, short = (torch.randn(shape).to(kind) for shape in ((3, 4, 5), (3, 4, 5), (4,), (5,)))
    ones = torch.ones(4).to(kind), torch.ones(5).to(kind)
    for without, given, extra in (
            (lambda x: F.group_norm(x, 2), lambda x: F.group_norm(x, 2, ones[0]), ()),
            (lambda x, b: F.group_norm(x, 2, None, b), lambda x, b: F.group_norm(x, 2, ones[0], b), (bias,)),
            (lambda x: F.layer_norm(x, (5,)), lambda x: F.layer_norm(x, (5,), ones[1]), ()),
            (lambda x, b: F.layer_norm(x, (5,), None, b), lambda x, b: F.layer_norm(x, (5,), ones[1], b), (short,)),
            (lambda x: F.rms_norm(x, (5,)), lambda x: F.rms_norm(x, (5,), ones[1]), ())):
        got, coverage = computed(without, (x, *extra), gradient)
        want, _ = computed(given, (x, *extra), gradient)
        assert not list(coverage) and all(torch.equal(a, b) for a, b in zip(got, want))
    got, _ = computed(nn.GroupNorm(2, 4, affine=False), (x,), gradient)
    want = group_norm(x.double().numpy(), 2, np.ones(4), np.zeros(4), gradient.double().numpy(), 1e-5)
    assert all(torch.equal(a, rounded(b, kind)) for a, b in zip(got, want))


@pytest.mark.parametrize("groups, weight, bias, said", [
    (3, (4,), None, "divisible by num_groups"), (0, (4,), None, "num groups to be greater than 0"),
    (-1, (4,), None, "num groups to be greater than 0"), (2, (3,), None, "Expected weight to be a vector of size"),
    (2, (4, 1), None, "Expected weight to be a vector of size"), (2, (4,), (3,), "Expected bias to be a vector"),
    (2, None, (3,), "Expected bias to be a vector")], ids=str)
def test_what_does_not_fit_is_an_error_of_pytorchs(groups, weight, bias, said):
    operands = [None if shape is None else torch.ones(shape) for shape in (weight, bias)]
    with pytest.raises(RuntimeError, match=said):
        computed(lambda x: torch.group_norm(x, groups, *operands), (torch.randn(2, 4, 3),), torch.randn(2, 4, 3))
    if groups == 2 and weight:
        with pytest.raises(RuntimeError, match="Expected (weight|bias) to be of same shape"):
            computed(lambda x: F.layer_norm(x, (4,), *operands), (torch.randn(2, 3, 4),), torch.randn(2, 3, 4))


@pytest.mark.parametrize("dtype", TYPES)
def test_silu_is_rounded_once(dtype):
    torch.manual_seed(4)
    kind = TYPES[dtype]
    x, gradient = (8 * torch.randn(4096)).to(kind), torch.randn(4096).to(kind)
    got, coverage = computed(F.silu, (x,), gradient)
    wide, g = np.longdouble(x.double().numpy()), np.longdouble(gradient.double().numpy())
    share = 1 / (1 + np.exp(-wide))
    assert torch.equal(got[0], rounded(np.float64(wide * share), kind))
    assert torch.equal(got[1], rounded(np.float64(g * (share * (1 + wide * (1 - share)))), kind))
    assert not list(coverage)
    assert torch.allclose(got[0], F.silu(x), rtol=4 * torch.finfo(kind).eps, atol=torch.finfo(kind).tiny)


def test_silu_of_edges_and_in_place():
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-30, -200.0, 3e38])
    ours, slopes = computed(F.silu, (x,), torch.ones(8))[0]
    plain = F.silu(x.double()).float()
    same = (ours == plain) | (ours.isnan() & plain.isnan())
    assert same[2:].all() and ours[0] == torch.inf and ours[1].isnan()  # as in PyTorch's kernel
    # Gradients at infinities are limits; PyTorch's are NaN there.
    assert slopes[:2].tolist() == [1, 0] and slopes[1].signbit() and slopes[2].isnan()
    assert slopes[3:5].tolist() == [0.5, 0.5] and slopes[7] == 1
    model, given = Op(lambda x: F.silu(x * 2, inplace=True)), torch.randn(64)
    with ampscope.torch.emulate(model, "fp32", strict="ops"):
        out = model(given.requires_grad_())
        out.sum().backward()
    with ampscope.torch.emulate(Op(lambda x: F.silu(x * 2)), "fp32", strict="ops") as machine:
        again = given.detach().requires_grad_()
        want = machine._emulation._model(again)
        want.sum().backward()
    assert torch.equal(out, want) and torch.equal(given.grad, again.grad)
