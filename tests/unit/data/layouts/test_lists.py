"""Lists of photos and their classes, beside a folder or a tar."""

import tarfile
from pathlib import Path

import pytest

from porter.base.errors import FileError, UsageError
from porter.data.classes import Classes
from porter.data.labels import IMAGENET, Labels
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import PhotoSet
from tests.support.data.layouts.making import files

IMAGENET_1K = Classes(1000, Labels(IMAGENET))
NAMES = ("a b.jpg", "deep/c.PNG", "d.jpeg")


def labelled(folder: Path, text: str, classes: Classes = IMAGENET_1K, data: Path | None = None) -> PhotoSet:
    path = folder / "labels.txt"
    path.write_text(text, encoding="utf-8")
    return open_photos(data or folder / "photos", classes=classes, labels=path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files(tmp_path / "photos", *NAMES)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "a b.jpg 0\ndeep/c.PNG 1\nd.jpeg 2\n",
        "d.jpeg\tn01484850\nc.PNG\tn01443537 goldfish\n./a b.jpg\tn01440764\n",
        'name,class\n"a b.jpg","tench, Tinca tinca"\nphotos/deep/c.PNG,goldfish\nd.jpeg,great white shark\n',
        "{photos}/a b.jpg 0\n{photos}/deep/c.PNG 1\n\n{photos}/d.jpeg 2",
        "deep\\c.PNG; 1\na b.jpg; 0\n/elsewhere/d.jpeg; 2\n",
    ],
)
def test_photos_have_the_classes_of_a_list(folder: Path, text: str) -> None:
    found = labelled(folder, text.format(photos=folder / "photos"))
    assert [(photo.name, photo.labels) for photo in found.photos] == [
        ("a b.jpg", (0,)),
        ("d.jpeg", (2,)),
        ("deep/c.PNG", (1,)),
    ]
    assert (found.layout, found.failed, found.excluded) == ("folder, labels of labels.txt", (), ())
    assert [read_bytes(photo.place).decode() for photo in found.photos] == sorted(NAMES)


def test_what_a_list_lacks_is_left_out_and_what_the_folder_lacks_counts_as_wrong(folder: Path) -> None:
    found = labelled(folder, "d.jpeg 2\nmissing.jpg 5\nc.PNG 1234\n")
    assert [photo.name for photo in found.photos] == ["d.jpeg"]
    assert {failure.name: failure.why for failure in found.failed} == {
        "deep/c.PNG": "its class '1234' is no class of the port",
        "missing.jpg": "the data set has no such photo",
    }
    assert [failure.name for failure in found.excluded] == ["a b.jpg"]


def test_a_label_of_commas_only_is_no_class(folder: Path) -> None:
    found = labelled(folder, "d.jpeg 2\na b.jpg,,\n")
    assert [(failure.name, failure.why) for failure in found.failed] == [
        ("a b.jpg", "its class ',' is no class of the port")
    ]


def test_a_port_of_other_classes(folder: Path) -> None:
    own = Classes(3, Labels("kinds.txt", ("cat", "dog", "2")))
    text = "a b.jpg cat\nc.PNG 1\nd.jpeg 2\n"  # the last is a name
    assert [photo.labels for photo in labelled(folder, text, own).photos] == [(0,), (2,), (1,)]
    unnamed = labelled(folder, "a b.jpg 0\nc.PNG 1\nd.jpeg 2\n", Classes(3))
    assert [photo.labels for photo in unnamed.photos] == [(0,), (2,), (1,)]


def test_photos_in_a_tar(folder: Path) -> None:
    with tarfile.open(folder / "photos.tar", "w") as archive:
        archive.add(folder / "photos", "val")
    found = labelled(folder, "c.PNG 1\nval/d.jpeg 2\na b.jpg 0\n", data=folder / "photos.tar")
    assert {photo.name: photo.labels for photo in found.photos} == {
        "val/a b.jpg": (0,),
        "val/d.jpeg": (2,),
        "val/deep/c.PNG": (1,),
    }


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("a b.jpg 0\nnothing here\n", FileError, r"labels\.txt:2: 'nothing here' is no photo with a class"),
        ("a b.jpg 0\na b.jpg 1\n", FileError, r"labels\.txt:2: 'a b\.jpg' has two classes"),
        ("a b.jpg 1\nd.jpeg 1000\n", UsageError, r"numbers from 1 to 1000.*subtract 1"),
    ],
)
def test_lists_that_are_refused(folder: Path, text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        labelled(folder, text)
