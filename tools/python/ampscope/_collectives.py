"""The mean of the gradients of replicas, as collectives compute it."""
from __future__ import annotations

from typing import Any

import numpy as np

from . import _ampscope
from ._arrays import FormatLike, as_format, as_singles, integer, like, without_gradient
from ._tables import Table


def all_reduce(gradients: Any, algorithm: str = "ring", format: FormatLike | None = None, *, divide: str = "before",
               scaling: str = "none", threads: int = 0) -> Any:
    """The mean of gradients as replicas compute it: one array or tensor of each replica, all of one shape, or an array
    whose first axis is the replicas. Returns FP32 of that shape, as a tensor of torch where a gradient is one.

    algorithm           a row of ampscope.collectives(): "ring", "tree", "all-to-all" ...
    format              what is sent and summed in; FP32 unless given; or blocks to which each message is cast, and
                        which are summed in FP32: "mxfp8", "nvfp4" ... (ampscope.recipes())
    divide              "before" or "after" the sum, or "nccl-avg"
    scaling             "ms-amp": one power-of-two scale for all replicas, E4M3 unless a format is given; it takes no
                        other division than "before"
    Raises ValueError for unknown names, for what does not go together, and for other shapes, TypeError for a tensor
    that requires a gradient. The result does not depend on threads (0: all cores)."""
    if scaling not in ("none", "ms-amp"):
        raise ValueError(f"unknown scaling {scaling!r}; known: none, ms-amp")
    arrays = list(gradients)
    for i, gradient in enumerate(arrays):
        without_gradient(**{f"gradients[{i}]": gradient})
    values = [as_singles(gradient) for gradient in arrays]
    if not values or any(x.shape != values[0].shape for x in values):
        raise ValueError("all_reduce: expected gradients of one shape, one of each replica at least")
    stacked = np.ascontiguousarray(np.stack([x.ravel() for x in values]))
    default = "e4m3" if scaling == "ms-amp" else "fp32"
    mean = _ampscope.all_reduce(stacked, algorithm, _payload(default if format is None else format), divide,
                                scaling == "ms-amp", integer("threads", threads))
    return like(mean.reshape(values[0].shape), *arrays)


def _payload(format):
    """The name of a format, or that of blocks as it is; the module knows both."""
    try:
        return as_format(format).name
    except ValueError:
        if not isinstance(format, str):
            raise
        return format


def collectives() -> Table:
    """What all_reduce() and amp-train know: algorithms, divisions by the number of replicas and sharded optimizers,
    what each does, and its source."""
    return Table(dict(zip(("kind", "name", "meaning", "source"), row)) for row in _ampscope.collectives())
