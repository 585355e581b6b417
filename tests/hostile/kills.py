"""Kills at random moments, full disks, and two processes at once. After a kill no output is half there under its name,
inputs are as they were, and a second run ends in the bytes of a run that nobody disturbed."""
import dataclasses
import os
import shutil
import signal
import time

from case import Case, Outcome, snapshot, start, wait
from judge import folder_whole
from lines import TINY

REFERENCES = {}  # name -> (seconds, what was written), of a run that ends by itself


def writer(name, box):
    """A tool that writes, by a name of WRITERS. Where it records, the second run goes on."""
    run = lambda: box.folder(box.seeds.runs / "amp-fp16", "run")
    other = lambda: box.folder(box.seeds.runs / "fp32", "other")
    file = lambda: box.file("g.safetensors", box.seeds.gradients)
    pictures = ["--json", "out/o.json", "--svg", "out/o.svg", "--threads", "2"]
    tool, args = {
        "format": lambda: ("amp-format", ["convert", file(), "out/o.safetensors", "--to", "e4m3"]),
        "histogram": lambda: ("amp-histogram", [file(), *pictures, "--csv", "out/o.csv", "--html", "out/o.html"]),
        "train": lambda: ("amp-train", [*TINY, "--json", "out/o.json", "--threads", "2"]),
        "record": lambda: ("amp-train", [*box.seeds.training, "--steps", "9", "--record", "out/runs", "--resume"]),
        "crosscheck": lambda: ("amp-crosscheck", ["run", "--device", "host", "--quick", "--only", "accumulators",
                                                  "--output", "out/reports"]),
        "loss-scale": lambda: ("amp-loss-scale", [run(), "--sweep", *pictures]),
        "diff": lambda: ("amp-diff", [run(), other(), *pictures]),
        "adam": lambda: ("amp-adam", [run(), *pictures]),
        "report": lambda: ("amp-report", [run(), "--html", "out/o.html", "--json", "out/o.json", "--markdown",
                                          "out/o.md", "--threads", "2"]),
    }[name]()
    return Case(tool, args, note=f"{name}, disturbed")


WRITERS = ["format", "histogram", "train", "crosscheck", "loss-scale", "diff", "adam", "report", *["record"] * 6]


def written(box):
    """Every file below out/ but what a kill leaves under a temporary name."""
    return {str(p.relative_to(box.path)): p.read_bytes() for p in sorted((box.path / "out").rglob("*"))
            if p.is_file() and not p.name.endswith(".partial")}


def reference(name, case, box):
    """How long the run takes, and what it writes."""
    if name not in REFERENCES:
        outcome = box.run(case)
        if outcome.code != 0 or outcome.signal:
            raise RuntimeError(f"{name}: does not run: {outcome.err.decode('utf-8', 'replace')}")
        REFERENCES[name] = outcome.seconds, written(box)
        shutil.rmtree(box.path / "out")
        (box.path / "out").mkdir()
    return REFERENCES[name]


def killed(case, box, seconds):
    """Starts a run and kills it after some seconds."""
    with open(os.devnull, "wb") as nothing:
        child = start(case, box.tools / case.tool, case.args, box.path, nothing, nothing)
    wait(child.pid, seconds)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def halves(box, expected, old, whole_lines):
    """Faults of what a disturbed run left: logs grow; any other file is the old one, or whole, or not there."""
    for path, data in written(box).items():
        if path.endswith(".jsonl"):
            if not expected[path].startswith(data) or (whole_lines and data and not data.endswith(b"\n")):
                yield "half-written", f"{path}: is no beginning of the whole"
        elif path in expected and data not in (expected[path], old):
            yield "half-written", f"{path}: {len(data)} bytes of {len(expected[path])}"


def undisturbed(case, box, expected):
    """Faults of the run that comes after all that."""
    outcome = box.run(case)
    if outcome.code != 0 or outcome.signal or outcome.late:
        said = outcome.err.decode("utf-8", "replace")[:300]
        yield "fails after a kill", f"exit {outcome.code}, signal {outcome.signal}: {said}"
        return
    now = written(box)
    for path in sorted(set(now) | set(expected)):
        if now.get(path) != expected.get(path):
            yield "other bytes after a kill", path + ("" if path in now else " is missing")
    if "--record" in case.args:  # who resumes clears up after the dead
        yield from folder_whole(box.path / "out/runs", True)


def disturbed(rng, box):
    """A tool that writes, its reference, what its inputs are, and what lay in the places of some of its outputs."""
    name = rng.choice(WRITERS)
    case = writer(name, box)
    seconds, expected = reference(name, case, box)
    old = rng.choice([None, b"old"]) if name not in ("record", "crosscheck") else None
    if old:
        for path in expected:
            (box.path / path).write_bytes(old)
    return case, seconds, expected, old, snapshot(box.path / "in")


def kill(rng, box):
    """One to three runs that are killed, at moments that are often early, then one that is not."""
    case, seconds, expected, old, inputs = disturbed(rng, box)
    faults = []
    for _ in range(rng.choice([1, 2, 3])):
        killed(case, box, 1.1 * seconds * rng.choice([0.3, 1, 1]) * rng.random())
        faults += halves(box, expected, old, False)
    faults += undisturbed(case, box, expected)
    if inputs != snapshot(box.path / "in"):
        faults.append(("input touched", "by a run that was killed"))
    return case, Outcome(), faults


def full(rng, box):
    """A disk on which files end somewhere: exit code 1, a line that names the file, and all that was there before."""
    case, _, expected, old, inputs = disturbed(rng, box)
    limited = dataclasses.replace(case, file_bytes=1 + rng.randrange(max(map(len, expected.values()))))
    outcome = box.run(limited)
    said = outcome.err.decode("utf-8", "replace")
    errors = [line for line in said.splitlines() if ": warning: " not in line]
    faults = list(halves(box, expected, old, True))
    if outcome.signal or outcome.late or outcome.code not in (0, 1):
        faults.append(("full disk", f"exit {outcome.code}, signal {outcome.signal}: {said[:300]}"))
    elif outcome.code == 1 and (len(errors) != 1 or not ("out/" in said or "standard output" in said)):
        faults.append(("full disk: error", said[:300]))
    elif outcome.code == 0 and written(box) != expected:
        faults.append(("full disk", "exit 0, and less is there than was to be"))
    faults += [("full disk: left behind", str(p)) for p in (box.path / "out").rglob("*.partial")]
    faults += undisturbed(case, box, expected)
    if inputs != snapshot(box.path / "in"):
        faults.append(("input touched", "by a run on a full disk"))
    return case, outcome, faults


def pair(rng, box):
    """Two runs into one place at once, one of them perhaps a little later: one of them is refused, or it comes when the
    other has ended; what is written is what one of them alone writes."""
    name = rng.choice(["record", "record", "train", "report"])
    case = writer(name, box)
    seconds, expected = reference(name, case, box)
    children, errors = [], [box.path.with_name(f"pair{i}.err") for i in range(2)]
    for path in errors:
        words = [a for a in case.args if a != "--resume" or rng.random() < 0.5]
        with open(path, "wb") as err, open(os.devnull, "wb") as nothing:
            children.append(start(case, box.tools / case.tool, words, box.path, nothing, err))
        time.sleep(rng.choice([0, 0, rng.uniform(0, seconds)]))
    ended = all([wait(child.pid, 20) for child in children])
    for child in children:
        if not ended:
            os.killpg(child.pid, signal.SIGKILL)
    codes = [child.wait() for child in children]
    said = [path.read_text("utf-8", "replace") for path in errors]
    faults = []
    if not ended:
        faults.append(("time", "two at once wait for each other"))
    elif 0 not in codes or not set(codes) <= {0, 1}:
        faults.append(("two at once", f"exit codes {codes}: {' | '.join(said)[:300]}"))
    else:
        faults += [("two at once: other bytes", p) for p in expected if written(box).get(p) != expected[p]]
        faults += [("two at once: left behind", str(p)) for p in (box.path / "out").rglob("*.partial")]
        for code, text in zip(codes, said):
            if code == 1 and (text.count("\n") != 1 or "out/runs" not in text):
                faults.append(("two at once: error", text[:300]))
    return case, Outcome(), faults


FAMILIES = {"kill": kill, "full": full, "pair": pair}
