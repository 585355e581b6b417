"""Records how TransformerEngine and DeepSeek scale and cast, by running their own Python on the processor:

    python tests/data/fp8_references/record.py TE DEEPGEMM DEEPSEEK_V3 > tests/data/fp8_references/recordings.txt

The arguments are work trees of those repositories (git checkouts, whose commits are printed). Run by hand with torch,
jax and triton from PyPI. Nothing of theirs is needed but the files that are read: functions are taken out of them and
run by themselves, so that no compiled extension is loaded. Triton's kernels run in its interpreter.

A line is a rule, its element format, the tensor's shape, that of a block (0: all of it), the seed of the numbers, a
hash of the decode scales (FP32 words; E8M0 as powers of two) and one of the codes. tests/test_block_references.cpp
makes the same numbers. Lines of special numbers have the numbers, the scale and the codes themselves.
"""
import ast
import ctypes
import os
import pathlib
import sys
import tempfile
import types

os.environ["TRITON_INTERPRET"] = "1"

import jax
import jax.numpy as jnp
import numpy
import torch
import triton

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from references import bytes_of, commit, fnv, functions, mixed

TE, DEEPGEMM, DEEPSEEK = (pathlib.Path(a) for a in sys.argv[1:4])
ELEMENTS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def numbers(rows, columns, height, width, seed):
    """Finite floats of every magnitude: blocks of one binade, of 16, of subnormals, of zeros; an eighth are zeros."""
    i, j = numpy.indices((rows, columns), dtype=numpy.uint32)
    height, width = height or rows, width or columns
    base = mixed(mixed(i // numpy.uint32(height) + numpy.uint32(seed)) + j // numpy.uint32(width))
    word = mixed(mixed(i + numpy.uint32(7 * seed + 1)) + j)
    spread = numpy.where(base >> 30 == 0, 1, 16).astype(numpy.uint32)
    exponent = (base >> 8) % numpy.uint32(239) + 1 + (word >> 24) % spread
    kind = (base >> 4) % numpy.uint32(16)
    exponent = numpy.where(kind == 1, 0, exponent).astype(numpy.uint32)
    bits = (word & 0x807FFFFF) | (exponent << 23)
    bits = numpy.where((kind == 0) | (mixed(word) % 8 == 0), word & 0x80000000, bits)
    return torch.from_numpy(bits.astype(numpy.uint32).view(numpy.float32).copy())


def powers(e8m0):
    return torch.ldexp(torch.ones(e8m0.shape), e8m0.to(torch.int32) - 127)


def line(rule, element, shape, block, seed, scales, codes):
    print(rule, element, *shape, *block, seed, fnv(bytes_of(scales.float())), fnv(bytes_of(codes)))


# TransformerEngine: blocks, per-tensor scales, MX, delayed scaling.
references = TE / "tests/pytorch/references"
scale_calc = functions(references / "quantize_scale_calc.py", "scale_from_amax_tensor")
blockwise = functions(references / "blockwise_quantizer_reference.py", "QuantizeResult", "CuBLASScaleMunger",
                      "BlockwiseQuantizerReference", scale_from_amax_tensor=scale_calc.scale_from_amax_tensor)
per_tensor = functions(references / "ref_per_tensor_cs.py", "_ref_compute_amax_scale", "ref_per_tensor_cs_cast",
                       DType=types.SimpleNamespace(kFloat8E4M3=None),
                       TE_DType_To_Torch={e: e for e in ELEMENTS.values()},
                       scale_from_amax_tensor=scale_calc.scale_from_amax_tensor)
mx = functions(TE / "tests/pytorch/test_mxfp8_2d_quantize.py", "MXFP8_BLOCK_SIZE", "FP8_E4M3_MAX", "_float_to_e8m0",
               "_e8m0_to_scale_inv", "_mxfp8_2d_quantize_reference")


def record_te_blocks():
    quantizer = blockwise.BlockwiseQuantizerReference()
    for tile, shape in {(1, 128): (200, 549), (128, 128): (300, 421)}.items():
        for element, dtype in ELEMENTS.items():
            for rule in ("te", "te-pow2"):
                seed = 1
                x = numbers(*shape, *tile, seed)
                options = {"pow_2_scales": rule == "te-pow2", "quant_tile_shape": tile, "munge_scale_shapes": False}
                q = quantizer.quantize(x, dtype, **options)
                line(rule, element, shape, tile, seed, q.scale, q.data)
                if tile[0] == 1:  # the transpose is scaled by itself
                    x_t = numbers(*shape, *tile[::-1], seed)
                    q = quantizer.quantize(x_t, dtype, return_transpose=True, **options)
                    line(rule, element, shape, tile[::-1], seed, q.scale_t.t(), q.data_t.t())


def record_te_tensors():
    """Each row is a tensor with a scale of its own."""
    shape, seed = (1000, 104), 2
    x = numbers(*shape, 1, 0, seed)
    for element, dtype in ELEMENTS.items():
        for rule in ("te", "te-pow2"):
            rows = [per_tensor.ref_per_tensor_cs_cast(row, dtype, force_pow_2_scales=rule == "te-pow2") for row in x]
            data, scales = (torch.stack([r[i] for r in rows]) for i in (0, 1))
            line(rule, element, shape, (1, 0), seed, scales, data)


def record_te_mx():
    shape, seed = (320, 352), 3
    data, scales, _ = mx._mxfp8_2d_quantize_reference(numbers(*shape, 32, 32, seed))
    line("mx-te", "e4m3", shape, (32, 32), seed, powers(scales[::32]), data)


def record_jax_mx():
    known = dict(jnp=jnp, jax=jax, ABC=object, dataclass=lambda c: c, register_pytree_node_class=lambda c: c,
                 Quantizer=object, ScalingMode=types.SimpleNamespace(MXFP8_1D_SCALING=None),
                 QuantizeLayout=types.SimpleNamespace(ROWWISE_COLWISE=None), ScaledTensor1x=None, NoScaleTensor=tuple,
                 ScaledTensorFactory=types.SimpleNamespace(create_1x=lambda data, scales, **_: (data, scales)))
    quantizer = functions(TE / "transformer_engine/jax/quantize/quantizer.py", "BlockScaleQuantizer", **known)
    mode = types.SimpleNamespace(get_scale_shape=lambda shape, **_: (shape[0], shape[1] // 32),
                                 get_scale_dtype=lambda: jnp.uint8)
    shape, seed = (800, 128), 4
    x = numbers(*shape, 1, 32, seed)
    x[x.abs() < 2**-100] = 1  # on the processor XLA takes subnormals for zeros, and a scale may be 2^-127
    for element, dtype in {"e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2}.items():
        q = quantizer.BlockScaleQuantizer()
        q.q_dtype, q.scaling_mode = dtype, mode
        data, scales = q._quantize_func(jnp.asarray(x.numpy()))
        codes = torch.from_numpy(numpy.array(data).view(numpy.uint8))
        line("mx-te:jax", element, shape, (1, 32), seed, powers(torch.from_numpy(numpy.array(scales))), codes)


def divided(amax, scale, fp8_max, recipe):
    """A recipe's own scaling_factor_compute_algo: TE's default rule, with one division, as its fused kernel has it."""
    quotient = torch.div(torch.full_like(amax, fp8_max), amax).clamp(max=torch.finfo(torch.float32).max)
    return torch.where(torch.isfinite(amax) & (amax > 0), quotient, scale)


def record_te_delayed():
    """The scales of 2,600 tensors over 40 steps, from the amax of each step. TE's Python divides a number by a tensor,
    which torch does by a reciprocal and a product; "unfused" is that, "delayed" takes the quotient."""
    delayed = functions(TE / "transformer_engine/pytorch/quantization.py", "_update_amax_history",
                        "_default_get_amax_and_update_history", "_default_sf_compute",
                        "_compute_amax_and_update_history", "_compute_scaling_factor", "_amax_and_scale_update",
                        DelayedScaling=None)
    tensors, steps, length = 2600, 40, 16
    amax = numbers(steps, tensors, 1, 1, 5).abs()
    amax[amax == 0] = 1
    amax[numpy.indices(amax.shape).sum(0) % 37 == 0] = torch.inf
    for kind, rule in (("delayed", divided), ("unfused", None)):
        for element, dtype in ELEMENTS.items():
            for algorithm in ("max", "most_recent"):
                recipe = types.SimpleNamespace(amax_compute_algo=algorithm, scaling_factor_compute_algo=rule, margin=0)
                history, scale, every = torch.zeros(length, tensors), torch.ones(tensors), []
                for step in range(steps):
                    history[0] = amax[step]
                    delayed._amax_and_scale_update(history, scale, torch.finfo(dtype).max, recipe)
                    every.append(scale.clone())
                print(f"{kind}:{algorithm}", element, steps, tensors, 1, 1, 5, fnv(bytes_of(torch.stack(every))), "-")


deepgemm = functions(DEEPGEMM / "deep_gemm/utils/math.py", "ceil_div", "align", "ceil_to_ue8m0", "pack_ue8m0_to_int",
                     "per_token_cast_to_fp8", "per_channel_cast_to_fp8", "per_block_cast_to_fp8")


def record_deepgemm():
    for rule in ("deepgemm", "deepgemm-pow2"):
        pow2 = rule == "deepgemm-pow2"
        for call, shape, block in ((deepgemm.per_token_cast_to_fp8, (200, 549), (1, 128)),
                                   (deepgemm.per_block_cast_to_fp8, (300, 421), (128, 128)),
                                   (deepgemm.per_channel_cast_to_fp8, (512, 211), (128, 1))):
            data, scales = call(numbers(*shape, *block, 6), pow2)
            line(rule, "e4m3", shape, block, 6, scales, data)
        data, scales = deepgemm.per_token_cast_to_fp8(numbers(800, 130, 1, 32, 7), pow2, gran_k=32)
        line(rule, "e4m3", (800, 130), (1, 32), 7, scales, data)


def deepseek_kernel(folder):
    """The kernel, from a file of its own, since triton reads a kernel's source."""
    text = (DEEPSEEK / "inference/kernel.py").read_text()
    kernel = next(ast.get_source_segment(text, node) for node in ast.parse(text).body
                  if getattr(node, "name", "") == "act_quant_kernel")
    (pathlib.Path(folder) / "act_quant.py").write_text(
        f"import triton\nimport triton.language as tl\n\n\n@triton.jit\n{kernel}\n")
    sys.path.insert(0, folder)
    return __import__("act_quant").act_quant_kernel


FOLDER = tempfile.TemporaryDirectory()
act_quant_kernel = deepseek_kernel(FOLDER.name)


def deepseek(x, scale_format):
    """DeepSeek-V3's cast. The interpreter divides as IEEE 754 does, which GPUs need not; its own cast to FP8 loses
    carries, so that the kernel stores quotients in FP32, and torch casts them."""
    quotients, scales = torch.empty(x.shape), torch.empty(x.shape[0], x.shape[1] // 128)
    act_quant_kernel[(scales.numel(),)](x, quotients, scales, BLOCK_SIZE=128, scale_fmt=scale_format)
    return quotients.to(ELEMENTS["e4m3"]), scales


def record_deepseek():
    shape, seed = (160, 640), 8
    for rule, scale_format in (("deepseek", None), ("deepseek-pow2", "ue8m0")):
        data, scales = deepseek(numbers(*shape, 1, 128, seed), scale_format)
        line(rule, "e4m3", shape, (1, 128), seed, scales, data)


SPECIAL = [[1, -3, 0.5, 0], [0, -0.0, 0, 0], [torch.inf, 1, -3, 0], [torch.nan, 1, -3, 0],
           [-torch.inf, torch.nan, 1, 0], [2**-149, 0, 0, 0], [2**-126, -(2**-127), 2**-149, 0], [1e-36, 1e-37, 0, 0],
           [3.4028234e38, 1, -1e38, 0], [1e-4, 1e-5, -1e-7, 0],
           # Here x / d and x * (1 / d) lie on two sides of a tie.
           [3, *(float.fromhex(x) for x in ("0x1.724924p-13", "0x1.a92492p-13", "0x1.724924p-12"))]]


def record_special():
    """Blocks of four numbers and zeros: the numbers, the decode scale, the codes."""
    def te_pow2(x):
        q = blockwise.BlockwiseQuantizerReference().quantize(x, ELEMENTS["e4m3"], pow_2_scales=True,
                                                             quant_tile_shape=(1, 128), munge_scale_shapes=False)
        return q.data, q.scale

    def te_mx(x):
        data, scales, _ = mx._mxfp8_2d_quantize_reference(torch.cat([x[:, :32], torch.zeros(31, 32)]))
        return data, powers(scales[:1])

    casts = {"te": lambda x: per_tensor.ref_per_tensor_cs_cast(x, ELEMENTS["e4m3"]), "te-pow2": te_pow2, "mx-te": te_mx,
             "deepgemm": lambda x: deepgemm.per_token_cast_to_fp8(x, False),
             "deepgemm-pow2": lambda x: deepgemm.per_token_cast_to_fp8(x, True),
             "deepseek": lambda x: deepseek(x, None), "deepseek-pow2": lambda x: deepseek(x, "ue8m0")}
    for rule, cast in casts.items():
        for row in SPECIAL:
            x = torch.zeros(1, 128)
            x[0, :4] = torch.tensor(row)
            try:
                data, scale, *_ = cast(x)
            except AssertionError:
                continue  # the reference refuses it
            print("special:" + rule, "e4m3", x[0, :4].numpy().astype(">f4").tobytes().hex(),
                  scale.float().numpy().astype(">f4").tobytes().hex(), bytes_of(data)[:4].hex())


def record_product():
    """cuBLAS' product of blocks, as TE's reference orders it, of operands whose partial sums are exact in FP32."""
    fmaf = ctypes.CDLL("libm.so.6").fmaf
    fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3

    def fused_fma(y, x, s):
        for at in numpy.ndindex(*y.shape):
            y[at] = fmaf(float(x[at]), float(s[at]), float(y[at]))

    def scaled_mm(a, b, **_):  # exact in double, and then in FP32
        exact = a.to(torch.float64) @ b.to(torch.float64)
        assert (exact.to(torch.float32).to(torch.float64) == exact).all()
        return exact.to(torch.float32)

    used = {name: getattr(torch, name) for name in ("zeros", "tensor", "float32", "dtype", "Tensor")}
    gemm = functions(references / "blockwise_fp8_gemm_reference.py", "CuBLASRefBlockwiseGemm", fused_fma=fused_fma,
                     torch=types.SimpleNamespace(**used, _scaled_mm=scaled_mm))
    m, n, k = 96, 64, 549
    blocks = (k + 127) // 128
    for rule in ("te-pow2", "te"):
        def operand(rows, seed):
            word = mixed(mixed(numpy.arange(rows, dtype=numpy.uint32)[:, None] + numpy.uint32(seed)) +
                         numpy.arange(k, dtype=numpy.uint32))
            codes = (word & 0x80) | (40 + (word >> 8) % 40)  # 2^-2 ... 15 * 2^0: exact sums
            return torch.from_numpy(codes.astype(numpy.uint8)).view(torch.float8_e4m3fn)

        def scale(rows, seed):
            word = mixed(mixed(numpy.arange(rows, dtype=numpy.uint32)[:, None] + numpy.uint32(seed)) +
                         numpy.arange(blocks, dtype=numpy.uint32))
            fraction = 0 if rule == "te-pow2" else word & 0x7FFFFF
            bits = (fraction | ((117 + (word >> 24) % 20) << 23)).astype(numpy.uint32)
            return torch.from_numpy(bits.view(numpy.float32))

        for w_tile, w_rows in (((1, 128), n), ((128, 128), 1)):
            y = gemm.CuBLASRefBlockwiseGemm().qgemm(operand(m, 11), operand(n, 12), torch.float32, scale(m, 13),
                                                    scale(w_rows, 14), (1, 128), w_tile)
            print("product:" + rule, "e4m3", m, n, k, w_tile[0], 11, fnv(bytes_of(y)), "-")


print(f"# torch {torch.__version__}, jax {jax.__version__}, triton {triton.__version__}, "
      f"TransformerEngine {commit(TE)}, DeepGEMM {commit(DEEPGEMM)}, DeepSeek-V3 {commit(DEEPSEEK)}")
record_te_blocks()
record_te_tensors()
record_te_mx()
record_jax_mx()
record_te_delayed()
record_deepgemm()
record_deepseek()
record_product()
record_special()
