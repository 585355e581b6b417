"""A recorded file, read with numpy only. What is in it, records.py says."""
import hashlib
import io
import json
import os

import numpy as np

from .rules import UNSIGNED, values_of


def digest(codes):
    """Names an array of bits."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()[:16]


def _from_planes(planes):
    return np.ascontiguousarray(planes.T).reshape(-1).view(UNSIGNED[len(planes)])


def recorded(folder, item):
    """The path of an item's file, or None if there is none."""
    paths = [os.path.join(folder, item + end) for end in (".npz", ".json")]
    return next((path for path in paths if os.path.exists(path)), None)


class Recording:
    """An item's file: .facts, .cases, and the bits that they speak of."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        self.arrays = {}
        if path.endswith(".npz"):
            with np.load(io.BytesIO(data)) as file:
                self.arrays = {key.partition("-")[0]: (key.partition("-")[2], file[key]) for key in file.files}
            data = self.arrays.pop("facts")[1].tobytes()
        self.facts = json.loads(data)
        self.cases = self.facts.pop("cases")

    def _codes(self, key):
        base, planes = self.arrays[key]
        codes = _from_planes(planes)
        if not base:
            return codes
        half = codes >> 1
        return self._codes(base) + np.where(codes & 1, ~half, half).astype(codes.dtype)

    def bits(self, said):
        """The bits that were kept of a tensor."""
        shape = list(said["shape"])
        if "rows" in said:
            shape[0] = len(said["rows"])
        if "columns" in said:
            shape[-1] = min(said["columns"], shape[-1])
        return self._codes(said["key"]).reshape(shape)

    def values(self, said):
        return values_of(self.bits(said), said["type"])
