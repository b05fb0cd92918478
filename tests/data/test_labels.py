"""The classes in the order of the logits."""

import re

import pytest

from porter.data.labels import IMAGENET, class_label, imagenet_classes


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
    assert imagenet_classes()[index] == (wnid, name)
    assert class_label(index, IMAGENET) == (wnid, name)


def test_a_background_row_shifts_every_label_by_one() -> None:
    assert class_label(0, IMAGENET, background=True) == (None, "background")
    assert class_label(1, IMAGENET, background=True) == class_label(0, IMAGENET)
    assert class_label(1000, IMAGENET, background=True) == class_label(999, IMAGENET)


@pytest.mark.parametrize(("index", "labels"), [(-1, IMAGENET), (1000, IMAGENET), (5, None), (5, "cifar-10")])
def test_a_row_that_no_known_map_names_has_no_label(index: int, labels: str | None) -> None:
    assert class_label(index, labels) is None
