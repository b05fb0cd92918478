"""A protocol as people state it, and in words for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal

from porter.base.errors import FileError, UsageError
from porter.base.json import JsonObject
from porter.base.options import PREPROCESS, AnyPath
from porter.base.package import page
from porter.data.preprocess import Preprocess, ProtocolError
from porter.files import expect_plain

MAX_BYTES = 1 << 16

_NUMBERS = {"size": int, "crop": int, "central_fraction": float, "divide": float}
_TRIPLES = ("mean", "std")
ROUNDED = {"even": "to even", "down": "down", "up": "up"}


def read_preprocess(given: AnyPath | JsonObject) -> Preprocess:
    """A protocol that a user states: as port.json has it, as its JSON, as a file of either, or as
    `resize=squash,size=96,interpolation=tf_bilinear,divide=127.5,mean=1`; a mean or a std is one number or
    three.

    Raises:
        UsageError: it states no protocol. FileError: a file cannot be read.
    """
    protocol = given if isinstance(given, Mapping) else _parsed(given)
    try:
        return _protocol(protocol)
    except ProtocolError as error:
        raise UsageError(error.message, where=PREPROCESS, next=_next()) from None


def _next() -> str:
    return (
        f"write it as {example(224, 'pil_bilinear')}, or as port.json has it; {page('protocols.md')} "
        "has all words"
    )


def example(size: int, interpolation: str, scaling: str = ",divide=255") -> str:
    """A protocol to type, for squares of `size`."""
    return PREPROCESS(f"resize=squash,size={size},interpolation={interpolation}{scaling}")


def stated(protocol: Preprocess) -> str:
    """A protocol as `read_preprocess` reads it from a text."""
    given = {field.name: getattr(protocol, field.name) for field in fields(protocol)}
    said = {field.name: given[field.name] for field in fields(protocol) if given[field.name] != field.default}
    return ",".join(f"{name}={_said(value)}" for name, value in said.items())


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_said, value if len(set(value)) > 1 else value[:1]))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _parsed(given: AnyPath) -> dict[str, Any]:
    """A protocol in a text: JSON, a file of it, or `name=value` pairs."""
    text = str(given)
    if not text.lstrip().startswith("{") and ("=" not in text or _is_there(text)):
        path = Path(text)
        if not _is_there(text):
            raise UsageError(f"'{text}' is no file and no protocol", where=PREPROCESS, next=_next())
        expect_plain(path)
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"a protocol has at most {MAX_BYTES:,} bytes", where=text)
        text = path.read_text(encoding="utf-8-sig", errors="replace").strip()
    if not text.lstrip().startswith("{"):
        return dict(_pairs(text))
    try:
        parsed: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is no JSON: {error}", where=PREPROCESS, next=_next()) from None
    return parsed


def _is_there(text: str) -> bool:
    try:
        return bool(text.strip()) and Path(text).exists()
    except (OSError, ValueError):  # longer than a file's name may be
        return False


def _pairs(text: str) -> Iterator[tuple[str, Any]]:
    """`mean=0.5,0.5,0.4,std=1`: a part without a name belongs to the name before it. Three numbers may stand
    in brackets.
    """
    values: dict[str, list[str]] = {}
    name = ""
    for part in text.replace("\n", ",").split(","):
        before, equals, value = part.rpartition("=")
        name = before.strip() if equals else name
        values.setdefault(name, []).append(value.strip())
    for name, parts in values.items():
        yield (
            name,
            list(filter(None, (part.strip("[]() ") for part in parts)))
            if name in _TRIPLES
            else ",".join(parts),
        )


def _protocol(stated: JsonObject) -> Preprocess:
    """The protocol that a mapping states, whose keys are those of Preprocess."""
    known = {field.name: field for field in fields(Preprocess)}
    if strange := [name for name in stated if name not in known]:
        raise ProtocolError(f"a protocol has no '{strange[0]}'; its parts are {', '.join(known)}")
    given = {name: _value(name, value) for name, value in stated.items() if value is not None}
    if given.get("resize") == "none":
        given.setdefault("interpolation", "none")
    if lacking := [name for name, field in known.items() if field.default is MISSING and name not in given]:
        raise ProtocolError(f"a protocol needs {' and '.join(map(repr, lacking))}")
    return Preprocess(**given)


def _value(name: str, value: Any) -> Any:
    """A part of a protocol in its own type."""
    try:
        if name in _TRIPLES:
            numbers = [float(number) for number in (value if isinstance(value, list | tuple) else [value])]
            return tuple(numbers * 3 if len(numbers) == 1 else numbers)
        return _NUMBERS[name](value) if name in _NUMBERS else str(value)
    except (TypeError, ValueError, OverflowError):
        what = f"one number or three, as {name}=0.5,0.4,0.3"
        if name not in _TRIPLES:
            what = "a whole number" if _NUMBERS[name] is int else "a number"
        raise ProtocolError(f"'{name}' must be {what}, got '{value}'") from None


def fed(protocol: Preprocess, rows: int, columns: int) -> str:
    """The input of a model in words, for predict and eval: `160x160: resized to 183, cropped to 160`."""
    share, of_square = _share(protocol)
    steps = [f"cut to the central {share}"] if share else []
    square = f"resized to {protocol.size}x{protocol.size}"
    words = {"none": "as they are", "squash": square, "square": f"cut to a square{of_square}, {square}"}
    steps.append(words.get(protocol.resize, f"resized to {protocol.size}"))
    if protocol.crop is not None:
        steps.append(f"cropped to {protocol.crop}")
    return f"{rows}x{columns}: {', '.join(steps)}"


def _share(protocol: Preprocess) -> tuple[str, str]:
    """What is kept before resizing in words: of rows and columns, and of the square's side."""
    if protocol.central_fraction is None:
        return "", ""
    share = f"{protocol.central_fraction:.1%}"
    return ("", f" of {share}") if protocol.resize == "square" else (share, "")


def in_words(protocol: Preprocess, crops: Literal[1, 10] = 1) -> str:
    """A protocol in words, for reports."""
    parts = [] if protocol.jpeg is None else [f"JPEGs decoded {protocol.jpeg}"]
    share, of_square = _share(protocol)
    parts += [f"central {share}"] if share else []
    square, kernel = f"{protocol.size}x{protocol.size}", protocol.resampling.name
    words = {
        "none": f"{square} as they are",
        "squash": f"{square} by {kernel}",
        "square": f"central square{of_square} {square} by {kernel}",
    }
    parts.append(words.get(protocol.resize, f"shorter side {protocol.size} by {kernel}"))
    if protocol.crop is not None:
        parts.append(f"centre {protocol.crop}" if crops == 1 else f"ten crops of {protocol.crop}")
        parts[-1] += f" rounded {ROUNDED[protocol.crop_rounding]}" if protocol.crop_rounding else ""
    scaling = protocol.channels.upper() + ("" if protocol.divide == 1 else f" / {protocol.divide:g}")
    if any(protocol.mean):
        scaling += f" - {_numbers(protocol.mean)}"
    if any(value != 1 for value in protocol.std):
        scaling = f"({scaling}) / {_numbers(protocol.std)}"
    return ", ".join([*parts, scaling])


def _numbers(values: tuple[float, ...]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
