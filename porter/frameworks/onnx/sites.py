"""The nodes of one padding site in ONNX: pad, windowed op, and what an exact composition adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.onnx.maker import OnnxSpelled
from porter.frameworks.onnx.spellings import lacks_op
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Capabilities, Convention, Front, Pads, Realisation, output_size, subtract_pads

# tests/roads/padding/test_frameworks.py compares what follows from it with windows laid cell by cell, in
# onnxruntime too. `real_cells` is count_include_pad=0, `clipped_window` count_include_pad=1. onnxruntime 1.31
# refuses auto_pad, or computes it wrongly, with a dilation and for a kernel shorter than its stride. A pool's
# "pad should be smaller than kernel" (cpu/nn/pool_attributes.h).
CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=True,
    same=("same", "same_lower"),
    same_of_any=False,
    pool_pads="less",
    roundings=("floor", "ceil"),
    averages=("real_cells", "clipped_window"),
    dynamic=("same", "same_lower"),
    dilated_pools=("max_pool", "avg_pool"),
    dilated_strides=True,
    lacks=lacks_op,
)

_AUTO_PAD = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}
WINDOWED = {Conv: "Conv", MaxPool: "MaxPool", AvgPool: "AveragePool"}


def add_windowed(node: OnnxSpelled[Any], realisation: Realisation) -> None:
    """Add the nodes of a windowed node, whose pads are made as its realisation says: by the operator itself,
    by a Pad in front, and for an average that ONNX does not count so by a quotient of two pools.

    Raises:
        PaddingError: ONNX has no nodes for the realisation, because the plan was made for another framework.
    """
    kind = WINDOWED[type(node.op)]
    front = realisation.front
    attributes = _attributes(node, realisation)
    padded = node.source if front is None else _add_pad(node, front, "pad", node.source, front.fill)
    if realisation.counted is None or front is None:
        node.result(kind, padded, *node.tensors("kernel", "bias"), **attributes)
        return
    # The same pool of ones where cells count gives the share by which the average is divided.
    sums = node.step("all_cells", kind, padded, **attributes)
    share = node.step("share", kind, _add_counted_cells(node, front, realisation.counted), **attributes)
    node.result("Div", sums, share)


def _attributes(node: OnnxSpelled[Conv | MaxPool | AvgPool], realisation: Realisation) -> dict[str, Any]:
    """Return the attributes that are not at their default. A realisation that ONNX's operators cannot state
    is refused.
    """
    op, native, front = node.op, realisation.native, realisation.front
    window = op.window
    # What only other frameworks' layers have: other rules, and what is made by skipping or cell by cell.
    has_foreign_rule = native.rule not in ("valid", "explicit", *_AUTO_PAD) or native.rounding == "full"
    is_foreign = has_foreign_rule or realisation.subsample or realisation.by_cell
    # An average counts pads that a rule computes as the model runs.
    counts_pads = realisation.counted not in (None, (0, 0, 0, 0))
    counts_at_run_time = counts_pads and front is not None and front.rule != "explicit"
    if is_foreign or counts_at_run_time:
        raise PaddingError(f"ONNX has no nodes for '{realisation}'", where=node.path)
    top, bottom, left, right = native.pads
    # Each attribute's value, and whether it is stated.
    attributes: dict[str, tuple[Any, bool]] = {
        "kernel_shape": (window.kernel, True),
        "strides": (window.stride, window.stride != (1, 1)),
        "dilations": (window.dilation, window.dilation != (1, 1)),
        "pads": ((top, left, bottom, right), any(native.pads)),
        "auto_pad": (_AUTO_PAD.get(native.rule), native.rule in _AUTO_PAD),
        "ceil_mode": (1, _rounds_up(node, native)),
    }
    if isinstance(op, Conv):
        attributes["group"] = (op.groups, op.groups != 1)
    if isinstance(op, AvgPool):
        attributes["count_include_pad"] = (1, native.average != "real_cells" and native.rule != "valid")
    return {name: value for name, (value, is_stated) in attributes.items() if is_stated}


def _rounds_up(node: OnnxSpelled[Conv | MaxPool | AvgPool], native: Convention) -> bool:
    """Say whether `ceil_mode` is stated, which rounds the number of windows up. ONNX drops a last window that
    starts in the pads, and onnx 1.23 infers shapes with it: there rounding down finds as many. Raise
    PaddingError where the two axes differ in this.
    """
    _, rows, columns = node.maker.shapes[node.source]
    if native.rounding != "ceil" or rows is None or columns is None:
        return native.rounding == "ceil"
    # `full` is the number with a last window that starts in the pads.
    up, down, full = (
        output_size(replace(native, rounding=rounding), node.op.window, (rows, columns))
        for rounding in ("ceil", "floor", "full")
    )
    if up not in (down, full):
        raise PaddingError(
            "ONNX has no shape for a pool that drops a window of one axis and rounds the other up",
            where=node.path,
        )
    return up == full


def _add_pad(node: OnnxSpelled[Any], front: Front, ending: str, source: str, fill: float) -> str:
    """Add the pad in front of a windowed op under a name with this ending, with cells of `fill`, and return
    its value. Its amounts are numbers, or where it pads by a rule SAME computed as the model runs.
    """
    pad_node = replace(node, name=node.part(ending))
    if front.rule == "explicit":
        return node.maker.add_pad(pad_node.name, source, front.pads, fill)
    amounts = _add_same_amounts(pad_node, front, source)
    return node.maker.add_pad_by_value(pad_node.name, source, amounts, fill)


def _add_same_amounts(pad_node: OnnxSpelled[Any], front: Front, source: str) -> str:
    """Add the nodes that compute the pads of SAME for a map's size, as a Pad takes them: the cells that its
    windows need beyond the input, shared out by halves. By axis, total = max(reach - (size - 1) % stride, 0).
    """
    window = pad_node.op.window
    stride = pad_node.integers("stride", *window.stride)
    reach = pad_node.integers("reach", *(window.extent(axis) - 1 for axis in (0, 1)))
    one, two, none = (pad_node.integers(word, n) for word, n in (("one", 1), ("two", 2), ("none", 0)))
    size = pad_node.step("size", "Shape", source, start=2, end=4)
    rest = pad_node.step("rest", "Mod", pad_node.step("steps", "Sub", size, one), stride)
    total = pad_node.step("total", "Max", pad_node.step("needed", "Sub", reach, rest), none)
    less = pad_node.step("less", "Div", total, two)
    more = pad_node.step("more", "Sub", total, less)
    before, after = (more, less) if front.rule == "same_lower" else (less, more)
    return pad_node.step("amounts", "Concat", before, after, axis=0)


def _add_counted_cells(node: OnnxSpelled[Any], front: Front, counted: Pads) -> str:
    """Add a map 1×1×H×W of ones over the input's cells and the counted pads, and of zeros over the other
    pads.
    """
    size = node.step("size", "Shape", node.source, start=2, end=4)
    shape = node.step("cells_shape", "Concat", node.integers("ones", 1, 1), size, axis=0)
    cells = node.maker.add_filled(node.part("cells"), shape, 1.0)
    if front.rule != "explicit":
        return _add_pad(node, front, "mask", cells, 0.0)
    if any(counted):
        cells = node.maker.add_pad(node.part("counted"), cells, counted, 1.0)
    rest = subtract_pads(front.pads, counted)
    return node.maker.add_pad(node.part("uncounted"), cells, rest, 0.0) if any(rest) else cells
