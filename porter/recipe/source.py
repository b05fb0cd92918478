"""A recipe's text as plain values, each with the place where it is written.

Recipes come from strangers, so the cost of reading one is bounded by its size: no aliases, a bounded file, a
bounded depth, and only plain YAML types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from porter.base.errors import RecipeError

Location = tuple[str | int, ...]
"""Keys and indices from the top of the file to a value."""

MAX_BYTES = 1 << 18
MAX_DEPTH = 32

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTRUCT = yaml.constructor.SafeConstructor()
_TAG = "tag:yaml.org,2002:"
# In YAML 1.1, 1e-5 is a string, because it has no dot.
_FLOAT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", re.ASCII)


class Mark(NamedTuple):
    """A place in a file; lines and columns count from 1."""

    path: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


_YAML_ADVICE = (
    (
        "cannot start any token",
        "indent with spaces, not with tabs; put a value that begins with @ ` or % in quotes",
    ),
    (
        "mapping values are not allowed",
        "indent the keys of a mapping alike, and write a space after each ':'",
    ),
    ("expected '-' indicator", "begin each item of the list with '- ', all with the same indentation"),
    ("is opened here", "add its } or ], or the comma that is missing"),
    ("expected <block end>", "indent the keys of a mapping alike"),
)
"""What to do, by words of a parser's message."""


class HasMarks(Protocol):
    """A part of a recipe, which knows where its values are written."""

    def mark(self, location: Location, key: bool) -> Mark | None: ...


@dataclass(frozen=True)
class RecipeSource:
    """A recipe: mappings, tuples and scalars, and where each is written.

    Attributes:
        path: the recipe's file.
        values: the place of each value; of one that begins on a line below its key, the place of the key.
        keys: the place of each key.
        parts: of an assembled recipe; they know the places.
    """

    path: Path
    data: Mapping[str, Any]
    values: Mapping[Location, Mark]
    keys: Mapping[Location, Mark]
    parts: tuple[HasMarks, ...] = ()

    def value(self, location: Location) -> Any:
        """Return the value at a location that exists."""
        value: Any = self.data
        for step in location:
            value = value[step]
        return value

    def mark(self, location: Location, *, key: bool = False) -> Mark | None:
        """Return the place of a value, or of its key; None if the recipe lacks it. An assembled recipe asks
        its parts.
        """
        own_mark = (self.keys if key else self.values).get(location)
        if own_mark:
            return own_mark
        marks_of_parts = (part.mark(location, key) for part in self.parts)
        return next(filter(None, marks_of_parts), None)

    def where(self, location: Location, *, key: bool = False) -> str:
        """Return `file:line:column` of a value, or of its key; if the recipe lacks it, of the nearest value
        around it.
        """
        mark = self.mark(location, key=key) or self.mark(location)
        while location and not mark:
            location = location[:-1]
            mark = self.mark(location)
        return str(mark or Mark(self.path, 1, 1))

    def at(self, location: Location, *, key: bool = False) -> _PlaceOfErrors:
        """Return a context in which RecipeErrors without a place get this one."""
        return _PlaceOfErrors(self, location, key)


class _PlaceOfErrors:
    """The context of `RecipeSource.at`. It is a class, because a graph enters thousands, and a generator
    takes three times as long.
    """

    __slots__ = ("key", "location", "source")

    def __init__(self, source: RecipeSource, location: Location, key: bool) -> None:
        self.source, self.location, self.key = source, location, key

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RecipeError) and error.where is None:
            location = (*self.location, error.key) if error.key else self.location
            error.where = self.source.where(location, key=self.key)


class SourcePart(NamedTuple):
    """The value at `location` of a source, as the value at `place` of an assembled recipe."""

    place: tuple[str, ...]
    source: RecipeSource
    location: Location

    def value(self) -> Any:
        """Return the value of the part inside mappings for the keys of its place: 3 at
        `('options', 'depth')` as `{'options': {'depth': 3}}`.
        """
        value = self.source.value(self.location)
        for key in reversed(self.place):
            value = {key: value}
        return value

    def mark(self, location: Location, key: bool) -> Mark | None:
        """Return the place of a value of the assembled recipe; None if this part does not hold it."""
        start = location[: len(self.place)]
        inner = location[len(self.place) :]
        return self.source.mark((*self.location, *inner), key=key) if start == self.place else None


def assemble(path: Path, parts: Iterable[SourcePart]) -> RecipeSource:
    """Return one recipe of parts of several files. Every value keeps the place where it is written.

    Mappings at one place are joined, the keys of the first come first; of two other values at one place the
    first stays.
    """
    listed = tuple(parts)
    return RecipeSource(path, reduce(_join_values, (part.value() for part in listed)), {}, {}, listed)


def _join_values(first: Any, second: Any) -> Any:
    """Return two values at one place as one: mappings are joined, of other values the first stays."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return first
    return {key: _join_values(first.get(key, value), value) for key, value in {**first, **second}.items()}


def read_source(path: Path) -> RecipeSource:
    """Read a recipe's YAML.

    Raises:
        RecipeError: it is unreadable, too large, not UTF-8 or not valid YAML, has an alias or a key twice, or
            a value is no mapping, list, number, boolean, word or null.
    """
    text = read_text(path)
    try:
        _expect_plain_events(path, text)
        root = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise yaml_error(path, error) from None
    if not isinstance(root, yaml.MappingNode):
        raise RecipeError("a recipe must be a mapping of keys to values", where=Mark(path, 1, 1))
    reader = _YamlReader(path, {}, {})
    return RecipeSource(path, reader.value(root, ()), reader.values, reader.keys)


def read_text(path: Path) -> str:
    """Return a recipe's text.

    Raises:
        RecipeError: it is unreadable, too large or not UTF-8.
    """
    try:
        if not path.is_file():
            raise RecipeError("there is no such recipe file", where=path)
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=path) from None
    if len(content) > MAX_BYTES:
        raise RecipeError(f"a recipe has at most {MAX_BYTES >> 10} KiB", where=path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        *above, start = content[: error.start].split(b"\n")
        place = Mark(path, len(above) + 1, len(start.decode("utf-8")) + 1)
        raise RecipeError("a recipe must be UTF-8 text", where=place) from None


def yaml_error(path: Path, error: yaml.YAMLError) -> RecipeError:
    """Return the error of a recipe that is not valid YAML."""
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    context_start, mark = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    # The parser stops far behind a bracket that is not closed. It calls what stands in brackets a flow.
    is_in_brackets = "flow" in str(getattr(error, "context", ""))
    if is_in_brackets and context_start and mark and context_start.line < mark.line:
        problem, mark = "a bracket is opened here and not closed on its line", context_start
    advice = next(
        (advice for words, advice in _YAML_ADVICE if words in problem),
        "put a value with one of : , # { } [ ] in quotes",
    )
    place = Mark(path, mark.line + 1, mark.column + 1) if mark else Mark(path, 1, 1)
    return RecipeError(f"not valid YAML: {problem}", where=place, next=advice)


def _expect_plain_events(path: Path, text: str) -> None:
    """Refuse aliases and deep nesting before anything is composed, because composing them can be
    expensive.
    """
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise RecipeError(
                f"aliases (*{event.anchor}) are not part of the recipe language",
                where=mark_of(path, event),
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise RecipeError(f"values nest more than {MAX_DEPTH} deep", where=mark_of(path, event))


@dataclass(frozen=True)
class _YamlReader:
    """Makes values of YAML's nodes, and collects their places in the text."""

    path: Path
    values: dict[Location, Mark]
    keys: dict[Location, Mark]

    def value(self, node: yaml.Node, location: Location) -> Any:
        """Return the value of a node of YAML's, and note its place in the text."""
        place = mark_of(self.path, node)
        key_place = self.keys.get(location, place)
        # A value that begins on a line below its key has the place of the key.
        self.values[location] = key_place if place.line > key_place.line else place
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return tuple(self.value(item, (*location, index)) for index, item in enumerate(node.value))
        if isinstance(node, yaml.ScalarNode):
            return _read_scalar(self.path, node, kind)
        raise RecipeError(f"values of type '{node.tag}' are not part of the recipe language", where=place)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        """Return the mapping of a node of YAML's; refuse a key that is there twice."""
        values: dict[str, Any] = {}
        for key, item in node.value:
            place = mark_of(self.path, key)
            if not isinstance(key, yaml.ScalarNode):
                raise RecipeError("a key must be a word", where=place)
            if key.value in values:
                raise RecipeError(f"the key '{key.value}' is here twice", where=place)
            inner = (*location, key.value)
            self.keys[inner] = place
            values[key.value] = self.value(item, inner)
        return values


def _read_scalar(path: Path, node: yaml.ScalarNode, kind: str) -> Any:
    """Return the value of a scalar, by YAML 1.2's core rules. Raises RecipeError for a text that is no value
    of its kind, such as NaN.
    """
    try:
        if kind == "str":
            is_quoted = bool(node.style)
            return float(node.value) if not is_quoted and _FLOAT.fullmatch(node.value) else node.value
        if kind == "null":
            return None
        if kind == "bool":
            return _CONSTRUCT.construct_yaml_bool(node)
        if kind == "int":
            whole = _CONSTRUCT.construct_yaml_int(node)
            if abs(whole) < 1 << 63:  # Python refuses to print an integer of thousands of digits
                return whole
        if kind == "float":
            number = _CONSTRUCT.construct_yaml_float(node)
            if not math.isnan(number):
                return number
    except (ValueError, KeyError, OverflowError):
        pass
    where = str(mark_of(path, node))
    raise RecipeError(
        f"'{node.value[:40]}' is not a value of a recipe ({kind})", where=where, next="put it in quotes"
    )


def mark_of(path: Path, node: yaml.Node | yaml.Event) -> Mark:
    """Return where a node or an event begins."""
    start: Any = node.start_mark
    return Mark(path, int(start.line) + 1, int(start.column) + 1)
