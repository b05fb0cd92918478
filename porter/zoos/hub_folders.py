"""Models of folders of the Hub, built by the installed library that wrote them: never code from the
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from porter.base.errors import FileError, PorterError, first_line
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import KnownSize


class BuiltModel(NamedTuple):
    """A library's model with the weights of a folder.

    Attributes:
        by: the library and its version.
        size: rows and columns of the images that it is for; None where nothing states them.
        notes: one line each.
        channels: of these images; None where the model's first convolution says it.
    """

    model: Any
    by: str
    size: KnownSize | None
    notes: tuple[str, ...] = ()
    channels: int | None = None


class Library(Protocol):
    """The module-level names of a library whose folders porter opens."""

    def build_stated(self, config: Mapping[str, Any], checkpoint: Checkpoint) -> BuiltModel:
        """Build the model that a config.json describes, with the tensors of a file.

        Raises:
            UsageError: the library has no such model, or it does not take these tensors.
            NotInstalled: the library is not installed.
        """


_LIBRARIES = (
    ("architecture", "", "porter.zoos.timm"),
    ("model_type", "", "porter.zoos.transformers"),
    ("module", "keras_hub.", "porter.zoos.keras_hub"),
)
"""A key of config.json that names a model, what its value begins with, and the library's module."""


_TEXT_SETTINGS = frozenset({"vocab_size", "max_position_embeddings", "num_mel_bins", "feat_extract_norm"})
"""Settings of transformers' models that take texts or sounds."""
_IMAGE_SETTINGS = frozenset(
    {"image_size", "num_channels", "patch_size", "vision_config", "encoder", "backbone_config"}
)
"""Settings of its models that take images, some of which take texts too."""


def names_a_model(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json names a model of a library that porter knows. No library is imported."""
    return _library_module(config) is not None


def _library_module(config: Mapping[str, Any]) -> str | None:
    """Return the name of porter's module for the library whose model a config.json names, by the key that the
    library writes and the beginning of its value; None if it names none.

    Raises:
        FileError: the model takes texts or sounds, and no images.
    """
    text_settings = sorted(_TEXT_SETTINGS & config.keys())
    if text_settings and not _IMAGE_SETTINGS & config.keys():
        model = str(config.get("model_type", "the model"))
        raise FileError(
            f"'{model:.80}' takes no images: its settings have {', '.join(text_settings)}",
            where=CONFIG_FILE,
            next="porter ports models that take images: name the folder of one",
        )
    for key, beginning, module in _LIBRARIES:
        name = config.get(key)
        if isinstance(name, str) and name and name.startswith(beginning):
            return module
    return None


def build_stated(config: Mapping[str, Any], checkpoint: Checkpoint) -> BuiltModel | None:
    """Build the model of a folder, and return it with who built it and its input size; None if its
    config.json names none of a library that porter knows.

    Raises:
        UsageError, NotInstalled: as Library.build_stated.
        FileError: the library fails on the settings.
    """
    library = _library_module(config)
    if library is None:
        return None
    where = str(checkpoint.path.parent / CONFIG_FILE)
    try:
        return cast(Library, import_module(library)).build_stated(config, checkpoint)
    except PorterError:
        raise
    except Exception as error:  # whatever a library raises of settings that it did not write
        reason = f"{type(error).__name__}: {first_line(error)}"
        message = f"the network that it describes cannot be built: {reason}"
        raise FileError(
            message, where=where, next="fetch the folder again, or update the library that it is of"
        ) from None


def stated_size(size: Any) -> tuple[int, int] | None:
    """Return rows and columns of an image as a library's settings say them: (224, 224) for `224` or
    `[224, 224]`; None for anything else.
    """
    sides = [size, size] if isinstance(size, int) else size
    if not isinstance(sides, list | tuple) or len(sides) != 2:
        return None
    if not all(isinstance(side, int) and side > 0 for side in sides):
        return None
    rows, columns = sides
    return rows, columns
