"""What JAX traces of a module, as an ONNX model, which porter reads as any other. What has no operator there
stands in it under the name of its primitive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from porter.frameworks.flax.tracing import sums, windows
from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, Shape, Traced, at_each
from porter.frameworks.flax.tracing.writer import FOREIGN, Write, Writer, has_open, is_open, plain

_OPSET, _IR = 21, 10


def to_model(traced: Traced, turned: Collection[int] = ()) -> tuple[Any, Mapping[str, str]]:
    """Return the model (ModelProto), which takes N×C×H×W, and by the names of its values those of the traced
    ones: maps N×C×H×W are traced as N×H×W×C. Numbers of the module's code are in double precision, and its
    variables in float32.

    Args:
        turned: places of outputs that are such maps, which the model gives as N×C×H×W.
    """
    writer = Writer(traced, _WRITES)
    helper = writer.onnx.helper
    given = [_input(writer, name) for name in traced.inputs]
    for operation in traced.operations:
        writer.write(operation)
    ends = []
    for index, name in enumerate(traced.outputs):
        value, end = writer.full(name), f"output_{index}"
        how = {"perm": (0, 3, 1, 2)} if index in turned else {}
        ends.append(writer.node("Transpose" if how else "Identity", value, output=end, **how))
    graph = helper.make_graph(
        writer.nodes,
        "module",
        given,
        [helper.make_tensor_value_info(name, 1, None) for name in ends],
        writer.initializers,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(FOREIGN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR), writer.calls


def _input(writer: Writer, name: str) -> Any:
    """Return what the model takes for an input of the module: maps N×C×H×W for N×H×W×C."""
    sizes = writer.shape(name)
    writer.known[name] = name
    if len(sizes) == 4:
        writer.known[name] = writer.node("Transpose", name, perm=(0, 2, 3, 1))
        sizes = tuple(sizes[axis] for axis in (0, 3, 1, 2))
    writer.see(name)
    shape = ["x".join(map(str, size.at)) if isinstance(size, PerTrace) else size for size in sizes]
    return writer.onnx.helper.make_tensor_value_info(name, 1, shape)


_TESTS = {
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "lt": "Less",
    "le": "LessOrEqual",
    "and": "And",
    "or": "Or",
    "not": "Not",
}


def _divide(writer: Writer, operation: JaxEquation) -> str:
    """Write a quotient: of a softmax, a mean, an average pool, or of any two values."""
    top, bottom = operation.inputs
    return (
        sums.softmax(writer, operation)
        or sums.mean(writer, operation)
        or windows.average(writer, top, bottom)
        or str(plain("Div")(writer, operation))
    )


def _alias(writer: Writer, operation: JaxEquation) -> str:
    return writer.alias(operation.source, operation.outputs[0])


def _reshape(writer: Writer, operation: JaxEquation) -> str:
    """Write a reshape, unless it only puts back axes of 1 that a sum has left out."""
    source, wanted = operation.source, writer.shape(operation.outputs[0])
    if source in writer.kept and writer.wide(source) == wanted:
        return writer.of(source)
    return writer.node("Reshape", writer.full(source), writer.dims(wanted, writer.shape(source)))


def _squeeze(writer: Writer, operation: JaxEquation) -> str:
    gone = operation.params["dimensions"]
    value = writer.full(operation.source)
    return writer.node("Squeeze", value, writer.integers(*gone)) if gone else value


def _broadcast(writer: Writer, operation: JaxEquation) -> str:
    """Return the value with axes of one cell more, which are repeated only where an operator needs that."""
    source, wanted = operation.source, writer.shape(operation.outputs[0])
    own = [int(axis) for axis in operation.params["broadcast_dimensions"]]
    more = [axis for axis in range(len(wanted)) if axis not in own]
    stays = writer.kept.get(source) == tuple(more)
    value = writer.of(source) if stays else writer.full(source)
    if more and own and not stays:
        value = writer.node("Unsqueeze", value, writer.integers(*more))
    sizes = dict(zip(own, writer.shape(source), strict=True))
    if any(sizes.get(axis, 1) != size for axis, size in enumerate(wanted)):
        writer.narrow.add(operation.outputs[0])
    return value


def _transpose(writer: Writer, operation: JaxEquation) -> str:
    return writer.node(
        "Transpose",
        writer.full(operation.source),
        perm=[int(axis) for axis in operation.params["permutation"]],
    )


def _add(writer: Writer, operation: JaxEquation) -> str:
    return _without(writer, operation, 0.0) or str(plain("Add")(writer, operation))


def _subtract(writer: Writer, operation: JaxEquation) -> str:
    """Write a difference: of a log_softmax, from 0, or of any two values."""
    return (
        sums.log_softmax(writer, operation)
        or _without(writer, operation, 0.0, 1)
        or str(plain("Sub")(writer, operation))
    )


def _multiply(writer: Writer, operation: JaxEquation) -> str:
    """Write a product: of a group norm, by 1, or of any two values."""
    return (
        sums.group_norm(writer, operation)
        or _without(writer, operation, 1.0)
        or str(plain("Mul")(writer, operation))
    )


def _without(writer: Writer, operation: JaxEquation, neutral: float, *places: int) -> str | None:
    """Return the value of the other operand, where one is a number that changes nothing."""
    for index in places or (0, 1):
        name, other = operation.inputs[index], operation.inputs[1 - index]
        number = writer.constant(name)
        if number is not None and np.ndim(number) == 0 and number == neutral:
            return writer.alias(other, operation.outputs[0])
    return None


def _product(writer: Writer, operation: JaxEquation) -> str:
    """Return a matrix product, or a sum of products along any axes."""
    (left, right), (both_left, both_right) = operation.params["dimension_numbers"]
    one, other = operation.inputs
    ranks = len(writer.shape(one)), len(writer.shape(other))
    if tuple(left) == (ranks[0] - 1,) and tuple(right) == (0,) and ranks[1] == 2 and not both_left:
        return writer.node("MatMul", writer.full(one), writer.full(other))
    letters = iter(ascii_lowercase)
    first = [next(letters) for _ in range(ranks[0])]
    second = [""] * ranks[1]
    for own, its in (*zip(left, right, strict=True), *zip(both_left, both_right, strict=True)):
        second[its] = first[own]
    second = [letter or next(letters) for letter in second]
    joined = [first[axis] for axis in both_left]
    joined += [letter for axis, letter in enumerate(first) if axis not in (*left, *both_left)]
    joined += [letter for axis, letter in enumerate(second) if axis not in (*right, *both_right)]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(joined)}"
    return writer.node("Einsum", writer.full(one), writer.full(other), equation=equation)


def _power(writer: Writer, operation: JaxEquation) -> str:
    (value,), exponent = writer.stretching(operation), operation.params["y"]
    if exponent == 2:
        return writer.node("Mul", value, value)
    return writer.node("Pow", value, writer.add_constant(np.asarray(float(exponent))))


def _square(writer: Writer, operation: JaxEquation) -> str:
    (value,) = writer.stretching(operation)
    return writer.node("Mul", value, value)


def _rest_of_erf(writer: Writer, operation: JaxEquation) -> str:
    return writer.node(
        "Sub", writer.add_constant(np.asarray(1.0)), writer.node("Erf", *writer.stretching(operation))
    )


def _choice(writer: Writer, operation: JaxEquation) -> str | None:
    """Return a choice of one of two values. A test whether a value is not a number is never true."""
    if len(operation.inputs) != 3:
        return None
    test, no, yes = operation.inputs
    made = writer.giving(test, "ne")
    if made is not None and made.source == made.inputs[1]:
        return writer.full(no)
    known = writer.constant(test)
    if known is not None and np.all(known == np.ravel(known)[0]):
        return writer.full(yes if np.ravel(known)[0] else no)
    return writer.node("Where", writer.full(test), writer.of(yes), writer.of(no))


def _clamp(writer: Writer, operation: JaxEquation) -> str:
    low, value, high = operation.inputs
    return writer.node("Min", writer.node("Max", writer.full(value), writer.of(low)), writer.of(high))


def _stack(writer: Writer, operation: JaxEquation) -> str:
    axis = int(operation.params["axis"])
    rows = [writer.node("Unsqueeze", writer.full(name), writer.integers(axis)) for name in operation.inputs]
    return writer.node("Concat", *rows, axis=axis)


def _unstack(writer: Writer, operation: JaxEquation) -> list[str]:
    """Write an unstack: a Split, and a Squeeze of each part."""
    axis = int(operation.params["axis"])
    count = len(operation.outputs)
    inputs = [writer.full(operation.source), writer.integers(*[1] * count)]
    rows = writer.several("Split", inputs, count, axis=axis)
    return [writer.node("Squeeze", row, writer.integers(axis)) for row in rows]


def _tile(writer: Writer, operation: JaxEquation) -> str | None:
    counts = operation.params["reps"]
    return (
        None
        if has_open(counts)
        else writer.node("Tile", writer.full(operation.source), writer.integers(*map(int, counts)))
    )


def _split(writer: Writer, operation: JaxEquation) -> list[str]:
    sizes = writer.integers(*map(int, operation.params["sizes"]))
    inputs = [writer.full(operation.source), sizes]
    return writer.several("Split", inputs, len(operation.outputs), axis=int(operation.params["axis"]))


def _slice(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a slice; None if its bounds are open."""
    params, sizes = operation.params, writer.shape(operation.source)
    starts = params["start_indices"]
    ends = params["limit_indices"]
    steps = params["strides"] or [1] * len(sizes)
    cut = [
        (axis, start, end, step)
        for axis, (start, end, step, size) in enumerate(zip(starts, ends, steps, sizes, strict=True))
        if (start, end, step) != (0, size, 1)
    ]
    return _cut(writer, writer.full(operation.source), cut, sizes)


def _cut(writer: Writer, value: str, cut: Sequence[tuple[int, Any, Any, int]], sizes: Shape) -> str | None:
    """Return cells of axes from a start to an end by a step; an end is known, or counts from the end of an
    open axis.
    """
    if not cut:
        return value
    axes, starts, ends, steps = ([*each] for each in zip(*cut, strict=True))
    known = [
        _from_end(end, sizes[axis]) if isinstance(end, PerTrace) else end
        for axis, end in zip(axes, ends, strict=True)
    ]
    if None in known or has_open(starts):
        return None
    return writer.node(
        "Slice", value, *(writer.integers(*map(int, each)) for each in (starts, known, axes, steps))
    )


def _from_end(end: PerTrace, size: Any) -> int | None:
    """Return a place that is as far from the end of an axis at each of its sizes."""
    apart = {end_here - own for end_here, own in zip(end.at, at_each(size, len(end.at)), strict=True)}
    return None if len(apart) > 1 or max(apart) > 0 else int(min(apart)) or 2**62


def _reverse(writer: Writer, operation: JaxEquation) -> str:
    cut = [(int(axis), -1, -(2**62), -1) for axis in operation.params["dimensions"]]
    return str(_cut(writer, writer.full(operation.source), cut, ()))


def _pad(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a pad at the ends of axes; None for one between cells."""
    config, fill = operation.params["padding_config"], writer.constant(operation.inputs[1])
    ends = [each for first, last, _ in config for each in (first, last)]
    if is_open(fill) or any(inner for _, _, inner in config) or has_open(ends):
        return None
    pads = writer.integers(*(int(first) for first, _, _ in config), *(int(last) for _, last, _ in config))
    return writer.node(
        "Pad", writer.full(operation.source), pads, writer.add_constant(np.asarray(float(fill)))
    )


def _gather(writer: Writer, operation: JaxEquation) -> str | None:
    """Return cells from known places on, or known places of one axis."""
    source, params = operation.source, operation.params
    numbers, places = params["dimension_numbers"], writer.constant(operation.inputs[1])
    sizes, taken, sides = writer.shape(source), params["slice_sizes"], numbers.start_index_map
    if is_open(places) or numbers.operand_batching_dims:
        return None
    places = np.asarray(places)
    if any(size != sizes[axis] for axis, size in enumerate(taken) if axis not in sides):
        return None
    if places.ndim == 1:
        cut = [
            (axis, int(place), int(place) + taken[axis], 1) for axis, place in zip(sides, places, strict=True)
        ]
        value = _cut(writer, writer.full(source), cut, sizes)
        gone = numbers.collapsed_slice_dims
        return writer.node("Squeeze", value, writer.integers(*gone)) if gone and value else value
    axis = sides[0]
    if len(sides) != 1 or places.ndim != 2 or numbers.collapsed_slice_dims != (axis,):
        return None
    value = writer.node("Gather", writer.full(source), writer.integers(*map(int, places[:, 0])), axis=axis)
    at = next(place for place in range(len(sizes)) if place not in numbers.offset_dims)
    order = [each for each in range(len(sizes)) if each != axis]
    return value if at == axis else writer.node("Transpose", value, perm=[*order[:at], axis, *order[at:]])


def _as_type(writer: Writer, operation: JaxEquation) -> str | None:
    """Convert booleans to ones and zeros; another has no operator here."""
    test = writer.made.get(operation.source)
    if (
        test is None
        or test.name not in _TESTS
        or not np.issubdtype(operation.params["new_dtype"], np.floating)
    ):
        return None
    yes, no = (writer.add_constant(np.asarray(number)) for number in (1.0, 0.0))
    return writer.node("Where", writer.full(operation.source), yes, no)


_WRITES: Mapping[str, Write] = {
    **{
        name: plain(name.capitalize())
        for name in ("abs", "ceil", "cos", "erf", "exp", "floor", "log", "neg", "sign", "sin")
    },
    **{name: plain(name.capitalize()) for name in ("max", "min", "pow", "round", "tanh")},
    **{name: plain(kind) for name, kind in _TESTS.items()},
    **dict.fromkeys(("copy", "stop_gradient", "reduce_precision", "optimization_barrier"), _alias),
    "reduce_max": sums.reduce("ReduceMax"),
    "reduce_min": sums.reduce("ReduceMin"),
    "reduce_sum": sums.reduce("ReduceSum"),
    "add": _add,
    "add_any": _add,
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "concatenate": lambda writer, operation: writer.node(
        "Concat", *map(writer.full, operation.inputs), axis=int(operation.params["dimension"])
    ),
    "conv_general_dilated": windows.convolution,
    "convert_element_type": _as_type,
    "div": _divide,
    "dot_general": _product,
    "erfc": _rest_of_erf,
    "expm1": lambda writer, operation: writer.node(
        "Sub", writer.node("Exp", *writer.stretching(operation)), writer.add_constant(np.asarray(1.0))
    ),
    "gather": _gather,
    "integer_pow": _power,
    "log1p": lambda writer, operation: writer.node(
        "Log", writer.node("Add", *writer.stretching(operation), writer.add_constant(np.asarray(1.0)))
    ),
    "logistic": plain("Sigmoid"),
    "mul": _multiply,
    "ne": lambda writer, operation: writer.node(
        "Not", writer.node("Equal", *map(writer.full, operation.inputs))
    ),
    "pad": _pad,
    "reduce_window_max": lambda writer, operation: windows.pool(writer, operation, "MaxPool"),
    "reduce_window_sum": windows.window_sum,
    "reshape": _reshape,
    "rev": _reverse,
    "rsqrt": lambda writer, operation: writer.node(
        "Reciprocal", writer.node("Sqrt", *writer.stretching(operation))
    ),
    "select_n": _choice,
    "slice": _slice,
    "split": _split,
    "sqrt": sums.square_root,
    "square": _square,
    "squeeze": _squeeze,
    "stack": _stack,
    "sub": _subtract,
    "tile": _tile,
    "transpose": _transpose,
    "unstack": _unstack,
}
