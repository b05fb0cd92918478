"""Photos and their classes, wherever they are stored: the common form of all layouts of data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bytes:
    """A photo that is a file, or a run of bytes in an uncompressed archive that is read in place.

    Attributes:
        size: in bytes; None for the rest of the file.
    """

    path: Path
    offset: int = 0
    size: int | None = None


@dataclass(frozen=True)
class Cell:
    """A photo in a Parquet file."""

    path: Path
    row_group: int
    row: int


@dataclass(frozen=True)
class Photo:
    """A photo and the classes that count as right.

    Attributes:
        name: as reports give it: the path inside the data set, the member of an archive, or `FILE#ROW`.
        labels: class indices in the order of the port's logits without a background row; one, or with ReaL labels several. None
            in a data set that is taken without classes.
        place: where its bytes are.
    """

    name: str
    labels: tuple[int, ...]
    place: Bytes | Cell


@dataclass(frozen=True)
class Failure:
    """A photo that could not be scored, and why. It counts as an image, with a wrong answer."""

    name: str
    why: str


@dataclass(frozen=True)
class PhotoSet:
    """A data set as found on disk.

    Attributes:
        layout: what it was recognised as, such as `class folders`.
        photos: in an order that depends only on the data set.
        failed: photos that cannot be scored for reasons seen before they are opened: no label, an unknown class.
        excluded: photos that its labels leave out on purpose (ReaL has none for some), which do not count.
        validation: whether it is the whole of ImageNet's validation set, all 50,000 photos of it.
        limit: how many photos were asked for, if the data set has more; None if these are all.
        labels: the file of labels that was used instead of the data set's own.
        unlabelled: why its photos are taken without classes; None if they have classes.
    """

    path: Path
    layout: str
    photos: tuple[Photo, ...]
    failed: tuple[Failure, ...] = ()
    excluded: tuple[Failure, ...] = ()
    validation: bool = False
    limit: int | None = None
    labels: Path | None = None
    unlabelled: str | None = None

    @property
    def classes(self) -> int:
        """How many classes are present."""
        return len({label for photo in self.photos for label in photo.labels})
