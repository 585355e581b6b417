"""The package in a process that rounds in another direction or flushes subnormals, as torch.set_flush_denormal does."""
import ctypes
import ctypes.util
import platform

import numpy as np
import pytest

import ampscope

libm = ctypes.CDLL(ctypes.util.find_library("m"))
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the control words of x86-64")


class Environment:
    """glibc's fenv_t of x86-64 is 32 bytes: the x87 control word first, MXCSR last."""
    masks = {"down": (0x400, 0x2000), "up": (0x800, 0x4000), "toward zero": (0xC00, 0x6000), "ftz": (0, 0x8000),
             "daz": (0, 0x40)}

    def __init__(self, name):
        self.before, wanted = (ctypes.c_uint16 * 16)(), (ctypes.c_uint16 * 16)()
        libm.fegetenv(self.before)
        wanted[:] = self.before[:]
        wanted[0] |= self.masks[name][0]
        wanted[14] |= self.masks[name][1]
        self.wanted = wanted

    def __enter__(self):
        libm.fesetenv(self.wanted)
        return self

    def __exit__(self, *_):
        now = (ctypes.c_uint16 * 16)()
        libm.fegetenv(now)
        libm.fesetenv(self.before)
        assert now[0] == self.wanted[0] and (now[14] ^ self.wanted[14]) & ~0x3F == 0  # less what has happened


words = np.random.default_rng(1).integers(0, 1 << 32, 4099, dtype=np.uint32)
words[::8] &= 0x807FFFFF
floats = words.view(np.float32)
tame = np.random.default_rng(2).standard_normal(4099).astype(np.float32)
codes = np.arange(256, dtype=np.uint8)

calls = {
    "quantize": lambda: ampscope.quantize(floats, "fp16", rounding="stochastic").tobytes(),
    "encode": lambda: ampscope.encode(floats, "e5m2").tobytes(),
    "decode": lambda: ampscope.decode(codes, "e4m3").tobytes(),
    "add": lambda: ampscope.add(floats, floats, format="bf16").tobytes(),
    "facts": lambda: ampscope.format("e5m2").facts(),
    "smallest": lambda: ampscope.format("fp32").min_subnormal,
    "histogram": lambda: ampscope.histogram(floats).exponents,
    "recommend": lambda: ampscope.histogram(tame).recommend("e4m3", limit=0.3),
    "picture": lambda: ampscope.histogram(floats).svg(),
    "train": lambda: ampscope.train(model="mlp", steps=2, width=8, precision="amp-fp16"),
}


@pytest.mark.parametrize("name", calls)
@pytest.mark.parametrize("environment", Environment.masks)
def test_results_are_the_same(name, environment):
    want = calls[name]()
    with Environment(environment):
        got = calls[name]()
    assert got == want
