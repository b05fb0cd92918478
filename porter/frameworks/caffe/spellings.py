"""How Caffe says each op that it has: its layers, of which the last has the op's path. Windowed ops are in
porter.frameworks.caffe.sites. Every layer is one that Caffe 1.0 has, and OpenCV.

A few ops are compositions that are exact in every number: the least of two values is the negative of the
largest of their negatives, and cells are moved by convolutions of a single one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError
from porter.filegraph.arithmetic import SELU_ALPHA, SELU_GAMMA
from porter.frameworks.caffe.maker import NONE, LayerMaker, Parameter, norm_name
from porter.frameworks.caffe.sites import sides
from porter.frameworks.numpy.nets import Held
from porter.frameworks.single_ones import Choice, Spread, choosing, gathering, spreading
from porter.graph import Node, Op, ops
from porter.graph.ops import is_map
from porter.padding import less

Spelling: TypeAlias = Callable[[LayerMaker, Node, Any], object]


Parameters: TypeAlias = Mapping[str, Parameter]


def _plain(
    kind: str, parameters: Callable[[Any], Parameters] = lambda op: {}, roles: tuple[str, ...] = ()
) -> Spelling:
    """One layer of the values that the op takes, and of its tensors of these roles."""
    return lambda maker, node, op: maker.layer(
        kind, node.path, *node.inputs, blobs=maker.trained(node.path, *roles), **parameters(op)
    )


def _joined(operation: str) -> Spelling:
    def spelling(maker: LayerMaker, node: Node, op: Op) -> None:
        _expect_alike(maker, node)
        maker.layer("Eltwise", node.path, *node.inputs, operation=operation)

    return spelling


def _expect_alike(maker: LayerMaker, node: Node) -> None:
    if len({maker.shapes[path] for path in node.inputs}) > 1:
        raise GraphError("Caffe's Eltwise takes values of one shape", where=node.path)


def _multiplied(maker: LayerMaker, node: Node, op: ops.Multiply) -> None:
    """A map times numbers for each channel, as of a squeeze and excitation, is a Scale."""
    factors = [path for path in node.inputs if maker.shapes[path][1:] == (1, 1)]
    if len(node.inputs) != 2 or len(factors) != 1 or len({maker.channels(path) for path in node.inputs}) != 1:
        _joined("PROD")(maker, node, op)
        return
    (source,) = (path for path in node.inputs if path not in factors)
    flat = maker.layer("Flatten", maker.name(f"{node.path}_factors"), *factors)
    maker.layer("Scale", node.path, source, flat, axis=0)


def _divided(maker: LayerMaker, node: Node, op: ops.Divide) -> None:
    _expect_alike(maker, node)
    first, second = node.inputs
    by = maker.layer("Power", maker.name(f"{node.path}_by"), second, power=-1.0)
    maker.layer("Eltwise", node.path, first, by, operation="PROD")


def _least(maker: LayerMaker, node: Node, op: ops.Minimum) -> None:
    _expect_alike(maker, node)
    negatives = [maker.negative(maker.name(f"{node.path}_negative"), path) for path in node.inputs]
    maker.negative(
        node.path, maker.layer("Eltwise", maker.name(f"{node.path}_most"), *negatives, operation="MAX")
    )


def _clip(maker: LayerMaker, name: str, source: str, low: float, high: float) -> str:
    """min(max(x, low), high), without rounding: 6 - relu(6 - x) would round."""
    value, below = source, name if math.isinf(high) else maker.name(f"{name}_low")
    if low == 0:
        value = maker.layer("ReLU", below, source)
    elif math.isfinite(low):
        bound = maker.filled(maker.name(f"{name}_least"), source, low)
        value = maker.layer("Eltwise", below, source, bound, operation="MAX")
    if math.isinf(high):
        return value
    negative, bound = (
        maker.negative(maker.name(f"{name}_negative"), value),
        maker.filled(maker.name(f"{name}_most"), value, -high),
    )
    return maker.negative(
        name, maker.layer("Eltwise", maker.name(f"{name}_high"), negative, bound, operation="MAX")
    )


def _hard_sigmoid(maker: LayerMaker, node: Node, op: ops.HardSigmoid) -> None:
    line = maker.layer(
        "Power", maker.name(f"{node.path}_line"), *node.inputs, scale=op.slope, shift=op.offset
    )
    _clip(maker, node.path, line, 0.0, 1.0)


def _hard_swish(maker: LayerMaker, node: Node, op: ops.HardSwish) -> None:
    path, (source,) = node.path, node.inputs
    cut = _clip(
        maker,
        maker.name(f"{path}_cut"),
        maker.layer("Power", maker.name(f"{path}_line"), source, shift=3.0),
        0.0,
        6.0,
    )
    product = maker.layer("Eltwise", maker.name(f"{path}_product"), source, cut, operation="PROD")
    maker.layer("Power", path, product, scale=1 / 6)


def _swish(maker: LayerMaker, node: Node, op: ops.Swish) -> None:
    share = maker.layer("Sigmoid", maker.name(f"{node.path}_share"), *node.inputs)
    maker.layer("Eltwise", node.path, *node.inputs, share, operation="PROD")


def _celu(maker: LayerMaker, node: Node, op: ops.Celu) -> None:
    """What is below 0, over alpha, goes through an ELU."""
    path, (source,) = node.path, node.inputs
    below = maker.layer(
        "ReLU", maker.name(f"{path}_below"), maker.negative(maker.name(f"{path}_negative"), source)
    )
    share = maker.layer("Power", maker.name(f"{path}_share"), below, scale=-1 / op.alpha)
    curve = maker.layer("ELU", maker.name(f"{path}_curve"), share, alpha=op.alpha)
    maker.layer(
        "Eltwise", path, maker.layer("ReLU", maker.name(f"{path}_over"), source), curve, operation="SUM"
    )


def _mish(maker: LayerMaker, node: Node, op: ops.Mish) -> None:
    smooth = maker.layer("BNLL", maker.name(f"{node.path}_smooth"), *node.inputs)
    share = maker.layer("TanH", maker.name(f"{node.path}_share"), smooth)
    maker.layer("Eltwise", node.path, *node.inputs, share, operation="PROD")


def _selu(maker: LayerMaker, node: Node, op: ops.Selu) -> None:
    elu = maker.layer("ELU", maker.name(f"{node.path}_elu"), *node.inputs, alpha=SELU_ALPHA)
    maker.layer("Power", node.path, elu, scale=SELU_GAMMA)


def _softplus(maker: LayerMaker, node: Node, op: ops.Softplus) -> None:
    if op.cut:
        raise GraphError("Caffe's BNLL is log(1 + exp(x)) for every x, not x above 20", where=node.path)
    maker.layer("BNLL", node.path, *node.inputs)


def _batch_norm(maker: LayerMaker, node: Node, op: ops.BatchNorm) -> None:
    scaled = op.scale or op.center
    name = norm_name(node.path) if scaled else node.path
    blobs: list[Held] = [*maker.trained(node.path, "mean", "variance"), np.ones(1)]
    stated: dict[str, Parameter] = {"eps": op.epsilon, "moving_average_fraction": round(1 - op.momentum, 9)}
    normed = maker.layer("BatchNorm", name, *node.inputs, blobs=blobs, use_global_stats=True, **stated)
    if scaled:
        _scale(maker, node, normed)


def _scale(maker: LayerMaker, node: Node, source: str) -> None:
    blobs: list[Held] = [*maker.trained(node.path, "gamma", "beta")]
    if "gamma" not in maker.tensors[node.path]:
        blobs.insert(0, np.ones(maker.channels(node.path)))
    maker.layer("Scale", node.path, source, blobs=blobs, bias_term="beta" in maker.tensors[node.path])


def _affine(maker: LayerMaker, node: Node, op: ops.Affine) -> None:
    if len(op.scale) == len(op.offset) == 1:
        maker.layer("Power", node.path, *node.inputs, scale=op.scale[0], shift=op.offset[0])
        return
    blobs = [
        np.broadcast_to(np.array(numbers), maker.channels(node.path)) for numbers in (op.scale, op.offset)
    ]
    maker.layer("Scale", node.path, *node.inputs, blobs=blobs, bias_term=True)


def _response_norm(maker: LayerMaker, node: Node, op: ops.LocalResponseNorm) -> None:
    if op.size % 2 == 0:
        raise GraphError(f"Caffe's LRN takes an odd number of channels, not {op.size}", where=node.path)
    if op.bias <= 0 or op.bias == 1:
        maker.layer(
            "LRN",
            node.path,
            *node.inputs,
            local_size=op.size,
            alpha=op.alpha * op.size,
            beta=op.beta,
            k=op.bias,
        )
        return
    # OpenCV 4.14 reads no `k` and takes 1, so the rest of it is a factor.
    own, alpha = maker.name(f"{node.path}_of_one"), op.alpha * op.size / op.bias
    scaled = maker.layer("LRN", own, *node.inputs, local_size=op.size, alpha=alpha, beta=op.beta)
    maker.layer("Power", node.path, scaled, scale=op.bias**-op.beta)


def _dense(maker: LayerMaker, node: Node, op: ops.Dense) -> None:
    blobs = maker.trained(node.path, "kernel", "bias")
    maker.layer("InnerProduct", node.path, *node.inputs, blobs=blobs, num_output=op.units, bias_term=op.bias)


def _global_pool(pool: str) -> Spelling:
    def spelling(maker: LayerMaker, node: Node, op: ops.GlobalAvgPool | ops.GlobalMaxPool) -> None:
        name = node.path if op.keep else maker.name(f"{node.path}_cell")
        pooled = maker.layer("Pooling", name, *node.inputs, pool=pool, global_pooling=True)
        if not op.keep:
            maker.layer("Flatten", node.path, pooled)

    return spelling


def _flatten(maker: LayerMaker, node: Node, op: ops.Flatten) -> None:
    """Cell by cell: the cells along one axis, then one behind the other along the channels."""
    path, (source,), cells = node.path, node.inputs, op.rows * op.columns
    if op.order == "HWC" and cells > 1:
        line = maker.layer(
            "Reshape",
            maker.name(f"{path}_line"),
            source,
            shape={"dim": (0, maker.channels(source), cells, 1)},
        )
        source = maker.layer(
            "Concat", maker.name(f"{path}_cells"), *maker.parts(path, line, 2, cells), axis=1
        )
    maker.layer("Flatten", path, source)


def _chosen(maker: LayerMaker, node: Node, op: Choice) -> None:
    """Channels of a value, or zeros."""
    (source,), kernel = node.inputs, choosing(op, maker.channels(node.inputs[0]))
    if is_map(maker.shapes[source]):
        blobs = [kernel[..., np.newaxis, np.newaxis]]
        maker.layer(
            "Convolution",
            node.path,
            source,
            blobs=blobs,
            num_output=len(kernel),
            kernel_size=1,
            bias_term=False,
        )
    else:
        maker.layer(
            "InnerProduct", node.path, source, blobs=[kernel], num_output=len(kernel), bias_term=False
        )


def _pad_map(maker: LayerMaker, node: Node, op: ops.PadMap) -> None:
    if op.fill:
        raise GraphError(f"Caffe pads with zeros only, not with {op.fill:g}", where=node.path)
    maker.moved(node.path, node.inputs[0], maker.channels(node.path), op.pads)


def _transposed(maker: LayerMaker, node: Node, op: ops.ConvTranspose) -> None:
    """What is cut alike from both sides are its pads; anything else is cut, or added, behind it."""
    path, window, trained = node.path, op.window, maker.trained(node.path, "kernel", "bias")
    top, bottom, left, right = op.cut
    alike = (top, left) == (bottom, right) and min(op.cut) >= 0
    late = op.bias and min(op.cut) < 0  # cells that only the bias reaches
    stated = sides(window, op.cut if alike else NONE) | {
        "num_output": op.filters,
        "bias_term": op.bias and not late,
    }
    if window.dilation != (1, 1):
        stated["dilation"] = window.dilation
    if op.groups != 1:
        stated["group"] = op.groups
    name = path if alike else maker.name(f"{path}_whole")
    whole = maker.layer("Deconvolution", name, *node.inputs, blobs=trained[: 1 if late else 2], **stated)
    if not alike:
        moved = maker.moved(
            maker.name(f"{path}_cut") if late else path, whole, op.filters, less(NONE, op.cut)
        )
        if late:
            maker.layer("Scale", path, moved, blobs=[np.ones(op.filters), *trained[1:]], bias_term=True)


def _spread(maker: LayerMaker, node: Node, op: Spread) -> None:
    kernel, group = spreading(op, maker.channels(node.inputs[0]))
    rows, columns = kernel.shape[2:]
    own: dict[str, Parameter] = {
        "kernel_h": rows,
        "kernel_w": columns,
        "stride_h": rows,
        "stride_w": columns,
        "group": group,
    }
    filters = kernel.shape[1] * group
    maker.layer(
        "Deconvolution", node.path, *node.inputs, blobs=[kernel], num_output=filters, bias_term=False, **own
    )


def _space_to_depth(maker: LayerMaker, node: Node, op: ops.SpaceToDepth) -> None:
    kernel, own = gathering(op, maker.channels(node.inputs[0])), {"kernel_size": op.block, "stride": op.block}
    maker.layer(
        "Convolution", node.path, *node.inputs, blobs=[kernel], num_output=len(kernel), bias_term=False, **own
    )


PLAIN: Mapping[type[Op], Spelling] = {
    ops.ConvTranspose: _transposed,
    ops.GlobalAvgPool: _global_pool("AVE"),
    ops.GlobalMaxPool: _global_pool("MAX"),
    ops.Dense: _dense,
    ops.BatchNorm: _batch_norm,
    ops.LocalResponseNorm: _response_norm,
    ops.ChannelScale: lambda maker, node, op: _scale(maker, node, node.inputs[0]),
    ops.Affine: _affine,
    ops.Relu: _plain("ReLU"),
    ops.Relu6: lambda maker, node, op: _clip(maker, node.path, node.inputs[0], 0.0, 6.0),
    ops.Clip: lambda maker, node, op: _clip(maker, node.path, node.inputs[0], op.low, op.high),
    ops.LeakyRelu: _plain("ReLU", lambda op: {"negative_slope": op.slope}),
    ops.PRelu: _plain("PReLU", roles=("alpha",)),
    ops.Elu: _plain("ELU", lambda op: {"alpha": op.alpha}),
    ops.Celu: _celu,
    ops.Selu: _selu,
    ops.Sigmoid: _plain("Sigmoid"),
    ops.Tanh: _plain("TanH"),
    ops.Softplus: _softplus,
    ops.HardSigmoid: _hard_sigmoid,
    ops.Swish: _swish,
    ops.HardSwish: _hard_swish,
    ops.Mish: _mish,
    ops.Softmax: _plain("Softmax", lambda op: {"axis": 1}),
    ops.Abs: _plain("AbsVal"),
    ops.Exp: _plain("Exp"),
    ops.Log: _plain("Log"),
    ops.Sqrt: _plain("Power", lambda op: {"power": 0.5}),
    ops.Reciprocal: _plain("Power", lambda op: {"power": -1.0}),
    ops.Power: _plain("Power", lambda op: {"power": op.exponent}),
    ops.Add: _joined("SUM"),
    ops.Multiply: _multiplied,
    ops.Divide: _divided,
    ops.Maximum: _joined("MAX"),
    ops.Minimum: _least,
    ops.ConcatChannels: _plain("Concat", lambda op: {"axis": 1}),
    **dict.fromkeys((ops.Identity, ops.Dropout), _plain("Power")),
    ops.Flatten: _flatten,
    ops.AsMap: lambda maker, node, op: maker.layer(
        "Reshape", node.path, *node.inputs, shape={"dim": (0, 0, 1, 1)}
    ),
    ops.Rearrange: _plain("Reshape", lambda op: {"shape": {"dim": (-1,)}}),
    ops.PadMap: _pad_map,
    ops.CropMap: lambda maker, node, op: maker.moved(
        node.path, node.inputs[0], maker.channels(node.path), less(NONE, op.pads)
    ),
    ops.PadChannels: _chosen,
    ops.SliceChannels: _chosen,
    ops.ChannelShuffle: _chosen,
    ops.DepthToSpace: _spread,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _spread,
}
"""Ops without a padding site that Caffe has, or of which its layers compose the same numbers."""
