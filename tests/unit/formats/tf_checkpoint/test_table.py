"""porter's reader of checkpoints: TensorFlow's values bit for bit, and nothing but FileErrors of damaged
ones.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.formats.recognition import recognise
from porter.formats.tf_checkpoint.read import open_bundle, read_tf_checkpoint
from porter.formats.tf_checkpoint.table import read_table
from tests.support.formats.tf_checkpoint.tables import block, sealed, snappy, table, varint
from tests.support.formats.tf_graph.file_graphs import tensorflow

FORMS = {"v1": (1, False), "v1-sharded": (1, True), "v2": (2, False), "v2-sharded": (2, True)}


KINDS = [
    "half",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
    "string",
    "complex64",
]
PARTS = {
    "rows": ((9100, 1), ("0,70:-", "70,8930:-", "9000,100:-")),
    "columns\xff": ((2, 300), ("-:0,100", "-:100,200")),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every type of numbers, texts, complex numbers, an empty tensor and slices, every second of them in a
    second shard.
    """
    pytest.importorskip("tensorflow")
    folder, tf, rng = tmp_path_factory.mktemp("saved"), tensorflow(), np.random.default_rng(0)
    found = {}
    for form, (version, sharded) in FORMS.items():
        prefix = found[form] = folder / form / "model.ckpt"
        prefix.parent.mkdir()
        stated = [("net/empty", "", tf.zeros((0, 3))), ("net/number", "", tf.constant(7.0))]
        for kind in KINDS if version == 1 else [*KINDS, "bfloat16", "uint32"]:
            values = rng.integers(0 if kind.startswith("u") else -100, 100, (3, 4))
            stated.append(
                (f"net/{kind}", "", tf.as_string(values) if kind == "string" else tf.cast(values, kind))
            )
        for name, (shape, slices) in PARTS.items():
            whole = rng.normal(size=shape).astype(np.float32)
            for each in slices:
                spans = [
                    None if part == "-" else [int(number) for number in part.split(",")]
                    for part in each.split(":")
                ]
                place = tuple(slice(None) if span is None else slice(span[0], sum(span)) for span in spans)
                stated.append(
                    (f"net/{name}", f"{' '.join(map(str, shape))} {each}", tf.constant(whole[place]))
                )
        shards = [stated[::2], stated[1::2]] if sharded else [stated]
        files = [
            f"{prefix}-{place:05}-of-{len(shards):05}" if sharded else str(prefix)
            for place in range(len(shards))
        ]
        for file, shard in zip(files, shards, strict=True):
            names, places, data = map(list, zip(*shard, strict=True))
            if version == 1:
                tf.raw_ops.SaveSlices(filename=file, tensor_names=names, shapes_and_slices=places, data=data)
            else:
                tf.raw_ops.SaveV2(prefix=file, tensor_names=names, shape_and_slices=places, tensors=data)
        if version == 2 and sharded:
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=files, destination_prefix=str(prefix))
    return found


def expect_tensorflows(path: Path) -> Mapping[str, Any]:
    """TensorFlow's op that restores gives the same; its CheckpointReader lacks some types of version 1."""
    tf, bundle = tensorflow(), open_bundle(path)
    found = bundle.read(bundle.tensors)
    shapes = tf.train.load_checkpoint(bundle.files.prefix).get_variable_to_shape_map()
    assert {*found, *bundle.others} == set(shapes)
    for name, array in found.items():
        (wanted,) = tf.raw_ops.RestoreV2(
            prefix=bundle.files.prefix, tensor_names=[name], shape_and_slices=[""], dtypes=[array.dtype]
        )
        assert array.dtype == wanted.numpy().dtype and array.shape == wanted.shape
        assert array.tobytes() == wanted.numpy().tobytes(), name
    return found


@pytest.mark.parametrize("form", FORMS)
def test_values_are_tensorflows_bit_for_bit(saved: dict[str, Path], form: str) -> None:
    found = expect_tensorflows(saved[form])
    assert len(found) == (13 if form.startswith("v1") else 15) and found["net/rows"].shape == (9100, 1)
    assert set(open_bundle(saved[form]).others) == {"net/string", "net/complex64"}
    assert (
        len(open_bundle(saved[form]).files.files)
        == {"v1": 1, "v1-sharded": 2, "v2": 2, "v2-sharded": 3}[form]
    )


def test_an_index_that_is_compressed(saved: dict[str, Path], tmp_path: Path) -> None:
    """TensorFlow 1 wrote the index of several shards by Snappy; TensorFlow reads what this test writes."""
    for file in saved["v2-sharded"].parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    index = tmp_path / "model.ckpt.index"
    entries = [(key, bytes(value)) for key, value in read_table(memoryview(index.read_bytes()))]
    packed = table(entries, compressed=True)
    assert len(packed) < len(table(entries)) - 99
    index.write_bytes(packed)
    assert recognise(index).name == "tf-checkpoint-v2"
    expect_tensorflows(index)


def test_no_framework_is_imported(saved: dict[str, Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from porter.formats.reading import read_checkpoint\n"
        "for path in sys.argv[1:]: read_checkpoint(Path(path))\n"
        "print(*{'torch', 'tensorflow', 'keras', 'google.protobuf'} & sys.modules.keys())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, saved.values())], capture_output=True, text=True, check=True
    )
    assert (ran.stdout.strip(), ran.stderr) == ("", "")


def entry(key: bytes = b"w", shape: tuple[int, ...] = (2,), size: int = 8) -> tuple[bytes, bytes]:
    """A float32 of the first shard, with no checksum."""
    axes = b"".join(
        b"\x12" + varint(len(axis)) + axis for axis in (b"\x08" + varint(length) for length in shape)
    )
    return key, b"\x08\x01\x12" + varint(len(axes)) + axes + b"\x28" + varint(size)


HEADER = (b"", b"\x08\x01")
LONG = b"a" * 100_000
DAMAGED = {
    "declares 8589934592 bytes of tensors, its data files hold 8": table([HEADER, entry(shape=(1 << 31,))]),
    "it ends behind its data file": table([HEADER, entry(size=16)]),
    "it has 4 bytes, expected 8": table([HEADER, entry(size=4)]),
    "its checksum is wrong": table([HEADER, entry()]),
    "its index is of 2 data files, and 1 are there": table([(b"", b"\x08\x02"), entry()]),
    "its keys are in no order": table([HEADER, entry(b"b"), entry(b"a")]),
    "more than 65536 entries, or more than 67108864 bytes of keys": table(
        [HEADER, *((LONG + bytes([place >> 8, place & 255]), b"") for place in range(1000))]
    ),
    "a tensor has 33 axes, more than 32": table([HEADER, entry(shape=(1,) * 33)]),
    "its tensors have more than 65536 slices": table(
        [HEADER, *((key, entry()[1] + b"\x3a\x02\x0a\0" * 40_000) for key in (b"a", b"b"))]
    ),
    "a compressed block copies what is before it": table([HEADER, entry()], packed=b"\x08\x01\x05"),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_damage_is_named(tmp_path: Path, message: str) -> None:
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(8))
    (tmp_path / "m.index").write_bytes(sealed(DAMAGED[message]))
    with pytest.raises(FileError, match=message):
        read_tf_checkpoint(tmp_path / "m")


@pytest.mark.parametrize("form", ["v1", "v2-sharded"])
@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.full)])
def test_damaged_tables_give_one_error(saved: dict[str, Path], tmp_path: Path, form: str, count: int) -> None:
    """Their checksums are right, so that damage reaches the parsers; TensorFlow's reader aborts at some."""
    files = {
        file.name: file.read_bytes()
        for file in saved[form].parent.iterdir()
        if file.suffix not in (".meta", "")
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    name = "model.ckpt.index" if form == "v2-sharded" else "model.ckpt"
    whole, draws, refusals = (saved[form].parent / name).read_bytes(), random.Random(1), 0
    entries = [(key, bytes(value)) for key, value in read_table(memoryview(whole))]
    for turn in range(count):
        if turn % 2:
            damaged = sealed(_damaged(whole, draws))
        else:
            place = draws.randrange(len(entries))
            key, value = entries[place]
            damaged = table(
                [*entries[:place], (key, _damaged(value, draws)), *entries[place + 1 :]], turn % 4 == 0
            )
        (tmp_path / name).write_bytes(damaged)
        try:
            read_tf_checkpoint(tmp_path / "model.ckpt")
        except FileError as error:
            refusals += 1
            assert "\n" not in str(error)
    assert refusals > count // 2


def _damaged(data: bytes, draws: random.Random) -> bytes:
    """With one to three changes: a bit, a byte, a piece that is gone, doubled or of other bytes."""
    found = bytearray(data)
    for _ in range(draws.randrange(1, 4)):
        place, length = draws.randrange(len(found) + 1), draws.randrange(1, 9)
        piece = found[place : place + length]
        change = draws.randrange(5)
        if change == 0 and piece:
            found[place] ^= 1 << draws.randrange(8)
        elif change == 1 and piece:
            found[place] = draws.choice((0, 1, 127, 128, 255))
        else:
            found[place : place + length] = (b"", piece * 2, draws.randbytes(length))[change - 2]
    return bytes(found)


def test_what_snappy_packs() -> None:
    """Copies of every kind and literals of every length, by the test's own packing."""
    from porter.formats.tf_checkpoint.snappy import unpack

    draws = random.Random(0)
    words = b"".join(draws.choice((b"layer/", b"kernel")) for _ in range(999))
    for text in (b"", b"abc", b"ab" * 500, draws.randbytes(3000), words):
        assert unpack(snappy(text)) == text
    # A literal whose length has a byte of its own.
    assert unpack(varint(70) + bytes([60 << 2, 69]) + bytes(70)) == bytes(70)
    assert block([(b"k", b"v")])
