"""Checking a port on disk against its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, CheckFailed, Contradiction, NotInstalled, UsageError
from porter.base.options import TOLERANCE
from porter.frameworks import IN_FLOAT32, UNCUT, Tensors
from porter.graph import Graph, shapes, site_of, tensor_shapes
from porter.graph.memory_bounds import count_numbers
from porter.graph.ops import shape_text
from porter.padding import KnownSize
from porter.port import StoredPort
from porter.verification.bounds import ValuesAt, farthest_images
from porter.verification.cut_points import CutPoints, compare_at_cut_points
from porter.verification.evidence import excitement
from porter.verification.inputs import (
    ROUGHNESS,
    SIGNED,
    SMOOTH,
    InputRange,
    Roughness,
    make_images,
    make_telling_images,
    ranges,
)
from porter.verification.memory import drop_models, in_parts, trim, weights_in
from porter.verification.numbers import AMPLIFIED, LEAST_WRONG, moved, norms
from porter.verification.parity import compare
from porter.verification.references import CutSource, SourceValues
from porter.verification.results import NOT_FINITE, Parity
from porter.verification.scales import Absolute
from porter.verification.sizes import Sizes
from porter.verification.verdict import Verdict, first_telling

_NUMBERS = 74_000
"""So many numbers an input size has in all its images at least, up to `_MOST_IMAGES`, because two of a few
cells show little. Two of 128x97, at which most networks are compared, have them.
"""
_MOST_IMAGES = 64
_MANY_OUTPUTS = 256
"""So many numbers the outputs for one image have if rounding is measured on that image."""
_MOST_VALUES, _HELD = 1 << 30, 1 << 26
"""So many numbers the values of a size's images have at most, above two images, and those of the images that
are run at once: a graph may make large maps of a small image.
"""
_DRAWS, _DRAWN = 2, 256
"""The least images at cut points, and numbers of these: see porter.verification.cut_points."""
_MANY_IMAGES = 12
"""Images of a size where most layers cannot be compared one by one, or the outputs of fewer tell nothing."""
_POOL = 4 * _NUMBERS
"""So many numbers the images have among which those that reach bounds are sought, if images are small."""
_TOGETHER = 1 << 20
"""So many numbers the values of the images of that pool have that are run at once: a pass through a small
network takes as long for one image as for many, and values that leave the processor's cache take longer.
"""
_KEPT = 1 << 23
"""So many numbers the values have at most that are kept from the search for bounds until they are
compared.
"""
_CHAOTIC = "the reference multiplies its own rounding beyond the limit"
"""Why a range of inputs proves nothing. LeViT of random weights, fed pixels, has attentions that choose among
nearly equal cells; fed -1 to 1 it is as far from its port as other networks.
"""
CHECKED_DTYPES: tuple[Dtype, ...] = ("float32", "float64")
"""What a port is proved in."""


@dataclass(frozen=True)
class Check:
    """How a port is run to be compared.

    Attributes:
        dtypes: the number types to compare in.
        tolerance: see porter.verification.parity.compare.
        device: where the port runs, `cpu` or `cuda`; the source runs on the CPU.
        tensors: of the port, instead of the stored ones.
        fed: the range of the images.
        images: so many at each size, and more where they are small.
        rough: how rough the images are that reach what photos hardly do.
        proved: whether float64 proves the port, where it is not among `dtypes`.
        cuts: what was compared at cut points already, by number type.

    Where every node is compared at cut points, in float64 one image of one size is run beside them.

    Raises:
        UsageError: the tolerance is out of range.
    """

    port: StoredPort
    dtypes: tuple[Dtype, ...] = CHECKED_DTYPES
    tolerance: float | None = None
    device: str = "cpu"
    tensors: Tensors | None = None
    fed: InputRange = SIGNED
    images: int = 2
    rough: Roughness = ROUGHNESS[0]
    proved: bool = False
    cuts: Mapping[Dtype, CutPoints] | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise UsageError(
                f"expected a number above 0 and below 1, got {self.tolerance}",
                where=TOLERANCE,
                next="leave it out for the usual limits",
            )

    @property
    def is_whole(self) -> bool:
        """Whether every node was compared at cut points in float64."""
        cut = (self.cuts or {}).get("float64")
        return cut is not None and cut.alone == self.port.graph.by_path.keys()

    def with_each_range(self, source: SourceValues, sizes: Sizes) -> Iterator[Check]:
        """Yield this check with each range of inputs that a network may take, first the one that it states or
        that excites the source most (porter.verification.inputs.ranges).
        """
        graph, channels, size = self.port.graph, self.port.record.input.channels, sizes.of(self.dtypes[-1])[0]

        def excites(candidates: Sequence[InputRange]) -> list[float]:
            """Return how much of the source each range excites, measured on one image of each."""
            batch = np.concatenate([make_images(size, 1, channels, each) for each in candidates])
            parts = (
                source.run(batch, self.dtypes[0], part)
                for part in in_parts(graph, shapes(graph, size), len(batch))
            )
            return excitement((value for part in parts for value in part.values()), len(batch))

        for fed in ranges(graph, self.port.record.preprocess, excites):
            yield replace(self, fed=fed)

    def batches(self, sizes: Sizes) -> dict[Dtype, list[Array]]:
        """Return the images to compare on for each number type, in batches N x C x H x W: as many at a time
        as have no more values than one of the largest size, and more if they are small.

        The number type that decides what the function is has `images` of a size, or more. Another has two
        like photos, because noise makes a network round as it never does on what it is for. The limit in
        float32 is for several images together: for one image with few logits, rounding exceeds it by chance.
        One is enough where it has many, and float64 compared every node by itself.

        Args:
            sizes: rows and columns for the exact type and for the rounded ones.
        """
        graph = self.port.graph
        wanted = {dtype: sizes.of(dtype) for dtype in self.dtypes}
        if self.is_whole:
            wanted["float64"] = wanted["float64"][:1]
        values = {size: _count_numbers(graph, size) for size in dict.fromkeys(chain(*wanted.values()))}
        return {
            dtype: [batch for size in wanted[dtype] for batch in self._batches(dtype, size, values)]
            for dtype in wanted
        }

    def _batches(self, dtype: Dtype, size: KnownSize, values: Mapping[KnownSize, int]) -> list[Array]:
        """Return the batches of one size; `values` is how many numbers an image's values have, by size."""
        decides = dtype == "float64" or "float64" not in self.dtypes
        channels, per_image = self.port.record.input.channels, values[size]
        if self.is_whole and decides:
            return [make_telling_images(size, 1, channels, self.fed, SMOOTH)]
        least = self.images if decides else 2
        if self.is_whole and self._count_outputs(size) >= _MANY_OUTPUTS:
            least = 1
        enough = _enough_images(channels, size)
        count = max(least, min(enough, _MOST_IMAGES, _MOST_VALUES // per_image))
        at_once, fewest_parts = (max(values.values()), 1) if enough <= least else (_HELD, 2)
        # -(-a // b) rounds up
        parts = min(count, max(fewest_parts, -(-count * per_image // at_once)))
        # As many in each, because some runtimes compile a program for every number of images.
        count = parts * -(-count // parts)
        images = make_telling_images(size, count, channels, self.fed, self.rough if decides else SMOOTH)
        return np.split(images, parts)

    def _count_outputs(self, size: KnownSize) -> int:
        """Return how many numbers the outputs for one image of a size have."""
        stated = shapes(self.port.graph, size)
        return sum(count_numbers(stated[path]) for path in self.port.graph.outputs)

    def against(
        self, source: SourceValues, sizes: Sizes, ending: Callable[[Array], Array] | None = None
    ) -> tuple[Parity, ...]:
        """Compare the port with a source in each number type.

        It is compared again on more images if the source shows little but its outputs, or says nothing on all
        of them; and on images that are more like photos if on rougher ones the source is not finite, or
        multiplies its rounding beyond the limit.

        Args:
            ending: applied to the port's logits, where the source shows what comes after them.
        """
        models = dict[Dtype, Any]()
        cuts = self._compare_at_cut_points(source, sizes, ending, models) if self.cuts is None else self.cuts
        check = replace(self, cuts=cuts)
        parities, batches = check._compare(source, sizes, ending, models)
        parities = tuple(
            cuts[parity.dtype].completed(parity, self.port.plan, self.tolerance)
            if parity.dtype in cuts
            else parity
            for parity in parities
        )
        # Only outside of float64: an output that is not finite there is no matter of the images.
        grows = NOT_FINITE in (parities[-1].silent or "") and not any(parity.infinite for parity in parities)
        chaotic = _is_chaotic(parities, source, batches)
        if self.rough != SMOOTH and (grows or chaotic):
            rough = ROUGHNESS[ROUGHNESS.index(self.rough) + 1]
            return replace(check, rough=rough).against(source, sizes, ending)
        if chaotic:
            return tuple(
                replace(parity, ok=False, silent=_CHAOTIC) if parity.dtype == "float64" else parity
                for parity in parities
            )
        if self.images >= _MANY_IMAGES or not self._shows_little(parities):
            return parities
        return replace(check, images=_MANY_IMAGES).against(source, sizes, ending)

    def _shows_little(self, parities: Sequence[Parity]) -> bool:
        """Return whether the source hides half of the nodes that compute, or says nothing on all images."""
        graph, last = self.port.graph, parities[-1]
        computing = {node.path for node in graph.nodes if site_of(node.op)} | tensor_shapes(graph).keys()
        hidden = computing & set(last.uncompared)
        if 2 * len(hidden) >= len(computing) and all(parity.ok for parity in parities):
            return True
        return last.silent is not None and last.first_bad is None

    def _compare_at_cut_points(
        self,
        source: SourceValues,
        sizes: Sizes,
        ending: Callable[[Array], Array] | None,
        models: dict[Dtype, Any],
    ) -> dict[Dtype, CutPoints]:
        """Compare at cut points (nodes whose inputs are replaced by random numbers on both sides) at each
        size of those in float64, the smallest first, until something differs. Return what they show by number
        type; nothing where the source takes no other values than its own. A port that its framework computes
        in float32 only is compared in that too.

        Args:
            ending: applied to the port's logits, as in `against`.
            models: the built models by number type, which are used again.
        """
        # a second comparison for engines without float64
        own: tuple[Dtype, ...] = ("float32",) if self.port.record.framework in IN_FLOAT32 else ()
        dtypes = [dtype for dtype in ("float64", *own) if dtype in self.dtypes]
        if "float64" not in self.dtypes or not isinstance(source, CutSource):
            return {}
        rng, graph, channels = np.random.default_rng(), self.port.graph, self.port.record.input.channels

        def run(dtype: Dtype, batch: Array, paths: Sequence[str], cut: NamedArrays) -> NamedArrays:
            """Run the port with values replaced by `cut`, and `ending` on its logits."""
            values = self._run(models, batch, dtype, paths, cut)
            if ending is None or graph.output not in values:
                return values
            return {**values, graph.output: ending(values[graph.output])}

        cuts = dict[Dtype, CutPoints]()
        for dtype in dtypes:
            cut = CutPoints.at_no_size(graph, dtype)
            for size in sorted(sizes.of("float64"), key=math.prod):
                count = max(_DRAWS, math.ceil(_DRAWN / (channels * math.prod(size))))
                images = self.fed.of(rng.random((count, channels, *size)))
                cut = cut.joined_to(
                    compare_at_cut_points(graph, source, partial(run, dtype), images, rng, dtype)
                )
                trim(count * _count_numbers(graph, size))  # what the values took
                cuts[dtype] = cut
                if not cut.ok:
                    return cuts
        return cuts

    def _compare(
        self,
        source: SourceValues,
        sizes: Sizes,
        ending: Callable[[Array], Array] | None,
        models: dict[Dtype, Any],
    ) -> tuple[tuple[Parity, ...], dict[Dtype, list[Array]]]:
        """Compare node by node inside the whole network, where each node reads what the one before it gave,
        and return the comparisons with the images that were used. The arguments are as in
        `_compare_at_cut_points`.
        """
        port = self.port
        weights = weights_in(port.graph)
        batches = self.batches(sizes)
        taps = [node.path for node in port.graph.nodes]

        kept = {id(batch): dict[str, Array]() for batch in batches.get("float64", ())}
        """The values that the search for bounds computed already, by batch, if they are few."""

        def compute(batch: Array, dtype: Dtype, paths: Collection[str] = taps) -> NamedArrays:
            """Run the port, with `ending` on its logits."""
            values, output = self._run(models, batch, dtype, paths), port.graph.output
            if ending is None or output not in values:
                return values
            return {**values, output: ending(values[output])}

        def look(batch: Array, paths: Collection[str]) -> NamedArrays:
            """Compute values for the search for bounds, and keep those of a batch to compare."""
            if id(batch) not in kept:
                return compute(batch, "float64", paths)
            values = compute(batch, "float64")
            if len(kept) * sum(value.size for value in values.values()) <= _KEPT:
                kept[id(batch)] = dict(values)
            return values

        def run(batch: Array, dtype: Dtype, paths: Collection[str]) -> NamedArrays:
            """Compute values to compare, unless they are kept; drop the model after the last batch."""
            values = kept.pop(id(batch), None) or compute(batch, dtype, paths)
            if batch is batches[dtype][-1] and taps[-1] in paths:
                drop_models(models, [dtype], weights)  # models are large
            return values

        if self.rough != SMOOTH and "float64" in batches and not self.is_whole:
            batches["float64"] += self._reaching_bounds(batches["float64"], look)
        errors = Absolute(port, self.tensors).errors
        limits = self.tolerance, errors, self.proved, self.is_whole
        return compare(port.plan, source, run, batches, *limits), batches

    def _run(
        self,
        models: dict[Dtype, Any],
        batch: Array,
        dtype: Dtype,
        paths: Collection[str],
        cut: NamedArrays = UNCUT,
    ) -> NamedArrays:
        """Return the port's values by path; its model is built once and kept in `models`.

        Args:
            cut: see porter.frameworks.PortEngine.run.

        Raises:
            CheckFailed: the port's framework, which is installed, does not run it.
            Contradiction: an output has other axes than the graph says.
        """
        try:
            if dtype not in models:
                models[dtype] = self.port.build(dtype, self.device, self.tensors)
            engine, images = self.port.destination.ENGINE, batch.astype(np.dtype(dtype))
            values = engine.run(models[dtype], images, [*paths], cut)
        except CannotRun as error:
            raise CheckFailed(
                f"the port does not run in its own framework: {error.message}",
                where=self.port.record.name,
                next="no port was written; port to another framework, and report it with the file",
            ) from None
        self._expect_axes(values, (batch.shape[2], batch.shape[3]))
        return values

    def _expect_axes(self, values: NamedArrays, size: KnownSize) -> None:
        """Expect that each output has the axes that the graph says, by which porter takes it for features or
        a map, and takes off an activation at the end. A comparison does not show it where the source gives
        the port's axes too.
        """
        shown = [path for path in self.port.graph.outputs if path in values]
        stated = shapes(self.port.graph, size) if shown else {}
        for path in shown:
            if values[path].shape[1:] != stated[path]:
                computed, expected = (shape_text(axes) for axes in (values[path].shape[1:], stated[path]))
                raise Contradiction(
                    f"the port gives {computed} for each image, and its graph says {expected}",
                    where=path,
                    next="this is a mistake of porter: report it, with the file",
                )

    def expect_runs(self) -> None:
        """Expect that the port's framework, if installed, runs a port that nothing is compared with.

        Raises:
            CheckFailed: it does not.
        """
        rows, columns = self.port.record.input.native_size
        image = np.zeros((1, self.port.record.input.channels, rows, columns))
        with suppress(NotInstalled):
            self._run({}, image, "float32", self.port.graph.outputs)

    def _reaching_bounds(self, batches: list[Array], run: ValuesAt) -> list[Array]:
        """Return one batch, in a list, of images from a larger pool that reach more bounds of activations.
        Return none if the images are large, or if none of the pool reaches more.

        Args:
            run: gives the port's values at some paths for a batch.
        """
        _, channels, *sides = batches[0].shape
        if _enough_images(channels, sides) <= self.images:
            return []
        known = [batch for batch in batches if batch.shape[1:] == batches[0].shape[1:]]
        size = (sides[0], sides[1])
        pool = make_images(
            size, min(_POOL // math.prod(batches[0].shape[1:]), 8 * _MOST_IMAGES), channels, self.fed, seed=1
        )
        at_once = max(len(batches[0]), _TOGETHER // _count_numbers(self.port.graph, size))
        chosen = farthest_images(self.port.graph, known, pool, run, at_once)
        return [chosen] if len(chosen) else []

    def values(self, batch: Array, dtype: Dtype) -> NamedArrays:
        """Return every node's value in the port, by path, for a batch N x C x H x W."""
        return self._run({}, batch, dtype, [node.path for node in self.port.graph.nodes])

    def prove(self, source: SourceValues, sizes: Sizes) -> Verdict:
        """Compare with a source on each range of inputs until one tells, and return the verdict."""
        return first_telling(check.verdict(source, sizes) for check in self.with_each_range(source, sizes))

    def verdict(self, source: SourceValues, sizes: Sizes) -> Verdict:
        """Compare with a source on the inputs of this check, and return the verdict."""
        return Verdict(self.against(source, sizes), self.fed, rounding=self.port.record.rounding)


def _count_numbers(graph: Graph, size: KnownSize) -> int:
    """Return how many numbers all values of one image have."""
    return sum(map(count_numbers, shapes(graph, size).values()))


def _enough_images(channels: int, size: Sequence[int]) -> int:
    """Return how many images have `_NUMBERS` together."""
    return -(-_NUMBERS // (channels * math.prod(size)))


def _is_chaotic(
    parities: Sequence[Parity], source: SourceValues, batches: Mapping[Dtype, Sequence[Array]]
) -> bool:
    """Return whether the first difference in float64 may be the source's own rounding: whether the source's
    value there moves about as far if its inputs move by one rounding.
    """
    first_bad = next((parity.first_bad for parity in parities if parity.dtype == "float64"), None)
    if first_bad is None or first_bad.rel_l2 > LEAST_WRONG:
        return False
    path = first_bad.path

    def own_distance(batch: Array) -> float:
        """Return how far the source's value moves if the batch moves by one rounding."""
        exact = source.run(batch, "float64", [path])[path]
        disturbed = source.run(moved(batch), "float64", [path])[path]
        return norms(exact, disturbed).rel_l2

    return first_bad.rel_l2 <= AMPLIFIED * max(map(own_distance, batches["float64"]))
