"""A protocol as people state it, and in words for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from porter.base.errors import FileError, UsageError
from porter.base.name_tables import JsonObject
from porter.base.options import PREPROCESS, AnyPath
from porter.base.package import page
from porter.data.preprocess import Preprocess, ProtocolError
from porter.files import expect_plain

MAX_BYTES = 1 << 16

_NUMBER_TYPES = {"size": int, "crop": int, "central_fraction": float, "divide": float}
_TRIPLES = ("mean", "std")


def read_preprocess(given: AnyPath | JsonObject) -> Preprocess:
    """Return a protocol that a user states: as port.json has it, as its JSON, as a file of either, or as
    `resize=squash,size=96,interpolation=tf_bilinear,divide=127.5,mean=1`. A mean or a std is one number or
    three.

    Raises:
        UsageError: it states no protocol.
        FileError: a file cannot be read.
    """
    protocol = given if isinstance(given, Mapping) else _parse_text(given)
    try:
        return _make_protocol(protocol)
    except ProtocolError as error:
        raise UsageError(error.message, where=PREPROCESS, next=_how_to_state()) from None


def _how_to_state() -> str:
    """Return the advice how to state a protocol."""
    return (
        f"write it as {example_protocol(224, 'pil_bilinear')}, or as port.json has it; "
        f"{page('protocols.md')} has all words"
    )


def example_protocol(size: int, interpolation: str, scaling: str = ",divide=255") -> str:
    """Return a protocol to type, for squares of `size`."""
    return PREPROCESS(f"resize=squash,size={size},interpolation={interpolation}{scaling}")


def protocol_text(protocol: Preprocess) -> str:
    """Return a protocol as a text that `read_preprocess` reads: `name=value` pairs without the defaults."""
    values = [(field, getattr(protocol, field.name)) for field in fields(protocol)]
    return ",".join(f"{field.name}={_value_text(value)}" for field, value in values if value != field.default)


def _value_text(value: Any) -> str:
    """Return a value of a protocol as its text has it: `0.5` for three equal numbers, `0.5,0.5,0.4` for
    others.
    """
    if isinstance(value, tuple):
        numbers = value if len(set(value)) > 1 else value[:1]
        return ",".join(map(_value_text, numbers))
    # the short form, where it is the same number
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _parse_text(given: AnyPath) -> dict[str, Any]:
    """Return the protocol that a text states: JSON, the path of a file of either form, or `name=value` pairs.

    Raises:
        UsageError: the text is neither a file nor a protocol, or its JSON is wrong.
        FileError: the file is too large.
    """
    text = str(given)
    # A text with "=" is read as pairs, unless a file has that name.
    if not text.lstrip().startswith("{") and ("=" not in text or _is_there(text)):
        path = Path(text)
        if not _is_there(text):
            raise UsageError(f"'{text}' is no file and no protocol", where=PREPROCESS, next=_how_to_state())
        expect_plain(path)
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"a protocol has at most {MAX_BYTES:,} bytes", where=text)
        text = path.read_text(encoding="utf-8-sig", errors="replace").strip()
    if not text.lstrip().startswith("{"):
        return dict(_parse_pairs(text))
    try:
        parsed: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is no JSON: {error}", where=PREPROCESS, next=_how_to_state()) from None
    return parsed


def _is_there(text: str) -> bool:
    """Return whether a text is the path of something that exists."""
    try:
        return bool(text.strip()) and Path(text).exists()
    except (OSError, ValueError):  # longer than a file's name may be
        return False


def _parse_pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of `mean=0.5,0.5,0.4,std=1`. A part without a name belongs to the name
    before it, and three numbers may stand in brackets.
    """
    values: dict[str, list[str]] = {}
    name = ""
    for part in text.replace("\n", ",").split(","):
        before, equals, value = part.rpartition("=")
        name = before.strip() if equals else name
        values.setdefault(name, []).append(value.strip())
    for name, parts in values.items():
        if name in _TRIPLES:
            yield name, list(filter(None, (part.strip("[]() ") for part in parts)))
        else:
            yield name, ",".join(parts)


def _make_protocol(mapping: JsonObject) -> Preprocess:
    """Return the protocol that a mapping states, whose keys are those of Preprocess."""
    known = {field.name: field for field in fields(Preprocess)}
    if unknown := [name for name in mapping if name not in known]:
        raise ProtocolError(f"a protocol has no '{unknown[0]}'; its parts are {', '.join(known)}")
    values = {name: _convert_value(name, value) for name, value in mapping.items() if value is not None}
    if values.get("resize") == "none":
        values.setdefault("interpolation", "none")
    if lacking := [name for name, field in known.items() if field.default is MISSING and name not in values]:
        raise ProtocolError(f"a protocol needs {' and '.join(map(repr, lacking))}")
    return Preprocess(**values)


def _convert_value(name: str, value: Any) -> Any:
    """Return a part of a protocol in its own type; one number for all channels as three.

    Raises:
        ProtocolError: it is not of that type.
    """
    try:
        if name in _TRIPLES:
            numbers = [float(number) for number in (value if isinstance(value, list | tuple) else [value])]
            return tuple(numbers * 3 if len(numbers) == 1 else numbers)
        return _NUMBER_TYPES[name](value) if name in _NUMBER_TYPES else str(value)
    except (TypeError, ValueError, OverflowError):
        if name in _TRIPLES:
            expected = f"one number or three, as {name}=0.5,0.4,0.3"
        else:
            expected = "a whole number" if _NUMBER_TYPES[name] is int else "a number"
        raise ProtocolError(f"'{name}' must be {expected}, got '{value}'") from None
