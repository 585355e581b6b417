"""Steps of torch.optim.Muon in the formats of a precision."""
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")


@pytest.mark.parametrize("scale, name", [(None, "muon"), ("match_rms_adamw", "muon-rms"),
                                         ("spectral_unclamped", "muon-spectral")])
@pytest.mark.parametrize("precision", ["fp32", "pure-bf16", "pure-bf16-kahan", "pure-fp16", "amp-bf16,m=e8m10"])
def test_steps_of_muon(precision, scale, name):
    """Oracles: ampscope.Optimizer, whose steps tests/test_optimizer.cpp compares with recorded ones, bit for bit; and
    PyTorch's own steps, whose products have another order of sums."""
    asked = ampscope._ampscope.AskedPrecision(precision)
    torch.manual_seed(0)
    model, theirs = (nn.Linear(12, 20, bias=False) for _ in range(2))
    theirs.load_state_dict(model.state_dict())
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "adjust_lr_fn": scale}
    steps = torch.optim.Muon(model.parameters(), **options), torch.optim.Muon(theirs.parameters(), **options)
    twin = ampscope.Optimizer(model.weight.detach().numpy(), name, lr=0.05, momentum=0.9, weight_decay=0.1,
                              weight_format=asked.formats["master"], state_format=asked.formats["m"],
                              rounding=asked.update)
    first = theirs.weight.detach().clone()
    with ampscope.torch.emulate(model, precision, optimizer=steps[0]):
        for step in range(5):
            gradient = torch.randn(20, 12, generator=torch.Generator().manual_seed(step))
            model.weight.grad, theirs.weight.grad = gradient.to(model.weight.dtype), gradient
            for optimizer in steps:
                optimizer.step()
            twin.step(gradient)
            assert torch.equal(model.weight.detach().float(), torch.from_numpy(twin.weight))
            assert torch.equal(steps[0].state[model.weight]["momentum_buffer"].float(), torch.from_numpy(twin.m))
        moved, apart = ((theirs.weight - w).norm() for w in (first, model.weight.detach().float()))
    assert apart < (0.002 if precision == "fp32" else 0.06) * moved
    assert steps[0].state[model.weight]["momentum_buffer"].dtype == torch.float32


def test_products_of_muon_have_the_accumulators_of_the_precision():
    weights = []
    for precision in ("fp32", "fp32,accumulate=bf16", "fp32,accumulate=bf16"):
        torch.manual_seed(0)
        model = nn.Linear(12, 20, bias=False)
        optimizer = torch.optim.Muon(model.parameters(), lr=0.05)
        with ampscope.torch.emulate(model, precision, optimizer=optimizer):
            model.weight.grad = torch.ones(20, 12) + torch.arange(12.0)
            optimizer.step()
        weights.append(model.weight.detach().clone())
    assert torch.equal(weights[1], weights[2]) and not torch.equal(weights[0], weights[1])


def test_what_of_muon_is_refused():
    model = nn.Linear(12, 20, bias=False)
    optimizer = torch.optim.Muon(model.parameters(), ns_steps=3)
    with pytest.raises(NotImplementedError, match="ns_steps=3"):
        ampscope.torch.emulate(model, "pure-bf16", optimizer=optimizer)
    with pytest.raises(ValueError, match="expected a matrix, got 1 axes"):
        ampscope.Optimizer([1.0, 2.0], "muon")


def test_groups_that_change_meanwhile_are_checked():
    model = nn.Linear(12, 20, bias=False)
    optimizer = torch.optim.Muon(model.parameters())
    model.weight.grad = torch.ones(20, 12)
    with ampscope.torch.emulate(model, "fp32", optimizer=optimizer):
        optimizer.step()
        before = model.weight.detach().clone()
        for changes, words in (({"ns_steps": 1}, "ns_steps=1"),
                               ({"ns_steps": 5, "adjust_lr_fn": "mine"}, "adjust_lr_fn='mine'"),
                               ({"adjust_lr_fn": None, "momentum": 0.0}, "without momentum")):
            optimizer.param_groups[0].update(changes)
            with pytest.raises(NotImplementedError, match=words):
                optimizer.step()
        assert torch.equal(model.weight, before)
        optimizer.param_groups[0].update(momentum=0.9, ns_coefficients=[3.4445, -4.7750, 2.0315])
        optimizer.step()
    with pytest.raises(NotImplementedError, match="under a scale"):
        ampscope.torch.emulate(model, "ms-amp", optimizer=torch.optim.Muon(model.parameters()))


@pytest.mark.parametrize("size, moves", [(1e18, True), (1e20, False)])
def test_a_norm_beyond_fp32_moves_nothing(size, moves):
    """PyTorch sums the squares in FP32, so that the norm is infinite and the direction 0."""
    gradient = size * torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    theirs = nn.Parameter(torch.zeros(16, 16))
    theirs.grad = gradient
    torch.optim.Muon([theirs], lr=1).step()
    ours = ampscope.Optimizer(torch.zeros(16, 16), "muon", lr=1)
    ours.step(gradient)
    assert bool(theirs.detach().any()) == bool(ours.weight.any()) == moves


def zeropower_via_newtonschulz5(gradient, steps):
    """That of Keller Jordan's muon.py, by whose name emulate() knows his optimizer."""
    x = gradient.bfloat16()
    if gradient.size(-2) > gradient.size(-1):
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if gradient.size(-2) > gradient.size(-1) else x


class SingleDeviceMuon(torch.optim.Optimizer):
    """As Keller Jordan's."""

    def __init__(self, params, lr=0.02, weight_decay=0, momentum=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if len(self.state[p]) == 0:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                momentum = self.state[p]["momentum_buffer"]
                momentum.lerp_(p.grad, 1 - group["momentum"])
                update = zeropower_via_newtonschulz5(p.grad.lerp_(momentum, group["momentum"]), 5)
                update *= max(1, p.size(-2) / p.size(-1)) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update.reshape(p.shape), alpha=-group["lr"])


@pytest.mark.parametrize("precision", ["fp32", "pure-bf16", "pure-bf16-kahan"])
def test_steps_of_keller_jordans_muon(precision):
    asked = ampscope._ampscope.AskedPrecision(precision)
    torch.manual_seed(0)
    model, theirs = (nn.Linear(12, 20, bias=False) for _ in range(2))
    theirs.load_state_dict(model.state_dict())
    steps = [SingleDeviceMuon(of.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1) for of in (model, theirs)]
    twin = ampscope.Optimizer(model.weight.detach().numpy(), "muon-jordan", lr=0.05, momentum=0.9, weight_decay=0.1,
                              weight_format=asked.formats["master"], state_format=asked.formats["m"],
                              rounding=asked.update)
    first, seen = theirs.weight.detach().clone(), []
    steps[0].register_step_post_hook(lambda *_: seen.append(1))
    schedule = torch.optim.lr_scheduler.StepLR(steps[0], 100)
    with ampscope.torch.emulate(model, precision, optimizer=steps[0]):
        for step in range(5):
            gradient = torch.randn(20, 12, generator=torch.Generator().manual_seed(step))
            model.weight.grad, theirs.weight.grad = gradient.to(model.weight.dtype), gradient.clone()
            for optimizer in steps:
                optimizer.step()
            schedule.step()
            twin.step(gradient)
            assert torch.equal(model.weight.detach().float(), torch.from_numpy(twin.weight))
            assert torch.equal(steps[0].state[model.weight]["momentum_buffer"].float(), torch.from_numpy(twin.m))
        moved, apart = ((theirs.weight - w).norm() for w in (first, model.weight.detach().float()))
    assert apart < (0.01 if precision == "fp32" else 0.06) * moved
    assert len(seen) == 5
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones(20, 12)
    steps[0].step()  # his own again
    assert not torch.equal(model.weight, before) and len(seen) == 6
    images = nn.Conv2d(2, 3, 3, bias=False)
    with pytest.raises(NotImplementedError, match="other than two axes"):
        ampscope.torch.emulate(images, "fp32", optimizer=SingleDeviceMuon(images.parameters()))
    with pytest.raises(NotImplementedError, match="test_emulate_muon.Muon is not emulated; .*'s SingleDeviceMuon are"):
        ampscope.torch.emulate(model, "fp32", optimizer=type("Muon", (SingleDeviceMuon,), {})(model.parameters()))
