"""The sections of a recipe file, each with its keys. Unknown keys are refused with their line and the nearest valid spelling."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from porter.errors import RecipeError
from porter.recipe.source import Location, Source
from porter.recipe.spelling import hint

T = TypeVar("T")
Word = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.+-]*$", max_length=64)]
Values = dict[str, Any]
Side = Annotated[int, Field(ge=1, le=8192)]


class Section(BaseModel):
    """A mapping of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(Section):
    """A whole recipe."""

    architecture: Word
    paper: str | None = None
    variants: Annotated[dict[Word, Values], Field(min_length=1)]
    options: Values = {}
    input: Values
    graph: Annotated[tuple[Any, ...], Field(min_length=1)]
    blocks: dict[Word, Values] = {}
    zoos: Annotated[dict[Word, Values], Field(min_length=1)]


class InputSection(Section):
    """The input that the network was designed for: a side or [rows, columns], and channels."""

    size: Side | tuple[Side, Side]
    channels: Annotated[int, Field(ge=1, le=4096)] = 3


class BlockSection(Section):
    """Steps with parameters; a parameter whose default is null must be given."""

    parameters: Values = {}
    steps: Annotated[tuple[Any, ...], Field(min_length=1)]


class ZooSection(Section):
    """What one zoo does differently from the graph, and what it publishes. If it lacks variants, `only` lists those that it has.

    `assumed` names options (or `input_size`) that differ among the zoo's own models and that a file of weights does not record,
    each with the reason. A zoo takes over everything from the zoo in `extends`, except `assumed`, `files`, `licence`,
    `preprocess`, `published` and `variants`.
    """

    extends: str | None = None
    only: tuple[str, ...] = ()
    framework: Word | None = None
    reference: Word | None = None
    options: Values = {}
    assumed: dict[str, str] = {}
    padding: Values = {}
    padding_as_trained: Values = {}
    names: Values = {}
    generations: dict[str, Values] = {}
    taps: Values = {}
    ignore: Values = {}
    preprocess: Values | None = None
    labels: Word | None = None
    activation: Literal["softmax", "sigmoid"] | None = None
    licence: str | None = None
    files: dict[str, Values] = {}
    published: dict[str, Values] = {}
    variants: dict[str, Values] = {}


class OverrideSection(Section):
    """What a zoo does differently for one variant."""

    options: Values = {}
    padding: Values = {}
    preprocess: Values | None = None
    labels: Word | None = None


class GenerationSection(Section):
    """Older names, only those that differ from the zoo's, and what the code of that time computed differently."""

    names: Values
    options: Values = {}
    padding: Values = {}


class NameSection(Section):
    """A layer's name, and the transforms of its arrays (porter.recipe.transforms)."""

    name: str
    transforms: tuple[str, ...] = ()


class IgnoreSection(Section):
    """Why a source tensor is left unused, and what it must equal: one number, or a fixed array of porter.recipe.fixed."""

    reason: str
    equals: float | str | None = None


class Published(Section):
    """Accuracy on the ImageNet validation images as published, in percent, at an input of `size`."""

    top1: Annotated[float, Field(ge=0, le=100)]
    top5: Annotated[float, Field(ge=0, le=100)]
    size: Annotated[int, Field(ge=1)]
    source: str
    note: str | None = None


def parse_section(kind: type[T], source: Source, location: Location, values: Any) -> T:
    """The values at `location` as a section or one of porter's dataclasses.

    Raises:
        RecipeError: a key is unknown or missing, or a value has the wrong type; with its line.
    """
    try:
        with source.at(location):
            for key in values if isinstance(values, dict) else ():
                if key not in keys_of(kind):
                    where = source.where((*location, key), key=True)
                    raise RecipeError(f"there is no key '{key}' here", where=where, next=hint(key, keys_of(kind)))
            section: Any = kind
            found: T = _adapter(section).validate_python(values)
            return found
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _explained(source, location, first["type"], first["loc"], first["msg"]) from None


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Cached: pydantic needs more time to make an adapter for a dataclass than to read a whole recipe with it."""
    return TypeAdapter(kind)


def _explained(source: Source, location: Location, what: str, inner: Location, message: str) -> RecipeError:
    where = source.where((*location, *inner))
    if what in ("missing", "missing_argument"):
        return RecipeError(f"the key '{inner[-1]}' is missing", where=where)
    # pydantic also names the branch of a union that it tried, which is not in the file.
    key = ".".join(str(part) for end, part in enumerate(inner, 1) if source.mark((*location, *inner[:end])))
    return RecipeError(f"'{key}': {message}" if key else message, where=where)


def keys_of(kind: type[Any]) -> tuple[str, ...]:
    """The keys that a section or dataclass has."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(kind.model_fields)
