"""Products of FP16, BF16 and FP32 (TF32) matrices, in the layouts and with the settings that PyTorch has."""
import contextlib

import torch
import torch.nn.functional as F

from .records import DTYPES, attempt, rounded, setting
from .rules import SUMS, product_inputs

REDUCTION = "allow_{}_reduced_precision_reduction"  # a flag, or (that, whether K may be split)
SETTINGS = {"default": None, "on": (REDUCTION, True), "off": (REDUCTION, False),
            "off, no split": (REDUCTION, (False, False)), "fp16 sums": ("allow_fp16_accumulation", True)}
LARGE_ROWS, LARGE_COLUMNS = [0, 1, 517, 2047], 64


def inputs(m, n, k, dtype, spread=0):
    """a of M x K, b of N x K, a bias of N numbers. Both have their numbers along K beside each other."""
    return tuple(rounded(x, dtype) for x in product_inputs(m, n, k, dtype, spread))


def _turned(x):
    """The same matrix with the other order in memory."""
    return x.t().contiguous().t()


OPS = {  # layouts as BLAS calls them for row-major matrices: b of "nt" lies as a weight of a linear layer does
    "nt": lambda a, b, bias: a @ b.t(),
    "nn": lambda a, b, bias: a @ _turned(b).t(),
    "tn": lambda a, b, bias: _turned(a) @ _turned(b).t(),
    "linear": lambda a, b, bias: F.linear(a, b),
    "linear, bias": lambda a, b, bias: F.linear(a, b, bias),
    "bmm": lambda a, b, bias: torch.bmm(a[None], b.t()[None])[0],
    "nt to fp32": lambda a, b, bias: torch.mm(a, b.t(), out_dtype=torch.float32),
    "nn to fp32": lambda a, b, bias: torch.mm(a, _turned(b).t(), out_dtype=torch.float32),
    "tn to fp32": lambda a, b, bias: torch.mm(_turned(a), _turned(b).t(), out_dtype=torch.float32),
}


@contextlib.contextmanager
def set_to(dtype, name):
    """PyTorch's settings: the precision of FP32 products, or what may be reduced in low precision."""
    if dtype == "fp32":
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(name)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    if SETTINGS[name] is None:
        yield
        return
    attribute, value = SETTINGS[name]
    with setting(torch.backends.cuda.matmul, attribute.format(dtype), value):
        yield


def _refused(name, op, library):
    """What PyTorch refuses: only cuBLASLt, which is what adds a bias, can be told not to split K, and sums in FP16 have
    no FP32 output."""
    return (name == "off, no split" and "bias" not in op and not library) or (
        name == "fp16 sums" and "to fp32" in op)


def _products(recorder, device, dtype, settings, ops, size, sums, *, spread=0, library=None, **kept):
    m, n = size
    for k in sums:
        a, b, bias = (x.to(device) for x in inputs(m, n, k, dtype, spread))
        base = {}
        for name in settings:
            for op in ops:
                if _refused(name, op, library):
                    continue

                def call():
                    with set_to(dtype, name):
                        out = OPS[op](a, b, bias)
                    return out

                def said():
                    out = call()
                    return {"out": recorder.keep(out, base=base.get(out.dtype), **kept)}

                asked = {"op": op, "dtype": dtype, "m": m, "n": n, "k": k, "setting": name}
                if spread:
                    asked["spread"] = spread
                if library:
                    asked["library"] = library
                named = dtype == "fp32" or name == "default" or op.startswith("nt")
                result = recorder.case(said, kernels=named, **asked)
                if result and "bias" not in op:
                    base.setdefault(DTYPES[result["out"]["type"]], result["out"])


def record(recorder, device):
    settings = {"fp16": [*SETTINGS], "bf16": [*SETTINGS][:-1], "fp32": ["high", "highest"]}
    few = {"fp16": ["nt", "nt to fp32"], "bf16": ["nt", "nt to fp32"], "fp32": ["nt"]}
    for dtype, own in settings.items():
        ops = [op for op in OPS if dtype != "fp32" or "to fp32" not in op]
        _products(recorder, device, dtype, own, ops, (64, 64), SUMS)
        # Wide numbers tell how many bits a sum keeps, and whether it is one chain.
        _products(recorder, device, dtype, own[:1], few[dtype], (64, 64), (16, 64, 256), spread=16)
    for dtype, own in settings.items():
        for size in ((128, 128), (256, 256), (16, 512)):
            _products(recorder, device, dtype, own[:2], few[dtype], size, SUMS, rows=2)
    if device == "cuda":
        for dtype, own in settings.items():
            _products(recorder, device, dtype, own[:1], few[dtype], (2048, 2048), (1024, 4096), rows=LARGE_ROWS,
                      columns=LARGE_COLUMNS)
        prefer = torch.backends.cuda.preferred_blas_library
        _, recorder.facts["cublaslt_error"] = attempt(lambda: prefer("cublaslt"))
        for dtype, own in settings.items():
            no_split = [name for name in own if name == "off, no split"]
            _products(recorder, device, dtype, own[:1] + no_split, few[dtype], (64, 64), SUMS, library="cublaslt")
