"""Sums, products and bounds of an op graph, for every format: a format's reader decodes its attributes.

An added vector is the bias of the convolution or dense layer just before, and a trained vector of factors is
a scale; other constants make affine steps. Numbers broadcast from the last axis, so numbers for each channel
are C×1×1 beside a map N×C×H×W. Functions take the values that a node reads as references; axes are places in
the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View, shrink_repeated_axes
from porter.filegraph.tensors.norms import apply_per_channel
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Read, Repeated, Walk, Zeros, apply_elementwise, expect_known
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
    sources = [source if isinstance(source, View) else walk.drop_repeats(source) for source in sources]
    if all(map(walk.is_value, sources)):
        return combine_values(walk, node, kind, sources)
    if len(sources) != 2:
        raise Unsupported(f"of {len(sources)} values, of which some are constants")
    is_first = walk.is_value(sources[0])
    value, constant = sources if is_first else sources[::-1]
    if isinstance(constant, View):
        raise Unsupported("of constants")
    view = walk.layouts.operand(_value_before_stretch(walk, value, constant))
    return _apply_constant(walk, node, view, _Step(kind, constant, is_first))


def _value_beside_zeros(walk: Walk, sources: Sequence[Source]) -> View | None:
    """Return the value that stands beside zeros of its size, which the file makes as it runs; None if the
    sources are others.
    """
    values = [source for source in sources if source not in walk.zero_sizes]
    if len(values) != 1 or len(sources) == 1:
        return None
    sizes = walk.sizes(values[0])
    zeros_have_sizes = sizes is not None and all(
        walk.zero_sizes.get(source, sizes) == sizes for source in sources
    )
    return walk.view(values[0]) if zeros_have_sizes else None


def _multiply_repeated(walk: Walk, node: OperatorNode, sources: Sequence[Source]) -> Zeros | Repeated | None:
    """Multiply a number that is repeated to sizes by other numbers, and return the product repeated so; None
    if the sources are others.
    """
    repeated_sizes = [walk.repeated[source].sizes for source in sources if source in walk.repeated]
    constants = [source for source in sources if not walk.is_value(source)]
    before = [walk.drop_repeats(source) for source in constants]
    numbers = [None if isinstance(source, View) else walk.flow.number(source) for source in before]
    if len(repeated_sizes) != 1 or len(numbers) < len(sources) or None in numbers:
        return None
    (sizes,) = repeated_sizes
    product = math.prod(number or 0.0 for number in numbers)
    if product == 0:
        return Zeros(sizes)
    number = walk.flow.add_constant(f"{node.name}:number", np.asarray(product))
    return Repeated(number, sizes, lacks="of constants")


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
    # both with as many axes as the repeated value, by axes of one cell in front
    padded_sizes_before = [1] * (len(sizes) - len(sizes_before)) + [*sizes_before]
    padded_shape = [1] * (len(sizes) - len(shape)) + [*shape]
    op_stretches_so = all(
        size == (size_before if constant_size == 1 else constant_size)
        for size_before, constant_size, size in zip(padded_sizes_before, padded_shape, sizes, strict=True)
    )
    return before if op_stretches_so else source


def _apply_constant(walk: Walk, node: OperatorNode, view: View, step: _Step) -> View:
    """Combine a value and a constant: by a layer's scale or offset where the constant fits one, otherwise by
    an array.
    """
    count = math.prod(walk.constant_shape(step.constant) or ())
    is_vector_of_array = view.value.is_array and count > 1
    if not _is_per_channel(walk, view, step.constant) or is_vector_of_array:
        return _apply_array(walk, node, view, step)
    value = _add_bias_or_scale(walk, node, step.kind, view.value, step.constant)
    if value is None and count > MOST_CONSTANTS:
        return _apply_array(walk, node, view, step)
    if value is None:
        value = _apply_numbers(walk, node, view.value, step)
    return walk.views.with_axes_of(view, value)


def _apply_array(walk: Walk, node: OperatorNode, view: View, step: _Step) -> View:
    """Combine a value and a stored array that has a number of its own in each place, and return the view. An
    added vector along the channels is the bias of the layer just before; a value that is subtracted from the
    array becomes an added opposite.

    Raises:
        Unsupported: the array is divided by the value, or has more axes.
    """
    kind, constant, is_first = step
    shape = walk.constant_shape(constant) or ()
    if view.axes is not None and len(shape) > len(view.axes):
        raise Unsupported("by numbers of more axes than the value has")
    if kind == "Add" and shape and walk.views.along_channels(view, shape):
        biased = _give_bias(walk, node, view.value, constant)
        if biased is not None:
            return walk.views.with_axes_of(view, biased)
    if not is_first and kind == "Div":
        raise Unsupported("of something that is not one number per channel")
    if not is_first and kind == "Sub":
        negative = walk.builder.negative(f"{node.name}:negative", view.value)
        kind = "Add"
        view = walk.views.with_axes_of(view, negative)
    if view.value.is_map and walk.views.axis_names(view) == walk.views.layout():
        # a view of its own, because the array may stretch the value to other sizes
        return walk.views.own_view(apply_constant_array(walk, node.name, kind, view.value, constant))
    array = walk.layouts.as_array(f"{node.name}:array", view)
    return walk.views.as_rank_of(array, apply_constant_array(walk, node.name, kind, array.value, constant))


def _give_bias(walk: Walk, node: OperatorNode, value: Value, constant: NodeOutput) -> Value | None:
    """Give a stored tensor to the layer that computes `value` as its bias, and return the new value; None if
    the layer takes none or the tensor is not stored.
    """
    origin = walk.flow.origin(constant)
    shape = walk.flow.constants.declared(origin)
    return walk.builder.bias(node.name, value, Stored(origin, "O" * len(shape))) if shape else None


def apply_constant_array(walk: Walk, name: str, kind: str, value: Value, constant: NodeOutput) -> Value:
    """Combine a value, whose axes are its tensor's, and a stored array, and return the result. A map is in
    the file's own layout.

    Args:
        name: of the node that is added.
        kind: Add, Sub, Mul or Div.

    Raises:
        Unsupported: the array does not fit, or is computed.
    """
    tensor = walk.weights(constant)
    numbers = walk.constant(constant)
    shape = walk.constant_shape(constant)
    if numbers is not None:
        # a stored vector may be read in a shape that it does not have in the file
        is_read_as_vector = StoredTensor("", numbers.shape).is_vector
        is_reshaped = tensor is not None and tensor.is_vector and not is_read_as_vector
        if tensor is None or is_reshaped:
            tensor = walk.flow.store_computed(f"{name}:stored", numbers)
    if tensor is not None and tensor.name in walk.flow.evaluated:
        shape = tensor.shape
    if tensor is None or shape is None or kind not in ("Add", "Sub", "Mul", "Div"):
        raise Unsupported("by something that is not one number per channel")
    return apply_stored_array(walk, name, kind, value, StoredTensor(tensor.name, shape))


def apply_stored_array(walk: Walk, name: str, kind: str, value: Value, tensor: StoredTensor) -> Value:
    """Add a stored array, broadcast to the value's axes, or multiply by it; Sub adds its negative, and Div
    multiplies by its reciprocal.

    Raises:
        Unsupported: the array cannot be broadcast so, or its negative or reciprocal is not finite.
    """
    rank = len(value.shape or ())
    tensor = walk.flow.drop_equal_rows(tensor) if len(tensor.shape) > rank else tensor
    sizes = _fitted_sizes(tensor.shape, rank)
    tensor_name = tensor.name
    if kind in ("Sub", "Div"):
        inverse = _inverse_array(kind, walk.flow.stored_numbers(tensor_name))
        tensor_name = walk.flow.store_computed(f"{name}:array", inverse).name
    axes = ""  # of the stored array: porter's own
    if value.is_map and walk.builder.order == "HWC":
        axes = "".join(axis for axis, size in zip("HWI", sizes, strict=True) if size != 1)
        rows, columns, channels = sizes
        sizes = (channels, rows, columns)  # porter's op states the sizes as C×H×W
    op = ops.AddArray(sizes) if kind in ("Add", "Sub") else ops.MultiplyArray(sizes)
    return walk.builder.add(name, op, value, tensors={"value": Stored(tensor_name, axes)})


def _fitted_sizes(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return a shape with `rank` axes: axes of one cell are added in front, or removed there.

    Raises:
        Unsupported: the axes in front have more cells.
    """
    missing = rank - len(shape)
    if missing >= 0:
        return (*[1] * missing, *shape)
    surplus = -missing
    if set(shape[:surplus]) != {1}:
        raise Unsupported("by an array of other axes")
    return shape[surplus:]


def _inverse_array(kind: str, array: Numbers) -> Numbers:
    """Return the array that gives a Sub when it is added, or a Div when it is multiplied: the negative, or
    the reciprocal, in float64.

    Raises:
        Unsupported: that is not finite.
    """
    double = np.asarray(array, np.float64)
    with np.errstate(divide="ignore"):
        inverse = -double if kind == "Sub" else 1 / double
    if not np.isfinite(inverse).all():
        raise Unsupported("by an array that has zeros or numbers that are not finite")
    return inverse


def combine_values(walk: Walk, node: OperatorNode, kind: str, sources: Sequence[Source]) -> View:
    """Combine several values, whose axes must be the same or stretch to each other, and return the view. A
    sum, a mean or an extreme of one value is that value.

    Raises:
        Unsupported: the axes are others, or no op combines so many values by this kind.
    """
    sources = _values_before_stretch(walk, sources)
    aligned = walk.layouts.align_values(sources)
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
    """Combine arrays by an op, or subtract them if it is None, and return the view. Some may have fewer axes,
    or axes of one cell, which the op stretches.
    """
    views = [walk.view(source) for source in sources]
    rank = max(view.rank for view in views)
    if not all(view.axes for view in views):
        raise Unsupported("of values of different axes")
    # with as many axes each, those that are missing behind the batch
    padded = [view.with_axes(range(1, 1 + rank - len(view.known_axes))) for view in views]
    arrays = [
        walk.layouts.as_array(f"{node.name}:{index}", view)
        for index, view in enumerate(shrink_repeated_axes(padded))
    ]
    if len({len(array.value.shape or ()) for array in arrays}) > 1:
        raise Unsupported("of values of different axes")
    values = [array.value for array in arrays]
    if op is None:
        return walk.views.as_rank(walk.builder.subtract(node.name, *values), rank)
    return walk.views.as_rank(walk.builder.add(node.name, op, *values), rank)


def _values_before_stretch(walk: Walk, sources: Sequence[Source]) -> Sequence[Source]:
    """Return the values as they are before they are repeated to the size of another one of them, since
    porter's ops stretch sizes of 1 themselves.
    """
    unrepeated_sizes = {walk.view(source).sizes for source in sources if source not in walk.repeated}
    values = list[Source]()
    for source in sources:
        repeat = None if isinstance(source, View) else walk.repeated.get(source)
        if repeat is not None and repeat.sizes in unrepeated_sizes:
            values.append(repeat.before)
        else:
            values.append(source)
    return values


def _is_per_channel(walk: Walk, view: View, source: Source) -> bool:
    """Return whether a constant is one number, or one for each channel of a value as its tensor holds it."""
    shape = walk.constant_shape(source)
    if shape is None or (view.axes is not None and len(shape) > len(view.axes)):
        return False
    # axes of more than one cell, counted from the last axis of the value
    wide_axes = [axis for axis, size in enumerate(shape, -len(shape)) if size != 1]
    is_one_number = not wide_axes
    is_along_channels = len(wide_axes) == 1 and walk.views.has_channels(view, wide_axes[0])
    return is_one_number or (is_along_channels and view.value.channels in (None, math.prod(shape)))


def _add_bias_or_scale(
    walk: Walk, node: OperatorNode, kind: str, value: Value, constant: NodeOutput
) -> Value | None:
    """Add a bias, or a trained scale; return None if the constant is neither. Factors of the input are
    constants, because they scale pixels and no layer's values.
    """
    tensor_name = walk.flow.origin(constant)
    shape = walk.flow.constants.declared(tensor_name)
    if not shape or math.prod(shape) != value.channels:
        return None
    if kind == "Add":
        return walk.builder.bias(node.name, value, Stored(tensor_name))
    is_trained = tensor_name in walk.trained or math.prod(shape) > MOST_CONSTANTS
    scales_layer = value.channels != 1 and value.node != INPUT
    if kind == "Mul" and is_trained and scales_layer:
        return walk.builder.scale(node.name, value, Stored(tensor_name))
    return None


def _apply_numbers(walk: Walk, node: OperatorNode, value: Value, step: _Step) -> Value:
    """Combine a value and a constant that is one number, or one for each channel, by ops with constants, and
    return the result.
    """
    kind, constant, is_first = step
    numbers = expect_known(walk.flow.constant(constant)).ravel().astype(np.float64)
    if len(numbers) == 1 and kind in ("Max", "Min", "Pow"):
        return _apply_number(walk.builder, node.name, value, step, numbers.item())
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


def _apply_number(builder: Builder, name: str, value: Value, step: _Step, number: float) -> Value:
    """Add the larger or the smaller one of a value and a number, or a power of them, and return its value."""
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
    steps_by_exponent: Mapping[float, Sequence[Op]] = {
        1.0: (),
        0.5: (ops.Sqrt(),),
        -1.0: (ops.Reciprocal(),),
        -0.5: (ops.Sqrt(), ops.Reciprocal()),
    }
    return builder.chain(name, value, steps_by_exponent.get(exponent, (ops.Power(exponent),)))


def negative(walk: Walk, node: OperatorNode, source: Source) -> View:
    view = walk.layouts.operand(source)
    return walk.views.with_axes_of(view, walk.builder.negative(node.name, view.value))


def full_like(walk: Walk, node: OperatorNode, source: Source, number: float) -> View:
    """Replace each number of a value by one number, and return the view of the result."""
    view = walk.layouts.operand(source)
    return walk.views.with_axes_of(view, walk.builder.affine(node.name, view.value, (0.0,), (number,)))


def clip(walk: Walk, node: OperatorNode, source: Source, low: float, high: float) -> View:
    view = walk.layouts.operand(source)
    return walk.views.with_axes_of(view, walk.builder.clip(node.name, view.value, low, high))


def prelu(walk: Walk, node: OperatorNode, source: Source, alpha: NodeOutput) -> View:
    """Add a PReLU with one slope, one for each channel, or one for each place."""
    view = walk.layouts.operand(source)
    number = walk.flow.number(alpha)
    if number is not None and view.value.channels != 1:
        return apply_elementwise(walk, node, source, ops.LeakyRelu(number))
    origin = walk.flow.origin(alpha)
    if not walk.flow.constants.declared(origin):
        raise Unsupported("with slopes that the model computes as it runs")
    if _is_per_channel(walk, view, alpha):
        return apply_per_channel(walk, node, view, ops.PRelu(), {"alpha": origin})
    array = walk.layouts.as_array(f"{node.name}:array", view)
    # slopes * min(x, 0) + max(x, 0)
    below = walk.builder.clip(f"{node.name}:below", array.value, high=0.0)
    scaled = apply_constant_array(walk, f"{node.name}:slopes", "Mul", below, alpha)
    above = walk.builder.add(f"{node.name}:above", ops.Relu(), array.value)
    return walk.views.as_rank_of(array, walk.builder.add(node.name, ops.Add(), above, scaled))
