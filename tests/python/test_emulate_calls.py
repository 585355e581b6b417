"""Calls that people make of a model and its parts, emulated: what is computed, and what is left behind."""
import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch.utils.checkpoint  # noqa: E402
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402
from test_emulate import Calls, numbers, same  # noqa: E402
from test_emulate_loops import FP8, batch, network  # noqa: E402


class Tree(nn.Module):
    """Calls itself, and multiplies by a weight of its own after that."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.leaf, self.pair = nn.Linear(8, 8), nn.Parameter(torch.randn(16, 8))

    def forward(self, node):
        if isinstance(node, torch.Tensor):
            return self.leaf(node)
        return torch.cat([self(part) for part in node], -1) @ self.pair


def test_a_model_that_calls_itself():
    model = Tree()
    with ampscope.torch.emulate(model, "amp-bf16") as machine:
        model((torch.randn(2, 8), (torch.randn(2, 8), torch.randn(2, 8)))).sum().backward()
    assert {(r["module"], r["operands"]) for r in machine.coverage()} == {("leaf", "bf16 x bf16"), ("", "bf16 x bf16")}


@pytest.mark.parametrize("precision", ["master-bf16", FP8])
def test_after_an_interrupt_the_model_is_as_before(precision):
    class Stops(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model, other, x = nn.Sequential(nn.Linear(16, 16), Stops()), nn.Linear(16, 4), batch(0)[0]
    with ampscope.torch.emulate(model, precision) as machine:
        with pytest.raises(KeyboardInterrupt):
            model(x)
        assert {p.dtype for p in model.state_dict().values()} == {torch.float32}
        assert not torch.is_autocast_enabled("cpu")
        seen = machine.coverage().multiply_adds
        assert other(x).dtype == torch.float32 and machine.coverage().multiply_adds == seen


@pytest.mark.parametrize("exchange", [lambda p, new: p.data.copy_(new), lambda p, new: setattr(p, "data", new)])
def test_weights_that_are_exchanged_for_an_evaluation(exchange):
    model, x = network(), batch(0)[0]
    with ampscope.torch.emulate(model, "master-bf16"), torch.no_grad():
        before = model(x)
        for p in model.parameters():
            exchange(p, p.detach() * 2)
        after = model(x)
    with ampscope.torch.emulate(model, "master-bf16"), torch.no_grad():
        assert torch.equal(after, model(x)) and not torch.equal(after, before)


def test_buffers_that_the_model_replaces_are_kept():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 4)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            y = self.layer(x)
            self.mean = 0.5 * self.mean + y.detach().mean(0)
            return y

    model = Mean()
    with ampscope.torch.emulate(model, "master-bf16"):
        y = model(batch(0)[0])
    assert model.mean.dtype == torch.float32 and torch.equal(model.mean, y.detach().bfloat16().mean(0).float())


@pytest.mark.parametrize("precision", ["nvfp4", "fp8-delayed,scaling-history=2"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_evaluation_between_changes_no_training(precision, reentrant):
    def trained(evaluates):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with ampscope.torch.emulate(model, precision, skip=[]):
            for step in range(3):
                x, target = batch(step)
                out = torch.utils.checkpoint.checkpoint(model[2], model[1](model[0](x)), use_reentrant=reentrant)
                if evaluates:
                    with torch.no_grad():
                        model.eval()(batch(step + 50)[0])
                        model.train()
                F.cross_entropy(out, target).backward()
                if evaluates:
                    with torch.inference_mode():
                        model.eval()(batch(step + 60)[0])
                    model.train()
                optimizer.step()
                optimizer.zero_grad()
        return list(model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(trained(True), trained(False)))


def test_parts_without_gradients_are_the_same_when_a_checkpoint_computes_them_again():
    frozen = nn.Linear(16, 16)

    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.frozen = nn.Linear(16, 16), frozen

        def forward(self, x, checkpointed):
            def part(x):
                y = self.layer(x)
                with torch.no_grad():
                    z = self.frozen(y)
                return y * z
            return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False) if checkpointed else part(x)

    def gradient(checkpointed):
        model = Quantized()
        with ampscope.torch.emulate(model, FP8) as machine:
            model(batch(0)[0], checkpointed).square().sum().backward()
        operands = {row["operands"] for row in machine.coverage() if row["module"] == "frozen"}
        return model.layer.weight.grad, operands
    assert torch.equal(gradient(True)[0], gradient(False)[0]) and gradient(True)[1] == {"e4m3 x e4m3"}


@pytest.mark.parametrize("precision", ["amp-bf16", "master-bf16", "pure-bf16"])
def test_methods_of_the_model_that_call_its_modules(precision):
    model, x = network(), batch(0)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ampscope.torch.emulate(model, precision, optimizer=optimizer) as machine:
        whole = model(x)
        parts = model[2](model[1](model[0](x)))
        assert torch.equal(parts, whole) and parts.dtype == whole.dtype
        assert copy.deepcopy(model)._forward_pre_hooks_with_kwargs == {}
    assert {row["operands"] for row in machine.coverage()} == {"bf16 x bf16"}


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_products_pass_and_are_named(layout):
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, adjacency, x):
            return torch.mm(adjacency, self.layer(x))

    model, x = Graph(), torch.randn(8, 4)
    with ampscope.torch.emulate(model, "tf32") as machine:
        out = model(getattr(torch.eye(8), layout)(), x)
        out.sum().backward()
        assert torch.equal(out, model.layer(x))
    assert any("sparse" in row["how"] for row in machine.coverage())


def test_tensors_of_inference_mode_outside_of_it():
    with torch.inference_mode():
        a, b = numbers(4, 16), numbers(16, 8)
    with ampscope.torch.emulate(model := Calls(torch.mm), "tf32") as machine:
        assert not same(model(a, b), torch.mm(a, b)) and machine.coverage().multiply_adds == 4 * 16 * 8


@pytest.mark.filterwarnings("ignore")
def test_gradients_that_are_not_emulated_are_refused():
    model, x = nn.Linear(16, 8), numbers(4, 16)
    with ampscope.torch.emulate(model, "tf32"):
        with pytest.raises(NotImplementedError, match="by torch.func and forward_ad are not"):
            torch.func.grad(lambda x: model(x).sum())(x)
        with pytest.raises(NotImplementedError, match="by torch.func and forward_ad are not"):
            with torch.autograd.forward_ad.dual_level():
                model(torch.autograd.forward_ad.make_dual(x, x))


def test_views_of_parameters_outside_of_a_call():
    model, x = nn.Embedding(10, 16), numbers(4, 16)
    with ampscope.torch.emulate(model, "tf32") as machine:
        got = x @ model.weight.t()
    assert machine.coverage().multiply_adds == 4 * 16 * 10 and not same(got.detach(), (x @ model.weight.t()).detach())


@pytest.mark.parametrize("what, error", [
    (dict(seed=-1), "seed: expected a whole number"), (dict(seed=1.5), "seed: expected a whole number"),
    (dict(precision=None), "precision: expected a text"), (dict(layers=["0"]), "layers: expected a dict"),
    (dict(layers={"0": None}), "layers: expected a dict"), (dict(strict="op"), "strict: expected False"),
    (dict(model="net"), "model: expected a torch.nn.Module")])
def test_arguments_that_mean_nothing(what, error):
    with pytest.raises((TypeError, ValueError), match=error):
        ampscope.torch.emulate(**{"model": network(), "precision": "fp32", **what})


def test_gradients_by_torch_func_of_what_is_not_emulated():
    model, x = Calls(F.gelu), torch.randn(8)
    plain = torch.func.grad(lambda x: model(x).sum())(x)
    with ampscope.torch.emulate(model, "fp32"):
        assert torch.equal(torch.func.grad(lambda x: model(x).sum())(x), plain)


def test_what_is_put_around_calls_meanwhile_stays():
    calls = []
    model, original = network(), nn.Module.__call__
    try:
        with ampscope.torch.emulate(model, "master-bf16"):
            inner = nn.Module.__call__
            nn.Module.__call__ = lambda module, *args: calls.append(module) or inner(module, *args)
            emulated = model(batch(0)[0])
        plain = model(batch(0)[0])  # through ours, which is closed
    finally:
        nn.Module.__call__ = original
    assert len(calls) == 8 and torch.equal(plain, model(batch(0)[0])) and not torch.equal(plain, emulated)
