"""Finds the row of a port's logits for each class that a data set names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from porter.base.errors import FileError, UsageError, escaped
from porter.base.options import CLASS_NAMES
from porter.data.labels import IMAGENET, Labels, imagenet_classes

_WNID = re.compile(r"(n\d{8})(?![0-9A-Za-z])")
_LISTED = 5
_SHARED = ("cardigan", "crane", "maillot")
"""First names of two classes each in the devkit's meta.mat: a dog and a garment, a bird and a machine, two
swimsuits.
"""


@dataclass(frozen=True)
class Classes:
    """The classes that a port tells apart.

    Attributes:
        count: without a background class.
        labels: what they are, if that is known. If they are ImageNet-1k's, wnids, names and ILSVRC's labels
            are understood.
    """

    count: int
    labels: Labels | None = None

    @property
    def imagenet(self) -> bool:
        return self.labels == Labels(IMAGENET)


def wnid_label(text: str) -> int | None:
    """The ImageNet class of a text that begins with a wnid, such as `n01440764` or `n01440764_tench`."""
    match = _WNID.match(text)
    return _by_wnid().get(match[1]) if match else None


def folder_labels(folders: Collection[str], classes: Classes, where: str) -> dict[str, int | None]:
    """The class of each folder; None for one that is no class.

    ImageNet's folders are wnids, the names of classes, or the numbers of classes in the order of wnids. Those
    of a port with labels of its own have these names. Others are the classes in the order of their names, as
    torchvision's ImageFolder and Keras's image_dataset_from_directory number them.

    Raises:
        UsageError: a folder is none of the port's labels; there are not as many folders as the port has
            classes; or their numbers may count from 0 or from 1.
    """
    if classes.labels is not None and not classes.imagenet:
        return dict(zip(folders, _own_labels(list(folders), classes.labels, where), strict=True))
    if not classes.imagenet:
        if len(folders) != classes.count:
            raise UsageError(
                f"expected {classes.count} class folders, one for each class of the port, got {len(folders)} "
                f"({listed(sorted(folders))})",
                where=where,
                next=f"give one folder per class, {classes.count} in all, an empty one "
                "where a class has no photos",
            )
        return {name: index for index, name in enumerate(sorted(folders))}
    if folders and all(name.isascii() and name.isdigit() for name in folders):
        return _numbered_folders(folders, classes.count, where)
    return {name: _imagenet_label(name) for name in folders}


def why_no_class(folder: str) -> str:
    """Why a folder is no class of ImageNet."""
    if (shared := _plain(folder)) in _SHARED:
        two = " or ".join(
            entry.wnid for entry in imagenet_classes() if _plain(entry.name).split()[0] == shared
        )
        return f"'{escaped(folder)}' is the name of two classes of ImageNet-1k: name the folder {two}"
    return f"'{escaped(folder)}' is no class of ImageNet-1k"


def _numbered_folders(folders: Collection[str], classes: int, where: str) -> dict[str, int | None]:
    """Numbers of classes that the folders' names are, if they count from 0."""
    numbers = {name: int(name) for name in folders if len(name) <= len(str(classes))}
    if len(set(numbers.values())) < len(numbers) or 0 not in numbers.values():
        # ILSVRC's own ids run from 1 too, in another order.
        raise UsageError(
            f"the folders' names are numbers ({listed(sorted(folders))}) that do not show whether they "
            "count from 0",
            where=where,
            next="name the folders by wnid",
        )
    if 1 < len(numbers) == len(folders) < classes and max(numbers.values()) == len(numbers) - 1:
        raise UsageError(
            f"the folders {listed(sorted(folders))} are ImageNet's first {len(folders)} classes, or "
            f"{len(folders)} others",
            where=where,
            next=f"name the folders by wnid; a model of other classes takes {CLASS_NAMES.placeholder}",
        )
    return {name: numbers[name] if numbers.get(name, classes) < classes else None for name in folders}


def named_labels(names: Sequence[str], classes: Classes, where: str) -> tuple[int | None, ...]:
    """The class of each number of a data set that lists the names of its classes; None for one that is no
    class of the port.

    Imagenette's 0 to 9 are not ImageNet's: its names say which classes they are. A list as long as ImageNet's
    own is in the order of wnids, however it spells the names.

    Raises:
        FileError: a list as long as ImageNet's is in another order, or, for a port of other classes, their
            number differs.
        UsageError: a name is none of the port's own labels.
    """
    if classes.labels is not None and not classes.imagenet:
        return _own_labels(names, classes.labels, where)
    if not classes.imagenet:
        if len(names) != classes.count:
            raise FileError(
                f"expected the names of {classes.count} classes, as the port has, got {len(names)}",
                where=where,
            )
        return tuple(range(classes.count))
    labels = tuple(_imagenet_label(name) for name in names)
    if len(names) != classes.count:
        return labels
    known = [(index, label) for index, label in enumerate(labels) if label is not None]
    if 2 * sum(index == label for index, label in known) < len(known):
        raise FileError(
            f"names of {classes.count} classes that do not stand in the order of wnids ({listed(names)})",
            where=where,
            next="name class folders by wnid",
        )
    return tuple(range(classes.count))


def listed_label(text: str, classes: Classes) -> int | None:
    """The class that a list of photos states: by a wnid or a name, otherwise by its number, from 0, in the
    order of the port's classes; None where it is no class of the port.
    """
    if classes.imagenet:
        label = _imagenet_label(text)
    else:
        label = None if classes.labels is None else _row_of(text, classes.labels)
    number = text.replace(",", " ").split()[0]
    if label is None and number.isascii() and number.isdigit() and len(number) <= 9:
        label = int(number) if int(number) < classes.count else None
    return label


def recognised(labels: Labels) -> Labels:
    """ImageNet's classes where a file lists these, in the order of wnids; otherwise the labels as they
    are.
    """
    places = sum(_imagenet_label(name) == row for row, name in enumerate(labels.names))
    return Labels(IMAGENET) if len(labels.names) == len(imagenet_classes()) < 2 * places else labels


def _own_labels(names: Sequence[str], labels: Labels, where: str) -> tuple[int, ...]:
    """The class of each name among a port's own labels, which may stand in any order: the one of this name,
    otherwise the only one whose name is as `_plain`.
    """
    rows = {name: _row_of(name, labels) for name in names}
    if len(set(labels.names)) < len(labels.names):
        raise UsageError(
            f"{labels.name} has one name for two classes",
            where=where,
            next=f"give each line of {labels.name} its own name",
        )
    if strange := [name for name, row in rows.items() if row is None]:
        said = f"{listed(strange)}: none of the classes in {labels.name} ({listed(labels.names)})"
        raise UsageError(said, where=where, next=f"name the classes as {labels.name} does")
    return tuple(row for name in names if (row := rows[name]) is not None)


def _row_of(name: str, labels: Labels) -> int | None:
    rows, loosely = _rows_of(labels)
    return rows.get(name, loosely.get(_plain(name)))


@lru_cache(maxsize=2)
def _rows_of(labels: Labels) -> tuple[dict[str, int], dict[str, int]]:
    """A port's own classes by their names, and by their plain names where only one has it."""
    shared = Counter(map(_plain, labels.names))
    loosely = {plain: row for row, name in enumerate(labels.names) if shared[plain := _plain(name)] == 1}
    return {name: row for row, name in enumerate(labels.names)}, loosely


def listed(names: Sequence[str]) -> str:
    """The first few of them, and whether there are more."""
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


def _imagenet_label(text: str) -> int | None:
    """Finds ImageNet's label of a class by its wnid, by its name, or by the first of its names (`tench, Tinca
    tinca`).
    """
    label = wnid_label(text)
    if label is not None:
        return label
    return _by_name().get(_plain(text), _by_name().get(_plain(text.partition(",")[0])))


def _plain(name: str) -> str:
    """`Great_white-shark` as `great white shark`: folders are named either way."""
    return " ".join(re.findall(r"[^\W_]+", name.casefold()))


@lru_cache(maxsize=1)
def _by_wnid() -> dict[str, int]:
    return {entry.wnid: index for index, entry in enumerate(imagenet_classes())}


@lru_cache(maxsize=1)
def _by_name() -> dict[str, int]:
    names = {_plain(entry.name): index for index, entry in enumerate(imagenet_classes())}
    return {name: index for name, index in names.items() if name not in _SHARED}
