"""webdataset shards."""

import json
from pathlib import Path

import pytest

from porter.base.errors import FileError, UsageError
from porter.data.classes import Classes
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Failure
from tests.support.data.layouts.making import WNIDS, label_of, opened, shard, val


def as_json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_labels_stand_beside_the_photos(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "x.tar",
        {
            "a": {"jpg": b"A", "cls": b"7\n"},
            "deep.er/b": {"cls": b"999", "png": b"B"},
            "c": {"JPEG": b"C", "json": as_json(label=3, width=10)},
            "d": {"webp": b"D", "json": as_json(cls="n01443537")},
            "e": {"jpg": b"E", "cls": b"5", "json": as_json(label=6)},
            "f": {"jpg": b"F", "json": as_json(caption="x"), "cls": b"0008", "seg.png": b"mask"},
        },
    )
    found = opened(path)
    assert (found.layout, found.failed, found.path) == ("webdataset", (), path)
    assert [(photo.name, photo.labels[0], read_bytes(photo.place)) for photo in found.photos] == [
        ("a.jpg", 7, b"A"),
        ("deep.er/b.png", 999, b"B"),
        ("c.JPEG", 3, b"C"),
        ("d.webp", 1, b"D"),
        ("e.jpg", 5, b"E"),
        ("f.jpg", 8, b"F"),
    ]


def test_photos_without_a_class_are_counted_and_named(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "x.tar",
        {
            "a": {"jpg": b"A", "cls": b"1"},
            "b": {"jpg": b"B"},
            "c": {"jpg": b"C", "cls": b"1000"},
            "d": {"jpg": b"D", "cls": b"-1"},
            "e": {"jpg": b"E", "json": as_json(caption="a cat")},
            "f": {"jpg": b"F", "json": b"{"},
            "g": {"jpg": b"G", "json": as_json(label=True)},
            "h": {"jpg": b"H", "cls": b"9" * 30},
            "i": {"jpg": b"I", "cls": b"1" * (2 << 20)},
            "j": {"jpg": b"J", "cls": b"\xff\x1b"},
            "k": {"cls": b"4"},
        },
    )
    found = opened(path)
    assert [photo.name for photo in found.photos] == ["a.jpg"]
    assert found.failed == (
        Failure("b.jpg", "there is no .cls or .json beside it"),
        Failure("c.jpg", "its .cls says '1000', which is no class of the port"),
        Failure("d.jpg", "its .cls says '-1', which is no class of the port"),
        *(Failure(f"{name}.jpg", "its .json has no field label or cls") for name in "efg"),
        Failure("h.jpg", f"its .cls says '{'9' * 30}', which is no class of the port"),
        Failure("i.jpg", "its .cls cannot be read: 2,097,152 bytes"),
        Failure("j.jpg", "its .cls says '�\\x1b', which is no class of the port"),
    )


def test_the_shards_of_a_folder_are_one_set(tmp_path: Path) -> None:
    for number in (1, 0):
        shard(
            tmp_path / f"set-{number:04}.tar",
            {key: {"jpg": b"x", "cls": str(number).encode()} for key in "ba"},
        )
    found = opened(tmp_path)
    assert [(photo.name, photo.labels[0]) for photo in found.photos] == [
        ("set-0000.tar/b.jpg", 0),
        ("set-0000.tar/a.jpg", 0),
        ("set-0001.tar/b.jpg", 1),
        ("set-0001.tar/a.jpg", 1),
    ]


def test_of_several_splits_the_validation_shards_are_taken(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        shard(tmp_path / f"imagenet1k-{split}-00.tar", {split: {"jpg": b"x", "cls": b"1"}})
    assert [photo.name for photo in opened(tmp_path).photos] == [
        "imagenet1k-validation-00.tar/validation.jpg"
    ]
    (tmp_path / "imagenet1k-validation-00.tar").rename(tmp_path / "imagenet1k-test-00.tar")
    with pytest.raises(UsageError, match="files of several splits and none of validation: test, train"):
        opened(tmp_path)


def test_classes_that_a_set_numbers_itself_go_by_their_names(tmp_path: Path) -> None:
    """As ImageNet-A and -R of CLIP benchmark: 200 classes, of which number 1 is not ImageNet's."""
    names = ["English springer", "golf ball", "crane", "nothing"]
    (tmp_path / "classnames.txt").write_text("\n".join(names))
    samples = {str(number): {"webp": b"x", "cls": str(number).encode()} for number in range(5)}
    found = opened(shard(tmp_path / "test" / "0.tar", samples).parent)
    assert [photo.labels for photo in found.photos] == [(217,), (574,)]
    assert len(found.failed) == 3


def test_a_thousand_names_in_the_order_of_wnids_change_nothing(tmp_path: Path) -> None:
    shard(
        tmp_path / "0.tar",
        {str(number): {"jpg": b"x", "cls": str(number).encode()} for number in (0, 134, 999)},
    )
    (tmp_path / "classnames.txt").write_text("\n".join(WNIDS))
    assert [photo.labels for photo in opened(tmp_path).photos] == [(0,), (134,), (999,)]
    (tmp_path / "classnames.txt").write_text("\n".join(reversed(WNIDS)))
    with pytest.raises(FileError, match="do not stand in the order of wnids"):
        opened(tmp_path)


def test_classes_of_ones_own_are_numbers(tmp_path: Path) -> None:
    samples = {
        "a": {"jpg": b"x", "cls": b"2"},
        "b": {"jpg": b"x", "cls": b"3"},
        "c": {"jpg": b"x", "cls": b"n01440764"},
    }
    path = shard(tmp_path / "x.tar", samples)
    found = open_photos(path, classes=Classes(3))
    assert ([photo.labels for photo in found.photos], len(found.failed)) == ([(2,)], 2)
    (tmp_path / "classnames.txt").write_text("a\nb")
    with pytest.raises(FileError, match="expected the names of 3 classes, as the port has, got 2"):
        open_photos(path, classes=Classes(3))


def test_reals_labels_go_by_the_keys(real: Path, tmp_path: Path) -> None:
    samples = {val(number).removesuffix(".JPEG"): {"jpg": b"x", "cls": b"1"} for number in (1, 3)}
    found = opened(shard(tmp_path / "x.tar", samples), labels=real)
    assert ([photo.labels[0] for photo in found.photos], len(found.excluded)) == ([label_of(1)], 1)
