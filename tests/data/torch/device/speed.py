"""Speed of products and of a copy in memory."""
import statistics
import time

import torch

from .records import rounded
from .rules import normal
from .scaled_mm import multiply

REPETITIONS = 10


def _seconds(call, device):
    """The median of some repetitions."""
    call()
    call()
    times = []
    for _ in range(REPETITIONS):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
        else:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def record(recorder, device):
    n = 8192 if device == "cuda" else 256
    tile = normal(6000, 64, 64)

    def filled(dtype):
        square = rounded(tile, dtype).to(device)
        codes = square.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[square.element_size()])
        return codes.repeat(n // 64, n // 64).view(square.dtype)

    def product(dtype, precision):
        a, b = filled(dtype), filled(dtype)
        torch.set_float32_matmul_precision(precision)
        seconds = _seconds(lambda: a @ b.t(), device)
        return {"tflops": 2 * n**3 / seconds / 1e12}

    for dtype, precision in (("fp16", "highest"), ("bf16", "highest"), ("fp32", "high"), ("fp32", "highest")):
        recorder.case(lambda: product(dtype, precision), what="matmul", dtype=dtype, precision=precision, n=n)

    def scaled(fast, rows):
        a, b = (filled("e4m3") for _ in range(2))
        scale = torch.ones((n, 1) if rows else (), device=device)
        seconds = _seconds(lambda: multiply(a, b, scale, scale.t() if rows else scale, torch.bfloat16, fast), device)
        return {"tflops": 2 * n**3 / seconds / 1e12}

    for fast in (True, False):
        for rows in (False, True):
            recorder.case(lambda: scaled(fast, rows), what="scaled_mm", fast=fast, rows=rows, n=n)

    def copy():
        a = torch.zeros(2**30 if device == "cuda" else 2**20, dtype=torch.uint8, device=device)
        b = torch.empty_like(a)
        return {"gb_s_read_and_written": 2 * a.numel() / _seconds(lambda: b.copy_(a), device) / 1e9}

    recorder.case(copy, what="copy")
