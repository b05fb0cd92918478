"""From a recipe's text to a Recipe: every section checked, `extends` resolved, patterns and expressions parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from porter.data.labels import LABEL_MAPS
from porter.data.preprocess import Preprocess
from porter.errors import RecipeError
from porter.files import WeightsFile
from porter.frameworks import FRAMEWORK_NAMES
from porter.recipe.expressions import FUNCTIONS, placeholders
from porter.recipe.fixed import FIXED
from porter.recipe.model import BUILT_SIZE, RESERVED, STANDARD_OPTIONS, Generation, IgnoreRule, NameRule, Override, Recipe, Zoo
from porter.recipe.paddings import read_rules
from porter.recipe.patterns import match_path
from porter.recipe.schema import (
    BlockSection,
    Document,
    GenerationSection,
    IgnoreSection,
    InputSection,
    NameSection,
    OverrideSection,
    Published,
    ZooSection,
    parse_section,
)
from porter.recipe.source import Location, Source, read_source
from porter.recipe.spelling import hint
from porter.recipe.steps import COMMON, OPERATIONS, Block, check_expressions, parse_steps
from porter.recipe.transforms import TRANSFORMS
from porter.zoos.tables import REFERENCES

NO_REFERENCE = "none"
"""The `reference` of a zoo that extends another, if the other's reference lacks its models."""
_INHERITED = (
    *("framework", "only", "reference", "options", "padding", "padding_as_trained", "names", "generations", "taps", "ignore"),
    *("labels", "activation"),
)


def load_recipe(path: Path) -> Recipe:
    """Reads one recipe file; a file that has not changed is read once.

    Raises:
        RecipeError: what is wrong, with file and line.
    """
    try:
        status = path.stat()
    except OSError:
        raise RecipeError("there is no such recipe file", where=str(path)) from None
    return _load(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _load(path: Path, modified: int, size: int) -> Recipe:
    source = read_source(path)
    document = parse_section(Document, source, (), source.data)
    check_expressions(source, (), {"zoos": document.zoos})
    for variant, parameters in document.variants.items():
        _check_variables(source, ("variants", variant), parameters, {*STANDARD_OPTIONS, *document.options})
    _check_variables(source, ("options",), document.options, ())
    sizes = parse_section(InputSection, source, ("input",), document.input)
    sections = {name: parse_section(BlockSection, source, ("blocks", name), values) for name, values in document.blocks.items()}
    parameters = {name: section.parameters for name, section in sections.items()}
    for name in sections:
        _check_block(source, name, parameters[name])
    zoos = {name: _Zoos(source, document).zoo(name) for name in document.zoos}
    for variant in document.variants:
        if not any(zoo.has(variant) for zoo in zoos.values()):
            raise RecipeError(f"no zoo has '{variant}'", where=source.where(("variants", variant), key=True))
    return Recipe(
        architecture=document.architecture,
        paper=document.paper,
        path=path,
        variants=document.variants,
        options={**STANDARD_OPTIONS, **document.options},
        input_size=sizes.size if isinstance(sizes.size, tuple) else (sizes.size, sizes.size),
        channels=sizes.channels,
        graph=parse_steps(source, ("graph",), document.graph, parameters),
        blocks={
            name: Block(
                name,
                section.parameters,
                parse_steps(source, ("blocks", name, "steps"), section.steps, parameters),
                ("blocks", name),
            )
            for name, section in sections.items()
        },
        zoos=zoos,
        source=source,
    )


def _check_variables(source: Source, location: Location, values: Mapping[str, Any], taken: Any) -> None:
    for name, value in values.items():
        here = (*location, name)
        if name in RESERVED or name in FUNCTIONS or not name.isidentifier():
            raise RecipeError(f"'{name}' cannot be the name of a variable", where=source.where(here, key=True))
        if name in taken:
            where = source.where(here, key=True)
            raise RecipeError(f"'{name}' is an option too", where=where, next="give one of them another name")
        if isinstance(value, dict):
            raise RecipeError(f"'{name}' is a number, a word or a list", where=source.where(here))


def _check_block(source: Source, name: str, parameters: Mapping[str, Any]) -> None:
    if name in OPERATIONS:
        raise RecipeError(f"'{name}' is an operation and cannot be a block", where=source.where(("blocks", name), key=True))
    _check_variables(source, ("blocks", name, "parameters"), parameters, ())
    for parameter in parameters:
        if parameter in (*COMMON, *OPERATIONS):
            where = source.where(("blocks", name, "parameters", parameter), key=True)
            raise RecipeError(f"'{parameter}' cannot be a parameter, because every step may have it", where=where)


class _Zoos:
    """Builds the zoos of one document."""

    def __init__(self, source: Source, document: Document) -> None:
        self.source = source
        self.document = document
        self.options = {**STANDARD_OPTIONS, **document.options}

    def zoo(self, name: str, heirs: tuple[str, ...] = ()) -> Zoo:
        here: Location = ("zoos", name)
        section = parse_section(ZooSection, self.source, here, self.document.zoos[name])
        parent: Zoo | None = None
        if section.extends is not None:
            parent = self._parent(name, section.extends, (*heirs, name))
        if parent is None and section.framework is None:
            raise RecipeError("the key 'framework' is missing", where=self.source.where(here, key=True))
        own = Zoo(
            name=name,
            framework=self._one_of((*here, "framework"), "framework", section.framework, FRAMEWORK_NAMES) or "",
            only=tuple(self._of_variants((*here, "only"), dict.fromkeys(section.only))),
            reference=section.reference,
            options=self._options((*here, "options"), section.options),
            assumed=self._assumed((*here, "assumed"), section.assumed),
            padding=read_rules(self.source, (*here, "padding"), section.padding),
            padding_as_trained=read_rules(self.source, (*here, "padding_as_trained"), section.padding_as_trained),
            names=self._names((*here, "names"), section.names),
            generations={
                label: self._generation((*here, "generations", label), values) for label, values in section.generations.items()
            },
            taps=self._names((*here, "taps"), section.taps),
            ignore=tuple(self._ignore((*here, "ignore", pattern), pattern, value) for pattern, value in section.ignore.items()),
            preprocess=self._preprocess((*here, "preprocess"), section.preprocess),
            labels=self._one_of((*here, "labels"), "label map", section.labels, LABEL_MAPS),
            activation=section.activation,
            licence=section.licence,
            files=self._files(here, section),
            published={
                variant: parse_section(Published, self.source, (*here, "published", variant), values)
                for variant, values in self._of_variants((*here, "published"), section.published).items()
            },
            overrides=self._overrides((*here, "variants"), section.variants),
        )
        return self._proved(here, own if parent is None else _inherit(own, parent))

    def _proved(self, here: Location, zoo: Zoo) -> Zoo:
        """The zoo with its reference checked: porter has it for the zoo's framework, and it has every variant of the zoo."""
        if zoo.reference in (None, NO_REFERENCE):
            return replace(zoo, reference=None)
        known = REFERENCES[zoo.framework]
        reference = str(self._one_of((*here, "reference"), "reference", zoo.reference, known))
        for variant in self.document.variants:
            if zoo.has(variant) and variant not in known[reference]:
                raise RecipeError(
                    f"reference '{reference}' has no model '{variant}'",
                    where=self.source.where((*here, "reference")),
                    next=f"list in 'only' the variants that it has, or write 'reference: {NO_REFERENCE}'",
                )
        return zoo

    def _one_of(self, location: Location, what: str, word: str | None, known: Iterable[str]) -> str | None:
        """`word`, checked: one of a closed table's names, or None."""
        if word is not None and word not in known:
            raise RecipeError(f"there is no {what} '{word}'", where=self.source.where(location), next=hint(word, known))
        return word

    def _parent(self, name: str, extended: str, heirs: tuple[str, ...]) -> Zoo:
        where = self.source.where(("zoos", name, "extends"))
        if extended in heirs:
            raise RecipeError(f"zoo '{name}' extends itself", where=where)
        if extended not in self.document.zoos:
            raise RecipeError(f"there is no zoo '{extended}'", where=where, next=hint(extended, self.document.zoos))
        return self.zoo(extended, heirs)

    def _options(self, location: Location, options: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, value in options.items():
            here = (*location, name)
            if name not in self.options:
                where = self.source.where(here, key=True)
                raise RecipeError(f"there is no option '{name}'", where=where, next=hint(name, self.options))
            if isinstance(value, dict):
                raise RecipeError(f"'{name}' is a number, a word or a list", where=self.source.where(here))
        return options

    def _assumed(self, location: Location, reasons: Mapping[str, str]) -> Mapping[str, str]:
        for name in reasons:
            if name not in (known := (*self.options, BUILT_SIZE)):
                where = self.source.where((*location, name), key=True)
                raise RecipeError(f"there is no option '{name}'", where=where, next=hint(name, known))
        return reasons

    def _names(self, location: Location, table: Mapping[str, Any]) -> tuple[NameRule, ...]:
        rules = []
        for pattern, value in table.items():
            here = (*location, pattern)
            values = {"name": value} if isinstance(value, str) else value
            section = parse_section(NameSection, self.source, here, values)
            with self.source.at(here, key=True):
                match_path(pattern, "")
            with self.source.at((*here, "name")):
                placeholders(section.name)
            for place, transform in enumerate(section.transforms):
                with self.source.at((*here, "transforms", place)):
                    if transform not in TRANSFORMS:
                        raise RecipeError(f"there is no transform '{transform}'", next=hint(transform, TRANSFORMS))
            rules.append(NameRule(pattern, section.name, section.transforms, here))
        return tuple(rules)

    def _generation(self, location: Location, values: Mapping[str, Any]) -> Generation:
        section = parse_section(GenerationSection, self.source, location, values)
        return Generation(
            names=self._names((*location, "names"), section.names),
            options=self._options((*location, "options"), section.options),
            padding=read_rules(self.source, (*location, "padding"), section.padding),
        )

    def _ignore(self, location: Location, pattern: str, value: Any) -> IgnoreRule:
        section = parse_section(IgnoreSection, self.source, location, {"reason": value} if isinstance(value, str) else value)
        if isinstance(section.equals, str) and section.equals not in FIXED:
            where = self.source.where((*location, "equals"))
            raise RecipeError(f"there is no fixed array '{section.equals}'", where=where, next=hint(section.equals, FIXED))
        return IgnoreRule(pattern, section.reason, section.equals)

    def _preprocess(self, location: Location, values: Mapping[str, Any] | None) -> Preprocess | None:
        return None if values is None else parse_section(Preprocess, self.source, location, values)

    def _files(self, location: Location, section: ZooSection) -> Mapping[str, WeightsFile]:
        return {
            variant: parse_section(
                WeightsFile,
                self.source,
                (*location, "files", variant),
                {"name": _file_name(values), "licence": section.licence, **values},
            )
            for variant, values in self._of_variants((*location, "files"), section.files).items()
        }

    def _overrides(self, location: Location, table: Mapping[str, Any]) -> Mapping[str, Override]:
        found = {}
        for variant, values in self._of_variants(location, table).items():
            here = (*location, variant)
            section = parse_section(OverrideSection, self.source, here, values)
            found[variant] = Override(
                options=self._options((*here, "options"), section.options),
                padding=read_rules(self.source, (*here, "padding"), section.padding),
                preprocess=self._preprocess((*here, "preprocess"), section.preprocess),
                labels=self._one_of((*here, "labels"), "label map", section.labels, LABEL_MAPS),
            )
        return found

    def _of_variants(self, location: Location, table: Mapping[str, Any]) -> Mapping[str, Any]:
        for variant in table:
            if variant not in self.document.variants:
                raise RecipeError(
                    f"there is no variant '{variant}'",
                    where=self.source.where((*location, variant), key=True),
                    next=hint(variant, self.document.variants),
                )
        return table


def _inherit(own: Zoo, parent: Zoo) -> Zoo:
    """`own` with the inherited keys of `parent`: the rules of `own` match first, its options and single values override."""
    taken: dict[str, Any] = {}
    for key in _INHERITED:
        mine, theirs = getattr(own, key), getattr(parent, key)
        if isinstance(mine, tuple) and key != "only":
            taken[key] = (*mine, *theirs)
        elif isinstance(mine, dict):
            taken[key] = {**theirs, **mine}
        else:
            taken[key] = mine or theirs
    return Zoo(**{**vars(own), **taken})


def _file_name(values: Mapping[str, Any]) -> str:
    """The last part of a file's address."""
    where = str(values.get("url") or str(values.get("pypi", "")).rpartition("!")[2])
    return PurePosixPath(where.partition("?")[0]).name
