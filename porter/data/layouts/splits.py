"""The splits of a data set: their words, their folders and the files that their names say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from porter.base.errors import UsageError
from porter.base.options import SPLIT
from porter.data.layouts.folders import names_in_folder
from porter.data.photos import is_photo, validation_number

_SHARDS = (".parquet", ".tar")

_SPLIT_WORDS = {
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("train", "training"), "train"),
    "test": "test",
}
"""The split by each word for it. Figures are published on validation."""
_SPLIT_IN_NAME = re.compile(rf"(?:^|[-_.])({'|'.join(_SPLIT_WORDS)})(?=[-_.])", re.IGNORECASE)


def parse_split(word: str) -> str:
    """Return porter's word for a split: `validation` for `val`.

    Raises:
        UsageError: it is no word for a split.
    """
    if word.lower() not in _SPLIT_WORDS:
        raise UsageError(
            f"there is no split '{word}'", where=SPLIT, next=f"write one of {', '.join(_SPLIT_WORDS)}"
        )
    return _SPLIT_WORDS[word.lower()]


def choose_split_folder(path: Path, split: str | None) -> tuple[Path, str | None]:
    """Return the folder in which a split's files are, and the split that remains to be chosen among them by
    their names; None if nothing remains.

    It is the split's own folder, where `path` has folders for splits: `val` beside `train`. It is `data`,
    where Hugging Face's shards are in there. Otherwise it is `path`.

    Raises:
        UsageError: `path` has folders for splits, but none for this one.
    """
    folders, files = names_in_folder(path)
    splits = {name: _SPLIT_WORDS[name.lower()] for name in folders if name.lower() in _SPLIT_WORDS}
    # A folder of photos is a class of them, even if it is called "train".
    if len(splits) == 1 and all(_is_class_folder(path / name) for name in splits):
        splits = {}
    chosen = [name for name, split_of_name in splits.items() if split_of_name == (split or "validation")]
    has_to_choose = split is not None or len(splits) > 1
    if splits and has_to_choose and not chosen:
        problem = (
            f"it has no split '{split}'" if split else "it has several splits, and none is of validation"
        )
        first_split = next(iter(splits))
        raise UsageError(f"{problem}: {', '.join(splits)}", where=path, next=f"add {SPLIT(first_split)}")
    if chosen:
        return path / chosen[0], None
    if splits and len(folders) == 1:  # no split is asked for, and this is the only one
        return path / folders[0], None
    if "data" in folders and not _has_shards(files):
        _, files_of_data = names_in_folder(path / "data")
        if _has_shards(files_of_data):
            return path / "data", split
    return path, split


def _has_shards(files: Iterable[str]) -> bool:
    """Return whether a name is that of a Parquet file or a tar."""
    return any(name.endswith(_SHARDS) for name in files)


def _is_class_folder(folder: Path) -> bool:
    """Return whether a folder with the name of a split is a class, such as `valid` beside `invalid`: photos
    lie directly in it, and they are not ImageNet's validation photos.
    """
    folders, files = names_in_folder(folder)
    photos = [name for name in files if is_photo(name)]
    return not folders and bool(photos) and all(validation_number(name) is None for name in photos)


def files_of_split(path: Path, files: Sequence[Path], split: str | None) -> list[Path]:
    """Return the files of a split, by their names: those of validation if no split is asked for, or all files
    if they name at most one split.

    Raises:
        UsageError: there are no files of the split, or none of validation among several splits.
    """
    # the files by the split that their names have; "" for names without one
    splits: dict[str, list[Path]] = {}
    for file in files:
        match = _SPLIT_IN_NAME.search(file.name)
        split_of_file = _SPLIT_WORDS[match[1].lower()] if match else ""
        splits.setdefault(split_of_file, []).append(file)
    wanted = split or "validation"
    if wanted in splits:
        return splits[wanted]
    if set(splits) == {""}:
        expect_no_split(split, path)
    elif split is not None:
        raise UsageError(f"it has no files of split '{split}', only {_split_list(splits)}", where=path)
    if len(splits) > 1:
        message = f"files of several splits and none of validation: {_split_list(splits)}"
        raise UsageError(message, where=path, next=f"add {SPLIT(max(splits))}")
    return list(files)


def expect_no_split(split: str | None, path: Path) -> None:
    """Refuse a split where the data set has none."""
    if split is not None:
        raise UsageError(
            f"it has no splits, and '{split}' is asked for", where=path, next=f"leave out {SPLIT}"
        )


def _split_list(splits: Iterable[str]) -> str:
    """List splits in words, the files without one as `no split`."""
    return ", ".join(sorted(split or "no split" for split in splits))
