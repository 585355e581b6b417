"""From the notebooks with solutions to those that students get."""
import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys

from .. import _ampscope
from ._notebooks import notebooks
from ._score import score

MARK = "# your code"


def _without_solution(source):
    """`name = ...  # your code` keeps the name; from a line that is the mark alone on, all that is indented as far
    goes."""
    kept, skipped_indent, blank = [], None, []
    for line in source.splitlines():
        indent = len(line) - len(line.lstrip())
        if skipped_indent is not None:
            if not line.strip():
                blank.append(line)  # part of the solution, or what follows it
                continue
            if indent >= skipped_indent:
                blank = []
                continue
            kept += blank
            skipped_indent, blank = None, []
        if line.strip() == MARK:
            kept += [line, " " * indent + "..."]
            skipped_indent = indent
        elif line.rstrip().endswith(MARK):
            kept.append(re.sub(r"=[^=].*$", f"= ...  {MARK}", line))
        else:
            kept.append(line)
    return "\n".join(kept)


def student_version(notebook):
    """A notebook as students get it. Tags of its cells decide: of an `exercise` the solution is taken out (or the
    cell's metadata "student" put in its place), a cell for the `teacher` alone goes; outputs go from all."""
    notebook = copy.deepcopy(notebook)
    cells = []
    for cell in notebook["cells"]:
        tags = cell["metadata"].get("tags", [])
        if "teacher" in tags:
            continue
        if "exercise" in tags:
            source = "".join(cell["source"])
            student = cell["metadata"].pop("student", None) or _without_solution(source)
            if student == source:
                raise ValueError(f"cell {cell.get('id')}: tagged as an exercise, but nothing in it is a solution")
            cell["source"] = student.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        cells.append(cell)
    return {**notebook, "cells": cells}


def _copy(folder, solutions):
    folder.mkdir(parents=True, exist_ok=True)
    for path in notebooks():
        target = folder / path.name
        if target.exists():
            print(f"{target}: kept, it is there already")
        else:
            text = path.read_text(encoding="utf-8")
            if not solutions:
                text = json.dumps(student_version(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
            _ampscope.write_text(str(target), text)  # whole or not at all: what is there is kept
    print(f"{folder}: {len(notebooks())} labs; start with {notebooks()[0].name}")


def _open(folder):
    jupyter = [sys.executable, "-m", "jupyter", "lab", str(folder)]
    if subprocess.run([*jupyter[:3], "lab", "--version"], capture_output=True).returncode != 0:
        print("Jupyter is not installed: pip install jupyterlab brings it", file=sys.stderr)
        return 1
    return subprocess.run(jupyter).returncode


def _print_scores(folders, run):
    """One JSON object, with an entry for each folder. A folder that cannot be read is named, and the others count."""
    scores, status = {}, 0
    for folder in folders:
        try:
            scores[str(folder)] = score(folder, run)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
            status = 1
    print(json.dumps(scores, indent=1, ensure_ascii=False))
    return status


def main(arguments=None):
    """The command ampscope-labs."""
    parser = argparse.ArgumentParser(
        prog="ampscope-labs", description="Copies the labs to a folder and opens them in Jupyter, or counts points.",
        epilog="examples: ampscope-labs labs     then work in the page that opens; exercises check themselves. "
               "ampscope-labs --score ann ben > scores.json     what two students have in their folders")
    parser.add_argument("folder", type=pathlib.Path, nargs="+",
                        help="made where it is missing; files that are there are kept")
    parser.add_argument("--solutions", action="store_true", help="with solutions, for teachers")
    parser.add_argument("--no-open", action="store_true", help="only copy")
    parser.add_argument("--score", action="store_true", help="print, as JSON, the points of each exercise in the saved "
                        "notebooks of these folders, one folder for each student")
    parser.add_argument("--run", action="store_true", help="with --score: execute the notebooks first, so that no "
                        "output counts that was edited. This runs the students' code on this machine")
    options = parser.parse_args(arguments)
    if options.score:
        if options.solutions or options.no_open:
            parser.error("--score copies nothing: leave out --solutions and --no-open")
        return _print_scores(options.folder, options.run)
    if options.run:
        parser.error("--run belongs to --score")
    if len(options.folder) > 1:
        parser.error("expected one folder; only --score takes several")
    _copy(options.folder[0], options.solutions)
    return 0 if options.no_open else _open(options.folder[0])
