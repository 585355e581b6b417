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
    the folders of the ranks as tensors, as do those of a pipeline's stages that are not parallel by themselves.
    Gradients that a rank has not added up with those of others (Partial), and parts that are no box, are left out; so
    are steps that a rank lacks, because it died for instance. Of a step of which a rank lacks the file of gradients,
    these are merged only as histograms; state that a rank lacks, or has another of (ZeroRedundancyOptimizer), is left
    out. A RuntimeWarning says each of these, which is in result.json, too. Another tensor that a rank lacks counts for
    nothing there.

    Raises FileNotFoundError without ranks, ValueError where ranks contradict each other (copies of weights and of their
    gradients have the same bytes) or do not hold all of a tensor. A merge that fails leaves nothing."""
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
    apart = "" if replicated else _what_is_apart(lines, held)
    ranks = {"merged": len(folders), "weights": "all-reduced" if replicated and not held else "own"}
    kept = _Tensors(folders, replicated, held, runs[0]["schema_version"])
    with naming(path), contextlib.closing(Folder(path, 0)) as merged:
        try:
            merged.write(LAYOUT.configuration, {**runs[0], **SCHEMA, "ranks": ranks})
            for line in steps:
                merged.append_metrics(line)
            for line in filter(None, tensors):
                merged.append_histogram(**line)
            for step in common:
                kept.write(merged, step)
            said = "; ".join(filter(None, [_what_is_missing(metrics, common, results), held.what_is_unknown(counts),
                                           apart, *kept.what_is_left_out(apart)]))
            if said:
                warnings.warn(f"{path}: {said}", RuntimeWarning, stacklevel=2)
            merged.write(LAYOUT.result, _merged_result(steps, results, said))
        except BaseException:  # half a run would pass for a whole one, and stand in the way of the next try
            merged.remove()
            raise


def _ranks_of(path):
    """The folders of all ranks of a run, and what their run.json say."""
    folders = {int(p.name[5:]): p for p in path.glob("rank_*") if p.name[5:].isdecimal()}
    if not folders:
        raise FileNotFoundError(f"{path}: holds no folders rank_0, rank_1 ...")
    runs = {rank: _ampscope.read_json(str(folders[rank] / LAYOUT.configuration)) for rank in sorted(folders)}
    for rank, run in runs.items():
        facts = run["ranks"] if isinstance(run.get("ranks"), dict) else {}
        if facts.get("rank") != rank:
            raise ValueError(f"{folders[rank]}: run.json is of rank {facts.get('rank', 'none')}, not of rank {rank}")
        for key, kind in (("of", int), ("weights", str)):
            if type(facts.get(key)) is not kind:
                raise ValueError(f"{folders[rank]}: run.json has no ranks/{key}")
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


def _merged_result(steps, results, missing):
    said = [warning for result in results if result for warning in result["warnings"]]
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
        self._left_out = {LAYOUT.gradients: {}, LAYOUT.state: {}}  # of steps why

    def write(self, merged, step):
        """Those of a step into the merged run. State is of use only as a whole."""
        gradients = self._files(LAYOUT.gradients, step)
        if gradients and (self._replicated or self._held):
            stated, kinds, parts = self._read(gradients, step)
            tensors = {name: self._gradient(step, name, kinds[name], of_ranks) for name, of_ranks in parts.items()}
            kept = {name: tensor for name, tensor in tensors.items() if tensor}
            merged.write_gradients(step, kept, {name: kinds[name] for name in kept}, float(stated["loss_scale"]))
        elif gradients:
            self._left_out[LAYOUT.gradients][step] = "run.json does not say which parts of tensors the ranks hold"
        states = self._files(LAYOUT.state, step)
        other = next((rank for rank, path in enumerate(states) if not filecmp.cmp(path, states[0], shallow=False)), 0)
        if states and self._held:
            _, kinds, parts = self._read(states, step)
            tensors = {name: self._state(step, name, kinds[name], of_ranks) for name, of_ranks in parts.items()}
            if all(tensors.values()):
                merged.write_state(step, tensors, {name: kinds[name] for name in tensors})
        elif other:
            self._left_out[LAYOUT.state][step] = f"rank {other} has another than rank 0"
        elif states:
            merged.path.joinpath(LAYOUT.state).mkdir(exist_ok=True)
            shutil.copyfile(states[0], merged.path / LAYOUT.state / states[0].name)

    def what_is_left_out(self, apart):
        """Sentences on steps whose gradients or state are not in the merged run. apart: what is said already of parts
        that are not joined."""
        for folder, said in ((LAYOUT.gradients, "gradients of some steps are merged only as histograms"),
                             (LAYOUT.state, "the state of some steps is left out")):
            steps = self._left_out[folder]
            if steps and not (apart and folder == LAYOUT.gradients and not self._held):
                yield f"{said} ({len(steps)}, the first is step {min(steps)}: {steps[min(steps)]})"

    def _files(self, folder, step):
        """Those of all ranks; none where one lacks it. A step in which no rank has one was not to be recorded."""
        files = [path / folder / _ampscope.step_file(step) for path in self._folders]
        lacking = [rank for rank, file in enumerate(files) if not file.exists()]
        if lacking and len(lacking) < len(files):
            self._left_out[folder][step] = f"rank {lacking[0]} lacks {'them' if folder == LAYOUT.gradients else 'it'}"
        return [] if lacking else files

    def _read(self, paths, step):
        """What the first of the files states, and of the tensors that are no activations their kinds and, by rank,
        (type, shape, bytes). Copies of what an earlier rank has are that rank's object."""
        stated, kinds, parts = {}, {}, {}
        for rank, path in enumerate(paths):
            stated[rank], tensors = _ampscope.read_tensors(str(path))
            named = {name: _VERSION_1.get(kind, kind) if self._version == 1 else kind
                     for name, kind in json.loads(stated[rank].get("kinds", "{}")).items()}
            kinds |= {name: kind for name, kind in named.items() if kind in (WEIGHT, WEIGHT_GRADIENT, STATE)}
            for name, dtype, _, shape, data in tensors:
                if name not in kinds:
                    continue
                part, of_ranks = (self._torch_names[dtype], list(shape), data), parts.setdefault(name, {})
                first = next(iter(of_ranks.values()), None)
                copies = first and not self._held.knows(name, kinds[name]) and _are_copies(first, part)
                of_ranks[rank] = first if copies else part
        with naming(f"step {step}"):
            agreed(stated, lambda said: said.get("loss_scale"), "the loss scale of gradients is")
        return stated[0], kinds, parts

    def _gradient(self, step, name, kind, parts):
        """None where it is known to be no whole, or not known to be one; what is said of both is said already."""
        if self._held.knows(name, kind):
            return self._joined(step, name, kind, parts)
        first, other = _first_that_differs(parts)
        if self._replicated and other is not None:
            raise ValueError(f"step {step}, {name}: {copies_differ(first, other)}")
        return parts[first] if self._replicated or len(parts) == 1 else None

    def _state(self, step, name, kind, parts):
        if self._held.knows(name, kind):
            return self._joined(step, name, kind, parts)
        first, other = _first_that_differs(parts)
        lacking = next((rank for rank in range(len(self._folders)) if rank not in parts), None)
        if lacking is not None:
            self._left_out[LAYOUT.state][step] = f"rank {lacking} lacks {name}"
        elif other is not None:
            self._left_out[LAYOUT.state][step] = f"rank {other} has another {name} than rank {first}"
        return parts[first] if lacking is None and other is None else None

    def _joined(self, step, name, kind, parts):
        with naming(f"step {step}, {name}"):
            whole = self._held.whole(name, kind, parts)
            return None if whole.unknown else whole.join(parts)


def _are_copies(a, b):
    return a[:2] == b[:2] and np.array_equal(a[2], b[2])


def _first_that_differs(parts):
    """The first rank, and the first of which the part is no copy of its; None without one."""
    first = min(parts)
    return first, next((rank for rank in parts if parts[rank] is not parts[first]), None)


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
