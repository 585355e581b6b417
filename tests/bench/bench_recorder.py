"""What the recorder costs: a step of amp-train's GPT in torch with it and without, in turns.

    python tests/bench/bench_recorder.py [--batch N] [--rounds N]
"""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import ampscope.torch  # noqa: E402
from networks import GPT  # noqa: E402

EVERY = 100


def step(model, optimizer, tokens):
    begin = time.perf_counter()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin


def measure(batch, rounds, **options):
    """Seconds of EVERY steps, by round, without the recorder and with it."""
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens = torch.randint(0, 96, (EVERY, batch, 65))
    without, recorded = [], []
    for t in tokens[:20]:
        step(model, optimizer, t)
    for _ in range(rounds):
        without.append(sum(step(model, optimizer, t) for t in tokens))
        with tempfile.TemporaryDirectory() as folder:
            with ampscope.torch.record(folder, model, optimizer, every=EVERY, **options):
                recorded.append(sum(step(model, optimizer, t) for t in tokens))
            lines = pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()
            assert len(lines) == EVERY and (options.get("store") == "histograms" or pathlib.Path(
                folder, "gradients/step_000000.safetensors").exists())
    return without, recorded


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="sequences of 64 tokens in a step (default 64, "
                                                              "amp-train's)")
    parser.add_argument("--rounds", type=int, default=10, help=f"of {EVERY} steps with the recorder and as many "
                                                               "without")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    everything = {"activations": True, "what": "both", "weights": True}
    for options in ({"activations": True}, {"activations": True, "store": "histograms"}, {}, everything,
                    {**everything, "store": "histograms"}):
        without, recorded = measure(arguments.batch, arguments.rounds, **options)
        share = statistics.median(b / a for a, b in zip(without, recorded)) - 1
        print(f"{1e3 * statistics.median(without) / EVERY:6.2f} ms a step, every={EVERY} "
              f"{', '.join(f'{k}={v}' for k, v in options.items()) or 'weight gradients alone'}: {100 * share:+.1f} %")


if __name__ == "__main__":
    main()
