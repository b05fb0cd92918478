"""Reads weights files of every format. The content tells the format, and only that format's reader is imported."""

from __future__ import annotations

import re
from pathlib import Path

from porter.dtypes import is_floating
from porter.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.limits import most_bytes
from porter.formats.recognition import READABLE, UNREADABLE, sniff

__all__ = ["read_checkpoint", "sniff"]

_REAL = re.compile(r"(?:.*[./])?(?:weight|bias|running_mean|running_var|(?:\w+_)?kernel|gamma|beta|moving_mean|moving_variance)")
"""Names of tensors that have to be real numbers, in PyTorch and in Keras."""


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a weights file of any name: Keras .h5, .weights.h5 and .keras, TensorFlow's checkpoints, frozen graphs and
    SavedModels, numpy's .npz (TensorNets), PyTorch, safetensors.

    Reading imports torch only for PyTorch's own formats, and TensorFlow only for TensorFlow's.

    Raises:
        FileError: the file does not exist, is damaged, has a format that porter does not read, or has no tensors it can use.
        MissingFramework: the format is PyTorch's or TensorFlow's own, and that framework is not installed.
    """
    format = sniff(path)
    if format not in READABLE:
        what, next = UNREADABLE[format]
        readable = (
            "porter reads Keras .h5, .weights.h5 and .keras, TensorFlow checkpoints, frozen .pb and SavedModels, .npz, PyTorch "
            ".pth and .safetensors"
        )
        raise FileError(f"expected weights, got {what}", where=str(path), next=next or readable)
    checkpoint = _read(path, format)
    if not checkpoint.tensors:
        raise FileError(f"this {checkpoint.format} file holds no tensors", where=str(path), next="save the weights into it")
    total, limit = (
        sum(array.nbytes for array in checkpoint.tensors.values()),
        most_bytes(sum(file.stat().st_size for file in checkpoint.files or (path,))),
    )
    if total > limit:
        raise FileError(f"the file declares {total} bytes of tensors, more than the {limit} it can hold", where=str(path))
    for name, array in checkpoint.tensors.items():
        if _REAL.fullmatch(name) and not is_floating(array):
            next = "use the model from before it was quantised"
            raise FileError(f"tensor '{name}' is {array.dtype}, expected real numbers", where=str(path), next=next)
    return checkpoint


def _read(path: Path, format: str) -> Checkpoint:
    match format:
        case "keras-h5":
            from porter.formats.keras.read_h5 import read_h5

            return read_h5(path)
        case "keras-weights-h5":
            from porter.formats.keras.read_keras import read_weights_h5

            return read_weights_h5(path)
        case "keras":
            from porter.formats.keras.read_keras import read_keras

            return read_keras(path)
        case "tf-checkpoint-v1" | "tf-checkpoint-v2":
            from porter.formats.tf_checkpoint.read import read_tf_checkpoint

            return read_tf_checkpoint(path)
        case "frozen-graph":
            from porter.formats.tf_graph.read import read_frozen_graph

            return read_frozen_graph(path)
        case "saved-model":
            from porter.formats.tf_graph.read import read_saved_model

            return read_saved_model(path)
        case "npz":
            from porter.formats.npz.read import read_npz

            return read_npz(path)
        case "safetensors":
            from porter.formats.safetensors import read_safetensors

            return read_safetensors(path)
        case _:
            from porter.formats.torch.read import read_torch

            return read_torch(path, zipped=format == "torch")
