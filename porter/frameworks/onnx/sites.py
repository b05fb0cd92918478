"""The nodes of one padding site in ONNX: pad, windowed op, and what an exact composition adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.onnx.maker import OnnxSpelled
from porter.frameworks.onnx.spellings import lacks
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
    lacks=lacks,
)

_AUTOMATIC = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}
WINDOWED = {Conv: "Conv", MaxPool: "MaxPool", AvgPool: "AveragePool"}


def windowed(node: OnnxSpelled[Any], realisation: Realisation) -> None:
    """Add the nodes of a windowed node.

    Raises:
        PaddingError: ONNX has no nodes for the realisation, because the plan was made for another framework.
    """
    kind = WINDOWED[type(node.op)]
    front = realisation.front
    own = _attributes(node, realisation)
    padded = node.source if front is None else _padded(node, front, "pad", node.source, front.fill)
    if realisation.counted is None or front is None:
        node.result(kind, padded, *node.trained("kernel", "bias"), **own)
        return
    sums = node.step("all_cells", kind, padded, **own)
    share = node.step("share", kind, _mask(node, front, realisation.counted), **own)
    node.result("Div", sums, share)


def _attributes(node: OnnxSpelled[Conv | MaxPool | AvgPool], realisation: Realisation) -> dict[str, Any]:
    """Return the attributes that are not at their default."""
    op, native, front = node.op, realisation.native, realisation.front
    window = op.window
    foreign = (
        native.rule not in ("valid", "explicit", *_AUTOMATIC)
        or native.rounding == "full"
        or realisation.subsample
        or realisation.by_cell
    )
    run_time_share = (
        realisation.counted not in (None, (0, 0, 0, 0)) and front is not None and front.rule != "explicit"
    )
    if foreign or run_time_share:
        raise PaddingError(f"ONNX has no nodes for '{realisation}'", where=node.path)
    top, bottom, left, right = native.pads
    attributes: dict[str, tuple[Any, bool]] = {
        "kernel_shape": (window.kernel, True),
        "strides": (window.stride, window.stride != (1, 1)),
        "dilations": (window.dilation, window.dilation != (1, 1)),
        "pads": ((top, left, bottom, right), any(native.pads)),
        "auto_pad": (_AUTOMATIC.get(native.rule), native.rule in _AUTOMATIC),
        "ceil_mode": (1, _rounds_up(node, native)),
    }
    if isinstance(op, Conv):
        attributes["group"] = (op.groups, op.groups != 1)
    if isinstance(op, AvgPool):
        attributes["count_include_pad"] = (1, native.average != "real_cells" and native.rule != "valid")
    return {name: value for name, (value, needed) in attributes.items() if needed}


def _rounds_up(node: OnnxSpelled[Conv | MaxPool | AvgPool], native: Convention) -> bool:
    """Say whether the number of windows rounds up. ONNX drops a last one that starts in the pads, and onnx
    1.23 infers shapes with it: there rounding down finds as many.
    """
    _, rows, columns = node.maker.shapes[node.source]
    if native.rounding != "ceil" or rows is None or columns is None:
        return native.rounding == "ceil"
    up, down, every = (
        output_size(replace(native, rounding=each), node.op.window, (rows, columns))
        for each in ("ceil", "floor", "full")
    )
    if up not in (down, every):
        raise PaddingError(
            "ONNX has no shape for a pool that drops a window of one axis and rounds the other up",
            where=node.path,
        )
    return up == every


def _padded(node: OnnxSpelled[Any], front: Front, ending: str, source: str, fill: float) -> str:
    """Return the value of a pad layer."""
    pad = replace(node, name=node.part(ending))
    if front.rule == "explicit":
        return node.maker.pad(pad.name, source, front.pads, fill)
    return node.maker.pad_by(pad.name, source, _amounts(pad, front, source), fill)


def _amounts(pad: OnnxSpelled[Any], front: Front, source: str) -> str:
    """Return the pads of SAME for a map's size, as a Pad takes them: what its windows need beyond the input,
    shared out by halves.
    """
    window = pad.op.window
    stride = pad.integers("stride", *window.stride)
    reach = pad.integers("reach", *(window.extent(axis) - 1 for axis in (0, 1)))
    one, two, none = (pad.integers(word, n) for word, n in (("one", 1), ("two", 2), ("none", 0)))
    size = pad.step("size", "Shape", source, start=2, end=4)
    rest = pad.step("rest", "Mod", pad.step("steps", "Sub", size, one), stride)
    total = pad.step("total", "Max", pad.step("needed", "Sub", reach, rest), none)
    less = pad.step("less", "Div", total, two)
    more = pad.step("more", "Sub", total, less)
    both = (more, less) if front.rule == "same_lower" else (less, more)
    return pad.step("amounts", "Concat", *both, axis=0)


def _mask(node: OnnxSpelled[Any], front: Front, counted: Pads) -> str:
    """Return one over the cells of a map and over the counted pads, zero over the other pads: 1×1×H×W."""
    size = node.step("size", "Shape", node.source, start=2, end=4)
    shape = node.step("cells_shape", "Concat", node.integers("ones", 1, 1), size, axis=0)
    cells = node.maker.filled(node.part("cells"), shape, 1.0)
    if front.rule != "explicit":
        return _padded(node, front, "mask", cells, 0.0)
    if any(counted):
        cells = node.maker.pad(node.part("counted"), cells, counted, 1.0)
    rest = subtract_pads(front.pads, counted)
    return node.maker.pad(node.part("uncounted"), cells, rest, 0.0) if any(rest) else cells
