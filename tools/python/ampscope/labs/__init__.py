"""The labs: exercises that check themselves.

    ampscope-labs DIR              copies the labs to DIR, without solutions, and opens them in Jupyter
    ampscope-labs --score DIR ...  prints the points of those who worked in these folders

In a lab,  labs.check("1.2", answer)  says whether an answer is right and, if not, what is wrong and why;
labs.hint("1.2")  gives a hint, again the next one, and the solution last.
"""
from . import (  # noqa: F401: their exercises
    lab1, lab2, lab3, lab4, lab5, lab6, lab7, lab8, lab9, lab10, lab11, lab12, lab13)
from ._copy import main, student_version
from ._exercises import Verdict, check, exercises
from ._hints import hint
from ._notebooks import data, notebooks
from ._score import score

__all__ = ["Verdict", "check", "data", "exercises", "hint", "main", "notebooks", "score", "student_version"]
