"""The names that a recipe declares, read from its text without loading it: to find one name, no other recipe
is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import yaml

from porter.base.errors import RecipeError
from porter.recipe.source import LOADER, Mark, mark_of, read_text, yaml_error


@dataclass(frozen=True)
class Declared:
    """What a recipe declares.

    Attributes:
        files: the recipe's, and those of the recipes that it extends, one after another.
        architecture: its own, otherwise the one that it extends.
        names: the architecture and the variants that can be found in this recipe, each with its place.
        own: those of the names that no recipe has that this one extends.
        zoos: empty if only the names were asked for.
        extends: the place of the word; None if it extends no recipe.
        fault: why none of its names can be used: it is not valid YAML, or one of its names is another
            recipe's.
    """

    files: tuple[Path, ...]
    architecture: str
    names: Mapping[str, Mark]
    own: Mapping[str, Mark]
    variants: tuple[str, ...]
    zoos: tuple[str, ...]
    extends: Mark | None
    fault: RecipeError | None

    @property
    def path(self) -> Path:
        return self.files[0]

    def extending(self, base: Declared) -> Declared:
        """Return this recipe with the names of `base` too, which it extends."""
        return replace(
            self,
            files=(*self.files, *base.files),
            names={**base.names, **self.names},
            variants=(*base.variants, *self.variants),
            zoos=(*base.zoos, *self.zoos),
        )

    def without_names(self, names: Set[str]) -> Declared:
        """Return this recipe without those of its names that a recipe before it has."""
        return replace(
            self,
            names={name: mark for name, mark in self.names.items() if name not in names},
            variants=tuple(variant for variant in self.variants if variant not in names),
        )


def declared(path: Path, with_zoos: bool = False) -> Declared:
    """Return what the recipe at `path` declares, read from its text alone; what is wrong with it is its
    `fault`. If its zoos are not asked for, the text after its variants is not read.
    """
    try:
        sections, fault = _read_sections(path, read_text(path), with_zoos)
    except RecipeError as error:
        # a file that cannot be read declares nothing
        (sections, _), fault = _read_sections(path, "", with_zoos), error
    names = {**sections["architecture"], **sections["variants"]}
    return Declared(
        files=(path,),
        architecture=next(iter({**sections["architecture"], **sections["extends"]}), ""),
        names=names,
        own=names,
        variants=tuple(sections["variants"]),
        zoos=tuple(sections["zoos"]),
        extends=next(iter(sections["extends"].values()), None),
        fault=fault,
    )


@lru_cache(maxsize=256)  # a command looks for several names, each in all recipes
def _read_sections(
    path: Path, text: str, with_zoos: bool
) -> tuple[dict[str, dict[str, Mark]], RecipeError | None]:
    """Return the words of the sections that declare something (architecture, extends, variants, zoos), by
    section, each with its place; and the error if the text is wrong, otherwise None.
    """
    names: dict[str, dict[str, Mark]] = {"architecture": {}, "extends": {}, "variants": {}, "zoos": {}}
    try:
        for section, word, mark in _words_of_sections(path, text):
            if section in names:
                names[section][word] = mark
            elif (names["architecture"] or names["extends"]) and names["variants"] and not with_zoos:
                break
    except RecipeError as error:
        return names, error
    if names["architecture"] or names["extends"]:
        return names, None
    return names, RecipeError("the key 'architecture' is missing", where=Mark(path, 1, 1))


def _words_of_sections(path: Path, text: str) -> Iterator[tuple[str, str, Mark]]:
    """Yield, for each section at the top of a recipe, its word or each of its keys: the section, the word,
    and its place.

    Raises:
        RecipeError: the text is not valid YAML from here on.
    """
    section = ""
    # For each collection around the event: whether a key comes next in a mapping; None for a list.
    awaiting_key = list[bool | None]()
    try:
        for event in yaml.parse(text, Loader=LOADER):
            if isinstance(event, yaml.CollectionEndEvent):
                awaiting_key.pop()
            elif isinstance(event, yaml.NodeEvent):
                depth = len(awaiting_key)
                key = awaiting_key[-1] if awaiting_key else None
                if isinstance(event, yaml.ScalarEvent):
                    # depth 1 is the recipe's own mapping, and depth 2 is in the value of a section
                    if depth == 1 and key:
                        section = event.value
                    elif (depth == 1 and key is False) or (depth == 2 and key):
                        yield section, event.value, mark_of(path, event)
                if key is not None:
                    awaiting_key[-1] = not key  # keys and values take turns
                if isinstance(event, yaml.CollectionStartEvent):
                    awaiting_key.append(True if isinstance(event, yaml.MappingStartEvent) else None)
    except yaml.YAMLError as error:
        raise yaml_error(path, error) from None
