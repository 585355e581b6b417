"""torch._scaled_mm: FP8 products with scales a tensor and a row."""
import torch

from .records import NAMES, rounded
from .rules import SCALES, SUMS, scaled_inputs, scales_of

PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))


def inputs(m, n, k, a_format, b_format):
    """a of M x K, b of N x K."""
    return tuple(map(rounded, scaled_inputs(m, n, k, a_format, b_format), (a_format, b_format)))


def multiply(a, b, scale_a, scale_b, out, fast, bias=None):
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=out, use_fast_accum=fast)


def _case(recorder, device, pair, size, k, kind, out, fast, base, **kept):
    m, n = size
    a, b = (x.to(device) for x in inputs(m, n, k, *pair))
    scale_a, scale_b = (torch.from_numpy(s).to(device) for s in scales_of(kind, m, n))
    if kind in SCALES:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    else:
        scale_b = scale_b.t()

    def said():
        return {"out": recorder.keep(multiply(a, b, scale_a, scale_b, out, fast), base=base, **kept)}

    return recorder.case(said, kernels=True, a=pair[0], b=pair[1], m=m, n=n, k=k, scales=kind, out_type=NAMES[out],
                         fast=fast)


def record(recorder, device):
    for pair in PAIRS:
        for k in SUMS:
            base = None
            for fast in (True, False):
                result = _case(recorder, device, pair, (64, 64), k, "one", torch.float32, fast, base)
                base = result and result["out"]
                _case(recorder, device, pair, (64, 64), k, "one", torch.bfloat16, fast, None, rows=8)
    for pair in PAIRS:
        for k in (64, 1024, 4096):
            for fast in (True, False):
                for kind in ("powers", "odd", "rows"):
                    for out in (torch.bfloat16, torch.float32, torch.float16):
                        _case(recorder, device, pair, (64, 64), k, kind, out, fast, None, rows=8)
    large = [(128, 128), (256, 256)] + ([(2048, 2048)] if device == "cuda" else [])
    for size in large:
        for k in (64, 1024, 4096, 16384):
            for fast in (True, False):
                for kind in ("one", "rows"):
                    for out in (torch.bfloat16, torch.float32):
                        if size[0] <= 256 or k in (1024, 4096):
                            _case(recorder, device, PAIRS[0], size, k, kind, out, fast, None, rows=2, columns=256)
