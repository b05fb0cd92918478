"""What a port is compared with, and what all references do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.frameworks import Engine
from porter.padding import KnownSize
from porter.verification.numbers import FLOAT64_LIMIT, norms

UNDER_ITS_NAME = "given: "
"""Begins the keys of values that a reference itself gives under a name, and no path of a graph."""


class Reference(Protocol):
    """What computes the source's values at a graph's nodes."""

    @property
    def name(self) -> str:
        """What it is called in messages and in port.json; OWN_BUILD for porter's own build."""

    @property
    def run_by(self) -> str:
        """What runs it, in words."""

    def takes(self, size: KnownSize) -> bool:
        """Return whether it can be run on an input of `size` (rows, columns)."""

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> NamedArrays:
        """Return values by path for a batch N x C x H x W, maps as N x C x H x W; of `paths` only, where it
        can leave others out.
        """


@runtime_checkable
class CutReference(Reference, Protocol):
    """A reference in which what reads a value can be given another one."""

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run it with values replaced, and return values in float64 by path, for a batch N x C x H x
        W.

        Args:
            paths: the values that are wanted. One that cannot be replaced is left out.
            cut: by path, the numbers that every layer which reads the value is given in its place; they come
                back under that path.
        """

    def is_moved(self, path: str) -> bool:
        """Return whether it also has the value's numbers in another order of axes, which may be read
        instead and is not cut.
        """


@dataclass
class Wrapped:
    """A reference that stands around another one."""

    source: Reference

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def run_by(self) -> str:
        return self.source.run_by

    def takes(self, size: KnownSize) -> bool:
        return self.source.takes(size)


def run_cut(
    engine: Engine,
    model: Any,
    batch: Array,
    taps: Mapping[str, str],
    paths: Collection[str],
    cut: NamedArrays,
) -> dict[str, Array]:
    """Run a model with values replaced, and return values in float64 by path, as CutReference.run_cut says.
    Paths that `taps` lacks are left out. So are two paths of `cut` that are one value of the model, because
    what reads one of them would be given the other's numbers too.

    Args:
        taps: by path, the name under which the engine gives the value.
        paths: the values that are wanted.
        cut: by path, the numbers that its readers are given.
    """
    paths_of_tap = Counter(taps.values())
    shared_cuts = {path for path in cut if path in taps and paths_of_tap[taps[path]] > 1}
    wanted_taps = {path: taps[path] for path in paths if path in taps and path not in shared_cuts}
    replaced = {path: numbers for path, numbers in cut.items() if path in wanted_taps}
    return engine.run_reference(model, batch.astype(np.float64), wanted_taps, replaced)


def is_asked(path: str, paths: Collection[str] | None) -> bool:
    """Return whether a value is among those that a caller wants; None asks for all."""
    return paths is None or path in paths


def describe_difference(stated: Array, porters: Array) -> str | None:
    """Say how far apart values in float64 are that should be equal; None where they are equal, or where
    porter's are not finite.

    Args:
        stated: what the file or the implementation gives.
        porters: what porter takes for it.
    """
    if not np.isfinite(porters).all():
        return None
    same_size = porters.size == stated.size
    rel_l2 = norms(stated, porters.reshape(stated.shape)).rel_l2 if same_size else math.inf
    return f"their relative distance is {rel_l2:.1e}" if rel_l2 > FLOAT64_LIMIT else None
