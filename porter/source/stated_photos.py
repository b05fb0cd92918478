"""What a user, a file, or the JSON beside it says of photos and classes.

A model of ONNX, Caffe or MXNet that porter wrote has them in its metadata. A folder as Hugging Face has it
states them beside the weights. In timm's config.json, `pretrained_cfg` says how photos are prepared, as
timm.data.create_transform reads it, and `label_names` what the classes are. transformers has
preprocessor_config.json, and `id2label` in config.json. KerasHub has image_converter.json.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from porter.base.errors import PorterError, UsageError
from porter.base.name_tables import JsonObject
from porter.base.options import PREPROCESS, AnyPath
from porter.data.classes import with_imagenet_recognised
from porter.data.keras_hub_config import CONVERTER_FILE, ROUNDING_DIFFERS, from_keras_hub
from porter.data.labels import LABEL_MAPS, Labels, labels_of, read_labels
from porter.data.preprocess import Preprocess
from porter.data.statements import read_preprocess
from porter.data.timm_config import CONFIG_FILE, from_timm
from porter.data.transformers_config import PROCESSOR_FILE, differences_of_transformers, from_transformers
from porter.filegraph.checkpoint import Checkpoint, Sidecars
from porter.padding import KnownSize
from porter.port import Facts, ProtocolBy
from porter.source.photo_protocol import expect_colours

_SIZE = re.compile(r"\[([1-9]\d{0,4}), ([1-9]\d{0,4})\]")
_SETTING_ERRORS = (
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ZeroDivisionError,
    OverflowError,
)
"""What reading raises where a file has other values than settings."""


AnyFacts = TypeVar("AnyFacts", bound=Facts)


@dataclass(frozen=True)
class PhotoFacts:
    """What a user or a file beside the weights says of a model's photos and classes, in place of its recipe
    or its port.
    """

    preprocess: Preprocess | None = None
    labels: Labels | None = None
    by: ProtocolBy = "user"

    def override(self, facts: AnyFacts, where: str, channels: int = 3) -> AnyFacts:
        """Return the facts of a source or of a port with what is stated in place of their own.

        Args:
            where: the file that errors name.
            channels: of the model's input.

        Raises:
            UsageError: the names are not as many as the classes, or a protocol is stated and the input is no
                photo.
        """
        update: dict[str, Any] = {}
        if self.preprocess is not None:
            expect_colours(channels, where, f"leave out {PREPROCESS}, and prepare its inputs yourself")
            update |= {"preprocess": self.preprocess, "protocol_by": self.by}
        if self.labels is not None:
            if self.labels.count != facts.label_count:
                message = (
                    f"{self.labels.name} names {self.labels.count} classes, and the model has {facts.classes}"
                )
                raise UsageError(
                    message,
                    where=where,
                    next="give a line for each class, in the order of the model's outputs",
                )
            update |= {"labels": self.labels.name, "class_names": self.labels.names}
        return facts.model_copy(update=update)

    def matching_head(self, facts: Facts) -> tuple[PhotoFacts, tuple[str, ...]]:
        """Return what a file states. Names of classes that are as many as another head has are left out, with
        a warning.
        """
        if self.labels is None or self.labels.count == facts.label_count:
            return self, ()
        warning = (
            f"{self.labels.name} names {self.labels.count} classes, and the model has "
            f"{facts.classes}: these names are not used"
        )
        return replace(self, labels=None), (warning,)


NOTHING = PhotoFacts()


def read_statements(preprocess: AnyPath | JsonObject | None, class_names: AnyPath | None) -> PhotoFacts:
    """Return what a user states: a protocol (porter.data.statements), and a file of the names of the classes,
    one on each line.

    Raises:
        PorterError: the protocol is none, or the file cannot be read.
    """
    return PhotoFacts(
        None if preprocess is None else read_preprocess(preprocess),
        None if class_names is None else with_imagenet_recognised(read_labels(Path(class_names))),
    )


def facts_in_metadata(checkpoint: Checkpoint) -> tuple[PhotoFacts, tuple[str, ...]]:
    """Return what porter's metadata in a file says of photos and classes, and a warning if it is damaged."""
    protocol, names, name = (
        checkpoint.stated.get(f"porter.{key}") for key in ("preprocess", "class_names", "labels")
    )
    try:
        listed = json.loads(names or "[]")
        if not isinstance(listed, list):
            raise UsageError("'porter.class_names' is not a list of names")
        labels = Labels(name) if name in LABEL_MAPS else None
        if name and listed:
            labels = labels_of(name, listed, "porter.class_names")
        return PhotoFacts(read_preprocess(protocol) if protocol else None, labels, "file"), ()
    except (PorterError, ValueError, RecursionError) as error:
        return NOTHING, (f"what porter's metadata in the file says is not used: {error}",)


def native_size_in_metadata(checkpoint: Checkpoint) -> KnownSize | None:
    """Return the native size, rows and columns, that porter's metadata in a file states; None if it states
    none.
    """
    match = _SIZE.fullmatch(checkpoint.stated.get("porter.native_size", ""))
    return (int(match[1]), int(match[2])) if match else None


def facts_beside(beside: Sidecars) -> tuple[PhotoFacts, tuple[str, ...]]:
    """Return what the JSON beside a file of weights (Checkpoint.beside) says of photos and classes, and
    warnings where it is damaged or says what porter cannot do.

    Photos are described by timm's config.json, transformers' preprocessor_config.json or KerasHub's
    image_converter.json, the names of the classes by config.json.
    """
    warnings = [
        f"{name} beside the weights is damaged and not used: {content}"
        for name, content in beside.items()
        if isinstance(content, str)
    ]
    sound = {name: content for name, content in beside.items() if not isinstance(content, str)}
    config, processor, converter = (
        sound.get(name, {}) for name in (CONFIG_FILE, PROCESSOR_FILE, CONVERTER_FILE)
    )
    protocol, labels = None, None
    # Each file: its name, its settings of photos, how they are read, and what porter does otherwise.
    readings = (
        (CONFIG_FILE, config.get("pretrained_cfg"), from_timm, lambda settings: ()),
        (PROCESSOR_FILE, processor, from_transformers, differences_of_transformers),
        (CONVERTER_FILE, converter, from_keras_hub, lambda settings: (ROUNDING_DIFFERS,)),
    )
    # The first file that states settings counts.
    stated = (reading for reading in readings if reading[1] and isinstance(reading[1], dict))
    file, settings, read_settings, differences_of = next(stated, readings[0])
    try:
        if settings and isinstance(settings, dict):
            protocol = read_preprocess(read_settings(settings))
            warnings += differences_of(settings)
    except (PorterError, *_SETTING_ERRORS) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else error
        warnings.append(f"the preprocessing that {file} states is not used: {lacks}")
    try:
        if (names := _names_of_classes(config)) is not None:
            labels = with_imagenet_recognised(labels_of(CONFIG_FILE, *names))
    except (PorterError, *_SETTING_ERRORS) as error:
        warnings.append(f"the names of classes that {CONFIG_FILE} states are not used: {error}")
    return PhotoFacts(protocol, labels, "file") if protocol or labels else NOTHING, tuple(warnings)


def _names_of_classes(config: JsonObject) -> tuple[list[object], str] | None:
    """Return the names of the classes in their order, and the key of config.json that has them:
    `label_names` (a list) or `id2label` (`{"0": "cat", ...}`). Return None if there are none, or only the
    names LABEL_0, LABEL_1, ... that transformers makes up.
    """
    if isinstance(names := config.get("label_names"), list):
        return names, "label_names"
    if not isinstance(by_number := config.get("id2label"), dict):
        return None
    numbered = {int(number): name for number, name in by_number.items()}
    if sorted(numbered) != [*range(len(numbered))]:
        raise ValueError("id2label: the numbers are not those of classes from 0")
    names = [numbered[number] for number in range(len(numbered))]
    return None if names == [f"LABEL_{number}" for number in range(len(names))] else (names, "id2label")
