"""Whether a mutant is another function: it is run beside the right port on many images of what the network
takes.

The judge knows nothing of the proof: it runs torch in float64 and looks at the outputs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from porter.base.errors import PorterError
from porter.frameworks import Tensors, get_destination
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import ANY
from porter.verification.inputs import NORMAL, InputRange, make_images
from tests.support.arrays import Array

MOVED = 1e-9
"""A mutant whose outputs are further away, in relative L2 distance, is another function."""
_LEAST = 1e-6
"""Of the largest output of a batch: where an output cancels to less, its rounding is measured against
this.
"""
_ROUNDING = 1e3
"""As many times the right port's own rounding is no rounding."""
_BATCH = 6


def judges_images(size: tuple[int, int], channels: int, taken: InputRange, seed: int) -> Array:
    """Twenty-four images N x C x H x W in a range: as pictures, noise, flat colours, boards, edges, extremes
    and single cells.
    """
    rng = np.random.default_rng(seed)
    unit = InputRange("", lambda images: images)
    rows, columns = np.indices(size)
    shape = (channels, *size)

    def colour() -> Array:
        return rng.uniform(0, 1, (channels, 1, 1))

    def between(where: Array) -> Array:
        return np.where(where, colour(), colour())

    spots = [np.zeros(shape), np.ones(shape)]
    spots[0][:, size[0] // 2, size[1] // 2] = 1
    spots[1][:, 0, -1] = 0
    pictures = list(make_images(size, 6, channels, unit, seed + 1))
    images = [
        pictures[0],
        rng.uniform(0, 1, shape),
        between((rows + columns) % 2 == 0),
        pictures[1],
        between(columns < size[1] // 2),
        colour() + np.zeros(shape),
        *pictures[2:],
        *(pictures[at] * 0.1 for at in (0, 1)),
        *(1 - pictures[at] * 0.1 for at in (2, 3)),
        rng.uniform(0, 1, shape) ** 4,
        (rng.uniform(0, 1, shape) < 0.5).astype(np.float64),
        between((rows // 3 + columns // 2) % 2 == 0),
        between(rows < size[0] // 3),
        between(rows == columns),
        np.broadcast_to(columns / max(size[1] - 1, 1), shape),
        np.zeros(shape),
        np.ones(shape),
        *spots,
    ]
    # A deviation of 1 is of pictures; a flat one has none.
    of = (lambda images: 4 * images - 2) if taken is NORMAL else taken.of
    return np.asarray(of(np.stack(images)))


@dataclass
class Model:
    """A function that torch runs in float64, built once for all sizes where that can be."""

    graph: Graph
    tensors: Tensors
    _built: dict[tuple[int | None, int | None], Any] = field(default_factory=dict, init=False)

    def run(self, images: Array, paths: Sequence[str]) -> Mapping[str, Array]:
        """Values by path, for N x C x H x W.

        Raises:
            PorterError, RuntimeError, ValueError: a mutant does not run.
        """
        torch, size = get_destination("torch"), (images.shape[2], images.shape[3])
        if ANY in self._built or size in self._built:
            return torch.ENGINE.run(self._built.get(ANY, self._built.get(size)), images, paths)
        try:
            plan, key = make_plan(self.graph, ANY, torch.CAPABILITIES), ANY
        except PorterError:
            plan, key = make_plan(self.graph, size, torch.CAPABILITIES), size
        self._built[key] = torch.ENGINE.build(plan, self.tensors, {}, "float64", "cpu")
        return torch.ENGINE.run(self._built[key], images, paths)


@dataclass
class Judge:
    """The right function, and what it gives for the judge's images.

    Attributes:
        sizes: rows and columns.
    """

    graph: Graph
    tensors: Tensors
    taken: InputRange
    sizes: Sequence[tuple[int, int]]
    seed: int = 0
    _right: dict[tuple[int, int], tuple[Mapping[str, Array], Array]] = field(default_factory=dict, init=False)
    _images: dict[tuple[int, int], Array] = field(default_factory=dict, init=False)

    @cached_property
    def model(self) -> Model:
        return Model(self.graph, self.tensors)

    def batches(self) -> Iterator[tuple[Array, Mapping[str, Array], Array]]:
        """Images, the right outputs for them, and how far rounding moves these, for each image."""
        for part in range(24 // _BATCH):
            for at, size in enumerate(self.sizes):
                key = (at, part)
                if size not in self._images:
                    self._images[size] = judges_images(size, self.graph.channels, self.taken, self.seed + at)
                images = self._images[size][part * _BATCH : (part + 1) * _BATCH]
                if key not in self._right:
                    exact = self.model.run(images, self.graph.outputs)
                    near = images * (1 + 1e-15 * np.random.default_rng(0).standard_normal(images.shape))
                    self._right[key] = exact, distances(exact, self.model.run(near, self.graph.outputs))
                yield images, *self._right[key]

    def moved(self, graph: Graph, tensors: Tensors) -> float:
        """The distance of the first image on which a mutant is another function, or the largest of all, which
        is none.
        """
        worst, model = 0.0, Model(graph, tensors)
        for images, wanted, rounding in self.batches():
            try:
                found = distances(wanted, model.run(images, self.graph.outputs))
            except (PorterError, RuntimeError, ValueError):  # the mutant does not run
                return float("inf")
            beyond = found[found > np.maximum(MOVED, _ROUNDING * rounding)]
            if beyond.size:
                return float(beyond.max())
            worst = max(worst, float(found[np.isfinite(found)].max(initial=0)))
        return worst


def distances(wanted: Mapping[str, Array], got: Mapping[str, Array]) -> Array:
    """For each image, the relative L2 distance of the output where it is largest; infinite if one is finite
    only, or both are zero and one is not.
    """
    worst: Array | None = None
    for path, right in wanted.items():
        other = (
            got[path].reshape(right.shape) if got[path].size == right.size else np.full(right.shape, np.nan)
        )
        one, two = (value.reshape(len(value), -1).astype(np.float64) for value in (right, other))
        with np.errstate(all="ignore"):
            both = np.isfinite(one) & np.isfinite(two)
            alike = (one == two) | (np.isnan(one) & np.isnan(two))
            part = np.linalg.norm(np.where(both, one - two, 0), axis=1)
            whole = np.linalg.norm(np.where(both, one, 0), axis=1)
            whole = np.maximum(whole, _LEAST * whole.max())
            found = np.where(part == 0, 0.0, part / whole)
            found[(~both & ~alike).any(axis=1)] = np.inf
        worst = found if worst is None else np.maximum(worst, found)
    assert worst is not None
    return worst
