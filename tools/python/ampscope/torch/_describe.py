"""What a run is: its network, optimizer and formats, as run.json says it."""
import re

import torch

from .._arrays import format_of_dtype
from .._conversions import quantize
from ._emulate import emulated_precision
from ._folder import finite
from ._parallel import class_name, inner_model, plain_name
from ._tensors import dense


def check_options(every, activations, what, store):
    if every < 1:
        raise ValueError(f"every: expected at least 1, got {every}")
    for option, value, known in (("what", what, ("gradients", "outputs", "both")),
                                 ("store", store, ("tensors", "histograms"))):
        if value not in known:
            raise ValueError(f"{option}: expected {' or '.join(known)}, got {value!r}")
    if what != "gradients" and not activations:
        raise ValueError(f"what: {what} of no module; activations= says of which")


def inner_optimizer(optimizer):
    """Without the wrappers of frameworks (accelerate's AcceleratedOptimizer)."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def parameters_of(model, optimizer):
    """Name and parameter of what the optimizer trains; shared ones once, by their first name."""
    names = {id(p): plain_name(name) for name, p in model.named_parameters()}
    listed = [p for group in optimizer.param_groups for p in group["params"]]
    return [(names.get(id(p), f"optimizer.{i}"), p) for i, p in enumerate(listed)]


def number(x):
    """A setting of an optimizer as a float; None for one that is no number (Adafactor's eps is two, its lr none)."""
    try:
        return float(x)
    except (TypeError, ValueError):
        return None


def settings(group):
    """What an optimizer does to a group of parameters, as numbers that JSON has."""
    found = {key: group[key] for key in ("lr", "eps", "weight_decay", "momentum") if key in group}
    found |= {f"beta{i}": beta for i, beta in enumerate(group.get("betas", ()), 1)}
    return {key: number(x) for key, x in found.items() if finite(number(x)) is not None}


def step_settings(optimizer, known):
    """What the optimizer does in a step, where run.json has the settings `known`: the learning rate of the first group,
    and of each group what differs from that and from those."""
    groups = [settings(group) for group in optimizer.param_groups]
    rate = groups[0].get("lr")
    known = {**known, "lr": rate}
    differing = [{key: x for key, x in group.items() if x != known.get(key)} for group in groups]
    return {"lr": rate} | ({"groups": differing} if any(differing) else {})


def optimizer_facts(optimizer, parameters):
    """Settings are those of the first group; "groups" says which parameters are in others."""
    facts = {"kind": type(optimizer).__name__.lower(), **settings(optimizer.param_groups[0])}
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    others = [index for index, size in enumerate(sizes) for _ in range(size)]
    groups = {name: index for (name, _), index in zip(parameters, others, strict=True) if index}
    return facts | ({"groups": groups} if groups else {})


def scaler_facts(scaler):
    if scaler is not None and not hasattr(scaler, "get_growth_factor"):
        raise TypeError(f"scaler: expected a torch.amp.GradScaler, got {type(scaler).__name__}")
    if scaler is None or not scaler.is_enabled():
        return {"name": "none", "init_scale": 1.0}
    return {"name": "torch", "init_scale": float(scaler.get_scale()), "growth_factor": scaler.get_growth_factor(),
            "backoff_factor": scaler.get_backoff_factor(), "growth_interval": scaler.get_growth_interval()}


def autocast_of(entered, stored, computed):
    """The type that a network's autocast casts to, or None: of those of all regions that were entered the last that is
    none of its parameters and that its graph has. computed: the types in that; None where it does not tell."""
    return next((t for t in reversed(entered) if t not in stored and (computed is None or t in computed)), None)


def precision(parameters, autocast, cast, name):
    """That of emulate(), or what types say. autocast: the dtype that the loop's autocast region casts to, or None;
    cast: that to which FSDP casts weights."""
    if emulated := emulated_precision(p for _, p in parameters):
        return emulated | ({"name": name} if name else {})
    stored = {str(p.dtype).removeprefix("torch.") for _, p in parameters}
    dtype = stored.pop() if len(stored) == 1 else "mixed"
    weights = format_of_dtype(dtype)
    tf32 = any(p.is_cuda for _, p in parameters) and torch.backends.cuda.matmul.allow_tf32
    label = "tf32" if tf32 and weights == "fp32" else weights if weights == "fp32" else f"pure-{weights or dtype}"
    if cast and str(cast) != f"torch.{dtype}":
        weights = format_of_dtype(str(cast).removeprefix("torch."))
        label = f"master-{weights}"
    facts = {"formats": {"weights": weights, "activations": weights, "gradients": weights},
             "operands": "tf32" if tf32 else "fp32"}
    if autocast:
        format = format_of_dtype(str(autocast).removeprefix("torch."))
        label, facts = f"amp-{format}", {"autocast": {"format": format}}
    return {"name": name or label, **facts}


def configuration(model, parameters, optimizer, scaler, name):
    network = inner_model(model)
    return {"torch": torch.__version__,
            "model": {"name": class_name(network), "parameters": sum(p.numel() for p in network.parameters())},
            "precision": precision(parameters, None, None, name), "optimizer": optimizer_facts(optimizer, parameters),
            "loss_scaler": scaler_facts(scaler), "seed": torch.initial_seed()}


def check_half(parameters, lint):
    """With a loss scaler."""
    half = [name for name, p in parameters if p.dtype == torch.float16]
    if half:
        lint(f"FP16 parameters with a loss scaler: torch refuses to unscale FP16 gradients ({half[0]}). Keep "
             "parameters in FP32 and let autocast make the FP16 copies.")


def check_scaler(computes_in, is_known, lint):
    """computes_in: types; is_known: whether autocast cannot have been entered where it is not seen."""
    if torch.float16 in computes_in:
        return
    if torch.bfloat16 in computes_in:
        lint("a loss scaler with BF16 changes nothing but the time: BF16 has the exponents of FP32. "
             "Is enabled= inverted?")
    elif is_known:
        lint("a loss scaler in training that is in FP32 throughout changes nothing: no autocast was entered.")


def check_loss(dtype, scale, lint):
    """The loss that was scaled."""
    if dtype == torch.float16 and scale >= 65520:
        lint(f"a loss in FP16 under a loss scale of {scale:g}: backward begins with the scale as its gradient, which "
             "is infinity in FP16, for that ends at 65504. Compute the loss in FP32.")


def check_unscaled(autocast, lint, where):
    """FP16 without a scaler."""
    lint(f"{'autocast' if autocast else 'casts of FSDP'} to FP16 without a loss scaler: gradients below 2^-24 become "
         "zero. Is enabled= of GradScaler inverted?", where)


def check_told(untold, called, lint, where):
    """untold: see formats_untold()."""
    if untold:
        lint(f"what this network computes in cannot be told: it goes through {', '.join(untold)}. The run is called "
             f"{called}, by its parameters and autocast alone; record(..., name=) says what it is.", where)


def check_formats(parameters, optimizer, scaler, lint):
    """What is wrong before the first step."""
    if scaler is not None and scaler.is_enabled():
        check_half(parameters, lint)
    names = {id(p): name for name, p in parameters}
    for group in optimizer.param_groups:
        for p in group["params"]:
            format = format_of_dtype(str(p.dtype).removeprefix("torch."))
            eps = number(group.get("eps"))
            if eps and format and not quantize(eps, format):
                lint(f"eps = {eps:g} is 0 in {format.upper()}, the format of the optimizer's state of "
                     f"{names[id(p)]}: a gradient of 0 then gives 0/0. Keep the state in FP32.")
                break


_COMPENSATES = re.compile("master|kahan|compens|remainder|stochastic")  # what optimizers call that


def check_masters(parameters, optimizer, lint):
    """After a step, when the optimizer has its state. Weights of 16 bits are as good as in FP32 where the optimizer has
    a copy in FP32, or makes up for rounding otherwise, as its settings or the names in its state say, or as it is
    emulated."""
    emulated = emulated_precision(p for _, p in parameters) or {}
    if emulated.get("update", "nearest") != "nearest":
        return
    for name, p in parameters:
        if p.dtype not in (torch.float16, torch.bfloat16) or p.grad is None:
            continue
        state, group = optimizer.state.get(p, {}), next(g for g in optimizer.param_groups if _holds(g, p))
        told = [*state, *(key for key, value in group.items() if value is True)]
        if any(_COMPENSATES.search(str(key)) for key in told) or any(_is_copy(x, p) for x in state.values()):
            continue
        format = format_of_dtype(str(p.dtype).removeprefix("torch.")).upper()
        lint(f"weights in {format} without a copy in FP32: the state of {type(optimizer).__name__} holds none of "
             f"{name}. An update below 2^{-9 if p.dtype == torch.bfloat16 else -12} of a weight changes nothing, for "
             f"it is less than half a unit in the last place of {format}. Keep weights in FP32 and let autocast make "
             f"the {format} copies.")
        return


def _holds(group, parameter):
    return any(p is parameter for p in group["params"])


def _is_copy(x, parameter):
    """Whether it is the parameter in FP32, to a place of the parameter's format."""
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or x.shape != parameter.shape:
        return False
    held, rounding = dense(parameter.detach()).float(), torch.finfo(parameter.dtype)
    return torch.allclose(dense(x.detach()), held, rtol=rounding.eps, atol=rounding.smallest_normal, equal_nan=True)
