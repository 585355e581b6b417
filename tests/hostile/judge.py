"""What must hold after a run. Each fault is (kind, detail); kinds are few, so that findings can be grouped by them.

An error "names file and place" where its line is `TOOL: ... PATH: words`, PATH being a path of the command line or one
below it (escaped as the tool prints it; "standard output" and the like count), words being the tool's own and not those
of a library. Exit 1 takes one such line for each damaged file, and not more lines than there are files; none is said
twice where a folder is read that is not the case's. Warnings begin with "TOOL: warning: " and are not counted. Exit 2
takes one or two lines, one of which points to --help, and nothing on standard output.
"""
import collections
import csv
import io
import json
import os
import re
import signal
import stat
import unicodedata
import xml.etree.ElementTree as ElementTree

from case import MOST_SAID, snapshot

WRITES = {"--json": "json", "--csv": "csv", "--svg": "svg", "--html": "html", "--markdown": "markdown"}
FOLDERS = {"--record", "--keep", "--output"}
FLAGS = {("amp-format", "--json"), ("amp-crosscheck", "--json"), ("amp-crosscheck", "--record")}
SHOWS = {"--help", "-h", "--version", "--list", "--explain", "--memory"}  # write nothing
LIBRARY = re.compile(r"std::|basic_|bad_alloc|terminate called|what\(\)|json\.exception|nlohmann|vector::|\bstoi\b|"
                     r"\bstod\b|stoull|map::at|iostream error|filesystem error|Assertion|runtime error:|\(null\)")
BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def judge(case, box, outcome, before):
    """All faults of a run; `before` is the snapshot of the scratch folder."""
    after = snapshot(box.path)
    found = outputs_of(case)
    yield from ending(case, outcome, box)
    if outcome.late or (outcome.signal and outcome.signal not in case.signals):
        return
    yield from inputs_untouched(case, outcome, before, after)
    yield from outputs_whole(case, box, outcome, before, after, found)
    if "stderr" not in case.streams and not outcome.signal:
        yield from messages(case, outcome, box)
    if case.expected and outcome.code == 0 and not outcome.signal:
        yield from equal_runs(box.path / "work/runs", case.expected)
    if outcome.code != 2 and "stdout" not in case.streams:
        yield from standard_output(case, outcome)


def ending(case, outcome, box):
    codes = {*case.codes, 3} if "--gate" in " ".join(case.args) else set(case.codes)
    if outcome.late and not case.endless and not leads_out(case, box):
        yield "time", f"still running after {case.seconds:g} s"
    elif outcome.signal and not outcome.late and outcome.signal not in case.signals:
        yield f"signal {signal.Signals(outcome.signal).name}", last_line(outcome.err)
    elif not outcome.signal and outcome.code not in codes:
        wanted = " or ".join(map(str, sorted(codes)))
        yield f"exit {outcome.code}, not {wanted}", last_line(outcome.err) or "says nothing"
    if outcome.resident > case.resident:
        yield "memory", f"{outcome.resident:.0f} MiB in use"


def last_line(data):
    return data.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]


def messages(case, outcome, box):
    """Standard error."""
    try:
        text = outcome.err.decode("utf-8")
    except UnicodeDecodeError:
        yield "message not UTF-8", repr(outcome.err[:200])
        return
    yield from printable(text, "message")
    if text and not text.endswith("\n"):
        yield "message without end", last_line(outcome.err)
    lines = text.removesuffix("\n").split("\n") if text else []
    longest = 5000 + max(map(len, case.args), default=0)
    for line in lines:
        if LIBRARY.search(line):
            yield "message of a library", line[:300]
        if len(line) > longest:
            yield "message too long", f"{len(line)} characters: {line[:100]}"
    errors = [line for line in lines if not line.startswith(f"{case.tool}: warning: ")]
    if outcome.code == 2:
        if not 1 <= len(lines) <= 2 or "--help" not in text:
            yield "no usage message", text[:300] or "says nothing"
        if outcome.out:
            yield "usage error prints", repr(outcome.out[:100])
    elif outcome.code == 0 and any("no PATH given" not in line for line in errors):
        yield "an error, and exit code 0", errors[0][:300]
    elif outcome.code == 1:
        yield from errors_named(case, box, errors)
    for line in errors if outcome.code in (0, 1) else ():
        if not line.startswith(f"{case.tool}: "):
            yield "message without the tool's name", line[:300]


def errors_named(case, box, errors):
    if not errors:
        yield "no error line", "exit 1, and says nothing"
    files = max(1, sum(1 for p in box.path.joinpath("in").rglob("*") if not p.is_dir() or p.is_symlink()))
    if leads_out(case, box):
        twice = [line for line, n in collections.Counter(errors).items() if n > 1]
        if twice:
            yield "an error line twice", twice[0][:300]
    elif len(errors) > files + len(case.args):
        yield "too many error lines", f"{len(errors)} for {files} files: {errors[0][:200]}"
    needles = [needle(path) for path in paths_of(case)] + ["standard output", "standard input", "standard error",
                                                           "device"]
    for line in errors:
        if not any(n in line for n in needles):
            yield "error names no file", line[:300]
        for n in needles[:-4]:
            if len(n) > 4 and f"{n}: {n}: " in line:
                yield "error names a file twice", line[:300]
            if len(n) > 4 and line.rstrip().endswith(f"{n}:"):
                yield "error says nothing", line[:300]
    unread = any(", the other has" in line for line in errors)  # amp-diff compares no tensors of two sizes
    for path in case.damaged:
        if not unread and not any(needle(path) in line for line in errors):
            yield "damaged file not named", f"{path}: {' | '.join(errors)[:300]}"


def leads_out(case, box):
    """Whether a tool may read a folder that is not the case's, such as /: nobody knows how much is wrong in it."""
    folders = [box.path / path for path in paths_of(case) if os.path.isdir(box.path / path)]
    return not all(folder.resolve().is_relative_to(box.path.resolve()) for folder in folders)


def paths_of(case):
    """The paths on a command line, and its options, one of which may be at fault."""
    for word in case.args:
        option, _, path = word.partition("=")
        yield from (option, path) if word.startswith("--") and path else (word,)


def needle(path):
    """The part of a path that every way to escape it leaves as it is."""
    return max(re.findall(r"[\w./ -]+", path), key=len, default="")[:100]


def printable(text, what):
    for c in text:
        if c in BIDI:
            yield f"{what} with bidirectional controls", repr(text[max(0, text.index(c) - 40):][:80])
            return
        if unicodedata.category(c) == "Cc" and c not in "\n\t":
            yield f"{what} with control characters", repr(text[max(0, text.index(c) - 40):][:80])
            return


def standard_output(case, outcome):
    kind = next((kind for option, kind in WRITES.items() if f"{option}=-" in case.args or
                 any(pair == (option, "-") for pair in zip(case.args, case.args[1:]))), "text")
    if kind == "text" or not outcome.out:
        try:
            yield from printable(outcome.out.decode("utf-8"), "output")
        except UnicodeDecodeError as error:
            yield "output not UTF-8", repr(outcome.out[max(0, error.start - 40):][:80])
        if outcome.code == 0 and LIBRARY.search(outcome.out.decode("utf-8", "replace")):
            yield "output of a library", LIBRARY.search(outcome.out.decode("utf-8", "replace")).group()
    elif not outcome.signal and len(outcome.out) < MOST_SAID:
        for fault in broken(kind, outcome.out):
            yield f"standard output is broken {kind}", fault


def outputs_of(case):
    """What the command line asks to be written: path -> kind."""
    found = {}
    for i, word in enumerate(case.args):
        option, equals, path = word.partition("=")
        if not equals and i + 1 < len(case.args):
            path = case.args[i + 1]
        if (case.tool, option) in FLAGS or path in ("", "-"):
            continue
        if option in WRITES:
            found[path] = WRITES[option]
        elif option in FOLDERS:
            found[path] = "folder"
        elif word.startswith("out/") and case.tool == "amp-format":
            found[word] = os.path.splitext(word)[1][1:]
    return found


def inputs_untouched(case, outcome, before, after):
    """Inputs are as they were, times of change too; so are folders that a run was to write into and refused. There a
    lock may have come and gone, which is seen by the time of the folder alone. Devices stay devices."""
    kept = [os.fsencode(folder) for folder in case.kept if outcome.code != 0]
    for path in sorted(set(before) | set(after)):
        was, now = before.get(path), after.get(path)
        if was and stat.S_ISCHR(was[0]):
            was, now = was[0], now and now[0]
        elif any(path == k or path.startswith(k + b"/") for k in kept) and was and now and stat.S_ISDIR(now[0]):
            was = now
        elif not any(path == k or path.startswith(k + b"/") for k in [b"in", *kept]):
            continue
        if was != now:
            how = "is new" if was is None else "is gone" if now is None else "has changed"
            yield "input touched", f"{os.fsdecode(path)} {how}"


def outputs_whole(case, box, outcome, before, after, found):
    written = [os.path.normpath(p) for p in found]
    links = [p for p in written if "\0" not in p and os.path.islink(box.path / p)]  # what they lead to is written
    written += [os.path.relpath(os.path.realpath(box.path / p), os.path.realpath(box.path)) for p in links]
    for path in sorted(set(after) - set(before)):
        name = os.fsdecode(path)
        if name.startswith(("in/", ".git")):
            continue
        if name.endswith(".partial") and not outcome.signal:
            yield "left behind", name
        elif not any(w == "." or name == w or name.startswith(w + "/") or w.startswith(name + "/") for w in written) \
        and not name.endswith(".partial"):
            yield "left behind", name
    for path, kind in found.items():
        full = box.path / path
        try:
            there, regular = os.path.lexists(full), full.is_file()
        except (ValueError, OSError):
            continue
        only_shows = any(a.partition("=")[0] in SHOWS for a in case.args)
        if outcome.code == 0 and not outcome.signal and not there and not only_shows:
            yield "output missing", path
        key = os.fsencode(os.path.normpath(path))
        if regular and before.get(key) != after.get(key):
            for fault in broken(kind, full.read_bytes()) if full.stat().st_size < 4 * MOST_SAID else cut(kind, full):
                yield f"half-written {kind}", f"{path}: {fault}"
        elif kind == "folder" and full.is_dir() and outcome.code == 0 and (case.expected or key not in before):
            yield from folder_whole(full, not outcome.signal)


def folder_whole(folder, ended):
    """Documents of run folders parse to their ends; nothing temporary is left where the tool ended by itself."""
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".partial"):
            if ended:
                yield "left behind", path.name
        elif path.is_file():
            lines = path.suffix == ".jsonl" and ended
            for fault in broken("jsonl" if lines else path.suffix[1:], path.read_bytes()):
                yield "half-written file of a run", f"{path.name}: {fault}"


def equal_runs(folder, expected):
    """A run that went on has the bytes of one that had no break."""
    for path in sorted(expected.rglob("*")):
        twin = folder / path.relative_to(expected)
        same = not path.is_file() or (twin.is_file() and twin.read_bytes() == path.read_bytes())
        if not same and path.parent.name != "checkpoints":
            yield "resumed to other bytes", str(path.relative_to(expected))


def broken(kind, data):
    """What is wrong with an output, if it is."""
    try:
        if kind == "json":
            json.loads(data, parse_constant=refuse, object_pairs_hook=once)
        elif kind == "jsonl":
            if data and not data.endswith(b"\n"):
                yield "the last line is not complete"
            for line in data.splitlines():
                json.loads(line, parse_constant=refuse, object_pairs_hook=once)
        elif kind == "csv":
            yield from broken_table(data.decode("utf-8"))
        elif kind == "svg":
            ElementTree.fromstring(data)
        elif kind in ("html", "markdown"):
            text = data.decode("utf-8")
            yield from (f"{a}: {b}" for a, b in printable(text, "page"))
            if not text.endswith("</html>\n" if kind == "html" else "\n"):
                yield f"ends in {text[-30:]!r}"
        elif kind == "safetensors":
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8:8 + size])
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
            if len(data) != 8 + size + max(ends, default=0):
                yield f"{len(data)} bytes, where the header says {8 + size + max(ends, default=0)}"
        elif kind == "npy" and not data.startswith(b"\x93NUMPY"):
            yield "no array"
    except (ValueError, ElementTree.ParseError, RecursionError, KeyError, TypeError) as error:
        yield str(error)[:200]


def cut(kind, path):
    """What is wrong with an output that Python had no room to parse: at least a text ends with a line."""
    if kind not in WRITES.values():
        return
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            yield "the last line is not complete"


def broken_table(text):
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if not rows or len({len(row) for row in rows}) != 1 or not text.endswith("\n"):
        yield "rows of different lengths"
    for cell in (cell for row in rows for cell in row):
        if cell[:1] in "=+-@" and cell and not re.fullmatch(r"[-+]?(\d[\d.]*(e[-+]?\d+)?|inf|nan)", cell, re.I):
            yield f"a spreadsheet would compute {cell[:60]!r}"
            return


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def once(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError(f"a key twice among {[k for k, _ in pairs][:8]}")
    return dict(pairs)
