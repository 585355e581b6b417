"""What the scripts share that record how other projects' own Python scales and casts."""
import ast
import dataclasses
import math
import subprocess
import types
import typing

import numpy
import torch


def functions(path, *names, **known):
    """The functions, classes and constants of a file that have these names, run in a namespace with torch in it."""
    scope = {"torch": torch, "math": math, "dataclasses": dataclasses, **vars(typing), **known}
    for node in ast.parse(path.read_text()).body:
        defined = [t.id for t in node.targets] if isinstance(node, ast.Assign) and hasattr(node.targets[0], "id") else [
            getattr(node, "name", None)]
        if set(defined) & set(names):
            for inner in ast.walk(node):  # decorators of compilation
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
                    inner.decorator_list = [d for d in inner.decorator_list if "jit" not in ast.unparse(d)]
            exec(compile(ast.Module([node], []), str(path), "exec"), scope)
    return types.SimpleNamespace(**{name: scope[name] for name in names})


def mixed(x):
    """A hash of each 32-bit word."""
    x = x.astype(numpy.uint32)
    x = (x ^ (x >> 16)) * numpy.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * numpy.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def commit(path):
    return subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
