"""Hints to an exercise, one after the other; the solution comes last."""
from ._exercises import hints, known
from ._notebooks import solution

_given = {}  # how many hints to an exercise were given since the kernel was started


class Hint:
    """What labs.hint says; a notebook shows its text."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def hint(exercise):
    """The first hint to an exercise ("1.2"), the next one when it is called again, and after the last hint the
    solution. Raises KeyError for an exercise that there is not."""
    exercise = known(exercise)
    texts = hints[exercise]
    number = _given.get(exercise, 0)
    if number < len(texts):
        _given[exercise] = number + 1
        return Hint(f"{exercise}, hint {number + 1} of {len(texts)}: {texts[number]}")
    return Hint(f"{exercise}, the solution:\n\n{solution(exercise)}")
