"""What rows of logits stand for: the 1000 ImageNet-1k classes in the order of every zoo's logits, sorted by
wnid, or others.

`imagenet_classes.tsv` holds wnid, name and ILSVRC id per line. The wnids are those of ILSVRC 2012; the names
are torchvision's (`torchvision.models._meta._IMAGENET_CATEGORIES`, copyright Soumith Chintala 2016,
BSD-3-Clause), which are in the same order. The ids are those of the devkit, which numbers classes in its own
order: `map_clsloc.txt` of its later editions and darknet's `imagenet.labels.list` state the same 1000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError, escaped
from porter.files import expect_plain

IMAGENET = "imagenet-1000"
"""The word of a recipe's `labels` for ImageNet's 1000 classes."""
LABEL_MAPS = (IMAGENET,)
"""All words of a recipe's `labels`; it may also name a file of labels."""
MAX_BYTES, MAX_LABEL = 1 << 20, 200
"""The most bytes of a file of labels, and characters of one label."""


class ImageNetClass(NamedTuple):
    """`ilsvrc` is the class's id in the devkit, from 1."""

    wnid: str
    name: str
    ilsvrc: int


class Label(NamedTuple):
    """What a row of logits stands for; slim's background class has no wnid."""

    wnid: str | None
    name: str


@lru_cache(maxsize=1)
def imagenet_classes() -> tuple[ImageNetClass, ...]:
    """Return all 1000 classes in index order."""
    text = files("porter.data").joinpath("imagenet_classes.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return tuple(ImageNetClass(wnid, name, int(number)) for wnid, name, number in rows)


@dataclass(frozen=True)
class Labels:
    """What the classes of a head are.

    Attributes:
        name: `IMAGENET`, or that of the file which lists them.
        names: of the classes, in the order of their rows; empty for `IMAGENET`, whose names porter has.
    """

    name: str
    names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.names or imagenet_classes())


def read_labels(path: Path) -> Labels:
    """Return the labels of a plain text in UTF-8, one on each line.

    Raises:
        FileError: there is no such file, or it is no such text or too large; with the line.
    """
    expect_plain(path)
    if path.stat().st_size > MAX_BYTES:
        raise FileError(f"a file of labels has at most {MAX_BYTES} bytes", where=path)
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise FileError("this is not UTF-8 text", where=path) from None
    return labels_of(path.name, names, str(path))


def labels_of(name: str, names: Sequence[object], where: str) -> Labels:
    """Return the labels that something named `name` lists, such as a file of class names, checked.

    Raises:
        FileError: it lists none, or what is no name of a class; with its number from 1. Or it is called as
            porter calls ImageNet's.
    """
    if name in LABEL_MAPS:
        raise FileError(
            f"'{name}' is what porter calls ImageNet's own classes",
            where=where,
            next="give the file another name",
        )
    # A list without names is refused as one with an empty name.
    for number, class_name in enumerate(names or ("",), 1):
        text = class_name.replace("\t", " ") if isinstance(class_name, str) else ""
        controls_terminal = escaped(text) != text
        if not text or len(text) > MAX_LABEL or controls_terminal:
            message = (
                f"expected the name of a class, of 1 to {MAX_LABEL} characters, none of which "
                "controls a terminal"
            )
            raise FileError(
                message,
                where=f"{where}:{number}",
                next="a name for each class, in the order of the head's rows",
            )
    return Labels(name, tuple(map(str, names)))


def class_label(index: int, labels: Labels | None, background: bool = False) -> Label | None:
    """Return the class that row `index` of a port's logits stands for; None if the label map is unknown or
    has no such row.

    Args:
        background: row 0 is slim's background class, and every label stands one row later.
    """
    if labels is None:
        return None
    if background and index == 0:
        return Label(None, "background")
    position = index - background
    if not 0 <= position < labels.count:
        return None
    if labels.names:
        return Label(None, labels.names[position])
    entry = imagenet_classes()[position]
    return Label(entry.wnid, entry.name)
