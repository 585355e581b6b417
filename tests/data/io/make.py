"""Makes the golden files beside it with NumPy, ml_dtypes, PyTorch and safetensors, and golden.json with what they hold.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy ml_dtypes torch safetensors
    /tmp/venv/bin/python make.py

golden.json: file -> {"as": dtype the user must name or null, "skipped": [names left out],
                      "tensors": {name: {"dtype", "shape", "bytes": hex, little-endian, C order}}}.
Elements stored in another order than C (Fortran order, dense views) stand in that order, with "storage_order": true.
"""

import io
import json
import os
import struct
import warnings
import zipfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))
warnings.simplefilter("ignore")
golden = {}
TORCH = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
         torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
         torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
         torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64"}
values = np.array([0.0, -0.0, 1.0, -1.5, 3e-5, 6e-8, 65504.0, np.inf, -np.inf, np.nan, 0.1, 448.0], np.float32)


def entry(dtype, shape, data, **more):
    return {"dtype": dtype, "shape": list(shape), "bytes": data.hex(), **more}


def of_numpy(array, dtype, **more):
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.kind != "V" else array
    return entry(dtype, array.shape, np.ascontiguousarray(little).tobytes(), **more)


def of_torch(tensor, **more):
    tensor = tensor.detach()
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return entry(TORCH[tensor.dtype], tensor.shape, data, **more)


def note(file, tensors, as_dtype=None, skipped=()):
    golden[file] = {"as": as_dtype, "skipped": list(skipped), "tensors": tensors}


# --- npy ---
def npy(name, array, dtype, as_dtype=None, version=None, **more):
    with open(name, "wb") as f:
        np.lib.format.write_array(f, array, version=version)
    note(name, {name[:-4]: of_numpy(array, dtype, **more)}, as_dtype)


matrix = values.reshape(3, 4)
npy("v1.npy", matrix, "F32", version=(1, 0))
npy("v2.npy", matrix.astype(np.float16), "F16", version=(2, 0))
npy("v3.npy", matrix.astype(np.float64), "F64", version=(3, 0))
npy("big_endian.npy", matrix.astype(">f4"), "F32")
npy("big_endian_complex.npy", (values + 2j).astype(">c8"), "C64")
npy("scalar.npy", np.array(2.5), "F64")
npy("empty.npy", np.zeros((2, 0, 3), np.int16), "I16")
npy("bool.npy", np.array([True, False]), "BOOL")
for code, dtype in (("i1", "I8"), ("u2", "U16"), ("i4", "I32"), ("u8", "U64")):
    npy(f"{code}.npy", np.arange(5).astype(code), dtype)
npy("bf16.npy", matrix.astype(ml_dtypes.bfloat16), "BF16", "BF16")
npy("e4m3.npy", matrix.astype(ml_dtypes.float8_e4m3fn), "F8_E4M3", "F8_E4M3")
npy("e5m2.npy", matrix.astype(ml_dtypes.float8_e5m2), "F8_E5M2", "F8_E5M2")
fortran = np.asfortranarray(matrix)
np.save("fortran.npy", fortran)
note("fortran.npy", {"fortran": entry("F32", matrix.shape, matrix.T.tobytes(), storage_order=True)})

# --- npz ---
arrays = {"w.grad": matrix, "b": np.arange(3, dtype=">i2"), "nested/name": np.zeros((0,), np.float16)}
expected = {"w.grad": of_numpy(matrix, "F32"), "b": of_numpy(arrays["b"], "I16"), "nested/name": entry("F16", [0], b"")}
np.savez("stored.npz", **arrays)
np.savez_compressed("deflated.npz", **arrays)
note("stored.npz", expected)
note("deflated.npz", expected)
# Sizes in a Zip64 extra field, as NumPy streams them.
with zipfile.ZipFile("zip64.npz", "w", zipfile.ZIP_DEFLATED) as z:
    for name, array in arrays.items():
        with z.open(name + ".npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array)
    z.writestr("readme.txt", "no array")
note("zip64.npz", expected, skipped=["readme.txt"])


class Unseekable(io.RawIOBase):  # makes zipfile write sizes after the data, in a data descriptor
    def __init__(self, path):
        self.file = open(path, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)

    def flush(self):
        self.file.flush()


with zipfile.ZipFile(Unseekable("descriptor.npz"), "w", zipfile.ZIP_DEFLATED) as z:
    for name, array in arrays.items():
        with z.open(name + ".npy", "w") as member:
            np.lib.format.write_array(member, array)
note("descriptor.npz", expected)

# --- safetensors ---
t = torch.from_numpy(matrix.copy())
everything = {str(TORCH[d]).lower(): t.nan_to_num(0, 0, 0).to(d) if not d.is_floating_point else t.to(d) for d in TORCH}
everything["scalar"] = torch.tensor(0.5)
everything["empty"] = torch.zeros(0, 3)
safetensors.torch.save_file(everything, "everything.safetensors", metadata={"step": "12", "loss_scale": "1024"})
note("everything.safetensors", {k: of_torch(v) for k, v in everything.items()})
safetensors.numpy.save_file({"a": values[:2]}, "small.safetensors")
note("small.safetensors", {"a": of_numpy(values[:2], "F32")})

# --- pt ---


def pt(name, value, tensors, skipped=()):
    torch.save(value, name)
    note(name, tensors, skipped=skipped)


pt("everything.pt", everything, {k: of_torch(v) for k, v in everything.items()})
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
views = {"transposed": base.t(), "column": base[:, 2], "offset": base[2:], "strided": base[::2, 1::3],
         "expanded": torch.tensor([3.0, 4.0]).reshape(2, 1).expand(2, 5), "all": base.half()[:, ::2].t(),
         "past the end": base[4:]}
tensors = {k: of_torch(v) for k, v in views.items()}
tensors["transposed"] = entry("F32", [6, 4], base.numpy().tobytes(), storage_order=True)
pt("views.pt", views, tensors)
model = torch.nn.Linear(3, 2)
model.weight.data, model.bias.data = base[:2, :3].clone(), base[0, :2].clone()
pt("parameter.pt", {"p": torch.nn.Parameter(base), "model": model.state_dict(),
                    "list": [base[0].clone(), (base[1].bfloat16(),)],
                    "step": 7, "name": "text", "lr": 1e-3, "none": None, "flags": [True, False], "big": 2**40,
                    5: base[2].double()},
   {"p": of_torch(base), "model.weight": of_torch(model.weight), "model.bias": of_torch(model.bias),
    "list.0": of_torch(base[0]), "list.1.0": of_torch(base[1].bfloat16()), "5": of_torch(base[2].double())})
pt("bare.pt", base[0].clone(), {"bare": of_torch(base[0])})
pt("pending.pt", {"neg": torch._neg_view(base[0]), "conj": torch.tensor([1 + 2j]).conj(), "good": base[1].clone(),
                  (1, 2): base[2]}, {"good": of_torch(base[1])}, ["neg", "conj", "a key"])


class Quantized:  # what TransformerEngine's DumpTensors stores beside high_precision: a class nobody else has
    def __init__(self):
        self.data, self.scale = base.to(torch.float8_e4m3fn), torch.tensor(2.0)


pt("dump.pt", {"high_precision": base, "quantized": Quantized()}, {"high_precision": of_torch(base)}, ["quantized"])

# a big-endian writer: PyTorch has none for other machines, so the storages and the byteorder member are swapped here
torch.save({"w": t, "h": t.half()}, "big_endian.pt")
with zipfile.ZipFile("big_endian.pt") as z:
    members = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile("big_endian.pt", "w") as z:
    for name, data in members:
        if name.endswith("/byteorder"): data = b"big"
        if name.endswith("/data/0"): data = np.frombuffer(data, "<u4").byteswap().tobytes()
        if name.endswith("/data/1"): data = np.frombuffer(data, "<u2").byteswap().tobytes()
        z.writestr(name, data)
note("big_endian.pt", {"w": of_torch(t), "h": of_torch(t.half())})

# --- refused ---
torch.save({"w": base}, "legacy.pt.bad", _use_new_zipfile_serialization=False)
np.save("object.npy.bad.npy", np.array([{}], dtype=object), allow_pickle=True)
os.rename("object.npy.bad.npy", "object.npy.bad")
np.save("struct.npy.bad.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
os.rename("struct.npy.bad.npy", "struct.npy.bad")

versions = {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__, "torch": torch.__version__,
            "safetensors": safetensors.__version__}
with open("golden.json", "w") as f:
    json.dump({"made_by": "make.py", "versions": versions, "files": golden}, f, indent=1)
    f.write("\n")
