"""Writes a report whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.base.calls import takes
from porter.base.commands import ReportOptions
from porter.base.errors import FileError, UsageError
from porter.base.options import OUT
from porter.files import behind_links, is_plain, write_whole
from porter.port import PAGE
from porter.reporting.page import missing_sections, page, page_of_two, sections
from porter.reporting.records import read_contents

SIGNATURE = b'<meta name="generator" content="porter report">'
_SIGNED_WITHIN = 1024


@dataclass(frozen=True)
class Report:
    """A report on disk.

    Attributes:
        sections: the sections that it could have, to whether the port's records have them.
        missing: the missing sections, in words, to the commands that make them.
    """

    path: Path
    sections: dict[str, bool]
    missing: dict[str, str]

    def record(self) -> dict[str, Any]:
        """Return the record that `porter report --json` prints."""
        return {"report": str(self.path), "sections": self.sections, "missing": self.missing}


@takes(ReportOptions)
def report(asked: ReportOptions) -> Report:
    """Write a port's records as one HTML page that needs neither a network nor a script.

    Args:
        out: the page; None for report.html in the port's folder, for two ports FOLDER-and-OTHER.html here. It
            appears whole or not at all, and replaces only an older report.
        other: the folder of a second port; the page then has both side by side.

    Raises:
        UsageError: there is no port, or `out` is a file that is not a report.
        FileError: a record is damaged, or the report cannot be written.
        ChecksumError: the model file is not the one that port.json describes.
    """
    folder, out, other = Path(asked.folder), asked.out, asked.other
    contents = read_contents(folder)
    second = None if other is None else read_contents(Path(other))
    if out:
        path = Path(out)
    elif second is None:
        path = folder / PAGE
    else:
        path = Path(f"{folder.resolve().name}-and-{second.folder.resolve().name}.html")
    target = path if out is None else behind_links(path)  # a link in the port is a stranger's
    _expect_replaceable(target)
    write_whole(target, page(contents) if second is None else page_of_two(contents, second))
    missing = dict(missing_sections(contents, str(folder))) if second is None else {}
    return Report(path, sections(contents), missing)


def _expect_replaceable(target: Path) -> None:
    """Expect that a report may be written to `target`: nothing stands there, or an older report."""
    if target.is_dir():
        raise UsageError(
            "expected a file to write the report to, got a folder",
            where=target,
            next=f"give {OUT} the name of a file",
        )
    if not target.exists():
        return
    if not is_plain(target):
        raise UsageError(
            "expected a file to write the report to, got a link, a pipe or a device",
            where=target,
            next=f"give {OUT} the name of a file",
        )
    try:
        with target.open("rb") as file:
            signed = SIGNATURE in file.read(_SIGNED_WITHIN)
    except OSError as error:
        raise FileError(
            f"cannot be read: {error.strerror}", where=target, next=f"choose another {OUT}"
        ) from None
    if not signed:
        raise UsageError(
            "the file is not one of porter's reports, so it is not replaced",
            where=target,
            next=f"choose another {OUT}",
        )
