"""The sections of a recipe file, each with its keys. Unknown keys are refused with their line and the nearest
valid spelling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from porter.base.errors import RecipeError
from porter.data.labels import LABEL_MAPS
from porter.data.preprocess import Preprocess, ProtocolError
from porter.padding.sizes import MAX_SIDE
from porter.recipe.faults import Faults
from porter.recipe.fixed import COMPUTED, FIXED
from porter.recipe.refusals import raise_refusal
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint
from porter.recipe.transforms import TRANSFORMS
from porter.zoos.tables import REFERENCES

LABEL_FILE = ".txt"
"""How the name of a file of labels ends."""
NO_REFERENCE = "none"
"""The `reference` of a zoo that extends another, if the other's reference lacks its models."""
T = TypeVar("T")
Word = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.+-]*$", max_length=64)]
"""A name that a variant, a zoo or a block may have."""
Values = dict[str, Any]
InputSide = Annotated[int, Field(ge=1, le=MAX_SIDE)]
Percent = Annotated[float, Field(ge=0, le=100)]
Schema = dict[str, Any]


class Holds(NamedTuple):
    """What a key holds, in JSON Schema, where its type says less. porter.authoring.json_schema has the
    definitions.
    """

    schema: Schema


def reference_to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def table_of(item: Schema) -> Schema:
    return {"type": "object", "additionalProperties": item}


def any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def words_of(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


_OPTIONS, _TEXT = table_of(reference_to("value")), {"type": "string"}
OptionsTable = Annotated[Values, Holds(_OPTIONS)]
Steps = Annotated[tuple[Any, ...], Field(min_length=1), Holds(list_of(reference_to("step")))]
PaddingTable = Annotated[Values, Holds(table_of(reference_to("padding")))]
NamesTable = Annotated[Values, Holds(reference_to("names"))]
Protocol = Annotated[str | Values | None, Holds(any_of(_TEXT, {"type": "null"}, reference_to("preprocess")))]
LabelMap = Annotated[
    Word | None,
    Holds(any_of(words_of(LABEL_MAPS), {"type": "string", "pattern": rf"^\w[\w.+-]*\{LABEL_FILE}$"})),
]
_ZOOS = Holds(table_of(reference_to("zoo")))
_REFERENCES = (*dict.fromkeys(name for names in REFERENCES.values() for name in names), NO_REFERENCE)


_ROW = "list it in the zoo's 'weights': {VARIANT: {file: ..., md5: ..., top1: ..., top5: ..., source: ...}}"
_OLDER_KEYS = {"preprocess": "it is called 'protocol'", "files": _ROW, "published": _ROW}
"""Keys of older recipes, each with advice that says what took its place."""


class Section(BaseModel):
    """A mapping of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Document(Section):
    """A whole recipe."""

    architecture: Word
    paper: str | None = None
    variants: Annotated[dict[Word, Values], Field(min_length=1), Holds(table_of(_OPTIONS))]
    options: OptionsTable = {}
    constants: OptionsTable = {}
    input: Annotated[Values, Holds(reference_to("input"))]
    graph: Steps
    blocks: Annotated[dict[Word, Values], Holds(table_of(reference_to("block")))] = {}
    zoos: Annotated[dict[Word, Values], Field(min_length=1), _ZOOS]


class Extension(Section):
    """A recipe that adds variants, options, constants and zoos to another one."""

    extends: Word
    variants: Annotated[dict[Word, Values], Holds(table_of(_OPTIONS))] = {}
    options: OptionsTable = {}
    constants: OptionsTable = {}
    zoos: Annotated[dict[Word, Values], _ZOOS] = {}


class InputSection(Section):
    """The input that the network was designed for: a side, perhaps an expression of variables, or [rows,
    columns]; and channels.
    """

    size: InputSide | tuple[InputSide, InputSide] | Annotated[str, Field(pattern="^=")]
    channels: Annotated[int, Field(ge=1, le=4096)] = 3


class BlockSection(Section):
    """Steps with parameters; a parameter whose default is null must be given. `inputs` names several
    inputs.
    """

    parameters: OptionsTable = {}
    inputs: Annotated[tuple[Word, ...], Field(min_length=1), Holds(list_of(_TEXT))] = ("input",)
    steps: Steps


class FactsSection(Section):
    """What holds for the models of a zoo whatever their graph.

    `protocol` is one of `protocols` by its name, or in place. `address` is what the `file` of each of its
    weights begins with, if that is not an address itself. `source` is where their figures are published,
    `note` what holds for all of them.
    """

    framework: Annotated[Word | None, Holds(words_of(REFERENCES))] = None
    reference: Annotated[Word | None, Holds(words_of(_REFERENCES))] = None
    options: OptionsTable = {}
    ignore: Annotated[Values, Holds(table_of(any_of(_TEXT, reference_to("ignore"))))] = {}
    labels: LabelMap = None
    activation: Literal["softmax", "log_softmax", "sigmoid"] | None = None
    licence: str | None = None
    protocols: Annotated[dict[Word, Values], Holds(table_of(reference_to("preprocess")))] = {}
    protocol: Protocol = None
    address: str | None = None
    source: str | None = None
    note: str | None = None


class GroupSection(FactsSection):
    """What a zoo's file says of one architecture: what differs there, and the published weights by
    variant.
    """

    weights: Annotated[dict[str, Values], Holds(table_of(reference_to("weights")))] = {}


class ZooSection(GroupSection):
    """What one zoo does differently from the graph. If it lacks variants, `only` lists those that it has.

    `assumed` names options (or `input_size`) that differ among the zoo's own models and that a file of
    weights does not record, each with the reason. A zoo takes over everything from the zoo in `extends`,
    except `assumed`, `licence`, `protocol`, `source`, `variants` and `weights`.
    """

    extends: str | None = None
    only: tuple[str, ...] = ()
    assumed: dict[str, str] = {}
    padding: PaddingTable = {}
    padding_as_trained: PaddingTable = {}
    names: NamesTable = {}
    generations: Annotated[dict[str, Values], Holds(table_of(reference_to("generation")))] = {}
    taps: NamesTable = {}
    variants: Annotated[dict[str, Values], Holds(table_of(reference_to("override")))] = {}


class ZooDocument(FactsSection):
    """A zoo's file: what holds for all its models, and what for those of each architecture."""

    zoo: Word
    architectures: Annotated[dict[Word, Values], Holds(table_of(reference_to("group")))] = {}


class OverrideSection(Section):
    """What a zoo does differently for one variant."""

    options: OptionsTable = {}
    padding: PaddingTable = {}


class WeightsSection(Section):
    """Published weights of one variant: their file (porter.files.WeightsFile), and their accuracy in percent
    on the ImageNet validation images, at the protocol's crop unless `size` says otherwise.
    """

    file: str | None = None
    pypi: str | None = None
    name: str | None = None
    member: str | None = None
    sha256: str | None = None
    sha256_prefix: str | None = None
    md5: str | None = None
    licence: str | None = None
    top1: Percent | None = None
    top5: Percent | None = None
    size: InputSide | None = None
    source: str | None = None
    note: str | None = None
    protocol: Protocol = None
    labels: LabelMap = None


class GenerationSection(Section):
    """Older names, only those that differ from the zoo's, and what the code of that time computed
    differently.
    """

    names: NamesTable
    options: OptionsTable = {}
    padding: PaddingTable = {}


class NameSection(Section):
    """A layer's name, and the transforms of its arrays (porter.recipe.transforms). `tensor` is of a number
    that no layer holds. `adapted` is of an affine step: a Keras Normalization whose mean and variance are in
    the weights. `computed` is of a `tensor` that the zoo's code computes (porter.recipe.fixed).
    """

    name: str
    tensor: Word | None = None
    adapted: bool = False
    computed: Annotated[Word | None, Holds(words_of(COMPUTED))] = None
    transforms: Annotated[tuple[str, ...], Holds({"type": "array", "items": words_of(TRANSFORMS)})] = ()


class IgnoreSection(Section):
    """Why a source tensor is left unused, and what it must equal: one number, or a fixed array of
    porter.recipe.fixed.
    """

    reason: str
    equals: Annotated[float | str | None, Holds(any_of({"type": "number"}, words_of(FIXED)))] = None


SECTIONS: tuple[type[Any], ...] = (
    Document,
    Extension,
    InputSection,
    BlockSection,
    ZooSection,
    GenerationSection,
    OverrideSection,
    NameSection,
    IgnoreSection,
    WeightsSection,
    Preprocess,
    ZooDocument,
    GroupSection,
)
"""Every section of a recipe and of a zoo's file."""


def parse_section(kind: type[T], source: RecipeSource, location: Location, values: Any) -> T:
    """Return the values at `location` as a section or one of porter's dataclasses.

    Raises:
        RecipeError: a key is unknown or missing, or a value has the wrong type; with its line.
    """
    faults = Faults()
    known = keys_of(kind)
    for key in values if isinstance(values, dict) else ():
        if key not in known:
            with faults.collect(), source.at((*location, key), key=True):
                raise RecipeError(
                    f"there is no key '{key}' here", next=_OLDER_KEYS.get(key) or hint(key, known)
                )
    faults.expect_none()
    try:
        with source.at(location):
            section: Any = kind
            parsed: T = _adapter(section).validate_python(values)
            return parsed
    except ValidationError as error:
        raise_refusal(source, location, error)
    except ProtocolError as error:
        with source.at(location):
            raise RecipeError(error.message, key=error.key) from None


def expect_one_of(
    source: RecipeSource, location: Location, what: str, word: str, known: Iterable[str], *, key: bool = False
) -> str:
    """Return `word`, which has to be one of a closed list of names.

    Raises:
        RecipeError: it is not; with the nearest of `known`.
    """
    with source.at(location, key=key):
        if word not in known:
            raise RecipeError(f"there is no {what} '{word}'", next=hint(word, known))
    return word


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a class. It is cached: pydantic needs more time to make one for a
    dataclass than to read a whole recipe with it.
    """
    return TypeAdapter(kind)


def keys_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the keys that a section or dataclass has."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(kind.model_fields)
