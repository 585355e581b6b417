"""Kills at random moments, and two processes at once. After a kill no output is half there under its name, inputs are
as they were, and a second run ends in the bytes of a run that nobody disturbed."""
import dataclasses
import os
import pathlib
import shutil
import signal
import time

from case import Case, Outcome, execute, snapshot, start, wait
from judge import broken, folder_whole, outputs_of
from lines import TINY

REFERENCES = {}  # name -> (seconds, what was written), of a run that ends by itself


def writers(box):
    """Every tool that writes: name -> (case, what a second run adds to its arguments)."""
    run = lambda: box.folder(box.seeds.runs / "amp-fp16", "run")
    file = lambda: box.file("g.safetensors", box.seeds.gradients)
    many = ["--threads", "2"]
    return {
        "format": lambda: ("amp-format", ["convert", file(), "out/o.safetensors", "--to", "e4m3"], []),
        "histogram": lambda: ("amp-histogram", [file(), "--json", "out/o.json", "--csv", "out/o.csv", "--svg",
                                                "out/o.svg", "--html", "out/o.html",
                                                *many], []),
        "train": lambda: ("amp-train", [*TINY, "--json", "out/o.json", *many], []),
        "record": lambda: ("amp-train", [*box.seeds.training, "--steps", "9", "--record", "out/runs"], ["--resume"]),
        "crosscheck": lambda: ("amp-crosscheck", ["run", "--device", "host", "--quick", "--only", "accumulators",
                                                  "--output", "out/reports"], []),
        "loss-scale": lambda: ("amp-loss-scale", [run(), "--sweep", "--json", "out/o.json", "--svg", "out/o.svg",
                                                  *many], []),
        "diff": lambda: ("amp-diff", [run(), box.folder(box.seeds.runs / "fp32", "other"), "--json", "out/o.json",
                                      "--svg", "out/o.svg", *many], []),
        "adam": lambda: ("amp-adam", [run(), "--json", "out/o.json", "--svg", "out/o.svg", *many], []),
        "report": lambda: ("amp-report", [run(), "--html", "out/o.html", "--json", "out/o.json", "--markdown",
                                          "out/o.md", *many], []),
    }


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


def killed(case, args, box, seconds):
    """Starts a run and kills it after some seconds. Whether it had ended by itself."""
    with open(os.devnull, "wb") as nothing:
        child = start(case, box.tools / case.tool, args, box.path, nothing, nothing)
    ended = wait(child.pid, seconds)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return ended


def halves(case, box, expected):
    """Faults of what a killed run left: a file is not there, or it is whole; run folders grow, all else appears."""
    for path, data in written(box).items():
        kind = pathlib.Path(path).suffix[1:]
        grows = kind == "jsonl"
        if path in expected and not grows and kind in ("json", "csv", "svg", "html", "md", "safetensors", "npy"):
            for fault in broken("markdown" if kind == "md" else kind, data):
                yield "half-written after a kill", f"{path}: {fault}"


def kill(rng, box):
    made = writers(box)
    name = rng.choice([*made, "record", "record", "record"])
    tool, args, again = made[name]()
    case = Case(tool, args, note="a kill")
    seconds, expected = reference(name, case, box)
    before = {k: v for k, v in snapshot(box.path).items() if k.startswith(b"in")}
    faults = []
    for _ in range(rng.choice([1, 2, 3])):
        killed(case, case.args if not (box.path / "out/runs").exists() else [*case.args, *again], box,
               rng.uniform(0, 1.1 * seconds))
        faults += halves(case, box, expected)
    outcome = execute(case, box.tools / tool, [*case.args, *again] if (box.path / "out/runs").exists() else case.args,
                      box.path)
    faults += ending(case, box, outcome, expected)
    if before != {k: v for k, v in snapshot(box.path).items() if k.startswith(b"in")}:
        faults.append(("input touched", "by a run that was killed"))
    return case, outcome, faults


def ending(case, box, outcome, expected):
    """Faults of the run after a kill."""
    if outcome.code != 0 or outcome.signal or outcome.late:
        said = outcome.err.decode("utf-8", "replace")[:300]
        yield "fails after a kill", f"exit {outcome.code}, signal {outcome.signal}: {said}"
        return
    now = written(box)
    for path in sorted(set(now) | set(expected)):
        if now.get(path) != expected.get(path):
            yield "other bytes after a kill", path + ("" if path in now else " is missing")
    for path, kind in outputs_of(case).items():
        if kind == "folder" and (box.path / path).is_dir():
            yield from folder_whole(box.path / path, "--record" in case.args)  # who resumes clears up after the dead


def pair(rng, box):
    """Two runs into one place at once, one of them perhaps a little later: one of them is refused, or it comes when the
    other has ended; what is written is what one of them alone writes."""
    name = rng.choice(["record", "record", "train", "report"])
    tool, args, again = writers(box)[name]()
    case = Case(tool, args, note="two at once")
    seconds, expected = reference(name, case, box)
    children, errors = [], []
    second = [*args, *rng.choice([[], again])]
    for i, words in enumerate((args, second)):
        errors.append(box.path.with_name(f"pair{i}.err"))
        with open(errors[i], "wb") as err, open(os.devnull, "wb") as nothing:
            children.append(start(case, box.tools / tool, words, box.path, nothing, err))
        time.sleep(rng.choice([0, 0, rng.uniform(0, seconds)]))
    ended = all([wait(child.pid, 20) for child in children])
    for child in children:
        os.killpg(child.pid, signal.SIGKILL) if not ended else None
    codes = [child.wait() for child in children]
    faults = []
    said = [path.read_text("utf-8", "replace") for path in errors]
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
    return dataclasses.replace(case, args=second), Outcome(), faults


FAMILIES = {"kill": kill, "pair": pair}
