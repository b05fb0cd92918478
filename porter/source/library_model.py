"""The network of a folder of the Hub that no recipe has, as the library that wrote the folder builds it by
its config.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.base.dtypes import Array
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import Size
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.hub_folder import config_of
from porter.source.in_memory import Exported, save_and_read
from porter.source.opened import Opened
from porter.zoos.hub_folders import BuiltModel, build_stated


@dataclass(frozen=True)
class Built(Exported):
    """A file of tensors with the graph that a library gives them. The path and the digests of the checkpoint
    are those of the file.

    Attributes:
        format: of the file.
        by: the library and its version.
    """

    format: str
    by: str

    def as_model(self, opened: Opened) -> Opened:
        """Return `opened`, a source that was opened from the checkpoint, as the source of the file itself:
        with its format, and a note of who built the network. The library's model stays in `in_memory`, to be
        compared with.
        """
        network = f"the network is {self.saved.name}, as {self.by} builds it by {CONFIG_FILE}"
        notes = tuple(network if note == OWN_GRAPH else note for note in opened.file.notes)
        file = opened.file.model_copy(update={"format": self.format, "built_by": self.by, "notes": notes})
        return replace(opened, file=file, in_memory=self.saved)


def build_by_library(
    checkpoint: Checkpoint, outputs: Sequence[str] = (), size: Size | None = None
) -> Built | None:
    """Build the network that the config.json beside a file of tensors describes, by the library that it
    names, and return the file with the graph of that network. Return None if it names no network of a library
    that porter knows.

    Args:
        outputs: the layers at which the graph ends; the network's own outputs if empty.
        size: rows and columns of the image that the network is called with; the library's own if None.

    Raises:
        NotInstalled: the library is not installed.
        PorterError: as porter.zoos.hub_folders.build_stated and porter.source.in_memory.save_and_read.
    """
    built = build_stated(config_of(checkpoint), checkpoint)
    if built is None:
        return None
    exported = save_and_read(built.model, _example_image(built, size), outputs, size or built.size)
    saved = exported.saved
    # The graph and the tensors are the library's, and what identifies the file stays.
    of_file = replace(
        exported.checkpoint,
        path=checkpoint.path,
        digests=checkpoint.digests,
        beside=checkpoint.beside,
        notes=(*checkpoint.notes, *built.notes),
    )
    return Built(of_file, replace(saved, size=saved.size or built.size), checkpoint.format, built.by)


def _example_image(built: BuiltModel, size: Size | None) -> Array | None:
    """Return an image of zeros to call the network with; None if its library does not say the channels and
    the sides.
    """
    rows, columns = size or (None, None)
    sides = built.size if rows is None or columns is None else (rows, columns)
    if built.channels is None or sides is None:
        return None
    return np.zeros((1, built.channels, *sides), np.float32)
