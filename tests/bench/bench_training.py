"""A training step of amp-train beside PyTorch's own FP32 step of the same network, in turns.

    python tests/bench/bench_training.py [--build FOLDER] [--rounds N] [--threads N] [--width N ...] [--memory]
                                         [PRECISION...]

Prints PyTorch's time over ours: above 1, amp-train is faster, emulation included. Both are whole steps, from the data
to the optimizer (AdamW). First, the networks must have as many weights, but for biases of keys. Both are means of a
second of steps; ours is the difference between a long run and a short one, so that neither start nor end of a program
counts. --memory prints instead how much memory each takes at most beyond what it takes before the network is made: ours
as a share of PyTorch's.
"""
import argparse
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from networks import GPT  # noqa: E402

VOCABULARY = 72  # characters of the embedded text


class CNN(nn.Module):
    """amp-train's cnn of depth 2, on images of 8 x 8."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.head(F.max_pool2d(F.relu(self.second(x)), 2).flatten(1))


def gpt(width):
    batch, context = (64, 64) if width < 128 else (8, 128)
    model = GPT(VOCABULARY, width, 2, width // 32, context)
    tokens = torch.randint(0, VOCABULARY, (batch, context + 1))

    def loss():
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    options = ["--text", "alice", "--activation", "gelu_tanh", "--heads", width // 32, "--context", context]
    return model, loss, ["--model", "gpt", "--width", width, "--batch", batch, *options]


def cnn(width):
    model = CNN(width)
    x, y = torch.randn(64, 1, 8, 8), torch.randint(0, 10, (64,))
    options = ["--model", "cnn", "--width", width, "--batch", 64, "--depth", 2]
    return model, lambda: F.cross_entropy(model(x), y), options


def torch_seconds(model, loss, steps):
    """Of a step: the mean, after two others."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(steps + 2):
        if step == 2:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return (time.perf_counter() - begin) / steps


def run(arguments, options, precision, *more):
    command = [arguments.build / "bin" / "amp-train", *options, "--precision", precision, "--statistics-every", 1000000,
               "--threads", arguments.threads, *more]
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def our_seconds(arguments, options, precision, steps):
    def whole(count):
        begin = time.perf_counter()
        run(arguments, options, precision, "--steps", count)
        return time.perf_counter() - begin

    return (whole(steps + 2) - whole(2)) / steps


def check(arguments, model, options):
    count = sum(p.numel() for p in model.parameters())
    ours = int(re.search(r"([0-9,]+) parameters", run(arguments, options, "fp32", "--memory"))[1].replace(",", ""))
    assert abs(ours - count) < 0.01 * count, f"amp-train has {ours} weights, PyTorch {count}"  # its keys have no bias


# What starts a program counts until then as its own memory, so that this process, which has PyTorch's, may not.
PEAK_OF = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3)"""


def our_peak(arguments, options, precision):
    """MB that amp-train takes at most in three steps, beyond what it takes to print its version."""
    def whole(*more):
        command = [sys.executable, "-IS", "-c", PEAK_OF, arguments.build / "bin" / "amp-train", *more]
        return float(subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout)

    quiet = ["--statistics-every", 1000000, "--threads", arguments.threads, "--steps", 3]
    return whole(*options, "--precision", precision, *quiet) - whole("--version")


def torch_peak(arguments, name):
    """The same of PyTorch, beyond what it takes once it is imported, in a process of its own."""
    command = [sys.executable, __file__, "--threads", str(arguments.threads), "--three-steps", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def three_steps(name):
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

    idle = peak()
    model, loss, _ = cnn(16) if name == "cnn" else gpt(int(name))
    torch_seconds(model, loss, 3)
    print(peak() - idle)


def memory(arguments):
    for name in [*map(str, arguments.width), "cnn"]:
        model, _, options = cnn(16) if name == "cnn" else gpt(int(name))
        check(arguments, model, options)
        theirs = torch_peak(arguments, name)
        for precision in arguments.precision:
            ours = our_peak(arguments, options, precision)
            print(f"{name}, {precision}: {ours / theirs:.2f} of PyTorch's memory, {theirs:.0f} MB in FP32", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", nargs="*", default=["fp32", "amp-fp16", "amp-bf16", "fp8-current", "mxfp8"])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/bench"))
    parser.add_argument("--width", type=int, nargs="*", default=[64, 128, 256, 512], help="of the gpt; the cnn has 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--three-steps", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.three_steps:
        return three_steps(arguments.three_steps)
    if arguments.memory:
        return memory(arguments)
    for name, (model, loss, options) in [*((f"gpt of width {w}", gpt(w)) for w in arguments.width), ("cnn", cnn(16))]:
        check(arguments, model, options)
        steps = max(4, int(1 / torch_seconds(model, loss, 4)))  # a second of steps
        for precision in arguments.precision:
            ratios, best = [], float("inf")
            for _ in range(arguments.rounds):
                theirs = torch_seconds(model, loss, steps)
                ratios.append(theirs / our_seconds(arguments, options, precision, steps))
                best = min(best, theirs)
            print(f"{name}, {precision}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of "
                  f"PyTorch's speed, {best * 1e3:.1f} ms a step in FP32", flush=True)


if __name__ == "__main__":
    sys.exit(main())
