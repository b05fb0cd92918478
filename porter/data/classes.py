"""Finds the row of a port's logits for each class that a data set names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from porter.base.errors import FileError, UsageError, escaped, some
from porter.base.options import CLASS_NAMES
from porter.data.labels import IMAGENET, Labels, imagenet_classes

_WNID = re.compile(r"(n\d{8})(?![0-9A-Za-z])")
_AMBIGUOUS_NAMES = ("cardigan", "crane", "maillot")
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


@dataclass(frozen=True)
class StatedClasses:
    """What the labels of a data set stand for.

    Attributes:
        rows: the port's rows by the numbers of the data set; None for a class that the port has not.
        has_wnids: whether wnids are known, too: the port's classes are ImageNet's.
    """

    rows: Mapping[int, int | None]
    has_wnids: bool

    def row_of(self, label: int | str | None) -> int | None:
        """Return the port's row for a label, a number or a wnid; None if it is no class of the port."""
        if isinstance(label, int):
            return self.rows.get(label)
        return wnid_label(label) if label and self.has_wnids else None


def stated_classes(
    names: Sequence[str] | None, classes: Classes, where: str, first_number: int = 0
) -> StatedClasses:
    """Return what labels stand for: numbers for the classes in a data set's list of them or, without one, for
    the port's own, from `first_number` on.

    Raises:
        FileError, UsageError: as `labels_of_names`.
    """
    rows = range(classes.count) if names is None else labels_of_names(names, classes, where)
    return StatedClasses(dict(enumerate(rows, first_number)), classes.imagenet)


def wnid_label(text: str) -> int | None:
    """Return the ImageNet class of a text that begins with a wnid, such as `n01440764` or `n01440764_tench`;
    None for other texts.
    """
    match = _WNID.match(text)
    return _by_wnid().get(match[1]) if match else None


def folder_labels(folders: Collection[str], classes: Classes, where: str) -> dict[str, int | None]:
    """Return the class of each folder; None for a folder that is no class.

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
                f"({some(sorted(folders))})",
                where=where,
                next=f"give one folder per class, {classes.count} in all, an empty one "
                "where a class has no photos",
            )
        return {name: index for index, name in enumerate(sorted(folders))}
    if folders and all(name.isascii() and name.isdigit() for name in folders):
        return _labels_of_numbers(folders, classes.count, where)
    return {name: _imagenet_label(name) for name in folders}


def why_no_class(folder: str) -> str:
    """Return why a folder is no class of ImageNet, in words: because two classes have its name, or none."""
    if (shared := _normalise(folder)) in _AMBIGUOUS_NAMES:
        named_so = (entry for entry in imagenet_classes() if _normalise(entry.name).split()[0] == shared)
        wnids = " or ".join(entry.wnid for entry in named_so)
        return f"'{escaped(folder)}' is the name of two classes of ImageNet-1k: name the folder {wnids}"
    return f"'{escaped(folder)}' is no class of ImageNet-1k"


def _labels_of_numbers(folders: Collection[str], classes: int, where: str) -> dict[str, int | None]:
    """Return the class of each folder whose name is a number, counted from 0; None for a number beyond the
    classes.

    Raises:
        UsageError: the numbers may count from 1, or may be those of other classes than ImageNet's first ones.
    """
    numbers = {name: int(name) for name in folders if len(name) <= len(str(classes))}
    if len(set(numbers.values())) < len(numbers) or 0 not in numbers.values():
        # ILSVRC's own ids run from 1 too, in another order.
        raise UsageError(
            f"the folders' names are numbers ({some(sorted(folders))}) that do not show whether they "
            "count from 0",
            where=where,
            next="name the folders by wnid",
        )
    # Numbers from 0 without a gap, but fewer than ImageNet's, may be those of another data set.
    is_without_gap = len(numbers) == len(folders) and max(numbers.values()) == len(numbers) - 1
    if is_without_gap and 1 < len(folders) < classes:
        raise UsageError(
            f"the folders {some(sorted(folders))} are ImageNet's first {len(folders)} classes, or "
            f"{len(folders)} others",
            where=where,
            next=f"name the folders by wnid; a model of other classes takes {CLASS_NAMES.placeholder}",
        )
    return {name: numbers[name] if numbers.get(name, classes) < classes else None for name in folders}


def labels_of_names(names: Sequence[str], classes: Classes, where: str) -> tuple[int | None, ...]:
    """Return the class of each name in a data set's list of classes; None for a name that is no class of the
    port.

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
    in_place = sum(index == label for index, label in known)
    # Spellings differ: half of the known names have to be in their places.
    if 2 * in_place < len(known):
        raise FileError(
            f"names of {classes.count} classes that do not stand in the order of wnids ({some(names)})",
            where=where,
            next="name class folders by wnid",
        )
    return tuple(range(classes.count))


def label_in_list(text: str, classes: Classes) -> int | None:
    """Return the class that a list of photos states: by a wnid or a name, otherwise by its number, from 0, in
    the order of the port's classes; None if it is no class of the port.
    """
    if classes.imagenet:
        label = _imagenet_label(text)
    else:
        label = None if classes.labels is None else _row_of(text, classes.labels)
    if label is not None:
        return label
    number = number_in(next(iter(text.replace(",", " ").split()), ""))
    return number if number is not None and number < classes.count else None


def number_in(text: str, digits: int = 9) -> int | None:
    """Return the number that a text is, of so many digits at most; None if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def no_class_of_port(stated: str, what: str = "label") -> str:
    """Return in words that what a data set states of a photo, such as its label, is no class of the port."""
    return f"its {what} '{escaped(stated[:40])}' is no class of the port"


def with_imagenet_recognised(labels: Labels) -> Labels:
    """Return ImageNet's own labels if a file lists its classes in the order of wnids; otherwise the labels as
    they are.
    """
    in_place = sum(_imagenet_label(name) == row for row, name in enumerate(labels.names))
    count = len(imagenet_classes())
    # Spellings differ, so most of the names have to be in their places, and not all.
    is_imagenet = len(labels.names) == count and 2 * in_place > count
    return Labels(IMAGENET) if is_imagenet else labels


def _own_labels(names: Sequence[str], labels: Labels, where: str) -> tuple[int, ...]:
    """Return the class of each name among a port's own labels, which may stand in any order: the label of
    this name, otherwise the only one that `_normalise` makes equal.
    """
    rows = {name: _row_of(name, labels) for name in names}
    if len(set(labels.names)) < len(labels.names):
        raise UsageError(
            f"{labels.name} has one name for two classes",
            where=where,
            next=f"give each line of {labels.name} its own name",
        )
    if unknown := [name for name, row in rows.items() if row is None]:
        message = f"{some(unknown)}: none of the classes in {labels.name} ({some(labels.names)})"
        raise UsageError(message, where=where, next=f"name the classes as {labels.name} does")
    return tuple(row for name in names if (row := rows[name]) is not None)


def _row_of(name: str, labels: Labels) -> int | None:
    """Return the row of a class by its name, also in another spelling; None if no label has it."""
    rows, rows_by_normalised = _rows_of(labels)
    return rows.get(name, rows_by_normalised.get(_normalise(name)))


@lru_cache(maxsize=2)
def _rows_of(labels: Labels) -> tuple[dict[str, int], dict[str, int]]:
    """Return the rows of a port's own classes by their names, and by their normalised names if only one class
    has that.
    """
    normalised = [_normalise(name) for name in labels.names]
    counts = Counter(normalised)
    rows_by_normalised = {name: row for row, name in enumerate(normalised) if counts[name] == 1}
    return {name: row for row, name in enumerate(labels.names)}, rows_by_normalised


def _imagenet_label(text: str) -> int | None:
    """Return ImageNet's label of a class by its wnid, by its name, or by the first of its names (`tench,
    Tinca tinca`); None if it is none.
    """
    label = wnid_label(text)
    if label is not None:
        return label
    label_of_first_name = _by_name().get(_normalise(text.partition(",")[0]))
    return _by_name().get(_normalise(text), label_of_first_name)


def _normalise(name: str) -> str:
    """Return a name such as `Great_white-shark` as `great white shark`: folders are named either way."""
    return " ".join(re.findall(r"[^\W_]+", name.casefold()))


@lru_cache(maxsize=1)
def _by_wnid() -> dict[str, int]:
    return {entry.wnid: index for index, entry in enumerate(imagenet_classes())}


@lru_cache(maxsize=1)
def _by_name() -> dict[str, int]:
    names = {_normalise(entry.name): index for index, entry in enumerate(imagenet_classes())}
    return {name: index for name, index in names.items() if name not in _AMBIGUOUS_NAMES}


def stated_names(names: object) -> tuple[str, ...] | None:
    """Return the names of classes that a file states in JSON; None if these are no list of texts."""
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
