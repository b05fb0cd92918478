"""A folder as Hugging Face's Hub has it: its files of weights, and the files of JSON beside them."""

from __future__ import annotations

from pathlib import Path

from porter.base.errors import FileError, first_line
from porter.base.name_tables import JsonObject
from porter.data.keras_hub_config import CONVERTER_FILE
from porter.data.timm_config import CONFIG_FILE
from porter.data.transformers_config import PROCESSOR_FILE
from porter.filegraph.checkpoint import Checkpoint, Sidecars
from porter.formats.keras import BACKBONE_INDEX, BACKBONE_WEIGHTS
from porter.formats.limits import read_bounded, read_json

INDEX = ".index.json"
TF_WEIGHTS, FLAX_WEIGHTS = "tf_model.h5", "flax_model.msgpack"
WEIGHTS = (
    *(f"{name}{end}" for name in ("model.safetensors", "pytorch_model.bin") for end in ("", INDEX)),
    "model.onnx",
    BACKBONE_WEIGHTS,
    BACKBONE_INDEX,
    TF_WEIGHTS,
    FLAX_WEIGHTS,
)
"""The Hub's names of a model's weights, the preferred one first."""
_SUFFIXES_OF_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pth",
    ".pt",
    ".pt2",
    ".ckpt",
    ".h5",
    ".keras",
    ".onnx",
    ".npz",
    ".msgpack",
    ".tflite",
)
_MOST_BYTES = 16 << 20
"""The most bytes of a config.json: those of models of 21,841 classes name each class twice, in 2 MB."""


def files_of_weights(folder: Path) -> list[Path]:
    """Return the files of weights in a folder that has a config.json; none in other folders."""
    if not (folder / CONFIG_FILE).is_file():
        return []
    return [
        path
        for path in folder.iterdir()
        if (path.suffix in _SUFFIXES_OF_WEIGHTS or path.name.endswith(INDEX)) and path.is_file()
    ]


def read_sidecars(weights: Path) -> Sidecars:
    """Return the files of JSON beside a file of weights that are about it (Checkpoint.beside): where the
    weights have a name that the Hub gives, or are the only file of weights there. Otherwise return an empty
    mapping: the JSON may be about another file.
    """
    if weights.name not in WEIGHTS and files_of_weights(weights.parent) != [weights]:
        return {}
    return sidecars_in(weights.parent)


def sidecars_in(folder: Path) -> Sidecars:
    """Return the content of the files of JSON that the Hub has beside weights, by their names."""
    files = (folder / name for name in (CONFIG_FILE, PROCESSOR_FILE, CONVERTER_FILE))
    return {file.name: _content(file) for file in files if file.is_file()}


def _content(file: Path) -> JsonObject | str:
    """Return the object in a file of JSON; an empty one where the file has something else; the reason if it
    cannot be read.
    """
    try:
        content = read_json(read_bounded(file, _MOST_BYTES))
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return first_line(error)
    return content if isinstance(content, dict) else {}


def config_of(checkpoint: Checkpoint) -> JsonObject:
    """Return the content of the config.json that belongs to a file of weights; an empty object where there is
    none.

    Raises:
        FileError: it is damaged, so that nobody can tell which of two twins (networks that take the same
            tensors) the weights are.
    """
    config = checkpoint.beside.get(CONFIG_FILE, {})
    if isinstance(config, str):
        message = f"this file, which names the network of the weights, is damaged: {config}"
        next = "fetch the folder again; without it, put the weights into a folder of their own"
        raise FileError(message, where=str(checkpoint.path.parent / CONFIG_FILE), next=next)
    return config
