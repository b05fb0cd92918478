"""The classes in the order of the logits."""

import re

import pytest

from porter.data.labels import class_name, imagenet_classes


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
        (134, "n02012849", "crane"),
        (207, "n02099601", "golden retriever"),
        (281, "n02123045", "tabby"),
        (517, "n03126707", "crane"),
        (639, "n03710721", "maillot"),
        (999, "n15075141", "toilet tissue"),
    ],
)
def test_known_classes(index: int, wnid: str, name: str) -> None:
    assert imagenet_classes()[index].wnid == wnid
    assert class_name(index, imagenet_classes()).startswith(name)


def test_a_background_row_shifts_every_label_by_one() -> None:
    labels = imagenet_classes()
    assert class_name(0, labels, background=True) == "background"
    assert class_name(1, labels, background=True) == "tench"
    assert class_name(1000, labels, background=True) == class_name(999, labels)


@pytest.mark.parametrize("index", [-1, 1000, 5000])
def test_a_row_without_a_label_is_called_by_its_number(index: int) -> None:
    assert class_name(index, imagenet_classes()) == f"class {index}"
