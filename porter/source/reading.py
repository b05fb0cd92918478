"""Reads the file or the pair of files of a source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from porter.base.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_with_digests
from porter.padding import Size
from porter.source.hub_download import with_repository
from porter.source.hub_folder import FLAX_WEIGHTS, TF_WEIGHTS, config_of
from porter.source.place import File, FilePair

_TORCH_WORDS = {
    **dict.fromkeys(("kernel", "gamma", "scale", "embeddings", "embedding"), "weight"),
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "mean": "running_mean",
    "var": "running_var",
}
_COLLECTIONS = ("params", "batch_stats")
_OUTPUTS_FIRST = {2: (1, 0), 4: (3, 2, 0, 1)}
"""The order of the axes that puts a kernel's outputs first, as torch has them, by the number of axes."""


def read(
    place: File | FilePair, outputs: Sequence[str] = (), size: Size | None = None, md5: bool | None = True
) -> Checkpoint:
    """Read a file or a pair of files, and return its tensors and graph with the JSON beside it, under torch's
    names if older transformers wrote it. See porter.formats.reading.read_with_digests.

    Args:
        outputs: the names at which the graph ends; the file's own if empty.
        size: rows and columns, where the file states none.
        md5: whether the MD5 is computed besides the sha256, as there.
    """
    file, weights = (place, None) if isinstance(place, File) else (place.graph, place.weights)
    checkpoint = read_with_digests(file.path, md5, outputs, size, weights)
    return with_repository(_with_torch_names(replace(checkpoint, beside=file.beside)))


def _with_torch_names(checkpoint: Checkpoint) -> Checkpoint:
    """Return the file that the Hub calls TensorFlow's or Flax's weights with torch's names, if a config.json
    of transformers lies beside it; every other file as it is. transformers 5 has the classes of TensorFlow
    and Flax in torch only, so such a file is read as the class in torch has its tensors: under torch's names,
    and kernels with their outputs first.
    """
    if checkpoint.path.name not in (TF_WEIGHTS, FLAX_WEIGHTS) or not config_of(checkpoint).get("model_type"):
        return checkpoint
    from porter.formats.keras.read_h5 import read_scoped  # only this file of Keras's is read so

    tensors = read_scoped(checkpoint.path) if checkpoint.format == "keras-h5" else checkpoint.tensors
    writer = "TensorFlow" if checkpoint.format == "keras-h5" else "Flax"
    note = (
        f"transformers' {writer} class wrote it: porter reads its tensors with the names and axes of the "
        "torch class"
    )
    return replace(
        checkpoint, dialect="torch", tensors=dict(_in_torch_form(tensors)), notes=(*checkpoint.notes, note)
    )


def _in_torch_form(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors under the names that today's transformers gives them, and in torch's axis order:
    `params/resnet/encoder/layer_0/kernel` is `resnet.encoder.0.weight`.
    """
    for name, array in tensors.items():
        *modules, word = name.replace("_._", "/").split("/")
        # The name of the model's class, or of the collection of variables, comes first, and torch has none.
        if modules and (modules[0].startswith("tf_") or modules[0] in _COLLECTIONS):
            del modules[0]
        numbered = (re.sub(r"^layer_(?=\d+$)", "", module) for module in modules)
        if word == "kernel" and array.ndim in _OUTPUTS_FIRST:
            array = array.transpose(_OUTPUTS_FIRST[array.ndim])
        yield ".".join((*numbered, _TORCH_WORDS.get(word, word))), array
