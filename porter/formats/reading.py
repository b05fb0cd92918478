"""Reads weights files of every format. The content tells the format, and only that format's reader is
imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from porter.base.dtypes import is_floating
from porter.base.errors import FileError, MappingError, UsageError, some
from porter.base.options import OUTPUTS, WEIGHTS
from porter.base.package import page
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.files import LazyDigests, digests
from porter.formats.format import Format, Reader
from porter.formats.limits import MOST_LAYERS, expect_held
from porter.formats.recognition import READABLE, known_format, recognise
from porter.padding import Size

_REAL_NAMES = re.compile(
    r"(?:.*[./])?(?:weight|bias|running_mean|running_var|(?:\w+_)?kernel|gamma|beta|moving_mean|moving_variance)"
)
"""Names of tensors that have to be real numbers, in PyTorch and in Keras."""
_MOST_FILES = 1000
"""The most files of a folder that are recognised for advice."""
_TRIED_SIZE = (256, 256)
"""Rows and columns at which a graph is tried that cannot be read at all sizes: networks halve an image up to
eight times.
"""


def read_checkpoint(
    path: Path, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
) -> Checkpoint:
    """Return the tensors of a weights file of any name, in any of the formats of
    porter.formats.recognition.READABLE.

    Reading imports TensorFlow for TensorFlow's graphs, and no other framework. Weights that torch's modules
    compute from stored tensors are given as computed.

    Args:
        outputs: names of values of the file's graph, which ends at them.
        size: rows and columns of the image, for a graph that leaves them open and computes with them what
            porter has no op for, such as a detector's anchors. Any other graph stays open.
        weights: another file, which holds the tensors of this one's graph: all of them.

    Raises:
        UsageError: the file has no graph that `outputs` could end, or no such values; or its tensors stand in
            it.
        MappingError: the tensors of `weights` are not those of the graph.
        FileError: the file does not exist, is damaged, has a format that porter does not read, or has no
            tensors it can use.
        NotInstalled: it is a graph of TensorFlow's, and TensorFlow is not installed.
    """
    checkpoint = _read_stored(path, outputs, size, weights)
    format = known_format(checkpoint.format)
    if format is None or not format.parametrised:
        return checkpoint
    from porter.formats.torch.computed_weights import with_computed_weights

    return with_computed_weights(checkpoint)


def _files_in_folder(path: Path) -> str | None:
    """Return advice that names the files of weights in a folder; None for anything else, and for a folder
    without any.
    """
    if not path.is_dir():
        return None
    files = (file for file in sorted(path.iterdir()) if file.is_file())
    named = [file.name for file in islice(files, _MOST_FILES) if recognise(file).read is not None]
    return f"name the weights file in it: {some(named)}" if named else None


def _read_stored(
    path: Path, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
) -> Checkpoint:
    """Return the checkpoint of a file, by the reader of its format. Raise FileError for a format that porter
    does not read and for tensors or nodes that the file cannot have, and UsageError for outputs of a file
    without a graph.
    """
    format = recognise(path)
    if format.read is None:
        raise FileError(
            f"expected weights, got {format.what}",
            where=path,
            next=_files_in_folder(path)
            or format.advice
            or f"{page('files.md')} says which files porter reads",
        )
    if outputs and format.engine is None:
        raise UsageError(
            f"{format.what} carries no graph",
            where=OUTPUTS,
            next="leave it out, or give a file with a graph",
        )
    read = format.read if weights is None else _reader_with_weights(format, path, weights)
    checkpoint = _read_at_size(read, path, outputs, size)
    _expect_tensors(checkpoint, path)
    if checkpoint.graph is not None:
        _expect_nodes(checkpoint.graph, checkpoint.tensors, path)
    return checkpoint


def _expect_tensors(checkpoint: Checkpoint, path: Path) -> None:
    """Expect tensors or a graph, no more bytes of tensors than the files can hold, and real numbers under the
    names that layers' tensors have. Raise FileError otherwise.
    """
    if not checkpoint.tensors and checkpoint.graph is None:
        notes = "".join(f"; {note}" for note in checkpoint.notes)
        raise FileError(
            f"this {checkpoint.format} file holds no tensors{notes}",
            where=path,
            next="save the weights into it",
        )
    total = sum(array.nbytes for array in checkpoint.tensors.values())
    expect_held(total, sum(file.stat().st_size for file in checkpoint.files or (path,)), path)
    for name, array in checkpoint.tensors.items():
        if _REAL_NAMES.fullmatch(name) and not is_floating(array):
            next = "use the model from before it was quantised"
            raise FileError(f"tensor '{name}' is {array.dtype}, expected real numbers", where=path, next=next)


def _expect_nodes(graph: FileGraph, tensors: Collection[str], path: Path) -> None:
    """Expect a graph of no more nodes than porter takes, whose tensors are those of the file. Raise FileError
    otherwise.
    """
    if len(graph.nodes) > MOST_LAYERS:
        raise FileError(
            f"the file's graph has {len(graph.nodes)} layers, more than the {MOST_LAYERS} that porter takes",
            where=path,
            next=f"save a part of the model, or end it earlier: {OUTPUTS.placeholder}",
        )
    for node in graph.nodes:
        for stored in node.tensors.values():
            if stored.name not in tensors:
                message = (
                    f"'{node.name}' needs the tensor '{stored.name}', which the file does not hold as numbers"
                )
                raise FileError(message, where=path, next="fetch or export it again")


def _reader_with_weights(format: Format, path: Path, weights: Path) -> Reader:
    """Return the reader of a format with the tensors of another file: a file of the format that holds this
    one's tensors, or any weights for a format that has `renew`. Raise UsageError for other formats.
    """
    assert format.read is not None
    if format.weights is not None:
        weights_format = recognise(weights)
        if weights_format.name != format.weights:
            expected_format = known_format(format.weights)
            what = "tensors" if expected_format is None else expected_format.what
            message = f"expected {what} beside {format.what}, got {weights_format.what}"
            raise UsageError(message, where=weights, next="name the file of the model's weights")
        return partial(format.read, weights=weights)
    if format.renew is None:
        graphs = ", ".join(known.what for known in READABLE if known.weights or known.renew)
        next = (
            "load the weights into the model and save the whole model; porter does so only for a port "
            f"and {graphs}"
        )
        raise UsageError(
            f"{format.what} has its own tensors, and {WEIGHTS} gives others", where=path, next=next
        )
    weights_checkpoint = _read_stored(weights)
    read_renewed = partial(format.renew, tensors=weights_checkpoint.tensors)

    def read(path: Path, /, *arguments: Any, **keywords: Any) -> Checkpoint:
        """Read the file with the other one's tensors, and name both as the checkpoint's files."""
        try:
            checkpoint = read_renewed(path, *arguments, **keywords)
        except MappingError as error:
            raise error.at(error.where or str(weights)) from None
        files = checkpoint.files or (path,)
        files_of_weights = weights_checkpoint.files or (weights,)
        return replace(checkpoint, files=(*files, *files_of_weights))

    return read


def _read_at_size(read: Reader, path: Path, outputs: Sequence[str], size: Size | None) -> Checkpoint:
    """Return a file as read, at a size if porter can read its graph only at one. Where nobody states a size,
    a graph that one would help is marked `sizable`, so that messages can ask for it.
    """
    checkpoint = read(path, outputs)
    is_stated = size is not None and None not in size
    graph = checkpoint.graph
    format = known_format(checkpoint.format)
    sizes_itself = format is not None and format.sizes_itself
    # A size changes nothing where there is no graph, or one that has a size or no foreign node.
    if graph is None or graph.built_size or not graph.foreign or sizes_itself:
        return checkpoint
    if is_stated:
        sized = read(path, outputs, size)
        return checkpoint if sized.graph is None else sized
    tried = read(path, outputs, _TRIED_SIZE).graph
    helps = tried is not None and not tried.foreign
    return replace(checkpoint, graph=replace(graph, sizable=True)) if helps else checkpoint


def read_with_digests(
    path: Path,
    with_md5: bool | None = True,
    outputs: Sequence[str] = (),
    size: Size | None = None,
    weights: Path | None = None,
) -> Checkpoint:
    """Return the checkpoint that `read_checkpoint` returns, with the digests of each file: sha256 and, if
    asked for, md5.

    A file is hashed while it is read: hashing takes as long, and leaves the interpreter to the reader.

    Args:
        with_md5: None to compute each digest when it is first read.
    """
    if with_md5 is None:
        checkpoint = read_checkpoint(path, outputs, size, weights)
        files = checkpoint.files or (checkpoint.path,)
        return replace(checkpoint, digests={file: LazyDigests(file) for file in files})
    algorithms = ("sha256", "md5") if with_md5 else ("sha256",)
    with ThreadPoolExecutor(1) as executor:
        digests_of_file = executor.submit(digests, path, algorithms) if path.is_file() else None
        checkpoint = read_checkpoint(path, outputs, size, weights)
        # `files` is empty where the named path is the only file.
        if digests_of_file is not None and not checkpoint.files:
            return replace(checkpoint, digests={checkpoint.path: digests_of_file.result()})
    by_file = {file: digests(file, algorithms) for file in checkpoint.files or (checkpoint.path,)}
    return replace(checkpoint, digests=by_file)
