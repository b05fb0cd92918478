"""The classes that a port predicts for photos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError, UsageError
from porter.data.preprocess import Preprocess, open_image, prepare
from porter.data.statements import fed
from porter.evaluation.protocol import expect_protocol, fitted, rescaled
from porter.evaluation.ranking import probabilities, top_classes
from porter.files import AnyPath
from porter.port import Port, read_port
from porter.source.protocol import read_stated


@dataclass(frozen=True)
class ClassScore:
    """One class of a photo. `wnid` and `name` are None if the port's classes have no names, `probability` is None if the port has a
    single output that is no sigmoid's: nothing says what it is.
    """

    index: int
    wnid: str | None
    name: str | None
    logit: float
    probability: float | None


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of a photo, best first, all of its logits, and the part of it that the model was fed."""

    image: Path
    fed: str
    top5: tuple[ClassScore, ...]
    logits: Array = field(repr=False)

    def record(self) -> dict[str, Any]:
        """As `porter predict --json` prints it."""
        return {"image": str(self.image), "fed": self.fed, "top5": [asdict(guess) for guess in self.top5]}


def predict(
    folder: AnyPath,
    images: AnyPath | Sequence[AnyPath],
    *,
    preprocess: AnyPath | Mapping[str, object] | None = None,
    class_names: AnyPath | None = None,
) -> tuple[Prediction, ...]:
    """The five likeliest classes of each photo.

    Args:
        images: files of photos; one path is one photo.
        preprocess, class_names: as `convert` takes them, in place of the port's own.
    """
    folder, photos = Path(folder), [Path(image) for image in ([images] if isinstance(images, str | PathLike) else images)]
    for path in photos:
        if path.is_dir():
            raise UsageError(
                "predict takes photos, and this is a folder", where=str(path), next=f"porter predict {folder} {path}/*"
            )
    port = read_port(folder)
    port = replace(port, record=read_stated(preprocess, class_names).of(port.record, str(folder)))
    protocol = fitted(expect_protocol(port), port.record.input, str(folder))
    batches = [prepare(open_image(path, protocol.jpeg), protocol)[np.newaxis] for path in photos]
    model = port.build()
    return tuple(_predict(port, model, protocol, path, batch) for path, batch in zip(photos, batches, strict=True))


def _predict(port: Port, model: Any, protocol: Preprocess, image: Path, batch: Array) -> Prediction:
    logits = port.destination.ENGINE.run(model, batch, [port.graph.output])[port.graph.output][0].astype(np.float64).reshape(-1)
    if not np.isfinite(logits).all():
        raise FileError("the port's logits are not finite, so it cannot rank classes", where=str(image))
    shares = probabilities(logits, port.record.activation)
    alone = len(logits) == 1 and port.record.activation != "sigmoid"
    guesses = []
    for index in map(int, top_classes(logits[np.newaxis])[0]):  # by logits, because small probabilities underflow to 0
        label = port.record.label_of(index)
        wnid, name = (label.wnid, label.name) if label else (None, None)
        share = None if alone else float(shares[index])
        guesses.append(ClassScore(index, wnid, name, logit=float(logits[index]), probability=share))
    proportion = ", in proportion to the protocol" if rescaled(port.record, protocol) else ""
    return Prediction(image, fed(protocol, *batch.shape[2:]) + proportion, tuple(guesses), logits)
