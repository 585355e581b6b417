"""What autocast does to a call."""
from __future__ import annotations

from . import _ampscope
from ._arrays import FormatLike, as_format


def _rule(op, inputs, format, policy, enabled, dtype):
    low, own = (None if f is None else str(as_format(f)) for f in (format, dtype))
    return _ampscope.autocast(op, [str(as_format(f)) for f in inputs], low, policy, enabled, own)


def autocast(op: str, *inputs: FormatLike, format: FormatLike | None = None, policy: str = "cuda",
             enabled: bool = True, dtype: FormatLike | None = None) -> str:
    """The format of an op's result under torch.autocast(policy), given the formats of its operands:
    autocast("matmul", "fp32", "fp32") gives "fp16". `policy` is the kind of device whose lists apply: cuda, cpu, mps or
    xpu; `format` is what the region casts to (by default that device's: BF16 on cpu, FP16 on the others); `dtype` is
    the op's own argument of that name, as softmax has it: the result then has that format. autocast_ops are the ops of
    torch's lists, and those of the trainer. Any other op is unlisted: it runs in the type of its inputs, as in torch,
    so that a misspelt name is no error; if it is made of others, ask for these. Raises ValueError where torch raises,
    and for unknown formats and policies."""
    return _rule(op, inputs, format, policy, enabled, dtype)[1]


def autocast_rule(op: str, *inputs: FormatLike, format: FormatLike | None = None, policy: str = "cuda",
                  dtype: FormatLike | None = None) -> tuple[list[str], str, str]:
    """(formats in which the operands are read, format of the result, name of the rule that decided); as autocast()."""
    return _rule(op, inputs, format, policy, True, dtype)
