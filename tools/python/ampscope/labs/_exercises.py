"""What an exercise is, and how its answer is judged."""
import inspect

import numpy as np

exercises = {}  # "1.2" -> function that raises Wrong; its docstring says what is right about an answer
hints = {}  # "1.2" -> what labs.hint says one after the other, before the solution; each lab adds its table


class Wrong(Exception):
    """What is wrong with an answer, and why."""


class Verdict:
    """Of one exercise; true where the answer is right."""

    def __init__(self, exercise, right, text):
        self.exercise, self.right, self.text = exercise, right, text

    def __bool__(self):
        return self.right

    def __repr__(self):
        said = f"{self.exercise} {'right' if self.right else 'not yet'}: {self.text}"
        return said if self.right else f'{said}\nStuck? labs.hint("{self.exercise}") gives a hint.'


def exercise(name):
    """Registers a check: it takes the answers, and raises Wrong; its docstring says what a right answer shows."""
    def register(function):
        exercises[name] = function
        return function
    return register


def known(exercise):
    """The name of an exercise, which may be given as a number (1.2). Raises KeyError for one that there is not."""
    if str(exercise) not in exercises:
        raise KeyError(f"there is no exercise {str(exercise)!r}; there are {', '.join(sorted(exercises))}")
    return str(exercise)


def check(exercise, *answers):
    """Judges the answers to an exercise ("1.2"). Raises KeyError for one that there is not."""
    exercise = known(exercise)
    judge = exercises[exercise]
    wanted = len(inspect.signature(judge).parameters)
    if len(answers) != wanted:
        raise TypeError(f"check({exercise!r}, ...): expected {wanted} answers, got {len(answers)}")
    try:
        if any(a is ... or a is None for a in answers):
            raise Wrong("there is no answer yet: put yours where the ... is")
        with np.errstate(all="ignore"):
            judge(*answers)
    except Wrong as wrong:
        return Verdict(exercise, False, str(wrong))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        return Verdict(exercise, False, f"this answer cannot be read ({type(error).__name__}: {error}); keep the form "
                                        "that the exercise gives")
    return Verdict(exercise, True, inspect.cleandoc(judge.__doc__).replace("\n", " "))


def call(function, *arguments):
    """What a student's function returns; Wrong where it fails or returns nothing."""
    if not callable(function):
        raise Wrong(f"expected a function, got {function!r}")
    shown = ", ".join(map(_shown, arguments))
    try:
        result = function(*arguments)
    except Exception as error:
        raise Wrong(f"your function fails with {type(error).__name__}: {error}, called with {shown}") from None
    if result is None or result is ...:
        raise Wrong(f"your function returns nothing, called with {shown}: write its body, and return the result")
    return result


def _shown(x):
    text = repr(x)
    return text if len(text) < 60 else type(x).__name__ + " ..."


def entry(answers, key, missing):
    """What a student's dict has for a key; Wrong, in the words of `missing`, where it has nothing there yet."""
    if not isinstance(answers, dict):
        raise Wrong(f"expected a dict, as the exercise gives it, got {_shown(answers)}")
    if (answer := answers.get(key)) is None or answer is ...:
        raise Wrong(missing)
    return answer


def number(name, value):
    """A student's number as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Wrong(f"{name}: expected a number, got {value!r}") from None
