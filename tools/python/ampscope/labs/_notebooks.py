"""Where the notebooks with solutions and their data are, and which of their cells belong to an exercise."""
import json
import pathlib
import re


def _folder():
    """Where the notebooks lie: beside this file, or in the project's tree."""
    here = pathlib.Path(__file__).resolve().parent
    return here / "notebooks" if (here / "notebooks").exists() else here.parents[3] / "notebooks"


def notebooks():
    """Paths of the notebooks with solutions, in the order of the labs."""
    return sorted(_folder().glob("*.ipynb"), key=lambda path: int(path.stem.partition("_")[0]))


def data(name):
    """The folder of recorded gradients of that name: "deep_tanh" or "digits_cnn". Raises FileNotFoundError."""
    folder = _folder() / "data/gradients" / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such recording; there are deep_tanh and digits_cnn")
    return folder


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell):
    """A cell's text. The format allows a text or a list of lines."""
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def is_tagged(cell, tag):
    return tag in cell["metadata"].get("tags", [])


def checked(cell):
    """The exercise whose answer a cell has checked ("1.2"), or None."""
    found = re.match(r'labs\.check\("(\d+\.\d+)"', source(cell))
    return found[1] if found else None


def solution(exercise):
    """The text of the cell with the solution: the last one tagged as an exercise before the check."""
    for path in notebooks():
        text = None
        for cell in read(path)["cells"]:
            if is_tagged(cell, "exercise"):
                text = source(cell)
            elif checked(cell) == exercise:
                return text
    raise LookupError(f"no notebook checks exercise {exercise}")
