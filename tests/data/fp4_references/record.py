"""Records how TransformerEngine, Four Over Six and Quartet II scale and cast to FP4, by running their own Python on the
processor:

    python tests/data/fp4_references/record.py TE FOUROVERSIX QUARTET > tests/data/fp4_references/recordings.txt

The arguments are work trees of those repositories (git checkouts, whose commits are printed). Run by hand with torch
and triton from PyPI. Functions are taken out of the files, so that no compiled extension is loaded; Triton's kernels
run in its interpreter, with two of its parts replaced: casts to E4M3, which lose carries, are torch's, and a sum adds
its terms in order, since a kernel does not say in which. Draws of random numbers are replaced by a number, 0 or 1.

A line is a rule, the shape, that of a block, the seed of the numbers, a hash of the E4M3 scales (as FP32 words), and
one of the codes of E2M1, or of numbers as they are read (FP32 words). tests/test_fp4_references.cpp makes the same
numbers.
"""
import ast
import enum
import os
import pathlib
import sys
import tempfile
import types

os.environ["TRITON_INTERPRET"] = "1"

import numpy
import torch
import triton
import triton.language as tl
import triton.runtime.interpreter as interpreter

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from references import bytes_of, commit, fnv, functions, mixed

TE, FOUROVERSIX, QUARTET = (pathlib.Path(a) for a in sys.argv[1:4])
SHAPE = (1024, 1024)


def numbers(height, width, seed, bf16=False):
    """Blocks of 14 binades, with numbers of six binades in each; some blocks are zeros, or tiny, or have numbers of
    three bits, which lie on ties. An eighth of all numbers are zeros of both signs."""
    i, j = numpy.indices(SHAPE, dtype=numpy.uint32)
    base = mixed(mixed(i // numpy.uint32(height) + numpy.uint32(seed)) + j // numpy.uint32(width))
    word = mixed(mixed(i + numpy.uint32(7 * seed + 1)) + j)
    kind = base >> 28
    exponent = numpy.where(kind == 1, 20, 130 - base % 14) - (word >> 24) % 6
    bits = (word & 0x807FFFFF) | (exponent.astype(numpy.uint32) << 23)
    bits = numpy.where(kind == 2, bits & 0xFFE00000, bits)
    bits = numpy.where((kind == 0) | (mixed(word) % 8 == 0), word & 0x80000000, bits)
    bits = bits & 0xFFFF0000 if bf16 else bits
    return torch.from_numpy(bits.astype(numpy.uint32).view(numpy.float32).copy())


def line(rule, block, seed, scales, data):
    print(rule, *SHAPE, *block, seed, fnv(bytes_of(scales.float())) if scales is not None else "-", fnv(bytes_of(data)))


def unpacked(q):
    """Codes of E2M1, one a byte. -0 and negative numbers that become zero are told apart by none but the hardware."""
    codes = torch.stack([q & 15, q >> 4], -1).reshape(q.shape[0], -1)
    return torch.where(codes == 8, 0, codes)


utils = types.SimpleNamespace(Fp4Formats=types.SimpleNamespace(E2M1=None))
te = functions(TE / "transformer_engine/pytorch/custom_recipes/reference_nvfp4.py", "cast_to_fp4x2", "cast_from_fp4x2",
               "cast_to_e8", "cast_to_e4m3", "get_wgrad_sign_vector", "NVFP4QuantizerRef", Quantizer=object,
               QuantizedTensorStorage=object, NVFP4TensorRef=None, reference_utils=utils,
               gemm=types.SimpleNamespace(MMParams=object, GEMMType=types.SimpleNamespace(FPROP=None)))


def te_quantize(x, tile=(1, 16), lines=False, chooses=None, largest=448):
    amax = x.abs().amax(1) if lines else x.abs().max().view(1)
    q, scales = te.NVFP4QuantizerRef._quantize_blockwise_reference(
        x, amax, tile[1], tile[0], pow_2_scales=False, row_scaled_nvfp4=lines, nvfp4_use_4over6=chooses is not None,
        nvfp4_e4m3_max=largest, nvfp4_4over6_err_mode=chooses or "MAE", eps=0.0)
    return unpacked(q), scales[:: tile[0]]


def record_te():
    choices = [(None, 448)] + [(mode, largest) for mode in ("MAE", "MSE") for largest in (448, 256)]
    for seed, (chooses, largest) in enumerate(choices, 1):
        name = "nvfp4" if chooses is None else f"nvfp4:{chooses.lower()}:{largest}"
        for tile in ((1, 16), (16, 16)):
            codes, scales = te_quantize(numbers(*tile, seed), tile, False, chooses, largest)
            line(name, tile, seed, scales, codes)
        codes, scales = te_quantize(numbers(1, 16, seed), (1, 16), True, chooses, largest)
        line(name + ":lines", (1, 16), seed, scales, codes)
        for lines in (False, True):  # the transpose is scaled by itself
            codes, scales = te_quantize(numbers(16, 1, seed).t().contiguous(), (1, 16), lines, chooses, largest)
            line(name + (":lines" if lines else ""), (16, 1), seed, scales.t(), codes.t())


def record_te_hadamard():
    """The transform of BF16 numbers, each sum of 16 rounded once to FP32 and then to BF16."""
    seed = 9
    quantizer = types.SimpleNamespace(with_rht=True, quant_tile_shape=(1, 16), with_random_sign_mask=True,
                                      _build_hadamard_matrix=te.NVFP4QuantizerRef._build_hadamard_matrix)
    x = numbers(16, 1, seed, bf16=True).t().contiguous()
    rotated = te.NVFP4QuantizerRef._apply_rht(quantizer, x.to(torch.float64)).to(torch.float32).to(torch.bfloat16)
    line("hadamard", (16, 1), seed, None, rotated.t().float())
    codes, scales = te_quantize(rotated.float())
    line("hadamard:nvfp4", (16, 1), seed, scales.t(), codes.t())


def record_four_over_six():
    rules = functions(FOUROVERSIX / "src/fouroversix/utils.py", "ScaleRule", "RoundStyle", Enum=enum.Enum)
    element = types.SimpleNamespace(get_maximum_value=lambda rule: 6)
    scale = types.SimpleNamespace(get_maximum_value=lambda rule: 448 if rule.is_static else 256)
    nvfp4 = types.SimpleNamespace(quantized_value_type=element, scale_type=scale)
    fos = functions(FOUROVERSIX / "src/fouroversix/quantize/pytorch/reference.py", "E2M1_MAX_VALUE",
                    "E4M3_MAX_FOUROVERSIX", "fake_quantize_to_e2m1", "compute_nv_scale_factors", "quantize_to_nvfp4",
                    "select_fouroversix", "nvfp4_fouroversix_block_scaled_quantization", RoundStyle=rules.RoundStyle,
                    ScaleRule=rules.ScaleRule, DataType=types.SimpleNamespace(nvfp4=nvfp4))
    for mode in ("mae", "mse"):
        seed = 10
        x = numbers(1, 16, seed)
        q, scales = fos.nvfp4_fouroversix_block_scaled_quantization(
            x.reshape(-1, 16), x.abs().max(), scale_rule=rules.ScaleRule(mode), round_style=rules.RoundStyle.nearest)
        line(f"fouroversix:{mode}", (1, 16), seed, scales, q.reshape(SHAPE) + 0.0)


def repair_interpreter():
    """E4M3 by torch, and sums in order."""
    convert = interpreter._convert_float

    def convert_float(data, source, target, rounding_mode):
        if target == tl.float8e4nv:
            numbers = torch.from_numpy(numpy.ascontiguousarray(data).view(numpy.float32))
            return numbers.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        if source == tl.float8e4nv:
            codes = torch.from_numpy(numpy.ascontiguousarray(data).view(numpy.uint8))
            return codes.view(torch.float8_e4m3fn).float().numpy()
        return convert(data, source, target, rounding_mode)

    interpreter._convert_float = convert_float

    def in_order(self, x):
        data = numpy.add.accumulate(x.handle.data, axis=self.axis)
        last = numpy.take(data, [-1], axis=self.axis)
        return self.to_tensor(last if self.keep_dims else last.squeeze(self.axis), x.dtype)

    interpreter.ReduceOps.sum = in_order


def kernels(path, folder, *names, **replaced):
    """A module with kernels of that file, since triton reads a kernel's source; without its search for block sizes."""
    text = (QUARTET / path).read_text()
    parts = {node.name: "\n".join(text.splitlines()[node.lineno - 1:node.end_lineno]) for node in ast.parse(text).body
             if isinstance(node, ast.FunctionDef)}
    source = "import triton\nimport triton.language as tl\n" + "".join(f"\n\n@triton.jit\n{parts[n]}\n" for n in names)
    for old, new in replaced.values():
        assert old in source
        source = source.replace(old, new)
    name = f"kernels_{abs(hash(source))}"
    (pathlib.Path(folder) / f"{name}.py").write_text(source)
    return __import__(name)


def record_quartet(folder):
    sys.path.insert(0, folder)
    repair_interpreter()
    seed, block_size = 11, 2048
    x = numbers(1, 16, seed)
    grid = (x.numel() // block_size,)
    forward = kernels("src/models/quantization/quantizers/nvfp4_triton.py", folder, "rtn_fp4", "get_scales",
                      "get_alt_scales", "rtn_1x16s_fp4_kernel")
    for chooses in (False, True):
        out = torch.empty(SHAPE)
        forward.rtn_1x16s_fp4_kernel[grid](x, x.abs().max().view(1), out, x.numel(), 1.0, 16, chooses, block_size)
        line("quartet:mse:256" if chooses else "quartet", (1, 16), seed, None, out + 0.0)
    for word, draw in (("up", "0.0"), ("down", "1.0")):
        drawn = ("tl.rand(seed, scale_offsets)", f"({draw} + 0.0 * scale_offsets)")
        eden = kernels("src/models/quantization/schemes/quartet_2.py", folder, "eden_1x16s_fp4_kernel", drawn=drawn)
        out = torch.empty(SHAPE)
        eden.eden_1x16s_fp4_kernel[grid](x, torch.eye(32), x.abs().max().view(1), out, torch.zeros(1), x.numel(), 32,
                                         (17 / 16) * 0.93, 16, 0, block_size)
        line(f"ms-eden:{word}", (1, 16), seed, None, out + 0.0)


print(f"# torch {torch.__version__}, triton {triton.__version__}, TransformerEngine {commit(TE)}, "
      f"fouroversix {commit(FOUROVERSIX)}, Quartet-II {commit(QUARTET)}")
record_te()
record_te_hadamard()
record_four_over_six()
with tempfile.TemporaryDirectory() as directory:
    record_quartet(directory)
