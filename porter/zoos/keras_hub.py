"""KerasHub's own models, of preset folders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

from porter.base.errors import NotInstalled, UsageError
from porter.base.package import expect_installed, install
from porter.data.keras_hub_config import CONVERTER_FILE
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import refusing_damage
from porter.formats.keras import PRESET, TASK_FILE, TASK_WEIGHTS
from porter.formats.limits import read_bounded, read_json
from porter.zoos.hub_folders import BuiltModel, stated_size

_INSTALL = "pip install keras-hub"
_MOST_BYTES = 1 << 20
_NOT_PASSED = frozenset({"dtype", "head_dtype", "preprocessor"})
"""Arguments that say types, which are those of the weights, and how photos are prepared."""


def import_keras_hub() -> Any:
    """Import keras_hub.models, on Keras's TensorFlow backend.

    Raises:
        NotInstalled: it or TensorFlow cannot be imported.
    """
    expect_installed("tensorflow", install("tf"))
    expect_installed("keras_hub", _INSTALL)
    from porter.frameworks.tf.runtime import import_keras

    import_keras()
    try:
        return import_module("keras_hub").models
    except ImportError as error:
        raise NotInstalled(f"keras_hub cannot be imported: {error}", next=_INSTALL) from None


def build_stated(config: Mapping[str, Any], checkpoint: Checkpoint) -> BuiltModel:
    """Build a model of KerasHub, with the weights of its folder, as porter.zoos.hub_folders.Library says.
    Only classes of keras_hub.models are made, each called with plain values.

    Raises:
        UsageError: the file is a part of a preset only, or there is no such class.
        NotInstalled: KerasHub is not installed.
    """
    folder, models = checkpoint.path.parent, import_keras_hub()
    if checkpoint.format != PRESET:
        raise UsageError(
            "these are a part of a preset's tensors",
            where=checkpoint.path,
            next=f"name the folder {folder}",
        )
    from porter.frameworks.tf.keras_files.construction import build_for_file

    # task.json describes the backbone and its head, config.json the backbone only.
    task = _read_stated(folder / TASK_FILE)
    stated = dict(config) if task is None else task
    build = partial(_make_object, models, stated, str(folder / (TASK_FILE if task else CONFIG_FILE)))
    weights = sum(array.size for array in checkpoint.tensors.values())
    model = build_for_file(len(checkpoint.tensors), weights, build, str(folder / CONFIG_FILE))
    if TASK_WEIGHTS in {file.name for file in checkpoint.files}:
        model.load_task_weights(str(folder / TASK_WEIGHTS))
    backbone = model if task is None else model.backbone
    backbone.load_weights(str(checkpoint.path))
    converter = _read_stated(folder / CONVERTER_FILE) or {}
    converter_size = converter.get("config", {}).get("image_size")
    size = stated_size(list(model.input_shape[1:3])) or stated_size(converter_size)
    return BuiltModel(model, f"keras-hub {import_module('keras_hub').__version__}", size)


def _read_stated(file: Path) -> Any:
    """Read what a file of a preset says; None where there is none."""
    if not file.is_file():
        return None
    with refusing_damage(file, "fetch the folder again", "this preset is damaged"):
        return read_json(read_bounded(file, _MOST_BYTES))


def _make_object(models: Any, stated: Any, where: str) -> Any:
    """Make a model of KerasHub's with its parts, from the JSON that `keras.saving.serialize_keras_object`
    writes. Only classes of keras_hub.models are called.

    Args:
        stated: the object as JSON: a class with its arguments, a list, or a plain value.
        where: the file, for errors.
    """
    match stated:
        case {"class_name": "function", "config": str(name)}:  # an activation
            return name
        case {"class_name": str(name), "config": dict() as settings}:
            model_class = getattr(models, name, None)
            if not isclass(model_class) or not issubclass(model_class, models.Backbone | models.Task):
                raise UsageError(
                    f"keras-hub has no model '{name:.80}'",
                    where=where,
                    next="pip install --upgrade keras-hub",
                )
            arguments = {
                key: _make_object(models, value, where)
                for key, value in settings.items()
                if key not in _NOT_PASSED
            }
            if issubclass(model_class, models.Task):
                arguments["compile"] = False
            return model_class(**arguments)
        case list():
            return [_make_object(models, value, where) for value in stated]
    return stated
