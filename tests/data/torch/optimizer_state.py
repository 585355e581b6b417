#!/usr/bin/env python3
"""Adam with state in blocks as torchao and bitsandbytes keep it, over 1,000 steps on the processor, as golden data.

    pip install torchao==0.18.0 bitsandbytes==0.50.2    # beside torch 2.15.0
    for c in default avx2; do ATEN_CPU_CAPABILITY=$c python3 optimizer_state.py; done > optimizer_state.jsonl

prints the tables of numbers that its codes stand for, a row each, and a row for each case as optimizer.py does, whose
elements, hashes and square roots it uses: hashes of weight, m and v, as the next step reads them, after some steps, and
some numbers of the three after the last. Of torchao nothing is compiled: the function that its optimizers compile is
called, on the state that they make.

A block's gradients are smaller than those of the block before it by 2^-4, down to 2^-68, which is below what the least
scale can hold; the last 256 elements have none before step 5. In step 500 one gradient is infinite and one is NaN.
What becomes of these, and of a v whose inverse is infinite, bitsandbytes does not define: its gradients have neither,
and its blocks are smaller by 2^-2 each. Its last block has half as many elements.
"""
import json
import os
from importlib.metadata import version

import bitsandbytes
import torch
from torchao.optim import subclass_4bit, subclass_8bit
from torchao.optim.adam import Adam4bit, Adam8bit, AdamFp8, single_param_adam

import optimizer as common

BLOCK = 256
STATES = {"dynamic8:256": Adam8bit, "dynamic4:128": Adam4bit, "e4m3:256": AdamFp8}
CASES = [  # it is AdamW where there is a weight decay
    {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    {"lr": 1e-2, "betas": (0.4, 0.3), "eps": 1e-3, "weight_decay": 0.1},
]


class TorchAo:
    """The step that torchao's optimizers compile, on the state that they make."""
    elements, binades = 18 * BLOCK, 4

    def __init__(self, p, state, options):
        maker = STATES[state]([p])
        self.p, self.count, self.options = p, torch.tensor(0.0), options
        self.m, self.v = maker._new_buffer(p, True), maker._new_buffer(p, False)
        self.lr = torch.tensor(options["lr"], dtype=torch.float32)

    @torch.no_grad()
    def step(self, gradient):
        self.count += 1
        single_param_adam(self.p.detach(), gradient, self.count, self.m, self.v, None, self.lr, *self.options["betas"],
                          self.options["weight_decay"], self.options["eps"], self.options["weight_decay"] > 0, False)

    def moments(self):
        return self.m.dequantize(), self.v.dequantize()


class BitsAndBytes:
    """bitsandbytes' own optimizer."""
    elements, binades = 18 * BLOCK + BLOCK // 2, 2

    def __init__(self, p, state, options):
        self.p, self.optimizer = p, bitsandbytes.optim.AdamW8bit([p], **options)

    def step(self, gradient):
        self.p.grad = gradient
        self.optimizer.step()

    def moments(self):
        s = self.optimizer.state[self.p]
        return [bitsandbytes.functional.dequantize_blockwise(s["state" + n], absmax=s["absmax" + n], code=s["qmap" + n],
                                                             blocksize=BLOCK) for n in "12"]


def run(state, options, dtype):
    kind = TorchAo if state in STATES else BitsAndBytes
    stream = common.Stream(kind.elements)
    smaller = torch.ldexp(torch.ones(kind.elements), -kind.binades * (torch.arange(kind.elements) // BLOCK))
    p = torch.nn.Parameter(stream.next(3).to(dtype))
    optimizer, hashes = kind(p, state, options), {}
    for step in range(1, common.STEPS + 1):
        gradient = stream.next(12) * smaller
        if step < 5:
            gradient[-BLOCK:] = 0
        if step == 500 and kind is TorchAo:
            gradient[600], gradient[900] = torch.inf, torch.nan
        optimizer.step(gradient.to(dtype))
        if step in common.SHOWN:
            hashes[step] = "%016x" % common.fnv([w for t in (p, *optimizer.moments()) for w in common.bits(t)])
    m, v = optimizer.moments()
    return hashes, {name: ["%08x" % w for w in common.bits(t)[::512]]
                    for name, t in (("weight", p), ("m", m), ("v", v))}


def main():
    torch.set_num_threads(1)
    common.exact_roots()
    about = {"torch": torch.__version__, "capability": os.environ["ATEN_CPU_CAPABILITY"]}
    for state, module in (("dynamic8:256", subclass_8bit), ("dynamic4:128", subclass_4bit)):
        for moment, numbers in (("m", module.get_qmap_signed()), ("v", module.get_qmap_unsigned())):
            print(json.dumps({"package": f"torchao {version('torchao')}", **about, "state": state, "moment": moment,
                              "numbers": ["%08x" % w for w in common.bits(torch.tensor(numbers))]}))
    for dtype in ("fp32", "bf16"):
        for state in (*STATES, "bnb8:256"):
            for options in CASES:
                hashes, kept = run(state, options, common.DTYPES[dtype])
                package = "torchao" if state in STATES else "bitsandbytes"
                adam = "torchao-adamw" if options["weight_decay"] > 0 else "torchao-adam"
                row = adam if state in STATES else "bnb-adamw"
                print(json.dumps({"package": f"{package} {version(package)}", **about, "dtype": dtype, "state": state,
                                  "optimizer": row, **options, "hashes": hashes, **kept}))


if __name__ == "__main__":
    main()
