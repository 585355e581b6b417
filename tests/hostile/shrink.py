"""Makes a failing case smaller while it fails in the same way, and keeps it."""
import dataclasses
import os
import pathlib
import shutil
import stat
import time

from case import command_text, describe, snapshot
from judge import judge


EXPECTED = ("exit", "time", "output missing", "damaged file", "resumed",
            "input touched")  # what only the case itself knows


def kinds_of(case, box):
    """The kinds of faults of a run, and the whole."""
    before = snapshot(box.path)
    outcome = box.run(case)
    faults = list(judge(case, box, outcome, before))
    return {kind for kind, _ in faults}, faults, outcome


def copy(source, target):
    """A copy of the inputs: pipes and devices stay what they are, files of holes are left out."""
    def one(path, to, **how):
        info = os.lstat(path)
        if stat.S_ISFIFO(info.st_mode) or stat.S_ISCHR(info.st_mode):
            os.mknod(to, info.st_mode, info.st_rdev)
        elif info.st_size < 1 << 27:
            shutil.copy2(path, to, **how)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True, copy_function=one)


def shrink(case, box, kind, original, seconds):
    """Fewer arguments, fewer files, fewer bytes. `original` is a copy of the inputs, which is made smaller in place."""
    end = time.monotonic() + seconds

    def fails(candidate):
        if time.monotonic() > end:
            return False
        copy(original, box.path)
        return kind in kinds_of(candidate, box)[0]

    for width in (2, 1):
        i = len(case.args) - width
        while i >= 0:
            smaller = dataclasses.replace(case, args=case.args[:i] + case.args[i + width:])
            if fails(smaller):
                case = smaller
            i -= 1
    for path in sorted(pathlib.Path(original).rglob("*"), reverse=True):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        path.unlink()
        if fails(case):
            continue
        path.write_bytes(data)
        part = max(1, len(data) // 2)
        while part >= 1 and time.monotonic() < end:
            at = 0
            while at < len(data):
                shorter = data[:at] + data[at + part:]
                path.write_bytes(shorter)
                if fails(case):
                    data = shorter
                else:
                    at += part
            part //= 2
        path.write_bytes(data)
    return case


def keep(case, box, folder, faults, outcome, original):
    """Leaves the inputs, a script that runs the case, and what it said."""
    copy(original, folder)
    (folder / "command").write_text(command_text(case, box.tools, folder))
    (folder / "command").chmod(0o755)
    (folder / "faults").write_text("".join(f"{kind}: {detail}\n" for kind, detail in faults), errors="backslashreplace")
    (folder / "case.json").write_text(describe(case), errors="backslashreplace")
    for name in ("out", "err"):
        (folder / f"std{name}").write_bytes(getattr(outcome, name)[:1 << 20])
