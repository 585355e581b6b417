#!/usr/bin/env python3
"""PyTorch's autocast lists as facts, by hand with torch from PyPI: python3 autocast_lists.py > autocast_lists.json

Which ops a kind of device lists is what the installed library's dispatcher has registered. The class of an op is
observed: each overload is called with operands made up by its schema, on tensors that claim to be on that device, and
what autocast has cast them to when the first other op is reached tells the class. CUDA and XPU are registered from the
lists in ATen/autocast_mode.h, which the package contains: there the header states the class, and the script fails where
header, dispatcher and observation disagree.
"""
import json
import pathlib
import re
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU", "mps": "AutocastMPS", "xpu": "AutocastXPU"}
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
OWN_KERNELS = {"_cudnn_rnn": "lower_precision_fp"}  # ATen/cudnn/AutocastRNN.cpp; it needs the library to be observed
LISTS = {"LOWER_PRECISION_FP": "lower_precision_fp", "FP32": "fp32", "FP32_SET_OPT_DTYPE": "fp32_set_opt_dtype",
         "PROMOTE": "promote", "DIFFERENT_REDISPATCH_SIGNATURE": "fp32_append_dtype"}


class Claimed(torch.Tensor):
    """A tensor without data that is said to be on a device."""

    @staticmethod
    def __new__(cls, dtype, device, shape=(2, 2)):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Reached(Exception):
    pass


class Watch(TorchDispatchMode):
    """Notes the dtypes that operands are cast to, and stops at the first other op."""

    def __init__(self):
        super().__init__()
        self.casts, self.dtype = [], None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default:
            self.casts.append(NAMES[kwargs["dtype"]])
            return Claimed(kwargs["dtype"], args[0].device, args[0].shape)
        self.dtype = next((NAMES.get(a) for a in tree_flatten((args, kwargs))[0] if isinstance(a, torch.dtype)), None)
        raise Reached


def made_up(schema, dtypes, device):
    """Operands of that schema, the floating tensors with these dtypes in turn; None for a kind that can't be made."""
    args, given = [], 0
    for argument in schema.arguments:
        if argument.has_default_value() or argument.kwarg_only:
            continue
        kind = str(argument.type)
        if kind in ("Tensor", "List[Tensor]", "Optional[Tensor]"):
            tensor = Claimed(dtypes[min(given, len(dtypes) - 1)], device)
            given += 1
            two = [tensor, Claimed(dtypes[-1], device)]
            args.append(two if kind == "List[Tensor]" else tensor)
        elif kind in ("int", "number", "float", "Optional[number]", "Optional[int]"):
            args.append(1)
        elif kind in ("bool", "str"):
            args.append(False if kind == "bool" else "fro")
        elif kind.startswith("List[int]") or kind.startswith("Optional[List[int]]"):
            args.append([1, 1])
        elif kind.startswith("Optional"):
            args.append(None)
        elif kind == "List[Optional[Tensor]]":
            args.append([None])
        else:
            return None
    return args


def observe(overload, dtypes, device, low):
    args = made_up(overload._schema, dtypes, device)
    if args is None:
        return None
    torch.set_autocast_enabled(device, True)  # torch.autocast leaves it off where there is no such device
    try:
        with Watch() as watch:
            overload(*args)
    except Reached:
        pass
    except Exception as error:  # refused, or made-up operands do not fit, which is found after the casts
        if "unsafe to autocast" in str(error):
            return "banned"
    finally:
        torch.set_autocast_enabled(device, False)
    return watch.casts, watch.dtype


def class_of(overload, device, low):
    wide, narrow, mixed = (observe(overload, dtypes, device, low)
                           for dtypes in ([torch.float32], [low], [low, torch.float32]))
    if wide is None or wide == "banned":
        return wide
    if NAMES[low] in wide[0]:
        return "lower_precision_fp"
    if "fp32" in narrow[0]:
        return "fp32"
    if "fp32" in mixed[0]:
        return "promote"
    return "fp32_set_opt_dtype" if narrow[1] == "fp32" else None


def registered(device):
    """The overloads with a kernel for that device, by name."""
    result = {}
    for full in torch._C._dispatch_get_registrations_for_dispatch_key(KEYS[device]):
        namespace, name = full.split("::")
        if namespace != "aten":
            continue
        name, _, overload = name.partition(".")
        result.setdefault(name, []).append(getattr(getattr(torch.ops.aten, name), overload or "default"))
    return result


def stated():
    """Names and classes of the lists in the header."""
    header = (pathlib.Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text().replace("\\\n", " ")
    result = {}
    for line in header.splitlines():
        found = re.match(r"#define AT_FORALL_(\w+)\(_\)(.*)", line)
        if not found or found[1] not in LISTS:
            continue
        pattern = r'_\(ADD_NS\((\w+)\)' if "DIFFERENT" in found[1] else r"_\((\w+)"
        for name in re.findall(pattern, found[2]):
            assert result.setdefault(name, LISTS[found[1]]) == LISTS[found[1]], name
    return result


def classes(device, header):
    """Names and classes of all ops with a kernel for that device."""
    low = torch.get_autocast_dtype(device)
    result = {}
    for name, overloads in registered(device).items():
        seen = {class_of(o, device, low) for o in overloads} - {None}
        if device in ("cuda", "xpu") and name in header:
            # Whether a dtype was set or appended can't be seen, and softmax takes it in another argument.
            told = {header[name]} | ({"fp32_set_opt_dtype"} if header[name] == "fp32_append_dtype" else set())
            assert seen <= told, f"{name} on {device}: the header says {header[name]}, the library does {seen}"
            assert seen or header[name] == "fp32_set_opt_dtype", f"{name} on {device}: nothing observed"
            result[name] = header[name]
        else:
            seen |= {OWN_KERNELS[name]} if name in OWN_KERNELS else set()
            assert len(seen) == 1, f"{name} on {device}: {seen or 'nothing observed'}"
            result[name] = seen.pop()
    if device in ("cuda", "xpu"):
        assert header.keys() <= result.keys(), f"not registered on {device}: {header.keys() - result.keys()}"
    return result


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    header = stated()
    by_device = {device: classes(device, header) for device in KEYS}
    print('{"torch": "%s", "commit": "%s",' % (torch.__version__, torch.version.git_version))
    print('"default": %s,' % json.dumps({device: NAMES[torch.get_autocast_dtype(device)] for device in KEYS}))
    print('"devices": %s,\n"ops": {' % json.dumps(list(KEYS)))
    ops = sorted(set().union(*by_device.values()))
    print(",\n".join(f'"{op}": ' + json.dumps([by_device[d].get(op, "") for d in KEYS]) for op in ops))
    print("}}")
