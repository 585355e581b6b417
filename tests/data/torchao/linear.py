"""Records a Float8Linear of torchao, forward and backward, in its three recipes. Run by hand as scales.py; numbers are
FP32 words:

    python tests/data/torchao/linear.py > tests/data/torchao/linear.json
"""
import json

import numpy
import torch
import torchao
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

TOKENS, INPUTS, OUTPUTS = 16, 48, 32


def numbers(count, seed, spread):
    """Of a linear congruential generator: (w / 2^31 - 1) * 2^(0 ... -spread), exact in FP32 but for the last
    rounding."""
    out, x = [], seed
    for _ in range(count):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append(numpy.float32(numpy.ldexp(x / 2**31 - 1, -int((x >> 8) % (spread + 1)))))
    return numpy.array(out)


def run(recipe):
    linear = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    linear.weight.data = torch.from_numpy(numbers(OUTPUTS * INPUTS, 2, 4).reshape(OUTPUTS, INPUTS))
    config = Float8LinearConfig.from_recipe_name(recipe)
    object.__setattr__(config, "emulate", True)
    layer = convert_to_float8_training(torch.nn.Sequential(linear), config=config)
    x = torch.from_numpy(numbers(TOKENS * INPUTS, 1, 6).reshape(TOKENS, INPUTS)).requires_grad_()
    out = layer(x)
    out.backward(torch.from_numpy(numbers(TOKENS * OUTPUTS, 3, 12).reshape(TOKENS, OUTPUTS)))
    return {name: t.detach().contiguous().numpy().astype(">f4").tobytes().hex() for name, t in
            (("out", out), ("grad_input", x.grad), ("grad_weight", layer[0].weight.grad))}


recipes = {name: run(name) for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp")}
print(json.dumps({"versions": [torch.__version__, torchao.__version__], "recipes": recipes}, separators=(",", ":")))
