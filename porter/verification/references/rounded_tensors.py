"""The tensors of a source, rounded to the type in which a port stores them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from porter.base.dtypes import Array, Dtype, is_floating, storage_type
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import OwnTensors, Tensors


def round_checkpoint(checkpoint: Checkpoint, dtype: Dtype, of_layers: Collection[str]) -> Checkpoint:
    """Round the checkpoint's floating tensors to a port's storage type, so that both sides hold the same
    numbers.

    Args:
        of_layers: names of those that layers have. Others are constants of the graph, which a port holds as
            exactly as the file.
    """
    tensors = {
        name: _round(array, dtype) if name in of_layers else array
        for name, array in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def round_tensors(tensors: Tensors, dtype: Dtype) -> OwnTensors:
    """Round canonical tensors as `round_checkpoint` does."""
    return {
        path: {role: _round(array, dtype) for role, array in roles.items()} for path, roles in tensors.items()
    }


def _round(array: Array, dtype: Dtype) -> Array:
    """Return a tensor rounded to a storage type and held in float32, as `0.1` in float16 is 0.09998. float64
    rounds nothing, and numbers that are not floating stay as they are.
    """
    if dtype == "float64" or not is_floating(array):
        return array
    return array.astype(storage_type(dtype), copy=False).astype(np.float32, copy=False)
