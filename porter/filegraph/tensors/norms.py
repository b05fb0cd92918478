"""Norms of an op graph, for every format: by stored vectors, over the last axes, or of groups of channels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from porter.filegraph.dataflow import OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported, none_if_unsupported
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Open, product, quotient
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Walk
from porter.graph import Op, ops

NormOp = ops.BatchNorm | ops.LayerNorm | ops.RmsNorm | ops.GroupNorm


class NormLayer(NamedTuple):
    """A norm, with its stored tensors by role, which say whether it has a scale and an offset."""

    op: NormOp
    tensors: Mapping[str, NodeOutput]


def batch_norm(walk: Walk, node: OperatorNode, source: Source, norm: NormLayer) -> View:
    """Add a norm by stored vectors, and return its view. A scale that the file does not train and that is 1
    is left out, as is an offset of 0. Where the images of a batch stand among the channels (`_split_images`),
    each image is normed by itself.
    """
    split_images = _split_images(walk, walk.view(source), norm.tensors)
    if split_images is not None:
        view, tensors = split_images
    else:
        view = walk.layouts.with_channels_at(source, walk.views.channels_place)
        tensors = norm.tensors
        view = walk.layouts.cells_or_as_held(f"{node.name}:cells", view)
    if view.value.is_array and view.rank == 4:  # an array of windows, for instance: normed as a map
        view = walk.views.own_view(walk.layouts.in_file_layout(source))
    names = _vector_names(walk, view, tensors)
    for role, neutral in (("gamma", 1), ("beta", 0)):
        name = names.get(role, "")
        is_named_as_role = name.rpartition("/")[2] == role  # such as `norm/gamma`
        is_trained = name in walk.trained or is_named_as_role
        if name and not is_trained and np.all(walk.flow.stored_numbers(name) == neutral):
            del names[role]
    normed = apply_per_channel(walk, node, view, norm.op, names)
    return normed if split_images is None else normed.reshaped(walk.view(source).known_sizes)


def _split_images(
    walk: Walk, view: View, tensors: Mapping[str, NodeOutput]
) -> tuple[View, Mapping[str, NodeOutput]] | None:
    """Undo what torch writes for an InstanceNorm with running statistics: the images of a batch as further
    channels of one image, 1×(images·channels)×rows×columns. Return the view images×channels×rows×columns, and
    the vectors of one image, which the file repeats for each; None if the tensor is another one, or each
    image has vectors of its own.
    """
    sizes = view.sizes or ()
    channels = view.value.channels
    is_one_image = len(sizes) == 4 and sizes[0] == 1 and view.value.is_map
    if not is_one_image or not channels or not view.has_batch(1):  # axis 1 has the batch beside the channels
        return None
    images = quotient(sizes[1], channels)
    if images is None:
        return None
    split = none_if_unsupported(lambda: view.reshaped([images, channels, *sizes[2:]]))
    if split is None or not walk.views.has_channels(split, 1):
        return None
    vectors = {role: _vector_of_one_image(walk, source, images, channels) for role, source in tensors.items()}
    known_vectors = {role: source for role, source in vectors.items() if source is not None}
    return (split, known_vectors) if len(known_vectors) == len(vectors) else None


def _vector_of_one_image(walk: Walk, source: NodeOutput, images: Dim, channels: int) -> NodeOutput | None:
    """Return the source of a vector of one image, of which `source` is a copy for each image: what a Tile
    repeats, or a constant of equal rows. None if it is not repeated so.
    """
    source_name, _ = source
    node = walk.flow.nodes.get(source_name)
    if node is not None and node.name in walk.flow.live:  # as the batch is, whose size it repeats it to
        is_repeated = walk.flow.operators.kind(node) == "Tile" and walk.flow.dims(node.inputs[1]) == [images]
        return node.source if is_repeated else None
    numbers = walk.flow.constant(source)
    if numbers is None or isinstance(images, Open) or numbers.shape != (images * channels,):
        return None
    rows = numbers.reshape(images, channels)
    if np.any(rows != rows[0]):
        return None
    return walk.flow.store_computed(f"{source_name}:of one image", rows[0]).name, 0


def norm_last_axes(
    walk: Walk, node: OperatorNode, source: Source, norm: NormLayer, positions: Collection[int]
) -> View:
    """Add a norm over the last axes, whose tensors have these axes. Several axes are joined to channels
    first.
    """
    if len(positions) == 1:
        view = walk.layouts.with_channels_at(source)
        is_last_axis = walk.views.has_channels(view, -1) and view.positions(positions) == view.positions([-1])
        if is_last_axis:
            return apply_per_channel(walk, node, view, norm.op, _vector_names(walk, view, norm.tensors))
    return _norm_of_axes(walk, node, source, norm, positions)


def _norm_of_axes(
    walk: Walk, node: OperatorNode, source: Source, norm: NormLayer, positions: Collection[int]
) -> View:
    """Add a norm over the last axes, whose sizes are known, by joining them to channels.

    Raises:
        Unsupported: the axes are others, or a stored tensor has other axes than these.
    """
    view = walk.view(source)
    first = view.rank - len(positions)  # of the axes that are normed, if they are the last ones
    other_sizes, normed_sizes = (view.sizes or ())[:first], (view.sizes or ())[first:]
    are_last = view.positions(positions) == {*range(first, first + len(normed_sizes))}
    leave_out_batch = first != 0 or walk.views.lacks_batch
    if not are_last or not leave_out_batch or isinstance(width := product(normed_sizes), Open):
        raise Unsupported("over other axes than known ones behind the batch")
    stored = {role: walk.flow.tensor(tensor) for role, tensor in norm.tensors.items()}
    tensors = {
        role: Stored(tensor.name, "O" * len(positions))
        for role, tensor in stored.items()
        if tensor is not None and tensor.shape == normed_sizes
    }
    if len(tensors) < len(stored):
        raise Unsupported("by tensors of other axes")
    joined = walk.layouts.as_array(f"{node.name}:joined", view.reshaped([*other_sizes, width]))
    op = _with_scale_and_center(norm.op, tensors)
    value = walk.builder.add(node.name, op, joined.value, tensors=tensors)
    normed = walk.views.with_axes_of(joined, value).reshaped([*other_sizes, *normed_sizes])
    return walk.views.restore_layout(f"{node.name}:map", normed, view)


def group_norm(walk: Walk, node: OperatorNode, source: Source, norm: NormLayer) -> View:
    """Add a norm over all cells of each group of channels, by stored vectors with a number for each channel,
    and return its view.
    """
    view = walk.layouts.with_channels_at(source, walk.views.channels_place)
    names = _vector_names(walk, view, norm.tensors)
    if not walk.views.has_batch_first(view):
        raise Unsupported("over the batch")
    return apply_per_channel(walk, node, view, norm.op, names)


def instance_norm(walk: Walk, node: OperatorNode, source: Source, norm: NormLayer) -> View:
    """Add a norm over all axes but the first two, which are the batch and the channels, or groups of
    channels: as many groups as the second axis has.

    A scale that is 1 and an offset that is 0 are left out; groups have no others.
    """
    view = walk.layouts.operand(source)
    groups = walk.views.groups_at(view, 1) if walk.views.has_batch_first(view) else None
    if groups is None:
        raise Unsupported("over other axes than the cells of channels")
    neutral_roles = set[str]()  # a gamma of ones, a beta of zeros: the norm needs none
    for role, tensor in norm.tensors.items():
        numbers = walk.constant(tensor)
        neutral_number = 1 if role == "gamma" else 0
        if numbers is not None and numbers.size == groups and np.all(numbers == neutral_number):
            neutral_roles.add(role)
    needed_tensors = {role: tensor for role, tensor in norm.tensors.items() if role not in neutral_roles}
    names = _vector_names(walk, view, needed_tensors)
    return apply_per_channel(walk, node, view, ops.GroupNorm(groups, norm.op.epsilon), names)


def _vector_names(walk: Walk, view: View, tensors: Mapping[str, NodeOutput]) -> dict[str, str]:
    """Return by role the names of stored vectors that have a number for each channel.

    Raises:
        Unsupported: one of them is something else.
    """
    stored = {role: walk.weights(source) for role, source in tensors.items()}
    vectors = {
        role: tensor.name
        for role, tensor in stored.items()
        if tensor and is_vector(tensor, view.value.channels)
    }
    if len(vectors) < len(tensors):
        raise Unsupported("with tensors that are not one stored number per channel")
    return vectors


def is_vector(tensor: StoredTensor, size: int | None) -> bool:
    """Return whether a tensor has one axis, of this size if it is known."""
    return len(tensor.shape) == 1 and size in (None, *tensor.shape)


def apply_per_channel(walk: Walk, node: OperatorNode, view: View, op: Op, names: Mapping[str, str]) -> View:
    """Add an op of each channel with stored vectors, such as a batch norm, and return its view. `names` are
    those of the vectors, by role.
    """
    stored = {role: Stored(name) for role, name in names.items()}
    return walk.views.with_axes_of(
        view, walk.builder.add(node.name, _with_scale_and_center(op, stored), view.value, tensors=stored)
    )


def _with_scale_and_center(op: Op, tensors: Collection[str]) -> Op:
    """Return a norm with a scale if `tensors` has a gamma, and with an offset if it has a beta; another op as
    it is.
    """
    if isinstance(op, ops.RmsNorm):
        return replace(op, scale="gamma" in tensors)
    if isinstance(op, ops.BatchNorm | ops.LayerNorm | ops.GroupNorm):
        return replace(op, scale="gamma" in tensors, center="beta" in tensors)
    return op
