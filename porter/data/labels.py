"""The 1000 ImageNet-1k classes in the order of every zoo's logits: sorted by wnid.

`imagenet_classes.tsv` holds wnid and name per line. The wnids are those of ILSVRC 2012; the names are torchvision's
(`torchvision.models._meta._IMAGENET_CATEGORIES`, copyright Soumith Chintala 2016, BSD-3-Clause), which are in the same order.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

IMAGENET = "imagenet-1000"
"""What a recipe's `labels` says where the logits are these classes."""
LABEL_MAPS = (IMAGENET,)
"""All that it can say."""


class ImageNetClass(NamedTuple):
    wnid: str
    name: str


class Label(NamedTuple):
    """What a row of logits stands for; slim's background class has no wnid."""

    wnid: str | None
    name: str


@lru_cache(maxsize=1)
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """All 1000 classes in index order."""
    text = files("porter.data").joinpath("imagenet_classes.tsv").read_text(encoding="utf-8")
    return tuple(ImageNetClass(*line.split("\t")) for line in text.splitlines())


def class_label(index: int, labels: str | None, background: bool = False) -> Label | None:
    """What row `index` of a port's logits stands for; None where the label map is unknown or has no such row.

    With `background`, row 0 is slim's background class and every label stands one row later.
    """
    if labels != IMAGENET:
        return None
    if background and index == 0:
        return Label(None, "background")
    position, classes = index - background, imagenet_classes()
    return Label(*classes[position]) if 0 <= position < len(classes) else None
