"""Networks of Flax's linen as references, for zoos whose own code porter does not have: the tests write it,
with the zoo's names of modules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from porter.base.dtypes import Dtype
from porter.graph import Rearrange, shapes
from porter.recipe import expand, layer_names
from porter.source.opened import Opened
from tests.support.arrays import Array

PARAMS = "params/"
COLLECTIONS = (PARAMS, "batch_stats/")


class LinenValues:
    """The values of a source by a module, run by jax (Reference of porter.verification)."""

    name, run_by = "the zoo's own code, as the tests have it", "JAX"

    def __init__(self, opened: Opened, module: nn.Module) -> None:
        assert opened.member is not None and opened.fitted is not None
        self.module, self.graph = module, opened.graph
        self.native = (
            opened.sizes.built if any(isinstance(node.op, Rearrange) for node in self.graph.nodes) else None
        )
        layers = layer_names(opened.member, expand(opened.member))
        self.paths = {layer.name.removeprefix(PARAMS): path for path, layer in layers.items()}
        tensors = opened.fitted.checkpoint.tensors
        collections = {name: array for name, array in tensors.items() if name.startswith(COLLECTIONS)}
        self.tensors: Mapping[str, Array] = collections or {
            f"{PARAMS}{name}": tensors[name] for name in tensors
        }

    def takes(self, size: tuple[int, int]) -> bool:
        return self.native in (None, size)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            state = unflatten_dict(
                {name: array.astype(dtype) for name, array in self.tensors.items()}, sep="/"
            )
            images = batch.astype(dtype).transpose(0, 2, 3, 1)
            _, shown = self.module.apply(state, images, capture_intermediates=True)
        values = {
            name.removesuffix("/__call__"): value[0]
            for name, value in flatten_dict(shown["intermediates"], sep="/").items()
        }
        axes = shapes(self.graph, (batch.shape[2], batch.shape[3]))
        return {
            path: _canonical(values[name], axes[path]) for name, path in self.paths.items() if name in values
        }


def _canonical(value: Any, shape: tuple[int | None, ...]) -> Array:
    """A value in porter's order: channels of maps come first, and heads lie in an array's channels."""
    found = np.asarray(value)
    if len(shape) == 3 and found.shape[-1] == shape[0]:
        return found.transpose(0, 3, 1, 2)
    return found.reshape(len(found), *(size or 0 for size in shape))
