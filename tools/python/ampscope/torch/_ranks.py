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
from ._shards import Held, agreed, copies_differ, naming

_VERSION_1 = {WEIGHT: WEIGHT_GRADIENT, ACTIVATION: ACTIVATION_GRADIENT}  # what gradients were called


def merge_ranks(path):
    """Makes of path/rank_0, path/rank_1 ... the run folder `path`, exactly. Histograms of activations and of their
    gradients, which differ by rank, are added up; losses are averaged. Weights, their gradients and the optimizer's
    state are counted once where ranks hold copies, as data parallelism makes them; where each holds a part (DTensors,
    as fully_shard and tensor parallelism make them), the parts are joined to the tensor of the network: the histogram
    is that of the whole tensor, and every tool can answer from the merged run. The norm of all gradients is the root of
    the ranks' sums of squares, in FP64, those of copies once.

    Weights that are parts of an unknown place (FullyShardedDataParallel) are added up in the histograms, but stay in
    the folders of the ranks as tensors. Gradients that a rank has not added up with those of others (Partial), and
    parts that are no box, are left out; so are steps that a rank lacks, because it died for instance. A RuntimeWarning
    says so, which is in result.json, too. Another tensor that a rank lacks counts for nothing there.

    Raises FileNotFoundError without ranks, ValueError where ranks contradict each other or do not hold all of a
    tensor."""
    path = pathlib.Path(path)
    folders, runs = _ranks_of(path)
    metrics = [_metrics(f) for f in folders]
    histograms = [_histograms(f) for f in folders]
    with naming(path):
        _check_that_they_are_one(runs, metrics)
        common = sorted(set.intersection(*(set(m) for m in metrics)))
        held = Held(runs)
        promised = runs[0]["ranks"]["weights"] == "all-reduced"
        replicated = promised or _are_replicated(metrics, histograms, common, held)
        counts = held.counts()
        for rank, groups in enumerate(counts):
            groups[0] = rank == 0 or not replicated  # of tensors that run.json says nothing of
        steps = [_merged_step([m[step] for m in metrics], counts) for step in common]
        lines = {key: {rank: h[key] for rank, h in enumerate(histograms) if key in h}
                 for key in sorted(set().union(*histograms)) if key[0] in set(common)}
        tensors = [_merged_histogram(of_ranks, held, replicated) for of_ranks in lines.values()]
    results = [_ampscope.read_json(str(f / LAYOUT.result)) if (f / LAYOUT.result).exists() else None for f in folders]
    said = [_what_is_missing(metrics, common, results), held.what_is_unknown(counts),
            "" if replicated else _what_is_apart(lines, held)]
    ranks = {"merged": len(folders), "weights": "all-reduced" if replicated and not held else "own"}
    with naming(path), contextlib.closing(Folder(path, 0)) as merged:
        merged.write(LAYOUT.configuration, {**runs[0], **SCHEMA, "ranks": ranks})
        for line in steps:
            merged.append_metrics(line)
        for line in filter(None, tensors):
            merged.append_histogram(**line)
        kept = _Tensors(folders, replicated, held, runs[0]["schema_version"])
        try:
            for step in common:
                kept.write(merged, step)
        except ValueError:  # ranks that contradict each other leave nothing
            merged.remove()
            raise
        merged.write(LAYOUT.result, _merged_result(path, steps, results, "; ".join(filter(None, said))))


def _ranks_of(path):
    """The folders of all ranks of a run, and what their run.json say."""
    folders = {int(p.name[5:]): p for p in path.glob("rank_*") if p.name[5:].isdecimal()}
    if not folders:
        raise FileNotFoundError(f"{path}: holds no folders rank_0, rank_1 ...")
    runs = {rank: _ampscope.read_json(str(folders[rank] / LAYOUT.configuration)) for rank in sorted(folders)}
    for rank, run in runs.items():
        said = run.get("ranks", {}).get("rank", "none")
        if said != rank:
            raise ValueError(f"{folders[rank]}: run.json is of rank {said}, not of rank {rank}")
    with naming(path):
        of = agreed(runs, lambda run: run["ranks"]["of"], "recordings of different runs: the number of ranks is")
    if list(runs) != list(range(of)):
        missing = [rank for rank in range(of) if rank not in runs]
        raise ValueError(f"{path}: holds {len(runs)} ranks of {of}" +
                         (f": rank_{missing[0]} is missing" if missing else ""))
    return [folders[rank] for rank in runs], list(runs.values())


def _check_that_they_are_one(runs, metrics):
    """Raises ValueError where ranks' recordings are of different runs, as far as run.json tells."""
    settings = [_settings(run, bool(lines)) for run, lines in zip(runs, metrics)]
    for place in sorted(set().union(*settings)):
        known = {rank: found[place] for rank, found in enumerate(settings) if place in found}
        agreed(known, lambda setting: setting, f"recordings of different runs: {place} in run.json is")


def _settings(run, has_steps):
    """What is the same on all ranks. Pipeline stages have other parameters, and so others in groups of the optimizer;
    the precision is known once a step has ended."""
    found = {key: run.get(key) for key in ("schema_version", "tool", "version", "torch")}
    found |= {f"{part}/{key}": setting for part in ("model", "optimizer", "recording")
              for key, setting in run.get(part, {}).items() if key not in ("parameters", "groups")}
    return found | ({"precision/name": run.get("precision", {}).get("name")} if has_steps else {})


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


def _what_is_apart(lines, held):
    """A sentence on parts of which run.json does not say where they are; empty if there are none."""
    apart = [tensor for (_, kind, tensor), of_ranks in lines.items()
             if kind in (WEIGHT, WEIGHT_GRADIENT) and len(of_ranks) > 1 and not held.knows(tensor, kind)]
    return ("tensors of which ranks hold different parts, and run.json does not say which, are added up in the "
            f"histograms, and stay in the folders of the ranks ({len(set(apart))}, the first is {apart[0]})"
            ) if apart else ""


class _Tensors:
    """The tensors of weights, of their gradients and of the optimizer's state in the folders of all ranks."""
    _torch_names = {name: torch for name, _, _, torch, _ in _ampscope.dtypes}

    def __init__(self, folders, replicated, held, version):
        self._folders, self._replicated, self._held, self._version = folders, replicated, held, version

    def write(self, merged, step):
        """Those of a step into the merged run. State is of use only as a whole."""
        file, alike = _ampscope.step_file(step), self._replicated and not self._held
        gradients = [folder / LAYOUT.gradients / file for folder in self._folders[:1 if alike else None]]
        if (self._replicated or self._held) and all(path.exists() for path in gradients):
            stated, kinds, tensors = self._read(gradients, step)
            kept = {name: tensor for name, tensor in tensors.items() if tensor}
            merged.write_gradients(step, kept, {name: kinds[name] for name in kept}, float(stated["loss_scale"]))
        states = [folder / LAYOUT.state / file for folder in self._folders]
        if not all(path.exists() for path in states):
            return
        if all(filecmp.cmp(path, states[0], shallow=False) for path in states) and not self._held:
            merged.path.joinpath(LAYOUT.state).mkdir(exist_ok=True)
            shutil.copyfile(states[0], merged.path / LAYOUT.state / file)
        elif self._held:
            _, kinds, tensors = self._read(states, step)
            if all(tensors.values()):
                merged.write_state(step, tensors, kinds)

    def _read(self, paths, step):
        """What the first of the files states, and of the tensors that are no activations their kinds and contents; None
        for one that cannot be had of the files."""
        files = [_ampscope.read_tensors(str(path)) for path in paths]
        kinds = {name: _VERSION_1[kind] if self._version == 1 else kind
                 for stated, _ in files for name, kind in json.loads(stated.get("kinds", "{}")).items()}
        kinds = {name: kind for name, kind in kinds.items() if kind in (WEIGHT, WEIGHT_GRADIENT, STATE)}
        parts = [{name: (self._torch_names[dtype], list(shape), data) for name, dtype, _, shape, data in tensors}
                 for _, tensors in files]
        return files[0][0], kinds, {name: self._joined(step, name, kind, [part.get(name) for part in parts])
                                    for name, kind in kinds.items()}

    def _joined(self, step, name, kind, parts):
        if not self._held.knows(name, kind):
            same = None not in parts and all(np.array_equal(parts[0][2], data) for _, _, data in parts)
            return parts[0] if same else None
        parts = {rank: part for rank, part in enumerate(parts) if part is not None}
        with naming(f"step {step}, {name}"):
            whole = self._held.whole(name, kind, parts)
            return None if whole.unknown else whole.join(parts)


def _are_replicated(metrics, histograms, steps, held):
    """Whether gradients of weights are the same on every rank, though no wrapper of the model promised it: reduced by
    hand, or by a framework that hides the wrapper. Parts that ranks hold differ. Those of which run.json says where
    they are do not tell."""
    def known(m, h):
        weights = {key: line["histogram"] for key, line in h.items()
                   if key[0] in steps and key[1] == WEIGHT_GRADIENT and not held.knows(key[2], key[1])}
        norms = [m[step].get("grad_norms", {}).get("0") if held else m[step]["grad_norm"] for step in steps]
        return norms, weights

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


def _merged_step(lines, counts):
    """counts: of each rank by group of tensors, whether their norm counts; see Held.counts()."""
    for what in ("scale", "lr"):
        if len({line.get(what) for line in lines}) > 1:
            called = {"scale": "loss scale", "lr": "learning rate"}[what]
            raise ValueError(f"step {lines[0]['step']}: ranks differ in their {called}")
    losses = [line["loss"] for line in lines]
    known = not any(None in groups.values() for groups in counts)
    largest = [kind for kind in GRADIENTS if known or kind != WEIGHT_GRADIENT]
    merged = {**lines[0], "found_inf": any(line["found_inf"] for line in lines),
              "skipped": any(line["skipped"] for line in lines),
              "grad_norm": _merged_norm(lines, counts) if known else None,
              "amax": {kind: max(line["amax"][kind] for line in lines if kind in line["amax"])
                       for kind in largest if any(kind in line["amax"] for line in lines)}}
    merged.pop("grad_norms", None)
    if None in losses:
        first = next(line for line in lines if line["loss"] is None)
        merged |= {"loss": None} | ({"loss_class": first["loss_class"]} if "loss_class" in first else {})
    else:
        merged["loss"] = math.fsum(losses) / len(losses)
    return merged


def _merged_norm(lines, counts):
    """The norm of all gradients, each element once; None where one is not finite."""
    norms = []
    for line, groups in zip(lines, counts):
        if "grad_norms" in line:
            norms += [norm for group, norm in line["grad_norms"].items() if groups.get(int(group), True)]
        elif any(groups.values()):
            norms.append(line["grad_norm"])
    return None if None in norms else math.hypot(*norms)


def _merged_histogram(lines, held, replicated):
    """lines: by rank. None where the whole cannot be had of them."""
    first = lines[min(lines)]
    kind, tensor = first["kind"], first["tensor"]
    owners = {rank: rank for rank in lines}
    with naming(f"step {first['step']}, {tensor}"):
        if any(line["loss_scale"] != first["loss_scale"] for line in lines.values()):
            raise ValueError("ranks differ in their loss scale")
        if kind in (WEIGHT, WEIGHT_GRADIENT) and held.knows(tensor, kind):
            whole = held.whole(tensor, kind, lines)
            if whole.unknown:
                return None
            owners = whole.first
        elif kind in (WEIGHT, WEIGHT_GRADIENT) and replicated:
            owners = dict.fromkeys(lines, min(lines))
        for rank, owner in owners.items():
            if lines[rank]["histogram"] != lines[owner]["histogram"]:
                raise ValueError(copies_differ(owner, rank))
    parts = [lines[rank]["histogram"] for rank in sorted(set(owners.values()) or {min(lines)})]
    return {**first, "histogram": sum(parts[1:], start=parts[0])}
