"""What JAX traces of a module, as an ONNX model, which porter reads as any other. What has no operator there
stands in it under the name of its primitive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from porter.frameworks.flax.tracing import sums, windows
from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, Shape, Traced, in_each_trace
from porter.frameworks.flax.tracing.writer import FOREIGN, Write, Writer, elementwise, has_open, is_open

_OPSET, _IR = 21, 10


def to_model(traced: Traced, maps: Collection[int] = ()) -> tuple[Any, Mapping[str, str]]:
    """Write the traced module as an ONNX model (ModelProto), and return it with the names of the traced
    values by those of its own values. The model takes maps N×C×H×W, which the module takes as N×H×W×C.
    Numbers of the module's code are in double precision, and its variables in float32.

    Args:
        maps: indices of outputs that are maps, which the model gives as N×C×H×W.
    """
    writer = Writer(traced, _WRITES)
    helper = writer.onnx.helper
    inputs = [_add_input(writer, name) for name in traced.inputs]
    for operation in traced.operations:
        writer.write(operation)
    outputs = []
    for index, name in enumerate(traced.outputs):
        value, output = writer.full_value(name), f"output_{index}"
        if index in maps:
            outputs.append(writer.add_node("Transpose", value, output=output, perm=(0, 3, 1, 2)))
        else:
            outputs.append(writer.add_node("Identity", value, output=output))
    graph = helper.make_graph(
        writer.nodes,
        "module",
        inputs,
        [helper.make_tensor_value_info(name, 1, None) for name in outputs],
        writer.initializers,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(FOREIGN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR), writer.calls


def _add_input(writer: Writer, name: str) -> Any:
    """Return the model's input for the module's input `name`: of maps it is N×C×H×W, and a Transpose turns
    them into the N×H×W×C that the module takes. A size that differs between traces has a name, its sizes
    joined: `224x225`.
    """
    sizes = writer.shape(name)
    writer.model_values[name] = name
    if len(sizes) == 4:
        writer.model_values[name] = writer.add_node("Transpose", name, perm=(0, 2, 3, 1))
        sizes = tuple(sizes[axis] for axis in (0, 3, 1, 2))
    writer.note_open_sizes(name)
    shape = ["x".join(map(str, size.at)) if isinstance(size, PerTrace) else size for size in sizes]
    return writer.onnx.helper.make_tensor_value_info(name, 1, shape)


_COMPARISONS = {
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "lt": "Less",
    "le": "LessOrEqual",
    "and": "And",
    "or": "Or",
    "not": "Not",
}


def _divide(writer: Writer, operation: JaxEquation) -> str:
    """Write a quotient, as the first of these that it is: a softmax, a mean, an average pool, or a Div. The
    other functions give None where it is not theirs.
    """
    top, bottom = operation.inputs
    return (
        sums.write_softmax(writer, operation)
        or sums.write_mean(writer, operation)
        or windows.write_average(writer, top, bottom)
        or str(elementwise("Div")(writer, operation))
    )


def _alias(writer: Writer, operation: JaxEquation) -> str:
    """Return the operation's input as its value, because it changes no number."""
    return writer.same_value(operation.source, operation.outputs[0])


def _reshape(writer: Writer, operation: JaxEquation) -> str:
    """Write a reshape. One that only puts back axes of 1 that a sum has left out adds nothing."""
    source, target = operation.source, writer.shape(operation.outputs[0])
    if source in writer.kept_axes and writer.shape_with_kept_axes(source) == target:
        return writer.broadcastable_value(source)
    return writer.add_node(
        "Reshape", writer.full_value(source), writer.add_sizes(target, writer.shape(source))
    )


def _squeeze(writer: Writer, operation: JaxEquation) -> str:
    """Write a squeeze of axes of one cell as a Squeeze; without any axes it is the value itself."""
    axes = operation.params["dimensions"]
    value = writer.full_value(operation.source)
    return writer.add_node("Squeeze", value, writer.add_integers(*axes)) if axes else value


def _broadcast(writer: Writer, operation: JaxEquation) -> str:
    """Write a broadcast as new axes of one cell. Cells are not repeated here: the value is put into
    `unexpanded`, and gets all its cells where an operator needs them.
    """
    source, target = operation.source, writer.shape(operation.outputs[0])
    own_axes = [int(axis) for axis in operation.params["broadcast_dimensions"]]
    new_axes = [axis for axis in range(len(target)) if axis not in own_axes]
    has_new_axes = writer.kept_axes.get(source) == tuple(new_axes)
    value = writer.broadcastable_value(source) if has_new_axes else writer.full_value(source)
    if new_axes and own_axes and not has_new_axes:
        value = writer.add_node("Unsqueeze", value, writer.add_integers(*new_axes))
    sizes = dict(zip(own_axes, writer.shape(source), strict=True))
    if any(sizes.get(axis, 1) != size for axis, size in enumerate(target)):
        writer.unexpanded.add(operation.outputs[0])
    return value


def _transpose(writer: Writer, operation: JaxEquation) -> str:
    """Write a transpose as a Transpose with the same order of axes."""
    return writer.add_node(
        "Transpose",
        writer.full_value(operation.source),
        perm=[int(axis) for axis in operation.params["permutation"]],
    )


def _add(writer: Writer, operation: JaxEquation) -> str:
    """Write a sum; one with 0 is the other operand."""
    return _other_if_neutral(writer, operation, 0.0) or str(elementwise("Add")(writer, operation))


def _subtract(writer: Writer, operation: JaxEquation) -> str:
    """Write a difference, as the first of these that it is: a log_softmax, a value less 0, or a Sub."""
    return (
        sums.write_log_softmax(writer, operation)
        or _other_if_neutral(writer, operation, 0.0, 1)
        or str(elementwise("Sub")(writer, operation))
    )


def _multiply(writer: Writer, operation: JaxEquation) -> str:
    """Write a product, as the first of these that it is: a group norm, a value times 1, or a Mul."""
    return (
        sums.write_group_norm(writer, operation)
        or _other_if_neutral(writer, operation, 1.0)
        or str(elementwise("Mul")(writer, operation))
    )


def _other_if_neutral(writer: Writer, operation: JaxEquation, neutral: float, *indices: int) -> str | None:
    """Return x for x + 0 or x * 1: the value of the other operand if one of them is the number `neutral`,
    which changes nothing; otherwise None.

    Args:
        indices: of the operands that may be that number; both where none are given.
    """
    for index in indices or (0, 1):
        number = writer.constant(operation.inputs[index])
        if number is not None and np.ndim(number) == 0 and number == neutral:
            return writer.same_value(operation.inputs[1 - index], operation.outputs[0])
    return None


def _product(writer: Writer, operation: JaxEquation) -> str:
    """Write a dot_general: as a MatMul where it is one, otherwise as an Einsum such as `abc,adc->abd`."""
    # The axes of both values that are summed over, and those that both have (of batches).
    (left_summed, right_summed), (left_shared, right_shared) = operation.params["dimension_numbers"]
    left, right = operation.inputs
    left_rank, right_rank = len(writer.shape(left)), len(writer.shape(right))
    is_last_by_first = tuple(left_summed) == (left_rank - 1,) and tuple(right_summed) == (0,)
    if is_last_by_first and right_rank == 2 and not left_shared:
        return writer.add_node("MatMul", writer.full_value(left), writer.full_value(right))
    letters = iter(ascii_lowercase)
    left_letters = [next(letters) for _ in range(left_rank)]
    right_letters = [""] * right_rank
    for left_axis, right_axis in (
        *zip(left_summed, right_summed, strict=True),
        *zip(left_shared, right_shared, strict=True),
    ):
        right_letters[right_axis] = left_letters[left_axis]
    right_letters = [letter or next(letters) for letter in right_letters]
    # The shared axes come first, then the other axes of the left value, then those of the right one.
    output_letters = [left_letters[axis] for axis in left_shared]
    output_letters += [
        letter for axis, letter in enumerate(left_letters) if axis not in (*left_summed, *left_shared)
    ]
    output_letters += [
        letter for axis, letter in enumerate(right_letters) if axis not in (*right_summed, *right_shared)
    ]
    equation = f"{''.join(left_letters)},{''.join(right_letters)}->{''.join(output_letters)}"
    return writer.add_node("Einsum", writer.full_value(left), writer.full_value(right), equation=equation)


def _power(writer: Writer, operation: JaxEquation) -> str:
    """Write a power by a whole number as a Pow; a square is a product of the value with itself."""
    (value,), exponent = writer.broadcastable_inputs(operation), operation.params["y"]
    if exponent == 2:
        return writer.add_node("Mul", value, value)
    return writer.add_node("Pow", value, writer.add_constant(np.asarray(float(exponent))))


def _square(writer: Writer, operation: JaxEquation) -> str:
    (value,) = writer.broadcastable_inputs(operation)
    return writer.add_node("Mul", value, value)


def _erfc(writer: Writer, operation: JaxEquation) -> str:
    """Write erfc, which is 1 - erf."""
    return writer.add_node(
        "Sub",
        writer.add_constant(np.asarray(1.0)),
        writer.add_node("Erf", *writer.broadcastable_inputs(operation)),
    )


def _select(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a choice of one of two values by a condition as a Where; None for one of more values. Where the
    condition is the same everywhere, it is the chosen value itself.
    """
    if len(operation.inputs) != 3:
        return None
    condition, if_false, if_true = operation.inputs
    not_equal = writer.find_producer(condition, "ne")
    # x != x asks for values that are not a number: there are none.
    if not_equal is not None and not_equal.source == not_equal.inputs[1]:
        return writer.full_value(if_false)
    constant = writer.constant(condition)
    if constant is not None and np.all(constant == np.ravel(constant)[0]):
        return writer.full_value(if_true if np.ravel(constant)[0] else if_false)
    return writer.add_node(
        "Where",
        writer.full_value(condition),
        writer.broadcastable_value(if_true),
        writer.broadcastable_value(if_false),
    )


def _clamp(writer: Writer, operation: JaxEquation) -> str:
    """Write a clamp as a Max and a Min."""
    low, value, high = operation.inputs
    return writer.add_node(
        "Min",
        writer.add_node("Max", writer.full_value(value), writer.broadcastable_value(low)),
        writer.broadcastable_value(high),
    )


def _stack(writer: Writer, operation: JaxEquation) -> str:
    """Write a stack as a Concat of values with one axis more."""
    axis = int(operation.params["axis"])
    rows = [
        writer.add_node("Unsqueeze", writer.full_value(name), writer.add_integers(axis))
        for name in operation.inputs
    ]
    return writer.add_node("Concat", *rows, axis=axis)


def _unstack(writer: Writer, operation: JaxEquation) -> list[str]:
    """Write an unstack as a Split, and a Squeeze of each part."""
    axis = int(operation.params["axis"])
    count = len(operation.outputs)
    inputs = [writer.full_value(operation.source), writer.add_integers(*[1] * count)]
    rows = writer.add_node_of_several("Split", inputs, count, axis=axis)
    return [writer.add_node("Squeeze", row, writer.add_integers(axis)) for row in rows]


def _tile(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a repetition along each axis as a Tile; None if it is open how often."""
    counts = operation.params["reps"]
    if has_open(counts):
        return None
    return writer.add_node(
        "Tile", writer.full_value(operation.source), writer.add_integers(*map(int, counts))
    )


def _split(writer: Writer, operation: JaxEquation) -> list[str]:
    """Write a split into parts of several sizes along an axis as a Split, and return the parts' values."""
    sizes = writer.add_integers(*map(int, operation.params["sizes"]))
    inputs = [writer.full_value(operation.source), sizes]
    return writer.add_node_of_several(
        "Split", inputs, len(operation.outputs), axis=int(operation.params["axis"])
    )


def _slice(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a slice; None if its bounds are open."""
    params, sizes = operation.params, writer.shape(operation.source)
    starts = params["start_indices"]
    ends = params["limit_indices"]
    steps = params["strides"] or [1] * len(sizes)
    cuts = [
        (axis, start, end, step)
        for axis, (start, end, step, size) in enumerate(zip(starts, ends, steps, sizes, strict=True))
        if (start, end, step) != (0, size, 1)
    ]
    return _add_slice(writer, writer.full_value(operation.source), cuts, sizes)


def _add_slice(
    writer: Writer, value: str, cuts: Sequence[tuple[int, Any, Any, int]], sizes: Shape
) -> str | None:
    """Add a Slice of a value and return its name; the value itself where nothing is cut. None where an end is
    open and does not count from the end of its axis.

    Args:
        cuts: the axis, start, end and step of each cut.
        sizes: of the value, for ends that are open.
    """
    if not cuts:
        return value
    axes, starts, ends, steps = ([*column] for column in zip(*cuts, strict=True))
    known_ends = [
        _distance_from_end(end, sizes[axis]) if isinstance(end, PerTrace) else end
        for axis, end in zip(axes, ends, strict=True)
    ]
    if None in known_ends or has_open(starts):
        return None
    bounds = [writer.add_integers(*map(int, numbers)) for numbers in (starts, known_ends, axes, steps)]
    return writer.add_node("Slice", value, *bounds)


_BEYOND_ALL_CELLS = 2**62


def _distance_from_end(end: PerTrace, size: Any) -> int | None:
    """Return the end of a slice as a number of cells from the end of its axis, such as -1, if it is the same
    at each traced size; otherwise None. For the end of the axis, the number is beyond all cells.
    """
    sizes = in_each_trace(size, len(end.at))
    distances = {end_in_trace - axis_size for end_in_trace, axis_size in zip(end.at, sizes, strict=True)}
    if len(distances) > 1 or max(distances) > 0:
        return None
    # A distance of 0 would be the first cell.
    return int(distances.pop()) or _BEYOND_ALL_CELLS


def _reverse(writer: Writer, operation: JaxEquation) -> str:
    """Write a reversal of axes as a Slice that runs backwards."""
    # From the last cell to before the first one; only a number beyond all cells says that.
    cuts = [(int(axis), -1, -_BEYOND_ALL_CELLS, -1) for axis in operation.params["dimensions"]]
    return str(_add_slice(writer, writer.full_value(operation.source), cuts, ()))


def _pad(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a pad at the ends of axes with a known number; None for cells between others, and for amounts or
    numbers that are open.
    """
    fill = writer.constant(operation.inputs[1])
    # For each axis: cells before, behind, and between the cells of the value.
    config = operation.params["padding_config"]
    starts = [start for start, _, _ in config]
    ends = [end for _, end, _ in config]
    if is_open(fill) or any(between for _, _, between in config) or has_open([*starts, *ends]):
        return None
    pads = writer.add_integers(*map(int, starts), *map(int, ends))
    return writer.add_node(
        "Pad", writer.full_value(operation.source), pads, writer.add_constant(np.asarray(float(fill)))
    )


def _gather(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a gather of cells from known places on as a Slice, or of known places of one axis as a Gather;
    None for any other.
    """
    source, params = operation.source, operation.params
    numbers, indices = params["dimension_numbers"], writer.constant(operation.inputs[1])
    sizes, slice_sizes, indexed_axes = writer.shape(source), params["slice_sizes"], numbers.start_index_map
    if is_open(indices) or numbers.operand_batching_dims:
        return None
    indices = np.asarray(indices)
    # Other axes are taken whole.
    if any(size != sizes[axis] for axis, size in enumerate(slice_sizes) if axis not in indexed_axes):
        return None
    # A single place: a block of cells from there on.
    if indices.ndim == 1:
        cuts = [
            (axis, int(start), int(start) + slice_sizes[axis], 1)
            for axis, start in zip(indexed_axes, indices, strict=True)
        ]
        block = _add_slice(writer, writer.full_value(source), cuts, sizes)
        collapsed = numbers.collapsed_slice_dims
        if not collapsed or not block:
            return block
        return writer.add_node("Squeeze", block, writer.add_integers(*collapsed))
    axis = indexed_axes[0]
    if len(indexed_axes) != 1 or indices.ndim != 2 or numbers.collapsed_slice_dims != (axis,):
        return None
    value = writer.add_node(
        "Gather", writer.full_value(source), writer.add_integers(*map(int, indices[:, 0])), axis=axis
    )
    axes = range(len(sizes))
    # The axis of the result that the indices make.
    target_axis = next(result_axis for result_axis in axes if result_axis not in numbers.offset_dims)
    if target_axis == axis:
        return value
    order = [other_axis for other_axis in axes if other_axis != axis]
    order.insert(target_axis, axis)
    return writer.add_node("Transpose", value, perm=order)


def _convert_type(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a cast of booleans as a choice of one and zero; None for any other, which has no operator
    here.
    """
    condition = writer.producers.get(operation.source)
    is_of_booleans = condition is not None and condition.name in _COMPARISONS
    if not is_of_booleans or not np.issubdtype(operation.params["new_dtype"], np.floating):
        return None
    one, zero = (writer.add_constant(np.asarray(number)) for number in (1.0, 0.0))
    return writer.add_node("Where", writer.full_value(operation.source), one, zero)


_WRITES: Mapping[str, Write] = {
    **{
        name: elementwise(name.capitalize())
        for name in ("abs", "ceil", "cos", "erf", "exp", "floor", "log", "neg", "sign", "sin")
    },
    **{name: elementwise(name.capitalize()) for name in ("max", "min", "pow", "round", "tanh")},
    **{name: elementwise(kind) for name, kind in _COMPARISONS.items()},
    **dict.fromkeys(("copy", "stop_gradient", "reduce_precision", "optimization_barrier"), _alias),
    "reduce_max": sums.reduction("ReduceMax"),
    "reduce_min": sums.reduction("ReduceMin"),
    "reduce_sum": sums.reduction("ReduceSum"),
    "add": _add,
    "add_any": _add,
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "concatenate": lambda writer, operation: writer.add_node(
        "Concat", *map(writer.full_value, operation.inputs), axis=int(operation.params["dimension"])
    ),
    "conv_general_dilated": windows.write_convolution,
    "convert_element_type": _convert_type,
    "div": _divide,
    "dot_general": _product,
    "erfc": _erfc,
    "expm1": lambda writer, operation: writer.add_node(
        "Sub",
        writer.add_node("Exp", *writer.broadcastable_inputs(operation)),
        writer.add_constant(np.asarray(1.0)),
    ),
    "gather": _gather,
    "integer_pow": _power,
    "log1p": lambda writer, operation: writer.add_node(
        "Log",
        writer.add_node("Add", *writer.broadcastable_inputs(operation), writer.add_constant(np.asarray(1.0))),
    ),
    "logistic": elementwise("Sigmoid"),
    "mul": _multiply,
    "ne": lambda writer, operation: writer.add_node(
        "Not", writer.add_node("Equal", *map(writer.full_value, operation.inputs))
    ),
    "pad": _pad,
    "reduce_window_max": lambda writer, operation: windows.write_pool(writer, operation, "MaxPool"),
    "reduce_window_sum": windows.write_window_sum,
    "reshape": _reshape,
    "rev": _reverse,
    "rsqrt": lambda writer, operation: writer.add_node(
        "Reciprocal", writer.add_node("Sqrt", *writer.broadcastable_inputs(operation))
    ),
    "select_n": _select,
    "slice": _slice,
    "split": _split,
    "sqrt": sums.write_square_root,
    "square": _square,
    "squeeze": _squeeze,
    "stack": _stack,
    "sub": _subtract,
    "tile": _tile,
    "transpose": _transpose,
    "unstack": _unstack,
}
