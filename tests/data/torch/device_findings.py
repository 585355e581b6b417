#!/usr/bin/env python3
"""Which of ours gives the bits that device/ recorded in FOLDER, and how far off the nearest is where none does:

    PYTHONPATH=BUILD/python python3 tests/data/torch/device_findings.py FOLDER [--only ITEM,...]

It needs no device. A line a finding, on stdout.
"""
import argparse
import collections
import os
import sys

import numpy as np
import torch

import ampscope
from device import integers, scaler
from device.compare_ops import attention, elementwise, trained
from device.compare_optimizers import optimizers
from device.compare_products import products
from device.recording import Recording, recorded

HERE = os.path.dirname(os.path.abspath(__file__))


def autocast(recording):
    """Lines that differ from those recorded with fake tensors."""
    device = recording.facts["versions"]["device"]
    lines = [line.split() for line in open(os.path.join(HERE, "autocast_calls.txt")) if line.startswith(device + " ")]
    fake = {line[1]: set(line[2:]) for line in lines}
    own = "bf16" if device == "cpu" else "fp16"  # what they were recorded with
    for name, real in recording.facts.get("lines", {}).items():
        same, differ = 0, []
        for line in real:
            op, *calls = line.split()[1:]
            expected = {call.replace(own, name) for call in fake.get(op, ())}
            # A call that fails on the device, or for which fake tensors have no kernel, says nothing of types.
            there = {call.partition("=")[0]: call.partition("=")[2] for call in calls if "=" in call}
            wanted = {call.partition("=")[0]: call.partition("=")[2] for call in expected}
            for key in there:
                if there[key] == wanted.get(key):
                    same += 1
                else:
                    differ.append(f"{op} {key}: {there[key]}, fake tensors {wanted.get(key, 'no answer')}")
            if not there and wanted:
                differ.append(f"{op}: no call: {' '.join(calls)[:100]}")
        yield f"{name}: {same} calls as with fake tensors, {len(differ)} not"
        yield from (f"  {text}" for text in differ)
    for case in recording.cases:
        yield " ".join(f"{key}={value['sha'] if isinstance(value, dict) else value}" for key, value in case.items())


def _expected_scales(case):
    """Ours, of the steps of scaler.py."""
    ours = ampscope.LossScaler("torch", init_scale=1000.0, growth_factor=1.5, backoff_factor=0.7, growth_interval=4)
    scales, trackers = [], []
    for step in range(scaler.STEPS):
        ours.update(step in scaler.FOUND)
        scales.append(ours.scale)
        trackers.append(ours.growth_tracker)
    return np.float32(scales), trackers


def of_scaler(recording):
    golden = [line.strip() for line in open(os.path.join(HERE, "grad_scaler.txt"))]
    hashes = recording.facts.get("hashes", [])
    wrong = [i for i, h in enumerate(hashes) if h != golden[i]]
    yield f"{len(hashes) - len(wrong)} of {len(hashes)} sequences as ours" + (f"; not {wrong[:10]}" if wrong else "")
    groups = collections.defaultdict(list)
    for case in recording.cases:
        if case["what"] != "optimizer":
            continue
        name = f"{case['optimizer']} {case['way']}" + (", unscales" if case["unscales"] else "")
        if "error" in case:
            groups["error: " + case["error"]].append(f"{name} {case['dtype']}")
            continue
        scales, trackers = _expected_scales(case)
        good = np.array_equal(recording.values(case["scales"]), scales) and case["trackers"] == trackers
        key = f"scales and trackers {'as ours' if good else 'NOT as ours'}, steps {sorted(set(case['steps']))}"
        groups[key].append(f"{name} {case['dtype']}")
    for key, names in groups.items():
        yield f"{key}: {len(names)}: {'; '.join(names)}"
    yield from _same_weights(recording)


def _same_weights(recording):
    """Which ways to step leave the same weights."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for case in recording.cases:
        if case["what"] == "optimizer" and "error" not in case:
            groups[case["optimizer"], case["dtype"]][case["weights"]["sha"]].append(
                case["way"] + ("+unscale_" if case["unscales"] else ""))
    for (optimizer, dtype), ways in groups.items():
        yield f"{optimizer} {dtype}: same weights: " + " | ".join(", ".join(names) for names in ways.values())


def of_integers(recording):
    """Rows that give the same sums, which are INT32 and are rounded to FP32 here, as the rows' are."""
    for case in recording.cases:
        asked = f"{case['inputs']} K = {case['k']}"
        if "error" in case:
            yield f"{asked}: error: {case['error']}"
            continue
        a, b = (x.astype(np.float32) for x in integers.inputs(case["inputs"], case["k"]))
        given = recording.bits(case["out"]).view(np.int32).astype(np.float32)
        same = [row for row in ("int32", "int32-satfinite")
                if np.array_equal(ampscope.matmul(a, b.T, row, a_format="int8"), given)]
        yield f"{asked}: = {', '.join(same) or 'NONE'}"


def speed(recording):
    for case in recording.cases:
        yield ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in case.items())


SECTIONS = {"autocast": autocast, "scaler": of_scaler, "optimizers": optimizers, "matmul": products,
            "scaled_mm": products, "elementwise": elementwise, "attention": attention, "trained": trained,
            "integers": of_integers, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default=",".join(SECTIONS), metavar="ITEM,...")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for item in arguments.only.split(","):
        path = recorded(arguments.folder, item) or recorded(arguments.folder, item + ".partial")
        if not path:
            print(f"\n## {item}: not recorded", flush=True)
            continue
        recording = Recording(path)
        facts = {key: value for key, value in recording.facts.items() if key not in ("lines", "hashes", "kernels")}
        print(f"\n## {item}: {facts}", flush=True)
        for line in SECTIONS[item](recording):
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
