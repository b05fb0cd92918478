"""Where a file's weights come from, by what states it (docs/twins.md): tensors cannot tell twins apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from porter.base.commands import FRAMEWORK, PHOTOS, STUDY
from porter.base.errors import UsageError
from porter.base.json import JsonObject
from porter.base.options import FROM, ORIGIN
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.torch_export import SAVE
from porter.padding.sizes import MAX_SIDE
from porter.port import BY, Origin
from porter.recipe import Member, convert_command, sound_recipes
from porter.recipe.expressions import Value
from porter.recipe.twins import twins_of
from porter.source.fitting.candidate import Candidate
from porter.source.opened import Opened
from porter.source.origin_statements import RELEASE, OriginStatement, of_config, of_metadata, of_release
from porter.zoos.tables import REFERENCES, SETTINGS, TRANSFORMERS_DEFAULTS, TWINS_OF_TIMM, OptionSetting

_LIBRARIES = {
    "timm": "timm",
    "timm_tf": "timm",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "transformers_torch": "transformers",
}
"""The library whose models a zoo has, by the zoo's reference."""


@dataclass(frozen=True)
class KnownOrigin:
    """What is known of where weights come from.

    Attributes:
        origin: None if nothing states it.
        options: of the recipe, that the same statement sets.
        statement: that names a network which the recipe lacks.
    """

    origin: Origin | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    statement: OriginStatement | None = None


def origin_of(candidate: Candidate, insisted: str | None = None) -> KnownOrigin:
    """The origin of a file that is asked for as a variant of a zoo, or looks like it.

    Args:
        insisted: the zoo that the user insists on (`--origin`).

    Raises:
        UsageError: it is another zoo than the member's.
    """
    member, checkpoint = candidate.member, candidate.checkpoint
    if insisted is not None:
        zoo = member.recipe.member(member.variant, insisted).zoo.name
        if zoo != member.zoo.name:
            message = f"{FROM} says {member.zoo.name}, and {ORIGIN} says {zoo}"
            raise UsageError(message, where=str(ORIGIN), next=f"{FROM(zoo)} {ORIGIN(zoo)}")
        otherwise = origin_of(candidate)
        options = (
            otherwise.options
            if otherwise.origin is not None and _is_stated(candidate, otherwise.origin)
            else {}
        )
        return KnownOrigin(Origin(by="user", says=member.name, variant=member.variant, zoo=zoo), options)
    if checkpoint.graph is not None:
        return KnownOrigin(stated_origin(checkpoint))
    if (statement := of_metadata(checkpoint)) is not None and (known := _known(member, statement)).origin:
        return known
    if (statement := of_config(checkpoint)) is not None:
        return _known(member, statement)
    if (publisher := candidate.publisher) is not None:
        return KnownOrigin(
            Origin(by="digest", says=publisher.name, variant=publisher.variant, zoo=publisher.zoo.name)
        )
    # Any file can have a name like a release's, so only names that a recipe has count.
    for each in member.kin():
        if each.file is not None and each.file.name == checkpoint.path.name:
            return KnownOrigin(
                Origin(by="file name", says=each.name, variant=each.variant, zoo=each.zoo.name)
            )
    statement = of_release(checkpoint)
    return KnownOrigin() if statement is None else _known(member, statement)


def stated_origin(checkpoint: Checkpoint) -> Origin | None:
    """The origin of a file that fits no recipe, as its graph or the config.json beside it states it."""
    if checkpoint.graph is not None:
        return Origin(by="graph", says="the file's own graph")
    statement = of_config(checkpoint)
    return None if statement is None else Origin(by=statement.by, says=statement.says)


def expect_origin(candidate: Candidate, known: KnownOrigin) -> None:
    """Refuses a variant of a zoo that computes something else than what the weights are stated to be.

    Raises:
        UsageError: with both names.
    """
    member, path, origin = candidate.member, candidate.checkpoint.path, known.origin
    if origin is None or origin.by in ("graph", "user") or _is_stated(candidate, origin):
        return
    recipes, named, also = member.recipe.path.parent, _elsewhere(member, known), ""
    if origin.variant is not None:
        named = member.recipe.member(origin.variant, str(origin.zoo))
    if named is None and (member.recipe.zoos[member.zoo.name].reference or member.zoo.name) not in _LIBRARIES:
        return  # a zoo of the user's own, of which no library's name says anything
    if named is None:
        also = f", which recipe {member.recipe.architecture} does not have"
    elif origin.says != named.name:
        also = f", which is {named.name}"
    instead = f"{SAVE} keeps its graph, which needs no recipe"
    raise UsageError(
        f"{BY[origin.by]} says that these weights are {origin.says}{also}, not {member.name}",
        where=str(path.parent / CONFIG_FILE if origin.by == "config.json" else path),
        next=f"{instead if named is None else convert_command(named, FRAMEWORK, path, recipes)}; "
        f"if they are {member.zoo.name}'s: {FROM(member.zoo.name)} {ORIGIN(member.zoo.name)}",
    )


def _elsewhere(member: Member, known: KnownOrigin) -> Member | None:
    """The variant of another recipe that a statement names."""
    if known.statement is None:
        return None
    for recipe in sound_recipes(member.recipe.path.parent):
        for each in islice(recipe.sound_members(next(iter(recipe.variants))), 1):
            origin = _known(each, known.statement).origin
            if origin is not None and origin.variant is not None:
                return recipe.member(origin.variant, str(origin.zoo))
    return None


def undecided(opened: Opened, weights: Path) -> tuple[str, ...]:
    """A warning for each twin of a source whose origin nothing states."""
    member, facts = opened.member, opened.facts
    if member is None or facts.origin is not None:
        return ()
    return tuple(
        f"nothing states that these weights are {member.zoo.name}'s: {twin.name} takes the same tensors "
        "and computes something "
        f"else ({'; '.join(twin.differs)}). {ORIGIN(member.zoo.name)} says that they are, and "
        f"{_decides(member, twin.zoo, weights)} decides from photos"
        for twin in facts.twins
    )


def as_stated(
    candidate: Candidate, known: KnownOrigin | None = None, others: Iterable[Candidate] = ()
) -> Candidate:
    """The variant as the zoo has it that the weights are stated to come from, if that is a twin or computes
    the same; otherwise the candidate. It may be one of `others`, which are of the same file.
    """
    member, origin = candidate.member, (known or origin_of(candidate)).origin
    if origin is None or origin.variant != member.variant:
        return candidate
    same = (member.variant, origin.zoo) in candidate.equals
    if not same and origin.zoo not in {twin.zoo for twin in candidate.twins}:
        return candidate
    stated = (each for each in others if each.member.is_a == (member.variant, origin.zoo))
    return next(stated, None) or Candidate.of(
        member.recipe.member(member.variant, str(origin.zoo)), candidate.checkpoint
    )


def _is_stated(candidate: Candidate, origin: Origin) -> bool:
    named = origin.variant, origin.zoo
    return named == candidate.member.is_a or named in candidate.equals


def _known(member: Member, stated: OriginStatement) -> KnownOrigin:
    """What a statement says, among the variants of one recipe."""
    if stated.name is None:
        return KnownOrigin(Origin(by=stated.by, says=stated.says))
    if any(_begins(stated.name, twin, not stated.strict) for twin in TWINS_OF_TIMM):
        return KnownOrigin(Origin(by=stated.by, says=f"timm's {stated.name:.80}"))
    named = list(_named(member, stated))
    most = max((len(name) for _, name, _ in named), default=0)
    longest = [(each, arguments) for each, name, arguments in named if len(name) == most]
    fitting = [
        (each, options) for each, own in longest if (options := _options(stated, own, each)) is not None
    ]
    if not fitting:
        return (
            KnownOrigin(Origin(by=stated.by, says=stated.says), statement=stated)
            if stated.strict
            else KnownOrigin()
        )
    near = [one for one in fitting if one[0].variant == member.variant]
    each, options = next((one for one in near if one[0].is_a == member.is_a), (near or fitting)[0])
    libraries = {one.zoo.name for one, _ in near} & {twin.zoo for twin in twins_of(each)}
    if libraries and stated.library is None and not stated.strict:
        return KnownOrigin()  # two libraries have models of this name that compute something else
    return KnownOrigin(
        Origin(by=stated.by, says=stated.says, variant=each.variant, zoo=each.zoo.name), options
    )


def _named(member: Member, stated: OriginStatement) -> Iterator[tuple[Member, str, JsonObject]]:
    """The variants of a recipe, each with a name of it that is the stated one or its beginning, and the
    arguments of that name.
    """
    recipe, said = member.recipe, stated.name or ""
    for variant in recipe.variants:
        for each in recipe.sound_members(variant):
            library = _LIBRARIES.get(recipe.zoos[each.zoo.name].reference or each.zoo.name)
            if library is not None and stated.library in (None, library):
                for name, arguments in _names(each):
                    if _begins(said, name, not stated.strict):
                        yield each, name, arguments


def _begins(stated: str, name: str, loosely: bool) -> bool:
    """Whether a stated name is this one. A release appends its recipe of training:
    `mobilenetv3_small_100_lamb`.
    """
    return stated == name or (loosely and stated.startswith(f"{name}_"))


def _names(member: Member) -> Iterator[tuple[str, JsonObject]]:
    """The names that a variant has in its zoo's library, each with the arguments that its function takes for
    it.
    """
    reference = member.recipe.zoos[member.zoo.name].reference or member.zoo.name
    call = REFERENCES["torch"][reference].get(member.variant)
    usual = f"tf_{member.variant}" if reference == "timm_tf" else member.variant
    yield call if call is not None else (usual, {})
    if member.file is not None:
        stem = member.file.name.rpartition(".")[0].partition(".")[0]
        release = RELEASE.match(stem)
        yield (release["name"] if release else stem), {}


def _options(stated: OriginStatement, own: JsonObject, member: Member) -> Mapping[str, Value] | None:
    """The options of the recipe with which a variant is the stated call; None if it is another one."""
    if not stated.strict:
        return {} if not own else None  # a name does not say that its function was called otherwise
    kind = str(stated.name) if stated.library == "transformers" else str(stated.library)
    settings = SETTINGS.get(kind, {})
    usual = {**TRANSFORMERS_DEFAULTS.get(kind, {}), **own}
    options: dict[str, Value] = {}
    for name in {**usual, **stated.arguments}:
        value = stated.arguments.get(name)
        setting = settings.get(name)
        if value is None or setting is None:
            if value != usual.get(name):
                return None
            continue
        known = {**member.recipe.options, **member.zoo.options}.get(setting.option)
        said = _said(setting, value, known)
        if said is None:
            return None
        if said != known:
            options[setting.option] = said
    return options


def _said(setting: OptionSetting, value: Any, known: Value | None) -> Value | None:
    """The value of an option as a library's setting says it; None where the recipe, whose own value is
    `known`, cannot say it.
    """
    if setting.values is not None:
        return setting.values.get(value) if isinstance(value, str | bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(known, float):
        return float(value) if 0 < value < 1 else None
    return value if isinstance(known, int) and isinstance(value, int) and 0 < value <= MAX_SIDE else None


def _decides(member: Member, twin: str, weights: Path) -> str:
    zoos = (member.zoo.name, twin)
    return STUDY.advise(variant=member.variant, source=None, weights=weights, data=PHOTOS, between=zoos)
