"""Whether what a script does to gradients between backward and the scaler depends on their size."""
import itertools

import torch

from ._tensors import each_norm

_STEPS = 20  # whose changes are compared: looking at them takes time
_TOLERANCE = 4e-3  # a last place of BF16
_unlike = itertools.count()  # marks of gradients that cannot be told from each other


def mark_of(gradients):
    """Of each gradient which object it is, and how often it was written; nothing where there is none at all."""
    if gradients and gradients[0].requires_grad:  # a new object each time, maybe where the last one was
        return [next(_unlike)]
    try:
        return [(id(g), g._version) for g in gradients]
    except RuntimeError:  # of inference mode
        return [next(_unlike)]


class Changes:
    """Gradients that contain a loss scale may be divided by a constant, such as the number of micro-batches: the same
    factor for all of them, in every step. What depends on their size, as clipping does, has other factors for other
    gradients, or in other steps."""

    def __init__(self):
        self._norms, self._factor = None, None
        self._left = _STEPS
        self.were_seen = False

    def before(self, gradients):
        """As backward left them."""
        self._norms = each_norm(gradients) if self._left else None

    def depend_on_size(self, gradients):
        """As the script left them, which has changed them. False as well where it cannot be told yet."""
        self.were_seen = True
        if self._norms is None:
            return False
        before, after = self._norms, each_norm(gradients)
        self._norms = None
        self._left -= 1
        if before.numel() != after.numel():
            return False
        known = torch.isfinite(before)
        if bool((~known & torch.isfinite(after)).any()):  # infinities that a scaler would have found
            return True
        known &= before > 0
        if not bool(known.any()):
            return False
        factors = after[known] / before[known]
        least, most = float(factors.min()), float(factors.max())
        self._factor = self._factor or most
        return not self._factor * (1 - _TOLERANCE) <= least <= most <= self._factor * (1 + _TOLERANCE)
