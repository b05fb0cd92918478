"""Operations in a Keras model, of keras.ops or TensorFlow, in porter's ops: their arguments, decoded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import fixed_sizes
from porter.filegraph.readers import call_with_inputs
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, einsum, matmul, matmul_stored, maximum, minimum, stack
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.formats.keras.activations import ACTIVATIONS, PARTS, apply_activation
from porter.formats.keras.scaling import numbers_in
from porter.formats.keras.stated_layer import (
    KerasLayer,
    Reader,
    Taken,
    axes_in,
    count,
    expect_kinds,
    number,
    whole_number,
)
from porter.graph import DepthToSpace, LocalResponseNorm, Op, RmsNorm, ops
from porter.padding import LOWEST

ELEMENTWISE: Mapping[str, Op] = {
    "absolute": ops.Abs(),
    "exp": ops.Exp(),
    "log": ops.Log(),
    "sqrt": ops.Sqrt(),
    "reciprocal": ops.Reciprocal(),
    "sin": ops.Sin(),
    "cos": ops.Cos(),
    "erf": ops.Erf(),
    "sign": ops.Sign(),
    "floor": ops.Floor(),
    "ceil": ops.Ceil(),
    "round": ops.Round(),
}
"""Functions of each number that are one op of porter's."""
_EPSILON = 1e-7
"""keras.config.epsilon(), where an operation states no other one."""
COMPOSED: Mapping[str, str] = {
    "arccosh": "acosh",
    "arcsinh": "asinh",
    "arctanh": "atanh",
    **{kind: kind for kind in ("cosh", "exp2", "expm1", "log10", "log1p", "log2", "sinh", "tan", "trunc")},
}
"""Functions of each number that are several of porter's ops, as porter.filegraph.tensors.functions calls
them.
"""


def read_operation(layer: KerasLayer, *values: Tensor) -> Any:
    """Return what an operation gives, whose name in keras.ops is `layer.op`.

    Raises:
        Unsupported: porter has no op for it.
        PaddingError, ValueError: as porter.formats.keras.layer_readers.read_layer.
    """
    reader = _READERS.get(layer.op, apply_activation if layer.op in ACTIVATIONS.keys() | PARTS else None)
    if reader is None or not values:
        raise Unsupported("")
    expect_kinds(layer.arguments)
    return call_with_inputs(reader, layer, *values)


def _operands_reader(function: Callable[..., Any], count: int = 2) -> Reader:
    """Return a reader of a function of `count` operands, some of which may be constants."""

    def read(layer: KerasLayer, x: Tensor, *further: Tensor) -> Any:
        """Apply the function to the operands."""
        if len(layer.operands) != count:
            raise Unsupported(f"of {len(layer.operands)} operands")
        if str(layer.arguments.get("data_format", "NHWC")) != "NHWC":
            raise Unsupported("with the channels first")
        return function(*(_to_tensor(x.scope, operand) for operand in layer.operands))

    return read


def _to_tensor(scope: Scope, operand: Any) -> Tensor:
    """Return an operand as a tensor, which is a value or a constant."""
    if isinstance(operand, Taken):
        return scope.tensor(operand.source)
    numbers = numbers_in(operand)
    if numbers is None:
        raise Unsupported("by what is neither a value nor numbers")
    return scope.constant(numbers)


_axes = partial(axes_in, default=None, refusal="with")


def _reduction_reader(function: Reduction) -> Reader:
    """Return a reader of a reduction over the axes that a layer names."""
    return lambda layer, x: x.reduce(function, _axes(layer, x), layer.keeps_axes())


def _norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the norm over some axes; over several only the root of the sum of squares."""
    axes = _axes(layer, x)
    order = 2 if layer.arguments.get("ord") is None else layer.arguments["ord"]
    if len(axes) > 1 and order != 2:
        raise Unsupported(f"of a matrix of order {order!r:.20}")
    return functions.norm(x, number(order), axes, layer.keeps_axes())


def _list_tensors(layer: KerasLayer, x: Tensor) -> list[Tensor]:
    """Return the values and arrays that an operation takes, as one list or as its arguments. Raise
    Unsupported for a plain constant among them.
    """
    operands = (
        layer.operands[0] if layer.operands and isinstance(layer.operands[0], tuple) else layer.operands
    )
    tensors = [x.scope.tensor(operand.source) for operand in operands if isinstance(operand, Taken)]
    if len(tensors) < len(operands):
        raise Unsupported("with a constant")
    return tensors


def _split(layer: KerasLayer, x: Tensor) -> list[Tensor]:
    """Return the parts of `x` along an axis: as many equal ones as stated, those of stated sizes, or those
    between stated cells.
    """
    (axis,) = _axes(layer, x, default=0)
    sections = layer.arguments.get("indices_or_sections")  # of Keras 3: the cells to cut before, or a number
    sizes = layer.arguments.get("num_or_size_splits")  # of TensorFlow: the sizes, or a number
    if isinstance(sections, list | tuple):
        bounds = [0, *map(whole_number, sections), x.size(axis)]
        sizes = [end - start for start, end in pairwise(bounds)]
    elif not isinstance(sizes, list | tuple):
        pieces = count(sections if sizes is None else sizes)
        sizes = [x.size(axis) // pieces] * pieces
    return x.split(axis, sizes)


def _unstack(layer: KerasLayer, x: Tensor) -> list[Tensor]:
    """Return the parts of `x` along an axis, each of one cell and without the axis."""
    (axis,) = _axes(layer, x, default=0)
    (parts,) = fixed_sizes([x.size(axis)])
    return x.split(axis, [1] * parts, keep=False)


def _repeat(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` with each cell of an axis several times, one after the other; an axis of one cell is
    expanded.
    """
    (axis,) = _axes(layer, x)
    sizes = [*x.sizes]
    times = count(layer.arguments["repeats"])
    if sizes[axis] != 1:
        return x.interleave(axis, times)
    sizes[axis] = times
    return x.expand(sizes)


def _tile(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return whole copies of the axes of `x`, one after the other; the first axes may be left out."""
    repeats = layer.first_of("repeats", "multiples")
    times = [*map(count, repeats if isinstance(repeats, list | tuple) else [repeats])]
    if len(times) > x.rank:
        raise Unsupported("of more axes than the value has")
    return x.repeat([*[1] * (x.rank - len(times)), *times])


def _prod(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the product over some axes."""
    _expect_no_cast(layer)
    return functions.prod(x, _axes(layer, x), layer.keeps_axes())


def _cumsum(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the running sums along an axis."""
    _expect_no_cast(layer)
    (axis,) = _axes(layer, x)
    return x.cumsum(axis)


def _expect_no_cast(layer: KerasLayer) -> None:
    """Raise Unsupported if an operation gives another type than it takes."""
    if layer.arguments.get("dtype") is not None:
        raise Unsupported("to another type")


def _rot90(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` turned by `k` right angles in the plane of two axes."""
    first, second = _axes(layer, x, "axes", default=(0, 1))
    return x.rot90((first, second), whole_number(layer.arguments.get("k", 1)))


def _triangle(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the upper (`triu`) or the lower triangle (`tril`) of matrices, from the k-th diagonal on, with
    zeros in place of all other numbers. Diagonal 0 is the main one, and 1 the one above it.
    """
    offset = whole_number(layer.arguments.get("k", 0))
    # The first and the last diagonal that stay, None for all on that side.
    bounds = (offset, None) if layer.op == "triu" else (None, offset)
    return functions.band_part(x, *bounds)


def _roll(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` with the cells of some axes moved on, those at the end to the beginning, by one number for
    all axes or by one for each.
    """
    shift = layer.arguments["shift"]
    axes = _axes(layer, x)
    if isinstance(shift, list | tuple):
        shifts = [*map(whole_number, shift)]
    else:
        shifts = [whole_number(shift)] * len(axes)
    return x.roll(dict(zip(axes, shifts, strict=True)))


def _einsum(layer: KerasLayer, x: Tensor, *further: Tensor) -> Tensor:
    """Return the einsum of the operands, which are values or constants."""
    text = layer.arguments.get("subscripts") or layer.arguments.get("equation")
    return einsum(str(text), *(_to_tensor(x.scope, operand) for operand in layer.operands))


def _pad(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` with a pad on each axis, of a constant or of the mirrored cells. Raise Unsupported for
    another of `numpy.pad`'s modes.
    """
    widths = layer.first_of("pad_width", "paddings")
    fill = layer.arguments.get("constant_values") or 0.0
    rows = widths if isinstance(widths, list | tuple) else []
    pairs = {
        axis: (row[0], row[1])
        for axis, row in enumerate(rows)
        if isinstance(row, list | tuple) and len(row) == 2
    }
    mode = str(layer.arguments.get("mode", "constant")).lower()
    if mode == "reflect" and rows and len(pairs) == len(rows):
        return x.extend(pairs, "reflect")
    if mode != "constant" or not rows or len(pairs) < len(rows):
        raise Unsupported(f"with {widths!r:.60}, mode {layer.arguments.get('mode')!r:.20}")
    return x.pad(pairs, fill if fill == LOWEST else number(fill))


def _get_item(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return x[...] as numpy takes it, where the ellipsis, or the end of the key, stands for all axes that it
    leaves out: of a map, x[..., :3] is x[:, :, :, :3], and x[0] is x[0, :, :, :].
    """
    items = parse_key(layer.operands, layer.arguments)
    sizes = x.sizes
    if items.count(...) > 1:
        raise Unsupported("with two ellipses")
    # None adds an axis and takes none of the value's.
    missing = len(sizes) - sum(item is not None and item is not ... for item in items)
    ellipsis = items.index(...) if ... in items else len(items)
    whole_axes = [slice(None)] * missing
    return x.take([*items[:ellipsis], *whole_axes, *items[ellipsis + 1 :]])


def parse_key(operands: Sequence[Any], settings: Mapping[str, Any]) -> list[Any]:
    """Return the items in the key of a get_item: slices, indices, None and ellipses. The key of `x[0, ...,
    1:]` gives [0, ..., slice(1, None)].

    Args:
        operands: of the operation: the value, and since Keras 3 the key.
        settings: its arguments, among which Keras 2 has the key.

    Raises:
        Unsupported: it has other parts.
    """
    key = settings.get("slice_spec", operands[1] if len(operands) > 1 else None)
    return [_parse_key_item(item) for item in (key if isinstance(key, list | tuple) else [key])]


def _parse_key_item(item: Any) -> Any:
    """Return one item of a key: a slice, an index, None, or an ellipsis. Keras 2 writes a slice as an object
    of three numbers. A slice by a value is refused with Unsupported.
    """
    if not isinstance(item, dict):
        if item is not None and type(item) is not int:
            raise Unsupported(f"with {item!r:.40}")
        return item
    if item.get("class_name") == "__ellipsis__":
        return ...
    parts = item["config"] if item.get("class_name") == "__slice__" else item
    if not isinstance(parts, dict):
        raise ValueError(f"a slice that is {parts!r:.40}")
    ends = [parts.get(end) for end in ("start", "stop", "step")]
    if any(end is not None and type(end) is not int for end in ends):
        raise Unsupported("with a slice by a value")
    return slice(*ends)


def _reshape(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value with other axes, of which the batch is one."""
    sizes = layer.first_of("newshape", "shape")
    if not isinstance(sizes, list | tuple) or not all(type(size) is int for size in sizes):
        raise Unsupported(f"to {sizes!r:.40}")
    return x.reshape(sizes)


def _transpose(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` with its axes in another order; turned around if none is stated."""
    axes: Any = layer.first_of("axes", "perm", default=range(x.rank)[::-1])
    return x.transpose([axes] if isinstance(axes, int) else axes)


def _swap_axes(layer: KerasLayer, x: Tensor) -> Tensor:
    (first,), (second,) = _axes(layer, x, "axis1"), _axes(layer, x, "axis2")
    return functions.swap_axes(x, first, second)


def _take(layer: KerasLayer, x: Tensor, *further: Tensor) -> Tensor:
    """Return the cells of an axis at a constant list of indices."""
    cells = numbers_in(layer.operands[1]) if len(layer.operands) == 2 else None
    axis, *_ = _axes(layer, x)
    if cells is None or cells.ndim != 1 or (cells % 1).any():
        raise Unsupported("by indices that are not a list of numbers")
    return x.gather(axis, cells.astype(int).tolist())


def _matmul(layer: KerasLayer, x: Tensor, *further: Tensor) -> Tensor:
    """Return a matrix product of two values, or of a value and a constant on either side. Raise Unsupported
    for transposed operands.
    """
    # `transpose_a`, `transpose_b`, `adjoint_a` and `adjoint_b`.
    transpositions = [
        bool(layer.arguments.get(f"{way}_{side}")) for way in ("transpose", "adjoint") for side in ("a", "b")
    ]
    if any(transpositions) or len(layer.operands) != 2:
        raise Unsupported("with a transposition")
    first, second = (_to_tensor(x.scope, operand) for operand in layer.operands)
    if first.is_value and second.is_value:
        return matmul(first, second)
    if first.is_value:
        return first.dense(Product(second.reference, "IO"))
    return matmul_stored(first, second)


def _cast(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` for a cast to real numbers, which changes nothing; another cast is Unsupported."""
    if not str(layer.arguments.get("dtype")).startswith(("float", "bfloat")):
        raise Unsupported("to another type")
    return x


def _response_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of tf.nn.local_response_normalization, with TensorFlow's defaults; its radius counts
    the channels on either side.
    """
    radius = whole_number(layer.arguments.get("depth_radius", 5))
    alpha, beta, bias = (
        number(layer.arguments.get(name, default))
        for name, default in (("alpha", 1), ("beta", 0.5), ("bias", 1))
    )
    return x.apply_op(LocalResponseNorm(count(2 * radius + 1), alpha, beta, bias))


def _rms_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return rms_normalization without a scale, which a model's layer has."""
    if len(layer.operands) > 1 or layer.arguments.get("scale") is not None:
        raise Unsupported("with a scale")
    stated = layer.arguments.get("epsilon")
    epsilon = _EPSILON if stated is None else number(stated)
    return x.apply_along(axes_in(layer, x), RmsNorm(epsilon, scale=False))


def _variance(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the variance over some axes, or its root."""
    variance = functions.variance(x, _axes(layer, x), layer.keeps_axes())
    return functions.sqrt(variance) if layer.op == "std" else variance


def _normalize(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return `x` over its norm along axes, of order 1 or 2 (keras/src/ops/nn.py, `_normalize`)."""
    order = layer.arguments.get("order", 2)
    stated = layer.arguments.get("epsilon")
    if order not in (1, 2):
        raise Unsupported(f"of order {order!r:.20}")
    axes = _axes(layer, x, default=-1)
    epsilon = _EPSILON if stated is None else number(stated)
    return functions.divide_by_norm(x, whole_number(order), axes, epsilon)


def _elementwise(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an op of each number; a `round` to decimals is Unsupported."""
    if layer.arguments.get("decimals", 0) != 0:
        raise Unsupported("to decimals")
    return x.apply_elementwise(ELEMENTWISE[layer.op])


def _function_reader(kind: str) -> Reader:
    """Return a reader of a function of porter.filegraph.tensors.functions."""
    return lambda layer, x: functions.FUNCTIONS[kind](x)


_READERS: Mapping[str, Reader] = by_name(
    {
        **dict.fromkeys(ELEMENTWISE, _elementwise),
        **{name: _function_reader(kind) for name, kind in COMPOSED.items()},
        "amax max": _reduction_reader("max"),
        "amin min": _reduction_reader("min"),
        "std var": _variance,
        "tril triu": _triangle,
        "add": _operands_reader(operator.add),
        "cast": _cast,
        "clip": lambda layer, x: x.clip(
            number(layer.first_of("x_min", "clip_value_min")),
            number(layer.first_of("x_max", "clip_value_max")),
        ),
        "concatenate": lambda layer, x, *further: concat(
            _list_tensors(layer, x), whole_number(layer.arguments.get("axis", -1))
        ),
        "cumsum": _cumsum,
        "depth_to_space": lambda layer, x: x.apply_op(DepthToSpace(count(layer.arguments["block_size"]))),
        "einsum": _einsum,
        "equal": _operands_reader(functions.equal),
        "expand_dims": lambda layer, x: x.unsqueeze([whole_number(layer.arguments["axis"])]),
        "flip": lambda layer, x: x.flip(_axes(layer, x)),
        "floor_divide": _operands_reader(lambda x, other: functions.whole_quotient(x, other, "floor")),
        "get_item": _get_item,
        "greater": _operands_reader(operator.gt),
        "greater_equal": _operands_reader(operator.ge),
        "hard_shrink": lambda layer, x: functions.hard_shrink(
            x, number(layer.arguments.get("threshold", 0.5))
        ),
        "hypot": _operands_reader(functions.hypot),
        "identity": lambda layer, x: x,
        "less": _operands_reader(operator.lt),
        "less_equal": _operands_reader(operator.le),
        "local_response_normalization": _response_norm,
        "logaddexp": _operands_reader(functions.log_add_exp),
        "logical_and": _operands_reader(operator.mul),
        "logical_not": lambda layer, x: functions.logical_not(x),
        "logical_or": _operands_reader(maximum),
        "logsumexp": lambda layer, x: functions.log_sum_exp(x, _axes(layer, x), layer.keeps_axes()),
        "matmul": _matmul,
        "maximum": _operands_reader(maximum),
        "mean": _reduction_reader("mean"),
        "minimum": _operands_reader(minimum),
        "mod": _operands_reader(lambda x, other: functions.remainder(x, other, "floor")),
        "moveaxis": lambda layer, x: functions.move_axes(
            x, _axes(layer, x, "source"), _axes(layer, x, "destination")
        ),
        "multiply": _operands_reader(operator.mul),
        "negative": lambda layer, x: -x,
        "norm": _norm,
        "normalize": _normalize,
        "not_equal": _operands_reader(functions.not_equal),
        "ones_like": lambda layer, x: functions.ones(x),
        "pad": _pad,
        "power": _operands_reader(operator.pow),
        "prod": _prod,
        "repeat": _repeat,
        "reshape": _reshape,
        "rms_normalization": _rms_norm,
        "roll": _roll,
        "rot90": _rot90,
        "rsqrt": lambda layer, x: functions.rsqrt(x),
        "soft_shrink": lambda layer, x: functions.soft_shrink(
            x, number(layer.arguments.get("threshold", 0.5))
        ),
        "split": _split,
        "square": lambda layer, x: functions.square(x),
        "squeeze": lambda layer, x: x.squeeze(
            None if layer.arguments.get("axis") is None else _axes(layer, x)
        ),
        "stack": lambda layer, x, *further: stack(
            _list_tensors(layer, x), whole_number(layer.arguments.get("axis", 0))
        ),
        "subtract": _operands_reader(operator.sub),
        "sum": _reduction_reader("sum"),
        "swapaxes": _swap_axes,
        "take": _take,
        "threshold": lambda layer, x: functions.threshold(
            x, number(layer.arguments["threshold"]), number(layer.arguments["default_value"])
        ),
        "tile": _tile,
        "transpose": _transpose,
        "true_divide": _operands_reader(operator.truediv),
        "unstack": _unstack,
        "where": _operands_reader(functions.where, 3),
    }
)
OPERATIONS = frozenset(_READERS.keys() | ACTIVATIONS.keys() | PARTS)
"""Names in keras.ops of the operations that porter knows, and of some that only TensorFlow has."""
