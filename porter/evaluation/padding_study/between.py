"""`--between ZOO,ZOO`: as which of two zoos' networks of the same tensors were these weights trained? Photos
decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from porter.base.commands import RECIPE_SHOW, ZOO
from porter.base.errors import MappingError, PaddingError, UsageError
from porter.base.options import BETWEEN
from porter.base.package import page
from porter.data.photos import Failure, PhotoSet
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import protocol_in_words
from porter.evaluation.padding_study.best_case import LEVEL, CaseRanking, judge
from porter.evaluation.padding_study.cases import Trial
from porter.evaluation.padding_study.rounds import Outcome
from porter.evaluation.padding_study.runs import Bench
from porter.evaluation.padding_study.study_results import StudyAnswer
from porter.evaluation.photo_options import Options
from porter.evaluation.protocol import expect_square
from porter.evaluation.results import Crops
from porter.graph import Graph, tensor_shapes, with_classes
from porter.graph.difference import Difference, differences
from porter.recipe import Member, expand, with_options
from porter.recipe.twins import TRAINING_ATTRIBUTES
from porter.source.opened import Opened
from porter.source.photo_protocol import in_proportion


@dataclass(frozen=True)
class ZooNetwork:
    """One zoo's network with the weights, fed by one protocol.

    Attributes:
        name: the zoo's; with whose protocol it is, where that is another zoo's.
        differs: what this network computes otherwise than the other, in words.
    """

    name: str
    zoo: str
    graph: Graph
    protocol: Preprocess
    differs: str


@dataclass(frozen=True)
class Decided:
    """The networks with their outcomes, in their order; `ranking` is by the loss that decides.

    Attributes:
        failed: by position, the photos that could not be scored.
    """

    networks: tuple[ZooNetwork, ...]
    outcomes: tuple[Outcome, ...]
    failed: Mapping[int, Failure]

    @property
    def ranking(self) -> CaseRanking:
        return judge([outcome.judged for outcome in self.outcomes])

    @property
    def by_entropy(self) -> CaseRanking:
        return judge([outcome.entropy for outcome in self.outcomes])

    def trained(self, ranking: CaseRanking, measure: str) -> StudyAnswer:
        """Return the answer: the zoo of the best case, which is certain if every case of the other zoo is
        significantly worse; otherwise the other zoo is in `also`.

        Args:
            ranking: the cases by the loss that decides, or by entropy.
            measure: what that loss is called.
        """
        best = self.networks[ranking.best]
        other_zoos = dict.fromkeys(network.zoo for network in self.networks if network.zoo != best.zoo)
        plausible_zoos = {self.networks[position].zoo for position in ranking.plausible}
        of_other_zoo = [position for position, network in enumerate(self.networks) if network.zoo != best.zoo]
        also = tuple(zoo for zoo in other_zoos if zoo in plausible_zoos)
        limit = f"{LEVEL} / {len(self.networks) - 1}"
        if also:
            why = (
                f"'{best.name}' has the least {measure}, but on these photos it is not clearly better: "
                f"p is not below {limit}"
            )
            number = ranking.decisive(
                [position for position in ranking.plausible if position in of_other_zoo]
            )
            more = "" if number is None else f", about {number:,} decide"
            short = (
                f"Trained as {' or '.join((best.zoo, *also))}: {ranking.photos:,} photos are too few{more}"
            )
        else:
            p = max(ranking.p[position] for position in of_other_zoo)
            why = f"every case of the other zoo has a larger {measure}: p is below {limit}, at most {p:.1e}"
            short = f"Trained as {best.zoo}, not {' nor '.join(other_zoos)} (certain)"
        return StudyAnswer(best.zoo, not also, also, why, short)


def parse_between(given: str | Sequence[str]) -> tuple[str, str]:
    """Parse two zoos, as `ZOO,ZOO` or as a pair.

    Raises:
        UsageError: they are not two.
    """
    zoos = tuple(given.split(",") if isinstance(given, str) else given)
    if len(zoos) != 2 or not all(zoos) or zoos[0] == zoos[1]:
        raise UsageError("expected two zoos", where=BETWEEN, next=f"write {BETWEEN((ZOO, ZOO))}")
    return zoos[0], zoos[1]


def networks_of_zoos(
    opened: Opened, members: Sequence[Member], crops: Crops
) -> tuple[tuple[ZooNetwork, ...], tuple[Difference, ...]]:
    """Return each zoo's network with the weights, fed by each zoo's protocol (how photos are prepared), so up
    to four of two zoos; and what the two networks compute otherwise. A protocol that the user or the weights'
    folder states is the only one.

    Raises:
        UsageError: the two zoos compute the same, or a protocol feeds no squares.
        MappingError: a zoo's network takes other tensors.
    """
    first, second = (_graph(opened, member) for member in members)
    differences_found = differences(first, second, TRAINING_ATTRIBUTES)
    zoos = [member.zoo.name for member in members]
    if not differences_found:
        message = f"{members[0].name} and {members[1].name} compute the same, so there is nothing to decide"
        raise UsageError(
            message, where=BETWEEN, next=f"{RECIPE_SHOW.advise(name=members[0].variant)} lists the zoos"
        )
    zoos_by_protocol: dict[Preprocess, list[str]] = {}
    for member in members:
        protocol = _protocol(opened, member, crops)
        zoos_by_protocol.setdefault(protocol, []).append(member.zoo.name)
    # what each graph has where they differ, such as `pads same`
    in_words = (
        "; ".join(
            f"{difference.what} {getattr(difference, side) or 'none'}" for difference in differences_found
        )
        for side in ("one", "other")  # the fields of a Difference: the first graph's, the second's
    )
    networks: list[ZooNetwork] = []
    for zoo, graph, differs in zip(zoos, (first, second), in_words, strict=True):
        for protocol, zoos_of_protocol in zoos_by_protocol.items():
            network = ZooNetwork(zoo, zoo, graph, protocol, differs)
            # With two protocols, each network is fed by both, and its name says by whose.
            if len(zoos_by_protocol) > 1:
                network = replace(network, differs=f"{differs}; {protocol_in_words(protocol, crops)}")
            if zoo not in zoos_of_protocol:
                name = f"{zoo}, photos prepared as {' and '.join(zoos_of_protocol)}'s"
                network = replace(network, name=name)
            networks.append(network)
    # Those that are fed as their own zoo prepares photos come first.
    return tuple(sorted(networks, key=lambda network: network.name != network.zoo)), differences_found


def decide(opened: Opened, networks: Sequence[ZooNetwork], photos: PhotoSet, how: Options) -> Decided:
    """Run every network over the photos, those of one protocol together, and return the outcomes with which
    the weights' zoo is decided.

    Raises:
        PaddingError: a network computes nothing at the size that its protocol feeds.
        KeyboardInterrupt: Ctrl-C.
    """
    outcomes: dict[str, Outcome] = {}
    failed: dict[int, Failure] = {}
    for protocol in dict.fromkeys(network.protocol for network in networks):
        fed_alike = [network for network in networks if network.protocol == protocol]
        bench = Bench.of(opened, protocol, photos, how)
        trials = [Trial((network.name,), {}, graph=network.graph) for network in fed_alike]
        for trial in trials:
            if (why := bench.setting.misfit(trial)) is not None:
                raise PaddingError(why, where=trial.name)
        outcomes |= zip((network.name for network in fed_alike), bench.run(trials), strict=True)
        failed |= bench.failed
    in_order = tuple(outcomes[network.name] for network in networks)
    return Decided(tuple(networks), in_order, failed)


def _graph(opened: Opened, member: Member) -> Graph:
    """Return the network of a zoo with the head of the weights, and with the options that are set for them.

    Raises:
        MappingError: it needs other tensors than the weights have.
    """
    if opened.member is not None and opened.member.zoo.name == member.zoo.name:
        return opened.graph
    graph = with_classes(expand(with_options(member, opened.chosen)), opened.facts.classes)
    existing = tensor_shapes(opened.graph)
    needed = tensor_shapes(graph)
    if existing != needed:
        paths = dict.fromkeys((*existing, *needed))
        path = next(path for path in paths if existing.get(path) != needed.get(path))
        message = f"{member.name} needs tensors here that differ from those of the weights"
        raise MappingError(
            message, where=path, next=f"name zoos whose networks take the same tensors: {page('twins.md')}"
        )
    return graph


def _protocol(opened: Opened, member: Member, crops: Crops) -> Preprocess:
    """Return how a zoo prepares its photos, unless the user or the weights' folder states it."""
    facts = opened.facts
    if facts.protocol_by not in ("user", "file"):
        of_zoo = in_proportion(member.zoo.preprocess, opened.sizes.built, member.native_size())
        facts = opened.stating(preprocess=of_zoo or facts.preprocess)
    return expect_square(facts, opened.graph.channels, crops, opened.file.file)
