"""cat, stack, split and chunk in emulated models move numbers: every bit passes, NaN's payloads and -0 among them, in
values and gradients; what they make of two types is what PyTorch's kernels make of fake CUDA tensors."""
import contextlib

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import ampscope.torch  # noqa: E402

INTEGERS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
MOVES = {  # of two tensors of 6 x 8
    "cat": lambda a, b: [torch.cat([a, b], 1)],
    "concat of views": lambda a, b: [torch.concat([a.mT, b.mT], -1)],
    "stack": lambda a, b: [torch.stack([a, b], 2)],
    "split": lambda a, b: [*a.split(4, 1), *b.split([1, 3, 4], 1)],
    "chunk": lambda a, b: [*a.chunk(3), *torch.chunk(b, 3, -1)],
    "gates": lambda a, b: [*torch.cat([a, b]).chunk(4)],
    "unbind and hstack": lambda a, b: [torch.hstack(a.unbind(1)), torch.vstack(b.unbind())],
    "heads": lambda a, b: [t.unflatten(1, (2, 4)).transpose(0, 1).contiguous() for t in torch.stack([a, b]).unbind()],
    "dstack": lambda a, b: [*torch.dstack([a, b]).split(2)],
}


class Moves(nn.Module):
    """Its tensors are made within, where no precision rounds them, and the results are kept as they are."""

    def __init__(self, move, dtype, seed):
        super().__init__()
        self.move, self.dtype, self.seed = move, dtype, seed
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        self.given = [anything((6, 8), self.dtype, self.seed + i).requires_grad_() for i in (0, 1)]
        self.results = self.move(*self.given)
        return self.linear(x)


def anything(shape, dtype, seed):
    """Any bits; the first are NaN with payloads and both signs, infinities, zeros and subnormal numbers."""
    whole = INTEGERS[dtype]
    width = torch.iinfo(whole).bits
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-2**(width - 1), 2**(width - 1), shape, generator=generator, dtype=whole)
    top = torch.tensor(torch.inf, dtype=dtype).view(whole).item()
    least = -2**(width - 1)
    edges = [top + 1, top + 5, top + least + 3, top, top + least, 0, least, 1, least + 1]
    bits.view(-1)[:len(edges)] = torch.tensor(edges[:bits.numel()], dtype=whole)
    return bits.view(dtype)


def bits_of(tensors):
    return [t.detach().contiguous().view(INTEGERS[t.dtype]).tolist() for t in tensors]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("precision", ampscope.precisions)
def test_every_bit_passes(precision, dtype):
    for name, move in MOVES.items():
        model = Moves(move, dtype, 11)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with ampscope.torch.emulate(model, precision, optimizer=optimizer, strict="ops") as machine:
            model(torch.zeros(1, 2))
            gradients = [anything(t.shape, dtype, 20 + i) for i, t in enumerate(model.results)]
            torch.autograd.backward(model.results, gradients)
        a, b = (anything((6, 8), dtype, 11 + i) for i in (0, 1))
        assert bits_of(model.results) == bits_of(move(a, b)), name
        # The gradients lie where the numbers came from: moved alike, they are the results' gradients.
        assert bits_of(move(*(t.grad for t in model.given))) == bits_of(gradients), name
        assert {row["op"] for row in machine.coverage()} <= {"linear"}, name


CALLS = {"cat": torch.cat, "stack": torch.stack, "hstack": torch.hstack, "vstack": torch.vstack, "dstack": torch.dstack,
         "concat": torch.concat, "column_stack": torch.column_stack}
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64]
PAIRS = [(a, b) for a in TYPES for b in TYPES]


@contextlib.contextmanager
def fake_autocast(dtype):
    """For CUDA where there is none: torch.autocast would switch itself off."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)


class Joined(nn.Module):
    def forward(self, call, *tensors):
        return call(tensors).dtype, call(tensors[::-1]).dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_two_types_become_one_as_on_cuda(name, low):
    def types(device, join):
        return [join(CALLS[name], *(torch.ones(2, 2, dtype=t, device=device) for t in pair)) for pair in PAIRS]
    with FakeTensorMode(), fake_autocast(low):
        wanted = types("cuda", Joined())
    model = Joined()
    with ampscope.torch.emulate(model, "amp-fp16" if low == torch.float16 else "amp-bf16"):
        assert types("cpu", model) == wanted
        with torch.autocast("cuda", low):
            assert types("cpu", Joined()) == wanted
    assert {t for pair in wanted for t in pair} == {*TYPES}


@pytest.mark.parametrize("op", ["cat", "stack"])
def test_the_table_promotes_them_too(op):
    for policy, low in (("cuda", "fp16"), ("cuda", "bf16"), ("cpu", "bf16"), ("xpu", "bf16")):
        answers = [str(ampscope.autocast(op, *types, policy=policy))
                   for types in ((low, "fp32"), ("fp32", low), (low, low), ("fp32", "fp32"))]
        assert answers == ["fp32", "fp32", low, "fp32"]
    assert str(ampscope.autocast_rule(op, "bf16", "fp32", policy="cpu")[2]) == "widest"


def test_what_is_promoted_is_exact_and_its_gradient_is_rounded_once():
    class Join(nn.Module):
        def forward(self, x):
            self.low = anything((4, 4), torch.float16, 3).nan_to_num().requires_grad_()
            self.out = torch.cat([self.low, x])
            return self.out
    model, x = Join(), torch.randn(4, 4)
    with ampscope.torch.emulate(model, "amp-fp16", strict="ops"):
        model(x)
        gradient = torch.randn(8, 4)
        model.out.backward(gradient)
    assert model.out.dtype == torch.float32 and torch.equal(model.out, torch.cat([model.low.float(), x]))
    assert torch.equal(model.low.grad, gradient[:4].half())
