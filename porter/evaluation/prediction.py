"""The classes that a port predicts for photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from porter.base.calls import takes
from porter.base.commands import PHOTO, PREDICT, PredictOptions
from porter.base.dtypes import Array
from porter.base.errors import FileError, UsageError
from porter.base.options import AnyPath
from porter.data.photo_decoding import as_image, open_image
from porter.data.preparing import prepare
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import input_in_words
from porter.evaluation.protocol import expect_prepared, expect_protocol, fit_protocol, notes_on_proportion
from porter.evaluation.ranking import probabilities, top_classes
from porter.port import StoredPort, read_port
from porter.source.stated_photos import read_statements

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

PhotoInput: TypeAlias = "AnyPath | Image | Array"
"""A photo as callers of the API give it: a file, an image of Pillow, or an array H x W x RGB (or H x W) of
bytes.
"""


@dataclass(frozen=True)
class ClassScore:
    """One class of a photo. `wnid` and `name` are None if the port's classes have no names, `probability` is
    None if the port has a single output that is no sigmoid's: nothing says what it is.
    """

    index: int
    wnid: str | None
    name: str | None
    logit: float
    probability: float | None


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of a photo, best first, all of its logits, and the part of it that the model was
    fed.

    Attributes:
        image: the file; of a photo in memory its place among the photos, from 1.
    """

    image: Path
    fed: str
    top5: tuple[ClassScore, ...]
    logits: Array = field(repr=False)

    def record(self) -> dict[str, Any]:
        """Return the record that `porter predict --json` prints."""
        return {"image": str(self.image), "fed": self.fed, "top5": [asdict(guess) for guess in self.top5]}


@takes(PredictOptions)
def predict(asked: PredictOptions) -> tuple[Prediction, ...]:
    """Predict the five likeliest classes of each photo. Return one prediction for each, in their order.

    Args:
        images: photos, each a file, an image of Pillow or an array H x W x RGB (or H x W) of bytes; one of
            them, or a sequence.
        preprocess, class_names: as `convert` takes them, in place of the port's own.
    """
    folder, photos = Path(asked.folder), _as_list(asked.images)
    for path in (Path(photo) for photo in photos if isinstance(photo, str | PathLike)):
        if path.is_dir():
            example = next((file for file in sorted(path.iterdir()) if file.is_file()), PHOTO)
            raise UsageError(
                "predict takes photos, and this is a folder",
                where=path,
                next=f"name each photo: {PREDICT.advise(folder=folder, images=[example])}",
            )
    port = read_port(folder)
    statements = read_statements(asked.preprocess, asked.class_names)
    port = replace(port, record=statements.override(port.record, str(folder)))
    protocol = fit_protocol(expect_protocol(port), port.record.input, str(folder))
    batches = [pixels_of(photo, protocol)[np.newaxis] for photo in photos]
    model = port.build()
    names = [
        Path(photo if isinstance(photo, str | PathLike) else f"photo {number}")
        for number, photo in enumerate(photos, 1)
    ]
    return tuple(
        _predict(port, model, protocol, name, batch) for name, batch in zip(names, batches, strict=True)
    )


def _as_list(images: PhotoInput | Sequence[PhotoInput]) -> list[PhotoInput]:
    """Return the photos as a list, whether the caller gave one photo or a sequence of them."""
    if isinstance(images, Sequence) and not isinstance(images, str | PathLike):
        return list(images)
    return [images]


def pixels_of(photo: PhotoInput, protocol: Preprocess) -> NDArray[np.float32]:
    """Prepare a photo as the array 3 x H x W that a model takes.

    Raises:
        FileError: it cannot be read, or is no photo.
    """
    image = open_image(Path(photo), protocol.jpeg) if isinstance(photo, str | PathLike) else as_image(photo)
    return prepare(image, protocol)


def make_transform(folder: AnyPath) -> Callable[[PhotoInput], Tensor | Array]:
    """Return a function from a photo to the input of a port, without the axis of the batch: a tensor C x H x
    W for a port in torch, otherwise an array in the port's own order.

    Raises:
        UsageError: nothing says how photos become the input.
    """
    port = read_port(Path(folder))
    protocol = fit_protocol(expect_prepared(port), port.record.input, str(folder))
    in_torch, channels_last = port.record.framework == "torch", port.record.input.layout == "NHWC"

    def transform(photo: PhotoInput) -> Tensor | Array:
        """Prepare a photo in the kind and the order of axes that the port takes."""
        pixels = pixels_of(photo, protocol)
        if in_torch:
            from porter.frameworks.torch.graph_module import to_tensor

            return to_tensor(pixels)
        return pixels.transpose(1, 2, 0) if channels_last else pixels

    return transform


def _predict(port: StoredPort, model: Any, protocol: Preprocess, image: Path, batch: Array) -> Prediction:
    """Predict the likeliest classes of one image.

    Args:
        image: its name in the result.
        batch: the image prepared, 1 x 3 x H x W.

    Raises:
        FileError: the logits are not finite.
    """
    output = port.graph.output
    value = port.destination.ENGINE.run(model, batch, [output])[output][0]
    logits = value.astype(np.float64).reshape(-1)
    if not np.isfinite(logits).all():
        raise FileError("the port's logits are not finite, so it cannot rank classes", where=image)
    shares = probabilities(logits, port.record.activation)
    # A softmax of one class is always 1, and nothing says that its logit is one of a sigmoid.
    is_undefined = len(logits) == 1 and port.record.activation != "sigmoid"
    guesses = []
    # By logits, because small probabilities underflow to 0.
    for index in map(int, top_classes(logits[np.newaxis])[0]):
        label = port.record.label_of(index)
        wnid, name = (label.wnid, label.name) if label else (None, None)
        share = None if is_undefined else float(shares[index])
        guesses.append(ClassScore(index, wnid, name, logit=float(logits[index]), probability=share))
    fed = input_in_words(protocol, *batch.shape[2:])
    if notes_on_proportion(port.record, protocol):
        fed = f"{fed}, in proportion to the protocol"
    return Prediction(image, fed, tuple(guesses), logits)
