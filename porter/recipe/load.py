"""Makes a Recipe of a recipe's text: every section is checked, patterns and expressions are parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from porter.base.commands import RECIPE_CHECK
from porter.base.errors import RecipeError
from porter.files import is_plain
from porter.recipe.expressions import FUNCTIONS, is_expression
from porter.recipe.faults import Faults
from porter.recipe.recipe import RESERVED, STANDARD_OPTIONS, Recipe, Zoo
from porter.recipe.schema import (
    LABEL_FILE,
    BlockSection,
    Document,
    Extension,
    InputSection,
    ZooSection,
    parse_section,
)
from porter.recipe.source import Location, RecipeSource, SourcePart, assemble, read_source
from porter.recipe.spelling import nearest
from porter.recipe.steps import (
    COMMON_KEYS,
    OPERATIONS,
    Block,
    RecipeStep,
    expect_expressions,
    find_expressions,
    parse_steps,
    with_branches,
)
from porter.recipe.zoos import ZOOS, Zoos

Stamp = tuple[tuple[Path, int, int], ...]
"""Files with the time of their last change and their size."""


def recipes_folder() -> Path:
    """Return the folder of porter's own recipes: `recipes/` in a checkout, `porter/recipes/` in an installed
    porter.
    """
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def load_recipe(*files: Path) -> Recipe:
    """Return a recipe that was read with all its zoos.

    Args:
        files: the recipe's, then that of the recipe which it extends, and so on.

    Raises:
        RecipeError: what is wrong, with file, line and column.
    """
    recipe = open_recipe(*files)
    zoos = list[Zoo]()
    faults = Faults()
    for name in recipe.zoos:
        with faults.collect():
            zoos.append(recipe.zoos[name])
    faults.expect_none()
    for variant in recipe.variants:
        if not any(zoo.has(variant) for zoo in zoos):
            where = recipe.source.where(("variants", variant), key=True)
            raise RecipeError(
                f"no zoo has '{variant}'", where=where, next="list it in the 'only' of a zoo that has it"
            )
    return recipe


def open_recipe(*files: Path) -> Recipe:
    """Return a recipe whose zoos are read when each is first asked for. Files that have not changed are read
    once.

    Args:
        files: the recipe's, then that of the recipe which it extends, and so on.

    Raises:
        RecipeError: as `load_recipe`, now or when a zoo is asked for.
    """
    stamps = []
    for file in files:
        try:
            folder, zoos = file.parent, file.parent / ZOOS
            labels = filter(is_plain, (*folder.glob(f"*{LABEL_FILE}"), *zoos.glob(f"*{LABEL_FILE}")))
            stamps += [(path, path.stat()) for path in (file, *sorted(zoos.glob("*.yaml")), *sorted(labels))]
        except OSError:
            raise RecipeError("there is no such recipe file", where=file) from None
    return _open(files, tuple((file, status.st_mtime_ns, status.st_size) for file, status in stamps))


@lru_cache(maxsize=64)
def _open(files: tuple[Path, ...], stamp: Stamp) -> Recipe:
    """Return the recipe of a file, with those that it extends; zoos are not read yet. `stamp` is a parameter
    for the cache only: after a change of a file it is another one.

    Raises:
        RecipeError: it is a zoo's file, or a section, a name or an expression is wrong.
    """
    path, *bases = files
    source = read_source(path)
    if "zoo" in source.data and "architecture" not in source.data:
        check = RECIPE_CHECK.advise(file=path.parent.parent / "ARCHITECTURE.yaml")
        advice = f"{check} reads it too"
        raise RecipeError(
            "this is a zoo's file, expected a recipe", where=source.where(("zoo",), key=True), next=advice
        )
    if bases:
        source = _assemble_with_base(source, open_recipe(*bases))
    document = parse_section(Document, source, (), source.data)
    faults = Faults()
    _check_variables(source, document, faults)
    sizes = faults.attempt(parse_section, InputSection, source, ("input",), document.input)
    sections = {
        name: faults.attempt(_read_block, source, name, values) for name, values in document.blocks.items()
    }
    faults.expect_none()  # a step may use any block
    parameters = {name: section.parameters for name, section in sections.items()}
    graph = faults.attempt(parse_steps, source, ("graph",), document.graph, parameters)
    steps = {
        name: faults.attempt(parse_steps, source, ("blocks", name, "steps"), section.steps, parameters)
        for name, section in sections.items()
    }
    faults.expect_none()
    all_steps = tuple(with_branches((*graph, *(step for listed in steps.values() for step in listed))))
    _expect_default_options(source, all_steps, {**STANDARD_OPTIONS, **document.options})
    zoos = Zoos(source, document, sizes.channels, recipes_folder())
    return Recipe(
        architecture=document.architecture,
        paper=document.paper,
        path=path,
        variants=document.variants,
        options={**STANDARD_OPTIONS, **document.options},
        constants=document.constants,
        input_size=(sizes.size, sizes.size) if isinstance(sizes.size, int) else sizes.size,
        channels=sizes.channels,
        graph=graph,
        blocks={
            name: Block(name, parameters[name], section.inputs, steps[name], ("blocks", name))
            for name, section in sections.items()
        },
        zoos=zoos,
        roots={name: zoos.root(name) for name in zoos},
        source=replace(source, parts=(*source.parts, zoos)),
    )


def _check_variables(source: RecipeSource, document: Document, faults: Faults) -> None:
    """Add to `faults` what is wrong with a recipe's variables: parameters of variants, options and constants.
    They need names of their own, and values that are no expressions.
    """
    options = dict.fromkeys((*STANDARD_OPTIONS, *document.options), "an option")
    taken_names = {**options, **dict.fromkeys(document.constants, "a constant")}
    for variant, parameters in document.variants.items():
        faults.attempt(_expect_variable_names, source, ("variants", variant), parameters, taken_names)
    faults.attempt(_expect_variable_names, source, ("options",), document.options, {})
    faults.attempt(_expect_variable_names, source, ("constants",), document.constants, options)
    variables = {section: source.data.get(section, {}) for section in ("variants", "options", "constants")}
    for location, _ in find_expressions((), variables):
        with faults.collect(), source.at(location):
            raise RecipeError(
                "a variable's value is not an expression",
                next="write the expression in the step that needs it",
            )


def _expect_default_options(
    source: RecipeSource, steps: Sequence[RecipeStep], options: Mapping[str, Any]
) -> None:
    """Refuse steps that take an attribute from an option that the recipe lacks, as a batch norm takes its
    epsilon from `bn_epsilon`. Each option is named once, at its first step.
    """
    lacking: dict[str, tuple[RecipeStep, str]] = {}
    for step in steps:
        for key, default in OPERATIONS.get(step.kind, {}).items():
            if not is_expression(default) or key in step.arguments:
                continue
            # The default is `=` and the option's name.
            option = default[1:]
            if option not in options:
                lacking.setdefault(option, (step, key))
    faults = Faults()
    for option, (step, key) in lacking.items():
        misspelt = nearest(option, options)
        place = source.where(("options", misspelt), key=True) if misspelt else source.where(step.location)
        advice = f"did you mean '{option}'?" if misspelt else f"add {option} to 'options'"
        with faults.collect():
            message = f"'{step.kind}' takes its '{key}' from the option '{option}', and this recipe has none"
            raise RecipeError(message, where=place, next=advice)
    faults.expect_none()


def expect_sections(path: Path) -> None:
    """Refuse sections of a recipe's file that are wrong whatever it extends. A recipe that extends none has
    its errors when it is read.

    Raises:
        RecipeError: with file, line and column.
    """
    source = read_source(path)
    faults = Faults()
    if "extends" in source.data:
        section = faults.attempt(parse_section, Extension, source, (), source.data)
        faults.expect_none()
        for name, values in section.zoos.items():
            faults.attempt(parse_section, ZooSection, source, (ZOOS, name), values)
        faults.expect_none()


def _assemble_with_base(source: RecipeSource, base: Recipe) -> RecipeSource:
    """Return what the recipe `base` says with what `source`, which extends it, adds. The zoos of `base` lack
    the new variants: those that have all variants get the list of the old ones.

    Raises:
        RecipeError: `source` has a name that `base` has too.
    """
    parse_section(Extension, source, (), source.data)
    parts = [SourcePart((), base.source, ())]
    for key, names_of_base in (
        ("variants", base.variants),
        ("options", base.options),
        ("constants", base.constants),
        (ZOOS, base.zoos),
    ):
        for name in source.data.get(key, {}):
            if name in names_of_base:
                where = source.where((key, name), key=True)
                raise RecipeError(
                    f"'{name}' is in {base.path.name} too", where=where, next="give it another name"
                )
        # What the recipe adds of this section.
        parts += [SourcePart((key,), source, (key,))] if key in source.data else []
    zoos_with_all_variants = [
        name for name, zoo in base.source.data[ZOOS].items() if not {"only", "extends"} & zoo.keys()
    ]
    zoos_of_base = {ZOOS: {name: {"only": tuple(base.variants)} for name in zoos_with_all_variants}}
    return assemble(
        source.path, (*parts, SourcePart((), RecipeSource(source.path, zoos_of_base, {}, {}), ()))
    )


def _expect_variable_names(
    source: RecipeSource, location: Location, values: Mapping[str, Any], taken: Mapping[str, str]
) -> None:
    """Refuse names of variables (options, constants, parameters) that are words of the recipe language, or
    that are taken.

    Args:
        taken: what each name that is not free is, such as "an option".
    """
    faults, rename = Faults(), "give it another name"
    for name, value in values.items():
        with faults.collect(), source.at((*location, name), key=True):
            if name in RESERVED or name in FUNCTIONS:
                raise RecipeError(
                    f"'{name}' is a word of recipes and cannot be the name of a variable", next=rename
                )
            if not name.isidentifier():
                raise RecipeError(
                    f"'{name}' cannot be the name of a variable", next="write letters, digits and _"
                )
            if name in taken:
                raise RecipeError(f"'{name}' is {taken[name]} too", next="give one of them another name")
        with faults.collect(), source.at((*location, name)):
            if isinstance(value, dict):
                raise RecipeError(f"'{name}' must be a number, a word or a list, not a mapping")
    faults.expect_none()


def _read_block(source: RecipeSource, name: str, values: Any) -> BlockSection:
    """Return the section of a block, whose parameters must have names of their own."""
    location, rename = ("blocks", name), "give it another name"
    if name in OPERATIONS:
        where = source.where(location, key=True)
        raise RecipeError(f"'{name}' is an operation and cannot be a block", where=where, next=rename)
    section = parse_section(BlockSection, source, location, values)
    _expect_variable_names(source, (*location, "parameters"), section.parameters, {})
    expect_expressions(source, (*location, "parameters"), section.parameters)
    for parameter in section.parameters:
        if parameter in (*COMMON_KEYS, *OPERATIONS):
            where = source.where((*location, "parameters", parameter), key=True)
            raise RecipeError(
                f"'{parameter}' cannot be a parameter, because every step may have it",
                where=where,
                next=rename,
            )
    return section
