"""Damage to a file's bytes, and to what they mean: values of JSON, fields of protobuf, members of archives,
checksums right.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from porter.files.crc32c import masked_crc32c

Damage = Callable[[bytes, Random], bytes]
_WHOLE = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    1 << 20,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
)
EXTREMES = (*_WHOLE, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, *(-number for number in _WHOLE[1:]))
_WORDS = (
    "",
    "0",
    "-1",
    "1e308",
    "nan",
    "inf",
    "null",
    "true",
    "../x",
    "/",
    "a" * 300,
    "é\u202e\x1b[31m",
    "x" * 40 + "/" * 200,
)
_TABLE_MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"


def damaged(data: bytes, random: Random) -> bytes:
    """A file with one to some faults: in what it means, in its bytes, or in both."""
    if random.random() < 0.7:
        data = _by_meaning(data, random)
        if random.random() < 0.7:
            return data
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        data = random.choice(_BYTES)(data, random)
    return data


def _by_meaning(data: bytes, random: Random) -> bytes:
    for found, damage in _KINDS:
        if found(data):
            try:
                return damage(data, random)
            except (
                ValueError,
                TypeError,
                LookupError,
                ArithmeticError,
                struct.error,
                zipfile.BadZipFile,
                OSError,
                RuntimeError,
            ):
                break  # it only looks like it, or cannot be written so
    return _numbers(data, random)


def _place(data: bytes, random: Random) -> int:
    """Most of a file is tensors, in which few faults matter: half of the places are near its beginning or its
    end.
    """
    near = random.randrange(min(len(data), 512) or 1)
    return random.choice((near, max(len(data) - 1 - near, 0), *[random.randrange(len(data) or 1)] * 2))


def _flipped(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else data


def _run(data: bytes, random: Random) -> bytes:
    at, length = _place(data, random), random.choice((1, 2, 4, 16))
    return (
        data[:at]
        + random.choice((random.randbytes(length), b"\0" * length, b"\xff" * length))
        + data[at + length :]
    )


def _cut(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] if random.random() < 0.7 else data[:at] + data[at + random.choice((1, 4, 16, 200)) :]


def _doubled(data: bytes, random: Random) -> bytes:
    at, length = _place(data, random), random.choice((1, 4, 8, 40, 400))
    return data[: at + length] + data[at : at + length] * random.choice((1, 1, 50)) + data[at + length :]


def _spliced(data: bytes, random: Random) -> bytes:
    source, at, length = _place(data, random), _place(data, random), random.choice((4, 8, 40, 400))
    return data[:at] + data[source : source + length] + data[at + length :]


def _numbers(data: bytes, random: Random) -> bytes:
    """A whole number of four, eight or two bytes at a place where one may stand."""
    width = random.choice((4, 4, 8, 2, 1))
    at = _place(data, random) // width * width
    value = random.choice(EXTREMES) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, random.choice(("little", "little", "big"))) + data[at + width :]


_BYTES: Sequence[Damage] = (_flipped, _flipped, _run, _cut, _doubled, _spliced, _numbers, _numbers)


def value(value: Any, random: Random) -> Any:
    """Plain values, as of JSON, with one of them replaced, taken away or doubled."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else list(range(len(one)))
            places += [(one, key) for key in keys]
            waiting += [one[key] for key in keys]
    if not places:
        return random.choice((value, {}, [], None, 1))
    (within, key), (other, source) = random.choice(places), random.choice(places)
    act = random.randrange(8)
    if act == 0:
        del within[key]
    elif act == 1 and isinstance(within, list):
        within[key:key] = [within[key]] * random.choice((1, 30))
    elif act == 2 and isinstance(within, dict):
        within[random.choice((*_WORDS, f"{key}_"))] = within.pop(key)
    elif act == 3 and isinstance(within[key], str):
        within[key] = _text(within[key].encode(), random).decode(errors="replace")
    elif act < 6:
        within[key] = json.loads(json.dumps(other[source]))  # a copy, because it may hold itself
    else:
        empty: tuple[Any, ...] = (
            None,
            True,
            [],
            {},
            [[]],
            {"": 0},
            [None],
            0.5,
            1e308,
            float("nan"),
            float("inf"),
            -0.0,
        )
        within[key] = random.choice((*EXTREMES, *_WORDS, *empty, "\ud800"))
    return value


def _json(data: bytes, random: Random) -> bytes:
    return json.dumps(value(json.loads(data), random)).encode()


def _text(data: bytes, random: Random) -> bytes:
    """Text with a word replaced, or a line moved, doubled or taken away."""
    text = data.decode("utf-8", "replace")
    words = list(re.finditer(r"[\w.+-]+", text))
    lines = text.splitlines(keepends=True)
    act = random.randrange(6)
    if act == 0 and lines:
        at = random.randrange(len(lines))
        lines[at : at + 1] = [lines[at]] * random.choice((0, 2, 40))
        return "".join(lines).encode()
    if act == 1 and lines:
        at, to = random.randrange(len(lines)), random.randrange(len(lines))
        lines[at], lines[to] = lines[to], lines[at]
        return "".join(lines).encode()
    if act == 2:
        at = random.randrange(len(text) + 1)
        return (text[:at] + random.choice("{}[]()<>:,=#&*!|'\"\n -?%@`\t") + text[at:]).encode()
    if not words:
        return data
    chosen, other = random.choice(words), random.choice(words)
    new = random.choice((other[0], str(random.choice(EXTREMES)), random.choice(_WORDS)))
    return (text[: chosen.start()] + new + text[chosen.end() :]).encode()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128 or shift > 63:
            return number, at


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """The fields of a message, each with its number, its wire type and its content.

    Raises:
        ValueError, IndexError: it is none.
    """
    at, found = 0, []
    while at < len(data):
        key, at = _read_varint(data, at)
        kind, length = key & 7, {1: 8, 5: 4}.get(key & 7, 0)
        if kind not in (0, 1, 2, 5) or not key >> 3:
            raise ValueError
        if kind == 0:
            content: Any
            content, at = _read_varint(data, at)
        else:
            if kind == 2:
                length, at = _read_varint(data, at)
            content, at = data[at : at + length], at + length
            if at > len(data):
                raise ValueError
        found.append((key >> 3, kind, content))
    return found


def _protobuf(data: bytes, random: Random) -> bytes:
    """A message with one of its fields, or of those within, replaced, doubled or taken away; the lengths
    around it are right.
    """
    fields = _fields(data)
    at = random.randrange(len(fields))
    number, kind, content = fields[at]
    act = random.random()
    if kind == 2 and content and act < 0.75:
        try:
            content = _protobuf(content, random)
        except (ValueError, IndexError):
            content = random.choice((_text, _numbers, _flipped, _cut))(content, random)
        fields[at] = number, kind, content
    elif act < 0.82:
        fields[at : at + 1] = [fields[at]] * random.choice((0, 0, 2, 30))
    elif act < 0.88:
        fields[at] = random.choice((number + 1, 1, random.randrange(1, 40))), kind, content
    elif act < 0.92:
        fields.insert(random.randrange(len(fields) + 1), fields.pop(at))
    elif kind == 0:
        fields[at] = number, kind, random.choice(EXTREMES) % (1 << 64)
    else:
        fields[at] = (
            number,
            kind,
            random.choice((random.randbytes(len(content)), b"\0" * len(content), b"\xff" * len(content))),
        )
    heads = ((_varint(number << 3 | kind), kind, content) for number, kind, content in fields)
    return b"".join(
        head + (_varint(content) if kind == 0 else (_varint(len(content)) if kind == 2 else b"") + content)
        for head, kind, content in heads
    )


def _zip(data: bytes, random: Random) -> bytes:
    """An archive with one of its members damaged, renamed, doubled or left out; the checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, act = random.randrange(len(members)), random.randrange(12)
    name, content = members[at]
    if act == 0:
        del members[at]
    elif act == 1:
        members.append(random.choice(members))
    elif act == 2:
        members[at] = random.choice((name + "x", members[0][0], random.choice(_WORDS) or "x")), content
    else:
        members[at] = name, damaged(content, random)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        archive._didModify = True  # type: ignore[attr-defined]  # an empty one has its end too
        for name, content in members:
            info = zipfile.ZipInfo(name or "x")
            info.compress_type = archive.compression
            archive.NameToInfo.pop(info.filename, None)  # without a warning that a name is there twice
            archive.writestr(info, content)
    return stream.getvalue()


def _safetensors(data: bytes, random: Random) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header = random.choice((_json, _json, _text))(data[8 : 8 + length], random)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _npy(data: bytes, random: Random) -> bytes:
    (length,) = struct.unpack("<H", data[8:10])
    header = _text(data[10 : 10 + length], random) if random.random() < 0.6 else data[10 : 10 + length]
    rest = data[10 + length :]
    if header == data[10 : 10 + length] and rest:
        rest = random.choice(_BYTES)(rest, random)
    return data[:8] + struct.pack("<H", len(header) & 0xFFFF) + header + rest


def _table(data: bytes, random: Random) -> bytes:
    """A table of TensorFlow's checkpoints, with bytes of a block changed and its checksum right."""
    blocks, at = list[tuple[int, int]](), len(data) - 48
    for _ in range(2):
        offset, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        blocks.append((offset, size))
    blocks += [(0, blocks[0][0] - 5)] * 3  # the entries, where one block holds them all
    offset, size = random.choice(blocks)
    block = data[offset : offset + size]
    changed = random.choice((_flipped, _numbers, _run, _spliced))(block, random)[:size].ljust(size, b"\0")
    kind = data[offset + size : offset + size + 1]
    return (
        data[:offset]
        + changed
        + kind
        + struct.pack("<I", masked_crc32c(changed + kind))
        + data[offset + size + 5 :]
    )


def _record(data: bytes, random: Random) -> bytes:
    """A TFRecord with its first record damaged, and the checksums right."""
    (size,) = struct.unpack("<Q", data[:8])
    record = _protobuf(data[12 : 12 + size], random)
    length = struct.pack("<Q", len(record))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + record
        + struct.pack("<I", masked_crc32c(record))
        + data[16 + size :]
    )


def _tar(data: bytes, random: Random) -> bytes:
    """A tar with a word of a header changed, and the header's checksum right."""
    at = 512 * random.choice(
        [
            place
            for place in range(len(data) // 512)
            if data[512 * place + 257 : 512 * place + 262] == b"ustar"
        ]
    )
    start, end = random.choice(
        ((0, 100), (100, 108), (124, 136), (156, 157), (157, 257), (257, 265), (345, 500))
    )
    words = (
        b"",
        b"0",
        b"7" * 11,
        b"\x80" + b"\xff" * 11,
        b"\xff" * 12,
        b"../x",
        b"/x",
        b"1",
        b"2",
        b"x",
        b"g",
        b"L",
        b"S",
        random.randbytes(9),
    )
    header = (
        data[at : at + start]
        + random.choice(words)[: end - start].ljust(end - start, b"\0")
        + data[at + end : at + 512]
    )
    total = sum(header[:148]) + sum(header[156:]) + 8 * 32
    return data[:at] + header[:148] + b"%06o\0 " % total + header[156:] + data[at + 512 :]


def _hdf5(data: bytes, random: Random) -> bytes:
    """An HDF5 file with an attribute, a dataset or a link changed, by HDF5 itself."""
    import h5py
    import numpy as np

    stream = io.BytesIO(data)
    with h5py.File(stream, "a") as file:
        names: list[str] = []
        file.visit(names.append)
        name = random.choice((*names, "/"))
        one, act = file[name], random.randrange(8)
        if act < 4 and one.attrs:
            key = random.choice(list(one.attrs))
            held = one.attrs[key]
            text = (
                held.encode()
                if isinstance(held, str)
                else bytes(held)
                if isinstance(held, bytes | np.bytes_)
                else b""
            )
            if act == 0:
                del one.attrs[key]
            elif text[:1] == b"{" and act < 3:
                one.attrs[key] = _json(text, random).replace(b"\\u0000", b"")
            else:
                one.attrs[key] = random.choice(
                    (np.float32(1), np.zeros((2, 3)), np.array([b"a", b"b"]), random.choice(_WORDS))
                )
        elif name == "/":
            file[random.choice(("x", "layers/x", "model_weights/x", "vars"))] = np.zeros(3, np.float32)
        elif act == 4:
            del file[name]
        elif act == 5:
            del file[name]
            link = random.choice(("/", name, "nowhere"))
            file[name] = random.choice((h5py.SoftLink(link), h5py.ExternalLink("other.h5", link), file["/"]))
        elif act == 6:
            del file[name]
            shape = random.choice(((), (0,), (3,), (1 << 40,), (2,) * 30, (1 << 20, 1 << 20)))
            kind = random.choice(("f4", "f8", "i1", "f2", "S5", h5py.string_dtype()))
            file.create_dataset(name, shape, kind, chunks=(1,) * len(shape) or None)
        else:
            file.move(name, random.choice(names) + random.choice(("x", "/0", ":0")))
    return stream.getvalue()


def _starts(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(magics)


def _is_text(data: bytes) -> bool:
    return not re.search(rb"[^\t\n\r -~\x80-\xff]", data[:4096])


_KINDS: Sequence[tuple[Callable[[bytes], bool], Damage]] = (
    (_starts(b"PK\3\4"), _zip),
    (_starts(b"\x89HDF"), _hdf5),
    (_starts(b"\x93NUMPY"), _npy),
    (lambda data: data[8:9] == b"{" and data[4:8] == b"\0" * 4, _safetensors),
    (lambda data: data.endswith(_TABLE_MAGIC), _table),
    (lambda data: data[8:12] == struct.pack("<I", masked_crc32c(data[:8])), _record),
    (lambda data: data[257:262] == b"ustar", _tar),
    (_starts(b"{", b"["), _json),
    (_is_text, _text),
    (_starts(b"\x0a", b"\x08", b"\x12"), _protobuf),
)
