"""What is wrong with a training loop, said once for each line of it."""
import sys
import warnings

_LIBRARIES = {"ampscope", "torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed",
              "contextlib", "functools"}


class PrecisionWarning(UserWarning):
    """Something about number formats in a training loop that is wrong, or does nothing."""


def user_line():
    """File and line of the innermost frame that belongs to no library that trains."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Lint:
    """Warns, and remembers what it warned of."""

    def __init__(self, enabled=True):
        self._enabled = enabled
        self._said = set()
        self.lines = []  # "train.py:42: ..."

    def __call__(self, message, where=None):
        file, number = where or user_line()
        if not self._enabled or (message.split(":")[0], file, number) in self._said:
            return
        self._said.add((message.split(":")[0], file, number))
        self.lines.append(f"{file}:{number}: {message}")
        warnings.warn_explicit(message, PrecisionWarning, file, number)
