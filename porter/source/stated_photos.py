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
from porter.base.json import JsonObject
from porter.base.options import PREPROCESS, AnyPath
from porter.data.classes import recognised
from porter.data.keras_hub_config import CONVERTER_FILE, ROUNDED, from_keras_hub
from porter.data.labels import LABEL_MAPS, Labels, labels_of, read_labels
from porter.data.preprocess import Preprocess
from porter.data.statements import read_preprocess
from porter.data.timm_config import CONFIG_FILE, from_timm
from porter.data.transformers_config import PROCESSOR_FILE, from_transformers, unlike_transformers
from porter.filegraph.checkpoint import Checkpoint, Sidecars
from porter.padding import KnownSize
from porter.port import Facts, ProtocolBy
from porter.source.photo_protocol import expect_colours

_SIZE = re.compile(r"\[([1-9]\d{0,4}), ([1-9]\d{0,4})\]")
_BAD = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError)
"""What reading settings raises that are none."""


Some = TypeVar("Some", bound=Facts)


@dataclass(frozen=True)
class PhotoFacts:
    """What a user or a file beside the weights says of a model's photos and classes, in place of its recipe
    or its port.
    """

    preprocess: Preprocess | None = None
    labels: Labels | None = None
    by: ProtocolBy = "user"

    def put_into(self, facts: Some, where: str, channels: int = 3) -> Some:
        """The facts with what is stated.

        Args:
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
            if self.labels.count != facts.classes - facts.background:
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

    def for_head(self, facts: Facts) -> tuple[PhotoFacts, tuple[str, ...]]:
        """What a file states; without the names of classes, and with a warning, where they are of another
        head.
        """
        if self.labels is None or self.labels.count == facts.classes - facts.background:
            return self, ()
        warning = (
            f"{self.labels.name} names {self.labels.count} classes, and the model has "
            f"{facts.classes}: these names are not used"
        )
        return replace(self, labels=None), (warning,)


NOTHING = PhotoFacts()


def read_stated(preprocess: AnyPath | JsonObject | None, class_names: AnyPath | None) -> PhotoFacts:
    """What is stated: a protocol (porter.data.statements), and a file of the names of the classes, one on
    each line.

    Raises:
        PorterError: the protocol is none, or the file cannot be read.
    """
    return PhotoFacts(
        None if preprocess is None else read_preprocess(preprocess),
        None if class_names is None else recognised(read_labels(Path(class_names))),
    )


def stated_within(checkpoint: Checkpoint) -> tuple[PhotoFacts, tuple[str, ...]]:
    """What porter's metadata in a file says, and a warning where it is damaged."""
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


def native_within(checkpoint: Checkpoint) -> KnownSize | None:
    """The native size, rows and columns, that porter's metadata in a file states."""
    match = _SIZE.fullmatch(checkpoint.stated.get("porter.native_size", ""))
    return (int(match[1]), int(match[2])) if match else None


def stated_beside(beside: Sidecars) -> tuple[PhotoFacts, tuple[str, ...]]:
    """What timm's config.json, transformers' preprocessor_config.json or KerasHub's image_converter.json
    beside a file of weights says (Checkpoint.beside), and the names of classes in config.json; a warning
    where it says what porter cannot do, or is damaged.
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
    readings = (
        (CONFIG_FILE, config.get("pretrained_cfg"), from_timm, lambda settings: ()),
        (PROCESSOR_FILE, processor, from_transformers, unlike_transformers),
        (CONVERTER_FILE, converter, from_keras_hub, lambda settings: (ROUNDED,)),
    )
    file, settings, read, unlike = next((reading for reading in readings if reading[1]), readings[0])
    try:
        if settings and isinstance(settings, dict):
            protocol = read_preprocess(read(settings))
            warnings += unlike(settings)
    except (PorterError, *_BAD) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else error
        warnings.append(f"the preprocessing that {file} states is not used: {lacks}")
    try:
        if (names := _names(config)) is not None:
            labels = recognised(labels_of(CONFIG_FILE, *names))
    except (PorterError, *_BAD) as error:
        warnings.append(f"the names of classes that {CONFIG_FILE} states are not used: {error}")
    return PhotoFacts(protocol, labels, "file") if protocol or labels else NOTHING, tuple(warnings)


def _names(config: JsonObject) -> tuple[list[object], str] | None:
    """The names of the classes, and their key. transformers calls classes without names LABEL_0 and on."""
    if isinstance(names := config.get("label_names"), list):
        return names, "label_names"
    if not isinstance(listed := config.get("id2label"), dict):
        return None
    numbered = {int(number): name for number, name in listed.items()}
    if sorted(numbered) != [*range(len(numbered))]:
        raise ValueError("id2label: the numbers are not those of classes from 0")
    names = [numbered[number] for number in range(len(numbered))]
    return None if names == [f"LABEL_{number}" for number in numbered] else (names, "id2label")
