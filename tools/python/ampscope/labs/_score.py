"""Points of a student's notebooks, for teachers."""
import json

from ._exercises import exercises
from ._notebooks import checked, notebooks, read, source


def _executed(notebook, folder):
    """The notebook after all its cells have run in `folder`; a cell that fails does not stop the others."""
    import nbclient
    import nbformat
    node = nbformat.reads(json.dumps(notebook), as_version=4)
    nbclient.NotebookClient(node, timeout=600, allow_errors=True,
                            resources={"metadata": {"path": str(folder)}}).execute()
    return node


def _verdicts(cell):
    """What a cell's last run said, as text."""
    for output in cell.get("outputs", []):
        if output["output_type"] == "execute_result":
            text = output["data"].get("text/plain", "")
            yield text if isinstance(text, str) else "".join(text)


def _solved(notebook, checks):
    """The exercises that the outputs of a student's notebook call right. `checks`: the texts of the cells that count,
    so that a check which was changed, to be given another answer, counts for nothing."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and source(cell).strip() in checks:
            exercise = checked(cell)
            if any(text.startswith(f"{exercise} right: ") for text in _verdicts(cell)):
                yield exercise


def score(folder, run=False):
    """A point for each exercise that is right in the notebooks of a folder: {"1.1": 1, "1.2": 0, ..., "points": 1,
    "of": 46}. An exercise is right if the notebook says so, as it was saved; with run=True all notebooks are executed
    first, in that folder, and what was saved does not count. Raises ValueError for a file that is no notebook, or that
    cannot be executed, and FileNotFoundError for a folder without any lab."""
    points, labs_found = dict.fromkeys(exercises, 0), 0
    for original in notebooks():
        path = folder / original.name
        if not path.exists():
            continue
        labs_found += 1
        checks = {source(cell).strip() for cell in read(original)["cells"] if checked(cell)}
        try:
            notebook = read(path)
            if run:
                notebook = _executed(notebook, folder)
            points.update(dict.fromkeys(_solved(notebook, checks), 1))
        except (TimeoutError, RuntimeError) as error:  # nbclient's, of a cell that never ends or a kernel that died
            raise ValueError(f"{path}: it cannot be executed ({type(error).__name__})") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: this is no notebook ({type(error).__name__}: {error})") from None
    if not labs_found:
        raise FileNotFoundError(f"{folder}: there is no lab in it; expected files such as {notebooks()[0].name}")
    return {**points, "points": sum(points.values()), "of": len(points)}
