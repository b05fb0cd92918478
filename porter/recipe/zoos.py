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
from porter.recipe.paddings import read_rules
from porter.recipe.published import read_label_map, read_protocol, read_weights
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
    one_of,
    parse_section,
)
from porter.recipe.source import Location, Mark, RecipeSource, SourcePart, assemble, read_source
from porter.recipe.spelling import hint
from porter.recipe.steps import check_expressions
from porter.recipe.zoo_names import read_names
from porter.zoos.added import models_of, references_of
from porter.zoos.tables import REFERENCES

ZOOS = "zoos"
"""The folder of the zoos' files, beside the recipes."""
_INHERITED = (
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
_SHARED = ("protocols", "address")
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
        self._said: dict[str, RecipeSource] = {}
        self._read: dict[str, Zoo] = {}

    def __getitem__(self, name: str) -> Zoo:
        if name not in self._read:
            if name not in self._document.zoos:
                raise KeyError(name)
            self._read[name] = self._zoo(name, ())
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._document.zoos

    def __iter__(self) -> Iterator[str]:
        return iter(self._document.zoos)

    def __len__(self) -> int:
        return len(self._document.zoos)

    def mark(self, location: Location, key: bool) -> Mark | None:
        """The place of what is said of a zoo that was asked for, in whatever file."""
        said = self._said.get(str(location[1])) if location[:1] == (ZOOS,) and len(location) > 1 else None
        return said.mark(location, key=key) if said else None

    def _zoo(self, name: str, heirs: tuple[str, ...]) -> Zoo:
        """Reads a zoo after the one that it extends."""
        extended = self._extended(name)
        parent = None if extended is None else self._parent(name, extended, (*heirs, name))
        self._said[name] = self._assembled(name, parent)
        own = _ZooReader(name, self._said[name], self._document).zoo()
        if parent is None and not own.framework:
            where = self._source.where((ZOOS, name), key=True)
            next = f"write it here, or in {ZOOS}/{name}.yaml"
            raise RecipeError("the key 'framework' is missing", where=where, next=next)
        self._expect_photos(own)
        return self._proved(own if parent is None else _inherit(own, parent))

    def _expect_photos(self, zoo: Zoo) -> None:
        """Refuses a protocol where the input has other channels than a photo."""
        used = {("protocol",): zoo.preprocess} | {
            ("weights", name, "protocol"): row.preprocess for name, row in zoo.weights.items()
        }
        for place, protocol in used.items():
            if protocol is not None and self._channels != 3:
                raise RecipeError(
                    "a protocol prepares photos, which have 3 channels, and the recipe's input has "
                    f"{self._channels}",
                    where=self._said[zoo.name].where((ZOOS, zoo.name, *place)),
                    next=f"leave it out, or write 'protocol: null' for zoo '{zoo.name}' in the recipe",
                )

    def _parent(self, name: str, extended: str, heirs: tuple[str, ...]) -> Zoo:
        """The zoo that a zoo extends, which no chain may lead back to."""
        where = self._source.where((ZOOS, name, "extends"))
        if extended in heirs:
            raise RecipeError(f"zoo '{name}' extends itself", where=where)
        if extended not in self:
            raise RecipeError(f"there is no zoo '{extended}'", where=where, next=hint(extended, self))
        if extended not in self._read:
            self._read[extended] = self._zoo(extended, heirs)
        return self._read[extended]

    def _proved(self, zoo: Zoo) -> Zoo:
        """The zoo with its reference checked: porter has it for the zoo's framework, and one that the recipe
        states has every variant of the zoo.
        """
        if zoo.reference is None or zoo.reference == NO_REFERENCE:
            return replace(zoo, reference=None)
        said, here = self._said[zoo.name], (ZOOS, zoo.name, "reference")
        one_of(said, here, "reference", zoo.reference, references_of(zoo.framework))
        models = models_of(zoo.framework, zoo.reference)
        names_reference = "reference" in self._document.zoos[zoo.name]
        for variant in self._document.variants:
            if names_reference and zoo.has(variant) and variant not in models:
                raise RecipeError(
                    f"reference '{zoo.reference}' has no model '{variant}'",
                    where=said.where(here),
                    next=f"list in 'only' the variants that it has, or write 'reference: {NO_REFERENCE}'",
                )
        return zoo

    def _extended(self, name: str) -> str | None:
        extended = self._document.zoos[name].get("extends")
        return extended if isinstance(extended, str) else None

    def root(self, name: str) -> str:
        """The last zoo in a chain of `extends`."""
        chain = [name]
        while (extended := self._extended(chain[-1])) in self._document.zoos and extended not in chain:
            chain.append(str(extended))
        return chain[-1]

    def _assembled(self, name: str, parent: Zoo | None) -> RecipeSource:
        """All that is said of a zoo: its section, then its file's group for this architecture, then what the
        file says of all.
        """
        home, architecture = (ZOOS, name), self._document.architecture
        parts = [SourcePart(home, self._source, home)]
        file = None if "framework" in self._document.zoos[self.root(name)] else self._file(name)
        if file is not None:
            document = parse_section(ZooDocument, file, (), file.data)
            if document.zoo != name:
                raise RecipeError(
                    f"expected zoo '{name}', as the file is called, got '{document.zoo}'",
                    where=file.where(("zoo",)),
                )
            if architecture in document.architectures and self._is_of(file):
                group = ("architectures", architecture)
                parse_section(GroupSection, file, group, document.architectures[architecture])
                parts.append(SourcePart(home, file, group))
            parts += [
                SourcePart((*home, key), file, (key,))
                for key in file.data
                if key not in ("zoo", "architectures")
            ]
        if parent is not None:
            theirs = self._said[parent.name]
            shared = [key for key in _SHARED if key in theirs.data[ZOOS][parent.name]]
            parts += [SourcePart((*home, key), theirs, (ZOOS, parent.name, key)) for key in shared]
        return assemble(self._source.path, parts)

    def _is_of(self, file: RecipeSource) -> bool:
        """Whether what a zoo's file says of an architecture is said of this graph: porter's own files say it
        of porter's own recipes, in place of which a user's may have the name.
        """
        graph = self._source.mark(("architecture",))
        shipped = file.path.parent.parent.resolve() == self._shipped.resolve()
        return not shipped or graph is None or graph.path.parent.resolve() == self._shipped.resolve()

    def _file(self, name: str) -> RecipeSource | None:
        """The zoo's file: beside the recipe that has its section, otherwise porter's own."""
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
    return read_source(path)


@dataclass(frozen=True)
class _ZooReader:
    """Reads one zoo from all that is said of it, without what it inherits."""

    name: str
    source: RecipeSource
    document: Document

    def zoo(self) -> Zoo:
        """The zoo that the section says, each part checked."""
        here: Location = (ZOOS, self.name)
        values = self.source.data[ZOOS][self.name]
        section = parse_section(ZooSection, self.source, here, values)
        faults = Faults()
        tried, source = faults.tried, self.source
        protocols = {
            word: tried(parse_section, Preprocess, source, (*here, "protocols", word), given)
            for word, given in section.protocols.items()
        }
        # Without its protocols, a row has no size.
        weights = (
            {}
            if faults.errors
            else tried(read_weights, source, here, section, protocols, self.document.variants)
        )
        tried(check_expressions, source, here, values)
        framework = section.framework
        if framework is not None:
            tried(one_of, source, (*here, "framework"), "framework", framework, REFERENCES)
        zoo = Zoo(
            name=self.name,
            framework=framework or "",
            only=tried(self._only, (*here, "only"), section.only),
            reference=section.reference,
            options=tried(self._options, (*here, "options"), section.options),
            assumed=tried(self._assumed, (*here, "assumed"), section.assumed),
            padding=tried(read_rules, source, (*here, "padding"), section.padding),
            padding_as_trained=tried(
                read_rules, source, (*here, "padding_as_trained"), section.padding_as_trained
            ),
            names=tried(read_names, source, (*here, "names"), section.names),
            generations={
                label: tried(self._generation, (*here, "generations", label), given)
                for label, given in section.generations.items()
            },
            taps=tried(read_names, source, (*here, "taps"), section.taps),
            ignore=tuple(
                tried(self._ignore, (*here, "ignore", pattern), pattern, value)
                for pattern, value in section.ignore.items()
            ),
            preprocess=tried(read_protocol, source, (*here, "protocol"), section.protocol, protocols),
            labels=tried(read_label_map, source, (*here, "labels"), section.labels),
            activation=section.activation,
            licence=section.licence,
            weights=weights,
            overrides=tried(self._overrides, (*here, "variants"), section.variants),
        )
        faults.expect_none()
        return zoo

    def _only(self, here: Location, variants: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            one_of(self.source, (*here, index), "variant", variant, self.document.variants)
            for index, variant in enumerate(variants)
        )

    def _options(self, location: Location, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options of this recipe, each with a value that an option can have."""
        faults = Faults()
        for name, value in options.items():
            here = (*location, name)
            faults.tried(one_of, self.source, here, "option", name, self._known_options, key=True)
            with faults.kept(), self.source.at(here):
                if isinstance(value, dict):
                    raise RecipeError(f"'{name}' must be a number, a word or a list, not a mapping")
        faults.expect_none()
        return options

    def _assumed(self, location: Location, reasons: Mapping[str, str]) -> Mapping[str, str]:
        for name in reasons:
            one_of(
                self.source, (*location, name), "option", name, (*self._known_options, BUILT_SIZE), key=True
            )
        return reasons

    def _generation(self, location: Location, values: Mapping[str, Any]) -> Generation:
        section = parse_section(GenerationSection, self.source, location, values)
        return Generation(
            names=read_names(self.source, (*location, "names"), section.names),
            options=self._options((*location, "options"), section.options),
            padding=read_rules(self.source, (*location, "padding"), section.padding),
        )

    def _ignore(self, location: Location, pattern: str, value: Any) -> IgnoreRule:
        section = parse_section(
            IgnoreSection, self.source, location, {"reason": value} if isinstance(value, str) else value
        )
        if isinstance(section.equals, str):
            one_of(self.source, (*location, "equals"), "fixed array", section.equals, FIXED)
        return IgnoreRule(pattern, section.reason, section.equals)

    def _overrides(self, location: Location, table: Mapping[str, Any]) -> Mapping[str, Override]:
        """What single variants have in this zoo, in place of what the others have."""
        overrides = {}
        for variant, values in table.items():
            here = (*location, variant)
            one_of(self.source, here, "variant", variant, self.document.variants, key=True)
            section = parse_section(OverrideSection, self.source, here, values)
            options = self._options((*here, "options"), section.options)
            overrides[variant] = Override(
                options, read_rules(self.source, (*here, "padding"), section.padding)
            )
        return overrides

    @property
    def _known_options(self) -> tuple[str, ...]:
        return (*STANDARD_OPTIONS, *self.document.options)


def _inherit(own: Zoo, parent: Zoo) -> Zoo:
    """`own` with the inherited keys of `parent`: the rules of `own` match first, its options and single
    values override.
    """
    taken: dict[str, Any] = {}
    for key in _INHERITED:
        mine, theirs = getattr(own, key), getattr(parent, key)
        if isinstance(mine, tuple) and key != "only":
            taken[key] = (*mine, *theirs)
        elif isinstance(mine, dict):
            taken[key] = {**theirs, **mine}
        else:
            taken[key] = mine or theirs
    return replace(own, **taken)
