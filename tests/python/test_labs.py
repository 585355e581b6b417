"""Every lab both ways: its solution passes each check, and gives what is saved; a student's fresh copy runs through,
and fails each check with an explanation.

    python tests/python/test_labs.py [N ...]       runs the labs (or these) and saves their outputs
"""
import json
import pathlib
import sys
import time

import pytest

from ampscope import labs

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def executed(notebook, folder):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    node = nbformat.reads(json.dumps(notebook), as_version=4)
    begin = time.monotonic()
    nbclient.NotebookClient(node, timeout=300, resources={"metadata": {"path": str(folder)}},
                            record_timing=False).execute()
    return json.loads(nbformat.writes(node)), time.monotonic() - begin


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def outputs(notebook):
    """Of each code cell, texts whole."""
    def whole(x):
        if isinstance(x, list) and all(isinstance(line, str) for line in x):
            return "".join(x)
        if isinstance(x, dict):
            return {key: whole(value) for key, value in x.items() if key != "execution_count"}
        return [whole(y) for y in x] if isinstance(x, list) else x
    return [whole(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def verdicts(notebook):
    checks = [cell for cell in notebook["cells"] if "check" in cell["metadata"].get("tags", [])]
    results = [out for cell in checks for out in cell["outputs"] if out["output_type"] == "execute_result"]
    return ["".join(out["data"]["text/plain"]) for out in results]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_solutions_pass_and_outputs_are_current(path, tmp_path):
    saved = read(path)
    run, seconds = executed(saved, tmp_path)
    said = verdicts(run)
    assert said and all(" right: " in text for text in said), said
    assert not [out for cell in run["cells"] for out in cell.get("outputs", []) if out.get("name") == "stderr"]
    assert {text.split()[0] for text in said} == {name for name in labs.exercises if name[0] == path.stem[0]}
    assert outputs(run) == outputs(saved), f"python {__file__} {path.stem[0]} saves them anew"
    assert seconds < 60


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_students_hear_what_is_missing(path, tmp_path):
    student = labs.student_version(read(path))
    assert not any(cell.get("outputs") for cell in student["cells"])
    run, _ = executed(student, tmp_path)
    for text in verdicts(run):
        name, verdict = text.split(" ", 1)
        assert verdict.startswith("not yet: ") and len(verdict) > 30, text


def test_copies_have_no_solutions(tmp_path, capsys):
    assert labs.main([str(tmp_path / "labs"), "--no-open"]) == 0
    assert sorted(p.name for p in (tmp_path / "labs").iterdir()) == [p.name for p in PATHS]
    for path in PATHS:
        solution, student = read(path), read(tmp_path / "labs" / path.name)
        exercises = [("".join(a["source"]), "".join(b["source"])) for a, b in zip(solution["cells"], student["cells"])
                     if "exercise" in a["metadata"].get("tags", [])]
        assert exercises and all(a != b and "# your code" in b for a, b in exercises)
        assert "student" not in json.dumps([cell["metadata"] for cell in student["cells"]])
    (tmp_path / "labs" / PATHS[0].name).write_text("mine")
    assert labs.main([str(tmp_path / "labs"), "--no-open"]) == 0
    assert (tmp_path / "labs" / PATHS[0].name).read_text() == "mine" and "kept" in capsys.readouterr().out
    assert labs.main([str(tmp_path / "all"), "--no-open", "--solutions"]) == 0
    assert (tmp_path / "all" / PATHS[1].name).read_bytes() == PATHS[1].read_bytes()


def test_checks_themselves():
    with pytest.raises(KeyError, match="there is no exercise '9.9'"):
        labs.check("9.9", 1)
    with pytest.raises(TypeError, match="expected 1 answers, got 2"):
        labs.check("1.2", 1, 2)
    assert "expected a function" in repr(labs.check("1.2", 3))
    assert "ZeroDivisionError" in repr(labs.check("1.2", lambda code: 1 / 0)) and not labs.check("1.2", lambda code: 0)
    with pytest.raises(FileNotFoundError):
        labs.data("nothing")


if __name__ == "__main__":
    for path in PATHS:
        if len(sys.argv) == 1 or path.stem[0] in sys.argv[1:]:
            run, seconds = executed(read(path), NOTEBOOKS)
            run["metadata"]["language_info"].pop("version")  # of whoever saves them
            path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{path.name}: {seconds:.0f} s", *verdicts(run), sep="\n  ")
