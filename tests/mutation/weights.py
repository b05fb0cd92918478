"""Weights that behave well or badly: the same function of other numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from porter.frameworks import Tensors
from porter.graph import Graph
from tests.support.arrays import Array

Scale = Callable[[Graph, Tensors, np.random.Generator], dict[str, dict[str, Array]]]


def _calibrated(graph: Graph, tensors: Tensors, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    return {path: dict(roles) for path, roles in tensors.items()}


def _dead(graph: Graph, tensors: Tensors, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    """A third of all channels far below zero, and some kernels of zeros."""
    found = _calibrated(graph, tensors, rng)
    for path, roles in found.items():
        for role in ("bias", "beta"):
            if role in roles and path not in graph.outputs:
                roles[role] = np.where(
                    rng.random(roles[role].shape) < 0.3, np.float32(-30), roles[role]
                ).astype(np.float32)
        if "kernel" in roles and path not in graph.outputs:
            dead = rng.random(len(roles["kernel"])) < 0.1
            roles["kernel"] = np.where(
                dead.reshape(-1, *[1] * (roles["kernel"].ndim - 1)), 0, roles["kernel"]
            ).astype(np.float32)
    return found


def _times(factor: float, every: bool) -> Scale:
    """Values so many times as large, from the first layer on or from each one with a norm."""

    def scaled(graph: Graph, tensors: Tensors, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = _calibrated(graph, tensors, rng)
        for roles in found.values():
            role = "gamma" if "gamma" in roles else "kernel" if "kernel" in roles else None
            if role is not None:
                roles[role] = (roles[role] * np.float32(factor)).astype(np.float32)
                if not every:
                    break
        return found

    return scaled


def _head(factor: float) -> Scale:
    def scaled(graph: Graph, tensors: Tensors, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
        found = _calibrated(graph, tensors, rng)
        kernels = [path for path in found if "kernel" in found[path]]
        for path in kernels[-1:]:
            found[path] = {
                role: (array * np.float32(factor)).astype(array.dtype) for role, array in found[path].items()
            }
        return found

    return scaled


SCALES: Mapping[str, Scale] = {
    "calibrated": _calibrated,
    "dead": _dead,
    "again": _calibrated,
    "loud": _times(1e3, False),
    "faint": _times(1e-3, False),
    "growing": _times(1.2, True),
    "saturated": _head(1e3),
}
