"""Wrappers of a model, processes that train it together, and what each of them holds of it."""
import os

import torch

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


def rank_facts(model, parameters):
    """Which rank this is, and what it holds; {} of a process that trains alone."""
    number, ranks = rank()
    if ranks == 1:
        return {}
    replicated = isinstance(getattr(model, "_orig_mod", model), torch.nn.parallel.DistributedDataParallel)
    facts = {"rank": number, "of": ranks, "weights": "all-reduced" if replicated else "own"}
    shards = {name: list(p.shape) for name, p in parameters if _is_divided_by_rows(p, ranks)}
    return facts | ({"shards": shards} if shards else {})


def _is_divided_by_rows(parameter, ranks):
    """Whether each rank holds the rows, along dimension 0, that follow those of the rank before."""
    placements = getattr(parameter, "placements", ())
    return (len(placements) == 1 and placements[0].is_shard(0) and
            parameter.device_mesh.mesh.tolist() == list(range(ranks)))
