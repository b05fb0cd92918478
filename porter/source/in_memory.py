"""A model in memory, read as the file that its framework saves it as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from porter.base.commands import Example, Model
from porter.base.dtypes import Array
from porter.base.errors import PorterError, UsageError
from porter.base.options import WEIGHTS, AnyPath
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_with_digests
from porter.frameworks.in_memory import Held, Saved, expect_subject, save_model
from porter.padding import Size
from porter.port import IN_MEMORY
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.opened import Opened

ModelWeights: TypeAlias = "Path | Model | Held"


def parse_weights(weights: AnyPath | Model | None) -> ModelWeights | None:
    """Return the weights that callers of the API give: a path, or the model in memory that a port was made
    from.

    Raises:
        UsageError: they are neither.
    """
    weights = None if weights is None else expect_subject(weights, "a file", str(WEIGHTS))
    return Path(weights) if isinstance(weights, str | PathLike) else weights


@dataclass(frozen=True)
class Exported:
    """A model in memory, as the file that its framework saves it as.

    Attributes:
        checkpoint: that file, as read.
        saved: what is run beside its port.
    """

    checkpoint: Checkpoint
    saved: Saved

    def as_model(self, opened: Opened) -> Opened:
        """Return `opened`, a source that was opened from the checkpoint, as the source that the model in
        memory is: with the model's name and notes, and the model itself to compare with.
        """
        saved = self.saved
        notes = (IN_MEMORY, *(note for note in opened.file.notes if note != OWN_GRAPH))
        next_step = "give an example of another size" if saved.size else "give a model that takes another"
        return replace(
            opened,
            sizes=replace(opened.sizes, otherwise=next_step),
            file=opened.file.model_copy(update={"file": saved.name, "notes": notes}),
            in_memory=saved,
        )


def save_and_read(
    model: Model | Held,
    example: Example = None,
    outputs: Sequence[str] = (),
    size: Size | None = None,
) -> Exported:
    """Save a model in memory, and return it as porter.formats.reading.read_with_digests reads a file.

    Where porter lacks an op for a graph of any size, the model is saved for one size, and then for one image:
    there more of it is constant.

    Raises:
        UsageError: it cannot be saved (porter.frameworks.in_memory), or has no graph that porter draws. Or as
            `read_with_digests`.
    """
    with TemporaryDirectory(prefix="porter-") as folder:
        saved = save_model(model, Path(folder), example, size)
        checkpoint = _read(saved, outputs, size)
        # While porter lacks an op, save the model with more of its shapes fixed.
        fixed = saved
        while (checkpoint.graph is None or checkpoint.graph.foreign) and fixed.save_fixed is not None:
            fixed = fixed.save_fixed()
            read_again = _read(fixed, outputs, size)
            if read_again.graph is None:
                continue
            if checkpoint.graph is None or not read_again.graph.foreign:
                checkpoint, saved = read_again, fixed
    if checkpoint.graph is None:
        raise UsageError(
            f"its program is {checkpoint.unread}",
            where=saved.name,
            next="change the model so that its graph can be drawn, or give its weights with a recipe's "
            "variant",
        )
    # The model itself cannot be run for these: nothing of it is kept to compare with.
    if outputs:
        note = f"the model itself gives other outputs, so its port is compared with {saved.graph} only"
        saved = replace(saved, make_copy=None, run_itself=None, notes=(*saved.notes, note))
    digests = {saved.path: {"sha256": digest_of_tensors(checkpoint.tensors)}}
    return Exported(replace(checkpoint, digests=digests), saved)


def checkpoint_of_variables(exported: Exported) -> Checkpoint | None:
    """Return the variables of a model whose graph has ops that porter lacks, as a checkpoint to be opened by
    a recipe. Return None if the graph can be read, or if the framework's checkpoints do not name variables.
    """
    checkpoint, saved = exported.checkpoint, exported.saved
    if checkpoint.graph is None or not checkpoint.graph.foreign or not saved.variables:
        return None
    note = (
        f"porter has no op for a part of {saved.graph}, so the graph is the recipe's that fits its variables"
    )
    return replace(
        checkpoint, format="nnx", dialect="jax", tensors=saved.variables, graph=None, notes=(note,)
    )


def _read(saved: Saved, outputs: Sequence[str], size: Size | None) -> Checkpoint:
    """Return the checkpoint of the file that a model in memory was saved as."""
    try:
        return read_with_digests(saved.path, with_md5=False, outputs=outputs, size=size or saved.size)
    except PorterError as error:
        raise naming_model(error, saved) from None


def naming_model(error: PorterError, saved: Saved) -> PorterError:
    """Change an error about the temporary file of a model so that it names the model, and return it."""
    error.where = error.where and error.where.replace(str(saved.path), saved.name)
    return error


def digest_of_tensors(tensors: Mapping[str, Array]) -> str:
    """Return the sha256 of a model's tensors with their names, types and shapes, in the order of the names.
    No file is hashed, because no two files of one model have the same bytes.
    """
    digest = sha256()
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
