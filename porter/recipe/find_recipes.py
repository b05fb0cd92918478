"""Where recipes are: folders of the user's, and porter's own. The first folder that declares a name has
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from porter.base.commands import CONVERT, INSPECT, RECIPE_CHECK, RECIPE_LIST
from porter.base.errors import RecipeError, UsageError, some
from porter.base.options import RECIPES
from porter.base.plugins import Plugin, plugins
from porter.recipe.declared import Declared, declared
from porter.recipe.fingerprints import Fingerprint, LayersByName, shipped_fingerprints
from porter.recipe.load import load_recipe, open_recipe, recipes_folder
from porter.recipe.recipe import Member, Recipe
from porter.recipe.source import Mark, read_text
from porter.recipe.spelling import hint, nearest

VARIABLE = "PORTER_RECIPES"
"""The environment variable that names a folder of recipes."""
WORKING = Path("recipes")
_OTHER = "give one of them another name"


def recipe_folders(given: Path | None = None) -> tuple[Path, ...]:
    """The folders in which recipes are looked for, in this order: `given`, which is what `--recipes` names,
    the one in PORTER_RECIPES, the one in the user's configuration, ./recipes, those of plug-ins, and porter's
    own. Each stands here once, if it exists.

    Raises:
        UsageError: `given`, or what PORTER_RECIPES names, holds no recipe.
        PluginError: a plug-in has no such folder.
    """
    variable = os.environ.get(VARIABLE)
    named = Path(variable) if variable else None
    for folder, what in ((given, str(RECIPES)), (named, VARIABLE)):
        if folder is not None and not any(folder.glob("*.yaml")):
            raise UsageError(
                "there are no recipes (*.yaml) here",
                where=folder,
                next=f"give {what} a folder of recipes",
            )
    folders: dict[Path, Path] = {}
    for folder in (
        given,
        named,
        _of_user(),
        WORKING,
        *map(_added_folder, plugins("recipes")),
        recipes_folder(),
    ):
        if folder is not None and folder.is_dir():
            folders.setdefault(folder.resolve(), folder)
    return tuple(folders.values())


def _added_folder(plugin: Plugin) -> Path:
    """Return the folder of recipes that a plug-in adds: that of the package which its entry point names.

    Raises:
        PluginError: there is no such package, or no recipe in its folder.
    """
    with plugin.blamed():
        found = find_spec(plugin.entry.value)
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    if folder is None or not any(folder.glob("*.yaml")):
        raise plugin.error(f"expected recipes (*.yaml) in the folder of the package '{plugin.entry.value}'")
    return folder


def _of_user() -> Path | None:
    """The folder in the user's configuration."""
    if sys.platform == "win32":
        settings = os.environ.get("APPDATA")
    elif sys.platform == "darwin":
        settings = "~/Library/Application Support"
    else:
        settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(settings).expanduser() / "porter" / "recipes" if settings else None
    except RuntimeError:  # there is no home
        return None


def declared_recipes(given: Path | None = None, with_zoos: bool = False) -> tuple[Declared, ...]:
    """What the recipes in `recipe_folders` declare, each without the names that a recipe of an earlier folder
    has, and none of the names of an architecture that one of an earlier folder has.

    A recipe has a fault if its text is not valid YAML, or if it has a name of another recipe in its folder.
    An exact copy of one of porter's own is left out: a checkout has all of them in ./recipes, beside those of
    an installed porter.

    Raises:
        UsageError: as `recipe_folders`.
    """
    own = recipes_folder()
    shipped = _in_folder(own, with_zoos)
    listed: list[Declared] = []
    for folder in reversed(recipe_folders(given)):
        recipes = shipped if folder.samefile(own) else _in_folder(folder, with_zoos)
        if recipes is not shipped and folder is not given:
            recipes = [recipe for recipe in recipes if not _copied(recipe.path, own)]
        for recipe in reversed(recipes):
            listed.insert(
                0, recipe if recipe.extends is None else _extended(recipe, recipe.extends, listed, recipes)
            )
    declared: list[Declared] = []
    for recipe in listed:
        folder = recipe.path.parent
        before = [
            other
            for other in declared
            if other.fault is None and (other.path.parent != folder or recipe.path in other.files)
        ]
        whole = any(other.architecture == recipe.architecture for other in before)
        taken = recipe.names.keys() if whole else {name for other in before for name in other.names}
        declared.append(recipe.without(taken))
    return tuple(declared)


def replaced(recipe: Recipe) -> Path | None:
    """The recipe of porter's own in whose place one of the user's stands, because it has its architecture."""
    own = recipes_folder()
    mark = recipe.source.mark(("architecture",))
    if mark is None or mark.path.parent.resolve() == own.resolve():
        return None
    shipped = (each.path for each in _in_folder(own, False) if each.architecture == recipe.architecture)
    return next(shipped, None)


def _is_stray(recipe: Declared, given: Path | None) -> bool:
    """Whether a file in ./recipes is not a recipe: any project may have a folder of that name."""
    return not recipe.architecture and recipe.path.parent == WORKING != given


def taken_name(path: Path) -> RecipeError | None:
    """The error of the first name in a recipe's file that porter's own recipes have too, or another one in
    its folder.
    """
    own = recipes_folder()
    if _copied(path, own):
        return None
    recipe = declared(path)
    beside = [other for other in _in_folder(path.parent, False) if other.path.name != path.name]
    next = "the recipe stands in its place; with another name both are found"
    return _apart(_apart(recipe, _in_folder(own, False), "porter's own ", next), beside, "", _OTHER).fault


def _copied(path: Path, own: Path) -> bool:
    """Whether a file is an exact copy of one of porter's own. One that is not a readable recipe is none,
    whatever its name.
    """
    original = own / path.name
    try:
        return original.is_file() and read_text(original) == read_text(path)
    except RecipeError:
        return False


def _in_folder(folder: Path, with_zoos: bool) -> list[Declared]:
    """The recipes in a folder; those that extend others come first."""
    recipes: list[Declared] = []
    for path in sorted(folder.glob("*.yaml")):
        recipes.append(_apart(declared(path, with_zoos), recipes, "", _OTHER))
    return sorted(recipes, key=lambda recipe: recipe.extends is None)


def _extended(
    recipe: Declared, place: Mark, later: Sequence[Declared], beside: Sequence[Declared]
) -> Declared:
    """The recipe with what it extends: the first of `later` that has this architecture. `beside` are those of
    its folder.
    """
    for base in later:
        if base.architecture == recipe.architecture and base.fault is None:
            return recipe.upon(base)
    known = hint(recipe.architecture, (base.architecture for base in later))
    message = f"there is no architecture '{recipe.architecture}' to extend"
    files = {other.path.stem: other for other in beside if other.extends is not None}
    chain = [recipe.path.stem]
    while chain[-1] in files and chain[-1] not in chain[:-1]:
        chain.append(files[chain[-1]].architecture)
    if chain[-1] in chain[:-1]:
        message = f"{' extends '.join(chain)}: none of them has a graph"
        known = "write architecture, input and graph in one of them"
    elif len(chain) > 2:
        message, known = f"{message}: {chain[1]}.yaml extends '{chain[2]}'", f"write extends: {chain[-1]}"
    broken = next((base for base in later if base.architecture == recipe.architecture), None)
    if broken is not None:
        message = f"'{broken.architecture}' is in {broken.fault}"
        known = RECIPE_CHECK.advise(file=broken.path)
    fault = RecipeError(message, where=place, next=known)
    return replace(recipe, fault=recipe.fault or fault)


def recipe_files(path: Path) -> tuple[Path, ...]:
    """The file of a recipe, and those of the recipes that it extends, one after another: in its folder, or
    where recipes are found.

    Raises:
        RecipeError: it extends a recipe that is not there.
    """
    if declared(path).extends is None:
        return (path,)
    for recipe in declared_recipes(path.parent):
        if recipe.path.name == path.name and recipe.path.parent.samefile(path.parent):
            if len(recipe.files) == 1 and recipe.fault is not None:
                raise recipe.fault
            return (path, *recipe.files[1:])
    return (path,)


def _apart(recipe: Declared, others: Sequence[Declared], whose: str, next: str) -> Declared:
    """The recipe; with a fault if one of its own names is another's."""
    owners = {name: other for other in others for name in other.own}
    for name, mark in recipe.own.items():
        if name in owners and recipe.fault is None:
            fault = RecipeError(f"'{name}' is in {whose}{owners[name].path.name} too", where=mark, next=next)
            return replace(recipe, fault=fault)
    return recipe


def find_recipe(name: str, given: Path | None = None) -> Recipe:
    """The recipe that declares the variant `name`, or the architecture of that name; no other is loaded.

    Raises:
        UsageError: there is none; `next` has the nearest spelling. Or as `recipe_folders`.
        RecipeError: the recipe is wrong, or another one has the name too.
    """
    recipes = declared_recipes(given)
    declaring = [recipe for recipe in recipes if name in recipe.names]
    for recipe in declaring:
        if recipe.path.parent == declaring[0].path.parent and recipe.fault is not None:
            raise recipe.fault
    if declaring:
        return open_recipe(*declaring[0].files)
    if Path(name).exists():
        next = f"{INSPECT.advise(file=name)} prints the line that ports it"
        raise UsageError(f"'{name}' is a file, expected a variant", next=next)
    known = _instead(name, recipes) or _advice(name, recipes)
    meant = [
        recipe for recipe in recipes if not _is_stray(recipe, given) or nearest(name, [recipe.path.stem])
    ]
    unread = [f"; {recipe.fault}" for recipe in meant if recipe.fault is not None]
    raise UsageError(f"there is no variant '{name}'", next=known + "".join(unread))


def _instead(name: str, recipes: Sequence[Declared]) -> str | None:
    """What to do where one of porter's own recipes has a name, and another recipe stands in its place."""
    for shipped in _in_folder(recipes_folder(), False):
        if name in shipped.names:
            other = next(each for each in recipes if each.architecture == shipped.architecture)
            return (
                f"{other.path} stands in place of porter's own {shipped.path.name}, which has it: in place "
                f"of a graph write 'extends: {shipped.architecture}' there, or give it another architecture"
            )
    return None


def _advice(name: str, recipes: Sequence[Declared]) -> str:
    """The nearest variant: one that begins with the word, otherwise one that is spelt alike, or those of such
    an architecture.
    """
    variants = [word for recipe in recipes for word in recipe.variants]
    names = [word for recipe in recipes for word in recipe.names]
    begun = min(
        (word for word in variants if name and word.startswith(name)),
        key=lambda word: (len(word), word),
        default=None,
    )
    near = begun or nearest(name, names)
    alike = next(
        (recipe for recipe in recipes if recipe.architecture == near not in variants and recipe.variants),
        None,
    )
    if alike is not None:
        return f"did you mean a variant of '{near}': {some(sorted(alike.variants))}?"
    return hint(name, names, RECIPE_LIST.advise()) if begun is None else f"did you mean '{begun}'?"


def find_member(subject: str, source: str, given: Path | None = None) -> Member:
    """The variant `subject` as `source` has it: a zoo, or a framework for its default zoo.

    Raises:
        UsageError, RecipeError: as `find_recipe`, or there is no such zoo, or it lacks the variant.
    """
    return find_recipe(subject, given).member(subject, source)


@dataclass(frozen=True)
class KnownVariant:
    """A variant of a zoo, whose recipe need not be read yet.

    Attributes:
        files: the recipe's, and those of the recipes that it extends.
        fingerprint: None for a recipe that has none; so are `names`, its layers by their names.
    """

    files: tuple[Path, ...]
    variant: str
    zoo: str
    fingerprint: Fingerprint | None
    names: LayersByName | None = None

    def load(self) -> Member:
        """The variant.

        Raises:
            RecipeError: the recipe or the zoo is wrong.
        """
        return open_recipe(*self.files).member(self.variant, self.zoo)


def known_variants(given: Path | None = None) -> tuple[tuple[KnownVariant, ...], tuple[RecipeError, ...]]:
    """Every variant and zoo in `recipe_folders`, and the errors of the recipes that cannot be used: a wrong
    recipe spoils itself only. Nothing is said of files in ./recipes that are not recipes. Recipes with
    fingerprints are not read.

    Raises:
        UsageError: as `recipe_folders`.
    """
    known: list[KnownVariant] = []
    faults = []
    prints = shipped_fingerprints()
    for declaring in declared_recipes(given):
        if _is_stray(declaring, given):
            continue
        own = prints.get(declaring.path.name, {}) if declaring.path.parent.samefile(recipes_folder()) else {}
        try:
            if declaring.fault is not None:
                raise declaring.fault
            recipe = None if own else load_recipe(*declaring.files)
            for variant in declaring.variants:
                zoos = (
                    own[variant] if recipe is None else dict.fromkeys(recipe.zoos_of(variant), (None, None))
                )
                known += [
                    KnownVariant(declaring.files, variant, zoo, *recorded) for zoo, recorded in zoos.items()
                ]
        except RecipeError as error:
            faults.append(error)
    return tuple(known), tuple(faults)


def sound_recipes(given: Path | None) -> Iterator[Recipe]:
    """The recipes in `recipe_folders` that can be used."""
    for declaring in declared_recipes(given):
        if declaring.fault is None and declaring.names and not _is_stray(declaring, given):
            with suppress(RecipeError):
                yield open_recipe(*declaring.files)


def convert_command(
    member: Member,
    to: str,
    weights: Path,
    recipes: Path | None,
    mapped: Sequence[str] = (),
    said: Callable[..., str] = CONVERT.advise,
) -> str:
    """The command that ports a file as a variant of a zoo, whose recipe may be found in the folder `recipes`
    only. `said` is CONVERT.line where it is printed to be typed, whoever reads it.
    """
    named, zoo = recipes_named(member.recipe, recipes), member.zoo.name
    return said(subject=member.variant, source=zoo, to=to, weights=weights, mapped=mapped, recipes=named)


def recipes_named(recipe: Recipe, given: Path | None) -> str | None:
    """The folder `given` if a command line has to name it so that it finds a recipe again: no other folder
    has it.
    """
    own = (
        given is not None
        and recipe.path.parent == given
        and given.resolve() not in map(Path.resolve, recipe_folders())
    )
    return str(given) if own else None
