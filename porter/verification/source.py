"""The model that a port is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from porter.dtypes import Array, Dtype, is_floating, storage_type
from porter.frameworks import Framework, Tensors
from porter.frameworks.checkpoint import Checkpoint
from porter.graph import Graph
from porter.plan import make_plan
from porter.recipe import LayerName, Zoo


class Source(Protocol):
    """Gives the source's values at a graph's nodes."""

    @property
    def name(self) -> str:
        """The reference that computes them, or `self` for porter's own build, which is no proof."""

    def run(self, batch: Array, dtype: Dtype) -> dict[str, Array]:
        """Values by path for a batch N x C x H x W, maps as N x C x H x W."""


@dataclass
class Reference:
    """The zoo's own implementation, which porter did not write, with the file's tensors under their own names."""

    framework: Framework
    zoo: Zoo
    variant: str
    classes: int
    checkpoint: Checkpoint
    layers: Mapping[str, LayerName]
    keep_background: bool
    _built: dict[tuple[tuple[int, ...], Dtype], Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.zoo.reference)

    def run(self, batch: Array, dtype: Dtype) -> dict[str, Array]:
        size = batch.shape[2:]
        if (size, dtype) not in self._built:
            self._built = {
                (size, dtype): self.framework.build_reference(
                    self.name, self.variant, self.classes, (size[0], size[1]), self.checkpoint, dtype
                )
            }
        taps = {path: layer.name for path, layer in self.layers.items()}
        values = self.framework.run_reference(self._built[size, dtype], batch.astype(dtype), taps)
        return {path: self._without_background(path, value) for path, value in values.items()}

    def _without_background(self, path: str, value: Array) -> Array:
        dropped = "drop_background" in self.layers[path].transforms and not self.keep_background
        return value[:, 1:] if dropped else value


@dataclass
class OwnBuild:
    """Porter's own build in the source's framework: it shows that two frameworks agree, not that the graph is right."""

    framework: Framework
    graph: Graph
    tensors: Tensors
    name: str = "self"

    def run(self, batch: Array, dtype: Dtype) -> dict[str, Array]:
        rows, columns = batch.shape[2:]
        plan = make_plan(self.graph, (rows, columns), self.framework.CAPABILITIES)
        model = self.framework.build(plan, self.tensors, {}, dtype, "cpu")
        paths = [node.path for node in self.graph.nodes]
        return self.framework.run(model, batch.astype(dtype), paths)


def rounded(checkpoint: Checkpoint, dtype: Dtype) -> Checkpoint:
    """The checkpoint with its floating tensors rounded to a port's storage type, so that both sides hold the same numbers."""
    return replace(checkpoint, tensors={name: _rounded(array, dtype) for name, array in checkpoint.tensors.items()})


def rounded_tensors(tensors: Tensors, dtype: Dtype) -> Tensors:
    """As `rounded`, for canonical tensors."""
    return {path: {role: _rounded(array, dtype) for role, array in roles.items()} for path, roles in tensors.items()}


def _rounded(array: Array, dtype: Dtype) -> Array:
    kept = dtype in ("float32", "float64") or not is_floating(array)
    return array if kept else array.astype(storage_type(dtype)).astype(np.float32)
