"""Products and layers of an emulated model, element by element."""
import contextlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def numbers(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


class Calls(nn.Module):
    """A model that computes what it is given, with a weight so that it is one."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.zeros(1))

    def forward(self, *args):
        return self.function(*args)


def emulated(precision, function, *args, **kwargs):
    """What a model computes that calls the function, and how."""
    with ampscope.torch.emulate(Calls(function), precision, **kwargs) as machine:
        return machine._emulation._model(*args), machine.coverage()


def reference(a, b, accumulator, form):
    """The product by the function that its own tests prove, rounded once to its operands' type."""
    out = ampscope.matmul(a.detach().float().numpy(), b.detach().float().numpy(), accumulator, a_format=form)
    return torch.from_numpy(np.asarray(out)).to(a.dtype)


def same(a, b):
    """The same bits; but a NaN is a NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        torch.where(a == a, a, 1).view(torch.int32 if a.dtype == torch.float32 else torch.int16),
        torch.where(b == b, b, 1).view(torch.int32 if b.dtype == torch.float32 else torch.int16))


PRODUCTS = {  # name: shapes of a and b, the call, the call of the reference
    "mm": ((5, 24), (24, 7), torch.mm),
    "matmul": ((2, 3, 5, 24), (3, 24, 7), torch.matmul),
    "matmul-2d": ((2, 5, 24), (24, 7), torch.matmul),
    "bmm": ((3, 5, 24), (3, 24, 7), torch.bmm),
    "mv": ((5, 24), (24,), torch.mv),
    "dot": ((24,), (24,), torch.dot),
    "einsum": ((3, 5, 24), (3, 24, 7), lambda a, b: torch.einsum("bij,bjk->bik", a, b)),
    "at": ((5, 24), (24, 7), lambda a, b: a @ b),
}
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "strided": lambda t: torch.stack([t, t + 1], -1)[..., 0],
    "expanded": lambda t: t[:1].expand_as(t) if t.dim() > 1 else t,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", PRODUCTS)
@pytest.mark.parametrize("accumulator, form", [("fp32", "fp32"), ("kahan", "fp32"), ("fp32", "bf16"),
                                               ("ampere-bf16", "bf16"), ("hopper-wgmma-fp16", "fp16")])
def test_products_are_dots(accumulator, form, call, layout):
    left, right, function = PRODUCTS[call]
    dtype = HALVES.get(form, torch.float32)
    a, b = (LAYOUTS[layout](numbers(*shape, seed=i).to(dtype)) for i, shape in enumerate((left, right)))
    with torch.no_grad():
        out, coverage = emulated(f"fp32,accumulate={accumulator}", function, a, b)
    assert coverage.share == 1 and coverage.multiply_adds > 0
    assert same(out, reference(a, b, accumulator, form))


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_inference_mode_has_the_same_products(form):
    x, layer = numbers(3, 24), nn.Linear(24, 7)
    x, layer = x.to(HALVES.get(form, torch.float32)), layer.to(HALVES.get(form, torch.float32))
    with ampscope.torch.emulate(layer, "fp32,accumulate=exact"), torch.inference_mode():
        out = layer(x)
    product = ampscope.matmul(x.float().numpy(), layer.weight.detach().float().numpy().T, "exact", a_format=form)
    assert same(out.clone(), (torch.from_numpy(product) + layer.bias.detach().float()).to(x.dtype))


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 1), (0, 2), (2, 0.25)])
def test_sums_with_factors_are_rounded_once(beta, alpha):
    a, b, c = numbers(5, 24).bfloat16(), numbers(24, 7, seed=1).bfloat16(), numbers(5, 7, seed=2).bfloat16()
    a3, b3, c3 = a.expand(2, -1, -1), b.expand(2, -1, -1), c.expand(2, -1, -1)
    calls = {"addmm": lambda: torch.addmm(c, a, b, beta=beta, alpha=alpha),
             "baddbmm": lambda: torch.baddbmm(c3, a3, b3, beta=beta, alpha=alpha),
             "addbmm": lambda: torch.addbmm(c, a3, b3, beta=beta, alpha=alpha),
             "addmv": lambda: torch.addmv(c[:, 0], a, b[:, 0], beta=beta, alpha=alpha)}
    exact = a.double() @ b.double()
    wanted = {"addmm": c.double() * beta + exact * alpha, "baddbmm": (c3.double() * beta + exact * alpha),
              "addbmm": c.double() * beta + 2 * exact * alpha, "addmv": (c.double() * beta + exact * alpha)[:, 0]}
    for name, call in calls.items():
        out, coverage = emulated("fp32,accumulate=exact", call)
        assert coverage.share == 1 and coverage.multiply_adds > 0, name
        error = (out.double() - wanted[name]).abs() / wanted[name].abs()
        assert error.max() <= 2**-8 * (1 + 2**-10), name  # half a unit in the last place, and FP32's own error


CONVOLUTIONS = {  # shapes of image and weight, settings
    "square": ((2, 3, 9, 9), (4, 3, 3, 3), {"padding": 1}),
    "rectangle": ((2, 3, 9, 7), (4, 3, 1, 3), {"padding": (0, 2), "stride": (2, 1)}),
    "dilation": ((1, 2, 11, 9), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (1, 2), "stride": 2}),
    "groups": ((2, 6, 8, 8), (9, 2, 3, 3), {"groups": 3}),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    "same": ((2, 3, 9, 9), (4, 3, 4, 3), {"padding": "same"}),
    "patches": ((2, 3, 8, 8), (5, 3, 4, 4), {"stride": 4}),
    "line": ((2, 3, 17), (4, 3, 5), {"stride": 2, "padding": 2}),
    "line-groups": ((2, 4, 17), (4, 2, 3), {"groups": 2, "dilation": 2}),
    "transposed": ((2, 4, 5, 5), (4, 3, 4, 4), {"stride": 2, "padding": 1}),
    "transposed-all": ((2, 4, 5, 4), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2),
                                                   "groups": 2, "dilation": (2, 1)}),
    "transposed-line": ((2, 4, 6), (4, 3, 3), {"stride": 2, "padding": 2, "output_padding": 1}),
    "transposed-cropped": ((2, 2, 6, 6), (2, 3, 1, 1), {"stride": 2, "padding": 1, "output_padding": 1}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients(name, dtype):
    """Of whole numbers, so that all sums are exact and PyTorch's are the same."""
    image, kernel, settings = CONVOLUTIONS[name]
    function = getattr(F, f"conv{'_transpose' if 'transposed' in name else ''}{len(image) - 2}d")
    channels = kernel[1] * settings.get("groups", 1) if "transposed" in name else kernel[0]

    def run(of, precision=None):
        x, w, b = (numbers(*shape, seed=i, scale=4).round().to(of).requires_grad_()
                   for i, shape in enumerate((image, kernel, (channels,))))
        if precision is None:
            out, share = function(x, w, b, **settings), 1
        else:
            out, coverage = emulated(precision, lambda *a: function(*a, **settings), x, w, b)
            share = coverage.share
        out.backward(numbers(*out.shape, seed=9, scale=4).round().to(of))
        return share, [out.detach(), x.grad, w.grad, b.grad]

    share, found = run(dtype, "fp32,accumulate=pairwise")
    assert share == 1
    for ours, plain in zip(found, run(torch.float64)[1], strict=True):
        assert torch.equal(ours, plain.to(dtype))


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if "transposed" not in name])
def test_convolutions_are_scaled_by_recipes(name):
    """Scales are powers of two here, so that the result is that of the whole numbers, which E4M3 has."""
    image, kernel, settings = CONVOLUTIONS[name]
    function = getattr(F, f"conv{len(image) - 2}d")
    x, w = (numbers(*shape, seed=i, scale=2).round().clamp(-7, 7) for i, shape in enumerate((image, kernel)))
    x[(slice(None), slice(None), *(n // 2 for n in image[2:]))] = 7  # 448 is 7 * 2^6; in each group, and in its patches
    w[(slice(None), slice(None), *(0 for _ in image[2:]))] = 7
    model = Calls(lambda x: function(x, w, **settings))
    with ampscope.torch.emulate(model, "fp32,scaling=te-current") as machine:
        assert torch.equal(model(x), function(x.double(), w.double(), **settings).float())
        assert not torch.equal(model(x + 0.3), function(x.double() + 0.3, w.double(), **settings).float())
    assert machine.coverage().share == 1


def scaled(x, element, largest):
    """A tensor cast with the scale of its largest magnitude, by torch's own cast, and the scale."""
    scale = torch.tensor(largest) / x.abs().max().float()
    return (x.float() * scale).clamp(-largest, largest).to(element).double(), 1 / scale


def scaled_product(a, b, a_scale, b_scale):
    """Exact, rounded to FP32, then multiplied by both scales in FP32 and rounded to BF16."""
    return ((a @ b).float() * (a_scale * b_scale)).bfloat16()


def test_a_scaled_layer_follows_its_recipe():
    """TransformerEngine's current scaling, from torch's FP8 types and products in double, which are exact here."""
    layer, x = nn.Linear(64, 32, bias=False), numbers(16, 64)
    with ampscope.torch.emulate(layer, "fp8-current,accumulate=exact", skip=[]) as machine:
        low = x.bfloat16().requires_grad_()
        out = layer(low)
        gradient = numbers(*out.shape, seed=5, scale=1e-3)
        out.backward(gradient)
    e4m3, e5m2 = (torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)
    qx, sx = scaled(low.detach(), *e4m3)
    qw, sw = scaled(layer.weight.detach(), *e4m3)
    qg, sg = scaled(gradient.bfloat16(), *e5m2)
    assert same(out.detach(), scaled_product(qx, qw.T, sx, sw).float())
    assert same(low.grad, scaled_product(qg, qw, sg, sw))
    assert same(layer.weight.grad, scaled_product(qg.T, qx, sg, sx).float())
    assert machine.coverage().multiply_adds == 3 * 16 * 32 * 64


def test_delayed_scales_follow_the_history_of_each_layer():
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 16, bias=False))
    amax = []
    with ampscope.torch.emulate(model, "fp8-delayed,scaling-history=3", skip=[]) as machine:
        for step in range(6):
            x = numbers(8, 32, seed=step, scale=2.0 ** (step % 4))
            amax.append(float(x.bfloat16().abs().max()))
            model(x).sum().backward()
            scale = machine._emulation.states["0", None].scales()[0]
            assert scale == (1.0 if step == 0 else np.float32(448) / np.float32(max(amax[max(step - 3, 0):step])))
    assert sorted(machine._emulation.states) == [("0", None), ("1", None)]


@pytest.mark.parametrize("precision", ["fp32", "fp8-current"])
def test_layers_that_are_skipped_have_no_scales(precision):
    model = nn.Sequential()
    model.add_module("body", nn.Linear(32, 32, bias=False))
    model.add_module("head", nn.Linear(32, 16, bias=False))
    x = numbers(8, 32)
    out = {}
    for skip in (None, [], ["body"], ["body", "head"]):
        with ampscope.torch.emulate(model, precision, skip=skip):
            out[str(skip)] = model(x).detach()
    differ = len({tuple(o.flatten().tolist()) for o in out.values()})
    assert differ == (4 if precision == "fp8-current" else 1)
    with ampscope.torch.emulate(model, "amp-bf16"):
        assert same(model(x).detach(), out["['body', 'head']"] if precision == "fp8-current" else model(x).detach())


@contextlib.contextmanager
def _nothing(*_, **__):
    yield


def train(model, how=_nothing, steps=3, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with how(model, **options):
        for step in range(steps):
            optimizer.zero_grad()
            F.mse_loss(model(numbers(8, 32, seed=step)), numbers(8, 16, seed=step + 100)).backward()
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))


def test_nothing_is_left_after_close():
    plain, touched = network(), network()
    train(touched, lambda m: ampscope.torch.emulate(m, "fp8-current"), steps=1)
    touched.load_state_dict(plain.state_dict())
    before = torch.amp.autocast.__init__, torch.autograd.Function.apply, torch.amp.GradScaler.__init__
    for a, b in zip(train(plain), train(touched)):
        assert torch.equal(a, b)
    with ampscope.torch.emulate(touched, "amp-fp16"):
        assert torch.amp.autocast.__init__ is not before[0]
    assert before == (torch.amp.autocast.__init__, torch.autograd.Function.apply, torch.amp.GradScaler.__init__)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in touched.modules())


def test_products_outside_of_the_model_are_plain():
    model, teacher, x = network(), network(1), numbers(8, 32)
    w = numbers(32, 16, seed=3).requires_grad_()
    plain = teacher(x), x @ w
    plain[1].sum().backward()
    gradient, w.grad = w.grad, None
    with ampscope.torch.emulate(model, "fp8-current") as machine:
        model(x).sum().backward()
        seen = machine.coverage().multiply_adds
        other = teacher(x), x @ w
        other[1].sum().backward()
        assert machine.coverage().multiply_adds == seen
    assert all(torch.equal(a, b) for a, b in zip(plain, other)) and torch.equal(gradient, w.grad)


def test_types_without_emulation_pass_and_are_counted():
    def function(x):
        return x.double() @ x.double().T, (x + 1j) @ (x.T + 1j), x.int() @ x.int().T
    x = numbers(4, 8)
    out, coverage = emulated("fp32,accumulate=kahan", function, x)
    assert all(torch.equal(a, b) for a, b in zip(out, function(x)))
    assert sorted((r["how"], r["multiply_adds"]) for r in coverage) == [
        ("of complex64", 128), ("of float64", 128), ("of int32", 128)]
    assert coverage.share == 0 and "0.00 % of 384 multiply-adds ran as asked" in str(coverage)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0)])
def test_products_without_elements(shape):
    out, _ = emulated("fp8-current", lambda x: x @ x.T, torch.zeros(shape))
    assert out.shape == (shape[0], shape[0]) and not out.any()


def test_what_is_refused():
    model = network()
    with ampscope.torch.emulate(model, "fp32"):
        with pytest.raises(RuntimeError, match="emulated already"):
            ampscope.torch.emulate(network(), "fp32")
    with pytest.raises(ValueError, match="amp-fp61"):
        ampscope.torch.emulate(model, "amp-fp61")
    with ampscope.torch.emulate(model, "amp-bf16"), torch.autocast("cuda", torch.float16):
        with pytest.raises(RuntimeError, match="autocast casts to fp16, and 'amp-bf16' to bf16"):
            model(numbers(2, 32))
    with ampscope.torch.emulate(model, "fp32"):  # after all of these
        model(numbers(2, 32))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("precision", ["fp8-delayed", "nvfp4,accumulate-backward=kahan", "amp-bf16"])
def test_checkpoints_change_nothing(precision, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self, saves):
            super().__init__()
            torch.manual_seed(0)
            self.saves = saves
            self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

        def part(self, i, x):
            y = torch.relu(self.blocks[i](x))
            return y + (y @ y.mT) @ y  # products that no module of its own computes

        def forward(self, x):
            for i in range(2):
                x = checkpoint(self.part, i, x, use_reentrant=reentrant) if self.saves else self.part(i, x)
            return x

    found = []
    for saves in (False, True):
        model = Model(saves)
        with ampscope.torch.emulate(model, precision, seed=3) as machine:
            for step in range(3):
                x = numbers(16, 32, seed=step, scale=0.1).requires_grad_()
                model(x).square().mean().backward()
        assert machine.coverage().share == 1
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_functions_of_the_user_are_emulated_backward_too():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.T, x.T @ g

    x, w = numbers(8, 32).requires_grad_(), numbers(32, 16, seed=1).requires_grad_()
    g = numbers(8, 16, seed=2)
    with ampscope.torch.emulate(Calls(Product.apply), "fp32,accumulate-backward=exact") as machine:
        machine._emulation._model(x, w).backward(g)
    assert same(w.grad, reference(x.T, g, "exact", "fp32")) and same(x.grad, reference(g, w.T, "exact", "fp32"))
    assert machine.coverage().multiply_adds == 3 * 8 * 32 * 16


def test_what_has_no_rule_is_said_and_may_be_an_error():
    x = numbers(1, 2, 4, 4, 4)
    model = nn.Conv3d(2, 3, 2)
    with ampscope.torch.emulate(model, "amp-bf16") as machine, pytest.warns(UserWarning, match="convolution is not"):
        model(x).sum().backward()
    (row,) = machine.coverage()
    products = 3 * 27 * 2 * 8
    assert row == {"module": "", "op": "convolution", "operands": "bfloat16 x bfloat16",
                   "how": "in a form that has no rule", "calls": 1, "multiply_adds": 2 * products}  # x has no gradient
    assert str(machine.coverage()).splitlines()[0] == f"0.00 % of {2 * products:,} multiply-adds ran as asked."
    with ampscope.torch.emulate(model, "fp32", strict=True), pytest.raises(NotImplementedError, match="convolution"):
        model(x)
    with ampscope.torch.emulate(Calls(torch.mm), "fp32", strict=True) as machine:
        with pytest.raises(NotImplementedError, match="the model: mm of float64: not emulated"):
            machine._emulation._model(numbers(2, 3).double(), numbers(3, 2).double())
        assert machine._emulation._model(numbers(2, 3), numbers(3, 2)).shape == (2, 2)
