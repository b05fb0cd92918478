"""Sums, products, bounds and norms of an op graph, for every format: a format's reader decodes its
attributes.

An added vector is the bias of the convolution or dense layer just before, and a trained vector of factors is
a scale; other constants make affine steps. Numbers broadcast from the last axis, so numbers for each channel
are C×1×1 beside a map N×C×H×W. Functions take the values that a node reads as references; axes are places in
the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.axes import View, shrink_repeated_axes
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dataflow import N, NodeOutput, OperatorNode, Pattern, StoredTensor
from porter.filegraph.dims import Dim, Open, product, quotient
from porter.filegraph.file_graph import Stored, Unsupported, none_if_unsupported
from porter.filegraph.walk import NodeWalk, Read, Repeated, Source, Walk, Zeros, apply_elementwise
from porter.graph import INPUT, MOST_CONSTANTS, Op, ops

_OF_ONE = frozenset({"Add", "Max", "Mean", "Min"})
"""The operators that give a single value as it is."""
_OF_VALUES: Mapping[str, ops.Merge] = {
    "Add": ops.Add(),
    "Mul": ops.Multiply(),
    "Div": ops.Divide(),
    "Max": ops.Maximum(),
    "Min": ops.Minimum(),
}


class _Step(NamedTuple):
    """A sum, a product or the like of a value and a constant.

    Attributes:
        is_first: the value stands before the constant, which a difference and a quotient ask for.
    """

    kind: str
    constant: NodeOutput
    is_first: bool


def combine(walk: Walk, node: OperatorNode, kind: str, sources: Sequence[Source]) -> Read:
    """Combine values, or a value and a constant, by Add, Sub, Mul, Div, Max, Min, Mean or Pow. A sum with
    zeros is the value itself, a product with zeros is Zeros, and a product of constants, of which one is
    repeated, is Repeated.

    Raises:
        Unsupported: constants stand among more than two operands, or porter has no op for it.
    """
    view = _value_beside_zeros(walk, sources) if kind in ("Add", "Mul") else None
    if view is not None:
        return view if kind == "Add" else Zeros(view.known_sizes)
    repeated = _multiply_repeated(walk, node, sources) if kind == "Mul" else None
    if repeated is not None:
        return repeated
    sources = [each if isinstance(each, View) else walk.drop_repeats(each) for each in sources]
    if all(map(walk.is_value, sources)):
        return combine_values(walk, node, kind, sources)
    if len(sources) != 2:
        raise Unsupported(f"of {len(sources)} values, of which some are constants")
    is_first = walk.is_value(sources[0])
    value, constant = sources if is_first else sources[::-1]
    if isinstance(constant, View):
        raise Unsupported("of constants")
    view = walk.try_lay_out(_value_before_stretch(walk, value, constant))
    return _combine_with_constant(walk, node, view, _Step(kind, constant, is_first))


def _value_beside_zeros(walk: Walk, sources: Sequence[Source]) -> View | None:
    """Return the value that stands beside zeros of its size, which the file makes as it runs; None if the
    sources are others.
    """
    values = [source for source in sources if source not in walk.zero_sizes]
    sizes = walk.sizes(values[0]) if len(values) == 1 < len(sources) else None
    same = sizes is not None and all(sizes == walk.zero_sizes.get(source, sizes) for source in sources)
    return walk.view(values[0]) if same else None


def _multiply_repeated(walk: Walk, node: OperatorNode, sources: Sequence[Source]) -> Zeros | Repeated | None:
    """Multiply a number that is repeated to sizes by other numbers, and return the product repeated so; None
    if the sources are others.
    """
    sizes = [walk.repeated[source].sizes for source in sources if source in walk.repeated]
    numbers = [walk.constant_number(walk.drop_repeats(each)) for each in sources if not walk.is_value(each)]
    if len(sizes) != 1 or len(numbers) < len(sources) or None in numbers:
        return None
    product = math.prod(number or 0.0 for number in numbers)
    if not product:
        return Zeros(sizes[0])
    number = walk.flow.add_constant(f"{node.name}:number", np.asarray(product))
    return Repeated(number, sizes[0], lacks="of constants")


def _value_before_stretch(walk: Walk, source: Source, constant: NodeOutput) -> Source:
    """Return the value as it is before it is repeated to the size of a constant, since porter's ops stretch
    sizes of 1 themselves; another value as it is.
    """
    if source not in walk.repeated:
        return source
    before, sizes = walk.repeated[source].before, walk.repeated[source].sizes
    sizes_before = walk.sizes(before)
    shape = walk.constant_shape(constant)
    if not sizes_before or not shape or max(len(sizes_before), len(shape)) != len(sizes):
        return source
    narrow, wide = ((*[1] * (len(sizes) - len(each)), *each) for each in (sizes_before, shape))
    fits = all(
        size == (size_before if constant_size == 1 else constant_size)
        for size_before, constant_size, size in zip(narrow, wide, sizes, strict=True)
    )
    return before if fits else source


def _combine_with_constant(walk: Walk, node: OperatorNode, view: View, step: _Step) -> View:
    """Combine a value and a constant: by a layer's scale or offset where the constant fits one, otherwise by
    an array.
    """
    count = math.prod(walk.constant_shape(step.constant) or ())
    if not _is_per_channel(walk, view, step.constant) or (view.value.is_array and count > 1):
        return _combine_with_array(walk, node, view, step)
    value = _add_bias_or_scale(walk, node, step.kind, view.value, step.constant)
    if value is None and count > MOST_CONSTANTS:
        return _combine_with_array(walk, node, view, step)
    return walk.views.with_axes_of(view, value or _combine_with_numbers(walk, node, view.value, step))


def _combine_with_array(walk: Walk, node: OperatorNode, view: View, step: _Step) -> View:
    """Combine a value and a stored array that has a number of its own in each place, and return the view. An
    added vector along the channels is the bias of the layer just before; a value that is subtracted from the
    array becomes an added opposite.

    Raises:
        Unsupported: the array is divided by the value, or has more axes.
    """
    kind, constant, is_first = step
    numbers = walk.constant_shape(constant) or ()
    if view.axes is not None and len(numbers) > len(view.axes):
        raise Unsupported("by numbers of more axes than the value has")
    if kind == "Add" and numbers and walk.views.along_channels(view, numbers):
        biased = _add_bias(walk, node, view.value, constant)
        if biased is not None:
            return walk.views.with_axes_of(view, biased)
    if not is_first and kind == "Div":
        raise Unsupported("of something that is not one number per channel")
    if not is_first and kind == "Sub":
        negative = walk.builder.negative(f"{node.name}:negative", view.value)
        kind = "Add"
        view = walk.views.with_axes_of(view, negative)
    if view.value.is_map and walk.views.axis_names(view) == walk.views.layout():
        # It has other sizes, if the array stretches it.
        return walk.views.own_view(combine_stored_array(walk, node.name, kind, view.value, constant))
    array = walk.as_array(f"{node.name}:array", view)
    return walk.views.as_rank_of(array, combine_stored_array(walk, node.name, kind, array.value, constant))


def _add_bias(walk: Walk, node: OperatorNode, value: Value, constant: NodeOutput) -> Value | None:
    """Give a stored tensor to the layer that computes `value` as its bias, and return the new value; None if
    the layer takes none or the tensor is not stored.
    """
    origin = walk.flow.origin(constant)
    shape = walk.flow.constants.declared(origin)
    return walk.builder.bias(node.name, value, Stored(origin, "O" * len(shape))) if shape else None


def combine_stored_array(walk: Walk, name: str, kind: str, value: Value, other: NodeOutput) -> Value:
    """Combine a value, whose axes are its tensor's, and a stored array. A map is in the file's own layout.

    Raises:
        Unsupported: the array does not fit, or is computed.
    """
    tensor = walk.weights(other)
    numbers = walk.constant(other)
    shape = walk.constant_shape(other)
    # A stored vector may be read in a shape that it does not have in the file.
    is_reshaped = numbers is not None and (
        tensor is None or (tensor.is_vector and not StoredTensor("", numbers.shape).is_vector)
    )
    if numbers is not None and is_reshaped:
        tensor = walk.flow.store_computed(f"{name}:stored", numbers)
    if tensor is not None and tensor.name in walk.flow.evaluated:
        shape = tensor.shape
    if tensor is None or shape is None or kind not in ("Add", "Sub", "Mul", "Div"):
        raise Unsupported("by something that is not one number per channel")
    return combine_stored(walk, name, kind, value, StoredTensor(tensor.name, shape))


def combine_stored(walk: Walk, name: str, kind: str, value: Value, tensor: StoredTensor) -> Value:
    """Add a stored array, broadcast to the value's axes, or multiply by it; Sub adds its negative, and Div
    multiplies by its reciprocal.

    Raises:
        Unsupported: the array cannot be broadcast so, or its negative or reciprocal is not finite.
    """
    rank = len(value.shape or ())
    tensor = walk.flow.drop_equal_rows(tensor) if len(tensor.shape) > rank else tensor
    sizes = _fitted_sizes(tensor.shape, rank)
    stored = tensor.name
    if kind in ("Sub", "Div"):
        stored = walk.flow.store_computed(
            f"{name}:array", _inverse_array(kind, walk.flow.stored_numbers(stored))
        ).name
    axes = ""
    if value.is_map and walk.builder.order == "HWC":
        axes = "".join(axis for axis, size in zip("HWI", sizes, strict=True) if size != 1)
        rows, columns, channels = sizes
        sizes = (channels, rows, columns)  # porter's op states the sizes as C×H×W
    op = ops.AddArray(sizes) if kind in ("Add", "Sub") else ops.MultiplyArray(sizes)
    return walk.builder.add(name, op, value, tensors={"value": Stored(stored, axes)})


def _fitted_sizes(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return a shape with `rank` axes: axes of one cell are added in front, or removed there."""
    extra = len(shape) - rank
    if extra <= 0:
        return (*[1] * -extra, *shape)
    if set(shape[:extra]) != {1}:
        raise Unsupported("by an array of other axes")
    return shape[extra:]


def _inverse_array(kind: str, array: Numbers) -> Numbers:
    """Return the array that gives a Sub when it is added, or a Div when it is multiplied."""
    wide = np.asarray(array, np.float64)
    with np.errstate(divide="ignore"):
        opposite = -wide if kind == "Sub" else 1 / wide
    if not np.isfinite(opposite).all():
        raise Unsupported("by an array that has zeros or numbers that are not finite")
    return opposite


def combine_values(walk: Walk, node: OperatorNode, kind: str, sources: Sequence[Source]) -> View:
    """Combine several values, whose axes must be the same or stretch to each other, and return the view. A
    sum, a mean or an extreme of one value is that value.

    Raises:
        Unsupported: the axes are others, or no op combines so many values by this kind.
    """
    sources = _values_before_stretch(walk, sources)
    aligned = walk.align_values(sources)
    if aligned is None and (kind in _OF_VALUES or (kind == "Sub" and len(sources) == 2)):
        return _merge_arrays(walk, node, _OF_VALUES.get(kind), sources)
    if aligned is None:
        raise Unsupported("of values of different axes")
    values, as_tensor = aligned
    if kind in _OF_ONE and len(values) == 1:
        return as_tensor(values[0])
    if kind == "Sub" and len(values) == 2:
        value = walk.builder.subtract(node.name, values[0], values[1])
    elif kind == "Mean":
        value = walk.builder.average(node.name, *values)
    elif kind in _OF_VALUES and len(values) > 1:
        value = walk.builder.add(node.name, _OF_VALUES[kind], *values)
    else:
        raise Unsupported(f"of {len(values)} values")
    return as_tensor(value)


def _merge_arrays(walk: Walk, node: OperatorNode, op: ops.Merge | None, sources: Sequence[Source]) -> View:
    """Combine arrays by an op, or subtract them if it is None. Some may have fewer axes, or axes of one
    cell.
    """
    own = [walk.view(source) for source in sources]
    rank = max(view.rank for view in own)
    if not all(view.axes for view in own):
        raise Unsupported("of values of different axes")
    wide = [view.with_axes(range(1, 1 + rank - len(view.known_axes))) for view in own]
    views = [
        walk.as_array(f"{node.name}:{index}", view) for index, view in enumerate(shrink_repeated_axes(wide))
    ]
    if len({len(view.value.shape or ()) for view in views}) > 1:
        raise Unsupported("of values of different axes")
    values = [view.value for view in views]
    value = (
        walk.builder.add(node.name, op, *values)
        if op is not None
        else walk.builder.subtract(node.name, *values)
    )
    return walk.views.as_rank(value, rank)


def _values_before_stretch(walk: Walk, sources: Sequence[Source]) -> Sequence[Source]:
    """Return the values as they are before they are repeated to the size of another one of them, since
    porter's ops stretch sizes of 1 themselves.
    """
    sizes_of_others = {walk.view(source).sizes for source in sources if source not in walk.repeated}
    repeats = [
        (source, None if isinstance(source, View) else walk.repeated.get(source)) for source in sources
    ]
    return [
        repeat.before if repeat is not None and repeat.sizes in sizes_of_others else source
        for source, repeat in repeats
    ]


def _is_per_channel(walk: Walk, view: View, source: Source) -> bool:
    """Return whether a constant is one number, or one for each channel of a value as its tensor holds it."""
    shape = walk.constant_shape(source)
    if shape is None or (view.axes is not None and len(shape) > len(view.axes)):
        return False
    wide_axes = [axis for axis, size in enumerate(shape, -len(shape)) if size != 1]
    along_channels = len(wide_axes) == 1 and walk.views.has_channels(view, wide_axes[0])
    return not wide_axes or (along_channels and view.value.channels in (None, math.prod(shape)))


def _add_bias_or_scale(
    walk: Walk, node: OperatorNode, kind: str, value: Value, other: NodeOutput
) -> Value | None:
    """Add a bias, or a trained scale; return None if the constant is neither. Factors of the input are
    constants, because they scale pixels and no layer's values.
    """
    origin = walk.flow.origin(other)
    shape = walk.flow.constants.declared(origin)
    if not shape or math.prod(shape) != value.channels:
        return None
    if kind == "Add":
        return walk.builder.bias(node.name, value, Stored(origin))
    trained = origin in walk.trained or math.prod(shape) > MOST_CONSTANTS
    if kind == "Mul" and trained and value.channels != 1 and value.node != INPUT:
        return walk.builder.scale(node.name, value, Stored(origin))
    return None


def _combine_with_numbers(walk: Walk, node: OperatorNode, value: Value, step: _Step) -> Value:
    """Combine a value and a constant that is one number, or one for each channel."""
    kind, constant, is_first = step
    numbers = walk.numbers(constant).ravel().astype(np.float64)
    if len(numbers) == 1 and kind in ("Max", "Min", "Pow"):
        return _combine_with_number(walk.builder, node.name, value, step, numbers.item())
    if kind in ("Max", "Min") or (kind == "Div" and not is_first):
        # these ops take two values: the constant becomes 0 * value + numbers
        constant_value = walk.builder.affine(f"{node.name}:constant", value, (0.0,), numbers)
        return walk.builder.add(node.name, _OF_VALUES[kind], constant_value, value)
    # the others are value * scale + offset
    scale = np.ones(1)
    offset = np.zeros(1)
    match kind:
        case "Add":
            offset = numbers
        case "Sub" if is_first:
            offset = -numbers
        case "Sub":
            scale, offset = -scale, numbers
        case "Mul":
            scale = numbers
        case "Div" if all(numbers):
            scale = 1 / numbers
        case _:
            raise Unsupported("by zero" if kind == "Div" else "of a value and a constant")
    return walk.builder.affine(node.name, value, scale, offset)


def _combine_with_number(builder: Builder, name: str, value: Value, step: _Step, number: float) -> Value:
    """Add an extreme, or a power, of a value and one number."""
    if step.kind == "Max":
        return builder.clip(name, value, low=number)
    if step.kind == "Min":
        return builder.clip(name, value, high=number)
    if step.is_first:
        return _power(builder, name, value, number)
    if number <= 0:
        raise Unsupported("of a value and a constant")
    # number ** value is exp(log(number) * value)
    return builder.chain(name, value, (ops.Affine((math.log(number),), (0.0,)), ops.Exp()))


def _power(builder: Builder, name: str, value: Value, exponent: float) -> Value:
    """Add a power by the op that computes it best: a product, a root, a reciprocal or a Power."""
    if exponent == 2:
        return builder.add(name, ops.Multiply(), value, value)
    links_by_exponent: Mapping[float, Sequence[Op]] = {
        1.0: (),
        0.5: (ops.Sqrt(),),
        -1.0: (ops.Reciprocal(),),
        -0.5: (ops.Sqrt(), ops.Reciprocal()),
    }
    return builder.chain(name, value, links_by_exponent.get(exponent, (ops.Power(exponent),)))


def negative(walk: Walk, node: OperatorNode, source: Source) -> View:
    view = walk.try_lay_out(source)
    return walk.views.with_axes_of(view, walk.builder.negative(node.name, view.value))


def full_like(walk: Walk, node: OperatorNode, source: Source, number: float) -> View:
    """Replace each number of a value by one number."""
    view = walk.try_lay_out(source)
    return walk.views.with_axes_of(view, walk.builder.affine(node.name, view.value, (0.0,), (number,)))


def clip(walk: Walk, node: OperatorNode, source: Source, low: float, high: float) -> View:
    view = walk.try_lay_out(source)
    return walk.views.with_axes_of(view, walk.builder.clip(node.name, view.value, low, high))


def prelu(walk: Walk, node: OperatorNode, source: Source, alpha: NodeOutput) -> View:
    """Add a PReLU with one slope, one for each channel, or one for each place."""
    view = walk.try_lay_out(source)
    number = walk.flow.number(alpha)
    if number is not None and view.value.channels != 1:
        return apply_elementwise(walk, node, source, ops.LeakyRelu(number))
    origin = walk.flow.origin(alpha)
    if not walk.flow.constants.declared(origin):
        raise Unsupported("with slopes that the model computes as it runs")
    if _is_per_channel(walk, view, alpha):
        return _apply_per_channel(walk, node, view, ops.PRelu(), {"alpha": origin})
    array = walk.as_array(f"{node.name}:array", view)
    # slopes * min(x, 0) + max(x, 0)
    below = walk.builder.clip(f"{node.name}:below", array.value, high=0.0)
    scaled = combine_stored_array(walk, f"{node.name}:slopes", "Mul", below, alpha)
    above = walk.builder.add(f"{node.name}:above", ops.Relu(), array.value)
    return walk.views.as_rank_of(array, walk.builder.add(node.name, ops.Add(), above, scaled))


class NormLayer(NamedTuple):
    """A norm, with its stored tensors by role, which say whether it has a scale and an offset."""

    op: ops.BatchNorm | ops.LayerNorm | ops.RmsNorm | ops.GroupNorm
    tensors: Mapping[str, NodeOutput]


def batch_norm(walk: Walk, node: OperatorNode, source: Source, norm: NormLayer) -> View:
    """Add a norm by stored vectors, and return its view. A scale that the file does not train and that is 1
    is left out, as is an offset of 0. Images that stand among the channels are normed one by one.
    """
    images = _split_images(walk, walk.view(source), norm.tensors)
    if images is not None:
        view, tensors = images
    else:
        view = walk.with_channels_at(source, walk.views.channels_place)
        tensors = norm.tensors
        view = walk.try_as_cells(f"{node.name}:cells", view)
    if view.value.is_array and view.rank == 4:  # of windows, say, which are a map's here
        view = walk.views.own_view(walk.value(source))
    names = _vector_names(walk, view, tensors)
    for role, neutral in (("gamma", 1), ("beta", 0)):
        name = names.get(role, "")
        is_trained = name in walk.trained or name.rpartition("/")[2] == role  # by its variable, or its name
        if name and not is_trained and np.all(walk.flow.stored_numbers(name) == neutral):
            del names[role]
    normed = _apply_per_channel(walk, node, view, norm.op, names)
    return normed if images is None else normed.reshaped(walk.view(source).known_sizes)


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
    # the first axis is one image, and the second has the batch beside the channels
    if len(sizes) != 4 or sizes[0] != 1 or not view.value.is_map or not channels or not view.has_batch(1):
        return None
    images = quotient(sizes[1], channels)
    if images is None:
        return None
    split = none_if_unsupported(lambda: view.reshaped([images, channels, *sizes[2:]]))
    if split is None or not walk.views.has_channels(split, 1):
        return None
    vectors = {role: _vector_of_one_image(walk, source, images, channels) for role, source in tensors.items()}
    found = {role: source for role, source in vectors.items() if source is not None}
    return (split, found) if len(found) == len(vectors) else None


def _vector_of_one_image(walk: Walk, source: NodeOutput, images: Dim, channels: int) -> NodeOutput | None:
    """Return the source of a vector of one image, of which `source` is a copy for each image: what a Tile
    repeats, or a constant of equal rows. None if it is not repeated so.
    """
    node = walk.flow.nodes.get(source[0])
    if node is not None and node.name in walk.flow.live:
        is_repeated = walk.flow.kind(node) == "Tile" and walk.flow.dims(node.inputs[1]) == [images]
        return node.source if is_repeated else None
    numbers = walk.flow.value(source)
    if numbers is None or isinstance(images, Open) or numbers.shape != (images * channels,):
        return None
    rows = numbers.reshape(images, channels)
    if np.any(rows != rows[0]):
        return None
    return walk.flow.store_computed(f"{source[0]}:of one image", rows[0]).name, 0


def response_norm(
    walk: NodeWalk[N], node: N, means: Pattern, pool: str, size_of: Callable[[N, Value], int | None]
) -> Value | None:
    """Add what torch.nn.functional.local_response_norm writes, x / (bias + alpha * means of squares) ** beta,
    as one op; return None for other quotients. Its alpha multiplies a mean, porter's a sum.

    Args:
        means: the means of squares over neighbouring channels, as a pattern whose `pool` is the op that takes
            them.
        size_of: over how many channels that does, from its node and x; None where it takes others.
    """
    parts = walk.flow.match(node, ("Div", "x", ("Pow", ("Add", ("Mul", means, "$alpha"), "$bias"), "$beta")))
    if parts is None:
        return None
    value = walk.value(parts["x"])
    pool_node = node
    while pool_node.op != pool:  # from the quotient to its divisor, and on to the pool
        live = [name for name, _ in pool_node.inputs if name in walk.flow.live]
        pool_node = walk.flow.nodes[live[-1] if pool_node is node else live[0]]
    size = size_of(pool_node, value)
    op = ops.LocalResponseNorm(size or 1, parts["$alpha"] / (size or 1), parts["$beta"], parts["$bias"])
    return None if size is None else walk.builder.add(node.name, op, value)


def norm_last_axes(
    walk: Walk, node: OperatorNode, source: Source, norm: NormLayer, positions: Collection[int]
) -> View:
    """Add a norm over the last axes, whose tensors have these axes. Several axes are joined to channels
    first.
    """
    view = walk.with_channels_at(source) if len(positions) == 1 else None
    is_over_channels = (
        view is not None
        and walk.views.has_channels(view, -1)
        and view.positions(positions) == view.positions([-1])
    )
    if view is None or not is_over_channels:
        return _norm_of_axes(walk, node, source, norm, positions)
    return _apply_per_channel(walk, node, view, norm.op, _vector_names(walk, view, norm.tensors))


def _norm_of_axes(
    walk: Walk, node: OperatorNode, source: Source, norm: NormLayer, positions: Collection[int]
) -> View:
    """Add a norm over the last axes, whose sizes are known, by joining them to channels."""
    view = walk.view(source)
    rank = view.rank - len(positions)
    lead, sizes = (view.sizes or ())[:rank], (view.sizes or ())[rank:]
    # the axes are the last ones, and the batch is not among them
    is_last = view.positions(positions) == {*range(rank, rank + len(sizes))} and (
        rank or walk.views.lacks_batch
    )
    if not is_last or isinstance(width := product(sizes), Open):
        raise Unsupported("over other axes than known ones behind the batch")
    stored = {role: walk.flow.tensor(each) for role, each in norm.tensors.items()}
    tensors = {
        role: Stored(each.name, "O" * len(positions))
        for role, each in stored.items()
        if each is not None and each.shape == sizes
    }
    if len(tensors) < len(stored):
        raise Unsupported("by tensors of other axes")
    joined = walk.as_array(f"{node.name}:joined", view.reshaped([*lead, width]))
    normed = walk.views.with_axes_of(
        joined,
        walk.builder.add(node.name, _with_scale_and_center(norm.op, tensors), joined.value, tensors=tensors),
    )
    return walk.views.restore_layout(f"{node.name}:map", normed.reshaped([*lead, *sizes]), view)


def group_norm(walk: Walk, node: OperatorNode, source: Source, norm: NormLayer) -> View:
    """Add a norm over all cells of each group of channels, by stored vectors."""
    view = walk.with_channels_at(source, walk.views.channels_place)
    names = _vector_names(walk, view, norm.tensors)
    if not walk.views.has_batch_first(view):
        raise Unsupported("over the batch")
    return _apply_per_channel(walk, node, view, norm.op, names)


def instance_norm(
    walk: Walk, node: OperatorNode, source: Source, tensors: Mapping[str, NodeOutput], epsilon: float
) -> View:
    """Add a norm over all axes but the first two, which are the batch and the channels, or groups of
    channels.

    A scale that is 1 and an offset that is 0 are left out; groups have no others.
    """
    view = walk.try_lay_out(source)
    groups = walk.views.groups_at(view, 1) if walk.views.has_batch_first(view) else None
    if groups is None:
        raise Unsupported("over other axes than the cells of channels")
    numbers = {role: walk.constant(each) for role, each in tensors.items()}
    neutral = {
        role
        for role, each in numbers.items()
        # a gamma of ones, a beta of zeros: the norm without them
        if each is not None and each.size == groups and np.all(each == (role == "gamma"))
    }
    names = _vector_names(walk, view, {role: each for role, each in tensors.items() if role not in neutral})
    return _apply_per_channel(walk, node, view, ops.GroupNorm(groups, epsilon), names)


def _vector_names(walk: Walk, view: View, tensors: Mapping[str, NodeOutput]) -> dict[str, str]:
    """Return the names of stored vectors that have a number for each channel.

    Raises:
        Unsupported: one of them is something else.
    """
    names = {role: walk.weights(source) for role, source in tensors.items()}
    fitting = {
        role: tensor.name
        for role, tensor in names.items()
        if tensor and is_vector(tensor, view.value.channels)
    }
    if len(fitting) < len(tensors):
        raise Unsupported("with tensors that are not one stored number per channel")
    return fitting


def is_vector(tensor: StoredTensor, size: int | None) -> bool:
    """Return whether a tensor has one axis, of this size if it is known."""
    return len(tensor.shape) == 1 and size in (None, *tensor.shape)


def _apply_per_channel(walk: Walk, node: OperatorNode, view: View, op: Op, names: Mapping[str, str]) -> View:
    """Add an op of each channel with stored vectors, such as a batch norm."""
    stored = {role: Stored(name) for role, name in names.items()}
    return walk.views.with_axes_of(
        view, walk.builder.add(node.name, _with_scale_and_center(op, stored), view.value, tensors=stored)
    )


def _with_scale_and_center(op: Op, tensors: Collection[str]) -> Op:
    """Return a norm that has a scale and an offset if its tensors have them; another op as it is."""
    if isinstance(op, ops.RmsNorm):
        return replace(op, scale="gamma" in tensors)
    if isinstance(op, ops.BatchNorm | ops.LayerNorm | ops.GroupNorm):
        return replace(op, scale="gamma" in tensors, center="beta" in tensors)
    return op
