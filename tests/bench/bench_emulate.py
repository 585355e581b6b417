"""What emulation costs: a training step of a GPT emulated, as a multiple of PyTorch's own FP32 step, in turns.

    python tests/bench/bench_emulate.py [--width N] [--tokens N] [--batch N] [--rounds N] [--profile PRECISION]
                                        [--memory] [--fail-beyond FACTOR] [PRECISION...]

The products that it times are first compared with ampscope.matmul. --profile prints where the time of one goes, and
--memory what the process took at most, likewise as a multiple. With --fail-beyond, a multiple beyond its aim by more
than that factor is an error.
"""
import argparse
import contextlib
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402
from networks import GPT  # noqa: E402

AUTOCAST = dict.fromkeys(("fp32", "amp-fp16", "amp-bf16", "master-bf16"), 1.3)
RECIPES = dict.fromkeys(("fp8-current", "fp8-delayed", "mxfp8"), 2.5)
LIMITS = {**AUTOCAST, "tf32": None, **RECIPES, "fp8-current,accumulate=hopper-wgmma-fp8": {256: 7, 1024: 5.5}}


def check(precision, accumulator, form):
    """Products of the sizes that are timed, against the function whose elements are proved."""
    a, b = (torch.randn(64, 64).to(getattr(torch, form)) for _ in range(2))
    model = torch.nn.Linear(64, 64, bias=False).to(a.dtype)
    model.weight.data = b
    with ampscope.torch.emulate(model, precision):
        out = model(a).detach()
    wanted = ampscope.matmul(a.float().numpy(), b.float().numpy().T, accumulator, a_format=a.dtype)
    assert torch.equal(out, torch.from_numpy(wanted).to(a.dtype)), precision


def step(model, optimizer, tokens):
    begin = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    return time.perf_counter() - begin


def measure(model, optimizer, tokens, precision, rounds):
    """Seconds of a step, by round: PyTorch's own, and emulated. Of two steps after a first one, the faster counts: the
    other waited for something else."""
    plain, emulated = [], []

    def fastest():
        step(model, optimizer, tokens)
        return min(step(model, optimizer, tokens) for _ in range(2))

    for _ in range(rounds):
        plain.append(fastest())
        with ampscope.torch.emulate(model, precision) as machine:
            emulated.append(fastest())
        assert machine.coverage().share == 1
    return plain, emulated


def profile(model, optimizer, tokens, precision):
    with ampscope.torch.emulate(model, precision):
        step(model, optimizer, tokens)
        with torch.profiler.profile() as found:
            step(model, optimizer, tokens)
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=16))


def peak(arguments, precision):
    """MiB that a process takes at most that does two steps; precision: "": PyTorch's own."""
    options = [f"--{name}={getattr(arguments, name)}" for name in ("width", "tokens", "batch", "threads")]
    command = [sys.executable, __file__, *options, "--two-steps", precision]
    return int(subprocess.run(command, check=True, capture_output=True).stdout) / 1024


def two_steps(model, optimizer, tokens, precision):
    with ampscope.torch.emulate(model, precision) if precision else contextlib.nullcontext():
        for _ in range(2):
            step(model, optimizer, tokens)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", nargs="*", default=list(LIMITS))
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=128, help="of each sequence")
    parser.add_argument("--batch", type=int, default=4, help="sequences in a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", metavar="PRECISION")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--fail-beyond", type=float, default=float("inf"), metavar="FACTOR")
    parser.add_argument("--two-steps", metavar="PRECISION", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = GPT(vocabulary=1024, width=arguments.width, depth=4, heads=arguments.width // 64, context=arguments.tokens)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    tokens = torch.randint(0, 1024, (arguments.batch, arguments.tokens + 1))
    if arguments.two_steps is not None:
        return two_steps(model, optimizer, tokens, arguments.two_steps)
    if arguments.profile:
        return profile(model, optimizer, tokens, arguments.profile)
    found = memory(arguments) if arguments.memory else speed(arguments, model, optimizer, tokens)
    return any([ratio > aim * arguments.fail_beyond for ratio, aim in found])


def memory(arguments):
    """Prints the multiples, and yields them with their aims."""
    plain = peak(arguments, "")
    for precision in arguments.precision:
        ratio = peak(arguments, precision) / plain
        print(f"{precision}: {ratio:.2f} of PyTorch's memory, {plain:.0f} MiB; aim 1.5", flush=True)
        yield ratio, 1.5


def speed(arguments, model, optimizer, tokens):
    """Prints the multiples, and yields those that have an aim with it."""
    check("fp32", "fp32", "float32")
    check("fp32", "fp32", "bfloat16")
    check("fp32,accumulate=hopper-wgmma-fp16", "hopper-wgmma-fp16", "float16")
    for precision in arguments.precision:
        plain, emulated = measure(model, optimizer, tokens, precision, arguments.rounds)
        ratios = sorted(e / p for e, p in zip(emulated, plain))
        aim = LIMITS.get(precision)
        aim = aim.get(arguments.width) if isinstance(aim, dict) else aim
        print(f"{precision}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) of PyTorch's step, "
              f"{min(plain) * 1e3:.0f} ms in FP32{f'; aim {aim}' if aim else ''}", flush=True)
        if aim:
            yield statistics.median(ratios), aim


if __name__ == "__main__":
    sys.exit(main())
