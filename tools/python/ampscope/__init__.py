"""ampscope: what will this number format do to my training?

Bit-exact emulations of FP32, TF32, FP16, BF16, the FP8 formats and any IEEE-like format, exact histograms of gradients,
the loss scalers of the frameworks, and a reference trainer: the names are those of the C++ library.

>>> import ampscope, numpy as np
>>> ampscope.quantize(np.float32([0.1, 300.0, 1e-9]), "e4m3")
array([1.015625e-01, 2.880000e+02, 0.000000e+00], dtype=float32)
"""
from ._ampscope import (AdamFindings, ComparisonFindings, DiffFindings, Format, Histogram,  # noqa: A004
                        HistogramFindings, LossScaleFindings, LossScaler, __version__, autocast_ops, format, formats,
                        loss_scalers, optimizers, precisions, profiles)
from ._attention import attention, attention_gradients
from ._autocast import autocast, autocast_rule
from ._chart import Picture, lines
from ._collectives import all_reduce, collectives
from ._conversions import (add, decode, div, encode, fma, histogram, mul, operate, operations, quantize, sqrt,
                           store_number, sub)
from ._display import facts
from ._findings import (adam_findings, comparison_findings, diff_findings, histogram_findings,
                        loss_scale_findings)
from ._mismatch import mismatch
from ._optimizer import Optimizer
from ._p3109_blocks import P3109Block, p3109_block, p3109_block_operate
from ._products import (Blocks, accumulators, block, block_dequantize, block_matmul, block_quantize, dot, matmul,
                        recipes, scaled_mm)
from ._runs import Run, read_tensors
from ._tables import Table
from ._tools import Answer, amp_adam, amp_diff, amp_histogram, amp_loss_scale, amp_report
from ._training import batches, train


def __getattr__(name):
    """ampscope.torch and ampscope.labs, which are imported when they are asked for: they need torch and Jupyter."""
    if name in ("labs", "torch"):
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'ampscope' has no attribute {name!r}")


__all__ = ["AdamFindings", "Answer", "Blocks", "ComparisonFindings", "DiffFindings", "Format", "Histogram",
           "HistogramFindings", "LossScaleFindings", "LossScaler", "Optimizer", "P3109Block", "Picture", "Run",
           "Table", "__version__", "accumulators", "adam_findings", "add", "all_reduce", "amp_adam", "amp_diff",
           "amp_histogram", "amp_loss_scale", "amp_report", "attention", "attention_gradients", "autocast",
           "autocast_ops", "autocast_rule", "batches", "block", "block_dequantize", "block_matmul", "block_quantize",
           "collectives", "comparison_findings", "decode", "diff_findings", "div", "dot", "encode", "facts", "fma",
           "format", "formats", "histogram", "histogram_findings", "lines", "loss_scale_findings", "loss_scalers",
           "matmul", "mismatch", "mul", "operate", "operations", "optimizers", "p3109_block", "p3109_block_operate",
           "precisions", "profiles", "quantize", "read_tensors", "recipes", "scaled_mm", "sqrt", "store_number", "sub",
           "train"]
