"""What a recipe and a zoo's file say of a zoo, as a Zoo: every value checked, `extends` resolved, patterns
and expressions parsed.

A recipe's section has what depends on the graph. The file `zoos/ZOO.yaml` has what holds for all models of
the zoo and, for each architecture, its published weights. A section that states the zoo's framework says
everything, and needs no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from porter.base.errors import RecipeError
from porter.data.preprocess import Preprocess
from porter.recipe.faults import Faults
from porter.recipe.fixed import FIXED
from porter.recipe.paddings import read_pad_rules
from porter.recipe.published import read_label_map, read_protocol, read_weights_table
from porter.recipe.recipe import BUILT_SIZE, STANDARD_OPTIONS, Generation, IgnoreRule, Override, Zoo
from porter.recipe.schema import (
    NO_REFERENCE,
    Document,
    GenerationSection,
    GroupSection,
    IgnoreSection,
    OverrideSection,
    ZooDocument,
    ZooSection,
    expect_one_of,
    parse_section,
)
from porter.recipe.source import Location, Mark, RecipeSource, SourcePart, assemble, read_source
from porter.recipe.spelling import hint
from porter.recipe.steps import expect_expressions
from porter.recipe.zoo_names import read_names
from porter.zoos.added import models_of, references_of
from porter.zoos.tables import REFERENCES

ZOOS = "zoos"
"""The folder of the zoos' files, beside the recipes."""
_INHERITED_KEYS = (
    "framework",
    "only",
    "reference",
    "options",
    "padding",
    "padding_as_trained",
    "names",
    "generations",
    "taps",
    "ignore",
    "labels",
    "activation",
)
_SHARED_WORDS = ("protocols", "address")
"""What a zoo that extends another has of it besides: words that its own weights may use."""


class Zoos(Mapping[str, Zoo]):
    """The zoos of a recipe by name, each read when it is first asked for.

    Raises:
        RecipeError: when a zoo is asked for, with the place of what is wrong.
    """

    def __init__(self, source: RecipeSource, document: Document, channels: int, shipped: Path) -> None:
        self._source = source
        self._document = document
        self._channels = channels
        self._shipped = shipped
        self._sources: dict[str, RecipeSource] = {}
        self._zoos: dict[str, Zoo] = {}

    def __getitem__(self, name: str) -> Zoo:
        if name not in self._zoos:
            if name not in self._document.zoos:
                raise KeyError(name)
            self._zoos[name] = self._read_zoo(name, ())
        return self._zoos[name]

    def __contains__(self, name: object) -> bool:
        return name in self._document.zoos

    def __iter__(self) -> Iterator[str]:
        return iter(self._document.zoos)

    def __len__(self) -> int:
        return len(self._document.zoos)

    def mark(self, location: Location, key: bool) -> Mark | None:
        """Return the place of a value in the source of a zoo that was asked for, in whatever file it is; None
        for other values.
        """
        if location[:1] != (ZOOS,) or len(location) < 2:
            return None
        source = self._sources.get(str(location[1]))
        return source.mark(location, key=key) if source else None

    def _read_zoo(self, name: str, heirs: tuple[str, ...]) -> Zoo:
        """Read a zoo from all that is said of it, and return it with what it inherits; the zoo that it
        extends is read before.

        Args:
            heirs: the zoos that extend this one, directly or not; a chain that comes back to one of them is
                refused.
        """
        name_of_parent = self._name_of_extended(name)
        parent = None if name_of_parent is None else self._zoo_to_extend(name, name_of_parent, (*heirs, name))
        self._sources[name] = self._assemble(name, parent)
        without_inherited = _ZooReader(name, self._sources[name], self._document).zoo()
        if parent is None and not without_inherited.framework:
            where = self._source.where((ZOOS, name), key=True)
            next = f"write it here, or in {ZOOS}/{name}.yaml"
            raise RecipeError("the key 'framework' is missing", where=where, next=next)
        self._expect_photos(without_inherited)
        return self._with_checked_reference(
            without_inherited if parent is None else _inherit(without_inherited, parent)
        )

    def _expect_photos(self, zoo: Zoo) -> None:
        """Refuse a protocol if the input has other channels than a photo. Raises RecipeError at its place."""
        protocols: dict[Location, Preprocess | None] = {("protocol",): zoo.preprocess}
        protocols |= {("weights", name, "protocol"): row.preprocess for name, row in zoo.weights.items()}
        for place, protocol in protocols.items():
            if protocol is not None and self._channels != 3:
                raise RecipeError(
                    "a protocol prepares photos, which have 3 channels, and the recipe's input has "
                    f"{self._channels}",
                    where=self._sources[zoo.name].where((ZOOS, zoo.name, *place)),
                    next=f"leave it out, or write 'protocol: null' for zoo '{zoo.name}' in the recipe",
                )

    def _zoo_to_extend(self, name: str, extended: str, heirs: tuple[str, ...]) -> Zoo:
        """Return the zoo that a zoo extends; refuse a chain that leads back to one of the heirs."""
        where = self._source.where((ZOOS, name, "extends"))
        if extended in heirs:
            raise RecipeError(f"zoo '{name}' extends itself", where=where)
        if extended not in self:
            raise RecipeError(f"there is no zoo '{extended}'", where=where, next=hint(extended, self))
        if extended not in self._zoos:
            self._zoos[extended] = self._read_zoo(extended, heirs)
        return self._zoos[extended]

    def _with_checked_reference(self, zoo: Zoo) -> Zoo:
        """Return the zoo with its reference checked: porter has it for the zoo's framework, and one that the
        recipe states has every variant of the zoo.
        """
        if zoo.reference is None or zoo.reference == NO_REFERENCE:
            return replace(zoo, reference=None)
        source, location = self._sources[zoo.name], (ZOOS, zoo.name, "reference")
        expect_one_of(source, location, "reference", zoo.reference, references_of(zoo.framework))
        models = models_of(zoo.framework, zoo.reference)
        # a reference that the zoo's file states may lack some variants; `Zoo.of` leaves it out for these
        names_reference = "reference" in self._document.zoos[zoo.name]
        for variant in self._document.variants:
            if names_reference and zoo.has(variant) and variant not in models:
                raise RecipeError(
                    f"reference '{zoo.reference}' has no model '{variant}'",
                    where=source.where(location),
                    next=f"list in 'only' the variants that it has, or write 'reference: {NO_REFERENCE}'",
                )
        return zoo

    def _name_of_extended(self, name: str) -> str | None:
        """Return the name of the zoo that a zoo extends; None if it extends none."""
        extended = self._document.zoos[name].get("extends")
        return extended if isinstance(extended, str) else None

    def root(self, name: str) -> str:
        """Return the last zoo in a chain of `extends`: the zoo itself if it extends none."""
        chain = [name]
        extended = self._name_of_extended(name)
        # A chain that comes back to itself is refused when the zoo is read.
        while extended is not None and extended in self._document.zoos and extended not in chain:
            chain.append(extended)
            extended = self._name_of_extended(extended)
        return chain[-1]

    def _assemble(self, name: str, parent: Zoo | None) -> RecipeSource:
        """Return all that is said of a zoo, as one source: its section, then its file's group for this
        architecture, then what the file says of all architectures, and the words that it shares with the zoo
        that it extends. What comes first counts.
        """
        home, architecture = (ZOOS, name), self._document.architecture
        parts = [SourcePart(home, self._source, home)]
        file = None if "framework" in self._document.zoos[self.root(name)] else self._file_of_zoo(name)
        if file is not None:
            document = parse_section(ZooDocument, file, (), file.data)
            if document.zoo != name:
                raise RecipeError(
                    f"expected zoo '{name}', as the file is called, got '{document.zoo}'",
                    where=file.where(("zoo",)),
                )
            if architecture in document.architectures and self._is_about_this_graph(file):
                group = ("architectures", architecture)
                parse_section(GroupSection, file, group, document.architectures[architecture])
                parts.append(SourcePart(home, file, group))
            parts += [
                SourcePart((*home, key), file, (key,))
                for key in file.data
                if key not in ("zoo", "architectures")
            ]
        if parent is not None:
            parents_source = self._sources[parent.name]
            shared = [key for key in _SHARED_WORDS if key in parents_source.data[ZOOS][parent.name]]
            parts += [SourcePart((*home, key), parents_source, (ZOOS, parent.name, key)) for key in shared]
        return assemble(self._source.path, parts)

    def _is_about_this_graph(self, file: RecipeSource) -> bool:
        """Return whether what a zoo's file says of an architecture is about this graph. porter's own files
        are about porter's own recipes, and a user's recipe may have the same name.
        """
        graph = self._source.mark(("architecture",))
        shipped = file.path.parent.parent.resolve() == self._shipped.resolve()
        return not shipped or graph is None or graph.path.parent.resolve() == self._shipped.resolve()

    def _file_of_zoo(self, name: str) -> RecipeSource | None:
        """Return the zoo's file: beside the recipe that has its section, otherwise porter's own; None if
        there is neither.
        """
        section = self._source.mark((ZOOS, name))
        beside = section.path.parent if section else self._shipped
        for folder in (beside, self._shipped):
            path = folder / ZOOS / f"{name}.yaml"
            if path.is_file():
                status = path.stat()
                return _read_file(path, status.st_mtime_ns, status.st_size)
        return None


@lru_cache(maxsize=64)
def _read_file(path: Path, modified: int, size: int) -> RecipeSource:
    """Return the source of a file. The time of its change and its size are parameters for the cache only: a
    changed file is read again.
    """
    return read_source(path)


@dataclass(frozen=True)
class _ZooReader:
    """Reads one zoo from all that is said of it, without what it inherits."""

    name: str
    source: RecipeSource
    document: Document

    def zoo(self) -> Zoo:
        """Return the zoo that the section describes. Each part is checked, and all errors are raised
        together.
        """
        location: Location = (ZOOS, self.name)
        values = self.source.data[ZOOS][self.name]
        section = parse_section(ZooSection, self.source, location, values)
        faults = Faults()
        attempt, source = faults.attempt, self.source
        protocols = {
            word: attempt(parse_section, Preprocess, source, (*location, "protocols", word), part_values)
            for word, part_values in section.protocols.items()
        }
        # Without its protocols, a row has no size.
        weights = (
            {}
            if faults.errors
            else attempt(read_weights_table, source, location, section, protocols, self.document.variants)
        )
        attempt(expect_expressions, source, location, values)
        framework = section.framework
        if framework is not None:
            attempt(expect_one_of, source, (*location, "framework"), "framework", framework, REFERENCES)
        zoo = Zoo(
            name=self.name,
            framework=framework or "",
            only=attempt(self._read_only, (*location, "only"), section.only),
            reference=section.reference,
            options=attempt(self._read_options, (*location, "options"), section.options),
            assumed=attempt(self._read_assumed, (*location, "assumed"), section.assumed),
            padding=attempt(read_pad_rules, source, (*location, "padding"), section.padding),
            padding_as_trained=attempt(
                read_pad_rules, source, (*location, "padding_as_trained"), section.padding_as_trained
            ),
            names=attempt(read_names, source, (*location, "names"), section.names),
            generations={
                label: attempt(self._read_generation, (*location, "generations", label), part_values)
                for label, part_values in section.generations.items()
            },
            taps=attempt(read_names, source, (*location, "taps"), section.taps),
            ignore=tuple(
                attempt(self._read_ignore, (*location, "ignore", pattern), pattern, value)
                for pattern, value in section.ignore.items()
            ),
            preprocess=attempt(read_protocol, source, (*location, "protocol"), section.protocol, protocols),
            labels=attempt(read_label_map, source, (*location, "labels"), section.labels),
            activation=section.activation,
            licence=section.licence,
            weights=weights,
            overrides=attempt(self._read_overrides, (*location, "variants"), section.variants),
        )
        faults.expect_none()
        return zoo

    def _read_only(self, location: Location, variants: tuple[str, ...]) -> tuple[str, ...]:
        """Return the variants that the zoo has; refuse one that the recipe lacks."""
        return tuple(
            expect_one_of(self.source, (*location, index), "variant", variant, self.document.variants)
            for index, variant in enumerate(variants)
        )

    def _read_options(self, location: Location, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options of this recipe, each with a value that an option can have."""
        faults = Faults()
        for name, value in options.items():
            place = (*location, name)
            faults.attempt(expect_one_of, self.source, place, "option", name, self._known_options, key=True)
            with faults.collect(), self.source.at(place):
                if isinstance(value, dict):
                    raise RecipeError(f"'{name}' must be a number, a word or a list, not a mapping")
        faults.expect_none()
        return options

    def _read_assumed(self, location: Location, reasons: Mapping[str, str]) -> Mapping[str, str]:
        """Return the assumed options with their reasons; refuse one that the recipe lacks."""
        for name in reasons:
            expect_one_of(
                self.source, (*location, name), "option", name, (*self._known_options, BUILT_SIZE), key=True
            )
        return reasons

    def _read_generation(self, location: Location, values: Mapping[str, Any]) -> Generation:
        """Return what an older generation of the zoo's code has otherwise: names, options and pads."""
        section = parse_section(GenerationSection, self.source, location, values)
        return Generation(
            names=read_names(self.source, (*location, "names"), section.names),
            options=self._read_options((*location, "options"), section.options),
            padding=read_pad_rules(self.source, (*location, "padding"), section.padding),
        )

    def _read_ignore(self, location: Location, pattern: str, value: Any) -> IgnoreRule:
        """Return the rule for source tensors that stay unused, from a line of the zoo's `ignore`:
        `num_batches_tracked: a counter`.
        """
        # A text is short for a section with only a reason.
        values = {"reason": value} if isinstance(value, str) else value
        section = parse_section(IgnoreSection, self.source, location, values)
        if isinstance(section.equals, str):
            expect_one_of(self.source, (*location, "equals"), "fixed array", section.equals, FIXED)
        return IgnoreRule(pattern, section.reason, section.equals)

    def _read_overrides(self, location: Location, table: Mapping[str, Any]) -> Mapping[str, Override]:
        """Return what single variants have in this zoo, in place of what the others have."""
        overrides = {}
        for variant, values in table.items():
            place = (*location, variant)
            expect_one_of(self.source, place, "variant", variant, self.document.variants, key=True)
            section = parse_section(OverrideSection, self.source, place, values)
            options = self._read_options((*place, "options"), section.options)
            overrides[variant] = Override(
                options, read_pad_rules(self.source, (*place, "padding"), section.padding)
            )
        return overrides

    @property
    def _known_options(self) -> tuple[str, ...]:
        return (*STANDARD_OPTIONS, *self.document.options)


def _inherit(zoo: Zoo, parent: Zoo) -> Zoo:
    """Return `zoo` with the inherited keys of `parent`. The rules of `zoo` match first, and its options and
    single values override.
    """
    inherited: dict[str, Any] = {}
    for key in _INHERITED_KEYS:
        own_value, parents_value = getattr(zoo, key), getattr(parent, key)
        # rules are tried in their order; a zoo's own variants replace the parent's
        if isinstance(own_value, tuple) and key != "only":
            inherited[key] = (*own_value, *parents_value)
        elif isinstance(own_value, dict):
            inherited[key] = {**parents_value, **own_value}
        else:
            inherited[key] = own_value or parents_value
    return replace(zoo, **inherited)
