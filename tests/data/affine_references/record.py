"""Records how ONNX Runtime and PyTorch choose scales and zero points and quantise with them, on the processor:

    python tests/data/affine_references/record.py > tests/data/affine_references/recordings.txt

Run by hand with torch, onnx and onnxruntime from PyPI. Eight bits: DynamicQuantizeLinear of ONNX Runtime, called for
every block, gives scale, zero point and codes, all UINT8. Four bits: ONNX Runtime has no such operator; scales and zero
points are those of torch.ao's observer (PerChannelMinMaxObserver, whose channels are the blocks; its eps is made
smaller than any scale), and the codes those of ONNX Runtime's QuantizeLinear to UINT4 in blocks. The observer's scales
and zero points of eight bits are compared with DynamicQuantizeLinear's here, too.

A line is the number of bits, the shape, that of a block, the seed of the numbers, and hashes of the scales (FP32
words), of the zero points and of the codes (a byte each, in C order). tests/test_affine.cpp makes the same numbers.
"""
import pathlib
import sys

import numpy
import onnx
import onnx.helper
import onnxruntime
import torch
from torch.ao.quantization.observer import PerChannelMinMaxObserver

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from references import fnv, mixed

SHAPE = (1024, 1024)


def numbers(height, width, seed, steps):
    """Blocks of 14 binades with numbers of six binades in each. Some blocks are zeros, some have one sign, and some
    have numbers on the ties between codes, with a scale that is a power of two, or so near to them that a quotient
    x / s and a product with 1 / s are rounded to different codes."""
    i, j = numpy.indices(SHAPE, dtype=numpy.uint32)
    base = mixed(mixed(i // numpy.uint32(height) + numpy.uint32(seed)) + j // numpy.uint32(width))
    word = mixed(mixed(i + numpy.uint32(7 * seed + 1)) + j)
    kind = base >> 29
    bits = (word & 0x807FFFFF) | ((130 - base % 14 - (word >> 24) % 6) << 23)
    bits = numpy.where(kind == 1, bits & 0x7FFFFFFF, bits)
    bits = numpy.where(kind == 2, bits | 0x80000000, bits)
    bits = numpy.where((kind == 0) | (mixed(word) % 8 == 0), word & 0x80000000, bits)
    plain = bits.astype(numpy.uint32).view(numpy.float32)
    halves = (word % (2 * steps + 1)).astype(numpy.float32) * numpy.float32(0.5)
    top = i % numpy.uint32(height) == 0
    halves = numpy.where(top & (j % numpy.uint32(width) == 0), numpy.float32(steps), halves)
    halves = numpy.where(top & (j % numpy.uint32(width) == 1), numpy.float32(0), halves)
    factor = numpy.array([1, 1.1, 1.3, 1.7], numpy.float32)[(base >> 8) % 4]
    factor = factor * numpy.exp2((base % 5).astype(numpy.float32))
    ties = (halves - (base % (steps + 1)).astype(numpy.float32)) * factor
    return numpy.where(kind >= 5, ties, plain).astype(numpy.float32)


def session(nodes, inputs, outputs):
    value = lambda name, kind, shape: onnx.helper.make_tensor_value_info(name, kind, shape)
    graph = onnx.helper.make_graph(nodes, "g", [value(*v) for v in inputs], [value(*v) for v in outputs])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


FLOAT, UINT8, UINT4 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8, onnx.TensorProto.UINT4
DYNAMIC = session([onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], [("x", FLOAT, [None])],
                  [("q", UINT8, [None]), ("s", FLOAT, []), ("z", UINT8, [])])


def blocks(x, height, width):
    """One row for each block, in C order."""
    down, across = SHAPE[0] // height, SHAPE[1] // width
    return x.reshape(down, height, across, width).swapaxes(1, 2).reshape(down * across, height * width)


def observed(rows, steps):
    observer = PerChannelMinMaxObserver(ch_axis=0, dtype=torch.quint8, quant_min=0, quant_max=steps, eps=1e-30)
    observer(torch.from_numpy(rows.copy()))
    scale, zero = observer.calculate_qparams()
    scale = torch.where(torch.from_numpy(abs(rows).max(1) == 0), torch.ones_like(scale), scale)  # as ONNX Runtime
    return scale.numpy(), zero.numpy().astype(numpy.uint8)


def eight_bits(rows):
    results = [DYNAMIC.run(None, {"x": row}) for row in rows]
    q, scale, zero = (numpy.array([r[k] for r in results]) for k in range(3))
    other = observed(rows, 255)
    assert (scale == other[0]).all() and (zero == other[1]).all()
    return q, scale, zero


def four_bits(rows):
    scale, zero = observed(rows, 15)
    quantize = session([onnx.helper.make_node("Cast", ["z"], ["z4"], to=UINT4),
                        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z4"], ["q4"], axis=1,
                                              block_size=rows.shape[1]),
                        onnx.helper.make_node("Cast", ["q4"], ["q"], to=UINT8)],
                       [("x", FLOAT, rows.shape), ("s", FLOAT, [len(rows), 1]), ("z", UINT8, [len(rows), 1])],
                       [("q", UINT8, rows.shape)])
    return quantize.run(None, {"x": rows, "s": scale[:, None], "z": zero[:, None]})[0], scale, zero


print("# torch", torch.__version__, "onnxruntime", onnxruntime.__version__)
for bits, block in [(8, b) for b in ((1024, 1024), (1, 1024), (1024, 1), (1, 128), (1, 64), (1, 32), (32, 32))] + [
        (4, b) for b in ((1, 128), (1, 64), (1, 32), (1, 1024))]:
    for seed in range(1, 5 if block == (1024, 1024) else 2):
        x = numbers(*block, seed, 2**bits - 1)
        q, scale, zero = (eight_bits if bits == 8 else four_bits)(blocks(x, *block))
        down, across = SHAPE[0] // block[0], SHAPE[1] // block[1]
        codes = q.reshape(down, across, *block).swapaxes(1, 2).reshape(SHAPE)
        print(bits, *SHAPE, *block, seed, fnv(scale.astype(numpy.float32).tobytes()), fnv(zero.tobytes()),
              fnv(codes.astype(numpy.uint8).tobytes()))
