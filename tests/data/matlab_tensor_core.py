#!/usr/bin/env python3
"""Dot products recorded on GPUs, as the files that test_crosscheck_tool reads: GPU_FORMAT.npz.

They are no part of the project, since others made them: F. A. Khattak and M. Mikaitis, BSD 2-Clause. Usage:
    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core CLONE
    matlab_tensor_core.py CLONE FOLDER/hardware
and the tests find them with AMPSCOPE_SHARED=FOLDER. The files of the tests are those of commit b12b5a7.
"""
import pathlib
import struct
import sys
import zipfile

GPUS = {"V100": ["fp16"], "A100": ["fp16", "bf16", "tf32"], **{gpu: ["fp16", "bf16", "tf32", "E4M3", "E5M2"]
                                                               for gpu in ("Ada", "H100", "B200")}}
CASES = 5000


def words(path):
    """FP32 bits, in hexadecimal for operands and in binary for the others."""
    return [int(word, 2 if len(word) == 32 else 16) for word in path.read_text().split()]


def array(numbers):
    """A file of NumPy's format: 32-bit words, a row for each case."""
    length = len(numbers) // CASES
    shape = f"({CASES},)" if length == 1 else f"({CASES}, {length})"
    header = f"{{'descr': '<u4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return magic + header.encode() + struct.pack(f"<{len(numbers)}I", *numbers)


def write(path, arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, numbers in arrays.items():
            file.writestr(f"{name}.npy", array(numbers))


def main(clone, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for gpu, formats in GPUS.items():
        for name in formats:
            source = clone / "model_validation" / gpu / name
            arrays = {"a": words(source / f"a_{gpu}_{name}.txt"), "b": words(source / f"b_{gpu}_{name}.txt"),
                      "c": words(source / f"c_{gpu}_fp32.txt")}
            outputs = {f"d_{width}": words(source / f"d_{gpu}_{width}.txt") for width in ("fp32", "fp16")
                       if (source / f"d_{gpu}_{width}.txt").exists()}
            if gpu == "H100" and name.startswith("E"):  # FP32 by wgmma from a sum of zero, FP16 by mma.sync
                write(folder / f"H100mma_{name.lower()}.npz", {**arrays, "d_fp16": outputs.pop("d_fp16")})
                arrays["c"] = [0] * CASES
            write(folder / f"{gpu}_{name.lower()}.npz", {**arrays, **outputs})


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
