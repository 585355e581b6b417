"""Families of run folders, logs, reports, checkpoints and what trainings are given: JSON, lines and options."""
import json
import math
import os
import shutil

from case import Case
from formats import INTERESTING, archive, floats, member, npy
from lines import odd_target
from mutate import NAMES, NUMBERS, Raw, damage, damage_json, damage_lines, dump, encode, nested

DOCUMENTS = ["run.json", "metrics.jsonl", "histograms.jsonl", "result.json"]


def asking(rng, folders, **fields):
    """A run of a tool that reads these run folders."""
    common = ["--threads", rng.choice(["1", "2", "3"])]
    way = rng.choice(["report", "report", "loss-scale", "loss-scale", "diff", "adam", "histogram", "evaluate"])
    first, last = folders[0], folders[-1]
    if way == "report":
        args = [*folders, *common, *rng.choice([[], ["--html", "out/o.html"], ["--json", "-"],
                                                ["--markdown", "out/o.md", "--json", "out/o.json"]])]
    elif way == "loss-scale":
        args = [*folders, *common, *rng.choice([[], ["--sweep"], ["--json", "out/o.json"], ["--svg", "out/o.svg"],
                                                ["--scaler", "torch"]])]
    elif way == "diff":
        args = [first, last, *common, *rng.choice([[], ["--json", "out/o.json"], ["--svg", "out/o.svg"],
                                                   ["--gate", "missing<=0"]])]
    elif way == "adam":
        args = [*folders, *common, *rng.choice([[], ["--json", "-"], ["--svg", "out/o.svg"], ["--state", "bf16"]])]
    elif way == "histogram":
        args = [*folders, *common, *rng.choice([[], ["--json", "out/o.json"], ["--csv", "-"],
                                                ["--html", "out/o.html"]])]
    else:
        return Case("amp-train", ["--evaluate", first, "--weights-as", "e4m3", "--activations-as", "e4m3:tensor",
                                  *common,
                                  *rng.choice([[], ["--json", "out/o.json"]])], **fields)
    return Case(f"amp-{way}", args, **fields)


def copies(rng, box, at="in"):
    """One to three of the recorded runs, below one folder or given one by one."""
    names = rng.sample(box.seeds.names, rng.choice([1, 1, 2, 3]))
    return [box.folder(box.seeds.runs / name, f"runs/{name}", at) for name in names]


# --- what can be wrong with the files of a run ---
def break_document(rng, path):
    """A run.json, or one line of a log, with values that do not belong there; or the bytes damaged."""
    text, kind = path.read_bytes(), rng.random()
    lines = [text] if path.suffix == ".json" else text.splitlines()
    try:
        at = rng.randrange(len(lines))
        if kind < 0.6:
            document = damage_json(rng, json.loads(lines[at]))
            lines[at] = encode(dump(document, rng.choice([None, 1]) if len(lines) == 1 else None))
    except (ValueError, RecursionError):  # an earlier fault left no JSON there, or one too deep for Python
        kind = 1
    if kind < 0.6:
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif kind < 0.8:
        path.write_bytes(damage_lines(rng, text))
    else:
        path.write_bytes(damage(rng, text))


def replace_document(rng, box, path):
    """A file of another kind, or with another content, in its place."""
    path.unlink()
    kind = rng.randrange(12)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("nowhere")
    elif kind == 3:
        path.symlink_to(path.name)
    elif kind == 4:
        path.symlink_to(odd_target(rng, box))
    elif kind == 5:
        path.write_bytes(b"")
    elif kind == 6:
        path.write_bytes(rng.randbytes(rng.choice([1, 100, 100000])))
    elif kind == 7:
        path.write_bytes(encode(nested(rng, rng.choice([600, 5000, 100000]))))
    elif kind == 8:
        name = json.dumps(rng.choice(NAMES[:-20]), ensure_ascii=False)
        path.write_bytes(encode(f'{{"schema_version": 1, {name}: {nested(rng, 100000)}}}'))
    elif kind == 9:
        path.write_bytes(encode(rng.choice(["null", "[]", "{}", "0", '""', "{}\n{}\n", '{"schema_version": 99}',
                                            '{"schema_version": "1"}', "\ufeff{}"])))
    elif kind == 10:
        with open(path, "wb") as file:
            file.truncate(rng.choice([1 << 20, 100 << 20]))
    else:
        path.symlink_to("..")


def many_lines(rng, path):
    """A log whose steps are far apart, twice there, in no order or without end, or that Python's json.dumps wrote."""
    lines = path.read_bytes().splitlines()
    kind = rng.randrange(7)
    if kind == 0:
        step = rng.choice([10**7, 2**31, 2**53 + 1, 2**63 - 1, -1, 1e300])
        lines.append(encode(json.dumps({**json.loads(lines[-1]), "step": step})))
    elif kind == 1:
        lines += lines
    elif kind == 2:
        rng.shuffle(lines)
    elif kind == 3:
        lines = [encode(dump({**json.loads(line), rng.choice(["loss", "scale", "grad_norm", "amax", "found_inf", "lr"]):
                              Raw(rng.choice(["NaN", "Infinity", "-Infinity"]))})) for line in lines]
    elif kind == 4:
        first = json.loads(lines[0])
        lines = [encode(json.dumps({**first, "step": i})) for i in range(rng.choice([1000, 20000]))]
    elif kind == 5:  # a line of very many keys, whole or broken at its end
        keys = ",".join(f'"k{i}":{i}' for i in range(400000))
        lines.insert(rng.randrange(len(lines)), encode(f'{{{keys},"tensor":"w","step":0' + rng.choice(["", "}"])))
    else:
        lines[-1] = lines[-1][:rng.randrange(len(lines[-1]))]
    path.write_bytes(b"\n".join(lines) + rng.choice([b"\n", b"\n", b"", b"\r\n"]))


def break_tensors(rng, box, folder):
    """One of the recorded tensor files damaged, replaced, renamed or swapped with another."""
    files = [path for path in sorted(folder.rglob("*.safetensors")) if path.is_file()]  # one may be replaced by now
    if not files:
        return
    file = rng.choice(files)
    kind = rng.randrange(6)
    if kind == 0:
        file.write_bytes(damage(rng, file.read_bytes()))
    elif kind == 1:
        other = rng.choice(files)
        data = file.read_bytes()
        file.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind == 2:
        file.rename(file.with_name(rng.choice(["step_000001.safetensors", "step_999999999999999999999.safetensors",
                                               "step_-1.safetensors",
                                               "step_000005", "x.safetensors", "step_000000.npy"])))
    elif kind == 3:
        replace_document(rng, box, file)
    elif kind == 4:
        shutil.rmtree(file.parent)
        file.parent.symlink_to(rng.choice([".", "..", "nowhere"]))
    else:
        file.unlink()


def break_run(rng, box, folder):
    """One or two faults in a run folder."""
    broken = set()
    for _ in range(rng.choice([1, 1, 2])):
        path = folder / rng.choice(DOCUMENTS)
        usual = path.is_file() and not path.is_symlink()
        kind = rng.random()
        if kind < 0.25:
            break_tensors(rng, box, folder)
        elif not usual:
            continue
        elif kind < 0.6:
            break_document(rng, path)
        elif kind < 0.8:
            replace_document(rng, box, path)
        elif kind < 0.9 and path.suffix == ".jsonl" and path not in broken and path.stat().st_size:
            many_lines(rng, path)
        else:
            path.unlink()
        broken.add(path)


def run(rng, box):
    folders = copies(rng, box)
    break_run(rng, box, box.path / rng.choice(folders))
    return asking(rng, folders if rng.random() < 0.7 else ["in/runs"])


def twice(rng, box):
    """A folder that is named twice, copied, or found again by another way is one run and no second seed."""
    name = rng.choice(box.seeds.names)
    first, second = box.folder(box.seeds.runs / name, "a"), box.folder(box.seeds.runs / name, "b")
    folders = rng.choice([[first, first], [first, second], [first, f"{first}/"], [first, "in/b/../a"], ["in", first],
                          ["in", "in"]])
    return asking(rng, folders)


# --- logs of other programs ---
def log(rng, box):
    suffix = rng.choice(["csv", "tsv", "jsonl"])
    text = box.seeds.logs[suffix]
    kind = rng.random()
    if kind < 0.5:
        text = damage_lines(rng, text)
    elif kind < 0.7 and suffix == "jsonl":
        lines = [json.loads(line) for line in text.splitlines()]
        lines = [dump(damage_json(rng, line)) if rng.random() < 0.2 else dump(line) for line in lines]
        text = "\n".join(lines) + "\n"
    elif kind < 0.8:
        rows = [row.split(",") for row in box.seeds.logs["csv"].splitlines()]
        for _ in range(3):
            rng.choice(rows[1:])[rng.randrange(5)] = rng.choice(NUMBERS)
        text, suffix = "\n".join(",".join(row) for row in rows), "csv"
    elif kind < 0.9:
        names = [rng.choice(NAMES) for _ in range(rng.choice([1, 5, 2000]))]
        head, number = ",".join(["step", "amax", *names]), "9" * rng.choice([1, 100000])
        text, suffix = f"{head}\n1,2\n2,{number}\n", "csv"
    else:
        text = rng.choice(["", "\n", "\0" * 1000, "step,amax\n", "step,amax\n1", ",,,\n,,,\n",
                           "step\tamax\n1e7\t1\n0\t1\n", "\"\n\"\n" * 50])
        if rng.random() < 0.1:
            text = b"x" * (64 << 20)
    path = box.file(f"log.{rng.choice([suffix, suffix, suffix, 'txt', 'json', 'ndjson'])}", text)
    options = [[], ["--sweep"], ["--amax", rng.choice(["amax", "AMAX", *NAMES])], ["--amax-scaled"],
               ["--scale", rng.choice(["scale", "x"])], ["--json", "-"], ["--svg", "out/o.svg"],
               ["--scaler", "torch", "--scaler", "none"], ["--step-column", "step"],
               ["--recorded-under", rng.choice(["megatron", "x", "none"])], ["--found-inf", "found_inf"]]
    args = [a.replace("\0", "") for a in (path, *rng.choice(options), *rng.choice(options), "--threads", "2")]
    return Case("amp-loss-scale", args) if rng.random() < 0.9 else Case("amp-report", [path, "--threads", "2"])


# --- reports for --merge ---
def merge(rng, box):
    options, text = rng.choice(box.seeds.reports)
    paths = [box.file("whole.json", text)]
    kind = rng.random()
    if kind < 0.55:
        text = encode(dump(damage_json(rng, json.loads(text))))
    elif kind < 0.8:
        text = damage(rng, encode(text))
    elif kind < 0.9:
        text = encode(rng.choice(["", "{}", "null", "[]", nested(rng, 100000),
                                  '{"tensors":' + nested(rng, 100000) + "}"]))
    elif kind < 0.95:  # an array that comes twice
        at = text.rindex("}")
        text = text[:at] + ',"tensors":' + dump(json.loads(text)["tensors"]) + "}"
    else:
        text = rng.choice(box.seeds.reports)[1]
    paths.append(box.file("broken.json", text))
    twice = 0.9 <= kind < 0.95
    rng.shuffle(paths)
    paths = paths[:rng.choice([1, 2, 2])]
    return Case("amp-histogram", ["--merge", *paths, *options, "--threads", "2",
                                  *rng.choice([[], ["--json", "out/o.json"], ["--csv", "out/o.csv"],
                                               ["--html", "out/o.html"], ["--svg", "-"]])],
                damaged=("in/broken.json",) if twice and "in/broken.json" in paths else ())


# --- going on from checkpoints ---
def resume(rng, box):
    """An interrupted training of which one file is broken. What is refused leaves the folder as it was; what goes on
    from another checkpoint ends in the bytes of a training without a break."""
    box.folder(box.seeds.runs, "work/runs", ".")
    folder = box.path / "work/runs" / rng.choice(box.seeds.names)
    checkpoints = sorted((folder / "checkpoints").iterdir())
    harmless = rng.random() < 0.6
    if harmless:  # only checkpoints: metrics and everything else must come out as without a break
        file = rng.choice(checkpoints)
        kind = rng.randrange(5)
        if kind == 0:
            data = bytearray(file.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.write_bytes(data)
        elif kind == 1:
            file.write_bytes(file.read_bytes()[:rng.randrange(file.stat().st_size)])
        elif kind == 2:
            file.rename(file.with_name(f"step_{rng.choice([1, 2, 4, 5, 7, 8]):06d}.safetensors"))
        elif kind == 3:
            data = checkpoints[0].read_bytes()
            checkpoints[0].write_bytes(checkpoints[-1].read_bytes())
            checkpoints[-1].write_bytes(data)
        else:
            file.unlink()
            (file.parent / f"{file.name}.123-0.partial").write_bytes(b"x")
    else:
        break_run(rng, box, folder)
    case = Case("amp-train", [*box.seeds.training, "--steps", "9", "--record", "work/runs", "--resume"], kept=("work",),
                codes=(0, 1) if harmless else (0, 1, 2))
    if harmless:
        case.expected = box.seeds.longer
    return case


# --- arrays and options of a training ---
def data(rng, box):
    """--data, --text: shapes without elements or features, classes that are none, archives that are damaged."""
    tiny = ["--width", "4", "--steps", "2", "--batch", "4", "--threads", "2", "--precision", "fp32"]
    if rng.random() < 0.2:
        path = box.file("text", rng.choice([b"", b"a", b"ab" * 10, b"\0" * 5000, rng.randbytes(5000), b"a" * 5000,
                                            "é\u202e".encode() * 600]))
        return Case("amp-train", ["--text", path, "--context", rng.choice(["1", "8", "64"]), "--depth", "1", *tiny])
    if rng.random() < 0.4:
        content = damage(rng, box.seeds.data, box.seeds.tensors["npz"])
    else:
        axes = rng.choice([(20, 3), (0, 3), (20, 0), (0,), (), (20,), (4, 3), (5, 1), (20, 2, 2), (20, 4, 4, 1),
                           (20, 0, 4, 1), (1,), (20, 1, 1, 1, 1, 1)])
        rows = axes[0] if axes else 1
        ys = rng.choice([(rows,), (rows, 1), (rows, 3), (rows, 0), (), (0,), (rows + 1,)])
        kind, y = rng.choice([("<i8", lambda i: i % 3), ("<i8", lambda i: -1), ("<i8", lambda i: 2**40),
                              ("<i8", lambda i: i * 10**6), ("<u8", lambda i: 2**64 - 1),
                              ("<f4", lambda i: 0x7fc00000), ("<f4", lambda i: 0x3f800000),
                              ("<f4", lambda i: 0x7f800000)])
        width, special = int(kind[2]), rng.choice([0, 0.2])
        numbers = b"".join((y(i) % 256**width).to_bytes(width, "little") for i in range(math.prod(ys)))
        x = npy(floats(rng, math.prod(axes), special), axes, fortran=rng.random() < 0.1)
        content = archive([member("x.npy", x), member("y.npy", npy(numbers, ys, kind))])
    return Case("amp-train", ["--model", rng.choice(["linear", "mlp", "mlp", "cnn"]), "--data",
                              box.file("data.npz", content), *tiny])


def config(rng, box):
    """--config: TOML that means nothing, or something else."""
    keys = ["model", "precision", "steps", "loss-scale", "clip", "lr", "seed", "threads", "batch", "width",
            "help", "list", "bogus", "nesterov", "autocast-off", "resume", *NAMES[:30]]
    lines = []
    for _ in range(rng.choice([0, 1, 2, 3])):
        content = rng.choice(['"gpt"', '["fp32", "amp-fp16"]', "3", "-1", "1e400", "nan", "true", '""', "[", "]", "[[",
                              '"', "'''", "{a=1}", '"\\ud800"', "1979-05-27", "[" * 10000, *map(str, INTERESTING[-4:])])
        lines.append(f"{rng.choice(keys)} {rng.choice(['=', '=', '=', ':', ''])} {content}")
    text = rng.choice(["", "[section]\n", "[[x]]\n", "# comment\n", "[train]\nsteps = 2\n"]) + "\n".join(lines)
    content = damage(rng, encode(text)) if rng.random() < 0.3 else encode(text)
    if rng.random() < 0.15:
        content = rng.choice([rng.randbytes(300), b"\0" * 100, b"a" * 3000000, b"=" * 1000, b"\xff\xfe",
                              b"steps = 2\n" * 10000])
    given = box.file("run.toml", content)
    given = rng.choice([*[given] * 9, "in", "in/none.toml", box.device("null")])
    return Case("amp-train", ["--config", given, "--model", "mlp", "--width", "4", "--steps", "1", "--batch", "2",
                              "--threads", "2", "--precision", "fp32"])


FAMILIES = {"run": run, "twice": twice, "log": log, "merge": merge, "resume": resume, "data": data, "config": config}
