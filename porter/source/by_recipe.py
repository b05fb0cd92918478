"""Opens a file as a variant of a zoo, or as the likeliest of those that it could be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from porter.base.errors import MappingError, PorterError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.port import Origin
from porter.recipe import Member, Zoo, assumed_options, assumed_size, with_options
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit
from porter.source.fitting.names_by_position import name_by_position
from porter.source.opened import Opened, open_fit
from porter.source.origin import KnownOrigin, as_stated_zoo, expect_origin, origin_of
from porter.source.photo_protocol import in_proportion, with_scaling
from porter.source.ranking.rank import Match
from porter.source.wishes import NONE, Wishes, expect_no_options


def open_match(match: Match, wishes: Wishes, others: Iterable[Candidate] = ()) -> Opened:
    """Open the file as a match and return it. If the weights are stated to come from a twin (a zoo's model
    with the same tensors that computes something else), open them as the twin, which may be one of `others`.

    Raises:
        UsageError: it is stated to be another network.
        MappingError: as `open_candidate`.
    """
    known_origin = origin_of(match.candidate)
    return open_with_origin(as_stated_zoo(match.candidate, known_origin, others), known_origin, wishes)


def open_with_origin(candidate: Candidate, known_origin: KnownOrigin, wishes: Wishes) -> Opened:
    """Open the file as a variant, with the options of the recipe that its origin sets.

    Args:
        known_origin: where the weights come from, with the options that this sets.

    Raises:
        UsageError: it is stated to be another network.
        MappingError: as `open_candidate`.
    """
    expect_origin(candidate, known_origin)
    wishes = replace(wishes, options={**known_origin.options, **wishes.options})
    return open_candidate(candidate, wishes, known_origin.origin)


def open_candidate(candidate: Candidate, wishes: Wishes = NONE, origin: Origin | None = None) -> Opened:
    """Open a file as a variant of a zoo: fit its tensors to the recipe's graph, and state what the recipe
    and the file say of it. If a zoo publishes this very file, its protocol, labels and figures are taken,
    though another zoo was asked for.

    Raises:
        UsageError: options of the recipe are wished that the file itself states.
        MappingError: file and graph do not cover each other; `maps` has settings of `--map` that would
            settle it.
    """
    member, checkpoint = candidate.member, candidate.checkpoint
    publisher = candidate.publisher
    if publisher not in (None, member) and publisher.is_a not in candidate.equals:
        # The user insists on a zoo whose model takes the same tensors and computes something else.
        publisher = None
    other_zoo_warnings = _other_zoo_warning(publisher, member)
    member = publisher or member
    zoo = member.zoo
    if checkpoint.dialect not in (None, zoo.framework):
        message = (
            f"this is a {checkpoint.dialect} file ({checkpoint.format}), and zoo '{zoo.name}' is "
            f"{zoo.framework}'s"
        )
        raise MappingError(message, where=str(checkpoint.path))
    if checkpoint.graph is not None:
        expect_no_options(wishes, str(checkpoint.path), "the file carries its own graph")
    native_size = member.native_size()
    member = with_options(member, wishes.options)
    candidate, position_warnings = name_by_position(
        candidate if member is candidate.member else Candidate.of(member, checkpoint)
    )
    checkpoint = candidate.checkpoint
    fit = _fit(candidate, wishes)
    # What a publisher or the file's own graph records is not assumed from the recipe.
    recorded = publisher is not None or checkpoint.graph is not None
    opened = open_fit(fit, checkpoint, zoo.framework, member.native_size(), get_dialect(zoo.framework))
    protocol = in_proportion(zoo.preprocess, opened.sizes.built, native_size)
    protocol, scaling_warnings = with_scaling(protocol, fit.in_file.scaling)
    states_protocol = "recipe" if publisher is None else "published"
    labels = zoo.labels if fit.own_head else None
    return replace(
        opened,
        facts=opened.stating(
            options={**fit.options, "classes": fit.classes},
            preprocess=protocol,
            protocol_by=None if protocol is None else states_protocol,
            labels=labels.name if labels else None,
            class_names=labels.names if labels else (),
            origin=origin,
            twins=candidate.twins,
            licence=publisher.zoo.licence_of(publisher.variant) if publisher else None,
            assumed=() if recorded else _assumptions(checkpoint, fit, member.zoo),
        ),
        file=opened.file.model_copy(update={"published": publisher is not None}),
        member=member,
        chosen=wishes.options,
        assumed_size=() if recorded else assumed_size(member.zoo, opened.sizes.built),
        warnings=(*other_zoo_warnings, *position_warnings, *fit.warnings, *scaling_warnings),
    )


def _fit(candidate: Candidate, wishes: Wishes) -> Fit:
    """Return the fit of the file to the variant: which of its tensors belongs to which node. It is found by
    the file's graph where it carries one, otherwise by names. Settings of `--map` come first.
    """
    candidate = candidate.with_map(wishes.map)
    if candidate.checkpoint.graph is None:
        return fit_by_names(candidate, wishes.background)
    from porter.source.fitting.by_graph import fit_by_graph  # most files hold only weights

    return fit_by_graph(candidate, wishes.background)


def _other_zoo_warning(publisher: Member | None, asked: Member) -> tuple[str, ...]:
    """Return a warning if another zoo publishes the weights than was asked for."""
    if publisher is None or publisher.zoo.name == asked.zoo.name:
        return ()
    return (
        (
            f"zoo '{publisher.zoo.name}' publishes this file: its preprocessing and figures are used, not "
            f"{asked.zoo.name}'s"
        ),
    )


def _assumptions(checkpoint: Checkpoint, fit: Fit, zoo: Zoo) -> tuple[str, ...]:
    """Return what a file of weights does not say and porter takes from the zoo: one line each."""
    return (*_assumed_scaling(checkpoint, fit), *assumed_options(zoo, fit.options), *_assumed_activation(fit))


def _assumed_scaling(checkpoint: Checkpoint, fit: Fit) -> tuple[str, ...]:
    """Return one line if the file names layers that scale the input inside the model, such as Keras's
    `rescaling`, and that the zoo's own model lacks: a file of weights does not say what they compute, so
    they are left out. Return an empty tuple otherwise.
    """
    zoo_layers, scaling = set(fit.in_zoo.taps.values()), checkpoint.scaling
    # Keras appends a number to a second layer of one name in a process: rescaling_1.
    stems = {name: re.sub(r"_\d+$", "", name) for name in scaling}
    # The zoo's rescaling is this rescaling_1, if the file has none without a number.
    renumbered = {stem: name for name, stem in stems.items() if stem in zoo_layers and stem not in scaling}
    foreign = [name for name in scaling if name not in zoo_layers and renumbered.get(stems[name]) != name]
    if not foreign:
        return ()
    layers = some([f"'{name}'" for name in foreign])
    return (
        (
            f"the input is what the zoo's own model takes: {layers} in the file is left out; to keep it, "
            "give the whole model"
        ),
    )


def _assumed_activation(fit: Fit) -> tuple[str, ...]:
    """Return one line if the activation after the user's own head is taken from the zoo, because a file of
    weights records none.
    """
    if fit.own_head or fit.activation is None:
        return ()
    return (
        (
            f"the model ends in a {fit.activation}: a file of weights does not say; if yours differs, give "
            "the whole model"
        ),
    )


@dataclass(frozen=True)
class Likeliest:
    """The match whose graph differs least from the file's, and the file opened as it.

    Attributes:
        match: None if the file is none of the matches.
        opened: None if `match` is.
        problems: the errors of the matches that it is not.
    """

    match: Match | None
    opened: Opened | None
    problems: Sequence[tuple[Match, PorterError]]


def open_likeliest(matches: Sequence[Match], wishes: Wishes = NONE) -> Likeliest:
    """Open the file as its matches, one after the other, until one has no difference from the file. Return
    the match with the fewest differences and the file opened as it, both None if none opens, with the errors
    of those that do not.
    """
    opened: list[tuple[Match, Opened]] = []
    problems: list[tuple[Match, PorterError]] = []
    candidates = [match.candidate for match in matches]
    for match in matches:
        try:
            opened.append((match, open_match(match, wishes, candidates)))
        except PorterError as error:
            problems.append((match, error))
        if opened and not _count_differences(opened[-1][1]):
            break
    best, opened_as_best = min(opened, key=lambda pair: _count_differences(pair[1]), default=(None, None))
    return Likeliest(best, opened_as_best, problems)


def _count_differences(opened: Opened) -> int:
    """Return the number of differences between the file's graph and the recipe's; 0 for a file without a
    graph.
    """
    if opened.fitted is None:
        return 0
    in_file = opened.fitted.fit.in_file
    return in_file.differences + len(in_file.folded)
