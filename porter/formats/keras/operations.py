"""Operations in a Keras model, of keras.ops or TensorFlow, in porter's ops: arithmetic, reductions, pads, slices and reshapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from porter.filegraph.builder import Value
from porter.formats.keras.activations import ACTIVATIONS, activated
from porter.formats.keras.layer import Layer, NoOp, count, number
from porter.formats.keras.scaling import Numbers, constant
from porter.graph import (
    Add,
    Concat,
    DepthToSpace,
    LocalResponseNorm,
    Maximum,
    Minimum,
    Multiply,
    Op,
    PadChannels,
)
from porter.graph.ops import Axis, Function
from porter.padding import LOWEST, Convention

_OF_TWO: Mapping[str, Op] = {"add": Add(), "multiply": Multiply(), "maximum": Maximum(), "minimum": Minimum()}


def read_operation(layer: Layer) -> Value:
    """The value of an operation, whose name in keras.ops is `layer.kind`.

    Raises:
        NoOp: porter has no op for it.
        PaddingError, ValueError, TypeError, KeyError: as porter.formats.keras.layers.read_layer.
    """
    reader = _READERS.get(layer.kind, activated if layer.kind in ACTIVATIONS else None)
    if reader is None or not layer.inputs:
        raise NoOp(layer.kind)
    return reader(layer)


def _arithmetic(layer: Layer) -> Value:
    if len(layer.operands) != 2:
        raise NoOp(f"{layer.kind} of {len(layer.operands)} operands")
    first, second = layer.operands
    if isinstance(first, Value) and isinstance(second, Value):
        if layer.kind == "subtract":
            return layer.build.subtract(layer.name, first, second, layer.name)
        if layer.kind in _OF_TWO:
            return layer.build.add(layer.name, _OF_TWO[layer.kind], first, second, tap=layer.name)
        raise NoOp(f"{layer.kind} of two values")
    vector = constant(second if isinstance(first, Value) else first)
    if vector is not None and layer.kind in ("maximum", "minimum") and len(vector) == 1:
        bound = {"low" if layer.kind == "maximum" else "high": float(vector[0])}
        return layer.build.clip(layer.name, layer.input, **bound, tap=layer.name)
    found = None if vector is None else _affine(layer.kind, vector, isinstance(first, Value))
    if found is None:
        raise NoOp(f"{layer.kind} by something that is not one number per channel")
    return layer.build.affine(layer.name, layer.input, *found, layer.name)


def _affine(operation: str, vector: Numbers, value_first: bool) -> tuple[Numbers, Numbers] | None:
    """Scale and offset of an operation with a constant; None where it is no scaling, as a number divided by the value."""
    one, none = np.ones(1), np.zeros(1)
    match operation:
        case "add":
            return one, vector
        case "multiply":
            return vector, none
        case "subtract":
            return (one, -vector) if value_first else (-one, vector)
        case "true_divide" if value_first and vector.all():
            return 1 / vector, none
    return None


def _reduced(function: Function) -> Callable[[Layer], Value]:
    def read(layer: Layer) -> Value:
        axis = layer.arguments.get("axis")
        names = [_axis_name(layer, one) for one in (axis if isinstance(axis, list | tuple) else [axis])]
        axes = [name for name in names if name is not None]
        if len(axes) < len(names) or not axes:
            raise NoOp(f"{layer.kind} with {axis!r:.40}")
        return layer.build.reduce(layer.name, layer.input, function, axes, bool(layer.arguments.get("keepdims")), layer.name)

    return read


def _axis_name(layer: Layer, axis: Any) -> Axis | None:
    """An axis of N x rows x columns x channels, or of N x features, counted from either end."""
    names: tuple[Axis | None, ...] = (None, "rows", "columns", "channels") if layer.input.is_map else (None, "channels")
    return names[axis] if type(axis) is int and -len(names) <= axis < len(names) else None


def _concatenate(layer: Layer) -> Value:
    layer.expect_last_axis()
    operands = layer.operands[0] if layer.operands and isinstance(layer.operands[0], tuple) else layer.operands
    if not all(isinstance(operand, Value) for operand in operands):
        raise NoOp("concatenate with a constant")
    return layer.add(Concat()) if len(layer.inputs) > 1 else layer.input


def _pad(layer: Layer) -> Value:
    widths = layer.first_of("pad_width", "paddings")
    widths = widths if isinstance(widths, list | tuple) else []
    fill = layer.arguments.get("constant_values") or 0.0
    rows = [list(row) for row in widths if isinstance(row, list | tuple) and len(row) == 2]
    if str(layer.arguments.get("mode", "constant")).lower() != "constant" or len(rows) != 4 or any(rows[0]):
        raise NoOp(f"pad with {widths!r:.60}, mode {layer.arguments.get('mode')!r:.20}")
    (top, bottom), (left, right), (before, after) = rows[1:]
    pads = Convention("explicit", (top, bottom, left, right)).pads
    if not before and not after:
        return layer.build.pad(layer.name, layer.input, pads, fill if fill == LOWEST else number(fill), layer.name)
    if fill:
        raise NoOp("pad of channels with other numbers than zeros")
    value = layer.build.pad(f"{layer.name}:map", layer.input, pads)
    return layer.build.add(layer.name, PadChannels(before, after), value, tap=layer.name)


def _get_item(layer: Layer) -> Value:
    """x[...]: slices of a map or of features; an index takes its axis away, and None adds one."""
    items = key_of(layer.operands, layer.arguments)
    sizes = layer.input.sizes
    if sizes is None or layer.input.shape is None or items.count(...) > 1:
        raise NoOp("get_item of what is no map and no features")
    missing = len(sizes) + 1 - sum(item is not None and item is not ... for item in items)
    at = items.index(...) if ... in items else len(items)
    items = [*items[:at], *[slice(None)] * missing, *items[at + 1 :]]
    if missing < 0 or not items or items[0] != slice(None):
        raise NoOp("get_item of some images of a batch")
    axes: tuple[Axis, ...] = ("rows", "columns", "channels") if layer.input.is_map else ("channels",)
    parts = [slice(item, item + 1 or None) if isinstance(item, int) else item for item in items[1:] if item is not None]
    slices = dict(zip(axes, parts, strict=True))
    if all(isinstance(item, slice) for item in items):
        return layer.build.cut(layer.name, layer.input, slices, layer.name)
    cut = layer.build.cut(f"{layer.name}:slice", layer.input, slices)
    if cut.sizes is None:
        return cut
    left = iter(cut.sizes)
    wanted = [(1 if item is None else next(left), item) for item in items[1:]]
    return layer.build.reshape(layer.name, cut, [size for size, item in wanted if not isinstance(item, int)], layer.name)


def key_of(operands: Sequence[Any], settings: Mapping[str, Any]) -> list[Any]:
    """The key of a get_item: slices, indices, None and ellipses.

    Raises:
        NoOp: it has other parts.
    """
    key = settings.get("slice_spec", operands[1] if len(operands) > 1 else None)
    return [_item(item) for item in (key if isinstance(key, list | tuple) else [key])]


def _item(item: Any) -> Any:
    """One part of a key: a slice, an index, None, or an ellipsis. Keras 2 writes a slice as an object of three numbers."""
    if not isinstance(item, dict):
        if item is not None and type(item) is not int:
            raise NoOp(f"get_item with {item!r:.40}")
        return item
    if item.get("class_name") == "__ellipsis__":
        return ...
    parts = item["config"] if item.get("class_name") == "__slice__" else item
    ends = [parts.get(end) for end in ("start", "stop", "step")]
    if any(end is not None and type(end) is not int for end in ends):
        raise NoOp("get_item with a slice by a value")
    return slice(*ends)


def _reshape(layer: Layer) -> Value:
    shape = layer.first_of("newshape", "shape")
    if not isinstance(shape, list | tuple) or len(shape) < 2 or not all(type(size) is int for size in shape[1:]):
        raise NoOp(f"reshape to {shape!r:.40}")
    return layer.build.reshape(layer.name, layer.input, shape[1:], layer.name)


def _squeeze(layer: Layer) -> Value:
    axis, sizes = layer.arguments.get("axis"), (None, *(layer.input.sizes or ()))
    axes = [place for place, size in enumerate(sizes) if size == 1] if axis in (None, []) else axis
    places = {place % len(sizes) for place in (axes if isinstance(axes, list | tuple) else [axes])}
    if 0 in places or any(sizes[place] != 1 for place in places):
        raise NoOp(f"squeeze of axis {axis!r:.40}")
    left = [size for place, size in enumerate(sizes) if place not in places]
    return layer.build.reshape(layer.name, layer.input, left[1:], layer.name)


def _expand_dims(layer: Layer) -> Value:
    axis, sizes = layer.arguments["axis"], [None, *(layer.input.sizes or ())]
    place = axis % (len(sizes) + 1)
    if not place:
        raise NoOp(f"expand_dims with axis {axis!r:.40}")
    return layer.build.reshape(layer.name, layer.input, [*sizes[1:place], 1, *sizes[place:]], layer.name)


def _clip(layer: Layer) -> Value:
    low, high = layer.first_of("x_min", "clip_value_min"), layer.first_of("x_max", "clip_value_max")
    return layer.build.clip(layer.name, layer.input, number(low), number(high), layer.name)


def _cast(layer: Layer) -> Value:
    if not str(layer.arguments.get("dtype")).startswith(("float", "bfloat")):
        raise NoOp("cast")
    return layer.input


def _response_norm(layer: Layer) -> Value:
    """tf.nn.local_response_normalization, with its defaults."""
    radius = layer.arguments.get("depth_radius", 5)
    alpha, beta, bias = (number(layer.arguments.get(name, default)) for name, default in (("alpha", 1), ("beta", 0.5), ("bias", 1)))
    return layer.add(LocalResponseNorm(count(2 * radius + 1), alpha, beta, bias))


_READERS: Mapping[str, Callable[[Layer], Value]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "true_divide", "maximum", "minimum"), _arithmetic),
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "depth_to_space": lambda layer: layer.add(DepthToSpace(count(layer.arguments["block_size"]))),
    "expand_dims": _expand_dims,
    "get_item": _get_item,
    "identity": lambda layer: layer.input,
    "local_response_normalization": _response_norm,
    "max": _reduced("max"),
    "mean": _reduced("mean"),
    "negative": lambda layer: layer.build.affine(layer.name, layer.input, (-1.0,), (0.0,), layer.name),
    "pad": _pad,
    "reshape": _reshape,
    "squeeze": _squeeze,
}
OPERATIONS = frozenset(_READERS.keys() | ACTIVATIONS.keys())
"""Names in keras.ops of the operations that porter knows, and of some that only TensorFlow has."""
