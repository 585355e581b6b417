"""Loops that people write around models, emulated: what they do must not change what a product computes."""
import copy
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402
from networks import GPT  # noqa: E402

FP8 = "fp8-current,accumulate=hopper-wgmma-fp8"


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


def batch(seed, rows=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 16, generator=generator), torch.randint(0, 4, (rows,), generator=generator)


def loss_of(model, seed):
    x, target = batch(seed)
    return F.cross_entropy(model(x), target)


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


def alone(seed, scale=1.0):
    """The gradients of one batch, of a model that has seen no other."""
    model = network()
    with ampscope.torch.emulate(model, FP8):
        (loss_of(model, seed) * scale).backward()
    return gradients(model)


def test_accumulated_gradients_are_sums():
    model = network()
    with ampscope.torch.emulate(model, FP8):
        for seed in range(3):
            loss_of(model, seed).backward()
    one, two, three = (alone(seed) for seed in range(3))
    assert all(torch.equal(g, a + b + c) for g, a, b, c in zip(gradients(model), one, two, three))


def test_several_passes_before_backward():
    """In the other order, too: each backward has the casts of its own forward."""
    for order in ((0, 1), (1, 0)):
        model = network()
        with ampscope.torch.emulate(model, FP8):
            losses = [loss_of(model, seed) for seed in range(2)]
            for i in order:
                losses[i].backward()
        assert all(torch.equal(g, a + b) for g, a, b in zip(gradients(model), alone(0), alone(1)))


def test_backward_twice_through_one_graph():
    model = network()
    with ampscope.torch.emulate(model, FP8):
        loss = loss_of(model, 0)
        loss.backward(retain_graph=True)
        loss.backward()
    assert all(torch.equal(g, 2 * a) for g, a in zip(gradients(model), alone(0)))


def test_gradients_of_gradients_are_refused():
    model = network()
    with ampscope.torch.emulate(model, FP8):
        loss = loss_of(model, 0)
        with pytest.raises(NotImplementedError, match="gradients of gradients"):
            torch.autograd.grad(loss, list(model.parameters()), create_graph=True)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scaled_losses_and_clipping(device):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with ampscope.torch.emulate(model, "amp-fp16"):
        scaler = torch.amp.GradScaler(device, init_scale=2.0**12)
        scaler.scale(loss_of(model, 0)).backward()
        scaled = gradients(model)
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    assert norm > 0.1 and scaler.get_scale() == 2.0**12
    model = network()
    with ampscope.torch.emulate(model, "amp-fp16"):
        (loss_of(model, 0) * 2.0**12).backward()
    assert all(torch.equal(a, b) for a, b in zip(scaled, gradients(model)))


def test_tied_and_unused_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.out, self.unused = nn.Embedding(4, 16), nn.Linear(16, 4, bias=False), nn.Linear(3, 3)
            self.mid = nn.Linear(16, 16)
            self.out.weight = self.embed.weight

        def forward(self, ids):
            return self.out(torch.tanh(self.mid(self.embed(ids))))

    ids, found = torch.arange(4), []
    for tied in (True, False):
        model = Tied()
        if not tied:
            model.out.weight = nn.Parameter(model.embed.weight.detach().clone())
        with ampscope.torch.emulate(model, FP8, skip=[]) as machine:
            F.cross_entropy(model(ids), ids).backward()
        assert {row["module"] for row in machine.coverage()} == {"mid", "out"}
        assert model.unused.weight.grad is None
        found.append((model.embed.weight.grad, model.out.weight.grad))
    assert torch.equal(found[0][0], found[1][0] + found[1][1])


def test_weights_that_are_set_anew_are_read_anew():
    model, x = network(), batch(0)[0]
    with ampscope.torch.emulate(model, FP8):
        first = model(x)
        with torch.no_grad():
            model[0].weight.mul_(-1)
        model[2].weight = nn.Parameter(model[2].weight.detach() * 2)
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
        second = model(x)
    plain = network()
    with torch.no_grad():
        plain[0].weight.mul_(-1)
        plain[2].weight.mul_(2)
    with ampscope.torch.emulate(plain, FP8) as machine:
        assert torch.equal(plain(x), second) and not torch.equal(first, second)
    assert machine.coverage().share == 1


def test_weights_that_are_computed_are_scaled_as_others():
    x, plain, normed = batch(0)[0], network(), network()
    nn.utils.parametrizations.weight_norm(normed[0])
    plain[0].weight = nn.Parameter(normed[0].weight.detach().clone())
    with ampscope.torch.emulate(plain, FP8):
        out = plain(x)
    with ampscope.torch.emulate(normed, FP8) as machine:
        again = normed(x)
        again.sum().backward()
    assert torch.equal(out, again) and normed[0].parametrizations.weight.original0.grad is not None
    assert machine.coverage().share == 1


def test_an_operand_that_is_changed_in_place_is_noticed():
    model = network()
    with ampscope.torch.emulate(model, FP8):
        loss = loss_of(model, 0)
        with torch.no_grad():
            model[2].weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_an_error_within_the_model_leaves_it_usable():
    class Fails(nn.Sequential):
        def forward(self, x):
            y = super().forward(x)
            if len(x) == 3:
                raise KeyError("three rows")
            return y

    model = Fails(*network())
    with ampscope.torch.emulate(model, FP8):
        with pytest.raises(KeyError, match="three rows"):
            model(torch.ones(3, 16))
        assert not torch.is_autocast_enabled("cpu")
        F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), alone(0)))


def test_compiled_models_run_eagerly():
    model = torch.compile(network())
    with pytest.warns(UserWarning, match="runs eagerly while it is emulated"):
        machine = ampscope.torch.emulate(model, FP8)
    with machine:
        loss_of(model, 0).backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), alone(0)))
    assert {row["module"] for row in machine.coverage()} == {"0", "2"}


def test_an_interrupt_leaves_nothing():
    class Stops(nn.Linear):
        def forward(self, x):
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(16, 16), Stops(16, 16))
    with ampscope.torch.emulate(model, FP8) as machine:
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2, 16))
    assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="closed"), machine:
        pass


def test_copies_are_plain():
    model = network()
    with ampscope.torch.emulate(model, FP8) as machine:
        copied, average = copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model)
        seen = [m(batch(0)[0]) for m in (copied, average)]
        assert not machine.coverage()
    assert torch.equal(seen[0], network()(batch(0)[0])) and torch.equal(*seen)


def test_skip_names_modules_or_patterns():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.ModuleDict({"body": nn.Linear(16, 16), "lm_head": nn.Linear(16, 4)})

        def forward(self, x):
            return self.model["lm_head"](self.model["body"](x))

    def operands(**options):
        with ampscope.torch.emulate(Outer(), FP8, **options) as machine:
            machine._emulation._model(batch(0)[0])
        return [row["operands"] for row in machine.coverage()]

    low, scaled = "bf16 x bf16", "e4m3 x e4m3"
    assert operands() == [scaled, low]
    assert operands(skip=[]) == [scaled, scaled]
    assert operands(skip="model.body") == [low, scaled]
    assert operands(skip=["model.*"]) == [low, low]
    assert operands(skip=[r"/.*\.(body|tail)/"]) == [low, scaled]
    with pytest.raises(ValueError, match="no module 'lm_haed'"):
        operands(skip=["lm_haed"])
    with pytest.raises(ValueError, match="not a regular expression"):
        operands(skip=["/[/"])


def test_first_and_last_blocks_have_a_recipe_of_their_own():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    with ampscope.torch.emulate(model, FP8, skip=[], layers={"first-1": "bf16", "last-1": "mxfp8"}) as machine:
        model(batch(0)[0])
    rows = {row["module"]: row["operands"] for row in machine.coverage()}
    assert rows == {"0": "bf16 x bf16", "1": "e4m3 x e4m3", "2": "e4m3 x e4m3"}
    with pytest.raises(ValueError, match="there are no numbered modules"):
        ampscope.torch.emulate(nn.Linear(4, 4), FP8, layers={"last-1": "bf16"}).close()


def test_operands_of_other_types_are_as_in_pytorch():
    """Refused; they would not fit where the gradient is written."""
    x = torch.ones(2, 16)
    for dtypes in ((torch.bfloat16,) * 2, (torch.float32, torch.bfloat16)):
        layer = nn.Linear(16, 8)
        layer.weight.data, layer.bias.data = layer.weight.data.to(dtypes[0]), layer.bias.data.to(dtypes[1])
        with ampscope.torch.emulate(layer, "fp32,scaling=te-current"), pytest.raises(RuntimeError, match="dtype"):
            layer(x).sum().backward()


def test_parameters_in_the_backward_of_a_function():
    """Are none of a layer's forward: sums are those of backward, and no history of its operands changes."""
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w.T

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w, g.T @ x

    apply = Product.apply  # bound before

    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 16, generator=torch.Generator().manual_seed(0)))

        def forward(self, x):
            return apply(x, self.weight)

    x = batch(0)[0].requires_grad_()
    model, gradient = Custom(), torch.randn(8, 4)
    with ampscope.torch.emulate(model, "fp32,accumulate-backward=exact") as machine:
        model(x).backward(gradient)
    assert torch.equal(x.grad, (gradient.double() @ model.weight.double()).float())
    assert len(machine.coverage()) == 2 and machine.coverage().share == 1


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_without_a_key_attend_to_nothing(kind):
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    mask[3] = False
    if kind == "float":
        mask = torch.zeros(6, 6).masked_fill(~mask, -torch.inf)
    plain = F.scaled_dot_product_attention(q, k, v, mask)

    class Attention(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, mask)

    with ampscope.torch.emulate(Attention(), "fp32") as machine:
        out = machine._emulation._model(q, k[:, :1].expand_as(k), v)
        torch.testing.assert_close(machine._emulation._model(q, k, v), plain)
    assert not out[:, :, 3].any() and out.isfinite().all()


RANKS = """
import sys
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
import ampscope.torch
from test_emulate_loops import FP8, GPT

rank, folder = int(sys.argv[1]), {folder!r}
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=2)

def model_of():
    torch.manual_seed(0)
    return GPT(vocabulary=32, width=16, context=8)

def backward(model, seed):
    tokens = torch.randint(0, 32, (2, 8), generator=torch.Generator().manual_seed(seed))
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()

def gradients(model):
    return {{n.removeprefix("module."): p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
             for n, p in model.named_parameters()}}

def ddp(model):
    return torch.nn.parallel.DistributedDataParallel(model)

def fsdp(model):
    for part in (*model.blocks, model):
        fully_shard(part)
    return model

parts = []
for seed in range(2):
    model = model_of()
    with ampscope.torch.emulate(model, FP8):
        backward(model, seed)
    parts.append(gradients(model))
wanted = {{name: (parts[0][name] + parts[1][name]) / 2 for name in parts[0]}}
for wrap in (ddp, fsdp):
    model = wrap(model_of())
    with ampscope.torch.emulate(model, FP8) as machine:
        backward(model, rank)
    assert machine.coverage().share == 1, machine.coverage()
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), (wrap.__name__, name)
dist.destroy_process_group()
"""


def test_ranks_of_ddp_and_fsdp_compute_what_one_does(tmp_path):
    (tmp_path / "train.py").write_text(RANKS.format(tests=os.path.dirname(__file__), folder=str(tmp_path)))
    ranks = [subprocess.Popen([sys.executable, tmp_path / "train.py", str(rank)]) for rank in range(2)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
