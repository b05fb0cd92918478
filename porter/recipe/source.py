"""A recipe's text as plain values, each with its line.

Recipes come from strangers, so the cost of reading one is bounded by its size: no aliases, a bounded file, a bounded depth, and
only plain YAML types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from porter.errors import RecipeError

Location = tuple[str | int, ...]
"""Keys and indices from the top of the file to a value."""

MAX_BYTES = 1 << 18
MAX_DEPTH = 32

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTRUCT = yaml.constructor.SafeConstructor()
_TAG = "tag:yaml.org,2002:"
# In YAML 1.1, 1e-5 is a string, because it has no dot.
_FLOAT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", re.ASCII)


@dataclass(frozen=True)
class Source:
    """A recipe file: mappings, tuples and scalars, and their lines."""

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[Location, int]

    def where(self, location: Location) -> str:
        """`file:line` of a value, otherwise of the nearest value around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return f"{self.path}:{self.lines.get(location, 1)}"

    @contextmanager
    def at(self, location: Location) -> Iterator[None]:
        """Gives this place to the RecipeErrors of the block that have none."""
        try:
            yield
        except RecipeError as error:
            if error.where is not None:
                raise
            raise RecipeError(error.message, where=self.where(location), next=error.next) from None


def read_source(path: Path) -> Source:
    """Reads a recipe's YAML.

    Raises:
        RecipeError: it is unreadable, too large, not UTF-8 or no valid YAML, has an alias or a key twice, or a value is no
            mapping, list, number, boolean, word or null.
    """
    text = _read_text(path)
    try:
        _check_events(path, text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise RecipeError(f"no valid YAML: {problem}", where=f"{path}:{mark.line + 1 if mark else 1}") from None
    if not isinstance(root, yaml.MappingNode):
        raise RecipeError("a recipe is a mapping of keys to values", where=f"{path}:1")
    lines: dict[Location, int] = {}
    return Source(path, _value(path, root, (), lines), lines)


def declared_names(path: Path) -> frozenset[str]:
    """The architecture and the variants of a recipe; the text after its variants is not read.

    Empty if the text before cannot be read; `read_source` then says why.
    """
    names: list[str] = []
    depth, key = 0, ""
    try:
        for event in yaml.parse(_read_text(path), Loader=_Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                if depth == 1 and key == "variants":
                    break
                key = "" if depth == 1 else key
            elif isinstance(event, yaml.ScalarEvent) and depth == 1:
                names += [event.value] if key == "architecture" else []
                key = "" if key else event.value
            elif isinstance(event, yaml.ScalarEvent) and depth == 2 and key == "variants":
                names.append(event.value)
    except (yaml.YAMLError, RecipeError):
        return frozenset()
    return frozenset(names)


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise RecipeError("there is no such recipe file", where=str(path))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(content) > MAX_BYTES:
        raise RecipeError(f"a recipe has at most {MAX_BYTES >> 10} KiB", where=str(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise RecipeError("a recipe is UTF-8 text", where=f"{path}:{line}") from None


def _check_events(path: Path, text: str) -> None:
    """Refuses aliases and deep nesting before anything is composed, because composing them can be expensive."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise RecipeError(f"aliases (*{event.anchor}) are not part of the recipe language", where=_where(path, event))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise RecipeError(f"values nest more than {MAX_DEPTH} deep", where=_where(path, event))


def _value(path: Path, node: yaml.Node, location: Location, lines: dict[Location, int]) -> Any:
    lines.setdefault(location, _line(node))
    kind = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.MappingNode) and kind == "map":
        values: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RecipeError("a key is a word", where=_where(path, key))
            if key.value in values:
                raise RecipeError(f"the key '{key.value}' is here twice", where=_where(path, key))
            lines[(*location, key.value)] = _line(key)
            values[key.value] = _value(path, item, (*location, key.value), lines)
        return values
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return tuple(_value(path, item, (*location, index), lines) for index, item in enumerate(node.value))
    if isinstance(node, yaml.ScalarNode):
        return _scalar(path, node, kind)
    raise RecipeError(f"values of type '{node.tag}' are not part of the recipe language", where=_where(path, node))


def _scalar(path: Path, node: yaml.ScalarNode, kind: str) -> Any:
    try:
        if kind == "str":
            return float(node.value) if not node.style and _FLOAT.fullmatch(node.value) else node.value
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
    raise RecipeError(f"'{node.value[:40]}' is no value of a recipe ({kind})", where=_where(path, node), next="put it in quotes")


def _where(path: Path, node: yaml.Node | yaml.Event) -> str:
    return f"{path}:{_line(node)}"


def _line(node: yaml.Node | yaml.Event) -> int:
    mark: Any = node.start_mark
    return int(mark.line) + 1
