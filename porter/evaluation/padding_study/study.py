"""`porter study padding`: opens the weights and the photos, runs the rounds, and reports the padding of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Unpack

from porter.base.errors import FileError, UsageError
from porter.data.classes import Classes
from porter.data.layouts import open_any_photos
from porter.data.preprocess import Preprocess
from porter.data.statements import in_words
from porter.evaluation.measuring import PhotoOptions, read_options
from porter.evaluation.padding_study.cases import Setting, Trial, site_at
from porter.evaluation.padding_study.naming import disagreement, name_case
from porter.evaluation.padding_study.numbers import error, judge, mean
from porter.evaluation.padding_study.rounds import Outcome, run_rounds
from porter.evaluation.padding_study.runs import Bench, running_framework
from porter.evaluation.padding_study.sites import parse_sites
from porter.evaluation.protocol import expect_square
from porter.evaluation.results import Case, Crops, Study
from porter.files import AnyPath, path_of
from porter.fitting.wishes import Wishes
from porter.identify.doors import open_member
from porter.port import Port, read_port, update_record
from porter.recipe import choose_options, find_member, trained_conventions
from porter.source.opened import Opened
from porter.source.protocol import doubted


def study(
    variant: str,
    source: str,
    data: AnyPath,
    *,
    weights: AnyPath | None = None,
    sites: Sequence[str] = (),
    mapped: Sequence[str] = (),
    options: Mapping[str, bool | float | str] | None = None,
    port: AnyPath | None = None,
    recipes: AnyPath | None = None,
    **photos: Unpack[PhotoOptions],
) -> Study:
    """Measures the same weights under each candidate padding, and names the one that they were trained with.

    First it changes all strided sites together: as shipped, asymmetric (TensorFlow's SAME), symmetric ((k-1)//2 cells on every
    side), and the recipe's training pads. Then it changes one site at a time in the best of these; then it combines the changes
    that are significantly better. Cases whose windows are the same at this input size are one case. Cases are compared photo by
    photo: by the log-loss of the true class, or by the entropy of the answers if the photos have no classes. It uses the recipe's
    preprocessing unless another is stated, and float32.

    Args:
        variant, source, weights, mapped, options, recipes: see `convert`.
        data, photos: see `evaluate`; `data` may also be a folder of photos without classes. With ten crops, the single-crop errors
            of their centre are measured too.
        sites: instead of all strided sites, as `PATH=CONVENTION,CONVENTION`, with conventions as recipes write them.
        port: the folder of a port of these weights; the study goes into its record too.

    Raises:
        PorterError: the input is bad.
        KeyboardInterrupt: Ctrl-C in the first round. After Ctrl-C in a later round, the result is not `complete`.
    """
    how = read_options(photos)
    member = find_member(variant, source, path_of(recipes))
    wishes = Wishes(map=tuple(mapped), options=choose_options(member.recipe, options or {}))
    opened = open_member(member, path_of(weights), wishes)
    opened = replace(opened, facts=how.stated.of(opened.facts, opened.file.file))
    protocol = _protocol(opened, how.crops)
    into = None if port is None else _expect_port_of(read_port(Path(port)), opened)
    asked = parse_sites(sites, opened.graph)
    data_set = open_any_photos(
        Path(data),
        classes=Classes(opened.facts.classes - opened.facts.background, opened.facts.label_map),
        labels=how.labels,
        limit=how.limit,
        split=how.split,
    )
    framework = running_framework(opened.framework)
    setting = Setting(opened.graph, (protocol.square, protocol.square), framework.CAPABILITIES)
    bench = Bench(opened, setting, framework, protocol, data_set, how)
    assert opened.member is not None
    rounds = run_rounds(setting, trained_conventions(opened.member), asked, bench.run)
    judged = judge([outcome.judged for outcome in rounds.outcomes])
    labelled = data_set.unlabelled is None
    trained = name_case(rounds, judged, "log-loss" if labelled else "entropy")
    by_entropy = name_case(rounds, judge([outcome.entropy for outcome in rounds.outcomes]), "entropy") if labelled else None
    assumed = opened.facts.assumed + doubted(opened.facts, opened.member.zoo.name)
    found = Study(
        variant=variant,
        zoo=opened.member.zoo.name,
        weights=opened.file.file,
        photos=(str(data_set.path), data_set.layout),
        protocol=in_words(protocol, how.crops),
        preprocess=asdict(protocol),
        limit=data_set.limit,
        split=how.split,
        labels=None if data_set.labels is None else str(data_set.labels),
        class_names=None if how.class_names is None else str(how.class_names),
        images=len(data_set.photos) + len(data_set.failed),
        failed=(*data_set.failed, *(bench.failed[position] for position in sorted(bench.failed))),
        sites=_tried(setting, rounds.trials),
        cases=tuple(_case(setting, *each) for each in zip(rounds.trials, rounds.outcomes, judged.p, strict=True)),
        skipped=rounds.skipped,
        judged_by="log_loss" if labelled else "entropy",
        trained=trained,
        by_entropy=by_entropy,
        unlabelled=data_set.unlabelled,
        complete=rounds.complete,
        warnings=(*opened.warnings, *(f"assumed: {line}" for line in assumed), *disagreement(trained, by_entropy)),
    )
    return found if into is None or not found.complete else _written(into, found)


def _written(port: Port, found: Study) -> Study:
    """Puts the study into the port's record. If the folder cannot be written, a warning beside the figures says so."""
    try:
        update_record(port.folder, "study", found.record())
    except FileError as error:
        return replace(found, warnings=(*found.warnings, f"the study is not in the port's folder: {error}"))
    return found


def _protocol(opened: Opened, crops: Crops) -> Preprocess:
    """The protocol of a source, which feeds squares."""
    where = opened.file.file
    if opened.facts.padding == "trained":
        message = "this port already has training pads, and the study starts from the shipped pads"
        raise UsageError(message, where=where, next="give the weights file that it was made from")
    return expect_square(opened.facts, opened.graph.channels, crops, where)


def _expect_port_of(port: Port, opened: Opened) -> Port:
    """Refuses a port of other weights before anything is measured, because the study goes into its record."""
    record, where = port.record, str(port.folder)
    asked = "" if opened.member is None else opened.member.name
    if record.name != asked:
        raise UsageError(f"this is a port of {record.name}, and the study is of {asked}", where=where)
    if record.source.sha256 != opened.file.sha256:
        raise UsageError(
            f"the port was made from {record.source.file}, sha256 {record.source.sha256[:12]}..., not from this file, "
            f"{opened.file.sha256[:12]}...",
            where=where,
            next="give --weights the file that the port was made from",
        )
    return port


def _case(setting: Setting, trial: Trial, outcome: Outcome, p: float) -> Case:
    labelled = outcome.log_loss is not None
    return Case(
        name=trial.name,
        convention=setting.in_words(trial),
        sites=setting.differences(trial),
        top1_error=error(outcome.single, 1) if labelled else None,
        top5_error=error(outcome.single, 5) if labelled else None,
        ten_crop_top5_error=error(outcome.ten, 5) if labelled and outcome.ten is not None else None,
        log_loss=None if outcome.log_loss is None else _finite(mean(outcome.log_loss)),
        entropy=_finite(mean(outcome.entropy)),
        p=p,
    )


def _finite(value: float) -> float | None:
    """None for an infinite value, because JSON has none."""
    return value if isfinite(value) else None


def _tried(setting: Setting, trials: Sequence[Trial]) -> dict[str, tuple[str, ...]]:
    """By site, the conventions that it had in some case, in words, the shipped one first."""
    graphs = [setting.padded(trial) for trial in trials]
    paths = dict.fromkeys(path for trial in trials for path in trial.conventions)
    return {path: tuple(dict.fromkeys(str(site_at(graph, path).convention) for graph in graphs)) for path in paths}
