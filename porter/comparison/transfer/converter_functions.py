"""What a converter computes, and how it reads Keras's h5 files. Converters have these functions as they stand
here, so that they import nothing of porter's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def folded_kernel(kernel: Any, gamma: Any, variance: Any, epsilon: float) -> Any:
    """A kernel, filters first, with the batch norm behind it."""
    scale = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
    return (kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1))).astype(kernel.dtype)


def folded_bias(bias: Any, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    """A bias with the batch norm behind it."""
    scale = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
    return (beta + (bias - mean.astype(np.float64)) * scale).astype(variance.dtype)


def mean_less_bias(mean: Any, bias: Any) -> Any:
    """The mean of a batch norm whose layer has no bias."""
    return (mean.astype(np.float64) - bias).astype(mean.dtype)


def read_h5(path: str | Path) -> dict[str, Any]:
    """The tensors of a file of Keras by layer and variable."""
    import h5py

    tensors = {}
    with h5py.File(path) as file:
        layers = file.get("model_weights", file)
        for layer, group in layers.items():
            for name in group.attrs.get("weight_names", ()):
                name = name.decode() if isinstance(name, bytes) else name
                variable = name.rpartition("/")[2].removesuffix(":0")
                tensors[f"{layer}/{variable}"] = group[name][()]
    return tensors
