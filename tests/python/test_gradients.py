"""Gradients of torch through emulated arithmetic: rounding counts as the identity, or a call refuses in one line."""
import numpy as np
import pytest

import ampscope

torch = pytest.importorskip("torch")


def normal(*shape, format="bf16", dtype=torch.float32):
    """Values of the format."""
    x = ampscope.quantize(torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))), format)
    return x.to(dtype).requires_grad_()


def gradients(call, *arguments):
    """The result, and the gradients of its sum weighted by other numbers."""
    for x in arguments:
        x.grad = None
    y = call(*arguments)
    (y.float() * torch.arange(1, y.numel() + 1).reshape(y.shape)).sum().backward()
    return y.detach(), [x.grad for x in arguments]


def same(a, b):
    return len(a) == len(b) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_passes_them_straight_through(dtype):
    x = torch.tensor([0.1, 1000.0, 1e-9], dtype=dtype, requires_grad=True)
    y, (gradient,) = gradients(lambda x: ampscope.quantize(x, "e4m3", policy="torch"), x)
    assert torch.equal(y, ampscope.quantize(x.detach(), "e4m3", policy="torch"))
    assert gradient.tolist() == [1, 2, 3] and gradient.dtype == dtype
    with torch.no_grad():
        assert not ampscope.quantize(x, "e4m3").requires_grad


@pytest.mark.parametrize("a, b", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)),
                                  ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 0), (0, 5))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_has_those_of_torchs_product(a, b, dtype):
    a, b = normal(*a, dtype=dtype), normal(*b, dtype=dtype)
    y, found = gradients(lambda a, b: ampscope.matmul(a, b, "bf16", a_format="bf16"), a, b)
    _, wanted = gradients(lambda a, b: a.float() @ b.float(), a, b)
    assert same(found, wanted)
    assert torch.equal(y, ampscope.matmul(a.detach(), b.detach(), "bf16", a_format="bf16"))
    one, (gradient,) = gradients(lambda a: ampscope.matmul(a, b.detach().float().numpy(), "bf16", a_format="bf16"), a)
    assert torch.equal(one, y) and same([gradient], wanted[:1])


@pytest.mark.parametrize("name, plain, n", [
    ("add", lambda a, b: a + b, 2), ("sub", lambda a, b: a - b, 2), ("mul", lambda a, b: a * b, 2),
    ("div", lambda a, b: a / b, 2), ("sqrt", lambda a: a.sqrt(), 1), ("fma", lambda a, b, c: a * b + c, 3)])
def test_an_operation_has_those_of_torchs_operation(name, plain, n):
    operation = getattr(ampscope, name)
    arguments = [x.detach().abs().requires_grad_() for x in (normal(3, 4), normal(4), normal(3, 1))[:n]]
    y, found = gradients(lambda *x: operation(*x, format="bf16"), *arguments)
    assert same(found, gradients(plain, *arguments)[1])
    assert torch.equal(y, operation(*(x.detach() for x in arguments), format="bf16"))
    if n > 1:  # of a tensor and a number
        _, found = gradients(lambda x: operation(x, 3.0, *arguments[2:], format="bf16"), arguments[0])
        assert same(found, gradients(lambda x: plain(x, 3.0, *arguments[2:]), arguments[0])[1])


@pytest.mark.parametrize("scaling", ["mxfp8", "nvfp4", "te-block,weight", "fp8-tensor", "deepseek"])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_pass_them_divided_by_their_scales(scaling, axis):
    x = (normal(48, 160).detach() * 100).requires_grad_()
    x.detach()[:, :32] *= 2**-10
    values, scales = ampscope.block_quantize(x, scaling, axis=axis)
    spread = ampscope.block_dequantize(np.ones(x.shape), scales.numpy(), scaling, axis=axis)
    _, (found,) = gradients(lambda x: ampscope.block_quantize(x, scaling, axis=axis).values, x)
    _, (wanted,) = gradients(lambda x: x / torch.from_numpy(spread), x)
    assert torch.equal(found, wanted) and not scales.requires_grad
    there_and_back = gradients(lambda x: ampscope.block_dequantize(
        *ampscope.block_quantize(x, scaling, axis=axis), scaling, axis=axis), x)[1][0]
    assert torch.allclose(there_and_back, torch.arange(1.0, x.numel() + 1).reshape(x.shape), rtol=1e-6)


def test_blocks_of_zeros_have_gradients():
    for row in ampscope.recipes():
        if row["name"] not in ("te-delayed", "ms-amp"):
            x = torch.zeros(2, 64, requires_grad=True)
            ampscope.block_dequantize(*ampscope.block_quantize(x, row["name"]), row["name"]).sum().backward()
            assert torch.equal(x.grad, torch.ones(2, 64)), row["name"]


def test_values_of_codes_have_the_gradient_of_their_type():
    codes = normal(5, dtype=torch.bfloat16)
    y, (gradient,) = gradients(lambda codes: ampscope.decode(codes, "bf16"), codes)
    assert torch.equal(y, codes.detach().float()) and gradient.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("call, name", [
    (lambda x: ampscope.dot(x, x), "a"), (lambda x: ampscope.dot([1, 2], [1, 2], c=x[0]), "c"),
    (lambda x: ampscope.encode(x, "bf16", dtype=torch.bfloat16), "x"),
    (lambda x: ampscope.block_dequantize(torch.ones(2, 2), x[:, None], "mxfp8"), "scales")])
def test_what_has_no_gradient_is_refused(call, name):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=rf"^{name}: requires a gradient, .*: pass {name}.detach\(\)$"):
        call(x)
    with torch.no_grad():
        call(x)
    call(x.detach())
    assert ampscope.encode(x, "bf16").tolist() == [0x3F80] * 2 and ampscope.histogram(x).count == 2


def test_a_layer_in_fp8_learns():
    """As it is written for a network of one's own: products of quantized operands, in a sum of Hopper's."""
    torch.manual_seed(0)
    weight = torch.zeros(4, 1, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1)
    target = torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    for _ in range(150):
        x = torch.randn(16, 4)
        low = [ampscope.quantize(t, "e4m3") for t in (x, weight)]
        loss = (ampscope.matmul(*low, "hopper-wgmma-fp8", a_format="e4m3") - x @ target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.allclose(weight, target, atol=0.15)
