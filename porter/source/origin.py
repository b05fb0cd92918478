"""Where a file's weights come from, by what states it (docs/twins.md): tensors cannot tell twins apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from porter.base.commands import FRAMEWORK, PHOTOS, STUDY
from porter.base.errors import UsageError
from porter.base.name_tables import JsonObject
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
from porter.source.origin_statements import (
    RELEASE,
    OriginStatement,
    statement_in_config,
    statement_in_file_name,
    statement_in_metadata,
)
from porter.zoos.library_settings import SETTINGS, TRANSFORMERS_DEFAULTS, OptionSetting
from porter.zoos.tables import REFERENCES, TWINS_OF_TIMM

_LIBRARIES = {
    "timm": "timm",
    "timm_tf": "timm",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "transformers_torch": "transformers",
}
"""The library whose models a zoo has, by the name of the zoo's reference."""


@dataclass(frozen=True)
class KnownOrigin:
    """What is known of where weights come from.

    Attributes:
        origin: None if nothing states it.
        options: the recipe's options that the same statement sets.
        statement: the statement, if it names a network that the recipe lacks.
    """

    origin: Origin | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    statement: OriginStatement | None = None


def origin_of(candidate: Candidate, insisted: str | None = None) -> KnownOrigin:
    """Return where the weights of a file come from, as far as something states it: that tells apart zoos'
    models that take the same tensors. These are asked in turn: the user, the file's graph, its metadata, the
    config.json beside it, its digest, its name. Return an empty origin if none says anything.

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
        stated = origin_of(candidate)
        agrees = stated.origin is not None and _is_stated(candidate, stated.origin)
        options = stated.options if agrees else {}
        return KnownOrigin(Origin(by="user", says=member.name, variant=member.variant, zoo=zoo), options)
    if checkpoint.graph is not None:
        return KnownOrigin(stated_origin(checkpoint))
    if (statement := statement_in_metadata(checkpoint)) is not None:
        from_metadata = _origin_in_recipe(member, statement)
        if from_metadata.origin is not None:
            return from_metadata
    if (statement := statement_in_config(checkpoint)) is not None:
        return _origin_in_recipe(member, statement)
    if (publisher := candidate.publisher) is not None:
        return KnownOrigin(
            Origin(by="digest", says=publisher.name, variant=publisher.variant, zoo=publisher.zoo.name)
        )
    # Any file can have a name like a release's, so only names that a recipe has count.
    for variant in member.kin():
        if variant.file is not None and variant.file.name == checkpoint.path.name:
            return KnownOrigin(
                Origin(by="file name", says=variant.name, variant=variant.variant, zoo=variant.zoo.name)
            )
    statement = statement_in_file_name(checkpoint)
    return KnownOrigin() if statement is None else _origin_in_recipe(member, statement)


def stated_origin(checkpoint: Checkpoint) -> Origin | None:
    """Return the origin of a file that fits no recipe, as its graph or the config.json beside it states it;
    None if neither does.
    """
    if checkpoint.graph is not None:
        return Origin(by="graph", says="the file's own graph")
    statement = statement_in_config(checkpoint)
    return None if statement is None else Origin(by=statement.by, says=statement.says)


def expect_origin(candidate: Candidate, known_origin: KnownOrigin) -> None:
    """Refuse a variant of a zoo that computes something else than what the weights are stated to be.

    Raises:
        UsageError: with both names.
    """
    member, path, origin = candidate.member, candidate.checkpoint.path, known_origin.origin
    if origin is None or origin.by in ("graph", "user") or _is_stated(candidate, origin):
        return
    stated = _find_in_other_recipes(member, known_origin)
    if origin.variant is not None:
        stated = member.recipe.member(origin.variant, str(origin.zoo))
    if stated is None and _reference_of(member) not in _LIBRARIES:
        return  # a zoo of the user's own, of which no library's name says anything
    also = ""
    if stated is None:
        also = f", which recipe {member.recipe.architecture} does not have"
    elif origin.says != stated.name:
        also = f", which is {stated.name}"
    instead = f"{SAVE} keeps its graph, which needs no recipe"
    if stated is not None:
        instead = convert_command(stated, FRAMEWORK, path, member.recipe.path.parent)
    raise UsageError(
        f"{BY[origin.by]} says that these weights are {origin.says}{also}, not {member.name}",
        where=str(path.parent / CONFIG_FILE if origin.by == "config.json" else path),
        next=f"{instead}; if they are {member.zoo.name}'s: {FROM(member.zoo.name)} {ORIGIN(member.zoo.name)}",
    )


def _find_in_other_recipes(member: Member, known_origin: KnownOrigin) -> Member | None:
    """Return the member of another recipe that is what the weights state to be, and what the recipe of
    `member` lacks, such as a config.json's `resnet18` of weights that were asked for as a MobileNet; None if
    no recipe has it.
    """
    if known_origin.statement is None:
        return None
    for recipe in sound_recipes(member.recipe.path.parent):
        # One member of each recipe is enough: the statement is compared with all its variants.
        any_variant = next(iter(recipe.variants))
        for any_member in islice(recipe.sound_members(any_variant), 1):
            origin = _origin_in_recipe(any_member, known_origin.statement).origin
            if origin is not None and origin.variant is not None:
                return recipe.member(origin.variant, str(origin.zoo))
    return None


def twin_warnings(opened: Opened, weights: Path) -> tuple[str, ...]:
    """Return a warning for each twin (a zoo's model that takes the same tensors and computes something else)
    of a source whose origin nothing states; none without a recipe.
    """
    member, facts = opened.member, opened.facts
    if member is None or facts.origin is not None:
        return ()
    return tuple(
        f"nothing states that these weights are {member.zoo.name}'s: {twin.name} takes the same tensors "
        "and computes something "
        f"else ({'; '.join(twin.differs)}). {ORIGIN(member.zoo.name)} says that they are, and "
        f"{_deciding_study(member, twin.zoo, weights)} decides from photos"
        for twin in facts.twins
    )


def as_stated_zoo(
    candidate: Candidate, known_origin: KnownOrigin | None = None, others: Iterable[Candidate] = ()
) -> Candidate:
    """Return the candidate in the zoo that the weights are stated to come from, if that zoo's variant is a
    twin (takes the same tensors and computes something else) or computes the same; otherwise the candidate
    itself.

    Args:
        known_origin: the origin; asked for if None.
        others: candidates of the same file, which are used again.
    """
    member, origin = candidate.member, (known_origin or origin_of(candidate)).origin
    if origin is None or origin.variant != member.variant:
        return candidate
    computes_the_same = (member.variant, origin.zoo) in candidate.equals
    if not computes_the_same and origin.zoo not in {twin.zoo for twin in candidate.twins}:
        return candidate
    same_member = (same_file for same_file in others if same_file.member.is_a == (member.variant, origin.zoo))
    return next(same_member, None) or Candidate.of(
        member.recipe.member(member.variant, str(origin.zoo)), candidate.checkpoint
    )


def _is_stated(candidate: Candidate, origin: Origin) -> bool:
    """Return whether the candidate is the stated variant, or computes the same."""
    stated = origin.variant, origin.zoo
    return stated == candidate.member.is_a or stated in candidate.equals


def _origin_in_recipe(member: Member, statement: OriginStatement) -> KnownOrigin:
    """Return the origin that a statement names among the variants of the member's recipe: timm's `resnet50`
    is variant resnet50 of zoo timm. Where several have the stated name, the member itself comes first, then
    the member's variant in another zoo. Return an origin without a variant if the statement names another
    network.
    """
    if statement.name is None:
        return KnownOrigin(Origin(by=statement.by, says=statement.says))
    if any(_has_name(statement.name, twin, not statement.strict) for twin in TWINS_OF_TIMM):
        return KnownOrigin(Origin(by=statement.by, says=f"timm's {statement.name:.80}"))
    matches = list(_variants_of_name(member, statement))
    # `resnet50` also begins the name `resnet50d`: the longest name that fits is meant.
    longest = max((len(name) for _, name, _ in matches), default=0)
    fits = [
        (variant, options)
        for variant, name, name_arguments in matches
        if len(name) == longest
        and (options := _options_of_call(statement, name_arguments, variant)) is not None
    ]
    if not fits:
        if not statement.strict:
            return KnownOrigin()
        return KnownOrigin(Origin(by=statement.by, says=statement.says), statement=statement)
    same_variant = [match for match in fits if match[0].variant == member.variant]
    same_member = (match for match in same_variant if match[0].is_a == member.is_a)
    variant, options = next(same_member, (same_variant or fits)[0])
    zoos = {match[0].zoo.name for match in same_variant}
    zoos_of_twins = {twin.zoo for twin in twins_of(variant)}
    if zoos & zoos_of_twins and statement.library is None and not statement.strict:
        return KnownOrigin()  # two libraries have models of this name that compute something else
    return KnownOrigin(
        Origin(by=statement.by, says=statement.says, variant=variant.variant, zoo=variant.zoo.name), options
    )


def _variants_of_name(member: Member, statement: OriginStatement) -> Iterator[tuple[Member, str, JsonObject]]:
    """Yield the variants of the member's recipe that have the stated name or its beginning, each with that
    name and the arguments that the name stands for.
    """
    recipe, stated_name = member.recipe, statement.name or ""
    for variant_name in recipe.variants:
        for variant in recipe.sound_members(variant_name):
            library = _LIBRARIES.get(_reference_of(variant))
            if library is not None and statement.library in (None, library):
                for name, name_arguments in _library_names(variant):
                    if _has_name(stated_name, name, not statement.strict):
                        yield variant, name, name_arguments


def _reference_of(member: Member) -> str:
    """Return the name of the zoo's reference implementation, otherwise the zoo's own."""
    return member.recipe.zoos[member.zoo.name].reference or member.zoo.name


def _has_name(stated_name: str, name: str, loosely: bool) -> bool:
    """Return whether a stated name is this one or, `loosely`, begins with it. A release appends its recipe of
    training: `mobilenetv3_small_100_lamb`.
    """
    return stated_name == name or (loosely and stated_name.startswith(f"{name}_"))


def _library_names(member: Member) -> Iterator[tuple[str, JsonObject]]:
    """Yield the names that a variant has in its zoo's library, each with the arguments that its function
    takes for it. For a published file, the stem of its name is one too.
    """
    reference = _reference_of(member)
    call = REFERENCES["torch"][reference].get(member.variant)
    usual_name = f"tf_{member.variant}" if reference == "timm_tf" else member.variant
    # otherwise the library's function has the variant's name and takes no arguments
    yield call if call is not None else (usual_name, {})
    if member.file is not None:
        stem = member.file.name.rpartition(".")[0].partition(".")[0]
        release = RELEASE.match(stem)
        yield (release["name"] if release else stem), {}


def _options_of_call(
    statement: OriginStatement, name_arguments: JsonObject, member: Member
) -> Mapping[str, Value] | None:
    """Return the options of the member's recipe that make it the model of the stated call:
    `resnet50(output_stride=8)` sets the recipe's option for the stride. Return None if the call makes a
    model that the recipe does not have.

    Args:
        name_arguments: those that the member's name stands for.
        statement: it is `strict` if it states a call with all its arguments, and not only a name.
    """
    if not statement.strict:
        # A name does not say that its function was called with other arguments.
        return None if name_arguments else {}
    model_kind = str(statement.name) if statement.library == "transformers" else str(statement.library)
    settings = SETTINGS.get(model_kind, {})
    usual_arguments = {**TRANSFORMERS_DEFAULTS.get(model_kind, {}), **name_arguments}
    options: dict[str, Value] = {}
    for name in {**usual_arguments, **statement.arguments}:
        argument = statement.arguments.get(name)
        setting = settings.get(name)
        # An argument that sets no option of recipes has to be the usual one.
        if argument is None or setting is None:
            if argument != usual_arguments.get(name):
                return None
            continue
        recipe_value = {**member.recipe.options, **member.zoo.options}.get(setting.option)
        option_value = _option_value(setting, argument, recipe_value)
        if option_value is None:
            return None
        if option_value != recipe_value:
            options[setting.option] = option_value
    return options


def _option_value(setting: OptionSetting, argument: Any, recipe_value: Value | None) -> Value | None:
    """Return the value of the recipe's option that a library's argument sets; None if the option, whose value
    in the recipe is `recipe_value`, cannot have it.
    """
    if setting.values is not None:
        return setting.values.get(argument) if isinstance(argument, str | bool) else None
    if isinstance(argument, bool) or not isinstance(argument, int | float):
        return None
    if isinstance(recipe_value, float):
        return float(argument) if 0 < argument < 1 else None
    is_size = isinstance(recipe_value, int) and isinstance(argument, int) and 0 < argument <= MAX_SIDE
    return argument if is_size else None


def _deciding_study(member: Member, twin: str, weights: Path) -> str:
    """Return the command that decides from photos which of two zoos the weights are of."""
    zoos = (member.zoo.name, twin)
    return STUDY.advise(variant=member.variant, source=None, weights=weights, data=PHOTOS, between=zoos)
