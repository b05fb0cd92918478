"""YAML with the line of every key kept, so that each mistake can be shown where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from porter.errors import RecipeError

MAX_BYTES = 1 << 20
MAX_DEPTH = 40


class Block(dict[str, Any]):
    """A YAML mapping that knows its line and the line of each of its keys (both from 1)."""

    line: int
    lines: dict[str, int]


def read_yaml(path: Path) -> Block:
    """The mapping that a recipe file holds.

    Raises:
        RecipeError: unreadable, too large, malformed, nested too deep, with duplicate keys or with aliases (which could grow
            a small file without bound).
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecipeError(f"a recipe has at most {MAX_BYTES} bytes", where=str(path))
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"this recipe cannot be read: {error}", where=str(path)) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RecipeError(f"malformed YAML: {error.problem}", where=f"{path}:{line}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise RecipeError(f"malformed YAML: {error}", where=str(path)) from None
    if not isinstance(node, yaml.MappingNode):
        raise RecipeError("a recipe is a mapping", where=f"{path}:1")
    found = _convert(node, path, set(), 0)
    assert isinstance(found, Block)
    return found


def _convert(node: yaml.Node, path: Path, seen: set[int], depth: int) -> Any:
    where = f"{path}:{node.start_mark.line + 1}"
    if id(node) in seen or depth > MAX_DEPTH:
        raise RecipeError("aliases are not allowed" if id(node) in seen else "nested too deep", where=where)
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return [_convert(item, path, seen, depth + 1) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, where)
    block = Block()
    block.line, block.lines = node.start_mark.line + 1, {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise RecipeError("a key is a plain word", where=f"{path}:{line}")
        if key in block:
            raise RecipeError(f"'{key}' stands here twice", where=f"{path}:{line}")
        block[key], block.lines[key] = _convert(value_node, path, seen, depth + 1), line
    return block


def _scalar(node: yaml.Node, where: str) -> Any:
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(f"malformed value: {error}", where=where) from None
    if value is not None and not isinstance(value, bool | int | float | str):
        raise RecipeError(f"a value is text, a number or a truth value, got {type(value).__name__}", where=where)
    return value


def line_of(document: Any, location: tuple[int | str, ...]) -> int:
    """The line of the innermost part of `location` (keys and indices) that the document has."""
    line = getattr(document, "line", 1)
    for part in location:
        if isinstance(document, Block) and part in document:
            line = document.lines[str(part)]
            document = document[str(part)]
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
            line = getattr(document, "line", line)
        else:
            break
    return line
