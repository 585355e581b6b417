"""What a script does to gradients between backward and the scaler, and whether that depends on their size."""
import itertools

import torch

from ._tensors import each_norm

_FIRST = 2  # steps, in which a script shows whether it changes gradients
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
    gradients, or in other steps. They are compared in the first steps, and as long as the script is known to change
    its gradients."""

    def __init__(self, lint, watches):
        self._lint, self._watches = lint, watches
        self._norms, self._factor = None, None
        self._begun, self._left = 0, _STEPS
        self._were_seen = False

    def begin_step(self):
        self._begun += 1

    def begin_gradients(self):
        """Nothing was seen of this step, or what was seen was cleared."""
        self._marks, self.were_made = [], False

    def begin_backward(self, gradients):
        """Gives whether there are gradients already."""
        self._marks = mark_of(gradients)
        return bool(self._marks)

    def end_backward(self, gradients, scale):
        """The gradients as backward left them, which contain a loss scale."""
        self._marks = mark_of(gradients)
        if self._compares(scale):
            self._norms = each_norm(gradients) if self._left else None

    def are_none(self, gradients):
        """Since backward, or while it ran."""
        return mark_of(gradients) == self._marks

    def note(self, gradients, scale):
        """The gradients as the script left them."""
        marks = mark_of(gradients)
        if marks == self._marks or not marks or not isinstance(marks[0], tuple):
            return
        self.were_made = True
        if self._compares(scale) and self._depend_on_size(gradients):
            self._lint(f"gradients were changed before unscale_ while they contained the loss scale {scale:g}: clip, "
                       "and whatever depends on their size, after scaler.unscale_. If that was to unscale them by "
                       "hand, call the recorder's take() before.")

    def _compares(self, scale):
        return scale != 1 and self._watches and (self._begun <= _FIRST or self._were_seen)

    def _depend_on_size(self, gradients):
        """False as well where it cannot be told yet."""
        self._were_seen = True
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
