"""What a recipe file may say, and the errors for what it may not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from porter.data.preprocess import Preprocess
from porter.errors import PorterError, RecipeError, UsageError
from porter.files import WeightsFile
from porter.frameworks import FRAMEWORK_NAMES, get_framework
from porter.recipe.errors import did_you_mean
from porter.recipe.source import Block as YamlBlock
from porter.recipe.source import line_of, read_yaml
from porter.transforms import TRANSFORMS

Scalar = bool | int | float | str


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class InputSpec(_Strict):
    size: int = Field(gt=0)
    channels: int = Field(default=3, gt=0)


class BlockSpec(_Strict):
    """A list of steps with parameters, used like an op; a parameter without a default is null."""

    parameters: dict[str, Any] = {}
    steps: list[Any]


class NameSpec(_Strict):
    """A zoo's name for a node, with what has to be done to its tensors on the way."""

    name: str
    transforms: tuple[str, ...] = ()


class IgnoreRule(_Strict):
    """Source tensors (a glob over their names) that stay unused, why, and what they must hold for that."""

    pattern: str
    reason: str
    equals: float | None = None


class Published(_Strict):
    """Accuracy that the zoo states, in per cent, and where."""

    top1: float = Field(ge=0, le=100)
    top5: float = Field(ge=0, le=100)
    size: int | None = None
    source: str
    note: str | None = None


class Zoo(_Strict):
    """An origin of weights: everything that differs there from the recipe's graph.

    Attributes:
        padding: site pattern to convention, as the file writes it (porter.recipe.paddings).
        padding_as_trained: the same for sites where the weights were trained otherwise than the zoo pads.
        names: node pattern to layer name (porter.recipe.names).
        generations: older tables of names, by a label.
        activation: what stands behind the logits in the zoo's own model; ports leave it out.
    """

    name: str
    framework: Literal["tf", "torch", "onnx", "caffe", "mxnet"]
    reference: str | None = None
    options: dict[str, Scalar] = {}
    padding: dict[str, Any] = {}
    padding_as_trained: dict[str, Any] = {}
    names: dict[str, str | NameSpec]
    generations: dict[str, dict[str, str | NameSpec]] = {}
    ignore: tuple[IgnoreRule, ...] = ()
    activation: str | None = None
    preprocess: Preprocess | None = None
    labels: str | None = None
    files: dict[str, WeightsFile] = {}
    published: dict[str, Published] = {}


class Recipe(_Strict):
    """One architecture: its graph, its variants and its zoos.

    Attributes:
        path: the file; `document` is what stands in it, with lines, for messages.
        graph: steps as written; porter.recipe.expand turns them into nodes.
    """

    path: Path
    document: Any = Field(repr=False)
    architecture: str
    paper: str | None = None
    variants: dict[str, dict[str, Any]]
    options: dict[str, Scalar]
    input: InputSpec
    graph: list[Any]
    blocks: dict[str, BlockSpec] = {}
    zoos: dict[str, Zoo]

    def zoo(self, name: str, variant: str) -> Zoo:
        """A zoo by its name, or a framework's default zoo, as it is for `variant`.

        Raises:
            UsageError: the recipe has no such zoo.
        """
        wanted = name
        if name not in self.zoos and name in FRAMEWORK_NAMES:
            wanted = get_framework(name).DEFAULT_ZOO
        if wanted not in self.zoos:
            hint = did_you_mean(name, [*self.zoos, *FRAMEWORK_NAMES])
            raise UsageError(f"{self.architecture} has no zoo '{name}'", where=str(self.path), next=hint)
        found = self.zoos[wanted]
        override = self.document["zoos"][wanted].get("variants", {}).get(variant)
        return found if override is None else _zoo(self.path, self.document, wanted, variant)

    def native_size(self) -> tuple[int, int]:
        """Rows and columns of the input that the recipe names."""
        return self.input.size, self.input.size

    def where(self, *location: int | str) -> str:
        """file:line of a part of the recipe."""
        return f"{self.path}:{line_of(self.document, location)}"


@cache
def load_recipe(path: Path) -> Recipe:
    """Reads and validates a recipe file; its graph is expanded when it is asked for.

    Raises:
        RecipeError: with file:line and the nearest valid spelling.
    """
    document = read_yaml(path)
    written = {key: value for key, value in document.items() if key != "zoos"}
    zoos = document.get("zoos")
    if not isinstance(zoos, YamlBlock) or not zoos:
        raise RecipeError("a recipe has at least one zoo under 'zoos'", where=f"{path}:{line_of(document, ('zoos',))}")
    fields = {**written, "path": path, "document": document, "zoos": {}}
    recipe: Recipe = _validated(Recipe, fields, path, document, ())
    for name, zoo in zoos.items():
        for variant in {**_table(zoo, "files"), **_table(zoo, "published"), **_table(zoo, "variants")}:
            if variant not in recipe.variants:
                place = next(key for key in ("files", "published", "variants") if variant in _table(zoo, key))
                where = f"{path}:{line_of(document, ('zoos', name, place, variant))}"
                raise RecipeError(f"there is no variant '{variant}'", where=where, next=did_you_mean(variant, recipe.variants))
    return recipe.model_copy(update={"zoos": {name: _zoo(path, document, name, None) for name in zoos}})


def _table(zoo: Any, key: str) -> Mapping[str, Any]:
    value = zoo.get(key, {}) if isinstance(zoo, dict) else {}
    return value if isinstance(value, dict) else {}


OWN = ("preprocess", "files", "published", "variants")
"""What a zoo that extends another does not inherit: these belong to a set of weights."""


def _zoo(path: Path, document: YamlBlock, name: str, variant: str | None) -> Zoo:
    """A zoo with what it extends and, for a variant, what it overrides there."""
    location = ("zoos", name)
    written = document["zoos"][name]
    if not isinstance(written, YamlBlock):
        raise RecipeError("a zoo is a mapping", where=f"{path}:{line_of(document, location)}")
    fields: dict[str, Any] = {}
    parent = written.get("extends")
    if parent is not None:
        if parent not in document["zoos"] or "extends" in document["zoos"][parent]:
            where = f"{path}:{line_of(document, (*location, 'extends'))}"
            raise RecipeError(f"'{parent}' is no zoo to extend", where=where, next=did_you_mean(str(parent), document["zoos"]))
        fields = {key: value for key, value in document["zoos"][parent].items() if key not in OWN}
    _overlay(fields, {key: value for key, value in written.items() if key not in ("extends", "variants")})
    if variant is not None:
        _overlay(fields, written["variants"][variant])
    ignore = fields.get("ignore", {})
    if isinstance(ignore, dict):
        fields["ignore"] = tuple(
            {"pattern": pattern, **(rule if isinstance(rule, dict) else {"reason": rule})} for pattern, rule in ignore.items()
        )
    files = fields.get("files")
    if isinstance(files, dict):
        fields["files"] = {key: _file(value) for key, value in files.items()}
    zoo: Zoo = _validated(Zoo, {**fields, "name": name}, path, document, location)
    for table in ("names", *(f"generations/{label}" for label in zoo.generations)):
        entries = zoo.names if table == "names" else zoo.generations[table.removeprefix("generations/")]
        for pattern, entry in entries.items():
            for transform in entry.transforms if isinstance(entry, NameSpec) else ():
                if transform not in TRANSFORMS:
                    where = f"{path}:{line_of(document, (*location, *table.split('/'), pattern))}"
                    raise RecipeError(f"there is no transform '{transform}'", where=where, next=did_you_mean(transform, TRANSFORMS))
    return zoo


def _file(value: Any) -> Any:
    """A file's own name is the last part of its address unless the recipe says otherwise."""
    if not isinstance(value, dict) or "name" in value:
        return value
    address = str(value.get("url") or value.get("pypi") or "")
    return {"name": address.rsplit("/", 1)[-1], **value}


def _overlay(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        base[key] = {**base[key], **value} if isinstance(base.get(key), dict) and isinstance(value, dict) else value


def _validated(model: type[Any], fields: dict[str, Any], path: Path, document: YamlBlock, location: tuple[str, ...]) -> Any:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        at = tuple(part for part in first["loc"] if part not in ("str", "NameSpec"))
        message, hint = first["msg"].removeprefix("Value error, "), None
        if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            message, hint = f"unknown key '{at[-1]}'", did_you_mean(str(at[-1]), _known_keys(model, at))
        elif first["type"] in ("missing", "missing_argument"):
            message = f"'{at[-1]}' is missing"
        elif at:
            message = f"'{at[-1]}': {message}, got {first['input']!r}"
        raise RecipeError(message, where=f"{path}:{line_of(document, (*location, *at))}", next=hint) from None
    except PorterError as error:
        raise RecipeError(error.message, where=f"{path}:{line_of(document, location)}", next=error.next) from None


_NESTED: Mapping[str, Any] = {
    "input": InputSpec,
    "blocks": BlockSpec,
    "preprocess": Preprocess,
    "files": WeightsFile,
    "published": Published,
    "ignore": IgnoreRule,
    "names": NameSpec,
}


def _known_keys(model: type[Any], location: tuple[Any, ...]) -> list[str]:
    owner = _NESTED.get(str(location[0]), model) if len(location) > 1 else model
    known = list(getattr(owner, "model_fields", None) or getattr(owner, "__dataclass_fields__", {}))
    return [*known, "extends", "variants"] if owner is Zoo else known
