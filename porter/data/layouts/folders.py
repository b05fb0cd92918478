"""Photos in folders, one per class, or ImageNet's validation photos in a single folder or in the tar they come in.

Class folders were tested with real photos, single folders and the tar with generated files of the same layout, and their labels
with the real devkit.
"""

from __future__ import annotations

import re
from pathlib import Path

from porter.data.layouts.classes import folder_labels, wnid_label
from porter.data.layouts.found import Candidate, Found, is_photo
from porter.data.layouts.listing import Listing
from porter.data.layouts.tars import Member
from porter.data.photos import Bytes
from porter.errors import escaped

_WITH_WNID = re.compile(r"ILSVRC2012_val_\d{8}_(n\d{8})\.")


def class_folders(path: Path, listing: Listing, imagenet: bool, classes: int) -> Found:
    """`val/n01440764/*.JPEG`: the first folder below `path` is the class of every photo in it, at any depth.

    Raises:
        UsageError: see porter.data.layouts.classes.folder_labels.
    """
    used = {photo.folder for photo in listing.photos if photo.folder}
    known = folder_labels(used if imagenet else listing.folders, imagenet, classes, str(path))
    candidates = []
    for photo in listing.photos:
        label = known.get(photo.folder)
        unknown = f"'{escaped(photo.folder)}' is no class of ImageNet-1k" if photo.folder else "it lies in no class folder"
        place = None if photo.why else Bytes(Path(photo.path))
        labels = () if label is None else (label,)
        candidates.append(Candidate(escaped(photo.name), photo.name, place, labels, photo.why or unknown))
    return Found(path, "class folders", candidates, listing.excluded)


def flat_folder(path: Path, listing: Listing) -> Found:
    """`ILSVRC2012_val_00000001.JPEG` to `..._00050000.JPEG` in one folder, with the devkit in it or beside it."""
    candidates = [_flat(photo.name, None if photo.why else Bytes(Path(photo.path)), photo.why) for photo in listing.photos]
    return Found(path, "flat folder", candidates, listing.excluded, beside=(path, path.parent))


def flat_tar(path: Path, members: list[Member]) -> Found:
    """The official ILSVRC2012_img_val.tar, read in place, with the devkit beside it."""
    photos = sorted(member for member in members if is_photo(member.name))
    candidates = [_flat(name, None if why else Bytes(path, offset, size), why) for name, offset, size, why in photos]
    return Found(path, "flat tar", candidates, beside=(path.parent,))


def _flat(name: str, place: Bytes | None, why: str) -> Candidate:
    """Hugging Face's val_images.tar.gz has the class in the name: `ILSVRC2012_val_00000293_n01440764.JPEG`."""
    match = _WITH_WNID.match(name.rpartition("/")[2])
    label = wnid_label(match[1]) if match else None
    labels = () if label is None else (label,)
    return Candidate(escaped(name), name, place, labels, why or "its name tells no class")
