"""The files that a port was made from and compared with, as port.json has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from porter.base.commands import MODEL, PORT
from porter.files import WeightsFile

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Strict(BaseModel):
    """A part of port.json."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def first_complaint(error: ValidationError, *above: str) -> str:
    """Return what pydantic says first of a damaged record, and where.

    Args:
        above: the names within the file under which the damaged part stands.
    """
    first = error.errors()[0]
    place = ".".join(map(str, (*above, *first["loc"]))) or "the top"
    return f"{first['msg']} at {place}"


class GraphFile(Strict):
    """The port or the file whose graph was ported with another file's tensors. The sha256 of a port is that
    of its model file.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]+$", max_length=255)]
    format: str
    sha256: Sha256


IN_MEMORY = "a model in memory"
"""The note on a source that is no file: the user held the model."""


class SourceFile(Strict):
    """The weights file that a port was made from.

    Attributes:
        published: whether the zoo publishes it; None in ports of older porters.
        graph: what the graph is of, if it is not the same file's.
        built_by: the library, with its version, that built the network which the config.json beside the file
            describes; None where the file or a recipe has the graph.
    """

    file: str
    format: str
    sha256: str
    published: bool | None = None
    notes: tuple[str, ...] = ()
    graph: GraphFile | None = None
    built_by: str | None = None

    @property
    def given(self) -> str:
        """The file, as a command gives it; in place of a port or of a model in memory, a word for it."""
        if self.format == "port":
            return PORT
        return MODEL if IN_MEMORY in self.notes else self.file

    @property
    def to_give(self) -> str | None:
        """What a command has to give again; None for the zoo's published file, which is fetched."""
        return None if self.published else self.given

    def is_published(self, file: WeightsFile | None) -> bool | None:
        """Return whether these are the zoo's published weights: as recorded, otherwise whether their sha256
        is that of the zoo's `file`. None where the zoo states no digest to compare; False if it has no file.
        """
        if self.published is not None:
            return self.published
        return False if file is None or self.format == "port" else file.has(self.sha256)


class ReferenceFile(Strict):
    """The user's own reference that a port was compared with (`--reference`). `maker` is what made the model,
    if the file is code: porter ran it then, and runs it again only if `--reference` names it again.
    """

    file: str
    sha256: Sha256
    maker: str | None
