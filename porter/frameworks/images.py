"""What engines share whose models are fed with arrays: batches that fit, fixed batches, and evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.base.errors import UsageError
from porter.base.options import INPUT_SIZE
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier
from porter.graph import INPUT, Graph, TakesInputs, axes_text, input_shape, input_shapes
from porter.graph.ops import is_map
from porter.padding import ANY


def classifier_of(logits: Callable[[Array], Array], protocol: Preprocess) -> Classifier:
    """Return what classifies photos with a model on the CPU.

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
    """Refuse a batch of another shape than N×C×H×W with these sizes, None where any will do.

    Raises:
        UsageError: it has another, or no image.
    """
    wanted = (channels, rows, columns)
    if (
        len(shape) != 4
        or not shape[0]
        or any(size not in (None, given) for size, given in zip(wanted, shape[1:], strict=True))
    ):
        text = "x".join("?" if size is None else str(size) for size in wanted)
        next = f"feed N×C×H×W; for another size, convert again with {INPUT_SIZE}"
        raise UsageError(f"the model takes a batch of {text}, got one of shape {shape}", next=next)


def expect_axes(shape: Sequence[int], axes: Sequence[int | None]) -> None:
    """Refuse a batch of other axes than these behind its first, None where any size will do.

    Raises:
        UsageError: it has others, or no image.
    """
    fits = len(shape) == 1 + len(axes) and all(
        axis in (None, size) for axis, size in zip(axes, shape[1:], strict=True)
    )
    if not fits or not shape[0]:
        text = axes_text(axes)
        raise UsageError(
            f"the model takes {text}, got {' x '.join(map(str, shape))}", next=f"feed a batch of {text}"
        )


def expect_only_size(size: tuple[int, int], only: tuple[int, int], *, fixed_by_pads: bool) -> None:
    """Refuse images of another size (rows, columns) than the `only` one that a model is right for.

    Args:
        fixed_by_pads: see porter.graph.plan.Plan.

    Raises:
        UsageError: it is another size.
    """
    if size == only:
        return
    what = "the pads of this model are right for" if fixed_by_pads else "the layers of this model fit"
    raise UsageError(
        f"{what} an input of {only[0]}x{only[1]} only, got {size[0]}x{size[1]}",
        next="convert again for any input size, or for this one" if fixed_by_pads else "give it this size",
    )


def as_maps(batch: Array, graph: Graph) -> Array:
    """Return a user's batch as engines are given it: N×C×H×W. Where the graph's input is no map, the batch
    has that input's axes, and maps of one channel have its numbers in their order.

    Raises:
        UsageError: it has other axes, or no image.
    """
    if not graph.axes:
        return batch
    expect_axes(batch.shape, graph.axes)
    return batch.reshape(len(batch), 1, batch.shape[1] if len(graph.axes) > 1 else 1, -1)


def expect_inputs(batches: Sequence[Array], graph: Graph, only: tuple[int, int] | None) -> None:
    """Refuse batches that are not those of a graph's inputs, in their order, of the `only` size that it
    takes, if it takes one.

    Raises:
        UsageError: one has other axes, there are more or fewer, or no image.
    """
    if len(batches) != len(graph.inputs):
        text = ", ".join(graph.inputs)
        raise UsageError(
            f"the model takes {len(graph.inputs)} inputs, got {len(batches)}", next=f"give it {text}"
        )
    for batch, (path, shape) in zip(batches, input_shapes(graph, only or ANY).items(), strict=True):
        if is_map(shape):
            expect_fit(batch.shape, *shape)
        else:
            expect_axes(batch.shape, graph.axes if path == INPUT else shape)


def as_taken(batch: Array, graph: TakesInputs, channels_last: bool = False) -> list[Array]:
    """Return what a model of a graph is fed for maps N×C×H×W: these, or where its first input is no map,
    arrays of its axes; and what `beside` makes of them for the further inputs.

    Args:
        channels_last: it takes maps N×H×W×C.
    """
    rows, columns = batch.shape[2:]
    first = batch.reshape(len(batch), *input_shape(1, graph.axes, (rows, columns))) if graph.axes else batch
    arrays = [first, *beside(batch, graph)]
    of_maps = map(is_map, input_shapes(graph, (rows, columns)).values())
    return [
        each.transpose(0, 2, 3, 1) if channels_last and of_map else each
        for each, of_map in zip(arrays, of_maps, strict=True)
    ]


def beside(batch: Array, graph: TakesInputs) -> list[Array]:
    """Return what a comparison feeds to a graph's further inputs beside maps N×C×H×W: maps N×C×H×W, or arrays
    of the input's axes.

    They are of the same images, turned around and moved, so that every input has numbers of the network's
    range, and no two have the same.
    """
    count, channels, rows, columns = batch.shape
    arrays = []
    for index, (path, shape) in enumerate(input_shapes(graph, (rows, columns)).items()):
        if path == INPUT:
            continue
        turned = np.roll(batch[:, :, ::-1, ::-1], index, axis=(1, 2))
        if is_map(shape):
            cells = (
                np.arange(size or 0) * own // (size or 1)
                for own, size in zip(batch.shape[2:], shape[1:], strict=True)
            )
            of = np.ix_(np.arange(count), np.arange(shape[0] or 0) % channels, *cells)
            arrays.append(turned[of])
        else:
            numbers = turned.reshape(count, -1)
            wanted = math.prod(size or 0 for size in shape)
            step = max(numbers.shape[1] // wanted, 1)
            arrays.append(numbers[:, np.arange(wanted) * step % numbers.shape[1]].reshape(count, *shape))
    return arrays


def in_parts(images: Array, at_once: int | None) -> list[Array]:
    """Return images, as many at a time as a model takes that was made for so many; the last one is repeated
    where they do not suffice.
    """
    count = at_once or len(images)
    filled = np.concatenate([images, *[images[-1:]] * (-len(images) % count)])
    return np.split(filled, len(filled) // count)
