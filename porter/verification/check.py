"""Checking a port on disk against its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import NotInstalled, UsageError
from porter.base.options import TOLERANCE
from porter.frameworks import Tensors, computes_in_float32
from porter.graph import shapes, site_of, tensor_shapes
from porter.graph.memory_bounds import count_values
from porter.port import StoredPort
from porter.verification.cut_points import CutPoints, compare_at_cut_points
from porter.verification.draws import LEAST_DRAWS
from porter.verification.evidence import excitement
from porter.verification.float32_errors import Absolute
from porter.verification.image_batches import ImageBatches
from porter.verification.inputs import (
    ROUGHNESS,
    SIGNED,
    SMOOTH,
    InputRange,
    Roughness,
    make_images,
    ranges,
)
from porter.verification.memory import in_parts, trim
from porter.verification.numbers import AMPLIFIED, LEAST_WRONG, moved, norms
from porter.verification.parity import NodeLimits, compare
from porter.verification.port_run import PortRun
from porter.verification.references.reference import CutReference, Reference
from porter.verification.results import NOT_FINITE, Parity, most_exact
from porter.verification.sizes import Sizes
from porter.verification.verdict import Verdict, first_telling

_NUMBERS_CUT = 256
"""So many numbers the images at cut points have together at least."""
_MANY_IMAGES = 12
"""Images of a size where most layers cannot be compared one by one, or the outputs of fewer tell nothing."""
_KEPT = 1 << 23
"""So many numbers the values have at most that are kept from the search for bounds until they are
compared.
"""
_CHAOTIC = "the reference multiplies its own rounding beyond the limit"
"""Why a range of inputs proves nothing. LeViT of random weights, fed pixels, has attentions that choose among
nearly equal cells; fed -1 to 1 it is as far from its port as other networks.
"""
PROVED_DTYPES: tuple[Dtype, ...] = ("float32", "float64")
"""What a port is proved in."""


def expect_tolerance(tolerance: float | None) -> None:
    """Refuse a limit on a relative distance that is not above 0 and below 1; None is the usual limit.

    Raises:
        UsageError: it is none.
    """
    if tolerance is not None and not 0 < tolerance < 1:
        raise UsageError(
            f"expected a number above 0 and below 1, got {tolerance}",
            where=TOLERANCE,
            next="leave it out for the usual limits",
        )


@dataclass(frozen=True)
class Check:
    """How a port is run to be compared.

    Attributes:
        dtypes: the number types to compare in.
        tolerance: see porter.verification.parity.NodeLimits.
        device: where the port runs, `cpu` or `cuda`; the source runs on the CPU.
        tensors: of the port, instead of the stored ones.
        fed: the range of the images.
        images: so many at each size, and more where they are small.
        rough: how rough the images are that reach what photos hardly do.
        proved: whether float64 proves the port, where it is not among `dtypes`.

    Where every node is compared at cut points, in float64 one image of one size is run beside them.

    Raises:
        UsageError: the tolerance is out of range.
    """

    port: StoredPort
    dtypes: tuple[Dtype, ...] = PROVED_DTYPES
    tolerance: float | None = None
    device: str = "cpu"
    tensors: Tensors | None = None
    fed: InputRange = SIGNED
    images: int = 2
    rough: Roughness = ROUGHNESS[0]
    proved: bool = False

    def __post_init__(self) -> None:
        expect_tolerance(self.tolerance)

    def with_each_range(self, source: Reference, sizes: Sizes) -> Iterator[Check]:
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
        return self._images(is_whole=False).at(sizes)

    def _images(self, is_whole: bool) -> ImageBatches:
        channels = self.port.record.input.channels
        return ImageBatches(
            self.port.graph, channels, self.dtypes, self.fed, self.images, self.rough, is_whole
        )

    def against(
        self, source: Reference, sizes: Sizes, ending: Callable[[Array], Array] | None = None
    ) -> tuple[Parity, ...]:
        """Compare the port with a source in each number type: at cut points, then in the whole network.

        The latter is done again on images that are more like photos if on rougher ones the source is not
        finite, or multiplies its rounding beyond the limit; and on more images if the source shows little but
        its outputs, or says nothing on all of them.

        Args:
            ending: applied to the port's logits, where the source shows what comes after them.
        """
        port = PortRun(self.port, self.device, self.tensors, ending)
        cuts = self._compare_at_cut_points(source, sizes, port)
        attempt: Check | None = self
        while attempt is not None:
            parities, batches = attempt._compare(source, sizes, port, cuts)
            is_chaotic = _is_chaotic(parities, source, batches)
            attempt = attempt._next_attempt(parities, is_chaotic)
        if not is_chaotic:
            return parities
        return tuple(
            replace(parity, ok=False, silent=_CHAOTIC) if parity.dtype == "float64" else parity
            for parity in parities
        )

    def _next_attempt(self, parities: Sequence[Parity], is_chaotic: bool) -> Check | None:
        """Return the check with images that tell more: smoother ones where the source is not finite, or
        multiplies its rounding (`is_chaotic`); more of them where it shows little. None if these tell.
        """
        # Only outside of float64: an output that is not finite there is no matter of the images.
        is_infinite = NOT_FINITE in (most_exact(parities).silent or "")
        grows = is_infinite and not any(parity.infinite for parity in parities)
        if self.rough != SMOOTH and (grows or is_chaotic):
            return replace(self, rough=ROUGHNESS[ROUGHNESS.index(self.rough) + 1])
        if not is_chaotic and self.images < _MANY_IMAGES and self._shows_little(parities):
            return replace(self, images=_MANY_IMAGES)
        return None

    def _shows_little(self, parities: Sequence[Parity]) -> bool:
        """Return whether the source hides half of the nodes that compute, or says nothing on all images."""
        graph, last = self.port.graph, most_exact(parities)
        computing = {node.path for node in graph.nodes if site_of(node.op)} | tensor_shapes(graph).keys()
        hidden = computing & set(last.uncompared)
        if 2 * len(hidden) >= len(computing) and all(parity.ok for parity in parities):
            return True
        return last.silent is not None and last.first_bad is None

    def _compare_at_cut_points(
        self, source: Reference, sizes: Sizes, port: PortRun
    ) -> dict[Dtype, CutPoints]:
        """Compare at cut points (nodes whose inputs are replaced by random numbers on both sides) at each
        size of those in float64, the smallest first, until something differs. Return what they show by number
        type; nothing where the source takes no other values than its own. A port that its framework computes
        in float32 only is compared in that too.
        """
        # a second comparison for engines without float64
        own: tuple[Dtype, ...] = ("float32",) if computes_in_float32(self.port.destination) else ()
        dtypes = [dtype for dtype in ("float64", *own) if dtype in self.dtypes]
        if "float64" not in self.dtypes or not isinstance(source, CutReference):
            return {}
        rng, graph, channels = np.random.default_rng(), self.port.graph, self.port.record.input.channels
        cuts = dict[Dtype, CutPoints]()
        for dtype in dtypes:
            cut = CutPoints.at_no_size(graph, dtype)
            for size in sorted(sizes.of("float64"), key=math.prod):
                count = max(LEAST_DRAWS, math.ceil(_NUMBERS_CUT / (channels * math.prod(size))))
                images = self.fed.of(rng.random((count, channels, *size)))
                run = partial(_run_cut, port, dtype)
                cut = cut.joined_to(compare_at_cut_points(graph, source, run, images, rng, dtype))
                trim(count * count_values(graph, size))  # what the values took
                cuts[dtype] = cut
                if not cut.ok:
                    return cuts
        return cuts

    def _compare(
        self, source: Reference, sizes: Sizes, port: PortRun, cuts: Mapping[Dtype, CutPoints]
    ) -> tuple[tuple[Parity, ...], dict[Dtype, list[Array]]]:
        """Compare node by node inside the whole network, where each node reads what the one before it gave,
        and return the comparisons, completed by those at cut points, with the images that were used.
        """
        plan = self.port.plan
        is_whole = "float64" in cuts and cuts["float64"].alone == plan.graph.by_path.keys()
        images = self._images(is_whole)
        batches = images.at(sizes)
        values = _KeptValues(port, batches)
        if self.rough != SMOOTH and "float64" in batches and not is_whole:
            batches["float64"] += images.reaching_bounds(batches["float64"], values.look)
        parities = compare(
            plan,
            source,
            values.take,
            batches,
            NodeLimits(self.tolerance, Absolute(self.port, self.tensors).errors, self.proved),
            constants_tell=is_whole,
        )
        completed = (
            cuts[parity.dtype].completed(parity, plan, self.tolerance) if parity.dtype in cuts else parity
            for parity in parities
        )
        return tuple(completed), batches

    def expect_runs(self) -> None:
        """Expect that the port's framework, if installed, runs a port that nothing is compared with.

        Raises:
            CheckFailed: it does not.
        """
        rows, columns = self.port.record.input.native_size
        image = np.zeros((1, self.port.record.input.channels, rows, columns))
        with suppress(NotInstalled):
            PortRun(self.port, self.device, self.tensors).run(image, "float32", self.port.graph.outputs)

    def values(self, batch: Array, dtype: Dtype) -> NamedArrays:
        """Return every node's value in the port, by path, for a batch N x C x H x W."""
        return PortRun(self.port, self.device, self.tensors).run(batch, dtype, [*self.port.graph.by_path])

    def prove(self, source: Reference, sizes: Sizes) -> Verdict:
        """Compare with a source on each range of inputs until one tells, and return the verdict."""
        return first_telling(check.verdict(source, sizes) for check in self.with_each_range(source, sizes))

    def verdict(self, source: Reference, sizes: Sizes) -> Verdict:
        """Compare with a source on the inputs of this check, and return the verdict."""
        return Verdict(self.against(source, sizes), self.fed, rounding=self.port.record.rounding)


def _run_cut(
    port: PortRun, dtype: Dtype, batch: Array, paths: Sequence[str], cut: NamedArrays
) -> NamedArrays:
    """Run a port as porter.verification.cut_points.RunCut."""
    return port.run(batch, dtype, paths, cut)


class _KeptValues:
    """A port's values for batches to compare. Those of float64 that the search for bounds computes are kept
    until they are compared, if they are few.
    """

    def __init__(self, port: PortRun, batches: Mapping[Dtype, Sequence[Array]]) -> None:
        self.port, self.batches = port, batches
        self.taps = [node.path for node in port.stored.graph.nodes]
        self.kept = {id(batch): dict[str, Array]() for batch in batches.get("float64", ())}

    def look(self, batch: Array, paths: Collection[str]) -> NamedArrays:
        """Compute values for the search for bounds, and keep those of a batch to compare."""
        if id(batch) not in self.kept:
            return self.port.run(batch, "float64", paths)
        values = self.port.run(batch, "float64", self.taps)
        if len(self.kept) * sum(value.size for value in values.values()) <= _KEPT:
            self.kept[id(batch)] = dict(values)
        return values

    def take(self, batch: Array, dtype: Dtype, paths: Collection[str]) -> NamedArrays:
        """Compute values to compare, unless they are kept; drop the model after the last batch."""
        values = self.kept.pop(id(batch), None) or self.port.run(batch, dtype, paths)
        if batch is self.batches[dtype][-1] and self.taps[-1] in paths:
            self.port.drop(dtype)
        return values


def _is_chaotic(
    parities: Sequence[Parity], source: Reference, batches: Mapping[Dtype, Sequence[Array]]
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
