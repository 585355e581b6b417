#!/usr/bin/env python3
"""Records what PyTorch does on a device, to be compared with ours by ../device_findings.py:

    python3 tests/data/torch/device --device cuda --out FOLDER [--only ITEM,...] [--limit SECONDS] [--jobs N]

It needs torch, numpy and this repository. An item is a process of its own, which writes one file into FOLDER:
NAME.npz, or NAME.json if it keeps no tensors. What an item cannot do is recorded as an error's text. An item whose file
is there is skipped; one that exceeds the limit leaves NAME.partial.npz with what it had until then. Inputs follow from
rules (records.py) and are not stored. `--device cpu` rehearses everything, with smaller sizes for what takes time.
"""
import argparse
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
os.environ.setdefault("KINETO_LOG_LEVEL", "5")

import torch

from device.recording import recorded
from device.records import Recorder, TimeOver, notes_of

# Those that take longest come first; speed runs alone, after all others.
ITEMS = ["scaler", "optimizers", "matmul", "trained", "autocast", "scaled_mm", "attention", "elementwise", "integers",
         "speed"]


def record(item, device, folder):
    """In a process of its own."""
    def stop(*_):
        raise TimeOver

    signal.signal(signal.SIGTERM, stop)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    recorder = Recorder(device, folder)
    begin = time.monotonic()
    cut = None
    try:
        importlib.import_module("device." + item).record(recorder, device)
        if device == "cuda":
            torch.ones(2, device=device).sum().item()  # fails where a case has broken the device
    except TimeOver:
        cut = "time limit"
    except Exception as error:
        traceback.print_exc()
        cut = f"{type(error).__name__}: {error}"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = recorder.write(item, time.monotonic() - begin, cut)
    errors = sum("error" in case for case in recorder.cases)
    print(f"{item:12}{time.monotonic() - begin:7.1f} s {os.path.getsize(path):10,} bytes {len(recorder.cases):6} cases"
          f"{errors:5} errors" + (f"  CUT: {cut}" if cut else ""), flush=True)
    sys.stderr.flush()
    os._exit(0)  # without the device's own clearing up, which may take long


def run(items, device, folder, limit, jobs):
    """Every item in a process forked from this one, which has imported torch but not touched the device. One that dies
    begins again a few times if it left notes of where it was. Returns those that were out of time."""
    fork = multiprocessing.get_context("fork")
    waiting, running, stopped, deaths = list(items), {}, set(), dict.fromkeys(items, 0)
    while waiting or running:
        alone = "speed" in running or (waiting[:1] == ["speed"] and running)
        if waiting and len(running) < jobs and not alone:
            item = waiting.pop(0)
            process = fork.Process(target=record, args=(item, device, folder))
            process.start()
            running[item] = process, time.monotonic()
            continue
        time.sleep(0.05)
        for item, (process, begin) in list(running.items()):
            seconds = time.monotonic() - begin
            if not process.is_alive():
                process.join()
                del running[item]
                if process.exitcode:
                    print(f"{item:12}{seconds:7.1f} s  DIED: exit status {process.exitcode}", flush=True)
                    deaths[item] += 1
                    if item not in stopped and deaths[item] < 12 and os.path.exists(notes_of(folder, item)):
                        waiting.insert(0, item)
            elif seconds > limit + 10:
                process.kill()
            elif seconds > limit and item not in stopped:
                stopped.add(item)
                process.terminate()
    return stopped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--only", default=",".join(ITEMS), metavar="ITEM,...", help=", ".join(ITEMS))
    parser.add_argument("--limit", type=float, default=90, help="seconds for an item (90)")
    parser.add_argument("--jobs", type=int, default=4, help="items at a time (4)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # waits for the items, which timeout stops, too
    asked = arguments.only.split(",")
    if unknown := [item for item in asked if item not in ITEMS]:
        parser.error(f"no item {', '.join(unknown)}; there are {', '.join(ITEMS)}")
    os.makedirs(arguments.out, exist_ok=True)
    begin = time.monotonic()
    left = [item for item in ITEMS if item in asked and not recorded(arguments.out, item)]
    for item in ITEMS:
        if item in asked and item not in left:
            print(f"{item:12} is there")
    sys.stdout.flush()
    stopped = run(left, arguments.device, arguments.out, arguments.limit, arguments.jobs)
    missing = [item for item in asked if not recorded(arguments.out, item)]
    print(f"{time.monotonic() - begin:.1f} s" + (f"; not recorded: {', '.join(missing)}" if missing else ""))
    return 124 if stopped.intersection(missing) else 1 if missing else 0  # 124: as timeout(1) says it


if __name__ == "__main__":
    sys.exit(main())
