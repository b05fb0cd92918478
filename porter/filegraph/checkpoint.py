"""What every reader returns: the tensors of one weights file, under the names that the file gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import CannotRun
from porter.base.name_tables import JsonObject
from porter.filegraph.file_graph import FileGraph
from porter.files import Digests

UNREAD = "read without the graph"
"""What the note begins with that says why a reader gives no graph of a file that carries one."""


Sidecars = Mapping[str, JsonObject | str]
"""Files of JSON beside a file of weights: by name, the object in each; of a damaged one, why it cannot be
read.
"""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one file.

    Attributes:
        path: where it was read from.
        format: one of the names that `porter inspect` prints, such as `keras-h5`.
        dialect: the framework whose names and axis order the tensors have; None if the file does not tell
            (safetensors).
        tensors: name to array, in the file's own axis order. Keras names are `layer/variable` without the
            `:0`.
        notes: what the reader removed or ignored, one line each: a wrapping key, a `module.` prefix.
        counted: names are `class_counter/variable` in Keras's topological order, because the file holds no
            layer names.
        graph: what the file's layers compute, where it says so.
        files: the checkpoint's files, if it is not the one file `path`.
        digests: of each of its files, if they were read with their digests
            (porter.formats.reading.read_with_digests).
        stated: what the file says of its model by name, as porter writes it into a file that can hold it
            (porter.conversion).
        beside: the files of JSON that belong to it, such as the Hub's config.json.
        scaling: names of layers that scale the input, in a file that does not say what they compute.
    """

    path: Path
    format: str
    dialect: str | None
    tensors: NamedArrays = field(repr=False)
    notes: tuple[str, ...] = ()
    counted: bool = False
    graph: FileGraph | None = field(default=None, repr=False)
    files: tuple[Path, ...] = field(default=(), repr=False)
    stated: Mapping[str, str] = field(default_factory=dict, repr=False)
    beside: Sidecars = field(default_factory=dict, repr=False)
    scaling: tuple[str, ...] = ()
    digests: Digests = field(default_factory=dict, repr=False)

    @property
    def unread(self) -> str | None:
        """The note that says why it has no graph, though the file carries one; None if there is none."""
        return next((note for note in self.notes if note.startswith(UNREAD)), None)

    @property
    def stored_tensors(self) -> dict[str, Array]:
        """The tensors without those that the reader computed from the graph, which are no weights of the
        file.
        """
        computed = self.graph.evaluated if self.graph is not None else {}
        return {name: array for name, array in self.tensors.items() if name not in computed}

    @property
    def carried(self) -> FileGraph:
        """The file's graph, to be run.

        Raises:
            CannotRun: it carries none.
        """
        if self.graph is None:
            raise CannotRun("this file carries no graph", where=self.path)
        return self.graph

    @property
    def sha256(self) -> str:
        """The sha256 of the one file; for several files, that of their names and digests, in lines as
        sha256sum prints them.
        """
        if len(self.digests) == 1:
            (digest,) = self.digests.values()
            return digest["sha256"]
        lines = "".join(f"{digest['sha256']}  {path.name}\n" for path, digest in sorted(self.digests.items()))
        return hashlib.sha256(lines.encode()).hexdigest()
