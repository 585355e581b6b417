"""The reference trainer."""
from typing import Any

from . import _ampscope
from ._tools import Answer, words_of


def train(**options: Any) -> Answer:
    """Trains small networks in emulated precision, as the command amp-train does, and returns what its --json says.

    Options are amp-train's, with underscores: train(model="cnn", precision=["fp32", "amp-fp16"], steps=100, seed=1).
    rows() and frame() of the answer: a run each. A list of precisions is trained side by side; True gives a flag.
    Ctrl-C stops it between steps. Raises ValueError for options that mean nothing and OSError for files."""
    return Answer(_ampscope.train(words_of(options)))


def batches(**options: Any) -> _ampscope.Batches:
    """The batches that amp-train's networks see, for a copy of one in another framework: a sequence with a pair
    (inputs, targets) of NumPy arrays for each step, FP32, of shape EXAMPLES x ...; classes and tokens are numbers, and
    targets below 0 do not count. Options as for train(): batches(model="cnn", steps=20, seed=1). Raises as train()."""
    return _ampscope.Batches(words_of(options))
