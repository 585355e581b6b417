"""autocast("cuda") without CUDA: types of results against those that PyTorch's own kernels give fake CUDA tensors."""
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import ampscope.torch  # noqa: E402

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")

# Calls of every sort of the lists: x is 4 x 4 and positive, h the same in half precision, t class numbers.
CALLS = {
    "linear": lambda x, h, t: F.linear(x, x, x[0]),
    "linear of both": lambda x, h, t: F.linear(x, h),
    "matmul": lambda x, h, t: x @ h,
    "mv": lambda x, h, t: torch.mv(x, x[0]),
    "addmv": lambda x, h, t: torch.addmv(x[0], x, x[0]),
    "addr": lambda x, h, t: torch.addr(x, x[0], x[0]),
    "dot": lambda x, h, t: torch.dot(h[0], x[0]),
    "dot of halves": lambda x, h, t: torch.dot(h[0], h[0]),
    "einsum": lambda x, h, t: torch.einsum("ij,jk->ik", x, x),
    "multi_dot": lambda x, h, t: torch.linalg.multi_dot([x, x, x]),
    "conv2d": lambda x, h, t: F.conv2d(x[None, None], x[None, None]),
    "conv1d": lambda x, h, t: F.conv1d(x[None], x[None]),
    "conv_transpose2d": lambda x, h, t: F.conv_transpose2d(x[None, None], x[None, None]),
    "prelu": lambda x, h, t: F.prelu(x, x[0, :1]),
    "attention": lambda x, h, t: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "baddbmm": lambda x, h, t: torch.baddbmm(x[None], x[None], x[None]),
    "softmax": lambda x, h, t: torch.softmax(h, -1),
    "softmax with a type": lambda x, h, t: torch.softmax(h, -1, dtype=torch.float16),
    "log_softmax": lambda x, h, t: F.log_softmax(h, -1),
    "sum": lambda x, h, t: h.sum(),
    "sum of rows": lambda x, h, t: h.sum(1),
    "mean": lambda x, h, t: h.mean(),
    "prod": lambda x, h, t: h.prod(),
    "cumsum": lambda x, h, t: h.cumsum(0),
    "cumprod": lambda x, h, t: h.cumprod(0),
    "norm": lambda x, h, t: h.norm(),
    "norm of rows": lambda x, h, t: h.norm(dim=1),
    "vector_norm": lambda x, h, t: torch.linalg.vector_norm(h),
    "layer_norm": lambda x, h, t: F.layer_norm(h, (4,)),
    "rms_norm": lambda x, h, t: F.rms_norm(h, (4,)),
    "group_norm": lambda x, h, t: F.group_norm(h, 2),
    "batch_norm": lambda x, h, t: F.batch_norm(h, x[0], x[0]),
    "exp": lambda x, h, t: h.exp(),
    "log": lambda x, h, t: h.log(),
    "rsqrt": lambda x, h, t: h.rsqrt(),
    "reciprocal": lambda x, h, t: h.reciprocal(),
    "pow": lambda x, h, t: h ** 2,
    "pow of a tensor": lambda x, h, t: h ** h,
    "pow of a number": lambda x, h, t: 2 ** h,
    "softplus": lambda x, h, t: F.softplus(h),
    "gelu": lambda x, h, t: F.gelu(h),
    "silu": lambda x, h, t: F.silu(h),
    "relu": lambda x, h, t: F.relu(h),
    "tanh": lambda x, h, t: h.tanh(),
    "add": lambda x, h, t: h + x,
    "mul": lambda x, h, t: h * h,
    "addcmul": lambda x, h, t: torch.addcmul(h, h, x),
    "addcdiv": lambda x, h, t: torch.addcdiv(h, h, h),
    "atan2": lambda x, h, t: torch.atan2(h, x),
    "cross": lambda x, h, t: torch.cross(h[:, :3], x[:, :3], dim=1),
    "bilinear": lambda x, h, t: F.bilinear(x, x, x[None]),
    "cat": lambda x, h, t: torch.cat([h, x]),
    "stack": lambda x, h, t: torch.stack([h, h]),
    "scatter_add": lambda x, h, t: torch.scatter_add(x, 0, t[None], h),
    "index_put": lambda x, h, t: torch.index_put(x, (t,), h),
    "cosine_similarity": lambda x, h, t: F.cosine_similarity(h, h),
    "cdist": lambda x, h, t: torch.cdist(h, h),
    "cross_entropy": lambda x, h, t: F.cross_entropy(h, t),
    "nll_loss": lambda x, h, t: F.nll_loss(h, t),
    "mse_loss": lambda x, h, t: F.mse_loss(h, h),
    "l1_loss": lambda x, h, t: F.l1_loss(h, h),
    "smooth_l1_loss": lambda x, h, t: F.smooth_l1_loss(h, h),
    "huber_loss": lambda x, h, t: F.huber_loss(h, h),
    "kl_div": lambda x, h, t: F.kl_div(h, h),
    "bce with logits": lambda x, h, t: F.binary_cross_entropy_with_logits(h, h),
    "bce": lambda x, h, t: F.binary_cross_entropy(h, h),
    "embedding": lambda x, h, t: F.embedding(t, x),
    "interpolate": lambda x, h, t: F.interpolate(h[None], scale_factor=2),
    "double": lambda x, h, t: F.linear(x.double(), x.double()),
    "max_pool2d": lambda x, h, t: F.max_pool2d(h[None], 2),
    "avg_pool2d": lambda x, h, t: F.avg_pool2d(h[None], 2),
    "dropout": lambda x, h, t: F.dropout(h),
}


def kind(call, *args):
    try:
        return call(*args).dtype
    except RuntimeError as error:
        assert any(words in str(error) for words in ("unsafe to autocast", "dtype", "scalar type")), error
        return "refused"


def tensors(device, dtype):
    x = torch.rand(4, 4, device=device) + 0.1
    return x, x.to(dtype) / 4, torch.arange(4, device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types_are_those_of_cuda(dtype):
    with FakeTensorMode():
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        try:
            wanted = {name: kind(call, *tensors("cuda", dtype)) for name, call in CALLS.items()}
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", torch.float16)
    precision = "amp-fp16" if dtype == torch.float16 else "amp-bf16"
    model = Asked()
    with ampscope.torch.emulate(model, precision):
        inside = model(tensors("cpu", dtype))
        with torch.autocast("cuda", dtype):  # a loss, say
            outside = {name: kind(call, *tensors("cpu", dtype)) for name, call in CALLS.items()}
    assert inside == wanted
    assert outside == wanted
    assert {dtype, torch.float32, torch.float64, "refused"} <= set(wanted.values())


class Asked(nn.Module):
    """Asks for the types of all calls where emulate() has put autocast on."""

    def forward(self, given):
        return {name: kind(call, *given) for name, call in CALLS.items()}


def test_autocast_of_the_processor_keeps_its_own_lists_outside():
    x = torch.rand(4, 4)
    def kinds():
        with torch.autocast("cpu", torch.bfloat16):
            return {name: kind(call, *tensors("cpu", torch.bfloat16)) for name, call in CALLS.items()}
    plain = kinds()
    with ampscope.torch.emulate(nn.Linear(4, 4), "amp-fp16") as machine:
        machine._emulation._model(x)
        assert kinds() == plain


def test_scripts_for_cuda_run_as_they_are():
    """GradScaler("cuda") scales, and autocast("cuda") casts, where both are made while a machine is emulated."""
    torch.manual_seed(0)
    model = nn.Linear(32, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ampscope.torch.emulate(model, "amp-fp16") as machine:
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**60)
        scales = []
        for _ in range(50):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                out = model(torch.rand(4, 32))
                loss = F.mse_loss(out, torch.zeros(4, 16))
            assert out.dtype == torch.float16 and loss.dtype == torch.float32
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
    assert scales[0] == 2.0**59 and scales[-1] == scales[-2] < 2.0**24  # steps were skipped until the scale fitted
    assert machine.coverage().share == 1
    assert torch.amp.GradScaler("cuda").is_enabled() is False  # as ever


@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")
def test_a_scaler_for_cuda_that_was_made_too_early_is_noticed():
    scaler, model = torch.amp.GradScaler("cuda"), nn.Linear(4, 4)
    with ampscope.torch.emulate(model, "amp-bf16"), warnings.catch_warnings(action="error"):
        scaler.scale(model(torch.rand(2, 4)).sum())  # BF16 needs none
    with ampscope.torch.emulate(model, "amp-fp16"), pytest.warns(UserWarning, match="scales nothing") as warned:
        loss = model(torch.rand(2, 4)).sum()
        assert scaler.scale(loss) is loss
    assert warned[0].filename == __file__


def test_what_autocast_leaves_in_half_is_fp32_for_a_loss_outside():
    model = nn.Linear(8, 4)
    with ampscope.torch.emulate(model, "amp-bf16"):
        out = model(torch.rand(2, 8))
        assert out.dtype == torch.float32 and torch.equal(out, out.bfloat16().float())
        with torch.autocast("cuda", torch.bfloat16):
            assert model(torch.rand(2, 8)).dtype == torch.bfloat16
