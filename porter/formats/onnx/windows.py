"""ONNX's convolutions, pools, pads and resizes. Their maps are N×C×H×W."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from porter.base.name_tables import by_name
from porter.filegraph.axes import Piece, View
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.dims import Dim, Open, Undecided, fixed_sizes
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.places import Items
from porter.filegraph.products import conv_along_channels
from porter.filegraph.readers import Functions
from porter.filegraph.tensor import Tensor
from porter.filegraph.walk import Read
from porter.formats.onnx.constants import averaged
from porter.formats.onnx.nodes import OnnxNode
from porter.graph import Conv, ConvTranspose, Power, Resize
from porter.graph.ops import Coordinates, Mode, Nearest
from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Window

_MODES: Mapping[str, Mode] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
_COORDINATES: Mapping[str, Coordinates] = {
    **dict.fromkeys(("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"), "half_pixel"),
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
}
_NEAREST: Mapping[str, Nearest] = {
    "floor": "floor",
    "ceil": "ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
}
_RULES: dict[str, Any] = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}


def _conv(node: OnnxNode, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """A kernel filters×channels/groups×rows×columns, one of a row of cells, or one along the channels."""
    kernel, tensors = _stored(weights, bias)
    if len(kernel.shape) == 3 and (x.walk.sizes(x.source) or ())[1:2] == (1,) and _is_plain(node):
        pads = node.integers("pads") or (0, 0)
        return x.derive(
            "conv", lambda node: conv_along_channels(x.walk, node, x.source, weights.reference, pads)
        )
    op = Conv(kernel.shape[0], _window(node, kernel.shape[2:]), _convention(node), node.integer("group", 1))
    return _of_rank(kernel.shape[2:], _map(x, len(kernel.shape) - 2).conv(op, tensors))


def _stored(weights: Tensor, bias: Tensor | None) -> tuple[StoredTensor, dict[str, Stored]]:
    """The kernel of a convolution, and its tensors by role.

    Raises:
        Unsupported: the kernel or the bias is computed, or the bias is no vector.
    """
    kernel = weights.walk.weights(weights.source)
    if kernel is None:
        raise Unsupported("with a kernel that the model computes as it runs")
    tensors = {"kernel": Stored(kernel.name, "OIHW" if len(kernel.shape) == 4 else "OIW")}
    if bias is not None:
        vector = bias.walk.weights(bias.source)
        if vector is None or len(vector.shape) != 1:
            raise Unsupported("with a bias that is not a stored vector")
        tensors["bias"] = Stored(vector.name)
    return kernel, tensors


def _is_plain(node: OnnxNode) -> bool:
    """Whether a convolution of one axis has no steps, groups, bias, or pads by a rule."""
    steps = (*node.integers("strides"), *node.integers("dilations"), node.integer("group", 1))
    return {*steps} == {1} and node.input(2) is None and node.text("auto_pad", "NOTSET") == "NOTSET"


def _map(x: Tensor, axes: int) -> Tensor:
    """What a window over so many axes reads, as a map: a row of cells is one of one row.

    Raises:
        Unsupported: it is another value.
    """
    if axes == 1:
        return x.as_row_map()
    if axes != 2 or not x.value.is_map:
        raise Unsupported(f"over {axes} axes of something else than a map of them")
    return x


def _of_rank(kernel: Sequence[int], x: Tensor) -> Tensor:
    """What the window of a kernel gives, as the tensor has it."""
    return x if len(kernel) == 2 else x.without_rows()


def _transposed(node: OnnxNode, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """ConvTranspose: a kernel channels×filters/groups×rows×columns. What its pads cut off, `output_padding`
    gives back at the end; with `output_shape`, the odd cell is cut at the end for SAME_UPPER only
    (onnx/defs/nn/defs.cc, ConvTranspose). Where SAME asks for more cells than the kernels reach, onnxruntime
    gives fewer; an `output_shape` then has them behind.
    """
    kernel, tensors = _stored(weights, bias)
    whole = _map(x, len(kernel.shape) - 2)
    groups = node.integer("group", 1)
    window = _window(node, kernel.shape[2:])
    rule = node.text("auto_pad", "NOTSET")
    more = (0, 0, *node.integers("output_padding"))[-2:]
    wanted = node.integers("output_shape")[2 - len(kernel.shape) :]
    wanted = (1, *wanted) if len(wanted) == 1 else wanted
    cut: list[int] = []
    for axis, size in enumerate((whole.value.shape or ())[1:]):
        if wanted or rule in ("SAME_UPPER", "SAME_LOWER"):
            if wanted and size is None:
                raise Unsupported("to a size that does not follow from its input's")
            # Without an output shape, the output is the input's size times the stride.
            left = window.extent(axis) + more[axis] - window.stride[axis]
            left += size * window.stride[axis] - wanted[axis] if wanted and size else 0
            if left < 0 and not wanted:
                raise Unsupported("by SAME whose kernel is shorter than its stride")
            if left < 0:
                cut += [0, left - more[axis]]
                continue
            less, rest = left // 2, left - left // 2
            first, last = (less, rest) if rule == "SAME_UPPER" else (rest, less)
            cut += [first, last - more[axis]]
        else:
            pads = _pads(node)
            cut += [pads[axis], pads[axis + 2] - more[axis]]
    off = cut[0], cut[1], cut[2], cut[3]
    op = ConvTranspose(kernel.shape[1] * groups, window, off, groups, "bias" in tensors)
    return _of_rank(kernel.shape[2:], whole.apply_op(op, **tensors))


def _pool(node: OnnxNode, x: Tensor) -> Tensor | Read:
    """MaxPool, whose pads take no part, and AveragePool, which divides by the real cells unless
    `count_include_pad`.

    A last window that starts past the input and its first pads is dropped (onnx/defs/nn/defs.cc since opset
    19; onnxruntime drops it in every opset).
    """
    if x.array is not None and node.op == "AveragePool":
        return averaged(node, x.array)
    kernel = node.integers("kernel_shape")
    if len(kernel) == 3:
        return _pool_of_first(node, x, kernel)
    whole = _map(x, len(kernel))
    window = _window(node, kernel)
    if node.op == "MaxPool":
        return _of_rank(kernel, whole.pool("max", window, _convention(node, LOWEST)))
    average: Average = "real_cells"
    if node.integer("count_include_pad"):
        average = "clipped_window" if node.integer("ceil_mode") else "full_window"
    return _of_rank(kernel, whole.pool("mean", window, _convention(node, average=average)))


def _norm_pool(node: OnnxNode, x: Tensor) -> Tensor:
    """LpPool: the root of the sum of powers, of an average that counts every cell of the window."""
    kernel = node.integers("kernel_shape")
    order = float(node.integer("p", 2))
    if order < 1 or node.integer("ceil_mode"):
        raise Unsupported(f"of order {order:g}{' in ceil mode' if node.integer('ceil_mode') else ''}")
    powers = abs(_map(x, len(kernel))).apply_elementwise(Power(order))
    mean = powers.pool("mean", _window(node, kernel), _convention(node, average="full_window"))
    return _of_rank(kernel, (math.prod(kernel) * mean).apply_elementwise(Power(1 / order)))


def _center(node: OnnxNode, x: Tensor, shape: Tensor) -> Tensor:
    """CenterCropPad: what is too much is cropped around the middle, and zeros stand around what is too
    little; an odd cell is the last.
    """
    wanted = shape.integers()
    axes = node.integers("axes")
    sizes = Items(x.sizes)
    less = dict[int, slice | int]()
    more = dict[int, tuple[int, int]]()
    for axis, size in zip(axes or range(len(sizes)), wanted, strict=True):
        (apart,) = fixed_sizes([size - sizes[axis]])
        if apart < 0:
            less[axis] = slice(-apart // 2, -apart // 2 + size)
        elif apart > 0:
            more[axis] = apart // 2, apart - apart // 2
    inner = x.cut(less) if less else x
    return inner.pad(more) if more else inner


def _pool_of_first(node: OnnxNode, x: Tensor, kernel: Sequence[int]) -> View | Value:
    """An average over the first of three axes, as torch.onnx has it in a LocalResponseNorm: porter has no op
    for it, but its sizes decide an If.
    """
    view = x.view
    foreign = x.walk.foreign(node, "")
    if (
        view.axes is None
        or len(view.axes) != 5
        or {*kernel[1:], *node.integers("strides")} != {1}
        or any(node.integers("pads"))
    ):
        return foreign
    return View(foreign, (*view.axes[:2], (Piece("C", view.size(2) - kernel[0] + 1),), *view.axes[3:]))


def _window(node: OnnxNode, kernel: Sequence[int]) -> Window:
    """Over rows and columns; what an operator of one axis states is about columns."""
    steps = node.integers("strides"), node.integers("dilations")
    (rows, columns), stride, dilation = ((1, 1, *each)[-2:] for each in (kernel, *steps))
    return Window((rows, columns), (stride[0], stride[1]), (dilation[0], dilation[1]))


def _pads(node: OnnxNode) -> tuple[int, ...]:
    """The pads in ONNX's order: top, left, bottom, right."""
    pads = node.integers("pads") or (0, 0, 0, 0)
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else pads


def _convention(node: OnnxNode, fill: float = 0.0, average: Average = "real_cells") -> Convention:
    """The convention that a window's attributes state."""
    rule = node.text("auto_pad", "NOTSET")
    if rule in _RULES and (rule != "VALID" or not node.integer("ceil_mode")):
        return Convention(_RULES[rule], fill=fill, average=average)
    top, left, bottom, right = _pads(node) if rule == "NOTSET" else (0, 0, 0, 0)
    pads: Pads = (top, bottom, left, right)
    rounding: Rounding = "ceil" if node.integer("ceil_mode") else "floor"
    return Convention.stated(pads, fill, average, rounding)


def _patches_map(node: OnnxNode, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Col2Im: the map whose patches a tensor N×(C·rows·columns)×patches has."""
    size = image.dims()
    kernel = block.integers()
    if len(size) != 2 or len(kernel) != 2:
        raise Unsupported("of other maps than rows and columns")
    top, left, bottom, right = _pads(node)
    return x.map_of_patches(size, (_window(node, kernel), (top, bottom, left, right)))


def _pad(
    node: OnnxNode,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """Pad with one number, or with the map's own cells."""
    mode = node.text("mode", "constant")
    numbers = node.sizes("pads", pads)
    places = node.whole("axes", axes)
    if numbers is None:
        raise Unsupported("without pads")
    half = len(numbers) // 2
    pairs = zip(numbers[:half], numbers[half:], strict=True)
    by_place = dict(zip(range(x.rank or half) if places is None else places, pairs, strict=True))
    if mode == "constant":
        return x.pad(by_place, node.number("value", value, 0.0))
    if mode not in _MODES:
        raise Unsupported(f"({mode})")
    return x.extend(by_place, _MODES[mode])


def _resize(node: OnnxNode, x: Tensor, *further: Tensor | None) -> Tensor:
    """Resize and Upsample. Before opset 11 places are multiplied, and rounded down."""
    op = _resizing(node)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    index = 0 if node.op == "Upsample" or node.opset < 11 else 1
    given = dict(enumerate(further))
    scales = _scales(node, given.get(index))
    wanted = given.get(2)
    sizes = [] if scales or wanted is None else wanted.dims()
    if not scales and policy != "stretch":
        raise Unsupported(f"with keep_aspect_ratio_policy {policy}")
    own = x.sizes
    axes_named = node.integers("axes")
    axes = [axis + 4 if axis < 0 else axis for axis in axes_named] if axes_named else range(4)
    if len({*axes} & {*range(4)}) < len(axes):
        raise Unsupported(f"along axes {list(axes_named)}")
    if len(own) != 4 or len(axes) != len(scales or sizes):
        raise Unsupported(f"of {len(own)} axes, or by other numbers than the axes have")
    by, to = dict(zip(axes, scales, strict=False)), dict(zip(axes, sizes, strict=False))
    _expect_as_onnxruntime(node, op, own, by, to)
    return x.resize(op, by, to)


def _scales(node: OnnxNode, x: Tensor | None) -> list[float]:
    """The scales that a constant has, otherwise those of the attribute; none if there are none."""
    numbers = None if x is None else x.walk.constant(x.source)
    if numbers is not None and numbers.size:
        return [float(number) for number in numbers.ravel()]
    return [*node.attributes["scales"].floats] if "scales" in node.attributes else []


def _expect_as_onnxruntime(
    node: OnnxNode, op: Resize, own: Sequence[Dim], by: Mapping[int, float], to: Mapping[int, Dim]
) -> None:
    """Expects scales and sizes at which ONNX says the same as onnxruntime, and as porter's op.

    Raises:
        Unsupported: they are others.
    """
    rule = node.text("coordinate_transformation_mode", "half_pixel")
    less = any(scale < 1 for scale in by.values()) or any(
        not _reaches(size, own[axis]) for axis, size in to.items()
    )
    if node.integer("antialias") and (less or op.mode == "nearest"):  # onnxruntime runs none of the nearest
        raise Unsupported(f"({op.mode}) with antialias")
    may_be_one = any(_may_be_one(own[axis], to.get(axis), by.get(axis, 1.0)) for axis in {*by, *to})
    if rule == "pytorch_half_pixel" and less and may_be_one:
        raise Unsupported("by pytorch_half_pixel to one cell, which is then the first")
    parted = any(
        scale * (1 if isinstance(size := own[axis], Open) else size) % 1 for axis, scale in by.items()
    )
    # ONNX says that it counts, and onnxruntime counts none.
    if rule in ("align_corners", "half_pixel_symmetric") and parted:
        raise Unsupported(f"by {rule} and a scale that leaves a part of a cell")


def _reaches(size: Dim, other: Dim) -> bool:
    """Whether a size is known to be no smaller than another one."""
    try:
        return size >= other
    except Undecided:
        return False


def _may_be_one(size: Dim, wanted: Dim | None, scale: float) -> bool:
    if isinstance(size, Open) or isinstance(wanted, Open):
        return True
    return (int(size * scale) if wanted is None else wanted) == 1


def _resizing(node: OnnxNode) -> Resize:
    """How a Resize computes cells.

    Raises:
        Unsupported: porter does not compute them so.
    """
    mode = node.text("mode", "nearest")
    inside = bool(node.integer("exclude_outside"))
    if node.op == "Upsample" or node.opset < 11:
        rule, nearest = "asymmetric", "floor"
    else:
        rule = node.text("coordinate_transformation_mode", "half_pixel")
        nearest = node.text("nearest_mode", "round_prefer_floor")
    if (rule, mode, nearest) == ("tf_half_pixel_for_nn", "nearest", "floor"):
        rule, nearest = "half_pixel", "round_prefer_ceil"
    mode = {"bilinear": "linear"}.get(mode, mode)
    coordinates = _COORDINATES.get(rule)
    if mode not in ("nearest", "linear", "cubic") or coordinates is None or nearest not in _NEAREST:
        raise Unsupported(f"({mode} by {rule}" + (f" and {nearest})" if mode == "nearest" else ")"))
    if mode == "nearest":
        return Resize("nearest", coordinates=coordinates, rounding=_NEAREST[nearest])
    if mode == "linear":
        return Resize("linear", coordinates=coordinates)
    return Resize("cubic", coordinates=coordinates, a=node.real("cubic_coeff_a", -0.75), inside=inside)


FUNCTIONS: Functions = by_name(
    {
        "AveragePool MaxPool": _pool,
        "Resize Upsample": _resize,
        "CenterCropPad": _center,
        "Col2Im": _patches_map,
        "Conv": _conv,
        "ConvTranspose": _transposed,
        "LpPool": _norm_pool,
        "Pad": _pad,
    }
)
