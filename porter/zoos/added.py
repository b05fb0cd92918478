"""Zoos whose code other packages bring."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from porter.base.plugins import Plugin, plugin_of, plugins
from porter.zoos.tables import REFERENCES


@dataclass(frozen=True)
class AddedZoo:
    """A zoo's own code, to which the entry point of a package in the group `porter.zoos` leads. The name of
    the entry point is a recipe's `reference`.

    Attributes:
        framework: in which the zoo is written: one of porter.zoos.tables.REFERENCES.
        models: the recipe's variants that it has.
        implementation: builds them: a porter.zoos.implementation.Implementation, which recipes, that are
            loaded without numpy, do not look at.
    """

    framework: str
    models: Collection[str]
    implementation: object


def added_zoo(reference: str) -> AddedZoo | None:
    """Return the zoo that a plug-in adds under this name, or None.

    Raises:
        PluginError: it adds something else.
    """
    plugin = plugin_of("zoos", reference)
    return None if plugin is None else _load_zoo(plugin)


@cache
def _load_zoo(plugin: Plugin) -> AddedZoo:
    """Import the package of a plug-in, and expect that it names a zoo of a framework that porter has."""
    added = plugin.load()
    if not isinstance(added, AddedZoo):
        raise plugin.error(f"expected a porter.zoos.added.AddedZoo, got {type(added).__name__}")
    if added.framework not in REFERENCES:
        raise plugin.error(f"expected one of the frameworks {', '.join(REFERENCES)}, got '{added.framework}'")
    return added


def references_of(framework: str) -> tuple[str, ...]:
    """Return the names of the references that a zoo in this framework may state, and those that plug-ins add,
    whose frameworks are not known before they are imported.
    """
    return (*REFERENCES[framework], *(plugin.name for plugin in plugins("zoos")))


def models_of(framework: str, reference: str | None) -> Collection[str]:
    """Return the variants that a reference has; none if there is no such reference in this framework."""
    if reference is None or framework not in REFERENCES:
        return ()
    if reference in REFERENCES[framework]:
        return REFERENCES[framework][reference]
    added = added_zoo(reference)
    return () if added is None or added.framework != framework else added.models
