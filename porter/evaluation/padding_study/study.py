"""`porter study padding`: opens the weights and the photos, runs the rounds, and reports the padding of
training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import isfinite
from pathlib import Path

import numpy as np

from porter.base.calls import takes
from porter.base.commands import ZOO, StudyOptions
from porter.base.errors import FileError, PorterError, UsageError, refuse_first
from porter.base.options import BETWEEN, FROM, ORIGIN, SITE, WEIGHTS, items, path_of
from porter.data.layouts.opening import open_any_photos
from porter.data.photos import Failure, PhotoSet
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import protocol_in_words
from porter.evaluation.measuring import logits_of
from porter.evaluation.padding_study.best_case import error, judge, mean, undecided
from porter.evaluation.padding_study.between import decide, networks_of_zoos, parse_between
from porter.evaluation.padding_study.cases import Setting, Trial, site_at
from porter.evaluation.padding_study.chance import at_chance
from porter.evaluation.padding_study.named_case import at_chance_level, disagreement, name_case
from porter.evaluation.padding_study.rounds import Outcome, run_rounds
from porter.evaluation.padding_study.runs import Bench
from porter.evaluation.padding_study.studied_sites import parse_sites
from porter.evaluation.padding_study.study_results import Case, Study
from porter.evaluation.photo_options import Options
from porter.evaluation.protocol import expect_square
from porter.evaluation.results import Crops
from porter.port import StoredPort, read_port, update_record
from porter.recipe import Member, choose_options, find_member, trained_conventions
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.photo_protocol import protocol_doubt
from porter.source.place import find_weights
from porter.source.wishes import Wishes


@takes(StudyOptions)
def study(asked: StudyOptions) -> Study:
    """Measure the same weights under each candidate padding, and name the one that they were trained with; or
    as each of two zoos' networks.

    First it changes all strided sites together: as shipped, asymmetric (TensorFlow's SAME), symmetric
    ((k-1)//2 cells on every side), and the recipe's training pads. Then it changes one site at a time in the
    best of these; then it combines the changes that are significantly better. Cases whose windows are the
    same at this input size are one case. Cases are compared photo by photo: by the log-loss of the true
    class, or by the entropy of the answers if the photos have no classes. It uses the recipe's preprocessing
    unless another is stated, and float32.

    Args:
        variant, source, weights, mapped, options, origin, recipes: see `convert`. With `between`, `source`
            may be None: the weights then have the names of the first of these zoos that they fit.
        between: two zoos, as `ZOO,ZOO` or a pair, whose networks take the same tensors and compute something
            else: the study names the one that the weights were trained as (docs/twins.md), each fed as its
            zoo prepares photos and as the other does.
        data: as for `evaluate`, or a folder of photos without classes.
        device, batch_size, workers, limit, cache, split, labels, preprocess, class_names: see `evaluate`.
        crops: 1, or 10: the single-crop errors of the ten crops' centre are measured too.
        sites: instead of all strided sites, as `PATH=CONVENTION,CONVENTION`, with conventions as recipes
            write them.
        port: the folder of a port of these weights; the study goes into its record too.

    Raises:
        PorterError: the input is bad.
        KeyboardInterrupt: Ctrl-C in the first round. After Ctrl-C in a later round, the result is not
            `complete`.
    """
    how = Options.of(asked)
    sites = items(asked.sites)
    recipes = path_of(asked.recipes)
    zoos = () if asked.between is None else parse_between(asked.between)
    _expect_use(asked.source, zoos, sites, asked.origin)
    of_zoos = [find_member(asked.variant, zoo, recipes) for zoo in zoos]
    members = of_zoos if asked.source is None else [find_member(asked.variant, asked.source, recipes)]
    wishes = Wishes(
        map=items(asked.mapped),
        options=choose_options(members[0].recipe, asked.options or {}),
        origin=asked.origin,
    )
    opened = _open_weights(members, path_of(asked.weights), wishes)
    opened = replace(opened, facts=how.stated.override(opened.facts, opened.file.file))
    protocol = _protocol(opened, how.crops)
    into = None if asked.port is None else _expect_port_of(read_port(Path(asked.port)), opened, zoos)
    photos = open_any_photos(
        Path(asked.data),
        classes=opened.facts.label_classes,
        labels=how.labels,
        limit=how.limit,
        split=how.split,
    )
    about = _about(opened, photos, how, protocol)
    if zoos:
        found = _study_zoos(about, opened, of_zoos, photos, how)
    else:
        found = _study_pads(about, opened, sites, Bench.of(opened, protocol, photos, how))
    result = replace(found, between=zoos, warnings=_warnings(opened, found))
    return result if into is None or not result.complete else _record_study(into, result)


def _about(opened: Opened, photos: PhotoSet, how: Options, protocol: Preprocess) -> partial[Study]:
    """Return a study that lacks what was found: what was studied (the source and the photos), and how.

    Args:
        how: what the user asked for.
        protocol: how the photos were prepared.
    """
    assert opened.member is not None
    return partial(
        Study,
        variant=opened.member.variant,
        zoo=opened.member.zoo.name,
        weights=opened.file.file,
        photos=(str(photos.path), photos.layout),
        preprocess=asdict(protocol),
        limit=photos.limit,
        split=how.split,
        labels=None if photos.labels is None else str(photos.labels),
        class_names=None if how.class_names is None else str(how.class_names),
        images=len(photos.photos) + len(photos.failed),
        judged_by="log_loss" if photos.unlabelled is None else "entropy",
        unlabelled=photos.unlabelled,
    )


def _warnings(opened: Opened, found: Study) -> tuple[str, ...]:
    """Return what a reader has to know of a study."""
    assumed = opened.facts.assumed + protocol_doubt(opened.facts, found.zoo)
    return (
        *opened.warnings,
        *(f"assumed: {line}" for line in assumed),
        *disagreement(found.trained, found.by_entropy),
    )


def _expect_use(source: str | None, zoos: Sequence[str], sites: Sequence[str], origin: str | None) -> None:
    """Refuse a study that lacks a zoo, by whose tensor names the weights are read, or that has an option
    which would not be used beside another one.

    Raises:
        UsageError: with the option that is missing or too many.
    """
    refuse_first(
        (
            source is None and not zoos,
            FROM,
            "nothing says which zoo's tensor names the weights have",
            f"add {FROM.placeholder}, or {BETWEEN((ZOO, ZOO))}",
        ),
        (
            bool(zoos and sites),
            SITE,
            f"{BETWEEN} compares the two networks as they are",
            f"leave out {SITE} or {BETWEEN}",
        ),
        (
            bool(zoos) and source is None and origin is not None,
            ORIGIN,
            f"{BETWEEN} finds the origin, so it cannot be given",
            f"leave it out, or add {FROM.placeholder}",
        ),
    )


def _open_weights(members: Sequence[Member], weights: Path | None, wishes: Wishes) -> Opened:
    """Open the weights under the names of the first of several zoos that they have.

    Raises:
        PorterError: they have no zoo's; the error is that of the first.
    """
    if len(members) == 1:
        return open_source(find_weights(members[0], weights), wishes, members[0])
    problems: list[PorterError] = []
    for member in members:
        # so that a statement of another zoo does not refuse these
        insisted = replace(wishes, origin=member.zoo.name)
        try:
            return open_source(find_weights(member, weights), insisted, member)
        except PorterError as error:
            problems.append(error)
    raise problems[0]


def _study_pads(about: partial[Study], opened: Opened, sites: Sequence[str], bench: Bench) -> Study:
    """Find which pads of one zoo's network the weights were trained with, in rounds of cases, and return the
    cases and the answer.

    Args:
        sites: what `--site` asks for.
    """
    assert opened.member is not None
    setting = bench.setting
    rounds = run_rounds(
        setting, trained_conventions(opened.member), parse_sites(sites, opened.graph), bench.run
    )
    labelled = bench.photos.unlabelled is None
    chance = _at_chance(opened, bench.photos, rounds.outcomes)
    judged = [outcome.judged for outcome in rounds.outcomes]
    ranking = judge(judged) if chance is None else undecided(len(judged))
    trained = name_case(rounds, ranking, "log-loss" if labelled else "entropy")
    by_entropy = None
    if labelled and chance is None:
        by_entropy = name_case(rounds, judge([outcome.entropy for outcome in rounds.outcomes]), "entropy")
    return about(
        cases=tuple(
            _case(trial.name, setting.in_words(trial), setting.differences(trial), outcome, p)
            for trial, outcome, p in zip(rounds.trials, rounds.outcomes, ranking.p, strict=True)
        ),
        trained=trained if chance is None else at_chance_level(trained, chance),
        by_entropy=by_entropy,
        sites=_tried_conventions(setting, rounds.trials),
        protocol=protocol_in_words(bench.protocol, bench.options.crops),
        failed=_failures(bench.photos, bench.failed),
        skipped=rounds.skipped,
        complete=rounds.complete,
        chance=chance,
    )


def _at_chance(opened: Opened, photos: PhotoSet, outcomes: Sequence[Outcome]) -> str | None:
    """Say why nothing can be judged (porter.evaluation.padding_study.chance.at_chance), from the facts of the
    source and its photos.
    """
    facts = opened.facts
    labels_of_photo = 1.0
    if photos.unlabelled is None and photos.photos:
        labels_of_photo = mean(np.array([float(len(photo.labels)) for photo in photos.photos]))
    return at_chance(outcomes, facts.label_count, labels_of_photo, logits_of(facts).activation)


def _study_zoos(
    about: partial[Study], opened: Opened, members: Sequence[Member], photos: PhotoSet, how: Options
) -> Study:
    """Find as which of several zoos' networks the weights were trained; return the cases and the answer."""
    networks, differences = networks_of_zoos(opened, members, how.crops)
    decided = decide(opened, networks, photos, how)
    labelled = photos.unlabelled is None
    chance = _at_chance(opened, photos, decided.outcomes)
    ranking = decided.ranking if chance is None else undecided(len(decided.outcomes))
    trained = decided.trained(ranking, "log-loss" if labelled else "entropy")
    in_words = [protocol_in_words(network.protocol, how.crops) for network in decided.networks]
    protocols = [*dict.fromkeys(in_words)]
    return about(
        cases=tuple(
            _case(network.name, network.differs, {}, outcome, p)
            for network, outcome, p in zip(decided.networks, decided.outcomes, ranking.p, strict=True)
        ),
        trained=trained if chance is None else at_chance_level(trained, chance),
        by_entropy=decided.trained(decided.by_entropy, "entropy") if labelled and chance is None else None,
        sites={
            path: (str(difference.one), str(difference.other))
            for difference in differences
            if difference.what == "pads"
            for path in difference.paths
        },
        protocol=protocols[0] if len(protocols) == 1 else "each zoo's own",
        failed=_failures(photos, decided.failed),
        chance=chance,
    )


def _failures(photos: PhotoSet, failed: Mapping[int, Failure]) -> tuple[Failure, ...]:
    """Return the photos that could not be read, then, by position, those that could not be scored."""
    return (*photos.failed, *(failed[position] for position in sorted(failed)))


def _record_study(port: StoredPort, result: Study) -> Study:
    """Write the study into the port's record, and return it. If the folder cannot be written, a warning
    beside the figures says so.
    """
    try:
        update_record(port.folder, "study", result.record())
    except FileError as error:
        warning = f"the study is not in the port's folder: {error}"
        return replace(result, warnings=(*result.warnings, warning))
    return result


def _protocol(opened: Opened, crops: Crops) -> Preprocess:
    """Return how photos are prepared for a source, which has to be as squares. Refuse a port with training
    pads, because a study starts from the shipped ones.
    """
    where = opened.file.file
    if opened.facts.padding == "trained":
        message = "this port already has training pads, and the study starts from the shipped pads"
        raise UsageError(message, where=where, next="give the weights file that it was made from")
    return expect_square(opened.facts, opened.graph.channels, crops, where)


def _expect_port_of(port: StoredPort, opened: Opened, zoos: tuple[str, ...]) -> StoredPort:
    """Expect a port of these weights before anything is measured, because the study goes into its record.

    Args:
        zoos: those that the study decides between; a port of each of them is one of these weights.
    """
    record, where, member = port.record, str(port.folder), opened.member
    assert member is not None
    if record.variant != member.variant or record.zoo not in (zoos or (member.zoo.name,)):
        raise UsageError(f"this is a port of {record.name}, and the study is of {member.name}", where=where)
    if record.source.sha256 != opened.file.sha256:
        raise UsageError(
            f"the port was made from {record.source.file}, sha256 {record.source.sha256[:12]}..., not "
            "from this file, "
            f"{opened.file.sha256[:12]}...",
            where=where,
            next=f"give {WEIGHTS} the file that the port was made from",
        )
    return port


def _case(name: str, convention: str, sites: Mapping[str, str], outcome: Outcome, p: float) -> Case:
    """Return a case (the same weights under one padding) with its figures: errors in per cent, None where
    photos have no classes.

    Args:
        convention: the conventions of the strided sites, in words.
        sites: by path, those that differ from the zoo's own.
        p: the probability that it looks so much worse than the best if it is not.
    """
    labelled = outcome.log_loss is not None
    return Case(
        name=name,
        convention=convention,
        sites=sites,
        top1_error=error(outcome.single, 1) if labelled else None,
        top5_error=error(outcome.single, 5) if labelled else None,
        ten_crop_top5_error=error(outcome.ten, 5) if labelled and outcome.ten is not None else None,
        log_loss=None if outcome.log_loss is None else _finite_or_none(mean(outcome.log_loss)),
        entropy=_finite_or_none(mean(outcome.entropy)),
        p=p,
    )


def _finite_or_none(value: float) -> float | None:
    """Replace an infinite value by None, because JSON has none."""
    return value if isfinite(value) else None


def _tried_conventions(setting: Setting, trials: Sequence[Trial]) -> dict[str, tuple[str, ...]]:
    """Return the conventions that each site had in some case, in words, the shipped one first."""
    graphs = [setting.padded_graph(trial) for trial in trials]
    paths = dict.fromkeys(path for trial in trials for path in trial.conventions)
    return {
        path: tuple(dict.fromkeys(str(site_at(graph, path).convention) for graph in graphs)) for path in paths
    }
