"""ONNX's convolutions, pools, pads and resizes. Their maps are N×C×H×W."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.filegraph.dims import Dim, Open, Undecided
from porter.filegraph.file_graph import Stored
from porter.filegraph.moves import extend, pad
from porter.filegraph.products import along_channels
from porter.filegraph.resampling import resize
from porter.filegraph.walk import Lacks, Read
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import Conv, ConvTranspose, Resize
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


def read_convolution(walk: Walk, node: OnnxNode) -> Read:
    """Conv: a kernel filters×channels/groups×rows×columns, or one along the channels."""
    kernel = walk.flow.weights(node.inputs[1])
    if kernel is not None and len(kernel.shape) == 3:
        return _along_channels(walk, node)
    value = walk.value(node.inputs[0])
    if kernel is None or len(kernel.shape) != 4 or not value.is_map:
        return Lacks()
    tensors = {"kernel": Stored(kernel.name, "OIHW")}
    if not _with_bias(walk, node, tensors):
        return Lacks("Conv with a bias that is not a stored vector")
    filters, _, rows, columns = kernel.shape
    op = Conv(filters, _window(node, (rows, columns)), _convention(node), node.integer("group", 1))
    return walk.builder.conv(node.name, value, op, tensors)


def _along_channels(walk: Walk, node: OnnxNode) -> Read:
    steps = (*node.integers("strides"), *node.integers("dilations"), node.integer("group", 1))
    if {*steps} != {1} or node.input(2) is not None or node.text("auto_pad", "NOTSET") != "NOTSET":
        return Lacks("Conv of 1 axis that has steps, groups, a bias or pads by a rule")
    return along_channels(walk, node, node.inputs[0], node.inputs[1], node.integers("pads") or (0, 0))


def read_transposed(walk: Walk, node: OnnxNode) -> Read:
    """ConvTranspose: a kernel channels×filters/groups×rows×columns. What its pads cut off, `output_padding` gives back at the end;
    with `output_shape`, the odd cell is cut at the end for SAME_UPPER only (onnx/defs/nn/defs.cc, ConvTranspose). Where SAME asks
    for more cells than the kernels reach, onnxruntime gives fewer; an `output_shape` then has them behind.
    """
    kernel, value = walk.flow.weights(node.inputs[1]), walk.value(node.inputs[0])
    if kernel is None or len(kernel.shape) != 4 or value.shape is None or not value.is_map:
        return Lacks()
    tensors = {"kernel": Stored(kernel.name, "OIHW")}
    if not _with_bias(walk, node, tensors):
        return Lacks("ConvTranspose with a bias that is not a stored vector")
    window, groups, rule = _window(node, kernel.shape[2:]), node.integer("group", 1), node.text("auto_pad", "NOTSET")
    more = node.integers("output_padding") or (0, 0)
    wanted = node.integers("output_shape")[-2:]
    cut: list[int] = []
    for axis, size in enumerate(value.shape[1:]):
        if wanted or rule in ("SAME_UPPER", "SAME_LOWER"):
            if wanted and size is None:
                return Lacks("ConvTranspose to a size that does not follow from its input's")
            # Without an output shape, the output is the input's size times the stride.
            left = window.extent(axis) + more[axis] - window.stride[axis]
            left += size * window.stride[axis] - wanted[axis] if wanted and size else 0
            if left < 0 and not wanted:
                return Lacks("ConvTranspose by SAME whose kernel is shorter than its stride")
            if left < 0:
                cut += [0, left - more[axis]]
                continue
            less, rest = left // 2, left - left // 2
            first, last = (less, rest) if rule == "SAME_UPPER" else (rest, less)
            cut += [first, last - more[axis]]
        else:
            pads = node.integers("pads") or (0, 0, 0, 0)
            cut += [pads[axis], pads[axis + 2] - more[axis]]
    op = ConvTranspose(kernel.shape[1] * groups, window, (cut[0], cut[1], cut[2], cut[3]), groups)
    return walk.builder.transposed(node.name, value, op, tensors)


def _with_bias(walk: Walk, node: OnnxNode, tensors: dict[str, Stored]) -> bool:
    """Adds the bias of a convolution, if it has one; False where porter cannot say it."""
    source = node.input(2)
    bias = None if source is None else walk.flow.weights(source)
    if bias is not None and len(bias.shape) == 1:
        tensors["bias"] = Stored(bias.name)
    return source is None or "bias" in tensors


def read_pool(walk: Walk, node: OnnxNode) -> Read:
    """MaxPool, whose pads take no part, and AveragePool, which divides by the real cells unless `count_include_pad`.

    A last window that starts past the input and its first pads is dropped (onnx/defs/nn/defs.cc since opset 19; onnxruntime drops
    it in every opset).
    """
    value, kernel = walk.value(node.inputs[0]), node.integers("kernel_shape")
    if not value.is_map or len(kernel) != 2:
        return Lacks()
    window = _window(node, kernel)
    if node.op == "MaxPool":
        return walk.builder.pool(node.name, value, "max", window, _convention(node, LOWEST))
    average: Average = "real_cells"
    if node.integer("count_include_pad"):
        average = "clipped_window" if node.integer("ceil_mode") else "full_window"
    return walk.builder.pool(node.name, value, "mean", window, _convention(node, average=average))


def _window(node: OnnxNode, kernel: tuple[int, ...]) -> Window:
    stride, dilation = node.integers("strides") or (1, 1), node.integers("dilations") or (1, 1)
    return Window((kernel[0], kernel[1]), (stride[0], stride[1]), (dilation[0], dilation[1]))


def _convention(node: OnnxNode, fill: float = 0.0, average: Average = "real_cells") -> Convention:
    rule = node.text("auto_pad", "NOTSET")
    if rule in _RULES and (rule != "VALID" or not node.integer("ceil_mode")):
        return Convention(_RULES[rule], fill=fill, average=average)
    top, left, bottom, right = (node.integers("pads") if rule == "NOTSET" else ()) or (0, 0, 0, 0)
    pads: Pads = (top, bottom, left, right)
    rounding: Rounding = "ceil" if node.integer("ceil_mode") else "floor"
    return Convention.stated(pads, fill, average, rounding)


def read_pad(walk: Walk, node: OnnxNode) -> Read:
    """Pad with one number, or with the map's own cells."""
    mode, flow = node.text("mode", "constant"), walk.flow
    numbers, axes = node.stated(flow, "pads", 1), node.stated(flow, "axes", 3)
    if numbers is None:
        return Lacks()
    half, sizes = len(numbers) // 2, walk.sizes(node.inputs[0])
    pairs = zip(numbers[:half], numbers[half:], strict=True)
    by_place = dict(zip(range(half if sizes is None else len(sizes)) if axes is None else axes, pairs, strict=True))
    if mode == "constant":
        return pad(walk, node, node.inputs[0], by_place, node.bound(flow, "value", 2, 0.0))
    return extend(walk, node, node.inputs[0], by_place, _MODES[mode]) if mode in _MODES else Lacks(f"Pad ({mode})")


def read_resize(walk: Walk, node: OnnxNode) -> Read:
    """Resize and Upsample. Before opset 11 places are multiplied, and rounded down."""
    op, policy = _resizing(node), node.text("keep_aspect_ratio_policy", "stretch")
    if isinstance(op, str):
        return Lacks(f"{node.op} ({op})")
    place = {"Upsample": 1}.get(node.op, 1 if node.opset < 11 else 2)
    source, wanted = node.input(place), node.input(3)
    scales: list[float] = [*node.attributes["scales"].floats] if "scales" in node.attributes else []
    if source is not None and (found := walk.flow.value(source)) is not None and found.size:
        scales = found.ravel().tolist()
    sizes = None if scales or wanted is None else walk.flow.dims(wanted)
    if not scales and policy != "stretch":
        return Lacks(f"{node.op} with keep_aspect_ratio_policy {policy}")
    known, axes = walk.sizes(node.inputs[0]), node.integers("axes")
    places = range(4) if not axes else [axis + 4 if axis < 0 else axis for axis in axes]  # the axes that scales and sizes are of
    if len({*places} & {*range(4)}) < len(places):
        return Lacks(f"{node.op} along axes {list(axes)}")
    if known is None or len(known) != 4 or len(places) != len(scales or sizes or ()):
        return Lacks()
    by, to = dict(zip(places, scales, strict=False)), dict(zip(places, sizes or (), strict=False))
    less = any(scale < 1 for scale in by.values()) or any(not _reaches(size, known[axis]) for axis, size in to.items())
    rule = node.text("coordinate_transformation_mode", "half_pixel")
    if node.integer("antialias") and (less or op.mode == "nearest"):  # onnxruntime runs none of the nearest
        return Lacks(f"{node.op} ({op.mode}) with antialias")
    may_be_one = any(_may_be_one(known[axis], to.get(axis), by.get(axis, 1.0)) for axis in places)
    if rule == "pytorch_half_pixel" and less and may_be_one:
        return Lacks(f"{node.op} by pytorch_half_pixel to one cell, which is then the first")
    parted = any(scale * (1 if isinstance(size := known[axis], Open) else size) % 1 for axis, scale in by.items())
    if rule in ("align_corners", "half_pixel_symmetric") and parted:  # ONNX says that it counts, and onnxruntime counts none
        return Lacks(f"{node.op} by {rule} and a scale that leaves a part of a cell")
    return resize(walk, node, node.inputs[0], op, by, to)


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


def _resizing(node: OnnxNode) -> Resize | str:
    """How a Resize computes cells, or what porter lacks."""
    mode, inside = node.text("mode", "nearest"), bool(node.integer("exclude_outside"))
    if node.op == "Upsample" or node.opset < 11:
        rule, nearest = "asymmetric", "floor"
    else:
        rule = node.text("coordinate_transformation_mode", "half_pixel")
        nearest = node.text("nearest_mode", "round_prefer_floor")
    if (rule, mode, nearest) == ("tf_half_pixel_for_nn", "nearest", "floor"):
        rule, nearest = "half_pixel", "round_prefer_ceil"
    mode, coordinates = {"bilinear": "linear"}.get(mode, mode), _COORDINATES.get(rule)
    if mode not in ("nearest", "linear", "cubic") or coordinates is None or nearest not in _NEAREST:
        return f"{mode} by {rule}" + (f" and {nearest}" if mode == "nearest" else "")
    if mode == "nearest":
        return Resize("nearest", coordinates=coordinates, rounding=_NEAREST[nearest])
    if mode == "linear":
        return Resize("linear", coordinates=coordinates)
    return Resize("cubic", coordinates=coordinates, a=node.real("cubic_coeff_a", -0.75), inside=inside)
