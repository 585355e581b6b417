"""Traces of torch.amp.GradScaler("cpu") on 10,000 random sequences, for tests/test_grad_scaler_torch.cpp.

usage: python grad_scaler.py > grad_scaler.txt    (made with PyTorch 2.15.0+cu132 on x86-64)

Options, gradients and overflows follow from splitmix64 words that the test draws in the same order. A line a sequence:
the FNV-1a hash, cut to 32 bits, of what every step left: the unscaled gradient, the scale and the growth tracker (all
as 32 bits, a NaN as 0x7fc00000) and whether the optimizer stepped.
"""
import struct
import sys
import warnings

import torch

SEQUENCES, STEPS = 10000, 40


class Words:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() >> 32) % n


INIT = [65536.0, 1.0, 1000.0, 2.0**-130, 2.0**120, 3.0e38, 0.1]
GROWTH = [2.0, 1.5, 4.0, 1.1, 1.0000001]
BACKOFF = [0.5, 0.25, 0.7, 0.9999999]


def bits(tensor):
    value = tensor.detach().reshape(-1)[0].float()
    return 0x7FC00000 if torch.isnan(value) else struct.unpack("<I", struct.pack("<f", value.item()))[0]


def sequence(number, device="cpu", trace=None):
    """The hash of a sequence. Scales and growth trackers of its steps are appended to the list `trace`."""
    words = Words(number)
    scaler = torch.amp.GradScaler(device, init_scale=INIT[words.below(7)], growth_factor=GROWTH[words.below(5)],
                                  backoff_factor=BACKOFF[words.below(4)], growth_interval=1 + words.below(5))
    overflows = words.below(4)  # quarters
    weight = torch.zeros(1, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    steps = [0]
    optimizer.register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    state = 0xCBF29CE484222325

    def add(value):
        nonlocal state
        for byte in struct.pack("<I", value):
            state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)

    scaler.scale(torch.zeros(1, device=device))  # makes its tensors
    for _ in range(STEPS):
        if words.below(4) < overflows:
            code = [0x7F800000, 0xFF800000, 0x7FC00000][words.below(3)]
        else:
            code = words.next() >> 32
            if code & 0x7F800000 == 0x7F800000:
                code ^= 0x40000000
        weight.grad = torch.tensor([struct.unpack("<f", struct.pack("<I", code))[0]], device=device)
        before = steps[0]
        scaler.unscale_(optimizer)
        add(bits(weight.grad))
        scaler.step(optimizer)
        add(steps[0] - before)
        scaler.update()
        left = [bits(scaler._scale), int(scaler._growth_tracker.item())]
        add(left[0])
        add(left[1])
        if trace is not None:
            trace.append(left)
    return state & 0xFFFFFFFF


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for i in range(SEQUENCES):
        sys.stdout.write(f"{sequence(i):08x}\n")
