"""Products of a value and a stored kernel, as dense layers, and of two values as matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from porter.filegraph.dataflow import N, OperatorNode
from porter.filegraph.file_graph import Stored, Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.tensors.arithmetic import apply_stored_array
from porter.filegraph.tensors.norms import is_vector
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Walk
from porter.graph import (
    MatMul,
)


@dataclass(frozen=True)
class Product:
    """factors[0] * value @ kernel + factors[1] * bias.

    Attributes:
        axes: of the kernel, as in Stored.
        bias: a constant of one number, or one for each unit.
        axis: of the features in the value; if it is not the last, the value is transposed before its
            product.
    """

    kernel: NodeOutput
    axes: str
    bias: NodeOutput | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    axis: int = -1


def dense(walk: Walk, node: OperatorNode, source: Source, product: Product) -> View:
    """Add a product as a dense layer, and return its view; over the cells of a map it is a 1x1 convolution. A
    bias that is no vector of the units, or has a factor, is added by an op of its own.

    Raises:
        Unsupported: the kernel is computed or has other axes than two, or the features are not the channels.
    """
    axes, bias = product.axes, product.bias
    factor, bias_factor = product.factors
    tensor = walk.weights(product.kernel)
    if tensor is None or len(tensor.shape) != 2 or not axes:
        raise Unsupported("by a kernel that is computed, or has other axes than two")
    features, units = (tensor.shape[axes.index(axis)] for axis in "IO")
    view = _with_features_last(walk, node, source, product.axis)
    if view.value.channels not in (None, features):
        raise Unsupported("over other axes than the channels")
    tensors = {"kernel": Stored(tensor.name, axes)}
    vector = None if bias is None or bias_factor != 1 else walk.weights(bias)
    is_layer_bias = vector is not None and is_vector(vector, units)
    if vector is not None and is_layer_bias:
        tensors["bias"] = Stored(vector.name)
    value = walk.builder.affine(f"{node.name}:factor", view.value, (factor,), (0.0,))
    value = walk.builder.dense(node.name, value, units, tensors)
    if bias is not None and not is_layer_bias:
        value = _add_bias(walk, node, value, bias, bias_factor)
    return walk.views.with_axes_of(view, value)


def linear(walk: Walk, node: OperatorNode, source: Source, units: int, tensors: Mapping[str, Stored]) -> View:
    """Add a dense layer over the last axis, and return its view."""
    view = walk.layouts.with_channels_at(source)
    return walk.views.with_axes_of(view, walk.builder.dense(node.name, view.value, units, tensors))


def _with_features_last(walk: Walk, node: OperatorNode, source: Source, axis: int) -> View:
    """Return the value that a dense layer reads with its features as the last axis, and as its channels.

    Args:
        axis: of the features in the tensor: -1, or 0 of two axes.

    Raises:
        Unsupported: its channels are another axis.
    """
    view = walk.layouts.with_channels_at(source, axis)
    if axis != -1:
        view = view.transposed((1, 0))
    if view.axes is not None and not walk.views.has_channels(view, -1):
        view = walk.layouts.as_array(f"{node.name}:rows", view)
    if view.axes is not None and not walk.views.has_channels(view, -1):
        raise Unsupported("over other axes than the channels")
    return view


def _add_bias(walk: Walk, node: OperatorNode, value: Value, bias: NodeOutput, factor: float) -> Value:
    """Add a constant, times a factor, to what a dense layer gives, and return the sum. The constant is one
    number, one for each unit, or in a graph of one image one for each row.

    Raises:
        Unsupported: the constant is another one.
    """
    numbers = walk.constant(bias)
    if numbers is None:
        raise Unsupported("with a bias for each image")
    units = numbers.shape[-1] if numbers.ndim else 1
    has_rows = numbers.size not in (1, units)
    if has_rows and not walk.views.lacks_batch:
        raise Unsupported("with a bias for each image")
    if has_rows or (value.is_array and numbers.size > 1):
        stored = walk.flow.store_computed(f"{node.name}:bias", numbers * factor)
        return apply_stored_array(walk, node.name, "Add", value, stored)
    return walk.builder.affine(f"{node.name}:bias", value, (1.0,), (numbers.ravel() * factor).tolist())


def conv_along_channels(
    walk: NodeWalk[N], node: N, source: Source, kernel: NodeOutput, pads: Sequence[int]
) -> View:
    """Add a 1-D convolution along the channels by one kernel, as of ECA: a dense layer that has the kernel
    along its diagonals.

    Args:
        kernel: 1×1×numbers; the value is N×1×channels.
        pads: how many zeros stand before the first channel, and after the last one.
    """
    view = walk.view(source)
    numbers = walk.constant(kernel)
    is_row = view.sizes is not None and view.sizes[1:-1] == (1,) and walk.views.has_channels(view, -1)
    if numbers is None or numbers.shape[:2] != (1, 1) or not is_row:
        raise Unsupported("over other axes than the channels")
    channels = view.value.channels or 0
    before, after = pads
    padded_channels = before + channels + after
    units = padded_channels - numbers.size + 1
    if min(before, after) < 0 or units < 1:
        raise Unsupported(f"with pads {pads} around {channels} channels")
    bytes_of_matrix = 8 * units * padded_channels  # in float64
    if not walk.flow.reserve_bytes(bytes_of_matrix):
        raise Unsupported(f"over {channels} channels")
    padded_matrix = np.zeros((units, padded_channels))
    for unit, row in enumerate(padded_matrix):
        row[unit : unit + numbers.size] = numbers.ravel()
    matrix = padded_matrix[:, before : before + channels]  # the pads are zeros, and need no columns
    stored = walk.flow.store_computed(node.name, matrix)
    value = walk.builder.dense(node.name, view.value, units, {"kernel": Stored(stored.name, "OI")})
    return walk.views.with_axes_of(view, value)


def matmul(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], transposed: Sequence[bool] = (False, False)
) -> View:
    """Multiply two values as matrices, over their last two axes, and return the product's view.

    Args:
        transposed: for each of the two, whether its last two axes are swapped first.
    """
    views = []
    for source, swaps, is_second in zip(sources, transposed, (False, True), strict=True):
        view = walk.view(source)
        is_swapped_array = is_second and not swaps and _before_transpose(walk, view) is not None
        if not swaps and not is_swapped_array:
            # make the array now, so that it has the name of the value, not of this product
            none_if_unsupported(partial(walk.layouts.array, source))
        views.append(_swap_last_axes(view) if swaps else view)
    return multiply_matrices(walk, node, views)


def multiply_matrices(walk: Walk, node: OperatorNode, views: Sequence[View]) -> View:
    """Multiply two views as matrices, over their last two axes, and return the product's view."""
    first_view, second_view = views
    rank = second_view.rank
    second_before_transpose = _before_transpose(walk, second_view)
    transposes_second = second_before_transpose is not None
    first = walk.layouts.as_array(f"{node.name}:first", first_view)
    second = second_before_transpose or walk.layouts.as_array(f"{node.name}:second", second_view)
    if first.rank != rank or rank < 3:
        raise Unsupported("of values of different axes")
    value = walk.builder.add(node.name, MatMul(transposes_second), first.value, second.value)
    return walk.views.as_rank(value, rank)


def _before_transpose(walk: Walk, view: View) -> View | None:
    """Return the array that a view is with its last two axes swapped: a file swaps them for a product, and
    MatMul can do that itself, so that porter does not swap them back and forth. None if the view is no
    swapped array.
    """
    return walk.views.array_of_own_axes(_swap_last_axes(view)) if view.rank > 2 else None


def _swap_last_axes(view: View) -> View:
    """Return a view with its last two axes swapped."""
    rank = len(view.known_axes)
    if rank < 3:
        raise Unsupported("of values of fewer than two axes")
    return view.transposed([*range(rank - 2), rank - 1, rank - 2])
