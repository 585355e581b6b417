"""Families of command lines, outputs, streams, surroundings and threads. Options are those that --help lists, so that a
new one is tried from the day on which it is there."""
import dataclasses
import functools
import os
import re
import signal
import subprocess

import judge
from case import DEVICES, Case
from mutate import NAMES, NUMBERS
from tensors import reading

TINY = ["--model", "mlp", "--width", "4", "--steps", "3", "--batch", "4", "--precision", "fp32,amp-fp16"]
WRITERS = {"--json", "--csv", "--svg", "--html", "--markdown", "--record", "--keep", "--output"}
CHEAP = {"--threads", "--worst", "--seed", "--margin", "--growth-interval", "--hysteresis", "--warmup",
         "--record-every",
         "--checkpoint-every", "--statistics-every", "--block", "--init-scale", "--step"}
WORDS = ["fp16@2^10.underflow<1%", "fp16.overflow<=0", "fp16@1e999.nan<1", "max-ulps<=1", "norm<nan",
         "torch,init=2^99999", "torch,init=nan",
         "none", "constant,init=0", "torch,interval=0", "torch,growth=1,backoff=1", "deepspeed,min=2,max=1",
         "-1000000:1000000", "0:1e9",
         "5:3", "(a+)+$", "(" * 2000, "[a-", "\\", "(?=x)", "a{1000000}", "fp32,weights=e4m3,weights=e5m2", "fp32,,",
         ",", "e8m23", "e1m1",
         "e2m1:channel", "fp8-delayed,scaling-history=99999999999", "all", "fp16,fp16", "fp99", "host:999", "host",
         "layer", "step", "-", "--",
         "out/x", "in", "x" * 100000, "A" * 1000000]


@dataclasses.dataclass
class Option:
    name: str
    kind: str        # TEXT, INT, UINT, FLOAT, or "" for a flag
    rest: str        # range, choices, default


@functools.cache
def options_of(tools, words):
    """What `TOOL [SUBCOMMAND] --help` lists."""
    text = subprocess.run([tools / words[0], *words[1:], "--help"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL).stdout
    found = re.findall(r"^  (?:-\w,)?(--[\w-]+)(?: (TEXT|INT|UINT|FLOAT)(:in \[[^]]*\]|:\{[^}]*\}|\S*))?", text, re.M)
    if not found:
        raise SystemExit(f"hostile: {' '.join(words)} --help lists no options")
    if "--threads" in text and not any(re.search(r"\[\S+ - \S+\]", rest) for _, _, rest in found):
        raise SystemExit(f"hostile: {' '.join(words)} --help shows no limits of numbers")
    return [Option(*o) for o in found]


def bases(rng, box):
    """Command lines that work: (subcommand words, arguments, standard input)."""
    runs = lambda: box.folder(box.seeds.runs, "runs")
    one = lambda: box.folder(box.seeds.runs / "amp-fp16", "run")
    file = lambda: box.file("g.safetensors", box.seeds.gradients)
    log = lambda: box.file("log.csv", box.seeds.logs["csv"])
    report = lambda name: box.file(name, box.seeds.reports[0][1])
    return rng.choice([
        lambda: (["amp-format"], rng.choice([[], ["0.1"], ["e4m3", "--values"], ["--json"],
                                             ["--format", "fp16", "--", "-inf"]]), b""),
        lambda: (["amp-format", "convert"], [file(), "out/o.safetensors", "--to", "e4m3"], b""),
        lambda: (["amp-format", "eval"], ["f16_mulAdd"], b"3C00 3C00 0001\n" * 50),
        lambda: (["amp-histogram"], [file(), "--json", "out/o.json"], b""),
        lambda: (["amp-histogram"], [one(), "--csv", "out/o.csv", "--svg", "out/o.svg", "--html", "out/o.html"], b""),
        lambda: (["amp-histogram"], ["--merge", report("a.json"), report("b.json"), "--json", "out/o.json"], b""),
        lambda: (["amp-train"], [*TINY, "--json", "out/o.json"], b""),
        lambda: (["amp-train"], [*TINY, "--record", "out/runs", "--record-every", "1", "--checkpoint-every", "2",
                                 "--record-state", *rng.choice([[], ["--json", "out/o.json"]])], b""),
        lambda: (["amp-train"], ["--evaluate", one(), "--weights-as", "e4m3"], b""),
        lambda: (["amp-train"], [rng.choice(["--list", "--explain", "--memory"]), "--depth", "1", "--width", "8",
                                 "--heads", "2"], b""),
        lambda: (["amp-train"], ["--model", "mlp", "--data", box.file("data.npz", box.seeds.data), *TINY[2:]], b""),
        lambda: (["amp-crosscheck", "vectors"], ["exact", box.file("v.npz", box.seeds.vectors)], b""),
        lambda: (["amp-crosscheck", "devices"], [], b""),
        lambda: (["amp-crosscheck", "run"], ["--device", "host", "--quick", "--only", "accumulators", "--output",
                                             "out/reports"], b""),
        lambda: (["amp-loss-scale"], [one(), "--sweep", "--json", "out/o.json", "--svg", "out/o.svg"], b""),
        lambda: (["amp-loss-scale"], [log(), "--scaler", "torch"], b""),
        lambda: (["amp-diff"], [one(), box.folder(box.seeds.runs / "fp32", "other"), "--json", "out/o.json", "--svg",
                                "out/o.svg"], b""),
        lambda: (["amp-adam"], [one(), "--json", "out/o.json", "--svg", "out/o.svg"], b""),
        lambda: (["amp-report"], [runs(), "--html", "out/o.html", "--json", "out/o.json", "--markdown", "out/o.md"],
                 b""),
    ])()


def threaded(words, options):
    return ["--threads", "2"] if any(o.name == "--threads" for o in options) else []


def base(rng, box, **fields):
    """A base as a case, and the options of its tool."""
    box.clear()
    words, args, stdin = bases(rng, box)
    options = options_of(box.tools, tuple(words))
    return Case(words[0], [*words[1:], *args, *threaded(words, options)], stdin=stdin, **fields), options


def nonsense(rng, box, option):
    """A value that the option does not expect; one that it does only where that costs nothing."""
    if option.name in WRITERS:
        if rng.random() < 0.2:
            return box.device(rng.choice(["null", "full"]))
        inputs = [] if option.name in judge.FOLDERS else ["in", "in/new/x"]  # into a folder more may be written
        return rng.choice(["", ".", "out", "out/new", "out/none/x.json", *inputs,
                           "out/" + rng.choice(NAMES).replace("/", "_")])
    choices = re.match(r":\{([^}]*)\}", option.rest)
    pool = rng.choice([NUMBERS, NUMBERS, NAMES, WORDS, re.split(r",\s*", choices.group(1)) if choices else NUMBERS])
    text = rng.choice(pool)
    limits = re.search(r"\[(\S+) - (\S+)\]", option.rest)
    if limits and rng.random() < 0.3:
        low, high = (float(x) for x in limits.groups())
        text = rng.choice([f"{low - 1:.0f}", f"{low:g}", f"{high + 1:.0f}",
                           f"{high:.0f}" if option.name in CHEAP else f"{high + 2:.0f}"])
    if option.kind in ("INT", "UINT") and option.name not in CHEAP:
        try:
            if 8 < int(float(text)) <= (float(limits.group(2)) if limits else 0):
                text = "-1"  # what is allowed may take hours
        except (ValueError, OverflowError):
            pass
    return text


def command(rng, box):
    """A command line that works, and one to three options with values that make no sense, twice, or without any."""
    case, options = base(rng, box, memory=1536)
    for _ in range(rng.choice([1, 1, 2, 3])):
        option = rng.choice(options)
        if option.name in ("--device", "--only") and rng.random() < 0.8:
            continue
        text = nonsense(rng, box, option)
        kind = rng.random()
        if not option.kind:
            added = [option.name] * rng.choice([1, 2]) if kind < 0.8 else [f"{option.name}={text}"]
        elif kind < 0.4:
            added = [option.name, text]
        elif kind < 0.8:
            added = [f"{option.name}={text}"]
        elif kind < 0.85 and option.name not in WRITERS:
            added = [option.name]
        elif kind < 0.9:
            added = [option.name, text, option.name, text]
        elif kind < 0.95:
            added = [rng.choice(["--bogus", "-Z", "--", "-", "--help", "--version", "--json", option.name[:-2],
                                 option.name.upper(), "--=", "---"])]
        else:
            added = [rng.choice([*NAMES, *NUMBERS, *WORDS])]
        at = len(case.args) if case.tool == "amp-crosscheck" else rng.choice([0, len(case.args)])
        case.args[at:at] = added
    case.args = [a.replace("\0", "")[:100000] for a in case.args]
    numbers = [int(a) for a in re.findall(r"--threads[ =](\d{1,4})\b", " ".join(case.args))]
    case.threads = min(4096, max([2, *numbers]))
    case.seconds = 20
    return case


def outputs(rng, box):
    """Outputs in places that do not take them, or that hold something already; the same file for two of them."""
    paths = []
    while not paths:
        case, _ = base(rng, box)
        paths = [i for i, a in enumerate(case.args) if a.startswith("out/")]
    at = rng.choice(paths)
    name = case.args[at]
    inputs = [a for a in case.args if a.startswith("in/")]
    one_file = "." in name  # else a folder, which is made where it can be
    kind = rng.randrange(11)
    if kind == 0:
        case.args[at], case.codes = "out/none/" + name[4:], (1,) if one_file else (0, 1)
    elif kind == 1:
        (box.path / name).mkdir()
        case.codes = (1, 2) if one_file else (0, 1)
    elif kind == 2 and one_file and case.tool != "amp-format":
        case.args[at], case.codes = box.device("full"), (1,)
    elif kind == 3 and inputs and (box.path / inputs[0]).is_file():
        case.args[at], case.codes = rng.choice([inputs[0], f"./{inputs[0]}", f"in/../{inputs[0]}"]), (1, 2)
    elif kind == 4:
        (box.path / name).write_bytes(b"old")
        case.kept = ("out",)
    elif kind == 5:
        (box.path / name).symlink_to("nowhere" if rng.random() < 0.5 else name[4:])
    elif kind == 6 and len(paths) > 1:
        case.args = [name if a.startswith("out/") else a for a in case.args]
        case.codes = (2,)
    elif kind == 7 and one_file:
        case.args[at] = "out/" + rng.choice(NAMES).replace("/", "_").replace("\0", "") + name[name.rindex("."):]
    elif kind == 8 and one_file:
        case.args[at], case.codes = name + "/", (1, 2)
    elif kind == 9 and len(paths) > 1 and one_file:  # the same file by a link to what is not there yet
        case.args[at], case.codes = "out/link", (2,)
        (box.path / "out/link").symlink_to(case.args[next(i for i in paths if i != at)][4:])
    elif kind == 10 and one_file and "--record" in case.args:
        record = case.args[case.args.index("--record") + 1]
        case.args[at] = f"{record}/fp32/" + rng.choice(["run.json", "metrics.jsonl", "result.json", "x.safetensors"])
        case.codes = (2,)
    return case


def streams(rng, box):
    """Standard streams that are closed, full or broken, and limits on files. What cannot be said on standard error
    changes neither the exit code nor the outputs; what cannot be printed is exit code 1."""
    case, _ = base(rng, box)
    if rng.random() < 0.15:
        case.args, case.stdin = rng.choice([["--help"], ["--version"],
                                            ["--list"] if case.tool == "amp-train" else ["--help"]]), b""
    prints = case.tool != "amp-report" or "--html" not in case.args  # which prints only what it does not write
    usual = dataclasses.replace(case)
    kind = rng.randrange(9)
    if kind <= 1:
        case.streams, case.codes = {"stdout": "full"}, (1,) if prints else (0, 1)
    elif kind == 2:
        case.streams, case.codes = {"stdout": "closed"}, (0, 1)
    elif kind == 3:
        case.streams = {"stdout": "broken"}
        case.ignored, case.signals = rng.choice([((signal.SIGPIPE,), ()), ((), (signal.SIGPIPE,))])
        case.codes = (1,) if prints else (0, 1)
    elif kind <= 5:
        how = rng.choice(["closed", "full", "broken"])
        if rng.random() < 0.6:  # something to say
            usual.args = case.args = rng.choice([[*case.args, "--bogus"], ["in/none"], case.args])
        case.streams, case.same_as = {"stderr": how}, usual
        case.ignored = (signal.SIGPIPE,) if rng.random() < 0.5 else ()
    elif kind == 6:
        case.streams = {"stdin": "closed"}
    elif kind == 7:
        case.files = rng.choice([4, 5, 6, 8, 12])
    else:
        case.file_bytes = rng.choice([1, 100, 1000, 5000])
    return case


def surroundings(rng, box):
    """Locales, terminals and folders that a user may have: the same bytes."""
    case, _ = base(rng, box)
    case.same_as = dataclasses.replace(case)
    case.environment = rng.choice([{"LC_ALL": "C"}, {"LC_ALL": "de_DE.UTF-8"}, {"LC_ALL": "tr_TR.UTF-8"},
                                   {"LC_ALL": "xx"}, {"LC_ALL": ""},
                                   {"LC_NUMERIC": "de_DE.UTF-8",
                                    "LC_ALL": ""}, {"COLUMNS": "0"}, {"COLUMNS": "-1"}, {"COLUMNS": "1" * 50},
                                   {"TERM": "x" * 5000}, {"HOME": "/nowhere"}, {"NO_COLOR": "1"}, {"PATH": ""},
                                   {"CLICOLOR_FORCE": "x"},
                                   {"OMP_NUM_THREADS": "0"}, {"MALLOC_PERTURB_": "165"}, {"TZ": ":/dev/zero"}])
    return case


def threads(rng, box):
    """The same bytes from any number of threads, far more than there are cores or pieces of work."""
    count = rng.choice([0, 3, 7, 10, 16, 17, 63, 64, 65, 128, 200, 1000, 4096])
    for _ in range(20):
        if rng.random() < 0.3:
            suffix = rng.choice(["safetensors", "npy", "npz", "pt"])
            box.clear()
            case = reading(rng, box, box.file(f"t.{suffix}", rng.choice(box.seeds.tensors[suffix])))
        else:
            case, _ = base(rng, box)
        if "--threads" in case.args:
            break
    at = case.args.index("--threads") + 1
    case.codes = (0, 1, 2, 3)
    case.same_as = dataclasses.replace(case, args=[*case.args[:at], "1", *case.args[at + 1:]])
    case.args[at] = str(count)
    case.threads, case.seconds = max(count, os.cpu_count()), 20
    return case


def odd_target(rng, box):
    """What a link may point to that is no file: a device, or a file of the kernel."""
    device = box.path.resolve() / box.device(rng.choice(list(DEVICES)))
    return rng.choice([device, device, "/proc/self/mem", "/proc/self/environ", "/proc/kmsg", "/dev/stdin"])


def special(rng, box):
    """Pipes, devices, folders and links where a file is expected."""
    suffix = rng.choice(["safetensors", "npy", "npz", "pt", "json", "csv", "jsonl", "bin", "toml", "txt"])
    path = box.path / f"in/t.{suffix}"
    kind = rng.randrange(7)
    given = f"in/t.{suffix}"
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(odd_target(rng, box))
    elif kind == 2:
        path.symlink_to("nowhere")
    elif kind == 3:
        path.symlink_to(path.name)
    elif kind == 4:
        path.mkdir()
    elif kind == 5:
        path.write_bytes(b"")
    else:
        given = rng.choice([box.device("zero"), box.device("null"), "/dev/stdin", "in/none", "", "in",
                            "in/t/" * 1000, "x" * 300])
    good = box.file("good.safetensors", box.seeds.small)
    case = rng.choice([
        lambda: reading(rng, box, given, good),
        lambda: reading(rng, box, given, good, extra=(good,)),
        lambda: reading(rng, box, given, good, raw=["--dtype", "f32"]),
        lambda: Case("amp-histogram", ["--merge", given, "--threads", "2"]),
        lambda: Case("amp-train", [*TINY, "--data", given, "--threads", "2"]),
        lambda: Case("amp-train", ["--text", given, "--threads", "2", "--steps", "1", "--width", "8", "--heads", "2",
                                   "--depth", "1"]),
        lambda: Case("amp-train", ["--config", given, *TINY, "--threads", "2"]),
        lambda: Case("amp-train", ["--evaluate", given, "--weights-as", "e4m3", "--threads", "2"]),
        lambda: Case("amp-crosscheck", ["vectors", "exact", given]),
    ])()
    if (kind in (2, 3) or kind == 5 and suffix != "txt") and "--config" not in case.args and "--dtype" not in case.args:
        case.codes = (1, 2) if case.tool == "amp-train" else (1,)
    return case


FAMILIES = {"command": command, "outputs": outputs, "streams": streams, "surroundings": surroundings,
            "threads": threads, "special": special}
