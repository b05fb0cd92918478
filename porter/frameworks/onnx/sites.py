"""The nodes of one padding site in ONNX: pad, windowed op, and what an exact composition adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.onnx.maker import NodeMaker
from porter.frameworks.onnx.spellings import lacks
from porter.graph import AvgPool, Conv, MaxPool, Node
from porter.padding import Capabilities, Convention, Front, Realisation, Window, output_size

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


def windowed(maker: NodeMaker, node: Node, op: Conv | MaxPool | AvgPool, realisation: Realisation) -> None:
    """Adds the nodes of a windowed node.

    Raises:
        PaddingError: ONNX has no nodes for the realisation, because the plan was made for another framework.
    """
    path, (source,), kind, front = node.path, node.inputs, WINDOWED[type(op)], realisation.front
    own = _attributes(op, realisation, path, maker.shapes[source][1:])
    weights = [
        maker.tensors[path][role] for role in ("kernel", "bias") if role in maker.tensors.get(path, {})
    ]
    padded = (
        source
        if front is None
        else _padded(maker, front, op.window, maker.name(f"{path}_pad"), source, front.fill)
    )
    if realisation.counted is None or front is None:
        maker.add(kind, path, padded, *weights, **own)
        return
    sums = maker.add(kind, maker.name(f"{path}_all_cells"), padded, **own)
    share = maker.add(
        kind, maker.name(f"{path}_share"), _mask(maker, front, realisation, op.window, path, source), **own
    )
    maker.add("Div", path, sums, share)


def _attributes(
    op: Conv | MaxPool | AvgPool, realisation: Realisation, path: str, size: Sequence[int | None]
) -> dict[str, Any]:
    """Those that are not at their default, for maps of a size."""
    native, window, front = realisation.native, op.window, realisation.front
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
        raise PaddingError(f"ONNX has no nodes for '{realisation}'", where=path)
    top, bottom, left, right = native.pads
    stated: dict[str, tuple[Any, bool]] = {
        "kernel_shape": (window.kernel, True),
        "strides": (window.stride, window.stride != (1, 1)),
        "dilations": (window.dilation, window.dilation != (1, 1)),
        "pads": ((top, left, bottom, right), any(native.pads)),
        "auto_pad": (_AUTOMATIC.get(native.rule), native.rule in _AUTOMATIC),
        "ceil_mode": (1, _rounds_up(native, window, size, path)),
    }
    if isinstance(op, Conv):
        stated["group"] = (op.groups, op.groups != 1)
    if isinstance(op, AvgPool):
        stated["count_include_pad"] = (1, native.average != "real_cells" and native.rule != "valid")
    return {name: value for name, (value, needed) in stated.items() if needed}


def _rounds_up(native: Convention, window: Window, size: Sequence[int | None], path: str) -> bool:
    """Whether the number of windows rounds up. ONNX drops a last one that starts in the pads, and onnx 1.23
    infers shapes with it: there rounding down finds as many.
    """
    rows, columns = size
    if native.rounding != "ceil" or rows is None or columns is None:
        return native.rounding == "ceil"
    up, down, every = (
        output_size(replace(native, rounding=each), window, (rows, columns))
        for each in ("ceil", "floor", "full")
    )
    if up not in (down, every):
        raise PaddingError(
            "ONNX has no shape for a pool that drops a window of one axis and rounds the other up", where=path
        )
    return up == every


def _padded(maker: NodeMaker, front: Front, window: Window, name: str, source: str, fill: float) -> str:
    """The value of a pad layer."""
    if front.rule == "explicit":
        return maker.pad(name, source, front.pads, fill)
    return maker.pad_by(name, source, _amounts(maker, front, window, name, source), fill)


def _amounts(maker: NodeMaker, front: Front, window: Window, name: str, source: str) -> str:
    """The pads of SAME for a map's size, as a Pad takes them: what its windows need beyond the input, shared
    out by halves.
    """

    def step(kind: str, ending: str, *inputs: str, **attributes: Any) -> str:
        return maker.add(kind, maker.name(f"{name}_{ending}"), *inputs, **attributes)

    stride = maker.integers(f"{name}.stride", *window.stride)
    reach = maker.integers(f"{name}.reach", *(window.extent(axis) - 1 for axis in (0, 1)))
    one, two, none = (
        maker.integers(f"{name}.{word}", n) for word, n in (("one", 1), ("two", 2), ("none", 0))
    )
    size = step("Shape", "size", source, start=2, end=4)
    rest = step("Mod", "rest", step("Sub", "steps", size, one), stride)
    total = step("Max", "total", step("Sub", "needed", reach, rest), none)
    less = step("Div", "less", total, two)
    more = step("Sub", "more", total, less)
    return step("Concat", "amounts", *((more, less) if front.rule == "same_lower" else (less, more)), axis=0)


def _mask(
    maker: NodeMaker, front: Front, realisation: Realisation, window: Window, path: str, source: str
) -> str:
    """One over the cells of a map and over the counted pads, zero over the other pads: 1×1×H×W."""
    size = maker.add("Shape", maker.name(f"{path}_size"), source, start=2, end=4)
    shape = maker.add(
        "Concat", maker.name(f"{path}_cells_shape"), maker.integers(f"{path}.ones", 1, 1), size, axis=0
    )
    cells = maker.filled(maker.name(f"{path}_cells"), shape, 1.0)
    if front.rule != "explicit":
        return _padded(maker, front, window, maker.name(f"{path}_mask"), cells, 0.0)
    counted = realisation.counted or (0, 0, 0, 0)
    if any(counted):
        cells = maker.pad(maker.name(f"{path}_counted"), cells, counted, 1.0)
    top, bottom, left, right = (pad - some for pad, some in zip(front.pads, counted, strict=True))
    rest = (top, bottom, left, right)
    return maker.pad(maker.name(f"{path}_uncounted"), cells, rest, 0.0) if any(rest) else cells
