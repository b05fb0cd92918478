"""TFRecord shards that TensorFlow wrote, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import FileError
from porter.data.classes import Classes
from porter.data.labels import Labels
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Bytes, Failure
from porter.files.crc32c import masked_crc32c
from porter.formats.tensorflow import import_tensorflow
from tests.support.data.layouts.making import WNIDS, opened

pytest.importorskip("tensorflow")
Features = Mapping[str, bytes | int]


def framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + payload
        + struct.pack("<I", masked_crc32c(payload))
    )


def example(features: Features) -> bytes:
    train: Any = import_tensorflow().train

    def feature(value: bytes | int) -> Any:
        if isinstance(value, int):
            return train.Feature(int64_list=train.Int64List(value=[value]))
        return train.Feature(bytes_list=train.BytesList(value=[value]))

    made = train.Features(feature={name: feature(value) for name, value in features.items()})
    return bytes(train.Example(features=made).SerializeToString())


def shard(path: Path, rows: Sequence[Features]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with import_tensorflow().io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(example(row))
    return path


def slim(number: int, label: int, **more: bytes) -> Features:
    name = f"ILSVRC2012_val_{number:08}.JPEG".encode()
    own: Features = {
        "image/encoded": b"photo %d" % number,
        "image/class/label": label,
        "image/filename": name,
        "image/width": 5,
    }
    return {**own, **{f"image/{key}": value for key, value in more.items()}}


def seen(found: Any) -> list[tuple[bytes, int]]:
    return [(read_bytes(photo.place), photo.labels[0]) for photo in found.photos]


def test_slims_shards_count_from_one(tmp_path: Path) -> None:
    shard(tmp_path / "train-00000-of-00001", [slim(9, 9)])
    shard(tmp_path / "validation-00000-of-00002", [slim(1, 1), slim(2, 1000)])
    shard(tmp_path / "validation-00001-of-00002", [slim(3, 500)])
    found = opened(tmp_path)
    assert (found.layout, found.failed) == ("TFRecord", ())
    assert seen(found) == [(b"photo 1", 0), (b"photo 2", 999), (b"photo 3", 499)]
    assert found.photos[2].name == "validation-00001-of-00002#0"
    (one,) = opened(tmp_path / "train-00000-of-00001").photos
    assert one.labels == (8,)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([slim(1, 7, **{"class/synset": WNIDS[3].encode()})], [3]),
        ([slim(1, 0), slim(2, 999)], [0, 999]),
        ([{"image": b"photo 1", "label": 7, "file_name": b"a.JPEG"}], [7]),
        ([{"image": b"photo 1", "label": 7}, {"image": b"photo 2", "label": 1000}], [6, 999]),
    ],
)
def test_labels_are_wnids_or_numbers(tmp_path: Path, rows: Sequence[Features], labels: list[int]) -> None:
    found = opened(shard(tmp_path / "x.tfrecord", rows))
    assert [label for _, label in seen(found)] == labels and not found.failed


@pytest.mark.parametrize(
    ("name", "lines", "wanted"),
    [
        ("labels.txt", "0:bee\n1:ant\n2:cow\n", [1, 0, 2]),
        ("labels.txt", "2:ant\r\n0:cow\r\n\r\n1:bee\r\n", [2, 1, 0]),
        ("labels.txt", "1:ant\n2:bee\n3:cow\n", [0, 1]),
        ("label.labels.txt", "bee\nant\ncow\n\n", [1, 0, 2]),
    ],
)
def test_names_beside_the_shards_say_which_classes_the_numbers_are(
    tmp_path: Path, name: str, lines: str, wanted: list[int]
) -> None:
    shard(
        tmp_path / "flowers-test.tfrecord-00000-of-00001",
        [{"image": b"%d" % label, "label": label} for label in range(3)],
    )
    (tmp_path / name).write_bytes(lines.encode())
    found = open_photos(tmp_path, classes=Classes(3, Labels("classes.txt", ("ant", "bee", "cow"))))
    assert [label for _, label in seen(found)] == wanted
    unnamed = open_photos(tmp_path, classes=Classes(3))
    assert [label for _, label in seen(unnamed)] == ([0, 1] if lines.startswith("1") else [0, 1, 2])


@pytest.mark.parametrize(
    "lines", ["bee\n\nant\n", "0:bee\nant\n", "0:bee\n0:ant\n", "0:bee\n9999999999:ant\n"]
)
def test_names_that_do_not_say_which_number_they_have_are_refused(tmp_path: Path, lines: str) -> None:
    shard(tmp_path / "x.tfrecord", [{"image": b"A", "label": 0}])
    (tmp_path / "labels.txt").write_text(lines)
    with pytest.raises(FileError, match="do not say which number each name has"):
        open_photos(tmp_path, classes=Classes(2))


def test_numbers_of_other_classes_count_from_zero_or_from_one(tmp_path: Path) -> None:
    for name, labels, wanted in (("a", (0, 1), [0, 1]), ("b", (1, 3), [0, 2]), ("c", (1, 2), [1, 2])):
        path = shard(tmp_path / f"{name}.tfrecord", [{"image": b"A", "label": label} for label in labels])
        assert [label for _, label in seen(open_photos(path, classes=Classes(3)))] == wanted


def test_photos_without_a_class_or_without_bytes_are_counted_and_named(tmp_path: Path) -> None:
    rows = [slim(1, 3), {"image/encoded": b"x"}, {"image/class/label": 5}, slim(2, 1001), slim(3, -4)]
    found = opened(shard(tmp_path / "x.tfrecord", rows))
    assert len(found.photos) == 1 and [(failure.name[-2:], failure.why) for failure in found.failed] == [
        ("#1", "it has no label"),
        ("#2", "it has no feature image/encoded or image"),
        ("#3", "its label '1001' is no class of the port"),
        ("#4", "its label '-4' is no class of the port"),
    ]


def test_a_damaged_photo_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tfrecord", [slim(1, 3), slim(2, 4)])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"photo 1", b"photo 7"))
    first, second = opened(path).photos
    with pytest.raises(FileError, match="the checksum of its record is wrong"):
        read_bytes(first.place)
    assert read_bytes(second.place) == b"photo 2"


def test_no_shard_is_left_out_in_silence(tmp_path: Path) -> None:
    """One that is damaged is an error, whichever it is, and one that is not there is named."""
    paths = [shard(tmp_path / f"validation-{number:05}-of-00003", [slim(number + 1, 1)]) for number in (0, 1)]
    missing = Failure("validation-00002-of-00003", "this file of the data set is not there")
    assert opened(tmp_path).excluded == (missing,) and opened(paths[0]).excluded == ()
    for path in paths:
        whole = path.read_bytes()
        path.write_bytes(whole[:3] + bytes([whole[3] ^ 1]) + whole[4:])
        with pytest.raises(FileError, match="byte 0 is not the beginning of a record") as raised:
            opened(tmp_path)
        assert path.name in str(raised.value)
        path.write_bytes(whole)
    for path in paths:
        path.write_bytes(b"nothing of a record")
    with pytest.raises(FileError, match=f"do not begin as TFRecord files do: {paths[0].name}"):
        opened(tmp_path)
    for path in paths:
        path.write_bytes(gzip.compress(b"whole"))
    with pytest.raises(FileError, match=f"compressed files are not read, so unpack them: {paths[0].name}"):
        opened(tmp_path)


def nested(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        payload = b"\x0a" + bytes([len(payload) & 0x7F | 0x80, len(payload) >> 7]) + payload
    return payload


GOOD = framed(b"")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            GOOD + struct.pack("<Q", 1 << 62) + struct.pack("<I", masked_crc32c(struct.pack("<Q", 1 << 62))),
            "4,611,686,018,427,387,904 bytes, got the 0",
        ),
        (GOOD + b"\0" * 12, "byte 16 is not the beginning of a record"),
        (GOOD + GOOD[:7], "the file is cut off after 23 bytes"),
        (framed(b"12345")[:-5], "expected a record of 5 bytes, got the 0 that are left"),
        (framed(b"x"), "begins no number"),
        (framed(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "begins a field that does not end within it"),
        (framed(b"\x0b"), "begins a field that does not end within it"),
        (framed(nested(2000)), "it has no feature|of 3,996 bytes|a text of"),
        (framed(b"\x0a\x04" + b"\x0a\x00" * 2), "it has no feature"),
        (framed(b"\x0a\xd8\x04" + b"\x0a\x00" * 300), "more than 256 features"),
    ],
)
def test_hostile_files_are_one_error(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.tfrecord").write_bytes(content)
    with pytest.raises(FileError, match=said):
        opened(tmp_path / "x.tfrecord")


def test_a_place_beyond_its_file_is_an_error(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tfrecord", [slim(1, 3)])
    (photo,) = opened(path).photos
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FileError, match="4 bytes expected"):
        read_bytes(photo.place)
    assert isinstance(photo.place, Bytes) is False
