"""Data sets in several files: which of them are the validation set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from porter.errors import UsageError

VALIDATION_NAMES = ("validation", "val")
"""What figures are published on."""

_SPLIT = re.compile(r"(?:^|[-_.])(validation|val|train|test)(?=[-_.])", re.IGNORECASE)


def of_one_split(files: Sequence[Path]) -> list[Path]:
    """The validation files among `files`, by their names, or all of them where they name at most one split.

    Raises:
        UsageError: several splits and none of them validation.
    """
    splits: dict[str, list[Path]] = {}
    for file in files:
        match = _SPLIT.search(file.name)
        splits.setdefault(match[1].lower() if match else "", []).append(file)
    for split in VALIDATION_NAMES:
        if split in splits:
            return splits[split]
    if len(splits) > 1:
        named = ", ".join(sorted(split or "no split" for split in splits))
        raise UsageError(
            f"files of several splits and none of validation: {named}",
            where=str(files[0].parent),
            next="put the files to evaluate in a folder of their own",
        )
    return list(files)
