"""numpy's .npz: TensorNets' pair of names and values, plain archives, and archives that lie."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.formats.npz.unpickling import unpickle_arrays
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.support.arrays import Array

NAMES = ["net/conv1/weights:0", "net/conv1/bn/gamma:0", "net/steps:0"]
VALUES = [
    np.arange(54, dtype=np.float32).reshape(3, 3, 3, 2),
    np.array([1.5, -2.0], ">f8"),
    np.array(7, np.int64),
]


def objects(values: list[Any]) -> Array:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def npy(array: Array, protocol: int | None = None) -> bytes:
    """A .npy as numpy.save writes it, with a pickle of the protocol asked for in place of numpy's own."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    if protocol is None:
        return stream.getvalue()
    return stream.getvalue().split(b"\n", 1)[0] + b"\n" + pickle.dumps(array, protocol)


def write(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def pair(path: Path, stream: bytes, count: int = 3) -> Path:
    """Names beside a pickle that someone else made."""
    names = np.array([f"v{place}:0" for place in range(count)])
    header = npy(objects([np.zeros(1)] * count)).split(b"\n", 1)[0] + b"\n"
    return write(path, {"names": npy(names), "values": header + stream})


def refusal(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_tensornets_saves(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "net.npz", names=NAMES, values=objects(VALUES))
    found = read_checkpoint(tmp_path / "net.npz")
    assert (found.format, found.dialect) == ("npz", "tf")
    assert list(found.tensors) == ["net/conv1/weights", "net/conv1/bn/gamma", "net/steps"]
    for array, expected in zip(found.tensors.values(), VALUES, strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype.newbyteorder("=") and array.dtype.isnative
        assert array.flags.writeable and array.flags.aligned


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize(
    "names", [np.array(NAMES), np.array(NAMES).astype("S"), np.array(NAMES).astype(">U40")]
)
def test_every_protocol_and_kind_of_name(tmp_path: Path, protocol: int, names: Array) -> None:
    values = [VALUES[0].T, *VALUES[1:]]  # in Fortran's order
    path = write(tmp_path / "net.npz", {"names": npy(names), "values": npy(objects(values), protocol)})
    found = read_checkpoint(path).tensors
    assert list(found) == [name.removesuffix(":0") for name in NAMES]
    for array, expected in zip(found.values(), values, strict=True):
        np.testing.assert_array_equal(array, expected)


def python2(arrays: list[Array]) -> bytes:
    """The pickle of protocol 2 that Python 2's cPickle writes: its strings are bytes, and shapes may be
    long.
    """

    def text(value: bytes) -> bytes:
        return (
            b"U" + bytes([len(value)]) + value
            if len(value) < 256
            else b"T" + struct.pack("<i", len(value)) + value
        )

    def array(shape: tuple[int, ...], code: bytes, order: bytes, content: bytes) -> bytes:
        made = (
            b"cnumpy.core.multiarray\n_reconstruct\n"
            + b"cnumpy\nndarray\n"
            + b"K\x00\x85"
            + text(b"b")
            + b"\x87R"
        )
        dtype = b"cnumpy\ndtype\n" + text(code) + b"K\x00K\x01\x87R"
        state = (
            b"(K\x03"
            + text(order)
            + b"NNN"
            + b"J\xff\xff\xff\xff" * 2
            + b"K"
            + bytes([63 * (code == b"O8")])
            + b"tb"
        )
        axes = b"(" + b"".join(b"\x8a\x01" + bytes([axis]) for axis in shape) + b"t"
        return made + b"(K\x01" + axes + dtype + state + b"\x89" + content + b"tb"

    inner = b"".join(
        array(each.shape, each.dtype.str[1:].encode(), b"<", text(each.tobytes())) for each in arrays
    )
    return b"\x80\x02" + array((len(arrays),), b"O8", b"|", b"](" + inner + b"e") + b"."


def test_python_2(tmp_path: Path) -> None:
    arrays = [VALUES[0], VALUES[0].astype("f2")]
    assert [array.tolist() for array in pickle.loads(python2(arrays), encoding="bytes")] == [
        array.tolist() for array in arrays
    ]
    header = npy(objects(arrays)).replace(b"(2,), } ", b"(2L,), }")
    path = write(
        tmp_path / "net.npz",
        {
            "names": npy(np.array([b"a:0", b"b:0"])),
            "values": header.split(b"\n", 1)[0] + b"\n" + python2(arrays),
        },
    )
    found = read_checkpoint(path).tensors
    for name, expected in zip("ab", arrays, strict=True):
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype


def test_variables_of_one_shape(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", names=["a:0", "b:0"], values=[np.zeros(3), np.ones(3)])
    found = read_checkpoint(tmp_path / "net.npz").tensors
    assert {name: array.tolist() for name, array in found.items()} == {"a": [0, 0, 0], "b": [1, 1, 1]}


def test_plain_archives(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as stream:
        np.savez(
            stream,
            allow_pickle=False,
            **{"layer1/conv/kernel": VALUES[0], "bias": VALUES[1], "arch": np.array("resnet")},
        )
    assert recognise(path).name == "npz"
    found = read_checkpoint(path)
    assert (found.format, found.dialect) == ("npz", None)
    assert list(found.tensors) == ["layer1/conv/kernel", "bias"] and "arch" in found.notes[0]
    np.testing.assert_array_equal(found.tensors["layer1/conv/kernel"], VALUES[0])


class Calls:
    """Pickled as a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self._call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Calls(os.system, "touch ran"), "system"),
        (Calls(eval, "open('ran', 'w')"), "eval"),
        (Calls(np.load, "x", None, True), "load"),
        (Calls(np.zeros, (10**9,)), "zeros"),
        (Calls(getattr, "numpy", "ndarray"), "getattr"),
    ],
)
def test_nothing_but_arrays_is_made(
    value: Calls, named: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = refusal(pair(tmp_path / "net.npz", pickle.dumps([value], protocol), 1))
    assert re.search(rf"the file pickles '[a-z_.]*\.{named}'", found)
    assert not (tmp_path / "ran").exists()


def test_the_calls_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Calls(os.system, "touch ran")))
    assert (tmp_path / "ran").exists()


def declaring(shape: bytes, code: bytes = b"f4", content: bytes = b"C\x04abcd") -> bytes:
    """A list of one array as protocol 3 pickles it, with a shape (pickled), a type and a content of one's
    own.
    """
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    dtype = (
        b"cnumpy\ndtype\nX"
        + struct.pack("<i", len(code))
        + code
        + b"\x89\x88\x87R(K\x03X\x01\x00\x00\x00<NNNK\x00K\x00K\x00tb"
    )
    state = b"(K\x01" + shape + dtype + b"\x89" + content + b"tb"
    outer = b"cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R"
    return b"\x80\x03" + made + b"(K\x01K\x01\x85" + outer + b"\x89](" + made + state + b"etb."


def test_the_pickle_that_the_lies_are_made_of() -> None:
    (array,) = unpickle_arrays(declaring(b"K\x01\x85"), 4, "here")
    assert array.tobytes() == b"abcd" and array.shape == (1,)


def tripled(depth: int) -> bytes:
    """A pickled tuple of three times one of three times one of …, 3 to the power of `depth` characters when
    written out.
    """
    return b")" + b"".join(b"q%ch%ch%c\x87" % (place, place, place) for place in range(depth))


HUGE = b"\x8a\x08" + (2**62).to_bytes(8, "little")
DEEP = 100_000
LIES = {
    "a huge shape": (
        declaring(HUGE + b"\x85"),
        "declares 4611686018427387904 of float32, and its data has 4 bytes",
    ),
    "a shape beyond counting": (
        declaring(HUGE + b"K\x00" + b"\x86", content=b"C\x00"),
        "of float32, and its data has 0 bytes",
    ),
    "a negative shape": (declaring(b"J\xff\xff\xff\xff\x85"), "declares -1"),
    "a shape of text": (declaring(b"X\x01\x00\x00\x001\x85"), "no shape"),
    "too many axes": (declaring(b"(" + b"K\x01" * 1000 + b"t"), "its data has 4 bytes"),
    "no shape": (declaring(b"N"), "no shape"),
    "no bytes": (declaring(b"K\x01\x85", content=b"]"), "no bytes"),
    "objects in objects": (declaring(b"K\x01\x85", b"O8", b"](Ne"), "got one of '<O8'"),
    "a number of one byte": (declaring(b"K\x01\x85", b"f1"), "got one of '<f1'"),
    "text": (declaring(b"K\x01\x85", b"U1"), "got one of '<U1'"),
    "a shape of tuples without end": (declaring(tripled(40) + b"\x85"), "no shape"),
    "a type of tuples without end": (
        b"\x80\x03cnumpy\ndtype\n" + tripled(40) + b"\x85R.",
        "expected text, got tuple",
    ),
    "an order of tuples without end": (
        b"\x80\x03cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85RK\x03" + tripled(40) + b"\x86b.",
        "expected text, got tuple",
    ),
    "one array many times over": (
        declaring(
            struct.pack("<cI", b"J", 1 << 18) + b"\x85",
            content=struct.pack("<cI", b"B", 1 << 20) + bytes(1 << 20),
        )
        .replace(b"etb.", b"q\x00" + b"h\x00" * 249 + b"etb.")
        .replace(b"K\x01K\x01\x85", b"K\x01K\xfa\x85", 1),
        "unpacks to 262144000 bytes",
    ),
    "a structured type": (declaring(b"K\x01\x85", b"V4"), "got one of '<V4'"),
    "a type that numpy would parse": (declaring(b"K\x01\x85", b"f4,O"), "got one of '<f4,O'"),
    "no array": (b"\x80\x03](K\x01K\x02e.", "expected a pickled list of arrays"),
    "numbers in the list": (
        declaring(b"K\x01\x85")
        .replace(b"etb.", b"K\x01etb.")
        .replace(b"K\x01K\x01\x85", b"K\x01K\x02\x85", 1),
        "got int",
    ),
    "a dictionary": (b"\x80\x03}.", "expected a pickled list of arrays"),
    "an extension": (b"\x80\x03\x82\x01.", "no opcode 0x82"),
    "an object elsewhere": (b"\x80\x03K\x01Q.", "refers to objects outside of it"),
    "the old way to call": (b"(S'touch ran'\nios\nsystem\n.", "no opcode 0x53"),
    "a memo of 32 GB": (b"\x80\x03K\x01r\xff\xff\xff\xff.", "expected a pickled list of arrays"),
    "bytes that are not there": (
        b"\x80\x03\x8e" + (2**62).to_bytes(8, "little") + b"ab.",
        "cut short or damaged",
    ),
    "a frame that is not there": (
        b"\x80\x04\x95" + (2**62).to_bytes(8, "little") + b"].",
        "expected a pickled list of arrays",
    ),
    "an empty stack": (b"\x80\x03R.", "cut short or damaged"),
    "no end": (declaring(b"K\x01\x85")[:-1], "cut short or damaged"),
    "lists nested deep": (
        b"\x80\x03" + b"](" * DEEP + b"e" * DEEP + b".",
        "expected a pickled list of arrays",
    ),
    "tuples nested deep": (b"\x80\x03)" + b"\x85" * DEEP + b".", "expected a pickled list of arrays"),
    "two million lists": (b"\x80\x03](" + b"]" * (2 << 20) + b"e.", "more memory"),
    "text encoded again and again": (
        b"\x80\x03c_codecs\nencode\nq\x00X\xe8\x03\x00\x00"
        + b"x" * 1000
        + b"X\x06\x00\x00\x00latin1\x86q\x01]("
        + b"h\x00h\x01R" * 9
        + b"e.",
        "more text than it holds",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies(lie: str, tmp_path: Path) -> None:
    stream, expected = LIES[lie]
    assert expected in refusal(pair(tmp_path / "net.npz", stream, 1))


def test_names_and_values_that_do_not_pair(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    np.savez(path, names=NAMES[:2], values=objects(VALUES))
    assert "2 different names and 3 arrays" in refusal(path)
    np.savez(path, names=[*NAMES[:2], NAMES[0]], values=objects(VALUES))
    assert "2 different names" in refusal(path)
    np.savez(path, names=np.arange(3), values=objects(VALUES))
    assert "list of names" in refusal(path)
    np.savez(path, names=["a", "b", "half \ud800"], values=objects(VALUES))
    assert "not text" in refusal(path)


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HEADERS = {
    "huge": header("(1000000, 1000000)") + bytes(8),
    "names without end": header("(1000000000000,)", "'|S0'"),
    "cut": header("(2,)") + bytes(7),
    "negative": header("(-2,)") + bytes(8),
    "no literal": header("__import__('os').system('touch ran')") + bytes(8),
    "deep": header("(" * 3000 + ")" * 3000) + bytes(8),
    "empty": b"",
    "version": b"\x93NUMPY\x09\x00" + bytes(100),
    "no type": header("(2,)", "'<q9'") + bytes(8),
    "a type of nothing": header("(2,)", "()") + bytes(8),
    "no end of a tuple": header("((2,") + bytes(8),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("member", ["names", "values", "layer/kernel"])
def test_headers_that_lie(name: str, member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    others = {"names": npy(np.array(["a"])), "values": npy(objects([VALUES[0]]))} if "/" not in member else {}
    refusal(write(tmp_path / "net.npz", others | {member: HEADERS[name]}))
    assert not (tmp_path / "ran").exists()


def test_objects_in_a_plain_archive_are_not_read(tmp_path: Path) -> None:
    write(
        tmp_path / "net.npz",
        {"weight": npy(VALUES[0]), "config": npy(objects([Calls(os.system, "touch ran")]))},
    )
    found = read_checkpoint(tmp_path / "net.npz")
    assert list(found.tensors) == ["weight"] and "config" in found.notes[0]


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = write(tmp_path / "net.npz", {"a": header(f"({1 << 25},)") + bytes(1 << 27)}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    assert "declares" in refusal(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_odd_archives(tmp_path: Path) -> None:
    path = write(tmp_path / "net.npz", {"a": npy(VALUES[0])}, zipfile.ZIP_BZIP2)
    assert "neither stored nor deflated" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy(VALUES[0]))
        archive.writestr("a.npy", npy(VALUES[1]))
    assert "two members of this archive are called 'a.npy'" in refusal(path)
