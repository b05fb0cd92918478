"""A list of photos and their classes beside a folder or a tar: a photo and a class on each line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError, UsageError, escaped
from porter.data.classes import Classes, label_in_list, no_class_of_port
from porter.data.photos import PHOTO_SUFFIXES, Failure, FoundPhotos, PhotoCandidate

_LINE = re.compile(
    rf"""\s*["']?(?P<photo>.+?(?:{"|".join(map(re.escape, PHOTO_SUFFIXES))}))["']?[\s,;]+"""
    r"""["']?(?P<label>[^\s"'].*?)["']?\s*""",
    re.IGNORECASE,
)
"""A photo's name or path, a separator, and its class: a number, a wnid or a name."""
_MAX_FILE = 256 << 20
"""A list of ImageNet's 1.3 million training photos has 60 million bytes."""
_MAX_LINE = 8192
_LINE_ADVICE = "write a photo and its class on each line, such as: n01440764_1.JPEG 0"


class ListLine(NamedTuple):
    """A line of a list, from 1 on."""

    number: int
    photo: str
    label: str


def is_list(path: Path) -> bool:
    """Return whether a file's first line is a photo and a class, or its second line, after a heading."""
    with path.open("rb") as file:
        lines = [file.readline(_MAX_LINE).decode("utf-8", "replace") for _ in range(2)]
    return any(_LINE.fullmatch(line) for line in lines)


def with_labels_of_list(found: FoundPhotos, path: Path, classes: Classes) -> FoundPhotos:
    """Return a data set's photos with the classes that a list gives them. Photos that the list lacks are left
    out, and photos of the list that the data set lacks cannot be scored.

    A photo is named by its path, from the data set's folder or the list's or from the root, or by its file
    name, where only one photo has it.

    Raises:
        FileError: the list cannot be read, a line is no photo with a class, or a photo has two classes.
        UsageError: the numbers seem to count from 1.
    """
    lines = list(_read_lines(path))
    label_of_text = {
        label: label_in_list(label, classes) for label in dict.fromkeys(line.label for line in lines)
    }
    if str(classes.count) in label_of_text and "0" not in label_of_text:
        raise UsageError(
            f"the classes are numbers from 1 to {classes.count}, and the port's are from 0 to "
            f"{classes.count - 1}",
            where=path,
            next="subtract 1 from each, or write wnids or names of classes",
        )
    find = _PhotoNames(found, path.parent).find
    line_of_photo = dict[str, ListLine]()
    not_found = list[PhotoCandidate]()
    for line in lines:
        key = find(line.photo)
        if key is None:
            name = escaped(line.photo)
            not_found.append(PhotoCandidate(name, name, None, (), "the data set has no such photo"))
        # A second line for a photo may repeat its class only.
        elif label_of_text[line_of_photo.setdefault(key, line).label] != label_of_text[line.label]:
            raise FileError(
                f"'{escaped(line.photo)}' has two classes", where=f"{path}:{line.number}", next=_LINE_ADVICE
            )

    def with_label(candidate: PhotoCandidate) -> PhotoCandidate:
        """Return a photo with the class that the list gives it, or the reason why it cannot be scored."""
        label = label_of_text[line_of_photo[candidate.key].label]
        if candidate.place is None:
            why = candidate.why
        elif label is None:
            why = no_class_of_port(line_of_photo[candidate.key].label, "class")
        else:
            why = ""
        return candidate._replace(labels=() if label is None else (label,), why=why)

    listed = [with_label(candidate) for candidate in found.candidates if candidate.key in line_of_photo]
    others = [candidate.name for candidate in found.candidates if candidate.key not in line_of_photo]
    return replace(
        found,
        layout=f"{found.layout}, labels of {path.name}",
        candidates=[*listed, *not_found],
        excluded=(*found.excluded, *(Failure(name, "the list does not name it") for name in others)),
    )


class _PhotoNames:
    """The photos of a data set, by the names that a list may give them."""

    def __init__(self, found: FoundPhotos, beside: Path) -> None:
        folder = found.path.absolute()
        self._bases = (folder, folder.parent, beside.absolute())
        self._keys = {candidate.key for candidate in found.candidates}
        counts = Counter(map(_file_name, self._keys))
        self._keys_by_file_name = {_file_name(key): key for key in self._keys if counts[_file_name(key)] == 1}

    def find(self, photo: str) -> str | None:
        """Return the key of a photo by its path, or by its file name if only one has it; None if there is no
        such photo.
        """
        name = photo.replace("\\", "/").removeprefix("./")
        folder = self._bases[0]
        for path in (base / name for base in self._bases):
            if path.is_relative_to(folder):
                key = path.relative_to(folder).as_posix()
                if key in self._keys:
                    return key
        return self._keys_by_file_name.get(_file_name(name))


def _file_name(key: str) -> str:
    return key.rpartition("/")[2]


def _read_lines(path: Path) -> Iterator[ListLine]:
    """Yield the lines of a list, each a photo and its label. Blank lines and a heading are passed over.

    Raises:
        FileError: the list cannot be read or is too large, or a line is no photo with a label.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_FILE:
            raise FileError(
                f"the list has {size:,} bytes, and porter reads at most {_MAX_FILE:,}", where=path
            )
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line) if len(line) <= _MAX_LINE else None
        if match is not None:
            yield ListLine(number, match["photo"], match["label"])
        elif number > 1:  # the first may be a heading
            raise FileError(
                f"'{escaped(line[:60])}' is no photo with a class",
                where=f"{path}:{number}",
                next=_LINE_ADVICE,
            )
