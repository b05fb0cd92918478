"""Whether a port computes its source's function, node by node: float64 decides it, and float32 says how the
port rounds.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, product

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CheckFailed
from porter.base.progress import progress_bar
from porter.graph import INPUT, Graph, Shape, shapes, site_of
from porter.graph.plan import Plan
from porter.verification.bounds import Reached
from porter.verification.evidence import Samples, tells_nothing_because, unexcited
from porter.verification.memory import in_parts, release, trim, weights_in
from porter.verification.numbers import FLOAT64_LIMIT, Norms, distance, moved, norms, top_margin
from porter.verification.references.reference import Reference
from porter.verification.results import (
    NOT_FINITE,
    Distance,
    FirstBad,
    NodeDistance,
    Parity,
    farthest,
    severity,
)

FLOAT32_LIMIT = 1e-5
OWN_ROUNDING = 4.0
"""In float32 a port's distance from its source may be this many times the source's distance from itself in
float64; up to `MOST_ROUNDING` unless float64 proves the port.
"""
MOST_ROUNDING = 1e-4
"""The largest limit in float32 by itself: the smallest wrong pad is above it, so a larger limit could hide
one.
"""
_NO_ROUNDING = 10.0
"""A distance in float32 of this many times its limit, without the bound of `MOST_ROUNDING`, is no rounding,
whatever float64 says: the destination's float32 code computes something else. Right EfficientNets reach 3
times their limit.
"""
OTHER_FUNCTION = 0.1
"""A source whose values in float32 are this far from its own in float64 computes something else in one of the
two, as when one of two implementations reads a number wrongly: that is no rounding.
"""

ROUNDING_DRAWS = 4
"""How often a network's own rounding is drawn again, each time with its inputs moved by one rounding, before
a distance is said to be none. In a BoTNet of random weights, whose attention chooses one cell of nearly equal
ones, the first draw was 4.5e-5 and six more were 3.0e-5 to 7.0e-4.
"""

BAR_AFTER = 1.0
"""Seconds until a check shows a bar."""

Run = Callable[[Array, Dtype, Collection[str]], NamedArrays]
"""Gives at least the values at some paths."""


@dataclass(frozen=True)
class NodeLimits:
    """How far a port's nodes may be from their source's.

    Attributes:
        tolerance: the limit on relative L2 distance; None for 1e-10 in float64, and in float32 for the larger
            of 1e-5 and four times the source's own rounding at that node.
        errors: see porter.verification.float32_errors. Where float64 proves the port and another type is not
            within its limits, distances are over values that count as so large that these errors are allowed.
        proved: whether float64 proves the port, where it is not among the types that are compared.
    """

    tolerance: float | None = None
    errors: Callable[[Array], Mapping[str, float]] = lambda batch: {}
    proved: bool = False

    def of(self, dtype: Dtype, own: float) -> float:
        """Return the limit of a node: the user's tolerance, otherwise what the number type and the source's
        own rounding allow.

        Args:
            own: the source's own rounding there, relative to its value in float64.
        """
        if self.tolerance is not None:
            return self.tolerance
        if dtype == "float64" or not np.isfinite(own):
            return FLOAT64_LIMIT
        return min(max(FLOAT32_LIMIT, OWN_ROUNDING * own), MOST_ROUNDING)


def _settle(parities: Iterable[Parity], tolerance: float | None) -> tuple[Parity, ...]:
    """Return the comparisons of a port that float64 proves, with those as passed in which only rounding
    exceeds the limits.

    float64 decides what the function is, so no wrong pad can hide: unless a `tolerance` is given, a node may
    then round as many times what the source does there as rounding explains.
    """
    return tuple(
        _settle_one(parity, tolerance) if not parity.ok and _rounds_only(parity) else parity
        for parity in parities
    )


def _settle_one(parity: Parity, tolerance: float | None) -> Parity:
    """Return a parity of a function that float64 proves as passed, with the first node whose rounding exceeds
    a limit. If none is left, none is named.
    """
    if tolerance is None:
        nodes = tuple(
            replace(node, limit=max(node.limit, OWN_ROUNDING * node.rounding)) for node in parity.nodes
        )
        parity = replace(parity, nodes=nodes, limit=max(parity.limit, OWN_ROUNDING * parity.source_rounding))
    bad = next((node for node in parity.nodes if not node.ok), None)
    if bad is None:
        return replace(parity, ok=True, first_bad=None, rounds_from=None)
    blamed = parity.first_bad
    if blamed is None or blamed.path != bad.path:
        blamed = FirstBad(bad.path, bad.rel_l2, None, None, None)
    return replace(parity, ok=True, first_bad=blamed, rounds_from=bad.path)


def _rounds_only(parity: Parity) -> bool:
    """Return whether what exceeds the limits can be rounding: every value is finite, no top class changes by
    more, no value is much further away than its limit, and the source is near its own values in float64.
    """
    near = all(
        node.rounding < OTHER_FUNCTION
        and node.rel_l2 <= _NO_ROUNDING * max(node.limit, OWN_ROUNDING * node.rounding)
        for node in parity.nodes
    )
    return near and not parity.top_changed and NOT_FINITE not in (parity.silent or "")


def compare(
    plan: Plan,
    source: Reference,
    port: Run,
    batches: Mapping[Dtype, Sequence[Array]],
    limits: NodeLimits = NodeLimits(),
    constants_tell: bool = False,
) -> tuple[Parity, ...]:
    """Run both sides over `batches` and compare every node that both show.

    Args:
        batches: for each number type to compare in, N x C x H x W. There is one result for each type.
            Neighbours of one input size count as one batch; the values of only one of them are held at a
            time, and of many values a part (porter.verification.memory.in_parts).
        constants_tell: whether values count as evidence though they are the same for every input.

    Raises:
        CheckFailed: the source does not show an output.
    """
    release(weights_in(plan.graph))
    steps = sum(
        (2 if dtype == "float64" else 3) * len(of_size) * len(parts)
        for dtype in batches
        for of_size, _, parts in _by_size(plan.graph, batches[dtype])
    )
    with _progress(steps) as step:
        sides = _Sides(plan, source, port, limits, step, constants_tell)
        # The types one after the other, because models are large.
        computed = {
            dtype: sides.compare_in(dtype, batches[dtype], {})
            for dtype in sorted(batches, key=lambda dtype: dtype != "float64")
        }
        parities = {dtype: computed[dtype] for dtype in batches}
        # Rounding is allowed for only where float64 shows the function to be the same.
        if parities["float64"].ok if "float64" in parities else limits.proved:
            return _with_rounding_allowed(sides, batches, parities)
        return tuple(parities.values())


def _with_rounding_allowed(
    sides: _Sides, batches: Mapping[Dtype, Sequence[Array]], parities: dict[Dtype, Parity]
) -> tuple[Parity, ...]:
    """Return the comparisons of a port that float64 proves, where those that fail are judged by what rounding
    does: again with values that count as no smaller than what float32 computes them from; and if that does
    not settle all, by the largest of several draws of the source's own rounding.
    """
    limits = sides.limits
    left = [parity.dtype for parity in _settle(parities.values(), limits.tolerance) if not parity.ok]
    scales = {dtype: _least_sizes(limits.errors(batches[dtype][0])) for dtype in left}
    again = {dtype: sides.compare_in(dtype, batches[dtype], scales[dtype]) for dtype in left}
    settled = _settle((parities | again).values(), limits.tolerance)
    if all(parity.ok or parity.top_changed for parity in settled):
        return settled
    drawn = {
        dtype: _with_more_draws(sides.plan.graph, parity, sides.source, batches[dtype], scales[dtype])
        for dtype, parity in again.items()
        if not parity.ok
    }
    return _settle((parities | again | drawn).values(), limits.tolerance)


def _least_sizes(errors: Mapping[str, float]) -> dict[str, float]:
    """Return by path how large a value counts as at least, so that an error of float32 there is within its
    limit.
    """
    return {path: OWN_ROUNDING / FLOAT32_LIMIT * error for path, error in errors.items()}


def _by_size(
    graph: Graph, batches: Sequence[Array]
) -> Iterator[tuple[list[Array], Mapping[str, Shape], list[list[str]]]]:
    """Yield the neighbours of one size among batches, the shapes of an image's values there, and the parts in
    which they are compared.
    """
    for size, group in groupby(batches, key=lambda batch: (batch.shape[2], batch.shape[3])):
        of_size, stated = [*group], shapes(graph, size)
        yield of_size, stated, in_parts(graph, stated, max(map(len, of_size)))


def _shown_values(source: Reference, batch: Array, dtype: Dtype, part: Sequence[str]) -> dict[str, Array]:
    """Return a source's values at those paths of a part that it shows."""
    values = source.run(batch, dtype, part)
    return {path: values[path] for path in part if path in values}


def _with_more_draws(
    graph: Graph,
    parity: Parity,
    source: Reference,
    batches: Sequence[Array],
    scales: Mapping[str, float],
) -> Parity:
    """Return the parity with the largest of several draws of the source's own rounding at each node; each
    draw moves the inputs by one rounding.
    """
    largest = {node.path: node.rounding for node in parity.nodes}
    for seed in range(ROUNDING_DRAWS):
        sums = _Sums(scales)
        for of_size, _, parts in _by_size(graph, batches):
            for part, batch in product(parts, of_size):
                exact = _shown_values(source, batch, "float64", part)
                near = batch.astype(np.dtype(parity.dtype))
                sums.add_rounding(exact, _shown_values(source, moved(near, seed), parity.dtype, part))
        largest = {path: max(known, sums.rounding(path)) for path, known in largest.items()}
    return replace(parity, nodes=tuple(replace(node, rounding=largest[node.path]) for node in parity.nodes))


@dataclass(frozen=True)
class _Sides:
    """A source and a port, as `compare` has them. `step` counts a run."""

    plan: Plan
    source: Reference
    port: Run
    limits: NodeLimits
    step: Callable[[], object]
    constants_tell: bool

    def compare_in(self, dtype: Dtype, batches: Sequence[Array], scales: Mapping[str, float]) -> Parity:
        """Compare in one number type and return the parity, the worst of each node over all sizes. Sizes and
        parts are computed one after the other, because their values are large.

        Args:
            scales: by path, the least size that a value counts as, as in `_Sums`.
        """
        graph, worst = self.plan.graph, _Worst(self.constants_tell)
        for of_size, stated, parts in _by_size(graph, batches):
            sums = _Sums(scales)
            # Part by part, because a runtime may make a session for each.
            for part, batch in product(parts, of_size):
                wanted = _shown_values(self.source, batch, "float64", part)
                self.step()
                if dtype != "float64":
                    exact, wanted = wanted, _shown_values(self.source, batch, dtype, part)
                    sums.add_rounding(exact, wanted)
                    self.step()
                values = dict(self.port(batch, dtype, part))
                worst.reached.add(graph, {INPUT: batch, **values})
                count = sum(value.size for value in values.values())
                sums.add(graph, wanted, values, stated)
                self.step()
                trim(count)
            worst.add(graph, sums, dtype, self.limits)
        return _parity(self.plan, self.source, batches, dtype, worst)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[], object]]:
    """Show a bar on stderr that counts model runs, after the first second; nothing if stderr is no terminal.
    Yield what counts one.
    """
    with progress_bar(total=steps, desc="check", unit=" runs", delay=BAR_AFTER, mininterval=0) as bar:
        yield bar.update


@dataclass
class _Sums:
    """Distances by path, summed over the batches of one size, and the outputs of both sides.

    `own` is the source's distance from itself in float64. The outputs are kept, because a Distance cannot be
    summed.

    Attributes:
        scales: by path, the norm below which no value of one image counts.
        faint: paths of values that are below.
    """

    scales: Mapping[str, float] = field(default_factory=dict)
    nodes: dict[str, Norms] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    own: dict[str, Norms] = field(default_factory=dict)
    samples: dict[str, Samples] = field(default_factory=lambda: defaultdict(Samples))
    outputs: dict[str, list[tuple[Array, Array]]] = field(default_factory=lambda: defaultdict(list))
    faint: set[str] = field(default_factory=set)

    def add_rounding(self, exact: dict[str, Array], rounded: NamedArrays) -> None:
        """Add the source's distance from itself. Values of `exact` are released after they are compared."""
        for path, value in rounded.items():
            _add(self.own, path, self._norms(path, exact.pop(path), value))

    def rounding(self, path: str) -> float:
        """Return the source's relative distance from itself, 0 where it is not known."""
        return self.own[path].rel_l2 if path in self.own else 0.0

    def _norms(self, path: str, wanted: Array, got: Array) -> Norms:
        """Return the norms of a value, with its size counted as no smaller than its scale; note its path in
        `faint` where it is smaller. Arrays of different shapes are infinitely far apart.
        """
        if wanted.shape != got.shape:  # two programs that disagree
            return Norms(math.inf, 0.0, math.inf)
        own = norms(wanted, got)
        scale = self.scales.get(path, 0.0) * math.sqrt(len(wanted))
        self.faint |= {path} if own.source < scale else set()
        return own.by(scale)

    def add(
        self, graph: Graph, wanted: dict[str, Array], got: dict[str, Array], stated: Mapping[str, Shape]
    ) -> None:
        """Add the port's distance from its source. Values of both are released after they are compared.

        Args:
            stated: the shape of every value of one image, as the graph says it.
        """
        for path in (node.path for node in graph.nodes if node.path in wanted and node.path in got):
            value, sources = got.pop(path), wanted.pop(path)
            if _have_same_layout(sources, value, stated[path] if path in graph.outputs else None):
                reference = sources.reshape(value.shape)
            else:
                self.shapes[path] = sources.shape[1:], value.shape[1:]
                # Infinitely far apart, whatever the port gives: NaN would be equal to NaN.
                reference = np.zeros(value.shape)
                value = np.full(value.shape, np.inf)
            _add(self.nodes, path, self._norms(path, reference, value))
            self.samples[path].add(sources)
            if path in graph.outputs:
                self.outputs[path].append((reference, value))


def _add(sums: dict[str, Norms], path: str, more: Norms) -> None:
    sums[path] = sums[path] + more if path in sums else more


def _times_limit(node: NodeDistance) -> float:
    """Return how many times its limit a node is away."""
    return severity(node.rel_l2) / node.limit


@dataclass
class _Worst:
    """The worst over the sizes so far; `constants_tell` is as in `compare`."""

    constants_tell: bool
    nodes: dict[str, NodeDistance] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    variations: dict[str, float] = field(default_factory=dict)
    silent: str | None = None
    logits: Distance | None = None
    top_changed: bool = False
    limit: float = 0.0
    rounding: float = 0.0
    reached: Reached = field(default_factory=Reached)
    faint: set[str] = field(default_factory=set)

    def add(self, graph: Graph, sums: _Sums, dtype: Dtype, limits: NodeLimits) -> None:
        """Add the sums of one size: keep for each node the distance that is worst against its limit, how much
        its values vary, and the worst of the outputs: why they tell nothing, whether the top class changes,
        and the logits' distance.
        """
        self.shapes |= sums.shapes
        self.faint |= sums.faint
        varying = {path: samples.variation for path, samples in sums.samples.items()}
        self.variations = {
            path: max(variation, self.variations.get(path, 0.0)) for path, variation in varying.items()
        }
        for path, summed in sums.nodes.items():
            rounding = sums.rounding(path)
            node = NodeDistance(path, summed.rel_l2, summed.max_abs, limits.of(dtype, rounding), rounding)
            self.nodes[path] = max(self.nodes.get(path, node), node, key=_times_limit)
            if path in sums.outputs:
                wanted, got = (np.concatenate(side) for side in zip(*sums.outputs[path], strict=True))
                # Values of other axes are compared as none at all.
                reason = None if path in self.shapes else tells_nothing_because(graph, path, varying, wanted)
                if self.constants_tell and reason != NOT_FINITE:
                    reason = None
                self.silent = self.silent or (reason and f"the reference's {path} {reason}")
                has_classes = wanted.ndim == 2 and np.isfinite(wanted).all() and np.isfinite(got).all()
                self.top_changed |= has_classes and top_margin(wanted, got, summed.source) > 2 * node.limit
                if path == graph.output:
                    logits = distance(wanted, got, summed.source)
                    self.logits = farthest((self.logits or logits, logits))
                    self.limit = max(self.limit, node.limit)
                    self.rounding = max(self.rounding, rounding)


def _parity(plan: Plan, source: Reference, batches: Sequence[Array], dtype: Dtype, worst: _Worst) -> Parity:
    """Return the parity of all batches in one number type, from the worst of each node.

    Raises:
        CheckFailed: the source does not show an output.
    """
    hidden = next((path for path in plan.graph.outputs if path not in worst.nodes), None)
    if hidden is not None or worst.logits is None:
        raise CheckFailed("the reference does not show this output, so nothing is proved", where=hidden)
    nodes = tuple(worst.nodes[node.path] for node in plan.graph.nodes if node.path in worst.nodes)
    bad = next((node for node in nodes if not node.ok), None)
    return Parity(
        ok=bad is None and worst.silent is None and not worst.top_changed,
        reference=source.name,
        run_by=source.run_by,
        dtype=dtype,
        sizes=tuple(dict.fromkeys((batch.shape[2], batch.shape[3]) for batch in batches)),
        inputs=sum(batch.shape[0] for batch in batches),
        limit=worst.limit,
        source_rounding=worst.rounding,
        logits=worst.logits,
        first_bad=_blame(plan, bad, worst) if bad else None,
        nodes=nodes,
        uncompared=tuple(node.path for node in plan.graph.nodes if node.path not in worst.nodes),
        unexcited=unexcited([node.path for node in nodes], worst.variations),
        unreached=worst.reached.unreached(plan.graph),
        silent=worst.silent,
        top_changed=worst.top_changed,
        faint=tuple(node.path for node in nodes if node.path in worst.faint),
    )


def _have_same_layout(wanted: Array, got: Array, output: Shape | None) -> bool:
    """Return whether the source's values can be laid out as the port's, cell by cell.

    Inside a network a source may show a value with other axes. An output has the shape that a caller gets,
    but a head that is a 1x1 convolution gives N x C x 1 x 1 for a port whose graph has N x C.

    Args:
        output: the shape of an output for one image, as the graph says it; None of other values.
    """
    if output is None:
        return wanted.size == got.size
    return wanted.shape == got.shape or (got.shape[1:] == output and wanted.shape == (*got.shape, 1, 1))


def _blame(plan: Plan, bad: NodeDistance, worst: _Worst) -> FirstBad:
    """Return where a difference starts, with the padding site (a node with a window) that may have caused it:
    the node itself, or one before it that the source does not show. A small difference in values is no pad,
    so no site is named then.
    """
    unseen = _hidden_before(plan.graph, bad.path, worst.nodes.keys())
    windows = {path: site for path in (bad.path, *unseen) if (site := site_of(plan.graph.by_path[path].op))}
    shapes = worst.shapes.get(bad.path)
    # Of several steps that the source does not show, one without pads is no likelier than another.
    sites = {
        path: site
        for path, site in windows.items()
        if site.window.kernel != (1, 1)
        and (path == bad.path or shapes is not None or site.convention.rule != "valid")
    }
    path = next(iter(sites), None)
    blamed = FirstBad(bad.path, bad.rel_l2, None, None, None, shapes, unseen)
    # A wrong pad moves values by more, and no channels.
    # Values of other shapes have as many channels where only a pad is wrong.
    is_pad = bad.rel_l2 > MOST_ROUNDING if shapes is None else shapes[0][:1] == shapes[1][:1]
    if path is None or not is_pad:
        return blamed
    return replace(blamed, site=path, source=str(sites[path]), realised=str(plan.realisations[path]))


def _hidden_before(graph: Graph, bad: str, shown: Set[str]) -> tuple[str, ...]:
    """Return the nodes between a node and the nearest ones before it that the source shows, nearest first.

    torchvision's Inception has no module for its averages: the first node that it shows after one is a 1x1
    convolution.
    """
    hidden = dict.fromkeys([bad])
    waiting = deque(hidden)
    while waiting:
        for source in graph.by_path[waiting.popleft()].inputs:
            if source in graph.by_path and source not in shown and source not in hidden:
                hidden[source] = None
                waiting.append(source)
    return tuple(hidden)[1:]
