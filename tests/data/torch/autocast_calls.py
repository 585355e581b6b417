#!/usr/bin/env python3
"""Dtypes of ops' results under torch's autocast, recorded by hand with torch from PyPI:

    python3 autocast_calls.py > autocast_calls.txt

Every op of PyTorch's lists that can be called, and the trainer's others, with its floating operands in FP32 and the
region's format in turn. Calls on the processor are real. On cuda, mps and xpu they are made with PyTorch's fake
tensors, which go through the dispatcher and compute dtypes and shapes but no numbers. A line is a device ("none": on
the processor outside a region), an op, and its calls: dtypes of the operands = dtype of the result; "error" stands for
an exception. Left out are results that are no floating numbers, and what fails because the device is not there.
"""
import contextlib
import itertools
import re
import sys
import warnings

import torch
import torch.nn.functional as nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map

warnings.simplefilter("ignore")
torch.manual_seed(0)
aten = torch.ops.aten


class Operand:
    """A floating operand, in FP32 until it is called for."""

    def __init__(self, values):
        self.values = values


def X(*shape):
    return Operand(torch.rand(*shape) * 0.8 + 0.1)


def spd(n=4):
    """A symmetric positive definite matrix."""
    return Operand(torch.eye(n) * 2 + 0.25)


def ints(*values):
    return torch.tensor(values)


SIGNS, LABELS = ints(1, -1, 1, -1), ints(0, 1, 2, 3)
CALLS = {  # op: a function or its name in aten, and the arguments
    name: (name, X(4, 8)) for name in
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan softplus prod sum trace relu gelu "
    "tanh sigmoid silu mean pdist pinverse fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft "
    "fft_rfft2 "
    "fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft linalg_cond linalg_matrix_rank linalg_svdvals linalg_qr "
    "linalg_svd svd geqrf linalg_vector_norm linalg_matrix_norm nuclear_norm".split()
}
CALLS |= {name: (name, X(4, 8), X(4, 8)) for name in
          "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits "
          "soft_margin_loss dist cdist atan2 add mul div cosine_similarity polar linalg_vecdot".split()}
CALLS |= {name: (name, spd()) for name in
          "cholesky_inverse inverse linalg_cholesky linalg_eigvals linalg_eigvalsh linalg_inv linalg_cholesky_ex "
          "linalg_eig linalg_eigh linalg_inv_ex linalg_matrix_sqrth _lu_with_info".split()}
CALLS |= {name: (name, spd(), X(4, 2)) for name in
          "linalg_solve linalg_lstsq".split()}
CALLS |= {name: (name, X(4, 2), spd()) for name in ("cholesky_solve", "triangular_solve")}
CALLS |= {f"{name}_cell": (f"{name}_cell", X(4, 8), X(4, 6), X(n * 6, 8), X(n * 6, 6))
          for name, n in {"gru": 3, "rnn_tanh": 1, "rnn_relu": 1}.items()}
CALLS |= {f"reflection_pad{n}d": (f"reflection_pad{n}d", X(1, 2, *[4] * n), [1] * 2 * n) for n in (1, 2)}
CALLS |= {f"replication_pad{n}d": (f"replication_pad{n}d", X(1, 2, *[4] * n), [1] * 2 * n) for n in (1, 2, 3)}
CALLS |= {f"conv{n}d": (f"conv{n}d", X(1, 3, *[6] * n), X(5, 3, *[3] * n)) for n in (1, 2, 3)}
CALLS |= {f"conv_transpose{n}d": (f"conv_transpose{n}d", X(1, 3, *[6] * n), X(3, 5, *[3] * n)) for n in (1, 2, 3)}
CALLS |= {f"{a}_pool{n}d": (f"{a}_pool{n}d", X(1, 2, *[4] * n), [2] * n)
          for a, n in itertools.product(("max", "avg", "adaptive_avg", "adaptive_max"), (2, 3))}
CALLS |= {f"{start}{kind}{n}d{end}": (nn.interpolate, X(1, 2, *[4] * n), None, 2.0, mode, None, None, end == "_aa")
          for start, kind, n, end, mode in
          [("upsample_", "nearest", n, "", "nearest") for n in (1, 2, 3)] +
          [("_upsample_", "nearest_exact", n, "", "nearest-exact") for n in (1, 2, 3)] +
          [("upsample_", "linear", 1, "", "linear"), ("upsample_", "bilinear", 2, "", "bilinear"),
           ("_upsample_", "bilinear", 2, "_aa", "bilinear"), ("upsample_", "trilinear", 3, "", "trilinear"),
           ("upsample_", "bicubic", 2, "", "bicubic"), ("_upsample_", "bicubic", 2, "_aa", "bicubic")]}
IMAGE, GRID = X(1, 2, 4, 4), X(1, 3, 3, 2)
CALLS |= {name: (name, *arguments) for name, *arguments in [
    ("pow", X(4, 8), 2), ("layer_norm", X(4, 8), [8]), ("native_layer_norm", X(4, 8), [8], None, None, 1e-5),
    ("rms_norm", X(4, 8), [8]), ("group_norm", X(2, 4, 3), 2),
    ("batch_norm", X(4, 8), None, None, None, None, True, 0.1, 1e-5, False),
    ("frobenius_norm", X(4, 8), [0, 1]), ("norm", X(4, 8), 2), ("renorm", X(4, 8), 2, 0, 1.0),
    ("logsumexp", X(4, 8), [0]), ("softmax", X(4, 8), -1), ("log_softmax", X(4, 8), -1), ("cumsum", X(4, 8), 0),
    ("cumprod", X(4, 8), 0), ("poisson_nll_loss", X(4, 8), X(4, 8), True, False, 1e-8, 1),
    ("cosine_embedding_loss", X(4, 8), X(4, 8), SIGNS), ("nll_loss", X(4, 8), LABELS),
    ("nll_loss2d", X(1, 3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.long)), ("hinge_embedding_loss", X(4), SIGNS),
    ("margin_ranking_loss", X(4), X(4), SIGNS), ("multilabel_margin_loss", X(4, 4), torch.tensor([[1, 0, -1, -1]] * 4)),
    ("multi_margin_loss", X(4, 8), LABELS), ("triplet_margin_loss", X(4, 8), X(4, 8), X(4, 8)),
    ("cross_entropy_loss", X(4, 8), LABELS), ("matmul", X(4, 8), X(8, 6)), ("mm", X(4, 8), X(8, 6)),
    ("mv", X(4, 8), X(8)),
    ("bmm", X(2, 4, 8), X(2, 8, 4)), ("linear", X(4, 8), X(6, 8)), ("dot", X(8), X(8)), ("vdot", X(8), X(8)),
    ("addmm", X(4, 6), X(4, 8), X(8, 6)), ("addmv", X(4), X(4, 8), X(8)), ("addr", X(4, 8), X(4), X(8)),
    ("addbmm", X(4, 6), X(2, 4, 8), X(2, 8, 6)), ("baddbmm", X(2, 4, 6), X(2, 4, 8), X(2, 8, 6)),
    ("_addmm_activation", X(6), X(4, 8), X(8, 6)), ("einsum", "ij,jk->ik", [X(4, 8), X(8, 6)]),
    ("chain_matmul", [X(4, 8), X(8, 6)]), ("linalg_multi_dot", [X(4, 8), X(8, 6), X(6, 2)]), ("prelu", X(4, 8), X(8)),
    ("conv_tbc", X(6, 2, 3), X(3, 3, 5), X(5)), ("lstm_cell", X(4, 8), [X(4, 6), X(4, 6)], X(24, 8), X(24, 6)),
    ("convolution", IMAGE, X(5, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ("_convolution", IMAGE, X(5, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, False),
    ("scaled_dot_product_attention", X(1, 2, 4, 8), X(1, 2, 4, 8), X(1, 2, 4, 8)), ("addcdiv", X(4), X(4), X(4)),
    ("addcmul", X(4), X(4), X(4)), ("bilinear", X(4, 3), X(4, 5), X(2, 3, 5)), ("cross", X(4, 3), X(4, 3), 1),
    ("grid_sampler", IMAGE, GRID, 0, 0, False), ("grid_sampler_2d", IMAGE, GRID, 0, 0, False),
    ("_grid_sampler_2d_cpu_fallback", IMAGE, GRID, 0, 0, False),
    ("grid_sampler_3d", X(1, 2, 4, 4, 4), X(1, 3, 3, 3, 3), 0, 0, False), ("index_put", X(4), [ints(0, 1)], X(2)),
    ("tensordot", X(4, 8), X(8, 6), [1], [0]), ("scatter_add", X(4), 0, ints(0, 1), X(2)), ("cat", [X(4), X(4)]),
    ("stack", [X(4), X(4)]), ("index_copy", X(4), 0, ints(0, 1), X(2)), ("quantile", X(4, 8), 0.5),
    ("nanquantile", X(4, 8), 0.5), ("view_as_complex", X(4, 2)),
    ("stft", X(64), 16, None, None, None, False, True, True),
    ("lu_solve", spd(), spd(), torch.arange(1, 5, dtype=torch.int32)), ("orgqr", X(4, 4), X(4)),
    ("ormqr", X(4, 4), X(4), X(4, 4)), ("linalg_householder_product", X(4, 4), X(4)),
    ("linalg_tensorsolve", spd(), X(4)),
    ("linalg_tensorinv", Operand((torch.eye(4) * 2 + 0.25).reshape(2, 2, 2, 2))),
    ("max_unpool2d", X(1, 2, 2, 2), torch.arange(4).reshape(1, 1, 2, 2).repeat(1, 2, 1, 1), [4, 4]),
    ("max_unpool3d", X(1, 2, 2, 2, 2), torch.arange(8).reshape(1, 1, 2, 2, 2).repeat(1, 2, 1, 1, 1), [4] * 3, [2] * 3,
     [0] * 3),
    ("fractional_max_pool2d", X(1, 2, 8, 8), [2, 2], [4, 4], X(1, 2, 2)),
    ("fractional_max_pool3d", X(1, 2, 8, 8, 8), [2] * 3, [4] * 3, X(1, 2, 3)),
    ("ctc_loss", X(6, 1, 4), ints(1, 2).reshape(1, 2), [6], [2]),
    ("fake_quantize_per_tensor_affine", X(4, 8), 0.1, 0, 0, 255),
    ("multilabel_margin_loss_forward", X(4, 4), torch.tensor([[1, 0, -1, -1]] * 4), 1),
    ("transpose", X(4, 8), 0, 1), ("dropout", X(4, 8), 0.5, True)]}
CALLS |= {"scale": ("mul", X(4, 8), 3.0), "embedding": (lambda w: nn.embedding(LABELS.to(w.device), w), X(8, 4)),
          "cross_entropy": (lambda x: nn.cross_entropy(x, LABELS.to(x.device)), X(4, 8))}
TAKE_DTYPE = ["prod", "sum", "mean", "softmax", "log_softmax", "cumsum", "cumprod", "linalg_vector_norm",
              "linalg_matrix_norm"]
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.complex64: "fp32",
         torch.complex32: "fp16"}
DEVICES = ["none", "cuda", "cpu", "mps", "xpu"]


@contextlib.contextmanager
def region(device):
    """torch.autocast(device), which is switched off where there is no such device."""
    if device != "none":
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        if device != "none":
            torch.set_autocast_enabled(device, False)
            torch.clear_autocast_cache()


def result_of(device, call, arguments, dtypes, real=False, **named):
    """The dtype of the result, "error", or nothing."""
    given = iter(dtypes)
    on = "cpu" if device == "none" else device
    real = real or on == "cpu"

    def argument(a):
        if isinstance(a, Operand):
            dtype = next(given)
            return a.values.to(on, dtype) if real else torch.empty(a.values.shape, dtype=dtype, device=on)
        if isinstance(a, torch.Tensor):
            return a.to(on) if real else torch.empty(a.shape, dtype=a.dtype, device=on)
        return a

    with contextlib.nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True), region(device):
        try:
            result = call(*tree_map(argument, list(arguments)), **named)
        except Exception as error:
            print(f"{device} {call} {dtypes}: {str(error).splitlines()[0]}", file=sys.stderr)
            lacks_device = re.search("not linked|not compiled|INTERNAL ASSERT|^aten\\.[\\w.]*$", str(error))
            return None if lacks_device else "error"
    tensors = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    return next((NAMES[t.dtype] for t in tensors if t.dtype in NAMES), None)


def spelled(dtypes):
    return ",".join(NAMES[d] for d in dtypes)


def line(device, op, real=False):
    """With `real`, calls on any device are real ones: device/autocast.py makes them on a GPU."""
    call, *arguments = CALLS[op]
    if isinstance(call, str):
        call = getattr(aten, call)
    count = sum(isinstance(a, Operand) for a in tree_flatten(list(arguments))[0])
    low = torch.get_autocast_dtype("cpu" if device == "none" else device)
    kinds = itertools.product((torch.float32, low), repeat=min(count, 3))
    calls = []
    for dtypes in (k + k[-1:] * (count - len(k)) for k in kinds):
        if result := result_of(device, call, arguments, dtypes, real):
            calls.append(f"{spelled(dtypes)}={result}")
        if op in TAKE_DTYPE and (result := result_of(device, call, arguments, dtypes, real, dtype=low)):
            calls.append(f"{spelled(dtypes)},dtype:{NAMES[low]}={result}")
    return " ".join([device, op, *calls])


if __name__ == "__main__":
    print(f"# torch {torch.__version__}, commit {torch.version.git_version}")
    for op in sorted(CALLS):
        for device in DEVICES:
            print(line(device, op))
