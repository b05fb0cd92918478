"""Reads and checks a port's records: port.json, and the details that `porter eval` writes beside it.

Both come from strangers. Numbers may be infinite, not a number or null, and the drawings and texts have to accept that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from porter.errors import FileError
from porter.evaluation.details import DETAILS
from porter.evaluation.results import Evaluation, Study
from porter.files import expect_plain
from porter.port import RECORD, Port, Record, read_port

MAX_DETAILS_BYTES = 16 << 20
MAX_PAIRS = 4000
MAX_PHOTOS = 12

T = TypeVar("T")
Number = float | None


@dataclass(frozen=True)
class NodeError:
    """A compared node (porter.verification.parity.NodeDistance); None means infinitely far."""

    path: str
    rel_l2: Number
    max_abs: Number
    limit: Number

    @property
    def ok(self) -> bool:
        """Whether its distance is finite and within its limit."""
        return self.rel_l2 is not None and self.limit is not None and 0 <= self.rel_l2 <= self.limit


@dataclass(frozen=True)
class LogitError:
    """The distance of the logits (porter.verification.numbers.Distance)."""

    max_abs: Number
    rel_l2: Number
    snr_db: Number
    psnr_db: Number
    argmax_equal: bool | None


@dataclass(frozen=True)
class TypeResult:
    """The comparison in one number type."""

    ok: bool
    logits: LogitError
    limit: Number
    source_rounding: Number
    rounds_from: str | None = None


@dataclass(frozen=True)
class FirstBad:
    path: str
    rel_l2: Number
    site: str | None
    source: str | None
    realised: str | None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShippedResult:
    """The proof of the shipped build, for a port with the pads of training (porter.verification.verdict.Shipped)."""

    reference: str
    rel_l2: Number
    argmax_differ: int
    images: int
    dtypes: Mapping[str, TypeResult]


@dataclass(frozen=True)
class GivenResult:
    """The proof by the user's own reference (porter.verification.verdict.GivenProof)."""

    reference: str
    dtypes: Mapping[str, TypeResult]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """The comparison of a port with its source, as port.json has it (porter.verification.verdict.Verdict.record)."""

    ok: bool
    reference: str
    dtype: str
    sizes: tuple[tuple[int, int], ...]
    inputs: int
    logits: LogitError
    first_bad: FirstBad | None
    nodes: Annotated[tuple[NodeError, ...], Field(min_length=1, max_length=20_000)]
    uncompared: tuple[str, ...]
    dtypes: Mapping[str, TypeResult]
    shipped: ShippedResult | None
    given: GivenResult | None = None
    top_changed: bool = False
    unexcited: tuple[str, ...] = ()

    @property
    def worst(self) -> NodeError:
        """The node farthest from its source."""
        return max(self.nodes, key=lambda node: node.rel_l2 if node.rel_l2 is not None and node.rel_l2 >= 0 else inf)

    @property
    def holds(self) -> bool:
        """Whether the figures, and not only the record's `ok`, say that the functions are equal."""
        others = [result for part in (self.shipped, self.given) if part is not None for result in part.dtypes.values()]
        return self.ok and all(found.ok for found in others) and not self.top_changed and all(node.ok for node in self.nodes)


@dataclass(frozen=True)
class Guess:
    """One of a photo's likeliest classes."""

    index: int
    name: str | None
    probability: Number


@dataclass(frozen=True)
class SamplePhoto:
    """A photo with both frameworks' guesses. `thumbnail` is a JPEG in base64, `labels` as in porter.data.photos.Photo."""

    name: str
    labels: tuple[int, ...]
    thumbnail: str | None
    source: Annotated[tuple[Guess, ...], Field(max_length=5)] | None
    port: Annotated[tuple[Guess, ...], Field(max_length=5)]


@dataclass(frozen=True)
class Details:
    """The content of evaluation.json, which `porter eval` writes. `pairs` are logits of the source and of the port."""

    pairs: Annotated[tuple[tuple[Number, Number], ...], Field(max_length=MAX_PAIRS)] | None = None
    photos: Annotated[tuple[SamplePhoto, ...], Field(max_length=MAX_PHOTOS)] | None = None


@dataclass(frozen=True)
class Contents:
    """Everything that a report shows. A part that was never made is None."""

    folder: Path
    record: Record
    comparison: Comparison | None
    evaluation: Evaluation | None
    study: Study | None
    details: Details


def read_contents(folder: Path) -> Contents:
    """Reads a port's records. porter.port.read_port compares the port's files with their digests, so the figures are theirs.

    Raises:
        UsageError: there is no port. FileError: a record is damaged or too large. ChecksumError: the model file is another one.
    """
    port = read_port(folder)
    return Contents(
        folder=folder,
        record=port.record,
        comparison=_part(port, "parity", TypeAdapter(Comparison).validate_python),
        evaluation=_part(port, "evaluation", _evaluation),
        study=_part(port, "study", TypeAdapter(Study).validate_python),
        details=_read_details(folder / DETAILS),
    )


def _evaluation(fields: dict[str, Any]) -> Evaluation:
    """The inverse of Evaluation.summary, which merges the fields of the accuracy and the judgement into its own."""
    return TypeAdapter(Evaluation).validate_python({**fields, "accuracy": fields, "judgement": fields})


def _part(port: Port, name: str, read: Callable[[Any], T]) -> T | None:
    value = getattr(port.record, name)
    if value is None:
        return None
    try:
        return read(value)
    except ValidationError as error:
        raise _damaged(error, port.folder / RECORD, name) from None


def _read_details(path: Path) -> Details:
    if not path.is_file():
        return Details()
    expect_plain(path)
    if path.stat().st_size > MAX_DETAILS_BYTES:
        raise FileError(f"this file is too large to be porter's, at most {MAX_DETAILS_BYTES >> 20} MiB are read", where=str(path))
    try:
        return TypeAdapter(Details).validate_json(path.read_bytes())
    except ValidationError as error:
        raise _damaged(error, path) from None


def _damaged(error: ValidationError, path: Path, *above: str) -> FileError:
    first = error.errors()[0]
    place = ".".join(map(str, (*above, *first["loc"]))) or "the top"
    return FileError(f"{first['msg']} at {place}", where=str(path), next="run the command that wrote it again")
