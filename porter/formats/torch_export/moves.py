"""What ATen does with the axes of tensors. An axis is named by its place, from either end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from porter.base.left_out import LeftOut
from porter.filegraph import moves
from porter.filegraph.arithmetic import combine
from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import Dim, known, ratio
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.functions import band, within
from porter.filegraph.places import place_of
from porter.filegraph.products import running_sums
from porter.filegraph.reductions import (
    Reduction,
    factors,
    glu,
    log_softmax,
    log_sum_exp,
    norm,
    reduce,
    softmax,
    variance,
)
from porter.filegraph.resampling import resize
from porter.filegraph.views import View
from porter.filegraph.walk import Read, Zeros, leave_out
from porter.formats.torch_export.archive import TYPES
from porter.formats.torch_export.constants import EXACT_TYPES
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.sizes import sizes_of, whole_numbers
from porter.graph import Resize
from porter.graph.ops import Mode

_MODES: Mapping[str, Mode] = {
    "reflect": "reflect",
    "reflection": "reflect",
    "replicate": "edge",
    "replication": "edge",
    "circular": "wrap",
}
_FUNCTIONS: Mapping[str, Reduction] = {
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "sum": "sum",
}


def taken(node: AtenNode) -> Reference:
    """The value that a node works on.

    Raises:
        ValueError: it works on something else.
    """
    found = node.arguments["self" if "self" in node.arguments else "input"]
    if not isinstance(found, tuple):
        raise ValueError(f"it works on {found!r:.40}")
    return found


DROPOUTS: Mapping[str, str] = {
    "dropout": "Dropout",
    "feature_dropout": "Dropout2d",
    "alpha_dropout": "AlphaDropout",
    "feature_alpha_dropout": "FeatureAlphaDropout",
}
"""Of torch, by the names of their ops."""


def read_dropout(walk: Walk, node: AtenNode) -> Read:
    read_same(walk, node)
    layer = LeftOut(node.module or node.name, DROPOUTS[node.op], float(node.arguments["p"]))
    return leave_out(walk, layer, taken(node))


def read_same(walk: Walk, node: AtenNode) -> Read:
    """Casts between real numbers, copies, and what does nothing in inference."""
    if node.arguments.get("dtype") not in EXACT_TYPES:
        raise Unsupported(f"to {_type(node)}, which rounds")
    if node.arguments.get("train"):
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")
    return walk.view(taken(node))


def _type(node: AtenNode) -> str:
    """The number type that an op states, in words."""
    stated = node.arguments["dtype"]
    name = TYPES.get(stated, "another type") if isinstance(stated, int) else "another type"
    return f"half precision ({name})" if name in ("float16", "bfloat16") else name


def read_blank(walk: Walk, node: AtenNode) -> Read:
    """zeros_like."""
    return Zeros(walk.known_sizes(taken(node)))


def read_reshape(walk: Walk, node: AtenNode) -> Read:
    source = taken(node)
    return moves.reshape(
        walk, node, source, sizes_of(walk, node, "shape" if node.op == "reshape" else "size", source)
    )


def read_reshape_as(walk: Walk, node: AtenNode) -> Read:
    return moves.reshape(walk, node, taken(node), walk.known_sizes(node.arguments["other"]))


def read_roll(walk: Walk, node: AtenNode) -> Read:
    shifts, dims = whole_numbers(walk, node, "shifts"), node.arguments.get("dims")
    if not dims:
        raise Unsupported("of all axes as one")
    return moves.roll(walk, node, taken(node), dict(zip(dims, shifts, strict=True)))


def read_places(walk: Walk, node: AtenNode) -> Read:
    places = walk.integers(node.arguments["index"])
    return moves.gather(walk, node, taken(node), node.arguments["dim"], places)


def read_index(walk: Walk, node: AtenNode) -> Read:
    """Places of one axis, as `x[:, [2, 0, 1]]` takes them; the others are None."""
    stated = node.arguments["indices"]
    axes = [axis for axis, index in enumerate(stated) if index is not None]
    places = walk.flow.integers(stated[axes[0]]) if len(axes) == 1 else None
    shape = walk.flow.shape(stated[axes[0]]) if places else None
    if places is None or shape is None or len(shape) != 1:
        raise Unsupported("of several axes, or by indices that the model computes")
    return moves.gather(walk, node, taken(node), axes[0], places)


def read_unshuffle(walk: Walk, node: AtenNode) -> Read:
    return moves.cells_as_channels(
        walk, taken(node), int(node.arguments["downscale_factor"]), True, outer=True
    )


def read_glu(walk: Walk, node: AtenNode) -> Read:
    return glu(walk, node, taken(node), int(node.arguments.get("dim", -1)))


def read_variance(walk: Walk, node: AtenNode) -> View | list[View]:
    """var, std and their forms that give the mean too. `unbiased`, the older spelling, is a correction of
    1.
    """
    stated, keep = node.arguments.get("dim"), bool(node.arguments.get("keepdim"))
    if not stated:
        raise Unsupported("of all images together")
    correction = node.arguments.get("correction")
    less = float(node.arguments.get("unbiased", True)) if correction is None else float(correction)
    found = variance(walk, node, taken(node), stated, keep, less)
    if not node.op.endswith("_mean"):
        return found
    return [found, reduce(walk, within(node, "mean"), taken(node), "mean", stated, keep)]


def read_flip(walk: Walk, node: AtenNode) -> Read:
    return moves.turned_round(walk, node, taken(node), node.arguments["dims"])


def read_flatten(walk: Walk, node: AtenNode) -> Read:
    return moves.flatten(
        walk, node, taken(node), node.arguments.get("start_dim", 0), node.arguments.get("end_dim", -1)
    )


def read_unflatten(walk: Walk, node: AtenNode) -> Read:
    source, place = taken(node), node.arguments["dim"]
    sizes = walk.view(source).known_sizes
    place = place_of(place, len(sizes))
    return moves.reshape(
        walk, node, source, [*sizes[:place], *sizes_of(walk, node, "sizes", source), *sizes[place + 1 :]]
    )


def read_squeeze(walk: Walk, node: AtenNode) -> Read:
    """Axes of several cells stay, also those that are named."""
    sizes, stated = walk.view(taken(node)).known_sizes, node.arguments.get("dim")
    places = range(len(sizes)) if stated is None else stated if isinstance(stated, list) else [stated]
    gone = [place for place in places if sizes[place] == 1]
    return moves.squeeze(walk, node, taken(node), gone) if gone else walk.view(taken(node))


def read_copies(walk: Walk, node: AtenNode) -> Read:
    """repeat and tile: whole copies of an axis, one after the other; tile may leave out the first axes."""
    times = sizes_of(walk, node, "dims" if node.op == "tile" else "repeats", taken(node))
    rank = len(walk.sizes(taken(node)) or ())
    times = [*[1] * (rank - len(times)), *times] if node.op == "tile" else times
    if len(times) != rank:
        raise Unsupported(f"of {rank} axes by {len(times)} numbers")
    return moves.repeat(walk, node, taken(node), times)


def read_repeated(walk: Walk, node: AtenNode) -> Read:
    """repeat_interleave: each cell of an axis several times."""
    times, place = node.arguments["repeats"], node.arguments.get("dim")
    rank = len(walk.view(taken(node)).axes or ())
    if not isinstance(times, int) or place is None:
        raise Unsupported("by numbers of each cell, or of a flat tensor")
    if place in (0, -rank):
        return moves.each_image(walk, node, taken(node), times)
    return moves.interleave(walk, node, taken(node), place, times)


def read_unsqueeze(walk: Walk, node: AtenNode) -> Read:
    return moves.unsqueeze(walk, node, taken(node), [node.arguments["dim"]])


def read_permute(walk: Walk, node: AtenNode) -> Read:
    return moves.transpose(walk, node, taken(node), node.arguments["dims"])


def read_transpose(walk: Walk, node: AtenNode) -> Read:
    """Two axes exchanged."""
    order = [*range(len(walk.view(taken(node)).known_axes))]
    stated = (
        node.arguments.get(f"dim{place}", node.arguments.get(f"axis{place}", place)) for place in (0, 1)
    )
    first, second = (place_of(place, len(order)) for place in stated)
    order[first], order[second] = order[second], order[first]
    return moves.transpose(walk, node, taken(node), order)


def read_expand(walk: Walk, node: AtenNode) -> Read:
    """expand and expand_as."""
    sizes = (
        walk.known_sizes(node.arguments["other"])
        if node.op == "expand_as"
        else sizes_of(walk, node, "size", taken(node))
    )
    return moves.expand(walk, node, taken(node), sizes)


def read_slice(walk: Walk, node: AtenNode) -> Read:
    (place,) = [0] if node.arguments.get("dim") is None else whole_numbers(walk, node, "dim")
    start, end, step = (_number(walk, node, name) for name in ("start", "end", "step"))
    return moves.cut(walk, node, taken(node), {place: slice(start, end, step)})


def read_select(walk: Walk, node: AtenNode) -> Read:
    return moves.cut(walk, node, taken(node), {node.arguments["dim"]: int(node.arguments["index"])})


def read_narrow(walk: Walk, node: AtenNode) -> Read:
    """A start below 0 counts from the end, as where the cells end."""
    start, length = _number(walk, node, "start") or 0, _number(walk, node, "length") or 0
    end = start + length
    return moves.cut(
        walk,
        node,
        taken(node),
        {node.arguments["dim"]: slice(start, None if end == 0 and start != 0 else end)},
    )


def read_split(walk: Walk, node: AtenNode) -> list[View]:
    """split and chunk, into equal parts or into as many cells as are stated, and unbind."""
    source, place = taken(node), node.arguments.get("dim", 0)
    sizes = walk.view(source).known_sizes
    name = next((name for name in ("split_size", "split_sizes", "chunks") if name in node.arguments), "")
    if not name:
        return moves.split(walk, node, source, place, [1] * node.outputs, keep=False)
    parts = whole_numbers(walk, node, name)
    if not isinstance(node.arguments[name], list):
        (size,) = known([sizes[place]])
        most = -(-size // parts[0]) if name == "chunks" else parts[0]
        parts = [min(most, size - start) for start in range(0, size, most)][: node.outputs + 1]
    return moves.split(walk, node, source, place, parts)


def read_concat(walk: Walk, node: AtenNode) -> Read:
    return moves.concat(walk, node, node.arguments["tensors"], node.arguments.get("dim", 0))


def read_stack(walk: Walk, node: AtenNode) -> Read:
    return moves.stack(walk, node, node.arguments["tensors"], node.arguments.get("dim", 0))


def read_pad(walk: Walk, node: AtenNode) -> Read:
    """Cells before and after those of axes, the last axis first: one number, or the map's own cells."""
    numbers = whole_numbers(walk, node, "pad" if "pad" in node.arguments else "padding", taken(node))
    pairs = {-1 - place: (numbers[2 * place], numbers[2 * place + 1]) for place in range(len(numbers) // 2)}
    mode = node.arguments.get("mode", node.op.removesuffix("_pad2d"))
    if mode in _MODES:
        return moves.extend(walk, node, taken(node), pairs, _MODES[mode])
    return moves.pad(walk, node, taken(node), pairs, float(node.arguments.get("value") or 0))


def read_reduce(walk: Walk, node: AtenNode) -> Read:
    """mean, amax, amin, linalg_vector_norm and sum over axes."""
    stated, keep = node.arguments.get("dim"), bool(node.arguments.get("keepdim"))
    if not stated:
        raise Unsupported("of all images together")
    if node.arguments.get("dtype") not in EXACT_TYPES:
        raise Unsupported(f"in {_type(node)}")
    if node.op == "linalg_vector_norm":
        return norm(walk, node, taken(node), stated, keep, float(node.arguments.get("ord", 2)))
    return reduce(walk, node, taken(node), _FUNCTIONS[node.op], stated, keep)


def read_largest(walk: Walk, node: AtenNode) -> Read | list[View | None]:
    """max or min of two values, or over an axis, which gives the places too."""
    function: Reduction = "min" if node.op == "min" else "max"
    if "other" in node.arguments:
        return combine(walk, node, function.capitalize(), (node.arguments["self"], node.arguments["other"]))
    if "dim" not in node.arguments:
        raise Unsupported("of all images together")
    found = reduce(
        walk, node, taken(node), function, [node.arguments["dim"]], bool(node.arguments.get("keepdim"))
    )
    return [found, None]


def read_log_sum(walk: Walk, node: AtenNode) -> Read:
    """logsumexp."""
    return log_sum_exp(walk, node, taken(node), node.arguments["dim"], bool(node.arguments.get("keepdim")))


def read_product_along(walk: Walk, node: AtenNode) -> Read:
    """prod over an axis."""
    if "dim" not in node.arguments:
        raise Unsupported("of all images together")
    if node.arguments.get("dtype") not in EXACT_TYPES:
        raise Unsupported(f"in {_type(node)}")
    return factors(walk, node, taken(node), [node.arguments["dim"]], bool(node.arguments.get("keepdim")))


def read_running_sums(walk: Walk, node: AtenNode) -> Read:
    """cumsum."""
    if node.arguments.get("dtype") not in EXACT_TYPES:
        raise Unsupported(f"in {_type(node)}")
    return running_sums(walk, node, taken(node), node.arguments["dim"])


def read_moved_axes(walk: Walk, node: AtenNode) -> Read:
    """movedim: some axes at other places, between the others in their order."""
    rank = len(walk.sizes(taken(node)) or ())
    before, after = (
        [place_of(place, rank) for place in (stated if isinstance(stated, list) else [stated])]
        for stated in (node.arguments["source"], node.arguments["destination"])
    )
    rest = iter(axis for axis in range(rank) if axis not in before)
    at = dict(zip(after, before, strict=True))
    order = [at[place] if place in at else next(rest) for place in range(rank)]
    return moves.transpose(walk, node, taken(node), order)


def read_windows(walk: Walk, node: AtenNode) -> Read:
    """unfold: parts of an axis."""
    (size,), (step,) = (whole_numbers(walk, node, name) for name in ("size", "step"))
    return moves.windows(walk, node, taken(node), node.arguments["dimension"], size, step)


def read_diagonal(walk: Walk, node: AtenNode) -> Read:
    (first,), (second,), (offset,) = (
        whole_numbers(walk, node, name) if name in node.arguments else [default]
        for name, default in (("dim1", 0), ("dim2", 1), ("offset", 0))
    )
    return moves.diagonal(walk, node, taken(node), (first, second), offset)


def read_quarter_turns(walk: Walk, node: AtenNode) -> Read:
    """rot90."""
    first, second = node.arguments.get("dims", [0, 1])
    return moves.quarter_turns(walk, node, taken(node), (first, second), int(node.arguments.get("k", 1)))


def read_triangle(walk: Walk, node: AtenNode) -> Read:
    """tril and triu."""
    offset = int(node.arguments.get("diagonal", 0))
    bounds = (offset, None) if node.op == "triu" else (None, offset)
    return band(walk, node, taken(node), *bounds)


def read_softmax(walk: Walk, node: AtenNode) -> Read:
    if node.arguments.get("half_to_float"):
        raise Unsupported("of half precision")
    if node.arguments.get("dtype") not in EXACT_TYPES:
        raise Unsupported(f"in {_type(node)}")
    return (log_softmax if "log" in node.op else softmax)(walk, node, taken(node), node.arguments["dim"])


def read_upsample(walk: Walk, node: AtenNode) -> Read:
    """The upsample ops: by scales, which hold where they are stated, or at a size."""
    sizes, op = walk.view(taken(node)).known_sizes, _UPSAMPLES[node.op]
    if node.arguments.get("align_corners"):
        op = replace(op, coordinates="align_corners")
    stated = node.arguments.get("scale_factors") or [
        node.arguments.get(name) for name in ("scales_h", "scales_w")
    ]
    scales = {} if None in stated else dict(enumerate(stated, 2))
    wanted = {} if scales else dict(enumerate(sizes_of(walk, node, "output_size", taken(node)), 2))
    if node.op.endswith("_aa"):
        less = any(scale < 1 for scale in scales.values()) or any(
            size < sizes[axis] for axis, size in wanted.items()
        )
        if less or op.coordinates == "align_corners":
            raise Unsupported("with antialias")
    if node.op == "upsample_nearest2d":
        by = [
            scales.get(axis) or ratio(wanted[axis], cells)
            for axis, cells in enumerate(sizes)
            if axis > 1 and cells != 1
        ]
        moving = [
            round(scale)
            for scale in by
            if scale is not None and scale == round(scale) and not _repeats(round(scale))
        ]
        if moving:
            raise Unsupported(
                f"by {moving[0]}, where torch's rounding moves cells: mode='nearest-exact' repeats all alike"
            )
    return resize(walk, node, taken(node), op, scales, wanted)


_UPSAMPLES: Mapping[str, Resize] = {
    "upsample_nearest2d": Resize("nearest", coordinates="asymmetric", rounding="floor"),
    "_upsample_nearest_exact2d": Resize("nearest", rounding="round_prefer_ceil"),
    "upsample_bilinear2d": Resize("linear"),
    "upsample_bicubic2d": Resize("cubic"),
    "_upsample_bilinear2d_aa": Resize("linear"),
    "_upsample_bicubic2d_aa": Resize("cubic", a=-0.5, inside=True),
}
"""How each computes cells (aten/src/ATen/native/UpSample.h); with antialias, where the map gets no fewer."""
UPSAMPLES = tuple(_UPSAMPLES)


def _repeats(factor: int) -> bool:
    """Whether torch repeats every cell equally often. Its mode `nearest` takes the cell floor(place * scale)
    in float32 (aten/src/ATen/native/UpSample.h), so that at 41, 47, 55 and others the first place of a cell
    rounds down to the cell before.
    """
    return factor < 1 or bool(np.float32(factor) * np.float32(1 / factor) >= 1)


def _number(walk: Walk, node: AtenNode, name: str) -> Dim | None:
    return None if node.arguments.get(name) is None else sizes_of(walk, node, name, taken(node))[0]
