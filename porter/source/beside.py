"""What a file, or a file beside it, says of photos and classes.

An ONNX model that porter wrote has them in its metadata. Beside a file of weights stands timm's config.json, in a folder as Hugging
Face has it: `pretrained_cfg` says how photos are prepared, as timm.data.create_transform reads it, and `label_names` what the
classes are.
"""

from __future__ import annotations

import json
from pathlib import Path

from porter.base.errors import PorterError, UsageError
from porter.data.labels import LABEL_MAPS, MAX_BYTES, Labels, labels_of
from porter.data.statements import read_preprocess
from porter.data.timm_config import CONFIG_FILE, from_timm
from porter.filegraph.checkpoint import Checkpoint
from porter.source.protocol import NOTHING, Stated

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def weights_in(path: Path) -> Path:
    """The file of weights of a folder that has a config.json; every other path as it is."""
    if not (path / CONFIG_FILE).is_file():
        return path
    return next((path / name for name in _WEIGHTS if (path / name).is_file()), path)


def stated_within(checkpoint: Checkpoint) -> tuple[Stated, tuple[str, ...]]:
    """What porter's metadata in a file says, and a warning where it is damaged."""
    protocol, names, name = (checkpoint.stated.get(f"porter.{key}") for key in ("preprocess", "class_names", "labels"))
    try:
        listed = json.loads(names or "[]")
        if not isinstance(listed, list):
            raise UsageError("'porter.class_names' is not a list of names")
        labels = labels_of(name, listed, "porter.class_names") if name and listed else Labels(name) if name in LABEL_MAPS else None
        return Stated(read_preprocess(protocol) if protocol else None, labels, "file"), ()
    except (PorterError, ValueError, RecursionError) as error:
        return NOTHING, (f"what porter's metadata in the file says is not used: {error}",)


def stated_beside(weights: Path) -> tuple[Stated, tuple[str, ...]]:
    """What timm's config.json beside a file of weights says, and a warning where it says what porter cannot do. It may be a link,
    as in Hugging Face's cache.
    """
    file = weights.parent / CONFIG_FILE
    if weights.name not in _WEIGHTS or not file.is_file() or file.stat().st_size > MAX_BYTES:
        return NOTHING, ()
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return NOTHING, (f"{CONFIG_FILE} beside the weights is no JSON",)
    if not isinstance(config, dict) or not isinstance(settings := config.get("pretrained_cfg"), dict):
        return NOTHING, ()
    warnings, protocol, labels = [], None, None
    try:
        protocol = read_preprocess(from_timm(settings))
    except (PorterError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        warnings.append(f"the preprocessing that {CONFIG_FILE} states is not used: {error}")
    try:
        if isinstance(names := config.get("label_names"), list):
            labels = labels_of(CONFIG_FILE, names, "label_names")
    except PorterError as error:
        warnings.append(f"the names of classes that {CONFIG_FILE} states are not used: {error}")
    return Stated(protocol, labels, "file"), tuple(warnings)
