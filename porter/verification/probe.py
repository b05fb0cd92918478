"""Bounds of activations that no image reaches, reached by other numbers.

Real weights keep far below the 6 of most ReLU6s, so images show nothing of it. A bias before the activation
that is moved, in the port and in its source by the same number, takes a few channels to the bound. What
follows goes on as before in all others, so that rounding does not grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.frameworks import Tensors
from porter.graph import Graph
from porter.verification.references import Place
from porter.verification.results import FirstBad, NodeDistance, Parity

_SHIFTS = ("beta", "bias")
"""The roles of the numbers that are added to each channel."""
_CHANNELS = 3
"""So many are moved: what comes to one may change, because biases before it were moved too."""


def moved_biases(
    graph: Graph, caps: Collection[str], values: Mapping[str, Array], tensors: Tensors
) -> dict[Place, Array]:
    """For each of `caps` that reads a layer with a bias, that bias with some channels moved so that half of
    their range lies beyond a bound; other channels for the other bound.

    Args:
        values: by path, those that the activations read, N x C x ...; only these are looked at.
        tensors: of the port, canonical.
    """
    found: dict[Place, Array] = {}
    for cap in caps:
        source = graph.by_path[cap].inputs[0]
        role = next((role for role in _SHIFTS if role in tensors.get(source, {})), None)
        if role is None or source not in values or any(node.shares == source for node in graph.nodes):
            continue
        bias = tensors[source][role]
        if bias.shape == values[source].shape[1:2]:
            found[source, role] = _moved(bias, values[source], graph.by_path[cap].op.bounds)
    return found


def _moved(bias: Array, values: Array, bounds: tuple[float, float]) -> Array:
    """Args: values: those of the layer with this bias; bounds: of the activation that reads them."""
    each = np.moveaxis(values, 1, 0).reshape(len(bias), -1)
    low, high = each.min(axis=1), each.max(axis=1)
    half, (least, most) = (high - low) / 2, bounds
    moved: NDArray[np.float64] = bias.astype(np.float64)
    free = half > 0
    for bound, lacks, way in (
        (most, high.max() < most, most - high + half),
        (least, low.min() > least, least - low - half),
    ):
        if np.isfinite(bound) and lacks:
            nearest = np.where(free, np.abs(way), np.inf).argsort()[:_CHANNELS]
            moved[nearest] += way[nearest]
            free[nearest] = False
    return moved.astype(bias.dtype)


def with_moved(tensors: Tensors, moved: Mapping[Place, Array]) -> dict[str, dict[str, Array]]:
    """The tensors with these in their places."""
    changed = {path: dict(roles) for path, roles in tensors.items()}
    for (path, role), bias in moved.items():
        changed[path][role] = bias
    return changed


def with_probed(parity: Parity, probed: Parity) -> Parity:
    """The comparison, with what a second one with moved biases says of the bounds that were not reached.

    A bound is another one where its activation is the first node that differs: what it reads is equal.
    """
    compared = {node.path for node in probed.nodes if node.ok} - set(probed.unreached)
    left = tuple(path for path in parity.unreached if path not in compared)
    bad = probed.first_bad
    if bad is not None and bad.path in parity.unreached:
        return replace(
            parity, ok=False, first_bad=bad, unreached=left, nodes=_with_worse(parity, probed, bad)
        )
    return replace(parity, unreached=left)


def _with_worse(parity: Parity, probed: Parity, bad: FirstBad) -> tuple[NodeDistance, ...]:
    """The compared nodes, with what the second comparison found of the one that differs."""
    worse = next(node for node in probed.nodes if node.path == bad.path)
    return tuple(worse if node.path == bad.path else node for node in parity.nodes)
