"""The labs: exercises that check themselves.

    ampscope-labs DIR          copies the labs to DIR, without solutions, and opens them in Jupyter

In a lab,  labs.check("1.2", answer)  says whether an answer is right and, if not, what is wrong and why.
"""
import pathlib

from . import lab1, lab2, lab3, lab4, lab5, lab6, lab7, lab8  # noqa: F401: their exercises
from ._copy import main, student_version
from ._exercises import Verdict, check, exercises

__all__ = ["Verdict", "check", "data", "exercises", "main", "notebooks", "student_version"]


def _folder():
    """Where the notebooks lie: beside this file, or in the project's tree."""
    here = pathlib.Path(__file__).resolve().parent
    return here / "notebooks" if (here / "notebooks").exists() else here.parents[3] / "notebooks"


def notebooks():
    """Paths of the notebooks with solutions, in the order of the labs."""
    return sorted(_folder().glob("*.ipynb"))


def data(name):
    """The folder of recorded gradients of that name: "deep_tanh" or "digits_cnn". Raises FileNotFoundError."""
    folder = _folder() / "data/gradients" / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such recording; there are deep_tanh and digits_cnn")
    return folder
