"""How ONNX says each op: its nodes, of which the last has the op's path. Windowed ops are in
porter.frameworks.onnx.sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError
from porter.formats.onnx import plain
from porter.frameworks.onnx import arrays
from porter.frameworks.onnx.maker import NodeMaker
from porter.graph import Node, Op, ops
from porter.graph.ops import Function, channels_axis

Spelling: TypeAlias = Callable[[NodeMaker, Node, Any], object]

_REDUCTIONS: Mapping[Function, str] = {"mean": "ReduceMean", "max": "ReduceMax", "norm": "ReduceL2"}
_END = (1 << 63) - 1
"""A Slice's end behind every cell; its negative is before every cell, for a step backwards."""


def _plain(
    kind: str, attributes: Callable[[Any], Mapping[str, Any]] = lambda op: {}, roles: Sequence[str] = ()
) -> Spelling:
    """One node of the values that the op takes, and of its tensors of these roles."""
    return lambda maker, node, op: maker.node(
        kind, node.path, *node.inputs, *maker.trained(node, *roles), **attributes(op)
    )


def _pairwise(kind: str, maker: NodeMaker, node: Node, op: Op) -> None:
    """A node of two values for each value after the first."""
    *before, last = node.inputs

    def joined(first: str, second: str) -> str:
        return maker.node(kind, maker.name(f"{node.path}_part"), first, second)

    maker.node(kind, node.path, reduce(joined, before), last)


def _global_pool(kind: str, maker: NodeMaker, node: Node, op: ops.GlobalAvgPool | ops.GlobalMaxPool) -> None:
    pooled = maker.node(kind, node.path if op.keep else maker.name(f"{node.path}_cell"), *node.inputs)
    if not op.keep:
        maker.node("Flatten", node.path, pooled)


def _reduce(maker: NodeMaker, node: Node, op: ops.Reduce) -> None:
    axes, keepdims = maker.integers(f"{node.path}.axes", 1 + op.over), {"keepdims": 0} if op.of_arrays else {}
    maker.node(_REDUCTIONS[op.function], node.path, *node.inputs, axes, **keepdims)


def _transposed(maker: NodeMaker, node: Node, op: ops.ConvTranspose) -> None:
    """`pads` cut, and add nothing: cells that only the bias reaches come from a Pad before it."""
    window, path = op.window, node.path
    (top, bottom, left, right), (above, below, before, after) = (
        [max(sign * n, 0) for n in op.cut] for sign in (1, -1)
    )
    own: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "dilations": window.dilation,
    }
    own |= {"pads": (top, left, bottom, right), "group": op.groups}
    if min(op.cut) >= 0:
        maker.node("ConvTranspose", path, *node.inputs, *maker.trained(node, "kernel", "bias"), **own)
        return
    whole = maker.node(
        "ConvTranspose", maker.name(f"{path}_cut"), *node.inputs, *maker.trained(node, "kernel"), **own
    )
    padded = maker.pad(
        maker.name(f"{path}_pad") if op.bias else path, whole, (above, below, before, after), 0.0
    )
    if op.bias:
        axes = maker.integers(f"{path}_bias.axes", 1, 2)
        bias = maker.node("Unsqueeze", maker.name(f"{path}_bias"), *maker.trained(node, "bias"), axes)
        maker.node("Add", path, padded, bias)


def _layer_norm(maker: NodeMaker, node: Node, op: ops.LayerNorm) -> None:
    """LayerNormalization is over the last axes."""
    path, source, trained = node.path, node.inputs[0], maker.trained(node, "gamma", "beta")
    if not maker.is_map(path):
        maker.node("LayerNormalization", path, source, *trained, axis=-1, epsilon=float(op.epsilon))
        return
    last = maker.node("Transpose", maker.name(f"{path}_channels_last"), source, perm=(0, 2, 3, 1))
    normed = maker.node(
        "LayerNormalization", maker.name(f"{path}_norm"), last, *trained, axis=-1, epsilon=float(op.epsilon)
    )
    maker.node("Transpose", path, normed, perm=(0, 3, 1, 2))


def _rms_norm(maker: NodeMaker, node: Node, op: ops.RmsNorm) -> None:
    """ONNX has one of its own since opset 23."""
    path, (source,) = node.path, node.inputs
    axes = maker.integers(f"{path}.axes", 1 + channels_axis(maker.shapes[path]))
    squares = maker.node("Mul", maker.name(f"{path}_squares"), source, source)
    mean = maker.node("ReduceMean", maker.name(f"{path}_mean"), squares, axes)
    total = maker.node("Add", maker.name(f"{path}_total"), mean, maker.scalar(f"{path}.epsilon", op.epsilon))
    root = maker.node("Sqrt", maker.name(f"{path}_root"), total)
    normed = maker.node("Div", maker.name(f"{path}_norm") if op.scale else path, source, root)
    if op.scale:
        maker.node("Mul", path, normed, *maker.trained(node, "gamma"))


def _group_norm(maker: NodeMaker, node: Node, op: ops.GroupNorm) -> None:
    """ONNX's own of opset 18 has numbers for each group, so instances are normalised whose channels are the
    groups.
    """
    path, (source,), groups = node.path, node.inputs, op.groups
    wide = maker.node(
        "Reshape", maker.name(f"{path}_groups"), source, maker.integers(f"{path}.groups", 0, groups, -1)
    )
    neutral = maker.numbers(f"{path}.one", np.ones(groups)), maker.numbers(f"{path}.zero", np.zeros(groups))
    normed = maker.node(
        "InstanceNormalization", maker.name(f"{path}_norm"), wide, *neutral, epsilon=float(op.epsilon)
    )
    steps = [("Mul", "gamma")] * op.scale + [("Add", "beta")] * op.center
    shape = maker.node("Shape", maker.name(f"{path}_shape"), source)
    value = maker.node("Reshape", maker.name(f"{path}_map") if steps else path, normed, shape)
    for place, (kind, role) in enumerate(steps, 1):
        value = maker.node(
            kind,
            path if place == len(steps) else maker.name(f"{path}_scaled"),
            value,
            *maker.trained(node, role),
        )


def _local_response_norm(maker: NodeMaker, node: Node, op: ops.LocalResponseNorm) -> None:
    """LRN divides alpha by the size. An even size has its odd channel behind, not before, and onnxruntime
    takes none.
    """
    path, source = node.path, node.inputs[0]
    if op.size % 2:
        numbers = {"alpha": op.alpha * op.size, "beta": op.beta, "bias": op.bias}
        maker.node("LRN", path, source, size=op.size, **{key: float(value) for key, value in numbers.items()})
        return
    channels = maker.shapes[path][0] or 0
    away = np.arange(channels)[None] - np.arange(channels)[:, None]
    around = (away >= -(op.size // 2)) & (away <= (op.size - 1) // 2)
    kernel = maker.numbers(f"{path}.around", op.alpha * around[:, :, None, None])
    bias = maker.numbers(f"{path}.bias", np.full(channels, op.bias))
    squares = maker.node("Mul", maker.name(f"{path}_squares"), source, source)
    total = maker.node("Conv", maker.name(f"{path}_total"), squares, kernel, bias, kernel_shape=(1, 1))
    power = maker.node("Pow", maker.name(f"{path}_power"), total, maker.scalar(f"{path}.beta", op.beta))
    maker.node("Div", path, source, power)


def _channel_scale(maker: NodeMaker, node: Node, op: ops.ChannelScale) -> None:
    scaled = maker.name(f"{node.path}_scaled") if op.bias else node.path
    maker.node("Mul", scaled, *node.inputs, *maker.trained(node, "gamma"))
    if op.bias:
        maker.node("Add", node.path, scaled, *maker.trained(node, "beta"))


def _affine(maker: NodeMaker, node: Node, op: ops.Affine) -> None:
    ends, path, (source,) = (1, 1) if maker.is_map(node.path) else (), node.path, node.inputs
    scale, offset = (
        np.reshape(values, (-1, *ends) if len(values) > 1 else ()) for values in (op.scale, op.offset)
    )
    if op.offset == (0,):
        maker.node("Mul", path, source, maker.numbers(f"{path}.scale", scale))
        return
    if op.scale != (1,):
        source = maker.node(
            "Mul", maker.name(f"{path}_scaled"), source, maker.numbers(f"{path}.scale", scale)
        )
    maker.node("Add", path, source, maker.numbers(f"{path}.offset", offset))


def _clip(
    low: Callable[[Any], float], high: Callable[[Any], float], maker: NodeMaker, node: Node, op: Op
) -> None:
    bounds = maker.scalar(f"{node.path}.min", low(op)), maker.scalar(f"{node.path}.max", high(op))
    maker.node("Clip", node.path, *node.inputs, *bounds)


def _power(maker: NodeMaker, node: Node, op: ops.Power) -> None:
    maker.node("Pow", node.path, *node.inputs, maker.scalar(f"{node.path}.exponent", op.exponent))


def _swish(maker: NodeMaker, node: Node, op: ops.Swish) -> None:
    (source,) = node.inputs
    maker.node("Mul", node.path, source, maker.node("Sigmoid", maker.name(f"{node.path}_sigmoid"), source))


def _over_channels(kind: str, maker: NodeMaker, node: Node, op: Op) -> None:
    maker.node(kind, node.path, *node.inputs, axis=1 + channels_axis(maker.shapes[node.path]))


def _step(maker: NodeMaker, node: Node, op: ops.Step) -> None:
    kind = "GreaterOrEqual" if op.inclusive else "Greater"
    above = maker.node(
        kind, maker.name(f"{node.path}_above"), *node.inputs, maker.scalar(f"{node.path}.zero", 0.0)
    )
    maker.node("CastLike", node.path, above, *node.inputs)


def _celu(maker: NodeMaker, node: Node, op: ops.Celu) -> None:
    """ONNX's own is of float32 only."""
    path, (source,) = node.path, node.inputs
    below = maker.node("Min", maker.name(f"{path}_below"), source, maker.scalar(f"{path}.zero", 0.0))
    share = maker.node("Div", maker.name(f"{path}_share"), below, maker.scalar(f"{path}.alpha", op.alpha))
    curve = maker.node("Elu", maker.name(f"{path}_curve"), share, alpha=float(op.alpha))
    maker.node("Add", path, maker.node("Relu", maker.name(f"{path}_over"), source), curve)


def _softplus(maker: NodeMaker, node: Node, op: ops.Softplus) -> None:
    path, (source,) = node.path, node.inputs
    if not op.cut:
        maker.node("Softplus", path, source)
        return
    over = maker.node("Greater", maker.name(f"{path}_over"), source, maker.scalar(f"{path}.threshold", 20.0))
    maker.node("Where", path, over, source, maker.node("Softplus", maker.name(f"{path}_smooth"), source))


def _flatten(maker: NodeMaker, node: Node, op: ops.Flatten) -> None:
    (source,) = node.inputs
    if op.order == "HWC" and (op.rows, op.columns) != (1, 1):
        source = maker.node("Transpose", maker.name(f"{node.path}_channels_last"), source, perm=(0, 2, 3, 1))
    maker.node("Flatten", node.path, source)


def _extend_map(maker: NodeMaker, node: Node, op: ops.ExtendMap) -> None:
    path, (source,) = node.path, node.inputs
    if op.mode != "symmetric":
        maker.pad(path, source, op.pads, 0.0, mode=op.mode)
        return
    for axis, name in ((2, maker.name(f"{path}_rows")), (3, path)):
        before, after = op.pads[2 * axis - 4 : 2 * axis - 2]
        parts = [source]
        if before:
            parts.insert(
                0, maker.cut(maker.name(f"{name}_before"), source, (before - 1,), (-_END,), (axis,), (-1,))
            )
        if after:
            parts.append(maker.cut(maker.name(f"{name}_after"), source, (-1,), (-1 - after,), (axis,), (-1,)))
        source = maker.node("Concat", name, *parts, axis=axis)


def _crop(maker: NodeMaker, node: Node, op: ops.Crop) -> None:
    cells, steps = op.cuts.values(), [each.step or 1 for each in op.cuts.values()]
    ends = [
        _END * (1 if step > 0 else -1) if each.stop is None else each.stop
        for each, step in zip(cells, steps, strict=True)
    ]
    starts, axes = [each.start for each in cells], [1 + axis for axis in op.cuts]
    maker.cut(node.path, node.inputs[0], starts, ends, axes, steps if {*steps} != {1} else ())


def _pad(maker: NodeMaker, node: Node, op: ops.Pad) -> None:
    before, after = zip(*op.ends.values(), strict=True)
    amounts = maker.integers(f"{node.path}.pads", *before, *after)
    maker.pad_by(node.path, node.inputs[0], amounts, op.fill, axes=[1 + axis for axis in op.ends])


def _channel_shuffle(maker: NodeMaker, node: Node, op: ops.ChannelShuffle) -> None:
    (source,) = node.inputs
    _shuffled(maker, node.path, source, op.groups)


def _space_to_depth(maker: NodeMaker, node: Node, op: ops.SpaceToDepth) -> None:
    """ONNX's has the cells of a block before the channels."""
    if op.order == "DCR":
        maker.node("SpaceToDepth", node.path, *node.inputs, blocksize=op.block)
        return
    cells = maker.node("SpaceToDepth", maker.name(f"{node.path}_cells"), *node.inputs, blocksize=op.block)
    _shuffled(maker, node.path, cells, op.block**2)


def _shuffled(maker: NodeMaker, path: str, source: str, groups: int) -> None:
    """A map with one channel of each group at a time. In between, the cells are one axis, so that no size has
    to be known.
    """
    channels = maker.shapes[path][0] or 0
    sizes = maker.integers(f"{path}.groups", 0, groups, channels // groups, -1)
    grouped = maker.node("Reshape", maker.name(f"{path}_grouped"), source, sizes)
    turned = maker.node("Transpose", maker.name(f"{path}_turned"), grouped, perm=(0, 2, 1, 3))
    maker.node("Reshape", path, turned, maker.node("Shape", maker.name(f"{path}_shape"), source))


def _upsample(maker: NodeMaker, node: Node, op: ops.Upsample) -> None:
    scales = maker.name(f"{node.path}.scales")
    maker.constants[scales] = np.array((1, 1, op.rows, op.columns), np.float32)
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    maker.node("Resize", node.path, *node.inputs, "", scales, **how)


def _dense(maker: NodeMaker, node: Node, op: ops.Dense) -> None:
    """Gemm is of matrices; over an array's channels it is a product with the kernel turned."""
    if len(maker.shapes[node.path]) == 1:
        maker.node("Gemm", node.path, *node.inputs, *maker.trained(node, "kernel", "bias"), transB=1)
        return
    turned = maker.node(
        "Transpose", maker.name(f"{node.path}_turned"), *maker.trained(node, "kernel"), perm=(1, 0)
    )
    product = maker.node(
        "MatMul", maker.name(f"{node.path}_product") if op.bias else node.path, *node.inputs, turned
    )
    if op.bias:
        maker.node("Add", node.path, product, *maker.trained(node, "bias"))


def _resize(maker: NodeMaker, node: Node, op: ops.Resize | ops.ResizeLike) -> None:
    """Resize, of rows and columns; its scales are float32."""
    how: dict[str, Any] = {"mode": op.mode, "coordinate_transformation_mode": op.coordinates, "axes": (2, 3)}
    if op.mode == "cubic":
        how |= {"cubic_coeff_a": float(op.a), "exclude_outside": int(op.inside)}
    path, (source, *like) = node.path, node.inputs
    if isinstance(op, ops.ResizeLike):
        sizes = maker.node("Shape", maker.name(f"{path}_size"), *like, start=2)
        maker.node("Resize", path, source, "", "", sizes, **how)
        return
    if op.mode == "nearest":
        how["nearest_mode"] = op.rounding
    if op.size:
        maker.node("Resize", path, source, "", "", maker.integers(f"{path}.sizes", *op.size), **how)
        return
    scales = maker.name(f"{path}.scales")
    maker.constants[scales] = np.array(op.scale, np.float32)
    if tuple(maker.constants[scales].tolist()) != op.scale:
        message = f"ONNX holds the scales of a resize as float32, which {op.scale} are not"
        raise GraphError(message, where=path, next="resize to a size in the model, or by such as 0.75")
    maker.node("Resize", path, source, "", scales, **how)


PLAIN: Mapping[type[Op], Spelling] = {
    **{row.op: _plain(kind, row.write) for kind, row in plain.PLAIN.items()},
    ops.ConvTranspose: _transposed,
    ops.GlobalAvgPool: partial(_global_pool, "GlobalAveragePool"),
    ops.GlobalMaxPool: partial(_global_pool, "GlobalMaxPool"),
    ops.Dense: _dense,
    ops.BatchNorm: _plain(
        "BatchNormalization", lambda op: {"epsilon": float(op.epsilon)}, ("gamma", "beta", "mean", "variance")
    ),
    ops.LayerNorm: _layer_norm,
    ops.RmsNorm: _rms_norm,
    ops.GroupNorm: _group_norm,
    ops.LocalResponseNorm: _local_response_norm,
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Relu6: partial(_clip, lambda op: 0.0, lambda op: 6.0),
    ops.Clip: partial(_clip, lambda op: op.low, lambda op: op.high),
    ops.PRelu: _plain("PRelu", roles=("alpha",)),
    ops.Celu: _celu,
    ops.Softplus: _softplus,
    ops.Swish: _swish,
    ops.Gelu: _plain("Gelu", lambda op: {"approximate": "tanh" if op.approximate else "none"}),
    ops.Softmax: partial(_over_channels, "Softmax"),
    ops.LogSoftmax: partial(_over_channels, "LogSoftmax"),
    ops.Step: _step,
    ops.Add: lambda maker, node, op: maker.node(
        "Add" if len(node.inputs) == 2 else "Sum", node.path, *node.inputs
    ),
    ops.Multiply: partial(_pairwise, "Mul"),
    ops.Divide: _plain("Div"),
    ops.Power: _power,
    ops.Maximum: _plain("Max"),
    ops.Minimum: _plain("Min"),
    ops.Concat: _plain("Concat", lambda op: {"axis": 1 + op.axis}),
    ops.Crop: _crop,
    ops.Pad: _pad,
    ops.Reduce: _reduce,
    **dict.fromkeys((ops.Identity, ops.Dropout), _plain("Identity")),  # what is run is not trained
    ops.Flatten: _flatten,
    ops.AsMap: lambda maker, node, op: maker.node(
        "Unsqueeze", node.path, *node.inputs, maker.integers(f"{node.path}.axes", 2, 3)
    ),
    ops.ExtendMap: _extend_map,
    ops.ChannelShuffle: _channel_shuffle,
    ops.DepthToSpace: _plain("DepthToSpace", lambda op: {"blocksize": op.block, "mode": op.order}),
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _upsample,
    ops.Rearrange: arrays.rearrange,
    ops.MatMul: arrays.matmul,
    ops.Attention: arrays.attention,
    ops.AddArray: _plain("Add", roles=("value",)),
    ops.MultiplyArray: _plain("Mul", roles=("value",)),
    ops.Tokens: arrays.tokens,
    ops.Resize: _resize,
    ops.ResizeLike: _resize,
}
"""Every op without a padding site."""
