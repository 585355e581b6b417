"""Bits of tensors, and the files that they are kept in.

A file has facts (JSON: versions, cases) and arrays of bits. A case is what was asked, and for each tensor that came out
its shape, type and SHA-256, and under which key its bits are kept: all, or some rows and columns. Bits are kept as
differences to another tensor's if they are close to it, and byte by byte, so that they compress.
"""
import contextlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import torch

from .recording import digest
from .rules import UNSIGNED, codes_of

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
          "e5m2": torch.float8_e5m2}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TimeOver(BaseException):
    """The time of an item is over."""


def rounded(x, name):
    """A tensor of the values of that type nearest to FP32 numbers, without torch's casts."""
    codes = codes_of(x, name)
    signed = codes.view({1: np.uint8, 2: np.int16, 4: np.int32}[codes.itemsize]).copy()
    return torch.from_numpy(signed).view(DTYPES[name])


def bits(tensor):
    """A tensor's bits as unsigned numbers, in its shape."""
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return flat.view(torch.uint8).numpy().view(UNSIGNED[tensor.element_size()]).reshape(tuple(tensor.shape))


def attempt(call):
    """The result of call() and None, or None and the first line of what it raised."""
    try:
        return call(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def versions(device):
    """What computed: the device, and the versions of the libraries."""
    facts = {"torch": torch.__version__, "commit": torch.version.git_version, "python": sys.version.split()[0],
             "numpy": np.__version__, "device": device}
    if device != "cuda":
        return facts
    properties = torch.cuda.get_device_properties(0)
    facts |= {"name": properties.name, "capability": list(torch.cuda.get_device_capability(0)),
              "processors": properties.multi_processor_count, "cuda": torch.version.cuda,
              "cudnn": torch.backends.cudnn.version()}
    facts["driver"], _ = attempt(lambda: subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True,
        timeout=10).stdout.strip())
    facts["cublas"], error = attempt(_cublas_version)
    return facts | ({"cublas_error": error} if error else {})


def _cublas_version():
    import ctypes
    torch.ones(16, 16, device="cuda") @ torch.ones(16, 16, device="cuda")  # loads it
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "libcublas.so" in line}
    library, parts = ctypes.CDLL(paths.pop()), []
    for part in range(3):
        value = ctypes.c_int()
        library.cublasGetProperty(part, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def _planes(codes):
    """Byte by byte: all first bytes, then all second ones."""
    return np.ascontiguousarray(codes.reshape(-1)).view(np.uint8).reshape(-1, codes.dtype.itemsize).T.copy()


class Recorder:
    """Collects the cases of an item."""

    def __init__(self, device, folder):
        self.device, self.folder, self.cases, self.arrays, self.facts = device, folder, [], {}, {}
        self._tracing = 10.0 if device == "cuda" else 0.0  # seconds that are left for names of kernels

    def keep(self, tensor, rows=None, columns=None, base=None):
        """What a case says of a tensor, whose bits are kept: all, or some rows (a list, or the first so many) and the
        first so many columns. `base` is what was said of another one that is close to it."""
        codes = bits(tensor)
        said = {"type": NAMES.get(tensor.dtype, str(tensor.dtype)), "shape": list(codes.shape), "sha": digest(codes)}
        if rows is not None:
            said["rows"] = list(range(min(rows, len(codes)))) if isinstance(rows, int) else rows
            codes = codes[said["rows"]]
        if columns is not None:
            said["columns"] = min(columns, codes.shape[-1])
            codes = codes[..., :columns]
        said["key"] = digest(codes)
        if said["key"] not in self.arrays:
            name = said["key"]
            if base and base["type"] == said["type"] and base["key"] in self.arrays:
                other = self.arrays[base["key"]][1]
                if other.size == codes.size:
                    signed = (codes.reshape(-1) - other).view(f"<i{codes.itemsize}")
                    zigzag = ((signed << 1) ^ (signed >> (8 * codes.itemsize - 1))).view(codes.dtype)
                    self.arrays[name] = (f"{name}-{base['key']}", codes.reshape(-1), _planes(zigzag))
                    return said
            self.arrays[name] = (name, codes.reshape(-1), _planes(codes))
        return said

    def case(self, call, kernels=False, **asked):
        """A case: what call() returns, a dict of what it says of its results; or its error."""
        result, error = attempt(call)
        if self.device == "cuda" and error is None:
            _, error = attempt(torch.cuda.synchronize)
        self.cases.append(asked | ({"error": error} if error else result))
        if kernels and not error and self._tracing > 0:
            self.cases[-1]["kernels"] = self.kernels_of(call)
        return None if error else result

    def kernels_of(self, call):
        """Names of the kernels that call() starts, as numbers of the list facts["kernels"]."""
        from torch.profiler import ProfilerActivity, profile

        def traced():
            with profile(activities=[ProfilerActivity.CUDA]) as trace:
                call()
                torch.cuda.synchronize()
            return [e.name for e in trace.events()
                    if str(e.device_type).endswith("CUDA") and not e.name.startswith(("Memcpy", "Memset"))]

        begin = time.monotonic()
        found, error = attempt(traced)
        self._tracing -= time.monotonic() - begin
        if error:
            self._tracing = 0.0
            self.facts["profiler_error"] = error
            return []
        known = self.facts.setdefault("kernels", [])
        known.extend(name for name in dict.fromkeys(found) if name not in known)
        return [known.index(name) for name in found]

    def write(self, item, seconds, cut):
        """Writes the file of an item under a temporary name, and renames it. Returns its path."""
        found, error = attempt(lambda: versions(self.device))
        facts = {"item": item, "versions": found or error, "seconds": round(seconds, 2),
                 **({"cut": cut} if cut else {}), **self.facts}
        name = item + (".partial" if cut else "")
        text = json.dumps(facts)[:-1] + ', "cases": [\n' + ",\n".join(map(json.dumps, self.cases)) + "\n]}\n"
        path = os.path.join(self.folder, name + (".npz" if self.arrays else ".json"))
        with open(path + ".tmp", "wb") as file:
            if self.arrays:
                np.savez_compressed(file, facts=np.frombuffer(text.encode(), np.uint8),
                                    **{key: planes for key, _, planes in self.arrays.values()})
            else:
                file.write(text.encode())
        os.replace(path + ".tmp", path)
        if not cut:
            for end in (".partial.npz", ".partial.json"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, item + end))
        return path


def notes_of(folder, item):
    """Where an item notes how far it is, so that it can go on after its process died."""
    return os.path.join(folder, item + ".notes")


@contextlib.contextmanager
def setting(owner, name, value):
    """An attribute with another value meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
