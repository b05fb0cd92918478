"""Operations in a Keras model, of keras.ops or TensorFlow, in porter's ops: their arguments, decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from porter.filegraph import functions, moves
from porter.filegraph.arithmetic import clip, combine, negative, ones, square
from porter.filegraph.choices import both, choose, compare, either, opposite
from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import known
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.moves import concat, gather, pad, squeeze, take, transpose, turned_round, unsqueeze
from porter.filegraph.places import place_of
from porter.filegraph.products import Product, by_matrix, dense, einsum, matmul, running_sums
from porter.filegraph.reductions import (
    Reduction,
    factors,
    log_sum_exp,
    norm,
    over_norm,
    reduce,
    variance,
)
from porter.filegraph.walk import Outputs, Read, apply
from porter.formats.keras.activations import ACTIVATIONS, PARTS, activated
from porter.formats.keras.layer import Layer, Taken, axes_in, count, expect_kinds, number, whole
from porter.formats.keras.scaling import numbers_in
from porter.graph import DepthToSpace, LocalResponseNorm, Op, RmsNorm, ops
from porter.padding import LOWEST

_KINDS = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "true_divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}
OF_NUMBERS: Mapping[str, Op] = {
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
_FUNCTIONS: Mapping[str, Reduction] = {
    "mean": "mean",
    "max": "max",
    "amax": "max",
    "min": "min",
    "amin": "min",
    "sum": "sum",
}
MADE: Mapping[str, str] = {
    "arccosh": "acosh",
    "arcsinh": "asinh",
    "arctanh": "atanh",
    **{kind: kind for kind in ("cosh", "exp2", "expm1", "log10", "log1p", "log2", "sinh", "tan", "trunc")},
}
"""Functions of each number that are several of porter's ops, as porter.filegraph.functions calls them."""


def read_operation(layer: Layer) -> Outputs:
    """What an operation is, whose name in keras.ops is `layer.op`.

    Raises:
        Unsupported: porter has no op for it.
        PaddingError, ValueError: as porter.formats.keras.layers.read_layer.
    """
    reader = _READERS.get(layer.op, activated if layer.op in ACTIVATIONS.keys() | PARTS else None)
    if reader is None or not layer.inputs:
        raise Unsupported("")
    expect_kinds(layer.arguments)
    return reader(layer)


def _arithmetic(layer: Layer) -> Read:
    if len(layer.operands) != 2:
        raise Unsupported(f"of {len(layer.operands)} operands")
    if str(layer.arguments.get("data_format", "NHWC")) != "NHWC":
        raise Unsupported("with the channels first")
    return combine(
        layer.walk, layer, _KINDS[layer.op], [_source(layer, operand) for operand in layer.operands]
    )


def _source(layer: Layer, operand: Any) -> Reference:
    """An operand as a value of the walk, also a constant."""
    if isinstance(operand, Taken):
        return operand.source
    numbers = numbers_in(operand)
    if numbers is None:
        raise Unsupported("by what is neither a value nor numbers")
    return layer.walk.flow.stated(f"{layer.name}:constant", numbers)


def _reduced(layer: Layer) -> Read:
    places, keep = _places(layer, layer.arguments.get("axis")), bool(layer.arguments.get("keepdims"))
    if layer.op == "norm":
        order = 2 if layer.arguments.get("ord") is None else layer.arguments["ord"]
        if len(places) > 1 and order != 2:
            raise Unsupported(f"of a matrix of order {order!r:.20}")
        return norm(layer.walk, layer, layer.source, places, keep, number(order))
    return reduce(layer.walk, layer, layer.source, _FUNCTIONS[layer.op], places, keep)


def _places(layer: Layer, axis: Any) -> list[int]:
    """The axes that an argument names."""
    places, rank = (
        [*axis] if isinstance(axis, list | tuple) else [axis],
        len(layer.walk.sizes(layer.source) or ()),
    )
    if not places or not all(type(place) is int and -rank <= place < rank for place in places):
        raise Unsupported(f"with {axis!r:.40}")
    return places


def _sources(layer: Layer) -> list[Reference]:
    """The values and arrays of an operation that takes several, as a list or apart."""
    operands = (
        layer.operands[0] if layer.operands and isinstance(layer.operands[0], tuple) else layer.operands
    )
    sources = [operand.source for operand in operands if isinstance(operand, Taken)]
    if len(sources) < len(operands):
        raise Unsupported("with a constant")
    return sources


def _stack(layer: Layer) -> Read:
    rank, axis = len(layer.walk.sizes(layer.source) or ()), layer.arguments.get("axis", 0)
    sources = _sources(layer)
    if not all(map(layer.walk.is_value, sources)):
        raise Unsupported("with a constant")
    return moves.stack(layer.walk, layer, sources, place_of(whole(axis), rank + 1))


def _split(layer: Layer) -> Outputs:
    """Parts of so many cells, or up to these cells: `indices_or_sections` of Keras 3, `num_or_size_splits` of
    TensorFlow.
    """
    (place,), sizes = _places(layer, layer.arguments.get("axis", 0)), layer.walk.sizes(layer.source) or ()
    stated, parts = layer.arguments.get("indices_or_sections"), layer.arguments.get("num_or_size_splits")
    if isinstance(stated, list | tuple):
        parts = [end - start for start, end in pairwise([0, *map(whole, stated), sizes[place]])]
    elif not isinstance(parts, list | tuple):
        pieces = count(stated if parts is None else parts)
        parts = [sizes[place] // pieces] * pieces
    return moves.split(layer.walk, layer, layer.source, place, parts)


def _unstack(layer: Layer) -> Outputs:
    (place,) = _places(layer, layer.arguments.get("axis", 0))
    (parts,) = known([layer.walk.view(layer.source).size(place)])
    return moves.split(layer.walk, layer, layer.source, place, [1] * parts, keep=False)


def _repeat(layer: Layer) -> Read:
    """Each cell of an axis several times, one after the other."""
    (place,), sizes = _places(layer, layer.arguments.get("axis")), [*(layer.walk.sizes(layer.source) or ())]
    times = count(layer.arguments["repeats"])
    if sizes[place] != 1:
        return moves.interleave(layer.walk, layer, layer.source, place, times)
    sizes[place] = times
    return moves.expand(layer.walk, layer, layer.source, sizes)


def _tiled(layer: Layer) -> Read:
    """Whole copies of axes, one after the other; the first axes may be left out."""
    stated, rank = layer.first_of("repeats", "multiples"), len(layer.walk.sizes(layer.source) or ())
    times = [*map(count, stated if isinstance(stated, list | tuple) else [stated])]
    if len(times) > rank:
        raise Unsupported("of more axes than the value has")
    return moves.repeat(layer.walk, layer, layer.source, [*[1] * (rank - len(times)), *times])


def _made(layer: Layer) -> Read:
    stated = layer.arguments
    match layer.op:
        case "hard_shrink":
            maker = functions.hard_shrink(number(stated.get("threshold", 0.5)))
        case "soft_shrink":
            maker = functions.soft_shrink(number(stated.get("threshold", 0.5)))
        case "threshold":
            maker = functions.threshold(number(stated["threshold"]), number(stated["default_value"]))
        case _:
            maker = functions.MADE[MADE[layer.op]]
    return functions.made(layer.walk, layer, layer.source, maker)


def _pair(layer: Layer) -> Read:
    """Functions of two values."""
    if len(layer.operands) != 2:
        raise Unsupported(f"of {len(layer.operands)} operands")
    first, second = (_source(layer, operand) for operand in layer.operands)
    match layer.op:
        case "hypot":
            return functions.hypotenuse(layer.walk, layer, first, second)
        case "logaddexp":
            return functions.log_of_sum(layer.walk, layer, first, second)
        case _:
            return functions.equal(layer.walk, layer, first, second, holds=layer.op == "equal")


def _rounded(layer: Layer) -> Read:
    """mod and floor_divide, by a number."""
    numbers = numbers_in(layer.operands[1]) if len(layer.operands) == 2 else None
    divisor = None if numbers is None or numbers.size != 1 else float(numbers.ravel()[0])
    return functions.by_number(layer.walk, layer, layer.source, divisor, "floor", whole=layer.op != "mod")


def _log_sum(layer: Layer) -> Read:
    places, keep = _places(layer, layer.arguments.get("axis")), bool(layer.arguments.get("keepdims"))
    return log_sum_exp(layer.walk, layer, layer.source, places, keep)


def _product_along(layer: Layer) -> Read:
    places = _places(layer, layer.arguments.get("axis"))
    if layer.arguments.get("dtype") is not None:
        raise Unsupported("to another type")
    return factors(layer.walk, layer, layer.source, places, bool(layer.arguments.get("keepdims")))


def _running_sums(layer: Layer) -> Read:
    (place,) = _places(layer, layer.arguments.get("axis"))
    if layer.arguments.get("dtype") is not None:
        raise Unsupported("to another type")
    return running_sums(layer.walk, layer, layer.source, place)


def _quarter_turns(layer: Layer) -> Read:
    first, second = _places(layer, layer.arguments.get("axes", (0, 1)))
    turns = whole(layer.arguments.get("k", 1))
    return moves.quarter_turns(layer.walk, layer, layer.source, (first, second), turns)


def _triangle(layer: Layer) -> Read:
    offset = whole(layer.arguments.get("k", 0))
    bounds = (offset, None) if layer.op == "triu" else (None, offset)
    return functions.band(layer.walk, layer, layer.source, *bounds)


def _roll(layer: Layer) -> Read:
    shift, places = layer.arguments["shift"], _places(layer, layer.arguments.get("axis"))
    shifts = [*map(whole, shift)] if isinstance(shift, list | tuple) else [whole(shift)] * len(places)
    return moves.roll(layer.walk, layer, layer.source, dict(zip(places, shifts, strict=True)))


def _einsum(layer: Layer) -> Read:
    text, *operands = (layer.arguments.get("subscripts") or layer.arguments.get("equation"), *layer.operands)
    return einsum(layer.walk, layer, str(text), [_source(layer, operand) for operand in operands])


def _pad(layer: Layer) -> Read:
    widths, fill = layer.first_of("pad_width", "paddings"), layer.arguments.get("constant_values") or 0.0
    rows = widths if isinstance(widths, list | tuple) else []
    pairs = {
        place: (row[0], row[1])
        for place, row in enumerate(rows)
        if isinstance(row, list | tuple) and len(row) == 2
    }
    mode = str(layer.arguments.get("mode", "constant")).lower()
    if mode == "reflect" and rows and len(pairs) == len(rows):
        return moves.extend(layer.walk, layer, layer.source, pairs, "reflect")
    if mode != "constant" or not rows or len(pairs) < len(rows):
        raise Unsupported(f"with {widths!r:.60}, mode {layer.arguments.get('mode')!r:.20}")
    return pad(layer.walk, layer, layer.source, pairs, fill if fill == LOWEST else number(fill))


def _get_item(layer: Layer) -> Read:
    """x[...], as numpy takes it."""
    items, sizes = key_of(layer.operands, layer.arguments), layer.walk.sizes(layer.source)
    if sizes is None or items.count(...) > 1:
        raise Unsupported("of a value of unknown size, or with two ellipses")
    missing = len(sizes) - sum(item is not None and item is not ... for item in items)
    at = items.index(...) if ... in items else len(items)
    return take(layer.walk, layer, layer.source, [*items[:at], *[slice(None)] * missing, *items[at + 1 :]])


def key_of(operands: Sequence[Any], settings: Mapping[str, Any]) -> list[Any]:
    """The key of a get_item: slices, indices, None and ellipses.

    Raises:
        Unsupported: it has other parts.
    """
    key = settings.get("slice_spec", operands[1] if len(operands) > 1 else None)
    return [_item(item) for item in (key if isinstance(key, list | tuple) else [key])]


def _item(item: Any) -> Any:
    """One part of a key: a slice, an index, None, or an ellipsis. Keras 2 writes a slice as an object of
    three numbers.
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


def _reshape(layer: Layer) -> Read:
    sizes = layer.first_of("newshape", "shape")
    if not isinstance(sizes, list | tuple) or not all(type(size) is int for size in sizes):
        raise Unsupported(f"to {sizes!r:.40}")
    return moves.reshape(layer.walk, layer, layer.source, sizes)


def _squeeze(layer: Layer) -> Read:
    axis = layer.arguments.get("axis")
    return squeeze(layer.walk, layer, layer.source, None if axis is None else _places(layer, axis))


def _transpose(layer: Layer) -> Read:
    """Axes in another order; without one turned around."""
    axes: Any = layer.first_of("axes", "perm", default=range(len(layer.walk.sizes(layer.source) or ()))[::-1])
    return transpose(layer.walk, layer, layer.source, [axes] if isinstance(axes, int) else axes)


def _swapped(layer: Layer) -> Read:
    order = [*range(len(layer.walk.known_sizes(layer.source)))]
    first, second = _places(layer, [layer.arguments["axis1"], layer.arguments["axis2"]])
    order[first], order[second] = order[second], order[first]
    return transpose(layer.walk, layer, layer.source, order)


def _moved(layer: Layer) -> Read:
    """moveaxis: the axes in their order, but some at other places."""
    rank = len(layer.walk.sizes(layer.source) or ())
    taken, put = (
        [range(rank)[place] for place in _places(layer, layer.arguments[name])]
        for name in ("source", "destination")
    )
    order = [axis for axis in range(rank) if axis not in taken]
    for place, axis in sorted(zip(put, taken, strict=True)):
        order.insert(place, axis)
    return transpose(layer.walk, layer, layer.source, order)


def _take(layer: Layer) -> Read:
    cells = numbers_in(layer.operands[1]) if len(layer.operands) == 2 else None
    axes = _places(layer, layer.arguments.get("axis"))
    if cells is None or cells.ndim != 1 or (cells % 1).any():
        raise Unsupported("by indices that are not a list of numbers")
    return gather(layer.walk, layer, layer.source, axes[0], cells.astype(int).tolist())


def _matmul(layer: Layer) -> Read:
    turns = [
        bool(layer.arguments.get(f"{way}_{side}")) for way in ("transpose", "adjoint") for side in ("a", "b")
    ]
    if any(turns) or len(layer.operands) != 2:
        raise Unsupported("with a transposition")
    sources = [_source(layer, operand) for operand in layer.operands]
    values = [layer.walk.is_value(source) for source in sources]
    if values == [True, False]:
        return dense(layer.walk, layer, sources[0], Product(sources[1], "IO"))
    if values == [False, True]:
        return by_matrix(layer.walk, layer, *sources)
    return matmul(layer.walk, layer, sources)


def _clip(layer: Layer) -> Read:
    low, high = layer.first_of("x_min", "clip_value_min"), layer.first_of("x_max", "clip_value_max")
    return clip(layer.walk, layer, layer.source, number(low), number(high))


def _cast(layer: Layer) -> Read:
    if not str(layer.arguments.get("dtype")).startswith(("float", "bfloat")):
        raise Unsupported("to another type")
    return layer.walk.view(layer.source)


def _response_norm(layer: Layer) -> Read:
    """tf.nn.local_response_normalization, with its defaults."""
    radius = whole(layer.arguments.get("depth_radius", 5))
    alpha, beta, bias = (
        number(layer.arguments.get(name, default))
        for name, default in (("alpha", 1), ("beta", 0.5), ("bias", 1))
    )
    return layer.add(LocalResponseNorm(count(2 * radius + 1), alpha, beta, bias))


def _rms_norm(layer: Layer) -> Read:
    """rms_normalization without a scale, which a model's layer has."""
    if len(layer.operands) > 1 or layer.arguments.get("scale") is not None:
        raise Unsupported("with a scale")
    least = layer.arguments.get("epsilon")
    op = RmsNorm(1e-7 if least is None else number(least), scale=False)
    return layer.along(axes_in(layer), op, {})


def _variance(layer: Layer) -> Read:
    keep = bool(layer.arguments.get("keepdims"))
    return variance(layer.walk, layer, layer.source, _places(layer, layer.arguments.get("axis")), keep, 0.0)


def _normalize(layer: Layer) -> Read:
    """A value over its norm (keras/src/ops/nn.py, `_normalize`); Keras's own epsilon is 1e-7."""
    order, least = layer.arguments.get("order", 2), layer.arguments.get("epsilon")
    if order not in (1, 2):
        raise Unsupported(f"of order {order!r:.20}")
    places, bound = _places(layer, layer.arguments.get("axis", -1)), 1e-7 if least is None else number(least)
    return over_norm(layer.walk, layer, layer.source, places, bound, whole(order))


def _of_number(layer: Layer) -> Read:
    if layer.arguments.get("decimals", 0) != 0:
        raise Unsupported("to decimals")
    return apply(layer.walk, layer, layer.source, OF_NUMBERS[layer.op])


_COMPARED = {
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
}


def _compared(layer: Layer) -> Read:
    return compare(
        layer.walk, layer, _COMPARED[layer.op], [_source(layer, operand) for operand in layer.operands]
    )


def _joined(read: Callable[[Any, Layer], Read]) -> Callable[[Layer], Read]:
    return lambda layer: read(layer.walk, layer)


def _chosen(layer: Layer) -> Read:
    if len(layer.operands) != 3:
        raise Unsupported("of one value")
    test, first, second = (_source(layer, operand) for operand in layer.operands)
    return choose(layer.walk, layer, test, first, second)


_READERS: Mapping[str, Callable[[Layer], Outputs]] = {
    **dict.fromkeys(OF_NUMBERS, _of_number),
    **dict.fromkeys((*MADE, "hard_shrink", "soft_shrink", "threshold"), _made),
    **dict.fromkeys(("hypot", "logaddexp", "equal", "not_equal"), _pair),
    **dict.fromkeys(("mod", "floor_divide"), _rounded),
    **dict.fromkeys(("tril", "triu"), _triangle),
    "cumsum": _running_sums,
    "logsumexp": _log_sum,
    "prod": _product_along,
    "rot90": _quarter_turns,
    "tile": _tiled,
    "flip": lambda layer: turned_round(
        layer.walk, layer, layer.source, _places(layer, layer.arguments.get("axis"))
    ),
    "normalize": _normalize,
    **dict.fromkeys(("var", "std"), _variance),
    "rsqrt": lambda layer: apply(layer.walk, layer, layer.source, ops.Sqrt(), ops.Reciprocal()),
    **dict.fromkeys(_KINDS, _arithmetic),
    **dict.fromkeys(_COMPARED, _compared),
    "logical_and": _joined(both),
    "logical_or": _joined(either),
    "logical_not": _joined(opposite),
    "where": _chosen,
    **dict.fromkeys((*_FUNCTIONS, "norm"), _reduced),
    "cast": _cast,
    "clip": _clip,
    "concatenate": lambda layer: concat(
        layer.walk, layer, _sources(layer), whole(layer.arguments.get("axis", -1))
    ),
    "depth_to_space": lambda layer: layer.add(DepthToSpace(count(layer.arguments["block_size"]))),
    "einsum": _einsum,
    "expand_dims": lambda layer: unsqueeze(layer.walk, layer, layer.source, [whole(layer.arguments["axis"])]),
    "get_item": _get_item,
    "identity": lambda layer: layer.walk.view(layer.source),
    "local_response_normalization": _response_norm,
    "matmul": _matmul,
    "moveaxis": _moved,
    "negative": lambda layer: negative(layer.walk, layer, layer.source),
    "ones_like": lambda layer: ones(layer.walk, layer, layer.source),
    "pad": _pad,
    "repeat": _repeat,
    "reshape": _reshape,
    "rms_normalization": _rms_norm,
    "roll": _roll,
    "split": _split,
    "square": lambda layer: square(layer.walk, layer, layer.source),
    "stack": _stack,
    "squeeze": _squeeze,
    "swapaxes": _swapped,
    "take": _take,
    "transpose": _transpose,
    "unstack": _unstack,
}
OPERATIONS = frozenset(_READERS.keys() | ACTIVATIONS.keys() | PARTS)
"""Names in keras.ops of the operations that porter knows, and of some that only TensorFlow has."""
