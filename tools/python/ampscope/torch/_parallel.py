"""Wrappers of a model, processes that train it together, and what each of them holds of it."""
import math
import os

import torch

from ._tensors import norms

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # names that only wrappers add


def plain_name(name):
    """Of a parameter or module, without the wrappers of torch.compile, FSDP and checkpoints within the model."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def inner_model(model):
    """Without the wrappers of torch.compile and of data parallelism, which only add to names."""
    while True:
        inner = next((getattr(model, name) for name in _WRAPPERS if hasattr(model, name)), None)
        if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def named_modules(model):
    """(name, module) of each module, by the names that the user's own model gives; what is wrapped around it has "", as
    it has."""
    inner = inner_model(model)
    begin = next(name for name, module in model.named_modules() if module is inner)
    for name, module in model.named_modules():
        yield plain_name(name[len(begin):].removeprefix(".")), module


def class_name(model):
    """As the user knows it: fully_shard() makes FSDPGPT of GPT."""
    return next(c for c in type(model).__mro__ if not c.__module__.startswith("torch.distributed.")).__name__


def fsdp_dtype(model):
    """The type to which FSDP casts weights before forward and backward; None where it does not."""
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", None)  # fully_shard(); else FullyShardedDataParallel
        policy = getattr(state(), "_mp_policy", None) if state else getattr(module, "mixed_precision", None)
        if isinstance(getattr(policy, "param_dtype", None), torch.dtype):
            return policy.param_dtype
    return None


def rank():
    """This process among how many that train together; before they have found each other, by torchrun's environment."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def rank_facts(model, shards):
    """Which rank this is, and what it holds; {} of a process that trains alone. shards: see Shards."""
    number, ranks = rank()
    if ranks == 1:
        return {}
    replicated = isinstance(getattr(model, "_orig_mod", model), torch.nn.parallel.DistributedDataParallel)
    facts = {"rank": number, "of": ranks, "weights": "all-reduced" if replicated else "own"}
    return facts | ({"shards": shards} if shards else {})


def fsdp_groups(model):
    """The groups of parameters in which fully_shard() divides a model."""
    states = [module._get_fsdp_state() for module in model.modules() if hasattr(module, "_get_fsdp_state")]
    groups = [getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
              for state in states]
    return [group for several in groups for group in several if group is not None]


def undivided(groups):
    """Gradients of micro-batches that fully_shard() keeps until it divides their sum among the ranks, as
    set_requires_gradient_sync(False) asks; no parameter shows them meanwhile."""
    kept = [getattr(group, "_partial_reduce_output", None) for group in groups]  # of set_requires_all_reduce(False)
    for parameter in (p for group in groups for p in getattr(group, "fsdp_params", ())):
        whole = getattr(parameter, "_unsharded_param", None)
        kept += [getattr(whole, "grad", None), getattr(parameter, "unsharded_accumulated_grad", None)]
    return [gradient for gradient in kept if gradient is not None]


def _part(held, parts, at):
    """Of equal parts the one at `at`, as torch.chunk() cuts: the last ones may be shorter, or empty."""
    size = -(-len(held) // parts)
    return held[at * size:(at + 1) * size]


def _place(tensor):
    """Where in the whole the part lies that this rank holds of a DTensor: `shape` of the whole, `offset` and `size` of
    a box in it; or, as `unknown`, placements that are no box. FSDP cuts what tensor parallelism has cut already: its
    cut is the last, though its dimension of the mesh comes first, and torch calls it _StridedShard. Torch's function
    for offsets, which is private, takes cuts in the order of the mesh, which is something else where they are
    uneven."""
    held, coordinate = [range(n) for n in tensor.shape], tensor.device_mesh.get_coordinate()
    cuts = [(placement, parts, at) for placement, parts, at in
            zip(tensor.placements, tensor.device_mesh.mesh.shape, coordinate or ()) if hasattr(placement, "dim")]
    plain, strided = [], []
    is_box = not any(placement.is_partial() for placement in tensor.placements)
    for i, (placement, parts, at) in enumerate(cuts):
        cut_before = math.prod(n for other, n, _ in cuts[i + 1:] if other.dim == placement.dim)
        is_strided = hasattr(placement, "split_factor")
        is_box = is_box and (not is_strided or placement.split_factor == cut_before)
        (strided if is_strided else plain).append((placement.dim, parts, at))
    for dim, parts, at in plain + strided[::-1]:
        held[dim] = _part(held[dim], parts, at)
    size = [len(indices) if coordinate else 0 for indices in held]
    if not is_box or math.prod(size) != tensor.to_local().numel():
        return {"shape": list(tensor.shape), "unknown": ", ".join(map(repr, tensor.placements))}
    return {"shape": list(tensor.shape), "offset": [indices.start for indices in held], "size": size}


class Shards:
    """Of which DTensors this rank holds what, as run.json says it: of each weight its place, and of a gradient or a
    state that is placed otherwise than its weight (NAME.grad, NAME.m). Weights whose copies are on the same ranks are a
    group, which has a norm of its own, so that copies can be left out when norms are added up."""

    def __init__(self):
        self.facts, self._placed, self._groups = {}, {}, {}
        self._alone = rank()[1] == 1

    def note(self, tensor, name, suffix=""):
        """What belongs to a weight, or with no suffix the weight itself. Gives its group: 0 of ordinary tensors."""
        if self._alone or not hasattr(tensor, "placements"):
            return 0
        placed, full = (tensor.device_mesh, tensor.placements), name + suffix
        if full not in self._placed and self._placed.get(name) == placed:
            return self.facts[name]["group"]
        if self._placed.get(full) != placed:
            copied = placed[0], tuple(p.is_replicate() for p in placed[1])
            place = _place(tensor)
            if full in self.facts:
                place = {"shape": place["shape"], "unknown": "placements that change"}
            self.facts[full] = place | {"group": self._groups.setdefault(copied, len(self._groups) + 1)}
            self._placed[full] = placed
        return self.facts[full]["group"]

    def norms(self, named):
        """Of gradients by the names of their weights: the 2-norm of each group, and the largest magnitude of each."""
        groups = {}
        for name, gradient in named:
            groups.setdefault(self.note(gradient, name, ".grad"), []).append(gradient)
        measured = {group: norms(gradients) for group, gradients in groups.items()}
        return {group: norm for group, (norm, _) in measured.items()}, [largest for _, largest in measured.values()]
