"""The classes in the order of the logits."""

import re
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.data.labels import IMAGENET, Labels, class_label, imagenet_classes, read_labels


def test_there_are_1000_classes_sorted_by_wnid() -> None:
    wnids = [entry.wnid for entry in imagenet_classes()]
    assert len(wnids) == len(set(wnids)) == 1000
    assert wnids == sorted(wnids)
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in wnids)
    assert all(entry.name and entry.name == entry.name.strip() for entry in imagenet_classes())


@pytest.mark.parametrize(
    ("index", "wnid", "name"),
    [
        (0, "n01440764", "tench"),
        (134, "n02012849", "crane bird"),
        (207, "n02099601", "golden retriever"),
        (281, "n02123045", "tabby"),
        (517, "n03126707", "crane"),
        (639, "n03710721", "maillot tank suit"),
        (999, "n15075141", "toilet tissue"),
    ],
)
def test_known_classes(index: int, wnid: str, name: str) -> None:
    assert imagenet_classes()[index][:2] == (wnid, name)
    assert class_label(index, Labels(IMAGENET)) == (wnid, name)


def test_ids_of_the_devkit() -> None:
    """The first photos of the validation set have these ids, and are in these folders."""
    known = {
        1: "n02119789",
        490: "n01751748",
        361: "n09193705",
        171: "n02105855",
        822: "n04263257",
        297: "n03125729",
    }
    ids = {entry.ilsvrc: entry.wnid for entry in imagenet_classes()}
    assert ids.keys() == set(range(1, 1001)) and known.items() <= ids.items()


def test_a_background_row_shifts_every_label_by_one() -> None:
    assert class_label(0, Labels(IMAGENET), background=True) == (None, "background")
    assert class_label(1, Labels(IMAGENET), background=True) == class_label(0, Labels(IMAGENET))
    assert class_label(1000, Labels(IMAGENET), background=True) == class_label(999, Labels(IMAGENET))


@pytest.mark.parametrize(
    ("index", "labels"),
    [(-1, Labels(IMAGENET)), (1000, Labels(IMAGENET)), (5, None), (2, Labels("two.txt", ("a", "b")))],
)
def test_a_row_that_no_known_map_names_has_no_label(index: int, labels: Labels | None) -> None:
    assert class_label(index, labels) is None


def test_a_file_of_labels_has_one_on_each_line(tmp_path: Path) -> None:
    # As Windows writes it.
    (tmp_path / "flowers.txt").write_text("daisy\r\nrose of Sharon \n", encoding="utf-8-sig")
    labels = read_labels(tmp_path / "flowers.txt")
    assert labels == Labels("flowers.txt", ("daisy", "rose of Sharon")) and labels.count == 2
    assert class_label(1, labels) == (None, "rose of Sharon") == class_label(2, labels, background=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ":1: expected the name of a class"),
        (b"daisy\n\nrose\n", ":2: expected the name"),
        (b"daisy\n" + b"x" * 201, ":2: expected the name"),
        (b"daisy\n\x1b[31mrose\n", ":2: expected the name"),
        (b"\xff\xfe\n", "not UTF-8 text"),
        (b"x\n" * (1 << 20), "at most 1048576 bytes"),
    ],
)
def test_what_is_no_file_of_labels(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "flowers.txt").write_bytes(content)
    with pytest.raises(FileError, match=words):
        read_labels(tmp_path / "flowers.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "flowers.txt")
    with pytest.raises(FileError, match="not a plain file"):
        read_labels(tmp_path / "link.txt")
    with pytest.raises(FileError, match="there is no such file"):
        read_labels(tmp_path / "nothing.txt")


def test_a_file_of_labels_is_not_called_as_imagenets_are(tmp_path: Path) -> None:
    (tmp_path / IMAGENET).write_text("a\nb\n")
    with pytest.raises(FileError, match="'imagenet-1000' is what porter calls ImageNet's own classes"):
        read_labels(tmp_path / IMAGENET)
