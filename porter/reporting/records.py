"""Reads and checks a port's records: port.json, and the details that `porter eval` writes beside it.

Both come from strangers. Numbers may be infinite or not a number, and the drawings and texts have to accept
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from porter.base.errors import FileError
from porter.evaluation.details import Details
from porter.evaluation.padding_study.study_results import Study
from porter.evaluation.results import Evaluation, RunLine
from porter.files import expect_plain
from porter.port import DETAILS, RECORD, Record, StoredPort, read_port
from porter.port.recorded_files import first_complaint
from porter.verification.results import VerdictRecord

MAX_DETAILS_BYTES = 16 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class Contents:
    """Everything that a report shows. A part that was never made is None."""

    folder: Path
    record: Record
    comparison: VerdictRecord | None
    evaluation: Evaluation | None
    runs: tuple[RunLine, ...]
    study: Study | None
    details: Details


def read_contents(folder: Path) -> Contents:
    """Read a port's records. porter.port.read_port compares the port's files with their digests, so the
    figures are theirs.

    Raises:
        UsageError: there is no port.
        FileError: a record is damaged or too large.
        ChecksumError: the model file is another one.
    """
    port = read_port(folder)
    return Contents(
        folder=folder,
        record=port.record,
        comparison=_read_part(port, "parity", VerdictRecord),
        evaluation=_read_part(port, "evaluation", Evaluation),
        runs=_read_part(port, "evaluations", tuple[RunLine, ...]) or (),
        study=_read_part(port, "study", Study),
        details=_read_details(folder / DETAILS),
    )


def _read_part(port: StoredPort, name: str, schema: type[T]) -> T | None:
    """Return a part of port.json, checked; None if the port has none.

    Args:
        schema: what the part has to be.

    Raises:
        FileError: it is something else.
    """
    value = getattr(port.record, name)
    if value is None:
        return None
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        raise _damage_error(error, port.folder / RECORD, name) from None


def _read_details(path: Path) -> Details:
    """Read the details beside port.json; they are empty for a port that was not evaluated, or by an older
    porter.
    """
    if not path.is_file():
        return Details()
    expect_plain(path)
    if path.stat().st_size > MAX_DETAILS_BYTES:
        raise FileError(
            f"this file is too large to be porter's, which have at most {MAX_DETAILS_BYTES >> 20} MiB",
            where=path,
        )
    try:
        return TypeAdapter(Details).validate_json(path.read_bytes())
    except ValidationError as error:
        raise _damage_error(error, path) from None


def _damage_error(error: ValidationError, path: Path, *above: str) -> FileError:
    """Make the error of a damaged record from pydantic's, with its first complaint.

    Args:
        above: the names within the file under which the damaged part stands.
    """
    return FileError(first_complaint(error, *above), where=path, next="run the command that wrote it again")
