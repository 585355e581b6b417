"""Several ranks' recordings as one."""
import contextlib
import filecmp
import json
import math
import pathlib
import shutil

from .. import _ampscope
from ._folder import ACTIVATION, ACTIVATION_GRADIENT, GRADIENTS, LAYOUT, SCHEMA, WEIGHT, WEIGHT_GRADIENT, Folder

_VERSION_1 = {WEIGHT: WEIGHT_GRADIENT, ACTIVATION: ACTIVATION_GRADIENT}  # what gradients were called


def merge_ranks(path):
    """Makes of path/rank_0, path/rank_1 ... the run folder `path`, exactly: histograms of activations and of their
    gradients, which differ by rank, are added up; weights and their gradients, which data parallelism has made the same
    on every rank, are counted once, or added up where ranks hold parts. Losses are averaged. Tensors that are the same
    on every rank, weights, their gradients and the optimizer's state, are copied, so that every tool can answer from
    the merged run; others stay in the folders of the ranks. Steps that a rank lacks are left out; a tensor that it
    lacks counts for nothing there. Raises FileNotFoundError without ranks, ValueError where ranks contradict each
    other."""
    path = pathlib.Path(path)
    folders = sorted(path.glob("rank_*"), key=lambda p: int(p.name.removeprefix("rank_")))
    if not folders:
        raise FileNotFoundError(f"{path}: holds no folders rank_0, rank_1 ...")
    runs = [_ampscope.read_json(str(f / LAYOUT.configuration)) for f in folders]
    expected = runs[0]["ranks"]["of"]
    if len(folders) != expected:
        raise ValueError(f"{path}: holds {len(folders)} ranks of {expected}")
    metrics = [_metrics(f) for f in folders]
    histograms = [_histograms(f) for f in folders]
    common = sorted(set.intersection(*(set(m) for m in metrics)))
    promised = runs[0]["ranks"]["weights"] == "all-reduced"
    replicated = promised or _are_replicated(metrics, histograms, common)
    steps = [_merged_step([m[step] for m in metrics], replicated) for step in common]
    tensors = [_merged_histogram([h[key] for h in histograms if key in h], replicated, path)
               for key in sorted(set().union(*histograms)) if key[0] in set(common)]
    results = [_ampscope.read_json(str(f / LAYOUT.result)) for f in folders if (f / LAYOUT.result).exists()]
    ranks = {"merged": expected, "weights": "all-reduced" if replicated else "own"}
    with contextlib.closing(Folder(path, 0)) as merged:  # only now: ranks that contradict each other leave nothing
        merged.write(LAYOUT.configuration, {**runs[0], **SCHEMA, "ranks": ranks})
        for line in steps:
            merged.append_metrics(line)
        for line in tensors:
            merged.append_histogram(**line)
        if replicated:
            _keep_tensors(merged, folders, common, runs[0]["schema_version"])
        if len(results) == expected:
            warnings = list(dict.fromkeys(w for r in results for w in r["warnings"]))
            stopped = next((r["stopped"] for r in results if r["stopped"]), "")
            merged.write(LAYOUT.result, {**results[0], **SCHEMA, "stopped": stopped, "warnings": warnings})


def _keep_tensors(merged, folders, steps, version):
    """Copies what data parallelism has made the same on every rank from the first of them: weights and their gradients,
    and the state of the optimizer unless each rank has a part of that."""
    torch_names = {name: torch for name, _, _, torch, _ in _ampscope.dtypes}
    for step in steps:
        file = _ampscope.step_file(step)
        gradients = folders[0] / LAYOUT.gradients / file
        if gradients.exists():
            stated, tensors = _ampscope.read_tensors(str(gradients))
            kinds = json.loads(stated.get("kinds", "{}"))
            if version == 1:
                kinds = {name: _VERSION_1[kind] for name, kind in kinds.items()}
            kept = {name: (torch_names[dtype], shape, data) for name, dtype, _, shape, data in tensors
                    if kinds.get(name) in (WEIGHT, WEIGHT_GRADIENT)}
            merged.write_gradients(step, kept, {name: kinds[name] for name in kept}, float(stated["loss_scale"]))
        states = [folder / LAYOUT.state / file for folder in folders]
        if all(state.exists() and filecmp.cmp(state, states[0], shallow=False) for state in states):
            merged.path.joinpath(LAYOUT.state).mkdir(exist_ok=True)
            shutil.copyfile(states[0], merged.path / LAYOUT.state / file)


def _are_replicated(metrics, histograms, steps):
    """Whether gradients of weights are the same on every rank, though no wrapper of the model promised it: reduced by
    hand, or by a framework that hides the wrapper. Parts that ranks hold differ."""
    def known(m, h):
        weights = {key: line["histogram"] for key, line in h.items() if key[0] in steps and key[1] == WEIGHT_GRADIENT}
        return [m[step]["grad_norm"] for step in steps], weights

    first = known(metrics[0], histograms[0])
    return bool(steps) and all(known(m, h) == first for m, h in zip(metrics[1:], histograms[1:]))


def _metrics(folder):
    def named(amax):
        return {_VERSION_1.get(kind, kind): largest for kind, largest in amax.items()}

    return {line["step"]: {**line, "amax": named(line["amax"])}
            for line in _ampscope.read_json_lines(str(folder / LAYOUT.metrics))}


def _histograms(folder):
    lines, warnings = _ampscope.read_histogram_log(str(folder / LAYOUT.histograms))
    if warnings:
        raise ValueError(warnings[0])
    return {(line["step"], line["kind"], line["tensor"]): line for line in lines}


def _merged_step(lines, replicated):
    if len({line["scale"] for line in lines}) > 1:
        raise ValueError(f"step {lines[0]['step']}: ranks differ in their loss scale")
    losses = [line["loss"] for line in lines]
    norms = [line["grad_norm"] for line in lines]
    merged = {**lines[0], "found_inf": any(line["found_inf"] for line in lines),
              "skipped": any(line["skipped"] for line in lines),
              "amax": {kind: max(line["amax"][kind] for line in lines if kind in line["amax"])
                       for kind in GRADIENTS if any(kind in line["amax"] for line in lines)}}
    if None in losses:
        first = next(line for line in lines if line["loss"] is None)
        merged |= {"loss": None} | ({"loss_class": first["loss_class"]} if "loss_class" in first else {})
    else:
        merged["loss"] = math.fsum(losses) / len(losses)
    if not replicated:
        merged["grad_norm"] = None if None in norms else math.hypot(*norms)
    return merged


def _merged_histogram(lines, replicated, path):
    first = lines[0]
    if any(line["loss_scale"] != first["loss_scale"] for line in lines):
        raise ValueError(f"{path}: step {first['step']}, {first['tensor']}: ranks differ in their loss scale")
    if replicated and first["kind"] in (WEIGHT, WEIGHT_GRADIENT):
        if any(line["histogram"] != first["histogram"] for line in lines):
            raise ValueError(f"{path}: step {first['step']}, {first['tensor']}: ranks differ after all-reduce")
        return first
    return {**first, "histogram": sum((line["histogram"] for line in lines[1:]), start=first["histogram"])}
