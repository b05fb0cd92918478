"""TFRecord files of tf.train.Example, read in place and without TensorFlow.

A record is its length in eight bytes, the checksum of these, the payload and its checksum
(porter.files.crc32c). The payload is a protobuf message, of which only the features that are asked for are
read; a photo in it stays where it is until it is decoded.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from porter.base.errors import FileError
from porter.data.table_files import MAX_NAME, MAX_ROWS
from porter.files.crc32c import masked_crc32c

_HEADER, _CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
_MAX_FEATURES = 256
# Numbers of fields in tensorflow/core/example: of the lists in a Feature, of an entry of a map, and 1 for the
# only field of Example, Features, BytesList and Int64List.
_BYTES_LIST, _INT64_LIST = 1, 3
_KEY, _VALUE = 1, 2
_ONLY_FIELD = 1
# Protobuf's wire types: how the content of a field is stored.
_VARINT, _DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}

FeatureValue = bytes | int


class Span(NamedTuple):
    """Bytes `start` to `end` of the file, such as a record's payload."""

    start: int
    end: int


class Example(NamedTuple):
    """Features of a record.

    Attributes:
        values: the first text or number of each that was asked for and is there.
        photo: where the photo is in the file, as `start` and `end`; None if there is none.
    """

    values: dict[str, FeatureValue]
    photo: Span | None


class _BrokenMessage(Exception):
    """A message is not encoded as protobuf. Its text says where."""


def is_tfrecord(path: Path) -> bool:
    """Return whether the content of a file is a TFRecord's, by the checksum of the first record's length."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return False
    checksum: int = _HEADER.unpack(header)[1]
    return masked_crc32c(header[:8]) == checksum


def iterate_records(file: io.BufferedReader, path: Path) -> Iterator[Span]:
    """Yield the records of a file, in their order. Their lengths are checked, not their payloads.

    Raises:
        FileError: a length is not that of its checksum or goes beyond the file, the file is cut off, or it
            has too many records.
    """
    size = file.seek(0, 2)
    start = 0
    for number in range(MAX_ROWS):
        if start == size:
            return
        file.seek(start)
        head = file.read(_HEADER.size)
        where, advice = f"{path}: record {number}", "check that the file is complete"
        if len(head) < _HEADER.size:
            raise FileError(f"the file is cut off after {size:,} bytes", where=where, next=advice)
        length, checksum = _HEADER.unpack(head)
        if masked_crc32c(head[:8]) != checksum:
            raise FileError(
                f"byte {start:,} is not the beginning of a record: its checksum is wrong",
                where=where,
                next=advice,
            )
        remaining = size - start - _HEADER.size - _CHECKSUM.size
        if length > remaining:
            raise FileError(
                f"expected a record of {length:,} bytes, got the {max(remaining, 0):,} that are left of "
                "the file",
                where=where,
                next=advice,
            )
        start += _HEADER.size
        yield Span(start, start + length)
        start += length + _CHECKSUM.size
    raise FileError(f"more than {MAX_ROWS:,} records in one file", where=path, next="split it into shards")


def expect_whole(payload: bytes, stored: bytes, path: Path) -> None:
    """Expect that a payload has the checksum that is stored after it.

    Raises:
        FileError: it has another one.
    """
    if len(stored) < _CHECKSUM.size or masked_crc32c(payload) != _CHECKSUM.unpack(stored)[0]:
        raise FileError("the checksum of its record is wrong: the file is damaged", where=path)


def read_example(
    file: BinaryIO, record: Span, photos: Collection[str], wanted: Collection[str]
) -> Example | str:
    """Return the features of a record that are asked for; if it is no tf.train.Example, return why in words.

    Args:
        photos: the names that the photo's feature may have.
        wanted: the names of features of texts and numbers.
    """
    values: dict[str, FeatureValue] = {}
    photo = None
    try:
        for count, entry in enumerate(_feature_entries(file, record)):
            if count == _MAX_FEATURES:
                return f"more than {_MAX_FEATURES} features"
            name, feature = _read_entry(file, entry)
            if feature is None:
                continue
            if name in photos:
                photo = _first_bytes(file, feature) or photo
            elif name in wanted and (value := _first_value(file, feature)) is not None:
                values[name] = value
    except _BrokenMessage as error:
        return f"it is no tf.train.Example: {error}"
    return Example(values, photo)


def _feature_entries(file: BinaryIO, record: Span) -> Iterator[Span]:
    """Yield the entries of the map Example.features.feature, each a message of a key and its feature. Both
    levels of the nested messages have one field only; fields of other numbers are skipped.
    """
    for number, features in _fields(file, record):
        if number == _ONLY_FIELD and isinstance(features, Span):
            yield from (
                entry
                for inner_number, entry in _fields(file, features)
                if inner_number == _ONLY_FIELD and isinstance(entry, Span)
            )


def _read_entry(file: BinaryIO, entry: Span) -> tuple[str, Span | None]:
    """Return the name and the feature of an entry of tf.train.Features; None for an entry without a
    feature.
    """
    name, feature = "", None
    for number, value in _fields(file, entry):
        if number == _KEY and isinstance(value, Span):
            name = _read_text(file, value).decode("utf-8", "replace")
        elif number == _VALUE and isinstance(value, Span):
            feature = value
    return name, feature


def _first_bytes(file: BinaryIO, feature: Span) -> Span | None:
    """Return where the first bytes of a feature are in the file, such as an encoded photo; None if it has
    none.
    """
    for kind, values in _fields(file, feature):
        if kind == _BYTES_LIST and isinstance(values, Span):
            for number, value in _fields(file, values):
                if number == _ONLY_FIELD and isinstance(value, Span):
                    return value
            return None
    return None


def _first_value(file: BinaryIO, feature: Span) -> FeatureValue | None:
    """Return the first text or number of a feature (a message with a list of bytes, of numbers or of floats);
    None if it has neither.
    """
    for kind, values in _fields(file, feature):
        if not isinstance(values, Span):
            continue
        first = next((value for number, value in _fields(file, values) if number == _ONLY_FIELD), None)
        if kind == _BYTES_LIST and isinstance(first, Span):
            return _read_text(file, first)
        if kind == _INT64_LIST and first is not None:
            # A list of numbers is stored as a field each, or packed into one field of bytes.
            integer = first if isinstance(first, int) else _varint(file, first.start, first.end)[0]
            return integer - (1 << 64) if integer >> 63 else integer  # int64 is stored in two's complement
    return None


def _read_text(file: BinaryIO, record: Span) -> bytes:
    """Return the bytes of a short text, such as a label or the name of a feature.

    Raises:
        _BrokenMessage: it is longer than MAX_NAME.
    """
    if record.end - record.start > MAX_NAME:
        raise _BrokenMessage(f"a text of {record.end - record.start:,} bytes")
    file.seek(record.start)
    return file.read(record.end - record.start)


def _fields(file: BinaryIO, message: Span) -> Iterator[tuple[int, int | Span]]:
    """Yield the fields of a message: the number of each, and its value, which is a number, or the place of
    the bytes of a text or an inner message. Fields of a fixed size are skipped.

    Raises:
        _BrokenMessage: a field goes beyond the message, or is of an unknown type.
    """
    at, end = message
    while at < end:
        tag, at = _varint(file, at, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _varint(file, at, end)
            yield number, value
            continue
        if wire_type == _DELIMITED:
            length, at = _varint(file, at, end)
        else:
            length = _FIXED_BYTES.get(wire_type, -1)
        if not 0 <= length <= end - at:
            raise _BrokenMessage(f"byte {at:,} begins a field that does not end within it")
        if wire_type == _DELIMITED:
            yield number, Span(at, at + length)
        at += length


def _varint(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and where it ends.

    Args:
        at: the byte where the number begins.
        end: the byte where its message ends.
    """
    file.seek(at)
    value = 0
    for index, byte in enumerate(file.read(min(10, end - at))):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            # bits beyond 64 are dropped, as protobuf does
            return value & (1 << 64) - 1, at + index + 1
    raise _BrokenMessage(f"byte {at:,} begins no number")
