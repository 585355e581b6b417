"""Layers of an emulated model that differ from the rest: layers= and skip=, as rows of one table."""
import json

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x, *, scale=None):
        y = self.down(F.gelu(self.up(x)))
        return y if scale is None else y * scale.to(y.dtype)


class Network(nn.Module):
    def __init__(self, keeps=True):
        super().__init__()
        torch.manual_seed(0)
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(32, 16)
        self.keeps, self.types = keeps, []

    def forward(self, x):
        for block in self.h:
            y = block(x, scale=x * 0 + 1) if self.keeps else checkpoint(block, x, scale=x * 0 + 1, use_reentrant=False)
            self.types.append(y.dtype)
            x = x + y
        return self.lm_head(x)


def batch(seed=0):
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(seed))


def trained(precision, model=None, **options):
    """What a training of a few steps leaves, and what ran."""
    model = model or Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with ampscope.torch.emulate(model, precision, **options) as machine:
        for step in range(3):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            optimizer.step()
    assert not torch.is_autocast_enabled("cpu")
    return [p.detach().clone() for p in model.parameters()], machine.coverage()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def operands(coverage, module):
    return sorted({row["operands"] for row in coverage if row["module"] == module})


@pytest.mark.parametrize("precision", ["fp8-current,accumulate=hopper-wgmma-fp8", "fp8-delayed,scaling-history=2",
                                       "mxfp8", "nvfp4", "deepseek", "int4"])
def test_layers_that_are_all_changed_compute_as_a_model_that_begins_so(precision):
    whole = precision + (",m=fp32,v=fp32" if precision == "deepseek" else "")
    want, _ = trained(whole, skip=[])
    assert same(trained("amp-bf16", layers={"*": precision}, skip=[])[0], want)
    assert same(trained("amp-bf16", layers={"h": precision, "lm_head": precision})[0], want)  # wins over skip's default
    assert same(trained("mxfp8", layers={"h.?": precision, "lm_head": precision})[0], want)
    assert same(trained(whole, layers={"h.*": "mxfp8"}, skip=[])[0], want) == (precision == "mxfp8")
    assert same(trained(whole, layers={"*": "bf16"})[0], trained("amp-bf16")[0])
    assert same(trained("amp-bf16", layers={"*": "fp32"})[0], trained("fp32")[0])
    assert same(trained("fp32", layers={"*": "tf32,accumulate=kahan"})[0], trained("tf32,accumulate=kahan")[0])


def test_skip_is_short_for_rows_of_the_table():
    for skip in (["h.0"], ["h.*.up", "lm_head"], "*", []):
        names = [skip] if isinstance(skip, str) else skip
        got, coverage = trained("fp8-current", skip=skip)
        want, other = trained("fp8-current", skip=[], layers={name: "scaling=none" for name in names})
        assert same(got, want) and list(coverage) == list(other)
    default = trained("fp8-current")
    assert same(default[0], trained("fp8-current", skip=["lm_head"])[0])
    assert operands(default[1], "lm_head") == ["bf16 x bf16"]


def test_coverage_tells_what_such_layers_ran_as():
    _, coverage = trained("fp8-current", layers={"lm_head": "fp32", "h.*.down": "bf16", "h.1.down": "mxfp8"})
    assert {row["how"] for row in coverage} == {"as asked"} and coverage.share == 1
    assert operands(coverage, "lm_head") == ["fp32 x fp32"]
    assert operands(coverage, "h.0.down") == ["bf16 x bf16"]
    assert operands(coverage, "h.1.down") == ["e4m3 x e4m3"]  # backward, too
    assert operands(coverage, "h.1.up") == ["e4m3 x e4m3", "e5m2 x e4m3"]


def test_a_module_outside_autocast_gets_fp32_and_computes_in_it():
    body, head = nn.Linear(32, 32), nn.Linear(32, 16)
    model, x = nn.Sequential(body, head), batch()
    with ampscope.torch.emulate(body, "fp8-current"):
        between = body(x)
    with ampscope.torch.emulate(head, "fp32"):
        want = head(between)
    with ampscope.torch.emulate(model, "fp8-current", layers={"1": "fp32"}):
        got = model(x)
    assert torch.equal(got, want) and between.bfloat16().equal(between)
    got.sum().backward()
    for off, types in (({"h.0": "autocast=off"}, [torch.float32, torch.bfloat16]),
                       ({"h": "autocast=off"}, [torch.float32] * 2),
                       ({"*": "autocast=off", "h.1": "autocast=on"}, [torch.float32, torch.bfloat16]), ({}, None)):
        model = Network()
        trained("amp-bf16", model, layers=off)
        assert model.types == (types or [torch.bfloat16] * 2) * 3


def test_what_a_module_outside_autocast_gets_by_name_is_widened_too():
    class Named(nn.Linear):
        def forward(self, *, x):
            self.type = x["x"].dtype
            return super().forward(x["x"])

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), Named(32, 4)

        def forward(self, x):
            return self.second(x={"x": self.first(x)})

    for layers, form in (({}, torch.bfloat16), ({"second": "fp32"}, torch.float32)):
        model = Outer()
        with ampscope.torch.emulate(model, "amp-bf16", layers=layers):
            model(batch())
        assert model.second.type == form


def test_a_policy_holds_where_a_checkpoint_computes_again():
    for layers in ({"h.0": "fp32"}, {"h.1": "mxfp8,autocast=off"},
                   {"h.*": "fp8-delayed,scaling-history=2"}):
        assert same(trained("fp8-current", layers=layers)[0], trained("fp8-current", Network(False), layers=layers)[0])


def test_a_failure_within_a_module_outside_autocast_leaves_autocast_as_it_was():
    model = Network()
    with ampscope.torch.emulate(model, "amp-bf16", layers={"h.0.up": "fp32"}):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.randn(8, 7))
        assert not torch.is_autocast_enabled("cpu")
        model.types.clear()
        model(batch())
        assert model.types == [torch.bfloat16] * 2
    assert not model.h[0].up._forward_pre_hooks_with_kwargs and not torch.is_autocast_enabled("cpu")


def test_delayed_scaling_of_some_layers_has_their_histories():
    model = Network()
    layers = {"h.0.up": "fp8-delayed,scaling-history=3", "h.1": "fp8-delayed,scaling-history=1,scaling-margin=1"}
    with ampscope.torch.emulate(model, "amp-bf16", layers=layers) as machine:
        amax = model.h[0].up.weight.abs().max(), model.h[1].up.weight.abs().max()
        for _ in range(2):
            model(batch()).sum().backward()
        states = machine._emulation.states
        assert sorted(layer for layer, _ in states) == ["h.0.up", "h.1.down", "h.1.up"]
        assert states["h.0.up", None].scales()[1] == 448 / amax[0]
        assert states["h.1.up", None].scales()[1] == 448 / amax[1] / 2


def test_products_of_a_users_backward_have_the_accumulators_of_their_layer():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return gradient @ w.mT, x.mT @ gradient

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))

        def forward(self, x):
            return Square.apply(x, self.weight)

    def gradient(precision, **options):
        model = nn.Sequential(Layer(), Layer())
        with ampscope.torch.emulate(model, precision, **options):
            model(batch()).square().sum().backward()
        return [p.grad for p in model.parameters()]

    keys = "accumulate=exact,accumulate-backward=fp16"
    assert same(gradient("fp32", layers={"*": keys}), gradient("fp32," + keys))
    one = gradient("fp32", layers={"1": "accumulate-backward=fp16"})
    assert torch.equal(one[1], gradient("fp32,accumulate-backward=fp16")[1])
    assert not torch.equal(one[1], gradient("fp32")[1])


def test_mistakes_are_errors_of_one_line():
    for options, text in (({"layers": {"lm_haed": "bf16"}}, "layers: the model has no module 'lm_haed'"),
                          ({"layers": {"h.*.attn": "bf16"}}, "layers: the model has no module 'h.*.attn'"),
                          ({"skip": ["lm_haed"]}, "skip: the model has no module 'lm_haed'"),
                          ({"layers": {"lm_head": "bf17"}}, "layer lm_head:bf17: unknown format or recipe"),
                          ({"layers": {"h.0": "v=bf16"}}, "layer h.0:v=bf16: unknown key of a layer 'v'"),
                          ({"layers": {"h.0": "scaling-history=2"}}, "layer h.0:scaling-history=2: ")):
        with pytest.raises(ValueError) as error:
            ampscope.torch.emulate(Network(), "fp32", **options)
        assert str(error.value).startswith(text) and "\n" not in str(error.value)
    with ampscope.torch.emulate(Network(), "fp32"):
        pass  # nothing was left open


def test_run_json_has_the_table(tmp_path):
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ampscope.torch.emulate(model, "fp8-current", layers={"h.*.up": "mxfp8"}), \
            ampscope.torch.record(tmp_path / "run", model, optimizer):
        model(batch()).sum().backward()
        optimizer.step()
    precision = json.loads((tmp_path / "run/run.json").read_text())["precision"]
    assert precision["layers"] == [{"modules": "lm_head", "arithmetic": "scaling=none"},
                                   {"modules": "h.*.up", "arithmetic": "mxfp8"}]


class Experts(nn.Module):
    """A matrix for each expert in one parameter; or, with `product` None, a linear layer for each."""

    def __init__(self, product=None):
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(3, 32, 16))
        self.product = product
        self.layers = nn.ModuleList([nn.Linear(32, 16, bias=False) for _ in range(3)])
        for layer, matrix in zip(self.layers, self.weight):
            layer.weight.data = matrix.detach().t().contiguous()

    def forward(self, x):
        if self.product is not None:
            return self.product(x, self.weight)
        return torch.stack([layer(part) for layer, part in zip(self.layers, x)])


@pytest.mark.parametrize("product, precision", [
    *((product, precision) for product in (torch.bmm, torch.matmul)
      for precision in ("fp8-current", "fp8-delayed,scaling-history=2", "mxfp8")),
    (lambda x, w: torch.einsum("ebk,ekn->ebn", x, w), "fp32,scaling=te-current"),  # which autocast would cast before
])
def test_matrices_of_one_parameter_are_layers_of_their_own(product, precision):
    together, apart = Experts(product), Experts()
    for model in (together, apart):
        model.outs = []
        with ampscope.torch.emulate(model, precision) as machine:
            for step in range(3):
                x = torch.randn(3, 8, 32, generator=torch.Generator().manual_seed(step)) * 4 ** step
                x *= torch.tensor([1.0, 30.0, 900.0])[:, None, None]  # scales that differ
                model.outs.append(model(x))
                model.outs[-1].square().mean().backward()
        assert all("e4m3" in row["operands"] for row in machine.coverage())
    assert same(together.outs, apart.outs)
    assert same(together.weight.grad.mT, [layer.weight.grad for layer in apart.layers])


def test_weights_of_one_module_have_scales_of_their_own():
    """As those of modules of their own have, whose sizes differ."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.w1, self.w2 = nn.Parameter(torch.randn(32, 32)), nn.Parameter(torch.randn(32, 32) * 1e-3)

        def forward(self, x):
            return torch.nn.functional.linear(torch.nn.functional.linear(x, self.w1).relu(), self.w2)

    one, x = Two(), batch()
    apart = nn.Sequential(nn.Linear(32, 32, False), nn.ReLU(), nn.Linear(32, 32, False))
    apart[0].weight.data, apart[2].weight.data = one.w1.detach().clone(), one.w2.detach().clone()
    outs = []
    for model in (one, apart):
        with ampscope.torch.emulate(model, "fp8-delayed,scaling-history=2", skip=[]):
            for _ in range(3):
                out = model(x)
                out.sum().backward()
        outs.append(out)
    assert torch.equal(*outs)
    assert torch.equal(one.w2.grad, apart[2].weight.grad)


@pytest.mark.parametrize("precision, unused", [
    ("fp32,accumulate=cdna2-fp16", ["cdna2-fp16"]),
    ("amp-bf16,accumulate=hopper-wgmma-fp8", ["hopper-wgmma-fp8"]),
    ("fp8-current,accumulate=hopper-wgmma-fp8+blackwell-mxf4nvf4", ["blackwell-mxf4nvf4"]),
    ("fp8-current,accumulate=hopper-wgmma-fp8", []),
    ("int4,accumulate-forward=int32-satfinite", []),
    ("fp32,accumulate=exact", []),
])
def test_accumulators_that_no_product_had_operands_for_are_named(precision, unused):
    model = torch.nn.Linear(16, 16)
    with ampscope.torch.emulate(model, precision) as machine:
        model(torch.ones(2, 16)).sum().backward()
    coverage = machine.coverage()
    assert coverage.unused == unused
    assert ("No product had operands that" in str(coverage)) == bool(unused)


@pytest.mark.parametrize("precision, shape, left_out", [
    ("mxfp8", (64, 32, 32), []),
    ("mxfp8", (4, 32, 64), [("input", "4x64"), ("gradient", "4x32")]),
    ("nvfp4", (16, 16, 24), [("input", "16x24"), ("weight", "16x24")]),
    ("amp-bf16,scaling=deepseek", (3, 128, 72), [("input", "3x72")]),
    ("fp8-current", (3, 5, 7), []),
])
def test_shapes_that_the_recipes_library_does_not_cast_are_named(precision, shape, left_out):
    rows, out, width = shape
    model = torch.nn.Sequential(torch.nn.Linear(width, out))
    with ampscope.torch.emulate(model, precision, skip=[]) as machine:
        for _ in range(2):
            model(torch.ones(rows, width, requires_grad=True)).sum().backward()
    coverage = machine.coverage()
    assert coverage.share == 1
    assert [(row["module"], row["operand"], row["shape"]) for row in coverage.left_out] == \
        [("0", *operand) for operand in left_out]
    text = "cast here, but not by the recipe's library, whose blocks these shapes do not fill:"
    assert (text in str(coverage)) == bool(left_out)
    assert not left_out or "\n  0  " + ", ".join(map(" ".join, left_out)) + "\n" in str(coverage)


@pytest.mark.parametrize("precision, operands", [("int4", "int8sym x int4"), ("int8", "int8sym x int8sym")])
def test_operands_with_zero_points_have_the_name_of_their_codes(precision, operands):
    model = torch.nn.Linear(128, 16)
    with ampscope.torch.emulate(model, precision) as machine:
        model(torch.ones(2, 128))
    assert {row["operands"] for row in machine.coverage()} == {operands}


@pytest.mark.parametrize("precision, around", [("amp-bf16", "bf16"), ("tf32", "tf32"), ("amp-fp16", "fp16")])
def test_skipped_layers_have_full_precision_without_a_recipe_too(precision, around):
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    with ampscope.torch.emulate(model, precision, skip=["0"]) as machine:
        model(torch.ones(2, 16)).sum().backward()
    assert {row["module"]: row["operands"] for row in machine.coverage()} == {
        "0": "fp32 x fp32", "1": f"{around} x {around}"}
