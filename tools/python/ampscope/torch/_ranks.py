"""Several ranks' recordings as one."""
import contextlib
import filecmp
import json
import math
import pathlib
import shutil
import warnings

import numpy as np

from .. import _ampscope
from ._folder import (ACTIVATION, ACTIVATION_GRADIENT, GRADIENTS, LAYOUT, SCHEMA, STATE, WEIGHT, WEIGHT_GRADIENT,
                      Folder)

_VERSION_1 = {WEIGHT: WEIGHT_GRADIENT, ACTIVATION: ACTIVATION_GRADIENT}  # what gradients were called


def merge_ranks(path):
    """Makes of path/rank_0, path/rank_1 ... the run folder `path`, exactly: histograms of activations and of their
    gradients, which differ by rank, are added up; weights and their gradients, which data parallelism has made the same
    on every rank, are counted once, or added up where ranks hold parts. Losses are averaged. Tensors of weights, of
    their gradients and of the optimizer's state are copied where they are the same on every rank, and joined where each
    rank holds the rows that follow those of the rank before (fully_shard), so that every tool can answer from the
    merged run; others stay in the folders of the ranks. A tensor that a rank lacks counts for nothing there. Steps that
    a rank lacks, because it died for instance, are left out with a RuntimeWarning, which is in result.json, too. Raises
    FileNotFoundError without ranks, ValueError where ranks contradict each other."""
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
    shards = runs[0]["ranks"].get("shards", {})
    replicated = promised or not shards and _are_replicated(metrics, histograms, common)
    steps = [_merged_step([m[step] for m in metrics], replicated) for step in common]
    tensors = [_merged_histogram([h[key] for h in histograms if key in h], replicated, path)
               for key in sorted(set().union(*histograms)) if key[0] in set(common)]
    results = [_ampscope.read_json(str(f / LAYOUT.result)) if (f / LAYOUT.result).exists() else None for f in folders]
    ranks = {"merged": expected, "weights": "all-reduced" if replicated else "own"}
    with contextlib.closing(Folder(path, 0)) as merged:  # only now: ranks that contradict each other leave nothing
        merged.write(LAYOUT.configuration, {**runs[0], **SCHEMA, "ranks": ranks})
        for line in steps:
            merged.append_metrics(line)
        for line in tensors:
            merged.append_histogram(**line)
        kept = _Tensors(folders, replicated, shards, runs[0]["schema_version"])
        for step in common:
            kept.write(merged, step)
        merged.write(LAYOUT.result, _merged_result(path, steps, results, _what_is_missing(metrics, common, results)))


def _what_is_missing(metrics, common, results):
    """A sentence on ranks that lack steps of others, or did not end; empty if none does."""
    left_out = sorted(set().union(*metrics) - set(common))
    lacking = []
    for rank, steps in enumerate(metrics):
        lacked = [step for step in left_out if step not in steps]
        if lacked:
            ends = f"ends at step {max(steps)}" if steps else "holds no step"
            at_end = not steps or lacked[0] > max(steps)
            lacking.append(f"the recording of rank {rank} {ends if at_end else f'lacks step {lacked[0]}'}")
    said = [f"{', '.join(lacking)}: steps that not all ranks have are left out ({len(left_out)}, the first is "
            f"{left_out[0]})"] if lacking else []
    dead = [str(rank) for rank, result in enumerate(results) if result is None]
    return "; ".join(said + ([f"rank{'s' if len(dead) > 1 else ''} {', '.join(dead)} did not end"] if dead else []))


def _merged_result(path, steps, results, missing):
    said = [warning for result in results if result for warning in result["warnings"]]
    if missing:
        warnings.warn(f"{path}: {missing}", RuntimeWarning, stacklevel=3)
    return {"steps": len(steps), "skipped": sum(line["skipped"] for line in steps),
            "scale": steps[-1]["scale"] if steps else 1.0,
            "stopped": next((result["stopped"] for result in results if result and result["stopped"]), ""),
            "warnings": list(dict.fromkeys(said + ([missing] if missing else [])))}


class _Tensors:
    """The tensors of weights, of their gradients and of the optimizer's state in the folders of all ranks."""
    _torch_names = {name: torch for name, _, _, torch, _ in _ampscope.dtypes}

    def __init__(self, folders, replicated, shards, version):
        """shards: names of weights that are divided by rows, and their whole shapes."""
        self._folders, self._replicated, self._shards, self._version = folders, replicated, shards, version

    def write(self, merged, step):
        """Those of a step into the merged run. State is of use only as a whole."""
        file = _ampscope.step_file(step)
        gradients = [folder / LAYOUT.gradients / file for folder in self._folders[:1 if self._replicated else None]]
        if (self._replicated or self._shards) and all(path.exists() for path in gradients):
            stated, kinds, tensors = self._read(gradients)
            kept = {name: tensor for name, tensor in tensors.items() if tensor}
            merged.write_gradients(step, kept, {name: kinds[name] for name in kept}, float(stated["loss_scale"]))
        states = [folder / LAYOUT.state / file for folder in self._folders]
        if not all(path.exists() for path in states):
            return
        if all(filecmp.cmp(path, states[0], shallow=False) for path in states):
            merged.path.joinpath(LAYOUT.state).mkdir(exist_ok=True)
            shutil.copyfile(states[0], merged.path / LAYOUT.state / file)
        elif self._shards:
            _, kinds, tensors = self._read(states)
            if all(tensors.values()):
                merged.write_state(step, tensors, kinds)

    def _read(self, paths):
        """What the first of the files states, and of its tensors that are no activations their kinds and contents;
        None for one that cannot be had of the files."""
        files = [_ampscope.read_tensors(str(path)) for path in paths]
        stated = files[0][0]
        kinds = {name: _VERSION_1[kind] if self._version == 1 else kind
                 for name, kind in json.loads(stated.get("kinds", "{}")).items()}
        kinds = {name: kind for name, kind in kinds.items() if kind in (WEIGHT, WEIGHT_GRADIENT, STATE)}
        parts = [{name: (self._torch_names[dtype], list(shape), data) for name, dtype, _, shape, data in tensors}
                 for _, tensors in files]
        return stated, kinds, {name: self._whole(name, kind, [part.get(name) for part in parts])
                               for name, kind in kinds.items()}

    def _whole(self, name, kind, parts):
        if None in parts:
            return None
        dtype, shape, data = parts[0]
        weight = name.removesuffix(".grad") if kind == WEIGHT_GRADIENT else name[:-2] if kind == STATE else name
        if weight not in self._shards:
            return parts[0] if all(np.array_equal(data, other) for _, _, other in parts) else None
        rows = sum(shape[0] for _, shape, _ in parts)
        joined = dtype, [rows, *shape[1:]], np.concatenate([data for _, _, data in parts])
        return joined if joined[1] == self._shards[weight] else None


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
