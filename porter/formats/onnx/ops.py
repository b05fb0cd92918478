"""ONNX's operators of every opset since 7 in porter's terms, one reader each. A foreign node's name says what porter's ops lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from porter.errors import GraphError, PaddingError
from porter.filegraph.views import LARGE, expect_known
from porter.filegraph.walk import Read, unary
from porter.formats.onnx.arithmetic import (
    merged,
    read_batch_norm,
    read_binary,
    read_clip,
    read_gemm,
    read_layer_norm,
    read_matrix,
    read_negative,
    read_pattern,
    read_slope,
)
from porter.formats.onnx.constants import slices, wanted_sizes
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.formats.onnx.windows import read_convolution, read_pad, read_pool, read_resize, read_transposed
from porter.graph import (
    Concat,
    DepthToSpace,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    LocalResponseNorm,
    Multiply,
    Op,
    Relu,
    Selu,
    Sigmoid,
    Softmax,
    Softplus,
    Softsign,
    Swish,
    Tanh,
    ThresholdedRelu,
)
from porter.graph.ops import Axis

_AXES: Mapping[int, Axis] = {1: "channels", 2: "rows", 3: "columns"}
"""By an axis's place in N×C×H×W."""
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805
"""Of arXiv:1706.02515; files have them in float32."""


def read_node(walk: Walk, node: OnnxNode) -> None:
    """Adds what a node computes to `walk`; a node that porter has no op for is foreign."""
    if walk.flow.compute(node) or node.name not in walk.flow.live or _read_sizes(walk, node):
        return
    given: Any = None
    try:
        if node.op in _READERS:
            given = read_pattern(walk, node) or _READERS[node.op](walk, node)
    except (PaddingError, GraphError) as error:  # a window or a pad is too large
        given = f"{node.op} with {error.message}"
    except (ValueError, TypeError, IndexError):  # inputs that the op does not take
        given = None
    if given is None or isinstance(given, str):
        given = walk.foreign(node, given or node.op)
    walk.give(node, given if isinstance(given, list) else [given])


def _read_sizes(walk: Walk, node: OnnxNode) -> bool:
    """Shape and Size: numbers that a node states about a value."""
    if node.op not in ("Shape", "Size"):
        return False
    sizes = walk.view(node.inputs[0]).sizes
    if sizes is not None:
        part = sizes[slice(node.integer("start"), node.attributes["end"].i if "end" in node.attributes else None)]
        walk.flow.computed[node.name, 0] = np.asarray(np.prod(sizes) if node.op == "Size" else part, np.int64)
    return sizes is not None


def _softmax(walk: Walk, node: OnnxNode) -> Read:
    """Before opset 13 a softmax is over all axes from the given one on."""
    view = walk.kept(node.inputs[0])
    order, axis = walk.views.order(view), node.integer("axis", -1 if node.opset >= 13 else 1)
    if order is None or order[axis] != 1:
        return f"{node.op} over other axes than the channels"
    after = (view.sizes or ())[axis % len(order) + 1 :]
    if node.opset < 13 and any(size != 1 for size in after):
        return f"{node.op} over channels and cells"
    return walk.views.like(view, walk.builder.add(node.name, Softmax(), view.value, tap=node.name))


def _cast(walk: Walk, node: OnnxNode) -> Read:
    """Casts between real numbers of single and double precision change nothing; halves round and integers cut."""
    return walk.view(node.inputs[0]) if node.integer("to") in (1, 11) else f"Cast to type {node.integer('to')}"


def _reduce(walk: Walk, node: OnnxNode) -> Read:
    """ReduceMean and ReduceMax over axes of a map."""
    view = walk.kept(node.inputs[0])
    order, axes = walk.views.order(view), node.stated(walk.flow, "axes", 1)
    if order is None or not view.value.is_map or (not axes and node.integer("noop_with_empty_axes")):
        return view if not axes and node.integer("noop_with_empty_axes") else None
    places = {axis % len(order) for axis in axes or range(len(order))}
    chosen = [_AXES[order[place]] for place in sorted(places) if order[place]]
    if len(chosen) < len(places):
        return f"{node.op} over the batch"
    keep = bool(node.integer("keepdims", 1))
    value = walk.builder.reduce(node.name, view.value, "max" if node.op == "ReduceMax" else "mean", chosen, True, tap=node.name)
    found = walk.views.of(value).transposed(order)
    if keep or found is None or found.sizes is None:
        return found
    return found.reshaped([size for place, size in enumerate(found.sizes) if place not in places])


def _global_pool(walk: Walk, node: OnnxNode) -> Read:
    function = "max" if node.op == "GlobalMaxPool" else "mean"
    value = walk.value(node.inputs[0])
    return walk.builder.reduce(node.name, value, function, ("rows", "columns"), True, tap=node.name)  # type: ignore[arg-type]


def _concat(walk: Walk, node: OnnxNode) -> Read:
    if not all(walk.flow.is_value(source) for source in node.inputs):
        return "Concat with a constant"
    found = merged(walk, node.inputs)
    if found is None or found[1][node.integer("axis")] != 1:
        return "Concat along another axis than the channels"
    values, order = found
    value = walk.builder.add(node.name, Concat(), *values, tap=node.name) if len(values) > 1 else values[0]
    return walk.views.of(value).transposed(order)


def _reshape(walk: Walk, node: OnnxNode) -> Read:
    view = walk.view(node.inputs[0])
    stated = walk.flow.integers(node.inputs[1])
    if stated is None or view.sizes is None:
        return None
    return _moved(walk, node, wanted_sizes(node, view.sizes, stated))


def _flatten(walk: Walk, node: OnnxNode) -> Read:
    sizes, axis = walk.view(node.inputs[0]).sizes, node.integer("axis", 1)
    if sizes is None or axis in (0, len(sizes)):
        return None
    axis %= len(sizes)
    return _moved(walk, node, [int(np.prod(sizes[:axis])), int(np.prod(sizes[axis:]))])


def _squeeze(walk: Walk, node: OnnxNode) -> Read:
    """Removes axes of one cell."""
    sizes, axes = walk.view(node.inputs[0]).sizes, node.stated(walk.flow, "axes", 1)
    if sizes is None:
        return None
    places = {axis % len(sizes) for axis in axes} if axes else {place for place, size in enumerate(sizes) if size == 1}
    if 0 in places or any(sizes[place] != 1 for place in places):
        return None
    return _moved(walk, node, [size for place, size in enumerate(sizes) if place not in places])


def _unsqueeze(walk: Walk, node: OnnxNode) -> Read:
    sizes, axes = walk.view(node.inputs[0]).sizes, node.stated(walk.flow, "axes", 1)
    if sizes is None or axes is None:
        return None
    rank, left = len(sizes) + len(axes), list(sizes)
    places = {axis % rank for axis in axes}
    return _moved(walk, node, [1 if place in places else left.pop(0) for place in range(rank)])


def _moved(walk: Walk, node: OnnxNode, wanted: list[int]) -> Read:
    view = walk.view(node.inputs[0])
    found = view.reshaped(wanted)
    if found is None and walk.views.op(view) is not None:
        found = walk.views.of(walk.value(node.inputs[0])).reshaped(wanted)
    if found is not None:
        return found
    old, new = (
        "x".join("?" if size >= LARGE or size < 0 else str(size) for size in sizes[1:]) for sizes in (view.sizes or (), wanted)
    )
    return f"{node.op} of {old} to {new}"


def _transpose(walk: Walk, node: OnnxNode) -> Read:
    view = walk.view(node.inputs[0])
    return view.transposed(node.integers("perm") or range(len(view.axes or ()))[::-1])


def _tile(walk: Walk, node: OnnxNode) -> Read:
    times = walk.flow.integers(node.inputs[1])
    return None if times is None else walk.view(node.inputs[0]).repeated(times)


def _expand(walk: Walk, node: OnnxNode) -> Read:
    """Expand, where it repeats axes of one cell."""
    view, wanted = walk.view(node.inputs[0]), walk.flow.integers(node.inputs[1])
    if wanted is None or view.sizes is None or len(wanted) > len(view.sizes):
        return None
    padded = [1] * (len(view.sizes) - len(wanted)) + wanted
    expect_known(size for size, old in zip(padded, view.sizes, strict=True) if size not in (1, old))
    return view.repeated([size if old == 1 else 1 for size, old in zip(padded, view.sizes, strict=True)])


def _slice(walk: Walk, node: OnnxNode) -> Read:
    view = walk.kept(node.inputs[0])
    order, sizes = walk.views.order(view), view.sizes
    numbers = [node.stated(walk.flow, name, place) for place, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
    if order is None or sizes is None:
        return None
    parts = [_part(part, size) for part, size in zip(slices(node, len(order), numbers), sizes, strict=True)]
    if parts[0] != slice(None) or order[0]:
        return f"{node.op} of the batch"
    value = walk.builder.cut(
        node.name, view.value, {_AXES[order[place]]: parts[place] for place in range(1, len(order))}, node.name
    )
    return walk.views.of(value).transposed(order)


def _part(part: slice, size: int) -> slice:
    """Of an axis of `size` cells; counted from the end where it ends near there, because the size may be open."""
    start, stop = part.start, part.stop
    if stop is not None and size < LARGE:
        stop = None if stop >= size else stop
    elif stop is not None and stop > LARGE // 2:  # near the end, or any number that no map reaches
        stop = stop - size or None if abs(stop - size) < LARGE // 2 else None
    return slice(start or None, stop, None if part.step in (1, None) else part.step)


def _split(walk: Walk, node: OnnxNode) -> Any:
    """Split along an axis that is not the batch: into stated sizes, or as many equal parts as it has outputs."""
    view = walk.kept(node.inputs[0])
    order, sizes = walk.views.order(view), view.sizes
    axis = node.integer("axis")
    if order is None or sizes is None or not order[axis]:
        return None
    stated, size = node.stated(walk.flow, "split", 1), sizes[axis]
    if not stated:
        count = node.outputs
        most = -(-size // count)
        stated = [most] * (size // most) + ([size % most] if size % most else [])
    if size >= LARGE or sum(stated) != size:
        return None
    starts = [sum(stated[:index]) for index in range(len(stated))]
    parts = [
        walk.builder.cut(f"{node.name}:{index}" if index else node.name, view.value, {_AXES[order[axis]]: slice(start, start + n)})
        for index, (start, n) in enumerate(zip(starts, stated, strict=True))
    ]
    return [walk.views.of(part).transposed(order) for part in parts]


def _celu(walk: Walk, node: OnnxNode) -> Read:
    """Celu(x) is alpha * Elu(x / alpha)."""
    view, alpha, builder = walk.kept(node.inputs[0]), node.real("alpha", 1.0), walk.builder
    inner = builder.add(f"{node.name}:elu", Elu(), builder.affine(f"{node.name}:inner", view.value, (1 / alpha,), (0.0,)))
    return walk.views.like(view, builder.affine(node.name, inner, (alpha,), (0.0,), tap=node.name))


def _selu(walk: Walk, node: OnnxNode) -> Read:
    """Selu with the numbers of its paper, or gamma * Elu."""
    view, builder = walk.kept(node.inputs[0]), walk.builder
    alpha, gamma = (node.real(name, default) for name, default in (("alpha", SELU_ALPHA), ("gamma", SELU_GAMMA)))
    if np.allclose((alpha, gamma), (SELU_ALPHA, SELU_GAMMA), rtol=1e-6):
        return walk.views.like(view, builder.add(node.name, Selu(), view.value, tap=node.name))
    inner = builder.add(f"{node.name}:elu", Elu(alpha), view.value)
    return walk.views.like(view, builder.affine(node.name, inner, (gamma,), (0.0,), tap=node.name))


def _swish(walk: Walk, node: OnnxNode) -> Read:
    view, builder, alpha = walk.kept(node.inputs[0]), walk.builder, node.real("alpha", 1.0)
    if alpha == 1:
        return walk.views.like(view, builder.add(node.name, Swish(), view.value, tap=node.name))
    scaled = builder.affine(f"{node.name}:scaled", view.value, (alpha,), (0.0,))
    inner = builder.add(f"{node.name}:sigmoid", Sigmoid(), scaled)
    return walk.views.like(view, builder.add(node.name, Multiply(), view.value, inner, tap=node.name))


def _mish(walk: Walk, node: OnnxNode) -> Read:
    """Mish(x) is x * Tanh(Softplus(x))."""
    view, builder = walk.kept(node.inputs[0]), walk.builder
    inner = builder.add(f"{node.name}:tanh", Tanh(), builder.add(f"{node.name}:softplus", Softplus(), view.value))
    return walk.views.like(view, builder.add(node.name, Multiply(), view.value, inner, tap=node.name))


def _depth_to_space(walk: Walk, node: OnnxNode) -> Read:
    mode = node.text("mode", "DCR")
    op = DepthToSpace(node.integer("blocksize"), "CRD" if mode == "CRD" else "DCR")
    return walk.builder.add(node.name, op, walk.value(node.inputs[0]), tap=node.name)


def _response_norm(walk: Walk, node: OnnxNode) -> Read:
    """LRN divides alpha by the size, and has the odd channel of an even size behind (onnx/defs/nn/defs.cc)."""
    size = node.integer("size")
    if size % 2 == 0:
        return "LRN over an even number of channels"
    op = LocalResponseNorm(size, node.real("alpha", 1e-4) / size, node.real("beta", 0.75), node.real("bias", 1.0))
    return walk.builder.add(node.name, op, walk.value(node.inputs[0]), tap=node.name)


def _gelu(node: OnnxNode) -> Op:
    return Gelu(node.text("approximate", "none") == "tanh")


def hard_slope(stated: float) -> float:
    """A hard sigmoid's slope: torch's is a sixth, which float32 rounds."""
    return 1 / 6 if np.float32(stated) == np.float32(1 / 6) else stated


def _hard_sigmoid(node: OnnxNode) -> Op:
    return HardSigmoid(hard_slope(node.real("alpha", 0.2)), node.real("beta", 0.5))


_READERS: Mapping[str, Callable[[Walk, OnnxNode], Any]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min", "Mean"), read_binary),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("MaxPool", "AveragePool"), read_pool),
    **dict.fromkeys(("ReduceMean", "ReduceMax"), _reduce),
    **dict.fromkeys(("Resize", "Upsample"), read_resize),
    "BatchNormalization": read_batch_norm,
    "Cast": _cast,
    "Celu": _celu,
    "Clip": read_clip,
    "Concat": _concat,
    "Conv": read_convolution,
    "ConvTranspose": read_transposed,
    "DepthToSpace": _depth_to_space,
    "Elu": unary(lambda node: Elu(node.real("alpha", 1.0))),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gelu": unary(_gelu),
    "Gemm": read_gemm,
    "HardSigmoid": unary(_hard_sigmoid),
    "HardSwish": unary(lambda node: HardSwish()),
    "LRN": _response_norm,
    "LayerNormalization": read_layer_norm,
    "LeakyRelu": unary(lambda node: LeakyRelu(node.real("alpha", 0.01))),
    "MatMul": read_matrix,
    "Mish": _mish,
    "Neg": read_negative,
    "PRelu": read_slope,
    "Pad": read_pad,
    "Relu": unary(lambda node: Relu()),
    "Reshape": _reshape,
    "Selu": _selu,
    "Sigmoid": unary(lambda node: Sigmoid()),
    "Slice": _slice,
    "Softmax": _softmax,
    "Softplus": unary(lambda node: Softplus()),
    "Softsign": unary(lambda node: Softsign()),
    "Split": _split,
    "Squeeze": _squeeze,
    "Swish": _swish,
    "Tanh": unary(lambda node: Tanh()),
    "ThresholdedRelu": unary(lambda node: ThresholdedRelu(node.real("alpha", 1.0))),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
