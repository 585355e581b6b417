"""Inputs by rule, bits of tensors, and the files that they are kept in.

A file has facts (JSON: versions, cases) and arrays of bits. A case is what was asked, and for each tensor that came out
its shape, type and SHA-256, and under which key its bits are kept: all, or some rows and columns. Bits are kept as
differences to another tensor's if they are close to it, and byte by byte, so that they compress.
"""
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
          "e5m2": torch.float8_e5m2}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
UNSIGNED = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


class TimeOver(BaseException):
    """The time of an item is over."""


def words(seed, count):
    """splitmix64 of a counter."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
        z = ((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
        z = ((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return z ^ (z >> np.uint64(31))


def normal(seed, *shape, spread=0):
    """FP32 numbers close to normal ones, each the sum of eight uniform ones; times 2^-(0 ... spread)."""
    count = int(np.prod(shape))
    parts = words(2 * seed, 2 * count).view("<u2").reshape(count, 8).astype(np.int64).sum(1)
    x = (parts - 4 * 65535) / (65536 * np.sqrt(8 / 12))
    if spread:
        x = np.ldexp(x, -((words(2 * seed + 1, count) >> np.uint64(40)) % np.uint64(spread + 1)).astype(np.int64))
    return x.astype(np.float32).reshape(shape)


def whole(seed, below, *shape):
    """Whole numbers from 0 to below - 1."""
    return ((words(2 * seed, int(np.prod(shape))) >> np.uint64(33)) % np.uint64(below)).astype(np.int64).reshape(shape)


def _fp8_codes(x, exponent_bits, fraction_bits, largest):
    """Codes of the nearest values, ties to the even code."""
    code = np.arange(largest + 1)
    e, f = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    values = np.ldexp(f + np.where(e > 0, 1 << fraction_bits, 0), np.maximum(e, 1) - bias - fraction_bits)
    middle = (values[1:] + values[:-1]) / 2
    size = np.abs(x.astype(np.float64))
    below, above = np.searchsorted(middle, size, "left"), np.searchsorted(middle, size, "right")
    nearest = np.where(below % 2 == 0, below, above)
    return (nearest | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def rounded(x, name):
    """A tensor of the values of that type nearest to FP32 numbers, without torch's casts."""
    x = np.ascontiguousarray(x, np.float32)
    if name == "fp32":
        return torch.from_numpy(x.copy())
    if name == "fp16":
        return torch.from_numpy(x.astype(np.float16))
    if name == "bf16":
        u = x.view(np.uint32)
        codes = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).view(np.int16)
    else:
        codes = _fp8_codes(x, 4, 3, 0x7E) if name == "e4m3" else _fp8_codes(x, 5, 2, 0x7B)
    return torch.from_numpy(codes).view(DTYPES[name])


def bits(tensor):
    """A tensor's bits as unsigned numbers, in its shape."""
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return flat.view(torch.uint8).numpy().view(UNSIGNED[tensor.element_size()]).reshape(tuple(tensor.shape))


def values_of(codes, name):
    """The FP32 numbers of bits of that type."""
    raw = torch.from_numpy(np.ascontiguousarray(codes).reshape(-1).view(np.uint8).copy())
    return raw.view(DTYPES[name]).float().numpy().reshape(codes.shape)


def digest(codes):
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()[:16]


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


def _from_planes(planes):
    return np.ascontiguousarray(planes.T).reshape(-1).view(UNSIGNED[len(planes)])


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
            said["columns"] = columns
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


def recorded(folder, item):
    """The path of an item's file, or None if there is none."""
    paths = [os.path.join(folder, item + end) for end in (".npz", ".json")]
    return next((path for path in paths if os.path.exists(path)), None)


def notes_of(folder, item):
    """Where an item notes how far it is, so that it can go on after its process died."""
    return os.path.join(folder, item + ".notes")


class Recording:
    """An item's file: .facts, .cases, and the bits that they speak of."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        self.arrays = {}
        if path.endswith(".npz"):
            with np.load(io.BytesIO(data)) as file:
                self.arrays = {key.partition("-")[0]: (key.partition("-")[2], file[key]) for key in file.files}
            data = self.arrays.pop("facts")[1].tobytes()
        self.facts = json.loads(data)
        self.cases = self.facts.pop("cases")

    def _codes(self, key):
        base, planes = self.arrays[key]
        codes = _from_planes(planes)
        if not base:
            return codes
        half = codes >> 1
        return self._codes(base) + np.where(codes & 1, ~half, half).astype(codes.dtype)

    def bits(self, said):
        """The bits that were kept of a tensor."""
        shape = list(said["shape"])
        if "rows" in said:
            shape[0] = len(said["rows"])
        if "columns" in said:
            shape[-1] = said["columns"]
        return self._codes(said["key"]).reshape(shape)

    def values(self, said):
        return values_of(self.bits(said), said["type"])


@contextlib.contextmanager
def setting(owner, name, value):
    """An attribute with another value meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
