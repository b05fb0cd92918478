"""What engines share whose models are fed with arrays: batches that fit, fixed batches, and evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Sequence
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

_LEAST_PART = 0.75
"""Numbers of further inputs are at least this part of the images' numbers."""


def make_cpu_classifier(logits: Callable[[Array], Array], protocol: Preprocess) -> Classifier:
    """Return a classifier of photos (porter.frameworks.Classifier) that runs a model on the CPU. It computes
    at once, when it gets pixels; calling its result only hands over the logits.

    Args:
        logits: gives them for images N×C×H×W; a head that is a convolution gives maps of one cell.
    """
    from porter.data.preparing import normalise

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        images = normalise(pixels, protocol)
        value = logits(images.reshape(-1, *images.shape[2:]))
        return lambda: value.reshape(len(value), -1).astype("float32", copy=False)

    return classify


def expect_fit(shape: tuple[int, ...], channels: int | None, rows: int | None, columns: int | None) -> None:
    """Refuse a batch of another shape than N×C×H×W with these sizes; a size of None fits any.

    Raises:
        UsageError: it has another, or no image.
    """
    expected = (channels, rows, columns)
    fits = len(shape) == 4 and all(size in (None, got) for size, got in zip(expected, shape[1:], strict=True))
    if not fits or not shape[0]:
        text = "x".join("?" if size is None else str(size) for size in expected)
        next = f"feed N×C×H×W; for another size, convert again with {INPUT_SIZE}"
        raise UsageError(f"the model takes a batch of {text}, got one of shape {shape}", next=next)


def expect_axes(shape: Sequence[int], axes: Sequence[int | None]) -> None:
    """Refuse a batch whose axes behind the first are others than these; a size of None fits any.

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
    reason = "the pads of this model are right for" if fixed_by_pads else "the layers of this model fit"
    raise UsageError(
        f"{reason} an input of {only[0]}x{only[1]} only, got {size[0]}x{size[1]}",
        next="convert again for any input size, or for this one" if fixed_by_pads else "give it this size",
    )


def expect_nodes(paths: Iterable[str], nodes: Container[str]) -> None:
    """Expect that the paths are those of a model's nodes.

    Raises:
        UsageError: one is not.
    """
    for path in paths:
        if path not in nodes:
            next = "ask for nodes of the port's graph, which port.json has"
            raise UsageError("the model has no such node", where=path, next=next)


def as_maps(batch: Array, graph: Graph) -> Array:
    """Return a user's batch as engines take it, N×C×H×W. Where the graph's input is no map, the batch has
    that input's axes, and is returned as maps of one channel with the same numbers in their order.

    Raises:
        UsageError: it has other axes, or no image.
    """
    if not graph.axes:
        return batch
    expect_axes(batch.shape, graph.axes)
    # The first axis of an image becomes the rows, all others the columns; a single axis is one row.
    rows = batch.shape[1] if len(graph.axes) > 1 else 1
    return batch.reshape(len(batch), 1, rows, -1)


def expect_count(count: int, inputs: Collection[str]) -> None:
    """Refuse so many batches for a model that takes these inputs.

    Raises:
        UsageError: there are more or fewer.
    """
    if count != len(inputs):
        next = f"give it {', '.join(inputs)}"
        raise UsageError(f"the model takes {len(inputs)} inputs, got {count}", next=next)


def expect_inputs(batches: Sequence[Array], graph: Graph, only: tuple[int, int] | None) -> None:
    """Refuse batches that are not those of a graph's inputs, in their order, or not of the `only` size that
    it takes.

    Raises:
        UsageError: one has other axes, there are more or fewer, or no image.
    """
    expect_count(len(batches), graph.inputs)
    for batch, (path, shape) in zip(batches, input_shapes(graph, only or ANY).items(), strict=True):
        if is_map(shape):
            expect_fit(batch.shape, *shape)
        else:
            expect_axes(batch.shape, graph.axes if path == INPUT else shape)


def arrays_for_inputs(batch: Array, graph: TakesInputs, channels_last: bool = False) -> list[Array]:
    """Return the arrays for all inputs of a model of a graph, made from maps N×C×H×W: these maps, or where
    the first input is no map arrays of its axes; and those of `further_arrays`.

    Args:
        channels_last: the model takes maps N×H×W×C.
    """
    rows, columns = batch.shape[2:]
    first_input = batch
    if graph.axes:
        first_input = batch.reshape(len(batch), *input_shape(1, graph.axes, (rows, columns)))
    arrays = [first_input, *further_arrays(batch, graph)]
    are_maps = map(is_map, input_shapes(graph, (rows, columns)).values())
    return [
        array.transpose(0, 2, 3, 1) if channels_last and is_a_map else array
        for array, is_a_map in zip(arrays, are_maps, strict=True)
    ]


def further_arrays(batch: Array, graph: TakesInputs) -> list[Array]:
    """Make arrays for a graph's further inputs from maps N×C×H×W, to compare two models: maps N×C×H×W, or
    arrays of the input's axes.

    They are of the same images, turned around and moved, so that every input has numbers of the network's
    range. Each number is made a little smaller, by another factor each time, so that no two are the same, in
    inputs that are swapped or in one that has more numbers than the images.
    """
    count, channels, rows, columns = batch.shape
    arrays: list[Array] = []
    for index, (path, shape) in enumerate(input_shapes(graph, (rows, columns)).items()):
        if path == INPUT:
            continue
        # `index` is another one for each input, so no two inputs are moved alike.
        rotated = np.roll(batch[:, :, ::-1, ::-1], index, axis=(1, 2))
        if is_map(shape):
            cells = (
                # the cells that a nearest resize to the input's size would take
                np.arange(size or 0) * map_size // (size or 1)
                for map_size, size in zip(batch.shape[2:], shape[1:], strict=True)
            )
            channels_taken = np.arange(shape[0] or 0) % channels
            array = rotated[np.ix_(np.arange(count), channels_taken, *cells)]
        else:
            numbers = rotated.reshape(count, -1)
            count_needed = math.prod(size or 0 for size in shape)
            # Every step-th number of the image, from its start again where it has too few.
            step = max(numbers.shape[1] // count_needed, 1)
            numbers_taken = np.arange(count_needed) * step % numbers.shape[1]
            array = numbers[:, numbers_taken].reshape(count, *shape)
        parts = np.random.default_rng(index).uniform(_LEAST_PART, 1.0, array.shape[1:])
        arrays.append((array * parts).astype(batch.dtype))
    return arrays


def split_into_batches(images: Array, batch_size: int | None) -> list[Array]:
    """Split images into batches of the size that a model was made for, None for any; the last image is
    repeated where they do not suffice.
    """
    count = batch_size or len(images)
    missing_in_last = -len(images) % count
    filled_up = np.concatenate([images, *[images[-1:]] * missing_in_last])
    return np.split(filled_up, len(filled_up) // count)
