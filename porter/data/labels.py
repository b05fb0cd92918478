"""The 1000 ImageNet-1k classes in the order of every zoo's logits: sorted by wnid.

`imagenet_classes.tsv` holds wnid and name per line. The wnids are those of ILSVRC 2012; the names are torchvision's
(`torchvision.models._meta._IMAGENET_CATEGORIES`, copyright Soumith Chintala 2016, BSD-3-Clause), which are in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple


class ImageNetClass(NamedTuple):
    wnid: str
    name: str


@lru_cache(maxsize=1)
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """All 1000 classes in index order."""
    text = files("porter.data").joinpath("imagenet_classes.tsv").read_text(encoding="utf-8")
    return tuple(ImageNetClass(*line.split("\t")) for line in text.splitlines())


def class_name(index: int, labels: Sequence[ImageNetClass], background: bool = False) -> str:
    """The name of a row of logits; with `background`, row 0 is slim's background class and every label stands one later.

    Rows that no label names, as in a head of another data set, are called by their number.
    """
    if background and index == 0:
        return "background"
    position = index - background
    return labels[position].name if 0 <= position < len(labels) else f"class {index}"
