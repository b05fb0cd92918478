"""Random numbers in place of values, chosen so that both sides of a port show what they do with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from porter.base.dtypes import Array, Dtype
from porter.graph import INPUT, GlobalMaxPool, Graph, MaxPool, Node
from porter.graph.ops import (
    AdaptiveMaxPool,
    Affine,
    AsMap,
    Attention,
    Concat,
    Cos,
    Crop,
    Divide,
    Dropout,
    Exp,
    Flatten,
    GroupNorm,
    Identity,
    LayerNorm,
    Log,
    MatMul,
    Maximum,
    Minimum,
    Multiply,
    Op,
    Power,
    Rearrange,
    Reciprocal,
    Reduce,
    RmsNorm,
    Sin,
    Sqrt,
    Step,
    row_of,
)

LEAST_DRAWS = 2
"""So few draws of a value have both halves of `Draws.of`."""
_ZEROS = 0.05
"""So many of the numbers are 0, where steps and activations may break."""
_BEYOND = 1.5
"""How far numbers go beyond a bound, in parts of it."""
_CLOSE = 0.25
"""So many of the numbers are close to a bound, which a step that is moved a little shows."""
_CLOSEST: Mapping[Dtype, float] = {"float64": -6, "float32": -3}
"""The least distance from a bound, in parts of it, as a power of ten: a bound may be rounded to float32."""
_FAINT, _FAINTEST = 0.125, -13
"""So many channels are much smaller than the others, and the least size as a power of ten: a bound or an
offset of 1e-12 before a logarithm shows nowhere else.
"""

_NORMS = LayerNorm, RmsNorm, GroupNorm
MOVES = Rearrange, Flatten, AsMap, Identity, Dropout, Crop, Concat
"""Ops that only move numbers. A reader joins several of them into one."""


class _DrawnFor(NamedTuple):
    """What readers of a kind are given.

    Attributes:
        farthest: the power of ten to which the larger half goes, from small numbers on; None for numbers of
            one size.
        faint: whether some channels may be much smaller than the others.
        zeros: whether some of the numbers are 0.
    """

    farthest: Mapping[Dtype, float | None]
    faint: bool
    zeros: bool


_FAR: Mapping[Dtype, float | None] = {"float64": 5, "float32": 5}
"""The source may have a bound far away that the port lacks."""
_MODERATE: Mapping[Dtype, float | None] = {"float64": 2.4, "float32": None}
"""The square of exp(250) is still finite."""
_ONE_SIZE: Mapping[Dtype, float | None] = {"float64": None, "float32": None}
"""The rounding of large numbers would be more than rounding."""
_DRAWN_FOR: Mapping[type[Op], _DrawnFor] = {
    **dict.fromkeys((Exp, Power, MatMul), _DrawnFor(_MODERATE, faint=False, zeros=False)),
    **dict.fromkeys((Log, Sqrt), _DrawnFor(_ONE_SIZE, faint=True, zeros=False)),
    **dict.fromkeys(
        (Sin, Cos, Divide, Reciprocal, Attention), _DrawnFor(_ONE_SIZE, faint=False, zeros=False)
    ),
    # In float32 the squares of numbers of many sizes are summed too coarsely for the limit.
    **dict.fromkeys(_NORMS, _DrawnFor({"float64": 5, "float32": None}, faint=False, zeros=True)),
}
_OTHERS = _DrawnFor(_FAR, faint=True, zeros=True)


@dataclass(frozen=True)
class Draws:
    """Random numbers in place of values.

    Attributes:
        nonnegative: paths of values that are never below 0: a port may rest on it.
        binary: paths of values that are 0 or 1, such as masks.
        compared: paths of values that both sides show.
        readers: by path, what reads the value: nodes, and those behind one that is not shown.
        dtype: of the numbers.
    """

    rng: Generator
    nonnegative: Collection[str]
    binary: Collection[str]
    compared: Collection[str]
    readers: Mapping[str, Sequence[Node]]
    dtype: Dtype = "float64"

    def of(self, path: str, shape: Sequence[int]) -> Array:
        """Return random numbers for a value of N draws, N x ... as `shape` says. Those of the first half lie
        on both sides of every bound of what reads them, some close to it, and are small where a norm with an
        epsilon does, and all below 0 where the largest of some is taken; some channels are much smaller than
        the others. Those of the other half are larger: of all sizes where each reader is compared by itself.
        """
        if path in self.binary:
            return self.rng.integers(0, 2, shape).astype(self.dtype)
        ops = [node.op for node in self.readers.get(path, ())]
        kinds = [row_of(_DRAWN_FOR, type(op)) or _OTHERS for op in ops] or [_OTHERS]
        numbers: NDArray[np.float64] = self.rng.uniform(-1, 1, (shape[0], math.prod(shape[1:])))
        scale = self.scale(path)
        epsilons = [op.epsilon for op in ops if isinstance(op, _NORMS)]
        half = len(numbers) // 2
        small, large = numbers[:half], numbers[half:]
        small *= math.sqrt(min(epsilons)) if epsilons else scale
        takes_maxima = any(map(_takes_maxima, ops))
        if takes_maxima:
            small[:] = -np.abs(small)
        far = [exponent for kind in kinds if (exponent := kind.farthest[self.dtype]) is not None]
        if self.are_seen(path) and len(far) == len(kinds):
            large *= 10.0 ** self.rng.uniform(-2, min(far), large.shape)
        else:
            large *= 4 * scale
        self._move_to_bounds(large if takes_maxima or epsilons else small, self._bounds(path))
        if self.dtype == "float64" and all(kind.faint for kind in kinds):
            channels = shape[1] if len(shape) > 1 else 1
            _shrink_channels(self.rng, small.reshape(half, channels, -1))
        # Readers such as a square root are given no negative numbers, because they get none.
        if path in self.nonnegative or any(map(_takes_no_negative, ops)):
            numbers = np.abs(numbers)
        if all(kind.zeros for kind in kinds):
            zeros = self.rng.random(numbers.shape) < _ZEROS
            zeros[:half] &= not takes_maxima  # one 0 would be the largest
            numbers[zeros] = 0.0
        return numbers.reshape(shape).astype(self.dtype)

    def of_images(self, images: Array) -> Array:
        """Return random numbers in place of `images`, as `of` does. Where a reader is not seen, what follows
        it may show little of them: the second half are then images of the network's own range, made larger.
        """
        numbers = self.of(INPUT, images.shape)
        if not self.are_seen(INPUT):
            half = len(images) // 2
            numbers[half:] = np.multiply(images[half:], self.scale(INPUT))
        return numbers

    def are_seen(self, path: str) -> bool:
        """Return whether every reader of a value is compared by itself, or only moves its numbers."""
        return all(
            node.path in self.compared or isinstance(node.op, MOVES) for node in self.readers.get(path, ())
        )

    def scale(self, path: str) -> float:
        """Return how large numbers are that lie on both sides of every bound of what reads a value; at least
        1.
        """
        return max(1.0, _BEYOND * max(map(abs, self._bounds(path)), default=0.0))

    def _bounds(self, path: str) -> list[float]:
        every = (bound for node in self.readers.get(path, ()) for bound in node.op.bounds)
        return [bound for bound in every if math.isfinite(bound)]

    def _move_to_bounds(self, numbers: NDArray[np.float64], bounds: Sequence[float]) -> None:
        """Move some numbers, in place, to both sides of bounds that are not 0: up to as far as they are from
        0, and most of them closer.
        """
        far = [bound for bound in bounds if bound]
        if far:
            chosen = self.rng.random(numbers.shape) < _CLOSE
            count = np.count_nonzero(chosen)
            apart = self.rng.choice((-1.0, 1.0), count) * 10.0 ** self.rng.uniform(
                _CLOSEST[self.dtype], 0, count
            )
            numbers[chosen] = self.rng.choice(far, count) * (1 + apart)


def _shrink_channels(rng: Generator, numbers: NDArray[np.float64]) -> None:
    """Make some channels of N x C x numbers much smaller, in place, one of several as small as any."""
    draws, channels, _ = numbers.shape
    exponents = rng.uniform(_FAINTEST, -2, (draws, channels))
    exponents[rng.random((draws, channels)) >= _FAINT] = 0
    if channels > 1:
        exponents[np.arange(draws), rng.integers(0, channels, draws)] = _FAINTEST
    numbers *= 10.0 ** exponents[..., np.newaxis]


def binary_paths(graph: Graph) -> set[str]:
    """Return the paths whose values are provably 0 or 1: steps, and what is chosen, moved or multiplied of
    these, or turned by 1 - x.
    """
    binary = set[str]()
    for node in graph.nodes:
        keeps = isinstance(node.op, Maximum | Minimum | Multiply | Rearrange | Concat | Crop | Identity)
        turns = isinstance(node.op, Affine) and (node.op.scale, node.op.offset) == ((-1,), (1,))
        if isinstance(node.op, Step) or ((keeps or turns) and binary.issuperset(node.inputs)):
            binary.add(node.path)
    return binary


def _takes_maxima(op: Op) -> bool:
    """Return whether numbers below 0 change what an op gives only where all that it looks at are below 0: its
    pads, and a ReLU before it, show there only.
    """
    pools = isinstance(op, MaxPool | GlobalMaxPool | AdaptiveMaxPool)
    return pools or (isinstance(op, Reduce) and op.function == "max")


def _takes_no_negative(op: Op) -> bool:
    return isinstance(op, Sqrt | Log) or (isinstance(op, Power) and not float(op.exponent).is_integer())
