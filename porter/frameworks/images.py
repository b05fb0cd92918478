"""What engines share whose models are fed with arrays: batches that fit, fixed batches, and evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.base.errors import UsageError
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier


def classifier_of(logits: Callable[[Array], Array], protocol: Preprocess) -> Classifier:
    """What classifies photos with a model on the CPU.

    Args:
        logits: gives them for images N×C×H×W; a head that is a convolution gives maps of one cell.
    """
    from porter.data.pipeline import normalise

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        images = normalise(pixels, protocol)
        value = logits(images.reshape(-1, *images.shape[2:]))
        return lambda: value.reshape(len(value), -1).astype("float32", copy=False)

    return classify


def expect_fit(shape: tuple[int, ...], channels: int | None, rows: int | None, columns: int | None) -> None:
    """Refuses a batch of another shape than N×C×H×W with these sizes, None where any will do.

    Raises:
        UsageError: it has another, or no image.
    """
    wanted = (channels, rows, columns)
    if len(shape) != 4 or not shape[0] or any(size not in (None, given) for size, given in zip(wanted, shape[1:], strict=True)):
        text = "x".join("?" if size is None else str(size) for size in wanted)
        next = "feed N×C×H×W; for another size, convert again with --input-size"
        raise UsageError(f"the model takes a batch of {text}, got one of shape {shape}", next=next)


def in_parts(images: Array, at_once: int | None) -> list[Array]:
    """Images, as many at a time as a model takes that was made for so many; the last one is repeated where they do not suffice."""
    count = at_once or len(images)
    filled = np.concatenate([images, *[images[-1:]] * (-len(images) % count)])
    return np.split(filled, len(filled) // count)
