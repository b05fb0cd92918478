"""Where recipes are: folders of the user's, and porter's own. The first folder that declares a name has
it.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from porter.base.commands import INSPECT, RECIPE_CHECK, RECIPE_LIST
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
WORKING_FOLDER = Path("recipes")
_RENAME_ONE = "give one of them another name"


def recipe_folders(given: Path | None = None) -> tuple[Path, ...]:
    """Return the folders in which recipes are looked for, in this order: `given`, which is what `--recipes`
    names, the one in PORTER_RECIPES, the one in the user's configuration, ./recipes, those of plug-ins, and
    porter's own. Each stands there once, if it exists.

    Raises:
        UsageError: `given`, or what PORTER_RECIPES names, holds no recipe.
        PluginError: a plug-in has no such folder.
    """
    variable = os.environ.get(VARIABLE)
    folder_of_variable = Path(variable) if variable else None
    for folder, setting in ((given, str(RECIPES)), (folder_of_variable, VARIABLE)):
        if folder is not None and not any(folder.glob("*.yaml")):
            raise UsageError(
                "there are no recipes (*.yaml) here",
                where=folder,
                next=f"give {setting} a folder of recipes",
            )
    folders: dict[Path, Path] = {}
    for folder in (
        given,
        folder_of_variable,
        _users_folder(),
        WORKING_FOLDER,
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
        spec = find_spec(plugin.entry.value)
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if folder is None or not any(folder.glob("*.yaml")):
        raise plugin.error(f"expected recipes (*.yaml) in the folder of the package '{plugin.entry.value}'")
    return folder


def _users_folder() -> Path | None:
    """Return the folder of recipes in the user's configuration; None if there is no home."""
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
    """Return what the recipes in `recipe_folders` declare, those of earlier folders first.

    A name that a recipe of an earlier folder has is left out, and so are all names of an architecture that an
    earlier folder has. A recipe that extends another has that one's names too. An exact copy of one of
    porter's own is left out, unless its folder is `given`: a checkout has all of them in ./recipes, beside
    those of an installed porter. A recipe has a fault if its text is not valid YAML, if it has a name of
    another recipe in its folder, or if what it extends is not there.

    Args:
        given: the folder that `--recipes` names.
        with_zoos: read the names of zoos too, for which a whole text has to be read.

    Raises:
        UsageError: as `recipe_folders`.
    """
    own_folder = recipes_folder()
    by_precedence = [
        (recipe, beside)
        for folder in recipe_folders(given)
        for beside in [_listed(folder, own_folder, with_zoos, folder is given)]
        for recipe in beside
    ]
    return _without_earlier_names(_with_bases(by_precedence))


def _with_bases(by_precedence: Sequence[tuple[Declared, Sequence[Declared]]]) -> Sequence[Declared]:
    """Return recipes, each given with those of its folder, with the names of what they extend.

    A recipe extends one that comes behind it, in its folder or in a later one: those are complete first.
    """
    complete = deque[Declared]()
    for recipe, beside in reversed(by_precedence):
        with_base = recipe
        if recipe.extends is not None:
            with_base = _with_base(recipe, recipe.extends, complete, beside)
        complete.appendleft(with_base)
    return complete


def _without_earlier_names(recipes: Iterable[Declared]) -> tuple[Declared, ...]:
    """Return recipes without the names that those of earlier folders have."""
    found: list[Declared] = []
    for recipe in recipes:
        # recipes of earlier folders, and those beside it that extend it and so have its names
        before = [
            earlier
            for earlier in found
            if earlier.fault is None
            and (earlier.path.parent != recipe.path.parent or recipe.path in earlier.files)
        ]
        if any(earlier.architecture == recipe.architecture for earlier in before):
            taken_names = {*recipe.names}
        else:
            taken_names = {name for earlier in before for name in earlier.names}
        found.append(recipe.without_names(taken_names))
    return tuple(found)


def _listed(folder: Path, own_folder: Path, with_zoos: bool, is_given: bool) -> list[Declared]:
    """Return what the recipes in a folder declare, without copies of porter's own unless the folder is
    given.
    """
    if folder.samefile(own_folder):
        return _declared_in_folder(own_folder, with_zoos)
    recipes = _declared_in_folder(folder, with_zoos)
    return (
        recipes
        if is_given
        else [recipe for recipe in recipes if not _is_copy_of_shipped(recipe.path, own_folder)]
    )


def replaced_recipe(recipe: Recipe) -> Path | None:
    """Return the file of porter's own recipe that the user's recipe replaces, because it has the same
    architecture; None if it replaces none.
    """
    own_folder = recipes_folder()
    mark = recipe.source.mark(("architecture",))
    if mark is None or mark.path.parent.resolve() == own_folder.resolve():
        return None
    shipped = (
        shipped_recipe.path
        for shipped_recipe in _declared_in_folder(own_folder, False)
        if shipped_recipe.architecture == recipe.architecture
    )
    return next(shipped, None)


def _is_no_recipe(recipe: Declared, given: Path | None) -> bool:
    """Return whether a file is passed over, because it lies in ./recipes, declares no architecture, and so
    is not meant as a recipe: any project may have a folder of that name. If the folder is `given` (by
    `--recipes`), its files are meant.
    """
    return not recipe.architecture and recipe.path.parent == WORKING_FOLDER != given


def error_of_taken_name(path: Path) -> RecipeError | None:
    """Return the error of the first name in the recipe's file at `path` that porter's own recipes have too,
    or another one in its folder; None if all names are its own, or the file is a copy of one of porter's.
    """
    own_folder = recipes_folder()
    if _is_copy_of_shipped(path, own_folder):
        return None
    recipe = declared(path)
    beside = [
        neighbour for neighbour in _declared_in_folder(path.parent, False) if neighbour.path.name != path.name
    ]
    next = "the recipe stands in its place; with another name both are found"
    recipe = _expect_own_names(recipe, _declared_in_folder(own_folder, False), "porter's own ", next)
    return _expect_own_names(recipe, beside, "", _RENAME_ONE).fault


def _is_copy_of_shipped(path: Path, own_folder: Path) -> bool:
    """Return whether a file is an exact copy of one of porter's own recipes. A file that is no readable
    recipe is none, whatever its name.
    """
    original = own_folder / path.name
    try:
        return original.is_file() and read_text(original) == read_text(path)
    except RecipeError:
        return False


def _declared_in_folder(folder: Path, with_zoos: bool) -> list[Declared]:
    """Return what the recipes in a folder declare; those that extend others come first."""
    recipes: list[Declared] = []
    for path in sorted(folder.glob("*.yaml")):
        recipes.append(_expect_own_names(declared(path, with_zoos), recipes, "", _RENAME_ONE))
    return sorted(recipes, key=lambda recipe: recipe.extends is None)


def _with_base(
    recipe: Declared, place: Mark, later: Sequence[Declared], beside: Sequence[Declared]
) -> Declared:
    """Return the recipe with the names of what it extends: the first of `later` that has this architecture.
    If there is none, or only a faulty one, return it with a fault that says why.

    Args:
        place: of the word `extends`.
        later: the recipes behind it, among which its base is.
        beside: the recipes of its folder, which may extend each other in a circle.
    """
    for base in later:
        if base.architecture == recipe.architecture and base.fault is None:
            return recipe.extending(base)
    advice = hint(recipe.architecture, (base.architecture for base in later))
    message = f"there is no architecture '{recipe.architecture}' to extend"
    files = {neighbour.path.stem: neighbour for neighbour in beside if neighbour.extends is not None}
    # what extends what by names of files, up to a name that comes again
    chain = [recipe.path.stem]
    while chain[-1] in files and chain[-1] not in chain[:-1]:
        chain.append(files[chain[-1]].architecture)
    if chain[-1] in chain[:-1]:
        # They extend each other in a circle.
        message = f"{' extends '.join(chain)}: none of them has a graph"
        advice = "write architecture, input and graph in one of them"
    elif len(chain) > 2:
        # It extends a recipe by the name of its file, and that one extends another.
        message = f"{message}: {chain[1]}.yaml extends '{chain[2]}'"
        advice = f"write extends: {chain[-1]}"
    faulty = next((base for base in later if base.architecture == recipe.architecture), None)
    if faulty is not None:
        message = f"'{faulty.architecture}' is in {faulty.fault}"
        advice = RECIPE_CHECK.advise(file=faulty.path)
    fault = RecipeError(message, where=place, next=advice)
    return replace(recipe, fault=recipe.fault or fault)


def recipe_files(path: Path) -> tuple[Path, ...]:
    """Return the file of the recipe at `path`, and those of the recipes that it extends, one after another.
    They are in its folder, or where recipes are found.

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


def _expect_own_names(recipe: Declared, others: Sequence[Declared], whose: str, next: str) -> Declared:
    """Return the recipe; with a fault if one of its own names is also a name of one of the `others`.

    Args:
        whose: says in the message whose recipe that is, such as "porter's own ".
        next: the advice of the fault.
    """
    owners = {name: owner for owner in others for name in owner.own}
    for name, mark in recipe.own.items():
        if name in owners and recipe.fault is None:
            fault = RecipeError(f"'{name}' is in {whose}{owners[name].path.name} too", where=mark, next=next)
            return replace(recipe, fault=fault)
    return recipe


def find_recipe(name: str, given: Path | None = None) -> Recipe:
    """Return the recipe that declares the variant `name`, or the architecture of that name. No other recipe
    is loaded.

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
    with suppress(OSError):  # longer than a file's name may be
        if Path(name).exists():
            next = f"{INSPECT.advise(file=name)} prints the line that ports it"
            raise UsageError(f"'{name}' is a file, expected a variant", next=next)
    advice = _advice_if_replaced(name, recipes) or _advice_for_unknown(name, recipes)
    # A recipe that cannot be used may have the variant: its error is named too.
    meant = [
        recipe for recipe in recipes if not _is_no_recipe(recipe, given) or nearest(name, [recipe.path.stem])
    ]
    faults = [f"; {recipe.fault}" for recipe in meant if recipe.fault is not None]
    raise UsageError(f"there is no variant '{name}'", next=advice + "".join(faults))


def _advice_if_replaced(name: str, recipes: Sequence[Declared]) -> str | None:
    """Return the advice for a name of one of porter's own recipes that another recipe replaces; None for
    other names.
    """
    for shipped in _declared_in_folder(recipes_folder(), False):
        if name in shipped.names:
            replacing = next(recipe for recipe in recipes if recipe.architecture == shipped.architecture)
            return (
                f"{replacing.path} stands in place of porter's own {shipped.path.name}, which has it: in "
                f"place of a graph write 'extends: {shipped.architecture}' there, or give it another "
                "architecture"
            )
    return None


def _advice_for_unknown(name: str, recipes: Sequence[Declared]) -> str:
    """Return advice for an unknown name: the shortest variant that begins with it, the nearest variant, the
    variants of the nearest architecture, or some names.
    """
    variants = [word for recipe in recipes for word in recipe.variants]
    names = [word for recipe in recipes for word in recipe.names]
    longer = [word for word in variants if name and word.startswith(name)]
    shortest = min(longer, key=lambda word: (len(word), word), default=None)
    similar = shortest or nearest(name, names)
    if similar not in variants:
        for recipe in recipes:
            if recipe.architecture == similar and recipe.variants:
                return f"did you mean a variant of '{similar}': {some(sorted(recipe.variants))}?"
    return hint(name, names, RECIPE_LIST.advise()) if shortest is None else f"did you mean '{shortest}'?"


def find_member(subject: str, source: str, given: Path | None = None) -> Member:
    """Return the variant `subject` as `source` has it: a zoo, or a framework for its default zoo.

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
        """Return the variant from its recipe, which is read now.

        Raises:
            RecipeError: the recipe or the zoo is wrong.
        """
        return open_recipe(*self.files).member(self.variant, self.zoo)


def known_variants(given: Path | None = None) -> tuple[tuple[KnownVariant, ...], tuple[RecipeError, ...]]:
    """Return every variant and zoo in `recipe_folders`, and the errors of the recipes that cannot be used: a
    wrong recipe spoils only itself. Files in ./recipes that are not recipes cause no error. Recipes with
    fingerprints are not read.

    Raises:
        UsageError: as `recipe_folders`.
    """
    known: list[KnownVariant] = []
    faults = []
    shipped = shipped_fingerprints()
    for declaring in declared_recipes(given):
        if _is_no_recipe(declaring, given):
            continue
        is_shipped = declaring.path.parent.samefile(recipes_folder())
        fingerprints = shipped.get(declaring.path.name) if is_shipped else None
        try:
            if declaring.fault is not None:
                raise declaring.fault
            if fingerprints:
                known += [
                    KnownVariant(declaring.files, variant, zoo, *recorded)
                    for variant in declaring.variants
                    for zoo, recorded in fingerprints[variant].items()
                ]
                continue
            recipe = load_recipe(*declaring.files)
            known += [
                KnownVariant(declaring.files, variant, zoo, None)
                for variant in declaring.variants
                for zoo in recipe.zoos_of(variant)
            ]
        except RecipeError as error:
            faults.append(error)
    return tuple(known), tuple(faults)


def sound_recipes(given: Path | None) -> Iterator[Recipe]:
    """Yield the recipes in `recipe_folders` that can be used."""
    for declaring in declared_recipes(given):
        if declaring.fault is None and declaring.names and not _is_no_recipe(declaring, given):
            with suppress(RecipeError):
                yield open_recipe(*declaring.files)
