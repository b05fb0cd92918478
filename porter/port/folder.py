"""The port: a folder with the destination model and port.json, the record of how it was made and of its input
and output.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from porter.base.calls import takes
from porter.base.commands import CONVERT, FRAMEWORK, VARIANT, ZOO, LoadOptions
from porter.base.dtypes import Dtype
from porter.base.errors import FileError, GraphError, UsageError
from porter.data.preprocess import ProtocolError
from porter.data.timm_config import CONFIG_FILE
from porter.files import Replaceable, expect_plain, is_plain, recover_folder, write_whole
from porter.files.locks import locked
from porter.formats.limits import read_json
from porter.frameworks import Destination, OwnTensors, Tensors, get_destination, is_converted
from porter.graph import Graph, tensor_shapes
from porter.graph.left_out import notes_on
from porter.graph.memory_bounds import expect_bounded
from porter.graph.plan import Plan, make_plan
from porter.graph.record import from_record
from porter.padding import ANY
from porter.port.digests import AGAIN, advice_for_other_model, expect_digest
from porter.port.port_record import Record
from porter.port.recorded_files import first_complaint

RECORD, DETAILS, PAGE = "port.json", "evaluation.json", "report.html"
"""In the folder of a port: its record, what an evaluation keeps, and the page of a report."""
INTO_RECORD, INTO_SOURCE = "into.json", "source.safetensors"
"""In the folder of a filled class (porter.comparison.transfer): the table of the transfer with the comparison
that proves it, and the source's tensors, where its own file needs a framework to be read.
"""
_NAMES = "|".join(map(re.escape, (RECORD, DETAILS, PAGE, INTO_RECORD, INTO_SOURCE, CONFIG_FILE)))
OWN_FOLDERS = Replaceable(
    (RECORD, INTO_RECORD),
    re.compile(rf"{_NAMES}|model[.-][\w.-]+|(test_)?convert_\w+\.py|__pycache__|\..+\.porter-(new|lock)"),
)
"""Ports and filled classes, with what an import of their code or a killed write leaves there."""
MAX_RECORD_BYTES = 64 << 20

MOST_LINES = 200
"""The most evaluations that port.json lists."""


@dataclass(frozen=True)
class StoredPort:
    """A port on disk, read and validated."""

    folder: Path
    record: Record = field(repr=False)
    graph: Graph = field(repr=False)
    plan: Plan = field(repr=False)
    destination: Destination = field(repr=False)

    def tensors(self) -> OwnTensors:
        """Read the port's canonical tensors as stored (porter.graph.tensor_shapes)."""
        return self.destination.read_port(self.folder, self.plan, self.record.layers)

    def build(self, dtype: Dtype | None = None, device: str = "cpu", tensors: Tensors | None = None) -> Any:
        """Build the model from port.json's graph (never from model.py), in `dtype` or the port's own type,
        with `tensors` or its own tensors.
        """
        engine, record = self.destination.ENGINE, self.record
        return engine.build(
            self.plan, tensors or self.tensors(), record.layers, dtype or record.dtype, device
        )


class LoadedModel(Protocol):
    """torch's `nn.Module` in eval mode, a Keras model, or what runs the port's file on arrays of numpy. It is
    called with a batch of the framework's own kind, and has the attributes that the framework gives it.
    """

    def __call__(self, batch: Any, /) -> Any: ...

    def __getattr__(self, name: str, /) -> Any: ...


@takes(LoadOptions)
def load(asked: LoadOptions) -> LoadedModel:
    """Load the model of a port, built from port.json and never from model.py."""
    model: LoadedModel = read_port(Path(asked.folder)).build(device=asked.device)
    return model


def port_at(path: Path, *, verify_digests: bool = True) -> StoredPort | None:
    """Read the port whose folder, record or model file is `path`; None for any other path.

    A port.json beside a file that it does not list has nothing to do with the file, and may be anybody's. A
    file that does not hold the port's tensors is read as others' are.

    Args:
        verify_digests: as for `read_port`.
    """
    if (path / RECORD).is_file():
        return read_port(path, verify_digests=verify_digests)
    # a file inside a port's folder
    record = path.parent / RECORD
    if not is_plain(record) or path.name not in (RECORD, *_model_files(record)):
        return None
    port = read_port(path.parent, verify_digests=verify_digests)
    holds_tensors = not is_converted(port.destination)
    return port if holds_tensors or path.name == RECORD else None


def model_file(path: Path) -> Path:
    """Return the file of weights of a port's folder, which may be another one than porter wrote; every other
    path as it is.
    """
    if not (path / RECORD).is_file():
        return path
    return path / read_port(path, verify_digests=False).destination.MODEL_FILE


def _model_files(record: Path) -> tuple[str, ...]:
    """Return the names of a model's files that a port.json lists, which is not validated; none if it is not
    like one of porter's.
    """
    try:
        is_too_large = record.stat().st_size > MAX_RECORD_BYTES
        content = read_json("" if is_too_large else record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    model = content.get("model") if isinstance(content, dict) else None
    return tuple(model) if isinstance(model, dict) else ()


def _made_by(path: Path) -> str:
    """Return the command that makes a port of a path that is none: of that file or folder, or if nothing is
    there, of a variant.
    """
    is_empty = not any(path.iterdir()) if path.is_dir() else not path.exists()
    # A repository of the Hub is not on this disk.
    if is_empty and not str(path).startswith("hf:"):
        return f"{CONVERT.advise(subject=VARIANT, source=ZOO, to=FRAMEWORK)} makes one"
    return f"{CONVERT.advise(subject=path, to='torch')} makes one: name its folder"


def _destination_of(record: Record, path: Path) -> Destination:
    """Return the destination (a framework that ports are written for) that wrote a port.

    Raises:
        FileError: a plug-in added it, which is not installed.
    """
    try:
        return get_destination(record.framework)
    except UsageError:
        others = [name for name in record.versions if name not in ("porter", "numpy")]
        raise FileError(
            f"the port is written for '{record.framework}', which this porter does not have",
            where=path,
            next=f"install the package that adds it: {' or '.join(others) or 'port.json does not say which'}",
        ) from None


def read_port(folder: Path, *, verify_digests: bool = True) -> StoredPort:
    """Read a port's record; its tensors are read when they are needed.

    Args:
        verify_digests: whether the digests of its model's files are compared with port.json. Other files in
            the folder are not the port's.

    Raises:
        UsageError: there is no port. FileError, GraphError: the record is damaged, too large or of another
            format.
        ChecksumError: a file's digest is not the one in port.json.
    """
    recover_folder(folder)
    path = folder / RECORD
    if not path.is_file():
        raise UsageError("this is not a port: it has no port.json", where=folder, next=_made_by(folder))
    record = _read_record(path)
    destination = _destination_of(record, path)
    if destination.MODEL_FILE not in record.model:
        raise FileError(f"'model' lacks {destination.MODEL_FILE}", where=path, next="convert again")
    if verify_digests:
        for name, sha256 in record.model.items():
            is_model = name == destination.MODEL_FILE
            advice = advice_for_other_model(folder, destination) if is_model else AGAIN
            expect_digest(folder / name, sha256, advice)
    try:
        graph = from_record(record.graph)
        expect_bounded(graph, record.input.size or record.input.native_size)
    except GraphError as error:
        raise error.at(f"{path}: {error.where}", error.next or "convert again") from None
    rows, *_ = tensor_shapes(graph).get(graph.output, {}).get("kernel", (record.classes,))
    if record.output == "logits" and rows != record.classes:
        raise FileError(
            f"expected 'classes' to be {rows}, as the graph's head has, got {record.classes}",
            where=path,
            next="convert again",
        )
    plan = make_plan(graph, record.input.size or ANY, destination.CAPABILITIES)
    # A class of keras.applications takes only the size that it was built for, even if its pads are right at
    # every size.
    only_size, native_size = record.input.size, record.input.native_size
    plan = replace(plan, only_size=only_size, usual_size=native_size, notes=notes_on(record.left_out))
    return StoredPort(folder, record, graph, plan, destination)


def _read_record(path: Path) -> Record:
    """Read and validate a port.json, whose graph is not read yet."""
    expect_plain(path)
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise FileError("this record is too large to be porter's", where=path, next="convert again")
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise FileError(first_complaint(error), where=path, next="convert again") from None
    except ProtocolError as error:
        raise FileError(f"{error.message} at preprocess", where=path, next="convert again") from None


def write_record(folder: Path, record: Record) -> None:
    """Write port.json into a port's folder; an old one stays until the new one is complete."""
    write_whole(folder / RECORD, json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False) + "\n")


def update_record(
    folder: Path,
    figures: Literal["evaluation", "study"],
    measured: dict[str, Any],
    line: dict[str, Any] | None = None,
) -> None:
    """Write figures that were measured later into a port's port.json, and a `line` into its list of
    evaluations. It is read again, because it may have changed meanwhile, and only one writer does so at a
    time.

    Raises:
        UsageError, FileError: as `read_port`, or the folder cannot be written.
    """
    with locked(folder / f".{RECORD}.porter-lock"):
        record = read_port(folder, verify_digests=False).record
        lines = record.evaluations if line is None else (*record.evaluations, line)[-MOST_LINES:]
        write_record(folder, record.model_copy(update={figures: measured, "evaluations": lines}))
