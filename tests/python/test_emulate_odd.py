"""What a stranger's script has: odd arguments and calls, modules added meanwhile, wrappers, and errors of its own."""
import copy
import json
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from ampscope.torch import compare, emulate, record  # noqa: E402


class Calls(nn.Module):
    """A model that calls a function with its weight."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(*shape or (5, 3)))

    def forward(self, *args):
        return self.function(self.weight, *args)


def residual():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def loss_of(model, x):
    return model(x).square().mean()


def step(model, optimizer, x):
    loss = loss_of(model, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# compare() and the weights.

@pytest.mark.parametrize("rounding", ["ms-amp", "fp32,master=e4m3"])
def test_precisions_that_round_weights_leave_them_and_other_precisions_alone(rounding):
    model, x = residual(), torch.randn(8, 12)
    before = copy.deepcopy(model.state_dict())
    alone = compare(model, x, loss_of, ["amp-bf16"], effects=False).findings.json()
    both = compare(model, x, loss_of, [rounding, "amp-bf16"], effects=False)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    errors = {p.precision: p.gradient.relative for p in both.findings.precisions}
    assert errors["amp-bf16"] == json.loads(alone)["precisions"][0]["gradient"]["relative"]
    assert errors[rounding] > 1e-3  # of the weights' rounding


# What PyTorch refuses.

@pytest.mark.parametrize("strict", [False, "ops"])
@pytest.mark.parametrize("indices", [[7], [-1], [10**9]])
def test_indices_beyond_a_table_are_pytorchs_error(strict, indices):
    model = Calls(lambda w: F.embedding(torch.tensor(indices), w))
    with emulate(model, "fp32", strict=strict), pytest.raises(IndexError):
        model()


@pytest.mark.parametrize("target", [5, -5, 10**7])
def test_targets_that_are_no_class_are_pytorchs_error(target):
    model = Calls(lambda w: F.cross_entropy(w, torch.tensor([1, target, 0, 0, -100])))
    with emulate(model, "fp32", strict="ops"), pytest.raises(IndexError):
        model()


def test_shapes_that_do_not_fit_are_pytorchs_error():
    model = residual()
    with emulate(model, "fp8-current"), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.randn(3, 11))


@pytest.mark.parametrize("arguments,error,words", [
    ({"skip": [3]}, TypeError, r"skip: expected names of modules such as \['lm_head'\], got \[3\]"),
    ({"skip": 5}, TypeError, "skip: expected names of modules"),
    ({"layers": {3: "bf16"}}, TypeError, "layers: expected a dict"),
    ({"threads": "x"}, ValueError, "threads: expected a number from 0"),
    ({"threads": 1.5}, ValueError, "threads: expected a number from 0"),
    ({"threads": -1}, ValueError, "threads: expected a number from 0"),
    ({"threads": 99999}, ValueError, "threads: expected a number from 0"),
    ({"optimizer": residual()}, TypeError, "optimizer: expected one of torch.optim, or a list of them, got Sequential"),
    ({"optimizer": [1]}, TypeError, "optimizer: expected one of torch.optim, or a list of them, got int"),
])
def test_arguments_that_mean_nothing_are_named_in_one_line(arguments, error, words):
    with pytest.raises(error, match=words) as raised:
        emulate(residual(), "fp32", **arguments)
    assert "\n" not in str(raised.value)


# Calls that PyTorch takes.

@pytest.mark.parametrize("padding", ["valid", "same"])
def test_paddings_in_words(padding):
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3, padding=padding)), torch.randn(2, 3, 8, 8)
    plain = model(x)
    with emulate(model, "fp32") as machine:
        torch.testing.assert_close(model(x), plain)
    assert machine.coverage().share == 1


def test_a_convolution_with_one_number_for_both_axes():
    model, x = Calls(lambda w, x: torch.convolution(x, w, None, [2], [1], [1], False, [0], 1), 4, 3, 3, 3), \
        torch.randn(2, 3, 8, 8)
    plain = model(x)
    with emulate(model, "fp32"):
        torch.testing.assert_close(model(x), plain)


@pytest.mark.parametrize("strict", [False, "ops"])
def test_an_embedding_of_nothing(strict):
    model = nn.Sequential(nn.Embedding(5, 3))
    with emulate(model, "amp-bf16", strict=strict):
        assert model(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 3)


@pytest.mark.parametrize("call", [lambda w: torch.mul(0.5, w), lambda w: torch.add(1.0, w), lambda w: 2 * w + 3,
                                  lambda w: w.bfloat16() * w.sum(), lambda w: torch.mul(2, torch.arange(3)) + w])
def test_numbers_in_sums_and_products(call):
    model = Calls(call)
    plain = model()
    with emulate(model, "fp32", strict="ops"):
        assert torch.equal(model(), plain)


@pytest.mark.parametrize("call,shape", [(lambda w, x: F.linear(x, w), (3,)),
                                        (lambda w, x: F.linear(x, w, torch.ones(2, 5)), (5, 3))])
def test_unusual_linear_layers_under_a_recipe(call, shape):
    model, x = Calls(call, *shape), torch.randn(2, 3)
    plain = model(x)
    with emulate(model, "fp8-current"):
        torch.testing.assert_close(model(x).float(), plain, rtol=0.02, atol=0.05)


# Scripts for CUDA.

class Product(torch.autograd.Function):
    seen = []

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class WideProduct(Product):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        Product.seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
        ctx.save_for_backward(x, w)
        return x @ w.t()


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is made for CUDA is left to it")
@pytest.mark.parametrize("precision", ["amp-bf16", "fp8-current"])
@pytest.mark.parametrize("in_region", [False, True])
def test_functions_of_the_user_made_for_cuda(precision, in_region):
    model, x = Calls(lambda w, x: Product.apply(x, w)), torch.randn(4, 3)
    wide = Calls(lambda w, x: WideProduct.apply(x.half(), w))
    for each in (model, wide):
        with emulate(each, precision), torch.autocast("cuda", torch.bfloat16, enabled=in_region):
            each(x).sum().backward()
        torch.testing.assert_close(each.weight.grad, x.sum(0).expand(5, 3), rtol=0.05, atol=0.05)
    assert Product.seen.pop() == (torch.float32, False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is made for CUDA is left to it")
def test_autocast_of_cuda_says_that_it_is_on():
    seen = []
    model = Calls(lambda w: seen.append((torch.is_autocast_enabled(), torch.get_autocast_dtype("cuda"))))
    with emulate(model, "amp-bf16"):
        assert not torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
        model()
    assert seen == [(True, torch.bfloat16)] and not torch.is_autocast_enabled()
    assert torch.get_autocast_dtype("cuda") == torch.float16


# What is left, and what is named.

def test_constants_and_frozen_weights_are_put_back_after_pure_formats():
    model = residual()
    model.register_buffer("table", torch.rand(7), persistent=False)
    model.register_buffer("count", torch.zeros(1))
    model[0].requires_grad_(False)
    table, frozen = model.table.clone(), model[0].weight.detach().clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    with emulate(model, "pure-bf16", optimizer=optimizer):
        assert model.table.dtype == torch.bfloat16
        step(model, optimizer, torch.randn(4, 12).bfloat16())
        model.count += 1
    assert torch.equal(model.table, table) and torch.equal(model[0].weight, frozen)
    assert model.count == 1 and model.count.dtype == torch.float32


def test_a_wrapper_of_data_parallelism_changes_no_name():
    model, x = residual(), torch.randn(6, 12)

    def gradients(wrapped):
        with emulate(wrapped, "nvfp4", skip=["3"], layers={"0": "nvfp4"}) as machine:
            loss_of(wrapped, x).backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return found, {row["module"] for row in machine.coverage()}
    plain, names = gradients(model)
    wrapped, same = gradients(nn.DataParallel(model))
    assert names == same == {"0", "3"}
    assert all(torch.equal(a, b) for a, b in zip(plain, wrapped))


def test_modules_that_are_added_meanwhile_are_layers_of_their_own():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)

        def forward(self, x):
            return self.second(100 * self.first(x))

    def added(model):
        torch.manual_seed(1)
        model.first, model.second = nn.Linear(12, 12), nn.Linear(12, 12)

    def losses(model, when):
        if when == "before":
            added(model)
        with emulate(model, "fp8-delayed") as machine:
            if when == "meanwhile":
                added(model)
            optimizer = torch.optim.SGD(model.parameters(), 1e-6)
            return [step(model, optimizer, x) for _ in range(4)], {row["module"] for row in machine.coverage()}

    x = torch.randn(6, 12)
    wanted, names = losses(Two(), "before")
    assert losses(Two(), "meanwhile") == (wanted, names) and names == {"first", "second"}


def test_weights_rounded_stochastically_need_no_copy_in_fp32(tmp_path):
    def warned(precision):
        model = residual()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        with warnings.catch_warnings(record=True) as found, emulate(model, precision, optimizer=optimizer), \
                record(tmp_path / precision, model, optimizer):
            warnings.simplefilter("always")
            step(model, optimizer, torch.randn(4, 12).bfloat16())
        return any("without a copy in FP32" in str(w.message) for w in found)
    assert warned("pure-bf16") and not warned("pure-bf16-stochastic")


@pytest.mark.parametrize("precision", ["fp8-current", "nvfp4"])
def test_a_layer_without_outputs_runs_in_a_recipe(precision):
    model = nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 3))
    with emulate(model, precision):
        assert model(torch.randn(2, 4)).shape == (2, 3)


@pytest.mark.parametrize("call", [
    lambda w: F.linear(torch.ones(2, 3, dtype=torch.int64), w),
    lambda w: torch.mm(w, torch.ones(3, 2, dtype=torch.int64)),
    lambda w: F.linear(torch.ones(2, 3, dtype=torch.bool), w),
    lambda w: torch.mm(w, w.t(), out=torch.empty(5, 5, dtype=torch.float64)),
    lambda w: torch.baddbmm(torch.ones(2, 5, 5), w[None], w.t()[None]),
    lambda w: F.conv_transpose2d(torch.ones(1, 5, 4, 4), w[:, :, None, None], output_padding=1)])
@torch.no_grad()
def test_errors_are_those_of_pytorch(call):
    model = Calls(call)
    with pytest.raises(RuntimeError) as plain:
        model()
    with emulate(model, "fp32"), pytest.raises(RuntimeError) as emulated:
        model()
    assert str(emulated.value) == str(plain.value)


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
def test_an_lstm_on_packed_sequences_is_emulated(precision):
    class Packed(nn.LSTM):
        def forward(self, x):
            return super().forward(nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True))[0].data

    model = Packed(4, 5, batch_first=True)
    with warnings.catch_warnings(), emulate(model, precision) as machine:
        warnings.simplefilter("error")
        model(torch.randn(2, 3, 4))
    assert machine.coverage().share == 1 and {row["how"] for row in machine.coverage()} == {"as asked"}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_products_of_nested_tensors_are_counted_as_not_emulated(layout):
    """Two sentences of 3 and 5 words: 8 rows of a layer, and 9 + 25 scores a head."""
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 6)

        def forward(self, x):
            q = self.linear(x)
            if x.layout == torch.strided:  # PyTorch attends to jagged ones only
                return q
            q = q.unflatten(-1, [2, 3]).transpose(1, 2)
            return F.scaled_dot_product_attention(q, q, q)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that nested tensors are new
        x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=layout)
    model = Attention()
    with torch.no_grad(), emulate(model, "fp32") as machine:
        out = model(x)
        with torch.no_grad():
            assert all(torch.equal(a, b) for a, b in zip(out.unbind(), Attention.forward(model, x).unbind()))
    counted = {(row["op"], row["how"]): row["multiply_adds"] for row in machine.coverage()}
    linear = counted.pop(("linear", "of a nested tensor"))
    assert linear == 2 * 8 * 8 * 6
    assert sum(counted.values()) == (0 if layout == torch.strided else 2 * 34 * 6)
    with emulate(model, "fp32") as machine:
        model(x)
    assert machine.coverage()[0]["multiply_adds"] == 2 * 8 * 8 * 6  # the gradient of the weight, too
    with emulate(model, "fp32", strict=True), pytest.raises(NotImplementedError, match="linear of a nested tensor"):
        model(x)


def test_products_of_integers_are_counted():
    class Quantized(nn.Module):
        def forward(self, x):
            return torch._int_mm(x, x.mT.contiguous())

    model, x = Quantized(), torch.randint(-128, 128, (32, 8), dtype=torch.int8)
    with emulate(model, "fp32") as machine:
        assert torch.equal(model(x), x.int() @ x.int().mT)
    (row,) = machine.coverage()
    assert (row["op"], row["how"], row["multiply_adds"]) == ("_int_mm", "of int8", 32 * 32 * 8)


def test_a_coverage_of_nothing_says_so():
    with emulate(nn.ReLU(), "fp32") as machine:
        pass
    assert str(machine.coverage()) == "No product of the model ran."


@pytest.mark.parametrize("options, message", [
    ({"skip": ""}, "skip: expected names of modules"), ({"skip": ["0", ""]}, "skip: expected names of modules"),
    ({"optimizer": torch.optim.SGD(residual().parameters(), 0.1)},
     "optimizer: this SGD has no parameter of the model")])
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        emulate(residual(), "fp8-current", **options)


def test_inputs_changed_in_place_are_cast_as_they_are():
    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(32, 16)

        def forward(self, x):
            x.data.mul_(2)
            return self.linear(x)

    torch.manual_seed(0)
    model, x = Doubling(), torch.randn(8, 32).bfloat16().float()
    with torch.no_grad(), emulate(model, "master-bf16,scaling=te-current"):
        changed = model(x.clone())
    with torch.no_grad(), emulate(model.linear, "master-bf16,scaling=te-current"):
        assert torch.equal(changed, model.linear(2 * x))
