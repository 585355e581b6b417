"""What autocast does to a call."""
from __future__ import annotations

from . import _ampscope


def autocast(op: str, *inputs: str, format: str | None = None, policy: str = "cuda", enabled: bool = True,
             dtype: str | None = None) -> str:
    """The format of an op's result under torch.autocast(policy), given the formats of its operands:
    autocast("matmul", "fp32", "fp32") gives "fp16". `policy` is the kind of device whose lists apply: cuda, cpu, mps or
    xpu; `format` is what the region casts to (by default that device's: BF16 on cpu, FP16 on the others); `dtype` is
    the op's own argument of that name, as softmax has it: the result then has that format. autocast_ops are the ops of
    torch's lists, and those of the trainer. Any other op is unlisted: it runs in the type of its inputs, as in torch,
    so that a misspelt name is no error; if it is made of others, ask for these. Raises ValueError where torch raises,
    and for unknown formats and policies."""
    return _ampscope.autocast(op, list(inputs), format, policy, enabled, dtype)[1]


def autocast_rule(op: str, *inputs: str, format: str | None = None, policy: str = "cuda",
                  dtype: str | None = None) -> tuple[list[str], str, str]:
    """(formats in which the operands are read, format of the result, name of the rule that decided); as autocast()."""
    return _ampscope.autocast(op, list(inputs), format, policy, True, dtype)
