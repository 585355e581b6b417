"""What autocast does to a call."""
from __future__ import annotations

from . import _ampscope


def autocast(op: str, *inputs: str, format: str = "fp16", policy: str = "cuda", enabled: bool = True) -> str:
    """The format of an op's result under torch.autocast, given the formats of its operands, the format that the region
    casts to, and whose lists apply: autocast("matmul", "fp32", "fp32") gives "fp16". autocast_ops lists the ops. Raises
    ValueError where torch raises, and for names that are none."""
    return _ampscope.autocast(op, list(inputs), format, policy, enabled)[1]


def autocast_rule(op: str, *inputs: str, format: str = "fp16", policy: str = "cuda") -> tuple[list[str], str, str]:
    """(formats in which the operands are read, format of the result, name of the rule that decided); as autocast()."""
    return _ampscope.autocast(op, list(inputs), format, policy, True)
