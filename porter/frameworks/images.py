"""What engines share whose models are fed with arrays: batches that fit, fixed batches, and evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.base.errors import UsageError
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier
from porter.graph import Graph, axes_text, input_shape


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


def expect_axes(shape: Sequence[int], axes: Sequence[int | None]) -> None:
    """Refuses a batch of other axes than these behind its first, None where any size will do.

    Raises:
        UsageError: it has others, or no image.
    """
    fits = len(shape) == 1 + len(axes) and all(axis in (None, size) for axis, size in zip(axes, shape[1:], strict=True))
    if not fits or not shape[0]:
        text = axes_text(axes)
        raise UsageError(f"the model takes {text}, got {' x '.join(map(str, shape))}", next=f"feed a batch of {text}")


def as_maps(batch: Array, graph: Graph) -> Array:
    """A user's batch as engines are given it: N×C×H×W. Where the graph's input is no map, the batch has that input's axes, and maps
    of one channel have its numbers in their order.

    Raises:
        UsageError: it has other axes, or no image.
    """
    if not graph.axes:
        return batch
    expect_axes(batch.shape, graph.axes)
    return batch.reshape(len(batch), 1, batch.shape[1] if len(graph.axes) > 1 else 1, -1)


def as_taken(batch: Array, graph: Graph) -> Array:
    """Maps N×C×H×W as a port takes them, whose graph's input may be none: `as_maps` undone."""
    rows, columns = batch.shape[2:]
    return batch.reshape(len(batch), *input_shape(1, graph.axes, (rows, columns))) if graph.axes else batch


def in_parts(images: Array, at_once: int | None) -> list[Array]:
    """Images, as many at a time as a model takes that was made for so many; the last one is repeated where they do not suffice."""
    count = at_once or len(images)
    filled = np.concatenate([images, *[images[-1:]] * (-len(images) % count)])
    return np.split(filled, len(filled) // count)
