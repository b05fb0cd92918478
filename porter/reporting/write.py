"""Writing a report, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.errors import FileError, UsageError
from porter.files import is_plain, write_whole
from porter.reporting.page import missing, page, sections
from porter.reporting.records import read_contents

NAME = "report.html"
SIGNATURE = b'<meta name="generator" content="porter report">'
_SIGNED_WITHIN = 1024


@dataclass(frozen=True)
class Report:
    """A report on disk.

    Attributes:
        sections: what it could show, to whether the port's records have it.
        missing: what they do not have, in words, to the command that makes it.
    """

    path: Path
    sections: dict[str, bool]
    missing: dict[str, str]

    def record(self) -> dict[str, Any]:
        """As `porter report --json` prints it."""
        return {"report": str(self.path), "sections": self.sections, "missing": self.missing}


def write_report(folder: Path, out: Path | None) -> Report:
    """Writes the report of a port. See porter.report.

    Raises:
        UsageError: no port there, or `out` is a file that is no report. FileError: a damaged record, or nothing can be written.
        ChecksumError: the model file is not the one that port.json describes.
    """
    contents = read_contents(folder)
    path = out or folder / NAME
    # Through a link that the user names, the file behind it is replaced and the link stays; one in the port is a stranger's.
    target = path if out is None else path.resolve()
    _refuse(target)
    write_whole(target, page(contents))
    return Report(path, sections(contents), dict(missing(contents, str(folder))))


def _refuse(target: Path) -> None:
    if target.is_dir():
        raise UsageError("a folder stands where the report should go", where=str(target), next="give --out a file")
    if not target.exists():
        return
    if not is_plain(target):
        raise UsageError(
            "a link, a pipe or a device stands where the report should go", where=str(target), next="give --out a file"
        )
    try:
        with target.open("rb") as file:
            signed = SIGNATURE in file.read(_SIGNED_WITHIN)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=str(target), next="choose another --out") from None
    if not signed:
        raise UsageError("the file is no report of porter's and is never replaced", where=str(target), next="choose another --out")
