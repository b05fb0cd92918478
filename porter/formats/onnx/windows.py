"""ONNX's convolutions, pools, pads and resizes. Their maps are N×C×H×W."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from porter.filegraph.arithmetic import along_channels
from porter.filegraph.file_graph import Stored
from porter.filegraph.moves import extend, pad, upsample
from porter.filegraph.views import expect_known
from porter.filegraph.walk import Read
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import Conv, ConvTranspose
from porter.graph.ops import Mode
from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Window

_MODES: Mapping[str, Mode] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
_RULES: dict[str, Any] = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}


def read_convolution(walk: Walk, node: OnnxNode) -> Read:
    """Conv: a kernel filters×channels/groups×rows×columns, or one along the channels."""
    kernel = walk.flow.weights(node.inputs[1])
    if kernel is not None and len(kernel.shape) == 3:
        return _along_channels(walk, node)
    value = walk.value(node.inputs[0])
    if kernel is None or len(kernel.shape) != 4 or not value.is_map:
        return None
    tensors = {"kernel": Stored(kernel.name, "OIHW")}
    if not _with_bias(walk, node, tensors):
        return "Conv with a bias that is not a stored vector"
    filters, _, rows, columns = kernel.shape
    op = Conv(filters, _window(node, (rows, columns)), _convention(node), node.integer("group", 1))
    return walk.builder.conv(node.name, value, op, tensors)


def _along_channels(walk: Walk, node: OnnxNode) -> Read:
    steps = (*node.integers("strides"), *node.integers("dilations"), node.integer("group", 1))
    if {*steps} != {1} or node.input(2) is not None or node.text("auto_pad", "NOTSET") != "NOTSET":
        return "Conv of 1 axis that has steps, groups, a bias or pads by a rule"
    return along_channels(walk, node, node.inputs[0], node.inputs[1], node.integers("pads") or (0, 0))


def read_transposed(walk: Walk, node: OnnxNode) -> Read:
    """ConvTranspose: a kernel channels×filters/groups×rows×columns. What its pads cut off, `output_padding` gives back at the end;
    with `output_shape`, the odd cell is cut at the end for SAME_UPPER only (onnx/defs/nn/defs.cc, ConvTranspose). Where SAME asks
    for more cells than the kernels reach, onnxruntime gives fewer; an `output_shape` then has them behind.
    """
    kernel, value = walk.flow.weights(node.inputs[1]), walk.value(node.inputs[0])
    if kernel is None or len(kernel.shape) != 4 or value.shape is None or not value.is_map:
        return None
    tensors = {"kernel": Stored(kernel.name, "OIHW")}
    if not _with_bias(walk, node, tensors):
        return "ConvTranspose with a bias that is not a stored vector"
    window, groups, rule = _window(node, kernel.shape[2:]), node.integer("group", 1), node.text("auto_pad", "NOTSET")
    more = node.integers("output_padding") or (0, 0)
    wanted = node.integers("output_shape")[-2:]
    cut: list[int] = []
    for axis, size in enumerate(value.shape[1:]):
        if wanted or rule in ("SAME_UPPER", "SAME_LOWER"):
            if wanted and size is None:
                return "ConvTranspose to a size that does not follow from its input's"
            # Without an output shape, the output is the input's size times the stride.
            left = window.extent(axis) + more[axis] - window.stride[axis]
            left += size * window.stride[axis] - wanted[axis] if wanted and size else 0
            if left < 0 and not wanted:
                return "ConvTranspose by SAME whose kernel is shorter than its stride"
            if left < 0:
                cut += [0, left - more[axis]]
                continue
            less, rest = left // 2, left - left // 2
            first, last = (less, rest) if rule == "SAME_UPPER" else (rest, less)
            cut += [first, last - more[axis]]
        else:
            pads = node.integers("pads") or (0, 0, 0, 0)
            cut += [pads[axis], pads[axis + 2] - more[axis]]
    expect_known(cut)
    op = ConvTranspose(kernel.shape[1] * groups, window, (cut[0], cut[1], cut[2], cut[3]), groups, "bias" in tensors)
    return walk.builder.add(node.name, op, value, tensors=tensors)


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
        return None
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
        return None
    half = len(numbers) // 2
    pairs = zip(numbers[:half], numbers[half:], strict=True)
    by_place = dict(zip(range(half) if axes is None else axes, pairs, strict=True))
    if mode == "constant":
        return pad(walk, node, node.inputs[0], by_place, node.bound(flow, "value", 2, 0.0))
    return extend(walk, node, node.inputs[0], by_place, _MODES[mode]) if mode in _MODES else f"Pad ({mode})"


def read_resize(walk: Walk, node: OnnxNode) -> Read:
    """Resize and Upsample: the nearest cell, by whole factors, where every cell is repeated."""
    sizes = walk.sizes(node.inputs[0])
    if node.text("mode", "nearest") != "nearest":
        return f"{node.op} ({node.text('mode', '')})"
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and node.input(3) is not None:  # scales that are stated themselves hold
        return f"{node.op} with keep_aspect_ratio_policy {policy}"
    if node.integer("antialias"):
        return f"{node.op} (nearest) with antialias"  # onnxruntime runs none
    axes = node.integers("axes")
    places = range(4) if not axes else [axis + 4 if axis < 0 else axis for axis in axes]  # the axes that scales and sizes are of
    if len({*places} & {*range(4)}) < len(places):
        return f"{node.op} along axes {list(axes)}"
    factors = None if sizes is None else _factors(walk, node, sizes, places)
    if factors is None:
        return f"{node.op} by no whole factor"
    old = node.op == "Upsample" or node.opset < 11
    rule = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    nearest = "floor" if old else node.text("nearest_mode", "round_prefer_floor")
    repeats = (rule == "asymmetric" and nearest == "floor") or (
        rule in ("half_pixel", "pytorch_half_pixel") and nearest.startswith("round")
    )
    # A size of one cell is repeated under every rule; a half is never reached, because a half pixel of a whole factor is none.
    asymmetric = rule == "asymmetric" and nearest == "round_prefer_floor" and max(factors) <= 2
    if not (repeats or asymmetric):
        return f"{node.op} by {rule} and {nearest}, which does not repeat every cell as often"
    return upsample(walk, node, node.inputs[0], dict(enumerate(factors)))


def _factors(walk: Walk, node: OnnxNode, sizes: tuple[int, ...], places: Sequence[int]) -> list[int] | None:
    """How often each axis grows, those of `places` by what the node says; None where one does not grow by a whole factor."""
    place = {"Upsample": 1}.get(node.op, 1 if node.opset < 11 else 2)
    source, wanted = node.input(place), node.input(3)
    scales = [*node.attributes["scales"].floats] if "scales" in node.attributes else None
    found = None if source is None else walk.flow.value(source)
    if found is not None and found.size:
        scales = found.ravel().tolist()
    if not scales and wanted is not None:
        asked = walk.flow.integers(wanted) or []
        scales = [new / sizes[axis] if new % sizes[axis] == 0 else 0 for new, axis in zip(asked, places, strict=True)]
    if not scales or len(scales) != len(places) or any(scale != round(scale) or scale < 1 for scale in scales):
        return None
    factors = [1] * len(sizes)
    for axis, scale in zip(places, scales, strict=True):
        factors[axis] = round(scale)
    return factors
