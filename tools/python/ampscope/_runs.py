"""What lies in files: recorded runs, and tensors."""
from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _ampscope
from ._conversions import decode

#: Element types that NumPy lacks, by their names in safetensors files.
_DECODED = {name: format for name, format, numpy, _, bits in _ampscope.dtypes if format and not numpy and bits >= 8}
_LAYOUT = _ampscope.run_layout


class Run:
    """A run folder, of amp-train or of ampscope.torch.record: .configuration (run.json), .metrics (a dict a step),
    .histograms (a dict a recorded tensor and step: its "kind", as "activation" or "weight_gradient", also where an
    earlier version named it otherwise, and its "histogram", a Histogram without the loss scale that gradients contain),
    .result (None where the run has not ended), .gradients (paths of files, for read_tensors). Raises OSError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self.configuration = _ampscope.read_json(str(self.path / _LAYOUT.configuration))
        self.metrics = _ampscope.read_json_lines(str(self.path / _LAYOUT.metrics))
        result = self.path / _LAYOUT.result
        self.result = _ampscope.read_json(str(result)) if result.exists() else None
        self.gradients = sorted((self.path / _LAYOUT.gradients).glob("*.safetensors"))

    @property
    def histograms(self) -> list[dict[str, Any]]:
        lines, _ = _ampscope.read_histogram_log(str(self.path / _LAYOUT.histograms))
        for line in lines:
            exponent = np.log2(line["loss_scale"])
            if exponent == np.floor(exponent):
                line["histogram"] = line["histogram"].scaled(-int(exponent))
        return lines

    def frame(self) -> Any:
        """The steps as a pandas.DataFrame."""
        import pandas
        return pandas.json_normalize(self.metrics).set_index("step")

    def __repr__(self):
        name = self.configuration.get("precision", {}).get("name", "?")
        return f"<ampscope.Run {str(self.path)!r}: {name}, {len(self.metrics)} steps>"


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The tensors of a .safetensors, .npy, .npz, .pt or .pth file, or of a checkpoint of many files, named by its
    folder, by name, and its metadata: (dict of arrays, dict of str). Formats that NumPy lacks are decoded to FP32;
    gradients still contain the loss scale of the metadata. Tensors that TransformerEngine quantized are what their
    codes and scales stand for, in FP64. A pickle is never executed. Raises OSError, which names the file and the place
    in it."""
    metadata, tensors = _ampscope.read_tensors(str(path))
    arrays = {}
    for name, dtype, numpy, shape, data in tensors:
        format = _DECODED.get(dtype)
        if format:
            arrays[name] = decode(data.view(np.uint16 if dtype == "BF16" else np.uint8), format).reshape(shape)
        elif numpy:
            arrays[name] = data.view("<" + numpy).reshape(shape)
        else:
            raise OSError(f"{path}: {name}: {dtype} elements are packed; amp-histogram counts them")
    return arrays, metadata
