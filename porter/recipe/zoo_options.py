"""Options set with `--option`: checked by name and type, and put into a zoo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite

from porter.base.errors import UsageError
from porter.base.options import INPUT_SIZE, OPTION, Placeholder, written
from porter.padding import KnownSize
from porter.recipe.expansion import options_of
from porter.recipe.expressions import Value
from porter.recipe.recipe import BUILT_SIZE, TRAINING_OPTIONS, Member, Recipe, Zoo
from porter.recipe.spelling import hint

_SWITCH = {"true": True, "false": False}
_TYPE_WORDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def choose_options(recipe: Recipe, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the options `given` with values of the recipe's types. Texts are written as in a recipe:
    `false`, `1e-3`, `last_3x3`.

    Raises:
        UsageError: no such option, one that a caller cannot set, or a value of another type.
    """
    options_of_zoo = {}
    for name, value in given.items():
        if name not in recipe.options:
            raise UsageError(
                f"'{recipe.architecture}' has no option '{name}'",
                where=OPTION,
                next=hint(name, _settable_names(recipe.options)),
            )
        if name not in _settable_names(recipe.options):
            reason = "the file's head says it" if name == "classes" else "it is part of the zoo's names"
            raise UsageError(f"'{name}' cannot be set: {reason}", where=OPTION, next="leave it out")
        options_of_zoo[name] = _expect_value(recipe, name, value)
    return options_of_zoo


def with_options(member: Member, options: Mapping[str, Value]) -> Member:
    """Return the variant with `options` from `choose_options` in its zoo. They override the zoo's own and
    those of its older generations, are no longer assumed, and count as `chosen` if they make another network
    than the zoo's.
    """
    if not options:
        return member
    default_options, zoo = options_of(member), member.zoo
    chosen_zoo = replace(
        zoo,
        options={**zoo.options, **options},
        assumed={name: why for name, why in zoo.assumed.items() if name not in options},
        chosen={
            name: value
            for name, value in options.items()
            if value != default_options[name] and name not in TRAINING_OPTIONS
        },
        generations={
            label: replace(
                older, options={name: options.get(name, value) for name, value in older.options.items()}
            )
            for label, older in zoo.generations.items()
        },
    )
    return member._replace(zoo=chosen_zoo)


def assumed_options(zoo: Zoo, options: Mapping[str, Value]) -> tuple[str, ...]:
    """Return one line for each of the expanded graph's `options` that a file of weights does not record: its
    value and how to set it.
    """
    lines = []
    for name, why in zoo.assumed.items():
        if name != BUILT_SIZE:
            value = options[name]
            other_value = not value if isinstance(value, bool) else Placeholder("VALUE")
            option = OPTION({name: other_value})
            lines.append(f"{name} is {written(value)}: {why}; if yours differs, add {option}")
    return tuple(lines)


def assumed_size(zoo: Zoo, size: KnownSize) -> tuple[str, ...]:
    """Return one line on the assumed input size (rows, columns) that the model was built for; none if the zoo
    assumes none.
    """
    why = zoo.assumed.get(BUILT_SIZE)
    if why is None:
        return ()
    rows, columns = size
    return (
        f"the model was built for {rows}x{columns}: {why}; if yours differs, add {INPUT_SIZE.placeholder}",
    )


def _settable_names(options: Mapping[str, Value]) -> list[str]:
    """Return the options that a caller can set: those with one value, without `classes`, which the head
    states.
    """
    return [
        name for name, value in options.items() if name != "classes" and isinstance(value, str | int | float)
    ]


def _expect_value(recipe: Recipe, name: str, value: Value) -> Value:
    """Return an option's value in the recipe's type; refuse one that is not of the default's type, or not one
    of its words.
    """
    default = recipe.options[name]
    if isinstance(default, str):
        words = list(dict.fromkeys(_known_words(recipe, name)))
        if value not in words:
            raise UsageError(
                f"'{value}' is not a value of '{name}'",
                where=OPTION,
                next=hint(str(value), map(str, words)),
            )
        return value
    kind = type(default)
    parsed: Value = _parse_text(value, kind) if isinstance(value, str) else value
    if kind is float and type(parsed) is int:
        parsed = float(parsed)
    if type(parsed) is not kind or (isinstance(parsed, float) and not isfinite(parsed)):
        example = written(default)
        raise UsageError(
            f"'{name}' must be {_TYPE_WORDS[kind]}, got '{value}'",
            where=OPTION,
            next=f"write it as the recipe does: {example}",
        )
    return parsed


def _parse_text(text: str, kind: type) -> Value:
    """Return the value of a text in a type, `True` for `true` and 0.001 for `1e-3`; None if it has none."""
    if kind is bool:
        return _SWITCH.get(text)
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        return None


def _known_words(recipe: Recipe, name: str) -> Iterator[Value]:
    """Yield the words that an option has anywhere in the recipe: its default, and those that zoos, their
    older generations and their variants set.
    """
    yield recipe.options[name]
    for zoo in recipe.zoos.values():
        generations = [older.options for older in zoo.generations.values()]
        variants = [override.options for override in zoo.overrides.values()]
        yield from (table[name] for table in (zoo.options, *generations, *variants) if name in table)
