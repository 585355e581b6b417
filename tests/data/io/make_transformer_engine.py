"""Makes te_*.pt and tensor_dumps beside it, with TransformerEngine's quantized tensors as it pickles them, and their
part of golden.json.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy torch
    /tmp/venv/bin/python make_transformer_engine.py

TransformerEngine is not needed: classes of the same names in modules of the same names give pickles of the same bytes.
What they are given, in which order, is from its source (transformer_engine/pytorch/tensor/*_tensor.py: __reduce_ex__),
commit d0067d0, 2.20.0.dev0. The values expected are computed here from the codes and scales, with torch's own types, as
storage/*_storage.py and common/cast/nvfp4/dequantize_nvfp4.cuh say.
"""
import enum
import json
import os
import sys
import types
import zipfile

import numpy as np
import torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))
golden = {}
generator = torch.Generator().manual_seed(0)


def placed(module, thing):
    """Puts a class or function where pickles name it."""
    thing.__module__ = module
    thing.__qualname__ = thing.__name__
    parts = module.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[:i + 1])
        sys.modules.setdefault(name, types.ModuleType(name))
    setattr(sys.modules[module], thing.__name__, thing)
    return thing


NUMBERS = {"kByte": 0, "kFloat8E4M3": 7, "kFloat8E5M2": 8, "kFloat4E2M1": 10}
DType = placed("transformer_engine.pytorch.constants", enum.IntEnum("DType", NUMBERS))
E4M3, E5M2, E2M1 = DType.kFloat8E4M3, DType.kFloat8E5M2, DType.kFloat4E2M1


class Pybind:
    """An enumeration of pybind11, which pickles its number as its state."""

    def __init__(self, number):
        self.number = number

    def __getstate__(self):
        return self.number

    def __setstate__(self, number):
        self.number = number


Pybind.__name__ = "DType"
placed("transformer_engine_torch", Pybind)


class MXFP8Quantizer:
    """What tensors of blocks hold besides: an object of a class, with a state."""

    def __init__(self):
        self.dtype, self.rowwise_usage = E4M3, True


placed("transformer_engine.pytorch.tensor.mxfp8_tensor", MXFP8Quantizer)


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce_ex__(self, protocol):
        return self.call


def function(file, name):
    def rebuild(*args):
        raise NotImplementedError("only its name is needed")

    rebuild.__name__ = name
    return placed(f"transformer_engine.pytorch.tensor.{file}", rebuild)


def method(file, name):
    """The method _make_in_reduce_ex that stood for the function in earlier versions."""
    def _make_in_reduce_ex(cls, *args):
        raise NotImplementedError("only its name is needed")

    cls = type(name, (), {"_make_in_reduce_ex": classmethod(_make_in_reduce_ex)})
    return placed(f"transformer_engine.pytorch.tensor.{file}", cls)._make_in_reduce_ex


float8 = function("float8_tensor", "_make_float8_tensor_in_reduce_ex")
mxfp8 = function("mxfp8_tensor", "_make_mxfp8_tensor_in_reduce_ex")
blockwise = function("float8_blockwise_tensor", "_make_float8_blockwise_tensor_in_reduce_ex")
nvfp4 = function("nvfp4_tensor", "_make_nvfp4_tensor_in_reduce_ex")
hybrid = function("hybrid_tensor", "_make_hybrid_quantized_tensor_in_reduce_ex")
identity = function("identity_tensor", "_make_identity_tensor_in_reduce_ex")
old_float8 = method("float8_tensor", "Float8Tensor")
old_mxfp8 = method("mxfp8_tensor", "MXFP8Tensor")

TORCH = {E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}
NAMES = {E4M3: "F8_E4M3", E5M2: "F8_E5M2", E2M1: "F4", torch.float32: "F32", torch.bfloat16: "BF16"}


def codes(*shape):
    """Random bytes, NaN and infinity among them."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def scales(*shape):
    return torch.rand(shape, generator=generator) + 0.01


def values(data, format):
    """What the codes of 8-bit formats stand for, in FP64."""
    return data.view(TORCH[format]).to(torch.float64)


def of(x, format, **more):
    """An entry of golden.json for values that codes and scales stand for."""
    x = x.to(torch.float64)
    return {"dtype": "F64", "codes": NAMES[format], "shape": list(x.shape), "bytes": canonical(x).hex(), **more}


def canonical(x):
    """The bytes, with NaN as the C++ code writes it: quiet and positive, of whatever sign the code was."""
    x = x.contiguous().numpy().copy()
    x[np.isnan(x)] = np.array(0x7ff8 << 48, np.uint64).view(np.float64)
    return x.tobytes()


def plain(x):
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape),
            "bytes": x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()}


def save(name, objects, tensors, skipped=()):
    torch.save(objects, name)
    if name != "te_dump.pt":
        pack(name)
    golden[name] = {"as": None, "skipped": list(skipped), "tensors": tensors}


def pack(name):
    """Leaves out what torch.save puts between and beside the storages: other golden files have it, and tests that
    damage each byte take their time."""
    with zipfile.ZipFile(name) as archive:
        members = {m: archive.read(m) for m in archive.namelist() if "/data" in m or m.endswith("/version")}
    with zipfile.ZipFile(name, "w") as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content)


# --- one scale for a tensor: what DumpTensors writes, and variants ---
high = torch.randn(4, 6, generator=generator).bfloat16()
q, s = codes(4, 6), scales(1)
save("te_dump.pt", {"high_precision": high, "quantized": Call(float8, q, E4M3, s, torch.bfloat16, q.shape, None)},
     {"high_precision": plain(high), "quantized": of(values(q, E4M3) * s.double(), E4M3)})
many = scales(8)  # the scales of several tensors are views of one buffer
t = codes(6, 2, 2)
save("te_float8.pt",
     {"e5m2": Call(float8, q, E5M2, many[3:4], torch.float32, q.shape, None),
      "columnwise only": Call(float8, None, E4M3, many[5], torch.float32, torch.Size([2, 2, 6]), t),
      "old": Call(old_float8, q, Pybind(7), s, torch.float32, q.shape),
      "oldest": torch.nn.Parameter(torch.zeros(1)), "empty": Call(float8, q[:0], E4M3, s, torch.float32, q[:0].shape),
      "no data": Call(float8, None, E4M3, s, torch.float32, q.shape, None),
      "numbered": Call(float8, q, Pybind(6), s, torch.float32, q.shape),
      "two scales": Call(float8, q, E4M3, many[:2], torch.float32, q.shape)},
     {"e5m2": of(values(q, E5M2) * many[3].double(), E5M2),
      "columnwise only": {**of(values(t, E4M3) * many[5].double(), E4M3, storage_order=True), "shape": [2, 2, 6]},
      "old": of(values(q, E4M3) * s.double(), E4M3), "oldest": plain(torch.zeros(1)),
      "empty": of(values(q[:0], E4M3), E4M3)},
     ["'old': is a Float8Tensor of TransformerEngine whose codes are read as E4M3: before version 2.4",
      "'no data': is a Float8Tensor of TransformerEngine without codes and scales",
      "'numbered': is a Float8Tensor of TransformerEngine whose codes have an unknown type",
      "'two scales': a quantized tensor without a scale for each of its blocks"])


# --- MXFP8: powers of two for 32 elements, of a row or of a column; scales are padded to 128 x 4, 4 x 128 ---
def powers(*shape):
    return torch.randint(100, 150, shape, dtype=torch.uint8, generator=generator)


def power(x):
    return torch.where(x == 255, torch.nan, torch.exp2(x.to(torch.float64) - 127))


wide, wide_scales, tall, tall_scales = codes(2, 64), powers(128, 4), codes(2, 32, 2), powers(4, 128)
wide_scales[1, 0], wide_scales[1, 1], tall_scales[0, 0] = 255, 0, 254
by_row = values(wide, E4M3) * power(wide_scales[:2, :2]).repeat_interleave(32, 1)
by_column = values(tall, E5M2) * power(tall_scales[:2, :2]).repeat_interleave(32, 0).reshape(tall.shape)
quantizer = MXFP8Quantizer()
save("te_mxfp8.pt",
     {"row": Call(mxfp8, wide, wide_scales, None, None, E4M3, torch.bfloat16, wide.shape, quantizer, False),
      "column": Call(old_mxfp8, None, None, tall, tall_scales, Pybind(8), torch.bfloat16),
      "both": Call(mxfp8, wide, wide_scales, wide, tall_scales, E4M3, torch.bfloat16, wide.shape, None, False),
      "swizzled": Call(mxfp8, wide, wide_scales, None, None, E4M3, torch.bfloat16, wide.shape, None, True)},
     {"row": of(by_row, E4M3), "column": of(by_column, E5M2), "both": of(by_row, E4M3),
      "both.columnwise": of(values(wide, E4M3) * power(tall_scales[0, :64]), E4M3)},
     ["'swizzled': is a MXFP8Tensor of TransformerEngine whose scales are in the order of matrix products"])

# --- FP8 with FP32 scales for 1 x 128 or 128 x 128 elements; column-wise codes lie transposed, 1 x 128 scales, too ---
a, line_scales, column_scales = codes(3, 130), scales(2, 4), scales(1, 132)
a_columns = codes(130, 3)
rows = values(a, E4M3) * line_scales[:, :3].t().double().repeat_interleave(128, 1)[:, :130]
columns = values(a_columns, E4M3) * column_scales[0, :130].double()[:, None]
b, b_columns, square, square_columns = codes(2, 2, 129), codes(129, 2, 2), scales(1, 4), scales(2, 4)
tiles = values(b, E5M2) * square[:, :2].double().repeat_interleave(128, 1)[:, :129]
tiles_columns = values(b_columns, E5M2) * square_columns[:, :1].double().repeat_interleave(128, 0)[:129, :, None]
save("te_blockwise.pt",
     {"line": Call(blockwise, a.shape, a, line_scales, a_columns, column_scales, E4M3, torch.bfloat16, None, False,
                   None),
      "square": Call(blockwise, b.shape, b, square, b_columns, square_columns, E5M2, torch.bfloat16, None, True, None),
      "few scales": Call(blockwise, a.shape, a, line_scales[:1], None, None, E4M3, torch.bfloat16, None, False, None)},
     {"line": of(rows, E4M3),
      "line.columnwise": {**of(columns, E4M3, storage_order=True), "shape": [3, 130]},
      "square": of(tiles, E5M2),
      "square.columnwise": {**of(tiles_columns, E5M2, storage_order=True), "shape": [2, 2, 129]}},
     ["'few scales': a quantized tensor without a scale for each of its blocks"])

# --- NVFP4: two codes in a byte, E4M3 scales for 16 elements, relative to an amax; in FP32 ---
E2M1_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
packed, four_scales, amax, amaxes = codes(2, 16), codes(128, 4) & 0x7f, scales(1) * 100, scales(2) * 100
four_scales[four_scales == 0x7f] = 0x38  # no NaN


def of_nvfp4(amax, scale_max):
    """As dequantize_fp4_kernel computes it, each product in FP32."""
    x = E2M1_VALUES[torch.stack([packed & 15, packed >> 4], -1).reshape(2, 32).long()]
    scale = four_scales[:2, :2].view(torch.float8_e4m3fn).float() * amax.reshape(-1, 1)
    inverse = torch.tensor(1.0) / (torch.tensor(6.0) * scale_max)
    return of(x * (scale * inverse).repeat_interleave(16, 1), E2M1)


def call_of_nvfp4(amax, columns, *more):
    return Call(nvfp4, torch.Size([2, 32]), packed, four_scales, columns, columns, amax, None, E2M1, torch.bfloat16,
                None, False, *more)


save("te_nvfp4.pt",
     {"one": call_of_nvfp4(amax, None), "rows": call_of_nvfp4(amaxes, None, True, False, 448),
      "four over six": call_of_nvfp4(amax, packed, False, True, 256),
      "other": call_of_nvfp4(amax, None, False, True, 100)},
     {"one": of_nvfp4(amax, 448), "rows": of_nvfp4(amaxes, 448), "four over six": of_nvfp4(amax, 256)},
     ["'four over six': is a NVFP4Tensor of TransformerEngine with column-wise codes, which are left out",
      "'other': is a NVFP4Tensor of TransformerEngine without an amax, or with scales that end neither at 448 nor at "])

# --- what holds other tensors ---
x = torch.randn(3, generator=generator)
save("te_hybrid.pt",
     {"w": Call(hybrid, Call(float8, q, E4M3, s, torch.float32, q.shape, None),
                Call(mxfp8, wide, wide_scales, None, None, E4M3, torch.bfloat16, wide.shape, quantizer, False),
                quantizer, torch.float32, q.shape),
      "same": Call(identity, x, quantizer, torch.float32, x.shape)},
     {"w.rowwise": of(values(q, E4M3) * s.double(), E4M3), "w.columnwise": of(by_row, E4M3), "same": plain(x)})

# --- the tree of a layer's dumps: BF16 before, E4M3 and E5M2 after quantization with the scale that just fits ---
os.makedirs("tensor_dumps/rank_0/iter_000100", exist_ok=True)
x, w, g = (torch.randn(shape, generator=generator) for shape in ((32, 24), (16, 24), (32, 16)))
x[3, 5] = 300.0  # an outlier, as activations have them
for name, tensor, format in (("activation", x, E4M3), ("weight", 0.1 * w, E4M3), ("gradient", 1e-6 * g, E5M2),
                             ("wgrad", 1e-6 * g.t() @ x, None)):
    tensor = tensor.bfloat16()
    dump = {"high_precision": tensor}
    if format is not None:
        scale = torch.finfo(TORCH[format]).max / tensor.abs().max().float()
        data = (tensor.float() * scale).to(TORCH[format]).view(torch.uint8)
        dump["quantized"] = Call(float8, data, format, (1 / scale).reshape(1), torch.bfloat16, data.shape, None)
    torch.save(dump, f"tensor_dumps/rank_0/iter_000100/fc1_{name}.pt")

with open("golden.json") as f:
    document = json.load(f)
document["files"] = {name: kept for name, kept in document["files"].items() if not name.startswith("te_")} | golden
document["made_by"] = "make.py, make_transformer_engine.py"
with open("golden.json", "w") as f:
    json.dump(document, f, indent=1)
    f.write("\n")
