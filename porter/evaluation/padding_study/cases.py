"""The cases of a padding study: which sites are padded how, and which of them are one function.

TensorNets' maintainer told apart what its weights had been trained with by trying two paddings at the strided layers
(taehoonlee/tensornets#25): SAME, whose odd cell is at the bottom and right, and (k-1)//2 cells on every side. They agree on odd
maps and are a cell apart on even ones, where nothing but the accuracy shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from porter.errors import GraphError, PaddingError
from porter.graph import Graph, nonnegative_paths, shapes, site_of
from porter.padding import LOWEST, Capabilities, Convention, Site, same_function
from porter.plan import make_plan
from porter.trained import with_conventions

Twins = Literal["name", "tell", "drop"]
SHIPPED, ASYMMETRIC, SYMMETRIC, TRAINED = "as shipped", "asymmetric", "symmetric", "as trained"


class Change(NamedTuple):
    """A site and the convention that it gets."""

    path: str
    convention: Convention

    def __str__(self) -> str:
        return f"{self.path} {self.convention}"


@dataclass(frozen=True)
class Trial:
    """One padding of the weights.

    Attributes:
        names: all that it goes by; several where two candidates compute the same.
        conventions: by path, at the sites that it speaks of; every other site is padded as shipped.
        changes: how many of these sites were changed one by one, rather than by a rule.
    """

    names: tuple[str, ...]
    conventions: Mapping[str, Convention]
    changes: int = 0

    @property
    def name(self) -> str:
        return " = ".join(self.names)


def site_at(graph: Graph, path: str) -> Site:
    """The padding site of a node that is one.

    Raises:
        GraphError: it is none.
    """
    site = site_of(graph.by_path[path].op)
    if site is None:
        raise GraphError("this is no padding site", where=path)
    return site


def strided_sites(graph: Graph) -> tuple[str, ...]:
    """Paths of the windows wider than a cell that move by more than one: where SAME and equal pads part."""
    sites = [(node.path, site) for node in graph.nodes if (site := site_of(node.op))]
    return tuple(path for path, site in sites if max(site.window.stride) > 1 and max(site.window.kernel) > 1)


def asymmetric(site: Site) -> Convention:
    """TensorFlow's SAME; a max pool sees -inf there, and an average divides as before."""
    return Convention("same", fill=_neutral(site), average=site.convention.average)


def symmetric(site: Site) -> Convention:
    """(k-1)//2 cells on every side, rounded down, as TensorNets' explicit pads are."""
    rows, columns = ((site.window.extent(axis) - 1) // 2 for axis in (0, 1))
    pads = (rows, rows, columns, columns)
    return Convention("explicit" if any(pads) else "valid", pads, _neutral(site), site.convention.average)


def _neutral(site: Site) -> float:
    return LOWEST if site.kind == "max_pool" else 0.0


def first_round(graph: Graph, trained: Mapping[str, Convention]) -> tuple[Trial, ...]:
    """The zoo's own pads, both conventions at all strided sites, and what the recipe says of training (`trained`), if it does."""
    strided = {path: site_at(graph, path) for path in strided_sites(graph)}
    trials = [
        Trial((SHIPPED,), {}),
        Trial((ASYMMETRIC,), {path: asymmetric(site) for path, site in strided.items()}),
        Trial((SYMMETRIC,), {path: symmetric(site) for path, site in strided.items()}),
    ]
    return (*trials, Trial((TRAINED,), trained)) if trained else tuple(trials)


def single_changes(graph: Graph, base: Trial) -> Iterator[Change]:
    """What else each strided site could be, one at a time: both conventions and, at a max pool that the zoo fills with zeros, each
    of them and the base's with -inf and with zeros.
    """
    padded = with_conventions(graph, base.conventions)
    for path in strided_sites(graph):
        site = site_at(graph, path)
        found = [asymmetric(site), symmetric(site)]
        if site.kind == "max_pool" and site.convention.fill == 0:
            found += [site_at(padded, path).convention]
            found = [replace(convention, fill=fill) for convention in found for fill in (LOWEST, 0.0)]
        yield from (Change(path, convention) for convention in found)


def changed(base: Trial, changes: Sequence[Change]) -> Trial:
    """`base` with other conventions at some sites."""
    name = f"{base.names[0]}, but {'; '.join(map(str, changes))}"
    return Trial((name,), {**base.conventions, **{change.path: change.convention for change in changes}}, len(changes))


def same_windows(one: Graph, other: Graph, size: tuple[int, int]) -> bool:
    """Whether two paddings of a graph compute the same for an input of `size` (rows, columns)."""
    known = shapes(one, size)
    if known != shapes(other, size):
        return False
    nonnegative = nonnegative_paths(one)
    for node, twin in zip(one.nodes, other.nodes, strict=True):
        site, padded = site_of(node.op), site_of(twin.op)
        if site is None or padded is None or site.convention == padded.convention:
            continue
        _, rows, columns = known[node.inputs[0]]
        if not same_function(site, padded.convention, (rows, columns), node.inputs[0] in nonnegative):
            return False
    return True


@dataclass(frozen=True)
class Setting:
    """What the cases of a study have in common.

    Attributes:
        graph: with the zoo's own pads.
        size: rows and columns of the input.
        capabilities: of the framework that runs it.
    """

    graph: Graph
    size: tuple[int, int]
    capabilities: Capabilities

    def padded(self, trial: Trial) -> Graph:
        return with_conventions(self.graph, trial.conventions)

    def misfit(self, trial: Trial) -> str | None:
        """Why a trial computes nothing: maps that no longer have one size where they are added or joined, a window without a cell.
        None where it does.
        """
        try:
            make_plan(self.padded(trial), self.size, self.capabilities)
        except (GraphError, PaddingError) as error:
            return str(error)
        return None

    def twin(self, trial: Trial, among: Iterable[Trial]) -> Trial | None:
        """The first of `among` that computes the same as `trial`."""
        graph = self.padded(trial)
        return next((other for other in among if same_windows(self.padded(other), graph, self.size)), None)

    def differences(self, trial: Trial) -> dict[str, str]:
        """By path, the convention in words where it is not the zoo's own."""
        items = trial.conventions.items()
        return {path: str(convention) for path, convention in items if convention != site_at(self.graph, path).convention}

    def in_words(self, trial: Trial) -> str:
        """The conventions of the strided sites, each once."""
        graph = self.padded(trial)
        return "; ".join(dict.fromkeys(str(site_at(graph, path).convention) for path in strided_sites(graph)))


@dataclass(frozen=True)
class Sifted:
    """Candidates against the trials that there are.

    Attributes:
        trials: those that there were, in their order, then the new ones.
        skipped: by name, why a candidate is not run.
    """

    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]


def sift(setting: Setting, trials: Sequence[Trial], candidates: Iterable[Trial], twins: Twins) -> Sifted:
    """Adds the candidates that compute what no trial does yet. One that does what a trial does already lends it its name, is told
    among those skipped, or is dropped.
    """
    kept, skipped = list(trials), {}
    for candidate in candidates:
        why = setting.misfit(candidate)
        if why is not None:
            skipped[candidate.name] = why
            continue
        twin = setting.twin(candidate, kept)
        if twin is None:
            kept.append(candidate)
        elif twins == "name":
            kept[kept.index(twin)] = replace(twin, names=(*twin.names, *candidate.names))
        elif twins == "tell":
            skipped[candidate.name] = f"at this size it has the windows of '{twin.name}'"
    return Sifted(tuple(kept), skipped)
