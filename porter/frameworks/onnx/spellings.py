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
from porter.frameworks.onnx.maker import OnnxSpelled
from porter.graph import Op, ops
from porter.graph.ops import Function, Side, channels_axis, is_map, row_of

Spelling: TypeAlias = Callable[[OnnxSpelled[Any]], object]
"""Adds the nodes that compute an op to the model."""

_REDUCTIONS: Mapping[Function, str] = {"mean": "ReduceMean", "max": "ReduceMax", "norm": "ReduceL2"}
_SLICE_END = (1 << 63) - 1
"""A Slice's end behind every cell; its negative is before every cell, for a step backwards."""


def _one_node(
    kind: str, attributes: Callable[[Any], Mapping[str, Any]] = lambda op: {}, roles: Sequence[str] = ()
) -> Spelling:
    """Return the spelling of an op as one node, of the values that the op takes and of its tensors of these
    roles.
    """
    return lambda node: node.result(kind, *node.inputs, *node.tensors(*roles), **attributes(node.op))


def _pairwise(kind: str, node: OnnxSpelled[Op]) -> None:
    """Add an operator of two values for an op of many: a * b * c becomes two Muls, of which the last has the
    op's path.
    """
    *values_before, last = node.inputs

    def add_part(first: str, second: str) -> str:
        return node.step("part", kind, first, second)

    node.result(kind, reduce(add_part, values_before), last)


def _reduce(node: OnnxSpelled[ops.Reduce]) -> None:
    """Add the reduction of an axis: of an array it is left out, of a map it keeps one cell."""
    axes = node.integers("axes", 1 + node.op.over)
    keepdims = {"keepdims": 0} if node.op.of_arrays else {}
    node.result(_REDUCTIONS[node.op.function], *node.inputs, axes, **keepdims)


def _conv_transpose(node: OnnxSpelled[ops.ConvTranspose]) -> None:
    """Add a ConvTranspose. Its `pads` cut, and add nothing: cells that only the bias reaches come from a Pad
    before the bias.
    """
    op = node.op
    window, path = op.window, node.path
    # Cells to cut off, and where a cut is negative, cells to add.
    top, bottom, left, right = (max(cut, 0) for cut in op.cut)
    above, below, before, after = (max(-cut, 0) for cut in op.cut)
    attributes: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "dilations": window.dilation,
    }
    attributes |= {"pads": (top, left, bottom, right), "group": op.groups}
    if min(op.cut) >= 0:
        node.result("ConvTranspose", *node.inputs, *node.tensors("kernel", "bias"), **attributes)
        return
    uncut = node.step("cut", "ConvTranspose", *node.inputs, *node.tensors("kernel"), **attributes)
    # The last node has the path.
    name = node.part("pad") if op.bias else path
    padded = node.maker.add_pad(name, uncut, (above, below, before, after), 0.0)
    if op.bias:
        axes = node.maker.integers(f"{path}_bias.axes", 1, 2)
        bias = node.step("bias", "Unsqueeze", *node.tensors("bias"), axes)
        node.result("Add", padded, bias)


def _layer_norm(node: OnnxSpelled[ops.LayerNorm]) -> None:
    """Add a LayerNormalization; ONNX has it over the last axes only, so the channels of a map are moved
    there.
    """
    source, trained = node.source, node.tensors("gamma", "beta")
    if not is_map(node.shape):
        node.result("LayerNormalization", source, *trained, axis=-1, epsilon=float(node.op.epsilon))
        return
    last = node.step("channels_last", "Transpose", source, perm=(0, 2, 3, 1))
    normed = node.step("norm", "LayerNormalization", last, *trained, axis=-1, epsilon=float(node.op.epsilon))
    node.result("Transpose", normed, perm=(0, 3, 1, 2))


def _rms_norm(node: OnnxSpelled[ops.RmsNorm]) -> None:
    """Add an RMS norm in parts, gamma * x / sqrt(mean(x * x) + epsilon), because ONNX has the operator since
    opset 23 only.
    """
    source = node.source
    axes = node.integers("axes", 1 + channels_axis(node.shape))
    squares = node.step("squares", "Mul", source, source)
    mean = node.step("mean", "ReduceMean", squares, axes)
    total = node.step("total", "Add", mean, node.scalar("epsilon", node.op.epsilon))
    root = node.step("root", "Sqrt", total)
    normed = node.step("norm" if node.op.scale else "", "Div", source, root)
    if node.op.scale:
        node.result("Mul", normed, *node.tensors("gamma"))


def _group_norm(node: OnnxSpelled[ops.GroupNorm]) -> None:
    """Add a group norm as an InstanceNormalization whose channels are the groups, because GroupNormalization
    of opset 18 has numbers for each group, not for each channel.
    """
    source, groups = node.source, node.op.groups
    grouped = node.step("groups", "Reshape", source, node.integers("groups", 0, groups, -1))
    ones_and_zeros = (
        node.numbers("one", np.ones(groups)),
        node.numbers("zero", np.zeros(groups)),
    )
    normed = node.step(
        "norm", "InstanceNormalization", grouped, *ones_and_zeros, epsilon=float(node.op.epsilon)
    )
    steps = []
    if node.op.scale:
        steps.append(("Mul", "gamma"))
    if node.op.center:
        steps.append(("Add", "beta"))
    shape = node.step("shape", "Shape", source)
    value = node.step("map" if steps else "", "Reshape", normed, shape)
    for number, (kind, role) in enumerate(steps, 1):
        # The last node has the path.
        ending = "" if number == len(steps) else "scaled"
        value = node.step(ending, kind, value, *node.tensors(role))


def _response_norm(op: ops.LocalResponseNorm) -> Mapping[str, Any]:
    """Return the attributes of an LRN, which divides alpha by the size."""
    numbers = {"alpha": op.alpha * op.size, "beta": op.beta, "bias": op.bias}
    return {"size": op.size, **{key: float(value) for key, value in numbers.items()}}


def _channel_scale(node: OnnxSpelled[ops.ChannelScale]) -> None:
    """Add a product with gamma and, if the op has a bias, a sum with beta."""
    scaled = node.step("scaled" if node.op.bias else "", "Mul", *node.inputs, *node.tensors("gamma"))
    if node.op.bias:
        node.result("Add", scaled, *node.tensors("beta"))


def _affine(node: OnnxSpelled[ops.Affine]) -> None:
    """Add x * scale + offset as a Mul and an Add, without one that does nothing. Numbers for each channel of
    a map have the shape C×1×1.
    """
    cell_axes, source = (1, 1) if is_map(node.shape) else (), node.source
    scale, offset = (
        np.reshape(values, (-1, *cell_axes) if len(values) > 1 else ())
        for values in (node.op.scale, node.op.offset)
    )
    if node.op.offset == (0,):
        node.result("Mul", source, node.numbers("scale", scale))
        return
    if node.op.scale != (1,):
        source = node.step("scaled", "Mul", source, node.numbers("scale", scale))
    node.result("Add", source, node.numbers("offset", offset))


def _clip(node: OnnxSpelled[ops.Clip]) -> None:
    """Add a Clip, whose bounds are constants."""
    node.result("Clip", *node.inputs, node.scalar("min", node.op.low), node.scalar("max", node.op.high))


def _power(node: OnnxSpelled[ops.Power]) -> None:
    """Add a Pow with a constant exponent."""
    node.result("Pow", *node.inputs, node.scalar("exponent", node.op.exponent))


def _along_channels(kind: str, node: OnnxSpelled[Op]) -> None:
    """Add a node `kind` along the axis of the channels: the first of a map, the last of an array."""
    node.result(kind, *node.inputs, axis=1 + channels_axis(node.shape))


def _step(node: OnnxSpelled[ops.Step]) -> None:
    """Add a comparison with 0, and a cast of its booleans to the type of the input."""
    kind = "GreaterOrEqual" if node.op.inclusive else "Greater"
    is_above = node.step("above", kind, *node.inputs, node.scalar("zero", 0.0))
    node.result("CastLike", is_above, *node.inputs)


def _softplus(node: OnnxSpelled[ops.Softplus]) -> None:
    """Add a Softplus, which torch cuts off above 20: there it is its input."""
    source = node.source
    if not node.op.cut:
        node.result("Softplus", source)
        return
    is_over = node.step("over", "Greater", source, node.scalar("threshold", 20.0))
    node.result("Where", is_over, source, node.step("smooth", "Softplus", source))


def _flatten(node: OnnxSpelled[ops.Flatten]) -> None:
    """Add a Flatten; where the cells come before the channels, behind a Transpose."""
    source = node.source
    if node.op.order == "HWC" and (node.op.rows, node.op.columns) != (1, 1):
        source = node.step("channels_last", "Transpose", source, perm=(0, 2, 3, 1))
    node.result("Flatten", source)


def _extend_map(node: OnnxSpelled[ops.ExtendMap]) -> None:
    """Add cells of the map's own around it, by a Pad, or for `symmetric` by slices that run backwards."""
    path, source = node.path, node.source
    if node.op.mode != "symmetric":
        node.maker.add_pad(path, source, node.op.pads, 0.0, mode=node.op.mode)
        return
    maker, (top, bottom, left, right) = node.maker, node.op.pads
    for axis, name, before, after in ((2, node.part("rows"), top, bottom), (3, path, left, right)):
        parts = [source]
        if before:
            # from the last of the first cells to the first one
            start, end = before - 1, -_SLICE_END
            mirrored = maker.add_slice(maker.name(f"{name}_before"), source, (start,), (end,), (axis,), (-1,))
            parts.insert(0, mirrored)
        if after:
            # from the last cell to the first of the last ones
            start, end = -1, -1 - after
            mirrored = maker.add_slice(maker.name(f"{name}_after"), source, (start,), (end,), (axis,), (-1,))
            parts.append(mirrored)
        source = maker.add("Concat", name, *parts, axis=axis)


def _crop(node: OnnxSpelled[ops.Crop]) -> None:
    """Add a Slice of all axes that the op cuts."""
    cuts = node.op.cuts.values()
    starts = [cut.start for cut in cuts]
    steps = [cut.step or 1 for cut in cuts]
    # Without a stop, a slice goes on to the end, or with a negative step to the start.
    open_ends = [_SLICE_END if step > 0 else -_SLICE_END for step in steps]
    ends = [open_end if cut.stop is None else cut.stop for cut, open_end in zip(cuts, open_ends, strict=True)]
    # behind the batch
    axes = [1 + axis for axis in node.op.cuts]
    node.maker.add_slice(node.path, node.source, starts, ends, axes, steps if {*steps} != {1} else ())


def _pad(node: OnnxSpelled[ops.Pad]) -> None:
    """Add a Pad with cells of a number, of the axes that the op pads only."""
    before, after = zip(*node.op.ends.values(), strict=True)
    amounts = node.integers("pads", *before, *after)
    node.maker.add_pad_by_value(
        node.path, node.source, amounts, node.op.fill, axes=[1 + axis for axis in node.op.ends]
    )


def _channel_shuffle(node: OnnxSpelled[ops.ChannelShuffle]) -> None:
    """Add a channel shuffle. Between its two reshapes the rows and columns are one axis, so that no size has
    to be known.
    """
    channels = node.shape[0] or 0
    sizes = node.integers("groups", 0, node.op.groups, channels // node.op.groups, -1)
    grouped = node.step("grouped", "Reshape", node.source, sizes)
    transposed = node.step("turned", "Transpose", grouped, perm=(0, 2, 1, 3))
    node.result("Reshape", transposed, node.step("shape", "Shape", node.source))


def _upsample(node: OnnxSpelled[ops.Upsample]) -> None:
    """Add a Resize that repeats each cell."""
    scales = node.maker.name(f"{node.path}.scales")
    node.maker.constants[scales] = np.array((1, 1, node.op.rows, node.op.columns), np.float32)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node.result("Resize", *node.inputs, "", scales, **attributes)


def _dense(node: OnnxSpelled[ops.Dense]) -> None:
    """Add a Gemm, which is of matrices; over an array's channels it is a product with the transposed
    kernel.
    """
    if len(node.shape) == 1:
        node.result("Gemm", *node.inputs, *node.tensors("kernel", "bias"), transB=1)
        return
    transposed = node.step("turned", "Transpose", *node.tensors("kernel"), perm=(1, 0))
    product = node.step("product" if node.op.bias else "", "MatMul", *node.inputs, transposed)
    if node.op.bias:
        node.result("Add", product, *node.tensors("bias"))


def _resize(node: OnnxSpelled[ops.Resize | ops.ResizeLike]) -> None:
    """Add a Resize of rows and columns: by scales, to a size, or to that of another map. Raise GraphError for
    scales that float32, in which ONNX states them, does not hold.
    """
    op = node.op
    attributes: dict[str, Any] = {
        "mode": op.mode,
        "coordinate_transformation_mode": op.coordinates,
        "axes": (2, 3),
    }
    if op.mode == "cubic":
        attributes |= {"cubic_coeff_a": float(op.a), "exclude_outside": int(op.inside)}
    path, (source, *like) = node.path, node.inputs
    if op.mode == "nearest":
        attributes["nearest_mode"] = op.rounding
    if isinstance(op, ops.ResizeLike):
        # rows and columns of the other map
        sizes = node.step("size", "Shape", *like, start=2)
        node.result("Resize", source, "", "", sizes, **attributes)
        return
    if op.size:
        node.result("Resize", source, "", "", node.integers("sizes", *op.size), **attributes)
        return
    scales = node.maker.name(f"{path}.scales")
    node.maker.constants[scales] = np.array(op.scale, np.float32)
    if tuple(node.maker.constants[scales].tolist()) != op.scale:
        message = f"ONNX holds the scales of a resize as float32, which {op.scale} are not"
        raise GraphError(message, where=path, next="resize to a size in the model, or by such as 0.75")
    node.result("Resize", source, "", scales, **attributes)


_HALVES_BEFORE: Mapping[Side, int] = {"start": 2, "both": 1}
"""So many halves of the cells lie before a map's own."""


def _as_large(node: OnnxSpelled[ops.AsLarge]) -> None:
    """Add a Pad, or a Slice, that gives a map the size of another one, by amounts that are computed from the
    sizes of both maps.
    """
    op, (source, like) = node.op, node.inputs
    sizes = node.step("own", "Shape", source)
    target_sizes = node.step("size", "Shape", like)
    larger, smaller = (target_sizes, sizes) if op.grows else (sizes, target_sizes)
    difference = node.step("every", "Sub", larger, smaller)
    # Factors that leave batch, channels and an axis that stays without cells.
    is_resized = [int(side != "none") for side in (op.rows, op.columns)]
    halves_before = [_HALVES_BEFORE.get(side, 0) for side in (op.rows, op.columns)]
    cells = node.step("more", "Mul", difference, node.integers("axes", 0, 0, *is_resized))
    halves = node.integers("halves", 0, 0, *halves_before)
    # Both halves, one, rounded down, or none of the cells.
    before = node.step("before", "Div", node.step("twice", "Mul", cells, halves), node.integers("two", 2))
    after = node.step("after", "Sub", cells, before)
    if op.grows:
        node.result("Pad", source, node.step("pads", "Concat", before, after, axis=0))
    else:
        node.result("Slice", source, before, node.step("ends", "Sub", sizes, after))


PLAIN: Mapping[type[Op], Spelling] = {
    # ONNX's own Celu is of float32 only.
    **{row.op: _one_node(kind, row.write) for kind, row in plain.PLAIN.items() if row.op is not ops.Celu},
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _one_node("GlobalAveragePool"),
    ops.GlobalMaxPool: _one_node("GlobalMaxPool"),
    ops.Dense: _dense,
    ops.BatchNorm: _one_node(
        "BatchNormalization", lambda op: {"epsilon": float(op.epsilon)}, ("gamma", "beta", "mean", "variance")
    ),
    ops.LayerNorm: _layer_norm,
    ops.RmsNorm: _rms_norm,
    ops.GroupNorm: _group_norm,
    ops.LocalResponseNorm: _one_node("LRN", _response_norm),
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Clip: _clip,
    ops.PRelu: _one_node("PRelu", roles=("alpha",)),
    ops.Softplus: _softplus,
    ops.Gelu: _one_node("Gelu", lambda op: {"approximate": "tanh" if op.approximate else "none"}),
    ops.Softmax: partial(_along_channels, "Softmax"),
    ops.LogSoftmax: partial(_along_channels, "LogSoftmax"),
    ops.Step: _step,
    ops.Add: lambda node: node.maker.add("Add" if len(node.inputs) == 2 else "Sum", node.path, *node.inputs),
    ops.Multiply: partial(_pairwise, "Mul"),
    ops.Divide: _one_node("Div"),
    ops.Power: _power,
    ops.Maximum: _one_node("Max"),
    ops.Minimum: _one_node("Min"),
    ops.Concat: _one_node("Concat", lambda op: {"axis": 1 + op.axis}),
    ops.Crop: _crop,
    ops.Pad: _pad,
    ops.Reduce: _reduce,
    **dict.fromkeys((ops.Identity, ops.Dropout), _one_node("Identity")),  # what is run is not trained
    ops.Flatten: _flatten,
    ops.AsMap: lambda node: node.result("Unsqueeze", *node.inputs, node.integers("axes", 2, 3)),
    ops.ExtendMap: _extend_map,
    ops.ChannelShuffle: _channel_shuffle,
    ops.DepthToSpace: _one_node("DepthToSpace", lambda op: {"blocksize": op.block, "mode": op.order}),
    ops.SpaceToDepth: _one_node("SpaceToDepth", lambda op: {"blocksize": op.block}),
    ops.Upsample: _upsample,
    ops.Rearrange: arrays.add_rearrange,
    ops.MatMul: arrays.add_matmul,
    ops.Attention: arrays.add_attention,
    ops.AddArray: _one_node("Add", roles=("value",)),
    ops.MultiplyArray: _one_node("Mul", roles=("value",)),
    ops.Tokens: arrays.add_tokens,
    ops.Resize: _resize,
    ops.ResizeLike: _resize,
    ops.AsLarge: _as_large,
}
"""Ops without a padding site that ONNX has, or of which its operators compose the same numbers."""


def lacks_op(op: Op) -> bool:
    """Say whether ONNX lacks an op, or this kind of it: its pools give maps, and its SpaceToDepth has the
    cell first. Its LRN of an even size has the odd channel behind, and onnxruntime takes none.
    """
    match op:
        case ops.LocalResponseNorm():
            return op.size % 2 == 0
        case ops.GlobalPool():
            return not op.keep
        case ops.SpaceToDepth():
            return op.order == "CRD"
    return row_of(PLAIN, type(op)) is None
