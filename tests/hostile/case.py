"""A case: a folder of inputs, a command line, limits, and what must hold afterwards. How it is run."""
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import resource
import select
import shlex
import shutil
import signal
import stat
import subprocess
import time

MIB = 1 << 20
MOST_SAID = 32 * MIB  # that is kept of a stream
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "tty": (5, 0)}


@dataclasses.dataclass
class Case:
    """One run of a tool. All paths are relative to the scratch folder, which is the working directory."""
    tool: str
    args: list
    codes: tuple = (0, 1, 2)         # exit codes that may be; 3 is added where a gate was asked for
    damaged: tuple = ()              # files that are broken for sure: each must be named by a line of its own
    stdin: bytes = b""
    streams: dict = dataclasses.field(default_factory=dict)  # stdin, stdout, stderr -> closed, full or broken
    environment: dict = dataclasses.field(default_factory=dict)
    threads: int = 2
    memory: int = 1024               # MiB of address space, without what threads reserve
    resident: int = 700              # MiB that may be in use at once
    seconds: float = 10
    endless: bool = False            # there is so much to read that only the memory matters
    files: int = 0                   # limits of the process: open files, and bytes of a file; 0: the usual ones
    file_bytes: int = 0
    ignored: tuple = ()              # signals that the tool inherits as ignored
    signals: tuple = ()              # signals that it may end by
    kept: tuple = ()                 # folders outside in/ that a run with an error must leave as they were
    expected: pathlib.Path = None    # a folder: where the exit code is 0, what is below work/runs is what is below it
    same_as: "Case" = None           # a second run, whose exit code and outputs must be these, byte for byte
    note: str = ""


@dataclasses.dataclass
class Outcome:
    code: int = 0
    signal: int = 0
    late: bool = False
    out: bytes = b""
    err: bytes = b""
    seconds: float = 0
    resident: float = 0              # MiB


class Box:
    """The scratch folder of a case: in/ for inputs, out/ for outputs, tmp/ for what tools keep for themselves."""

    def __init__(self, path, tools, seeds):
        self.path, self.tools, self.seeds = pathlib.Path(path), pathlib.Path(tools), seeds
        self.clear()

    def clear(self):
        if self.path.exists():
            shutil.rmtree(self.path)
        for folder in ("in", "out", "tmp"):
            (self.path / folder).mkdir(parents=True)

    def file(self, name, data):
        """Writes in/NAME and returns that path as a command line takes it."""
        path = self.path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape"))
        return f"in/{name}"

    def folder(self, seed, name, at="in"):
        """A copy of a folder that was made at the start."""
        shutil.copytree(seed, self.path / at / name, symlinks=True)
        return f"{at}/{name}"

    def device(self, name):
        """A device of the case's own: a tool that renames a file onto it replaces this one, and not the machine's."""
        path = self.path / "dev" / name
        if path.exists():
            return f"dev/{name}"
        path.parent.mkdir(exist_ok=True)
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*DEVICES[name]))
        except PermissionError:  # who may not make devices may not replace them either; root in a container gets none
            path.symlink_to(f"/dev/{name}" if os.geteuid() else "nowhere")
        return f"dev/{name}"

    def run(self, case):
        return execute(case, self.tools / case.tool, case.args, self.path)


def limits(case):
    """What a child does to itself before it becomes the tool."""
    def apply():
        space = (case.memory + 144 * case.threads) * MIB  # a thread reserves 8 MiB of stack and up to 128 for its arena
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.file_bytes or 1024 * MIB,) * 2)
        if case.files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (case.files, case.files))
        for number in case.ignored:
            signal.signal(number, signal.SIG_IGN)
        for stream, how in case.streams.items():
            number = ("stdin", "stdout", "stderr").index(stream)
            if how == "closed":
                os.close(number)
            elif how == "full":
                os.dup2(os.open("/dev/full", os.O_WRONLY), number)
            else:
                reading, writing = os.pipe()
                os.close(reading)
                os.dup2(writing, number)
                os.close(writing)
    return apply


def start(case, program, args, folder, out, err):
    """The running tool, in a session of its own; its input is in a file, so that nothing waits for anything."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "tmp"), "TMPDIR": str(folder / "tmp"),
                   "LC_ALL": "C.UTF-8", **case.environment}
    given = folder / "tmp/.stdin"
    given.write_bytes(case.stdin)
    with open(given, "rb") as source:
        given.unlink()
        return subprocess.Popen([os.fsencode(a) for a in (str(program), *args)], cwd=folder, env=environment,
                                stdin=source, stdout=out, stderr=err, preexec_fn=limits(case), start_new_session=True)


class Sink:
    """Where a stream of the tool goes: a file, which takes any length, or a pipe, which no limit on files cuts off."""

    def __init__(self, case, path):
        if case.file_bytes:
            self.source, self.target = os.pipe()
            fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, MIB)
        else:
            self.target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self.source = os.open(path, os.O_RDONLY)

    def read(self):
        """What the tool said, once it has ended."""
        os.close(self.target)
        with open(self.source, "rb") as file:
            return file.read(MOST_SAID)


def execute(case, program, args, folder):
    """Runs the tool to its end, or kills it when its time is over."""
    out, err = (Sink(case, folder.with_suffix(suffix)) for suffix in (".out", ".err"))
    begin = time.monotonic()
    child = start(case, program, args, folder, out.target, err.target)
    late = not wait(child.pid, case.seconds)
    if late:
        os.killpg(child.pid, signal.SIGKILL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(max(child.returncode, 0), max(-child.returncode, 0), late, out.read(), err.read(),
                   time.monotonic() - begin, usage.ru_maxrss / 1024)


def wait(pid, seconds):
    """Whether the process ends within this time."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def snapshot(folder):
    """What is in a folder: path -> kind, mode, size, time of change, content (of large files its two ends)."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        info = path.lstat()
        content = ""
        if stat.S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                data = file.read(MIB)
                if info.st_size > MIB:
                    file.seek(-MIB if info.st_size > 64 * MIB else MIB,
                              os.SEEK_END if info.st_size > 64 * MIB else os.SEEK_SET)
                    data += file.read(64 * MIB)
            content = hashlib.blake2b(data, digest_size=16).hexdigest()
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        size = info.st_size if not stat.S_ISDIR(info.st_mode) else 0
        found[os.fsencode(path.relative_to(folder))] = (stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode), size,
                                                         info.st_mtime_ns, content)
    return found


def command_text(case, tools, folder):
    """A shell script that runs the case again in the folder that it lies in."""
    words = " ".join(shlex.quote(os.fsencode(a).decode("utf-8", "replace")) for a in case.args)
    redirect = {"stdin": "<", "stdout": ">", "stderr": "2>"}
    tail = "".join(f" {redirect[s]}{'&-' if how == 'closed' else '/dev/full'}" for s, how in case.streams.items())
    lines = ["#!/bin/bash", f"# {case.note}", 'cd "$(dirname "$0")"',
             f"ulimit -v {(case.memory + 144 * case.threads) * 1024} -c 0"]
    lines += [f"ulimit -n {case.files}"] if case.files else []
    lines += [f"ulimit -f {max(1, case.file_bytes // 1024)}"] if case.file_bytes else []
    lines += [f"trap '' {number}" for number in case.ignored]
    lines += [f"export {k}={shlex.quote(v)}" for k, v in case.environment.items()]
    program = shlex.quote(str(tools / case.tool))
    lines.append(f"timeout {case.seconds:g} {program} {words}{tail or ' <stdin'}; echo exit code $?")
    (folder / "stdin").write_bytes(case.stdin)
    return "\n".join(lines) + "\n"


def describe(case):
    return json.dumps(dataclasses.asdict(case), default=repr, indent=1)
