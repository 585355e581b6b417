#!/usr/bin/env python3
"""Which of ours gives the bits that device/ recorded in FOLDER, and how far off the nearest is where none does:

    PYTHONPATH=BUILD/python python3 tests/data/torch/device_findings.py FOLDER [--only ITEM,...]

It needs no device. A line a finding, on stdout.
"""
import argparse
import collections
import itertools
import os
import sys

import numpy as np
import torch

import ampscope
from device import scaler
from device.compare_ops import attention, elementwise, trained
from device.compare_optimizers import optimizers
from device.products import finished, search
from device.recording import Recording, recorded
from device.rules import near, product_inputs, scaled_inputs, scales_of

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


def _matmul_variants(case):
    """Operands as the device may read them, with the kind of rows to try: name, kind, a, b, formats."""
    a, b, _ = product_inputs(case["m"], case["n"], case["k"], case["dtype"], case.get("spread", 0))
    if case["dtype"] != "fp32":
        yield "", case["dtype"], a, b, (case["dtype"],) * 2
        return
    if case["setting"] != "highest":
        yield "cut to TF32, ", "tf32", a, b, ("fp32", "fp32")
        for rounding in ("nearest_even", "nearest_away"):
            yield (f"{rounding} to TF32, ", "tf32",
                   *(ampscope.quantize(x, "tf32", rounding=rounding) for x in (a, b)), ("tf32", "tf32"))
    yield "", "fp32", a, b, ("fp32", "fp32")


def _finishes(case):
    """What a library may do to sums before they are stored: name, function."""
    if "bias" not in case["op"]:
        return [("", finished)]
    bias = product_inputs(case["m"], case["n"], case["k"], case["dtype"])[2]

    def once(x, out, rows, columns):
        return finished(x + bias[columns], out)

    def twice(x, out, rows, columns):
        return finished(near(x, out) + bias[columns], out)

    return [(", bias added in FP32", once), (", rounded, then bias added", twice)]


def products(recording):
    known = {}

    def name_of(case):
        return f"{case['op']}, {case['setting']}" + (f", {case['library']}" if "library" in case else "")

    def text_of(case):
        said = case["out"]
        key = case["dtype"], case["m"], case["n"], case["k"], said["type"], said["sha"], "bias" in case["op"]
        if key not in known:
            known[key] = _product(recording, case)
        return known[key]

    return _grouped(recording, lambda case: f"{case['dtype']} {case['m']}x{case['n']} K = {case['k']}" +
                    (f" spread {case['spread']}" if "spread" in case else ""), name_of, text_of)


def _product(recording, case):
    said, misses = case["out"], []
    given = recording.bits(said)
    for variant, kind, a, b, formats in _matmul_variants(case):
        for end, finish in _finishes(case):
            found, how = search(given, a, b, formats, kind, said["type"], rows=said.get("rows"),
                                columns=said.get("columns"), sha=said["sha"], finish=finish)
            if found:
                return f"= {variant}{found}{end} ({how})"
            misses.append(f"{variant}{how}{end}")
    return "NONE: " + " / ".join(misses)


def _scaled_finishes(case):
    """Scales applied in the orders that a kernel may have."""
    scale_a, scale_b = scales_of(case["scales"], case["m"], case["n"])

    def of(order):
        def finish(x, out, rows, columns):
            a, b = (s if s.size == 1 else s[part] for s, part in ((scale_a, rows), (scale_b, columns)))
            return finished(order(x, a, b.T), out)
        return finish

    if case["scales"] == "one":
        return [("", finished)]
    return [(", " + name, of(order)) for name, order in (
        ("times (scale a times scale b)", lambda x, a, b: x * (a * b)),
        ("times scale a, times scale b", lambda x, a, b: x * a * b),
        ("times scale b, times scale a", lambda x, a, b: x * b * a),
        ("times both, rounded once", lambda x, a, b: (x.astype(np.float64) * a * b).astype(np.float32)))]


def scaled_products(recording):
    def text_of(case):
        said, misses = case["out"], []
        a, b = scaled_inputs(case["m"], case["n"], case["k"], case["a"], case["b"])
        for end, finish in _scaled_finishes(case):
            found, how = search(recording.bits(said), a, b, (case["a"], case["b"]), "fp8", said["type"],
                                rows=said.get("rows"), columns=said.get("columns"), sha=said["sha"], finish=finish)
            if found:
                return f"= {found}{end} ({how})"
            misses.append(how + end)
        return f"NONE: {misses[0]}"

    return _grouped(recording, lambda case: f"{case['a']} x {case['b']} {case['m']}x{case['n']} K = {case['k']}",
                    lambda case: f"{'fast' if case['fast'] else 'not fast'}, scales {case['scales']}", text_of)


def _grouped(recording, subject_of, name_of, text_of):
    """A line for all cases of a subject of which the same is found, with the kernels that ran; errors at the end."""
    kernels, errors = recording.facts.get("kernels", []), collections.defaultdict(list)
    for subject, cases in itertools.groupby(recording.cases, subject_of):
        groups = collections.defaultdict(list)
        for case in cases:
            if "error" in case:
                errors[case["error"]].append(f"{subject} {name_of(case)}")
                continue
            ran = " + ".join(dict.fromkeys(kernels[i][:110] for i in case.get("kernels", [])))
            groups[f"{case['out']['type']} {text_of(case)}"].append(name_of(case) + (f" [{ran}]" if ran else ""))
        for text, names in groups.items():
            yield f"{subject}: {text}: {'; '.join(dict.fromkeys(names))}"
    for error, names in errors.items():
        yield f"error: {error}: {len(names)} cases, {names[0]} the first"


def speed(recording):
    for case in recording.cases:
        yield ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in case.items())


SECTIONS = {"autocast": autocast, "scaler": of_scaler, "optimizers": optimizers, "matmul": products,
            "scaled_mm": scaled_products, "elementwise": elementwise, "attention": attention, "trained": trained,
            "speed": speed}


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
