"""What the reader of a file and the engine that runs it both take from the same code of porter's, and
which other program's reading it is held to: a mistake in it would be on both sides of every comparison.

A container is decoded once, because a second decoder of porter's would be by the same hands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from porter.base.errors import CannotRun, Contradiction, NotInstalled, escaped
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import KnownSize
from porter.source.opened import Opened


class Witness(Protocol):
    """A program that porter did not write and that reads the same in a file. These are the module-level names
    of a `witness.py`.
    """

    NAME: str

    def disagreement(self, checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
        """Say what it reads otherwise than porter; None where it reads the same.

        Args:
            size: rows and columns of an image, where the file leaves them open.
            whole: the outputs are those of the file, not values that a user names.

        Raises:
            NotInstalled: it is not installed.
            CannotRun: it does not read this file.
        """


@dataclass(frozen=True)
class Shared:
    """What both sides share of files of a format.

    Attributes:
        what: in words.
        witness: the module of what else reads it.
        named: whether a user may name it instead, as with `--outputs`.
    """

    what: str
    witness: str
    named: bool = False


_HDF5 = Shared("the file's tensors", "porter.formats.keras.witness")
SHARED: Mapping[str, Shared] = {
    "tflite": Shared("the file's operators and tensors", "porter.frameworks.tflite.witness"),
    "frozen-graph": Shared("where the file's graph ends", "porter.frameworks.tf.frozen.witness", named=True),
    **dict.fromkeys(("keras-h5", "keras-weights-h5", "keras", "keras-hub"), _HDF5),
}
"""The code that reader and engine share, by format. For others, docs/proof.md says what is shared."""


@dataclass(frozen=True)
class Testimony:
    """What was asked of a witness.

    Attributes:
        held: what was held to it, or why it was not, in sentences.
        unheld: the witness that could not be asked and why, in words.
    """

    held: tuple[str, ...] = ()
    unheld: str | None = None


def ask_witness(opened: Opened, size: KnownSize, whole: bool) -> Testimony:
    """Ask the witness of a source's file (a program that porter did not write, such as h5py for the tensors
    of HDF5) whether it reads what porter reads, and return what it says. The answer is empty where the format
    has no witness, the model is in memory, or the outputs are not the file's own; it says so where the
    witness cannot be run.

    Args:
        size: rows and columns of an image, where the file leaves them open.
        whole: the outputs are those of the file, not values that a user names.

    Raises:
        Contradiction: the witness reads something else than porter.
    """
    if opened.in_memory is not None:  # its file is gone, and the port is compared with the model itself
        return Testimony()
    checkpoint = opened.fitted.checkpoint if opened.fitted else None
    shared = SHARED.get(checkpoint.format) if checkpoint else None
    if checkpoint is None or shared is None or (shared.named and not whole):
        return Testimony()
    witness = cast(Witness, import_module(shared.witness))
    try:
        disagreement = witness.disagreement(checkpoint, size, whole)
    except (NotInstalled, CannotRun) as error:
        advice = f" ({error.next})" if isinstance(error, NotInstalled) else ""
        held = f"{shared.what}: by porter's reading only, because {escaped(error.message)}{advice}"
        why = "is not installed" if isinstance(error, NotInstalled) else "does not run the file"
        return Testimony((held,), f"{witness.NAME}, which {why}")
    if disagreement is not None:
        raise Contradiction(disagreement, where=checkpoint.path)
    return Testimony((f"{shared.what}: held to {witness.NAME}",))
