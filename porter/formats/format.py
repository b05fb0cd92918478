"""What a format is: how a file of it is told from others, and what reads it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from porter.base.dtypes import NamedArrays
from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.files.zips import DAMAGED
from porter.formats.protobuf import first_fields
from porter.padding import Size

HEAD_BYTES = 4096
TAIL_BYTES = 8
ZIP_MAGIC = b"PK\x03\x04"


class Reader(Protocol):
    """Reads a file. `outputs` are names of values of its graph, which it gives in place of its own outputs;
    `size` is of its image, where the graph leaves it open. `weights` holds its tensors (Format.weights),
    otherwise those that the file itself names.
    """

    def __call__(
        self,
        path: Path,
        /,
        outputs: Sequence[str] = (),
        size: Size | None = None,
        weights: Path | None = None,
    ) -> Checkpoint: ...


class RenewingReader(Protocol):
    """Reads a file as a `Reader` does, with other tensors, by the names of its own, in their place."""

    def __call__(
        self,
        path: Path,
        /,
        outputs: Sequence[str] = (),
        size: Size | None = None,
        *,
        tensors: NamedArrays,
    ) -> Checkpoint: ...


@dataclass(frozen=True)
class Content:
    """The part of a file by which its format is recognised. Suffixes lie, so only TensorFlow's checkpoints,
    which are several files, are told by name.

    Attributes:
        head: the first bytes of the file; empty for an empty file, and for a path that is not a file.
        tail: its last eight bytes.
    """

    path: Path
    head: bytes = b""
    tail: bytes = b""

    @cached_property
    def members(self) -> frozenset[str] | None:
        """Return the names in a zip archive; None for any other file, and for an archive that is cut short or
        damaged.
        """
        if not self.head.startswith(ZIP_MAGIC):
            return None
        try:
            with zipfile.ZipFile(self.path) as archive:
                return frozenset(archive.namelist())
        except DAMAGED:
            return None

    @cached_property
    def inner_members(self) -> frozenset[str]:
        """The names in a zip archive without its top folder; torch puts everything in one, named after the
        file.
        """
        return frozenset(name.split("/", 1)[1] for name in self.members or () if "/" in name)

    @cached_property
    def text(self) -> str | None:
        """Return the first bytes as text; None where they are empty, no UTF-8 or have control characters."""
        is_whole_file = len(self.head) < HEAD_BYTES
        try:
            # Of a longer file, the last character may be cut in two.
            text = self.head.decode() if is_whole_file else self.head[:-4].decode("utf-8", "ignore")
        except UnicodeDecodeError:
            return None
        has_control = any(ord(character) < 32 and character not in "\t\n\r\f" for character in text)
        return None if has_control or not text else text

    @cached_property
    def fields(self) -> tuple[tuple[int, int | bytes], ...]:
        """The first two fields of a protobuf message (`first_fields`). Protobuf has no magic: these tell
        messages apart.
        """
        return tuple(first_fields(self.head, 2))


@dataclass(frozen=True)
class Format:
    """One format of files.

    Attributes:
        name: as `porter inspect` prints it and port.json records it.
        what: a file of the format, as a sentence names it: `an ONNX model`.
        matches: tells whether a path's content is of this format, if no earlier format in the table matches.
        read: reads such a file; None if porter does not.
        advice: what to do with a file that porter does not read.
        framework: whose own format it is; None if several frameworks write it.
        engine: what runs the graph that such a file carries; None if it carries none that can be run.
        rows: the module whose `program` tells porter's own engine (porter.filegraph.program) what the
            file's operators compute, one row for each, if that engine is what runs it. It reads the file's
            own attributes, and nothing of what the reader makes of them.
        whole: a file of the same framework that carries its graph, as advice where one without it does not
            say enough.
        weights: the format of the other file of a model, which holds the tensors of this one's graph.
        renew: reads such a file with the tensors of another one; None if porter does not.
        sizes_itself: the reader tries sizes by itself, and takes none.
        parametrised: torch's modules may compute weights from the tensors of such a file.
        keeps_order: its tensors stand in the order in which the layers were made; others sort names or keep
            any order.
    """

    name: str
    what: str
    matches: Callable[[Content], bool]
    read: Reader | None = None
    advice: str | None = None
    framework: str | None = None
    engine: str | None = None
    rows: str | None = None
    whole: str | None = None
    weights: str | None = None
    renew: RenewingReader | None = None
    sizes_itself: bool = False
    parametrised: bool = False
    keeps_order: bool = False


def reader(module: str, function: str) -> Reader:
    """Return a reader that calls a function of a module, which is imported when the first file is read. The
    function takes `outputs` and `size` if its files have graphs.
    """

    def read(
        path: Path, /, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
    ) -> Checkpoint:
        return _call(module, function, path, outputs=outputs, size=size, weights=weights)

    return read


def renewing_reader(module: str, function: str) -> RenewingReader:
    """Return a reader as `reader` does, by a function that takes `tensors` too."""

    def read(
        path: Path, /, outputs: Sequence[str] = (), size: Size | None = None, *, tensors: NamedArrays
    ) -> Checkpoint:
        return _call(module, function, path, outputs=outputs, size=size, tensors=tensors)

    return read


def _call(module: str, function: str, path: Path, **stated: Any) -> Checkpoint:
    """Call a function of a module that reads a file. What is not asked for is left out, because the function
    may not take it; no tensors at all are what another file gives.
    """
    arguments = {name: value for name, value in stated.items() if value or isinstance(value, Mapping)}
    checkpoint: Checkpoint = getattr(import_module(module), function)(path, **arguments)
    return checkpoint


def starts_with(*magics: bytes) -> Callable[[Content], bool]:
    """Return a test whether a file begins with one of `magics`."""
    return lambda content: content.head.startswith(magics)


def look_at(path: Path) -> Content:
    """Return the content of a file; of a path that is not a file, only the path.

    Raises:
        FileError: the file cannot be opened.
    """
    if not path.is_file():
        return Content(path)
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            stream.seek(max(0, stream.seek(0, 2) - TAIL_BYTES))
            return Content(path, head, stream.read(TAIL_BYTES))
    except OSError as error:
        raise FileError(f"the file cannot be read: {error.strerror}", where=path) from None
