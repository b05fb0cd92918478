"""The cases of a padding study: the conventions of each, and which cases are the same function.

TensorNets' maintainer found the padding that its weights had been trained with by trying two paddings at the
strided layers (taehoonlee/tensornets#25): SAME, whose odd cell is at the bottom and right, and (k-1)//2 cells
on every side. They agree on odd maps and differ by one cell on even ones, where only the accuracy shows the
difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from porter.base.errors import GraphError, PaddingError
from porter.graph import Graph, shapes, site_of
from porter.graph.difference import site_differences
from porter.graph.pads import with_conventions
from porter.graph.plan import make_plan
from porter.padding import LOWEST, Capabilities, Convention, KnownSize, Site

TwinRule = Literal["name", "tell", "drop"]
SHIPPED, ASYMMETRIC, SYMMETRIC, TRAINED = "as shipped", "asymmetric", "symmetric", "as trained"


class Change(NamedTuple):
    """A site and its new convention."""

    path: str
    convention: Convention

    def __str__(self) -> str:
        return f"{self.path} {self.convention}"


@dataclass(frozen=True)
class Trial:
    """One padding of the weights.

    Attributes:
        names: several if two candidates compute the same.
        conventions: by path, at the sites that it changes; every other site has the shipped convention.
        changes: the number of these sites that were changed one by one, not by a rule.
        graph: another network of the same tensors, in place of the zoo's own.
    """

    names: tuple[str, ...]
    conventions: Mapping[str, Convention]
    changes: int = 0
    graph: Graph | None = None

    @property
    def name(self) -> str:
        return " = ".join(self.names)


def site_at(graph: Graph, path: str) -> Site:
    """Return the padding site of a node: its window, and its convention (how it pads).

    Raises:
        GraphError: the node has no window.
    """
    site = site_of(graph.by_path[path].op)
    if site is None:
        raise GraphError("this is not a padding site", where=path)
    return site


def strided_sites(graph: Graph) -> tuple[str, ...]:
    """Return the paths of the sites (nodes with a window) whose window is larger than 1x1 and has a stride
    above 1: there SAME and equal pads differ.
    """
    sites = [(node.path, site) for node in graph.nodes if (site := site_of(node.op))]
    return tuple(path for path, site in sites if max(site.window.stride) > 1 and max(site.window.kernel) > 1)


def asymmetric(site: Site) -> Convention:
    """Return TensorFlow's SAME for a site; a max pool pads with -inf, and an average divides as before."""
    return Convention("same", fill=_neutral(site), average=site.convention.average)


def symmetric(site: Site) -> Convention:
    """Return (k-1)//2 cells on every side of a site and windows rounded down, like TensorNets' explicit
    pads.
    """
    rows, columns = ((site.window.extent(axis) - 1) // 2 for axis in (0, 1))
    pads = (rows, rows, columns, columns)
    return Convention.stated(pads, _neutral(site), site.convention.average)


def _neutral(site: Site) -> float:
    """Return what a site is padded with so that its pads change nothing: -inf in a max pool, otherwise 0."""
    return LOWEST if site.kind == "max_pool" else 0.0


def first_round(graph: Graph, trained: Mapping[str, Convention]) -> tuple[Trial, ...]:
    """Return the trials of the shipped pads, of both conventions at all strided sites, and of the recipe's
    training pads (`trained`), if there are any.
    """
    strided = {path: site_at(graph, path) for path in strided_sites(graph)}
    trials = [
        Trial((SHIPPED,), {}),
        Trial((ASYMMETRIC,), {path: asymmetric(site) for path, site in strided.items()}),
        Trial((SYMMETRIC,), {path: symmetric(site) for path, site in strided.items()}),
    ]
    return (*trials, Trial((TRAINED,), trained)) if trained else tuple(trials)


def single_changes(graph: Graph, base: Trial) -> Iterator[Change]:
    """Yield the changes of one strided site each (a window with a stride): to both conventions (how it pads:
    asymmetric and symmetric). At a max pool that the zoo fills with zeros, each of them and the base's
    convention come with -inf and with zeros.

    Args:
        base: the trial whose other pads stay.
    """
    graph_of_base = with_conventions(graph, base.conventions)
    for path in strided_sites(graph):
        site = site_at(graph, path)
        conventions = [asymmetric(site), symmetric(site)]
        if site.kind == "max_pool" and site.convention.fill == 0:
            # the base's own pads, which may have another fill
            conventions += [site_at(graph_of_base, path).convention]
            conventions = [
                replace(convention, fill=fill) for convention in conventions for fill in (LOWEST, 0.0)
            ]
        yield from (Change(path, convention) for convention in conventions)


def with_changes(base: Trial, changes: Sequence[Change]) -> Trial:
    """Return `base` with other conventions at some sites."""
    name = f"{base.names[0]}, but {'; '.join(map(str, changes))}"
    changed = {change.path: change.convention for change in changes}
    return Trial((name,), {**base.conventions, **changed}, len(changes))


def same_windows(one: Graph, other: Graph, size: KnownSize) -> bool:
    """Return whether two paddings of a graph compute the same for an input of `size` (rows, columns): maps of
    the same sizes, whose windows read the same cells and pads.
    """
    return shapes(one, size) == shapes(other, size) and not any(site_differences(one, other, size))


@dataclass(frozen=True)
class Setting:
    """The common part of a study's cases.

    Attributes:
        graph: with the zoo's own pads.
        size: rows and columns of the input.
        capabilities: of the framework that runs it.
    """

    graph: Graph
    size: KnownSize
    capabilities: Capabilities

    def padded_graph(self, trial: Trial) -> Graph:
        """Return the trial's network, or the zoo's own, with the trial's conventions."""
        return with_conventions(trial.graph or self.graph, trial.conventions)

    def misfit(self, trial: Trial) -> str | None:
        """Say why a trial computes nothing: maps differ in size where they are added or joined, or a window
        has no cell. None if it computes something.
        """
        try:
            make_plan(self.padded_graph(trial), self.size, self.capabilities)
        except (GraphError, PaddingError) as error:
            # What to type next is for conversions.
            return ": ".join(part for part in (error.where, error.message) if part)
        return None

    def equal_trial(self, trial: Trial, among: Iterable[Trial]) -> Trial | None:
        """Return the first of `among` that computes the same as `trial`; None if none does."""
        graph = self.padded_graph(trial)
        for earlier in among:
            if same_windows(self.padded_graph(earlier), graph, self.size):
                return earlier
        return None

    def differences(self, trial: Trial) -> dict[str, str]:
        """Return by path the conventions that differ from the zoo's own, in words."""
        return {
            path: str(convention)
            for path, convention in trial.conventions.items()
            if convention != site_at(self.graph, path).convention
        }

    def in_words(self, trial: Trial) -> str:
        """List the conventions of a trial's strided sites, each once, such as `same; valid`."""
        graph = self.padded_graph(trial)
        return "; ".join(dict.fromkeys(str(site_at(graph, path).convention) for path in strided_sites(graph)))


@dataclass(frozen=True)
class Selection:
    """The result of `select_trials`.

    Attributes:
        trials: the earlier trials in their order, then the new ones.
        skipped: by name, why a candidate is not run.
    """

    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]


def select_trials(
    setting: Setting, trials: Sequence[Trial], candidates: Iterable[Trial], twins: TwinRule
) -> Selection:
    """Return the earlier trials with those candidates that compute something new. A candidate that computes
    nothing at this size is skipped, with the reason.

    Args:
        twins: what becomes of a candidate that computes the same as a trial: it gives it another name
            (`name`), is listed as skipped (`tell`), or is dropped (`drop`).
    """
    kept, skipped = list(trials), {}
    for candidate in candidates:
        why = setting.misfit(candidate)
        if why is not None:
            skipped[candidate.name] = why
            continue
        equal = setting.equal_trial(candidate, kept)
        if equal is None:
            kept.append(candidate)
        elif twins == "name":
            kept[kept.index(equal)] = replace(equal, names=(*equal.names, *candidate.names))
        elif twins == "tell":
            skipped[candidate.name] = f"at this size it has the windows of '{equal.name}'"
    return Selection(tuple(kept), skipped)
