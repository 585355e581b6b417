"""From the notebooks with solutions to those that students get."""
import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys

from .. import _ampscope

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


def main(arguments=None):
    """The command ampscope-labs."""
    from . import notebooks
    parser = argparse.ArgumentParser(
        prog="ampscope-labs", description="Copies the labs to a folder and opens them in Jupyter.",
        epilog="example: ampscope-labs labs     then work in the page that opens; exercises check themselves")
    parser.add_argument("folder", type=pathlib.Path, help="made where it is missing; files that are there are kept")
    parser.add_argument("--solutions", action="store_true", help="with solutions, for teachers")
    parser.add_argument("--no-open", action="store_true", help="only copy")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in notebooks():
        target = options.folder / path.name
        if target.exists():
            print(f"{target}: kept, it is there already")
        else:
            text = path.read_text(encoding="utf-8")
            if not options.solutions:
                text = json.dumps(student_version(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
            _ampscope.write_text(str(target), text)  # whole or not at all: what is there is kept
    print(f"{options.folder}: {len(notebooks())} labs; start with {notebooks()[0].name}")
    if options.no_open:
        return 0
    jupyter = [sys.executable, "-m", "jupyter", "lab", str(options.folder)]
    if subprocess.run([*jupyter[:3], "lab", "--version"], capture_output=True).returncode != 0:
        print("Jupyter is not installed: pip install jupyterlab brings it", file=sys.stderr)
        return 1
    return subprocess.run(jupyter).returncode
