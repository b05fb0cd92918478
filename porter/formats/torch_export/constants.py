"""What numpy computes from the tensors and numbers of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from porter.filegraph.dataflow import MOST_COMPUTED, MOST_OF_SIZES, Evaluator
from porter.filegraph.dims import Numbers
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.values import with_norms
from porter.formats.torch_export.nodes import AtenNode
from porter.formats.torch_export.one_hots import ROWS


def _plain(function: Any) -> Evaluator:
    return lambda node, *values: function(*values)


EXACT_TYPES = (None, 7, 8)
"""Types of a cast that changes no function: real numbers of single and double precision (ScalarType)."""
_BOOL, _WHOLE = 12, 5
"""ScalarType, of which the latter has 64 bits."""
SAME = ("alias", "contiguous", "detach", "lift_fresh")
"""Ops that give what they take, in the same memory or, for `contiguous`, perhaps in other."""
COPIES = ("clone", "lift_fresh_copy")
"""Ops that give what they take in memory of its own."""
RESHAPED = ("view", "_unsafe_view", "reshape")


def is_cast(node: AtenNode) -> bool:
    return node.op in (*SAME, *COPIES, "to", "_to_copy") and node.arguments.get("dtype") in EXACT_TYPES


def _divided(node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    """Two whole numbers give a real one, unlike in other formats, unless the quotient is rounded."""
    mode = node.arguments.get("rounding_mode")
    return np.asarray(
        first / second if mode is None else {"floor": np.floor, "trunc": np.trunc}[mode](first / second)
    )


def _scaled(function: Any, node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    if math.prod(np.broadcast_shapes(first.shape, second.shape)) > max(
        MOST_OF_SIZES, first.size, second.size
    ):
        raise ValueError("more numbers than an op states")
    return np.asarray(function(first, second * node.arguments.get("alpha", 1)))


def _given(node: AtenNode, name: str, values: Sequence[Numbers]) -> Numbers | None:
    """The array of an argument, which may be missing."""
    source = node.arguments.get(name)
    return None if source is None else dict(zip(node.inputs, values, strict=True))[source]


def _total(value: Numbers) -> Numbers:
    """The sum over the last axis, one number after the other: `sum` adds in another order on each processor,
    and a port's numbers are computed again where it is verified.
    """
    return np.add.accumulate(value, -1)[..., -1:]


def _standardised(node: AtenNode, *values: Numbers) -> list[Numbers]:
    """A batch norm by the statistics of its input."""
    if not node.arguments.get("training", node.op.endswith("legit")):
        raise ValueError("stored statistics")
    found = {name: _given(node, name, values) for name in ("input", "weight", "bias")}
    x = found.pop("input")
    if x is None or x.ndim < 2 or x.size == 0:
        raise ValueError("no channels")
    rows, over = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1), (-1, *[1] * (x.ndim - 2))
    apart = rows - _total(rows) / rows.shape[1]
    spread = _total(apart**2) / rows.shape[1]
    normed = apart / np.sqrt(spread + node.arguments["eps"])
    turned = np.moveaxis(normed.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
    scale, offset = (each if each is None else each.reshape(over) for each in found.values())
    scaled = turned if scale is None else turned * scale
    return [scaled if offset is None else scaled + offset]


def _own_sizes(node: AtenNode, stated: Sequence[Any]) -> list[Any]:
    """Sizes of a constant. One that the program computes is known from what it says of the node's value; of
    open ones, the first may be the number of images: see `for_each_image`.
    """
    own = (size if isinstance(size, int) else node.sizes[0][place] for place, size in enumerate(stated))
    return [1 if place == 0 and isinstance(size, str) else size for place, size in enumerate(own)]


def _expanded(node: AtenNode, value: Numbers) -> Numbers:
    """The same numbers along more axes."""
    sizes = _own_sizes(node, node.arguments["size"])
    whole = [1] * (len(sizes) - value.ndim) + [*value.shape]
    times = [size if own == 1 and size > 0 else 1 for size, own in zip(sizes, whole, strict=True)]
    if any(size not in (-1, own * count) for size, own, count in zip(sizes, whole, times, strict=True)):
        raise ValueError("a constant of other sizes")
    if value.size * math.prod(times) > MOST_COMPUTED:
        raise ValueError("too many repetitions")
    return np.tile(value.reshape(whole), times)


def _listed(node: AtenNode, values: Sequence[Numbers]) -> list[Numbers]:
    """The arrays of a list of tensors, of which some may be the same."""
    known = dict(zip(node.inputs, values, strict=True))
    return [known[source] for source in node.arguments["tensors"]]


def _indexed(node: AtenNode, *values: Numbers) -> Numbers:
    """Numbers at places that are whole numbers, axis by axis."""
    known = dict(zip(node.inputs, values, strict=True))
    value = known[node.arguments["self"]]
    places = tuple(slice(None) if each is None else known[each] for each in node.arguments["indices"])
    found = [each for each in places if not isinstance(each, slice)]
    rest = math.prod(size for size, each in zip(value.shape, places, strict=False) if isinstance(each, slice))
    rest *= math.prod(value.shape[len(places) :])
    if (
        any(each.dtype.kind != "i" for each in found)
        or math.prod(np.broadcast_shapes(*(e.shape for e in found))) * rest > MOST_COMPUTED
    ):
        raise ValueError("no places, or too many")
    return value[places]


def _sliced(node: AtenNode, value: Numbers) -> Numbers:
    part = slice(*(node.arguments.get(name) for name in ("start", "end", "step")))
    return value[(*[slice(None)] * (node.arguments.get("dim", 0) % value.ndim), part)]


def _flattened(node: AtenNode, value: Numbers) -> Numbers:
    first, last = (
        range(value.ndim)[node.arguments.get(name, default)]
        for name, default in (("start_dim", 0), ("end_dim", -1))
    )
    return value.reshape(
        *value.shape[:first], math.prod(value.shape[first : last + 1]), *value.shape[last + 1 :]
    )


def _cast(node: AtenNode, value: Numbers) -> Numbers:
    """Of whole numbers to real ones, or of real ones among themselves; to true or false of ones and zeros
    only, and to whole numbers of such.
    """
    kind = node.arguments.get("dtype")
    if kind == _BOOL and np.isin(value, (0, 1)).all():
        return value.astype(np.bool_)
    if kind == _WHOLE and np.array_equal(value, np.trunc(value)):
        return value.astype(np.int64)
    if kind not in EXACT_TYPES:
        raise ValueError("a cast that rounds")
    return value.astype(np.float64) if kind is not None else value


def _filled(node: AtenNode) -> Numbers:
    """zeros, ones and full of stated sizes."""
    sizes = _own_sizes(node, node.arguments["size"])
    if not all(isinstance(size, int) for size in sizes) or math.prod(sizes) > MOST_COMPUTED:
        raise ValueError("sizes that are not stated")
    number = {"zeros": 0, "ones": 1}.get(node.op, node.arguments.get("fill_value"))
    stated = node.arguments.get("dtype")
    kind = np.bool_ if stated == _BOOL else np.int64 if stated == _WHOLE else np.float64
    found: Numbers = np.full(sizes, number, kind)
    if kind is not np.float64 and np.any(found != number):
        raise ValueError("a number of another type")
    return found


def _with_number(function: Any, node: AtenNode, value: Numbers, other: Numbers) -> Numbers:
    if other.size != 1:
        raise ValueError("no comparison with one number")
    return np.asarray(function(value, other))


def _compared(function: Any, node: AtenNode, value: Numbers, other: Numbers) -> Numbers:
    """Truths, such as a mask's: of two vectors they are as many as their product."""
    if math.prod(np.broadcast_shapes(value.shape, other.shape)) > MOST_COMPUTED:
        raise ValueError("too many truths")
    return np.asarray(function(value, other))


def _masked(node: AtenNode, value: Numbers, mask: Numbers, *other: Numbers) -> Numbers:
    """Another number where a mask says so."""
    number = other[0] if other else np.float64(node.arguments["value"])
    if number.size != 1 or np.broadcast_shapes(value.shape, mask.shape) != value.shape:
        raise ValueError("a mask of other axes")
    return np.where(mask, number, value)


def _linear(node: AtenNode, *values: Numbers) -> Numbers:
    known = {name: _given(node, name, values) for name in ("input", "weight", "bias")}
    value, weight, bias = known.values()
    if value is None or weight is None:
        raise ValueError("a product of nothing")
    found = value @ weight.T
    return found if bias is None else found + bias


def _product(node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    if math.prod(size for size in node.sizes[0] if isinstance(size, int)) > MOST_COMPUTED:
        raise ValueError("a product of too many numbers")
    return np.asarray(first @ second)


def _meshed(node: AtenNode, *values: Numbers) -> list[Numbers]:
    known = _listed(node, values)
    if math.prod(each.size for each in known) > MOST_COMPUTED:
        raise ValueError("a grid of too many cells")
    return list(np.meshgrid(*known, indexing=node.arguments.get("indexing", "ij")))


def _repeated(node: AtenNode, value: Numbers) -> Numbers:
    """repeat and tile. Of times that the program computes the sizes are known, or they are of the images."""
    stated = node.arguments["dims" if node.op == "tile" else "repeats"]
    cells = [1] * (len(node.sizes[0]) - value.ndim) + [*value.shape]
    first = len(cells) - len(stated)
    whole = _own_sizes(node, [None] * len(cells))
    times = [
        each if isinstance(each, int) else whole[place] // cells[place]
        for place, each in enumerate(stated, first)
    ]
    if value.size * math.prod(times) > MOST_COMPUTED:
        raise ValueError("too many repetitions")
    return np.tile(value, times)


def _parted(node: AtenNode, value: Numbers) -> list[Numbers]:
    """split, chunk and unbind along an axis."""
    axis = node.arguments.get("dim", 0)
    size = value.shape[axis]
    if node.op == "unbind":
        return [part.squeeze(axis) for part in np.split(value, size, axis)]
    stated = next(
        node.arguments[name] for name in ("split_sizes", "split_size", "chunks") if name in node.arguments
    )
    if isinstance(stated, list):
        return np.split(value, np.cumsum(stated)[:-1], axis)
    most = -(-size // stated) if node.op == "chunk" else stated
    return np.split(value, range(most, size, most), axis)


def _arange(node: AtenNode) -> Numbers:
    start, end, step = (
        node.arguments.get(name, default) for name, default in (("start", 0), ("end", None), ("step", 1))
    )
    numbers = all(isinstance(each, int | float) for each in (start, end, step))
    if not numbers or not step or not 0 < (end - start) / step <= MOST_COMPUTED:
        raise ValueError("a range that is none of stated numbers")
    return np.arange(start, end, step)


def _pointwise(node: AtenNode, *values: Numbers) -> Numbers:
    """A 1x1 convolution of a constant map."""
    known = {name: _given(node, name, values) for name in ("input", "weight", "bias")}
    value, weight, bias = known.values()
    plain = all(
        {*node.arguments.get(name, [default])} == {default}
        for name, default in (("stride", 1), ("padding", 0))
    )
    if (
        value is None
        or weight is None
        or weight.shape[2:] != (1, 1)
        or not plain
        or node.arguments.get("groups", 1) != 1
    ):
        raise ValueError("a convolution over cells")
    found: Numbers = np.einsum("nchw,fc->nfhw", value, weight[:, :, 0, 0])
    return found if bias is None else found + bias[:, None, None]


def _reshaped(node: AtenNode, value: Numbers) -> Numbers:
    return value.reshape(_own_sizes(node, node.arguments["size" if "size" in node.arguments else "shape"]))


def _interleaved(node: AtenNode, value: Numbers) -> Numbers:
    times = node.arguments["repeats"]
    if not isinstance(times, int) or value.size * times > MOST_COMPUTED:
        raise ValueError("too many repetitions")
    return value.repeat(times, node.arguments.get("dim"))


def _rows(node: AtenNode, places: Numbers, table: Numbers) -> Numbers:
    """Rows of a table at places, of which each first axis may have a table of its own."""
    places, (*_, count, width) = places.transpose(node.arguments["dims"]), table.shape
    if (
        places.dtype.kind != "i"
        or places.size * width > MOST_COMPUTED
        or places.min() < 0
        or places.max() >= count
    ):
        raise ValueError("no places, or too many")
    return np.take_along_axis(
        np.broadcast_to(table, (*places.shape[:-1], count, width)), places[..., None], -2
    )


def _embedded(node: AtenNode, table: Numbers, places: Numbers) -> Numbers:
    """Rows of a table at stored places."""
    if (
        places.dtype.kind != "i"
        or places.size * table[0].size > MOST_COMPUTED
        or places.size == 0
        or places.min() < 0
    ):
        raise ValueError("no places, or too many")
    return table[places]


def _summed(node: AtenNode, value: Numbers) -> Numbers:
    """The sum over all axes or some, one number after the other: see `_total`."""
    places = node.arguments.get("dim") or [*range(value.ndim)]
    rest = [axis for axis in range(value.ndim) if axis not in [place % value.ndim for place in places]]
    found = _total(
        value.transpose([*rest, *[place % value.ndim for place in places]]).reshape(
            *[value.shape[a] for a in rest], -1
        )
    )
    return (
        found[..., 0] if not node.arguments.get("keepdim") else np.expand_dims(found[..., 0], tuple(places))
    )


def _reduced(node: AtenNode, value: Numbers) -> Numbers:
    """A mean, a largest value or a norm over axes, such as that of each row of a kernel."""
    if node.arguments.get("ord", 2) != 2:
        raise ValueError(f"a norm of order {node.arguments['ord']}")
    stated = node.arguments.get("dim")
    axes = tuple(stated) if isinstance(stated, list) and stated else None
    functions: Mapping[str, Callable[..., Any]] = {
        "mean": np.mean,
        "amax": np.max,
        "amin": np.min,
        "linalg_vector_norm": _norm,
    }
    return np.asarray(functions[node.op](value, axis=axes, keepdims=bool(node.arguments.get("keepdim"))))


def _spread(node: AtenNode, value: Numbers) -> list[Numbers]:
    """var and std over axes, and their forms that give the mean too."""
    stated, keep = node.arguments.get("dim"), bool(node.arguments.get("keepdim"))
    axes = tuple(stated) if stated else None
    correction = node.arguments.get("correction")
    less = float(node.arguments.get("unbiased", True)) if correction is None else float(correction)
    mean = value.mean(axes, keepdims=True)
    squares = np.square(value - mean)
    count = squares.size // max(mean.size, 1) - less
    if count <= 0:
        raise ValueError("a variance of one number")
    found = squares.sum(axes, keepdims=keep) / count
    spread = np.sqrt(found) if node.op.startswith("std") else found
    return [np.asarray(spread), value.mean(axes, keepdims=keep)][: len(node.sizes)]


def _spaced(node: AtenNode) -> Numbers:
    """linspace."""
    start, end, steps = (node.arguments[name] for name in ("start", "end", "steps"))
    if not isinstance(steps, int) or not 0 < steps <= MOST_COMPUTED:
        raise ValueError("numbers that are not stated, or too many")
    return np.linspace(float(start), float(end), steps)


def _norm(value: Numbers, **over: Any) -> Numbers:
    return np.asarray(np.sqrt(np.square(value).sum(**over)))


def _weight_norm(node: AtenNode, value: Numbers, scale: Numbers) -> list[Numbers]:
    """A kernel whose norms, one for each place of an axis or one of it all, are `scale`."""
    axis = node.arguments.get("dim", 0)
    others = tuple(place for place in range(value.ndim) if axis == -1 or place != axis)
    found = [with_norms(value, scale, others), _norm(value, axis=others, keepdims=True).reshape(scale.shape)]
    return found[: len(node.sizes)]


RESHAPES = frozenset({*RESHAPED, "unsqueeze", "squeeze"})


def _softmax(node: AtenNode, value: Numbers) -> Numbers:
    place = node.arguments["dim"]
    powers = np.exp(value - value.max(place, keepdims=True))
    return np.asarray(powers / powers.sum(place, keepdims=True))


_RULES: Mapping[str, Rule] = {
    "upsample_bilinear2d": Rule("linear"),
    "upsample_bicubic2d": Rule("cubic"),
    "_upsample_bilinear2d_aa": Rule("linear", inside=True),
    "_upsample_bicubic2d_aa": Rule("cubic", a=-0.5, inside=True),
}


def _resized(node: AtenNode, value: Numbers) -> Numbers:
    """A table of positions at another size. Antialiasing matters only where it becomes smaller."""
    rule, sizes = _RULES[node.op], [size for size in node.sizes[0] if isinstance(size, int)]
    if len(sizes) != value.ndim or math.prod(sizes) > MOST_COMPUTED:
        raise ValueError("sizes that are not stated, or are too large")
    if node.op.endswith("_aa") and any(
        size < before for size, before in zip(sizes, value.shape, strict=True)
    ):
        raise ValueError("a smaller table with antialias")
    stated = node.arguments.get("scale_factors") or [
        node.arguments.get(name) for name in ("scales_h", "scales_w")
    ]
    if node.arguments.get("align_corners"):
        rule = replace(rule, coordinates="align_corners")
    for axis, scale in enumerate(stated, 2):
        value = resize(value, axis, sizes[axis], scale or sizes[axis] / value.shape[axis], rule)
    return value


EVALUATORS: Mapping[str, Evaluator] = {
    "add": partial(_scaled, np.add),
    "sub": partial(_scaled, np.subtract),
    "div": _divided,
    "rsub": partial(_scaled, lambda first, second: second - first),
    **dict.fromkeys((*SAME, *COPIES), _plain(lambda value: value)),
    **dict.fromkeys(RESHAPED, _reshaped),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit", "native_batch_norm"), _standardised),
    **dict.fromkeys(("reshape_as", "view_as"), _plain(lambda value, other: value.reshape(other.shape))),
    "expand": _expanded,
    "index": _indexed,
    "permute": lambda node, value: value.transpose(node.arguments["dims"]),
    "transpose": lambda node, value: value.swapaxes(node.arguments["dim0"], node.arguments["dim1"]),
    "swapaxes": lambda node, value: value.swapaxes(node.arguments["axis0"], node.arguments["axis1"]),
    **dict.fromkeys(("t", "numpy_T"), lambda node, value: value.T),
    "mT": lambda node, value: value.swapaxes(-1, -2),
    "movedim": lambda node, value: np.moveaxis(
        value, node.arguments["source"], node.arguments["destination"]
    ),
    "select": lambda node, value: value.take(node.arguments["index"], node.arguments["dim"]),
    "slice": _sliced,
    "flatten": _flattened,
    "squeeze": lambda node, value: np.squeeze(value, node.arguments.get("dim")),
    **dict.fromkeys(
        ("cat", "concat"),
        lambda node, *values: np.concatenate(_listed(node, values), node.arguments.get("dim", 0)),
    ),
    "stack": lambda node, *values: np.stack(_listed(node, values), node.arguments.get("dim", 0)),
    "sigmoid": _plain(lambda value: 1 / (1 + np.exp(-value))),
    "softmax": _softmax,
    "pow": _plain(np.power),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "exp": _plain(np.exp),
    "flip": lambda node, value: np.flip(value, node.arguments["dims"]),
    ROWS: _rows,
    "embedding": _embedded,
    "sum": _summed,
    **dict.fromkeys(("mean", "amax", "amin", "linalg_vector_norm"), _reduced),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _spread),
    **dict.fromkeys(("_weight_norm", "_weight_norm_interface"), _weight_norm),
    "mv": _plain(np.matmul),
    **dict.fromkeys(("dot", "vdot"), _plain(np.dot)),
    "clamp_min": _plain(np.maximum),
    "clamp_max": _plain(np.minimum),
    "expand_as": _plain(lambda value, other: np.broadcast_to(value, other.shape)),
    "arange": _arange,
    "linspace": _spaced,
    "scalar_tensor": lambda node: np.asarray(float(node.arguments["s"])),
    "tril": lambda node, value: np.tril(value, node.arguments.get("diagonal", 0)),
    "triu": lambda node, value: np.triu(value, node.arguments.get("diagonal", 0)),
    "square": _plain(np.square),
    **dict.fromkeys(("to", "_to_copy"), _cast),
    "dropout": lambda node, value: value,
    **dict.fromkeys(("zeros", "ones", "full"), _filled),
    "linear": _linear,
    "matmul": _product,
    "conv2d": _pointwise,
    "relu": _plain(lambda value: np.maximum(value, 0)),
    "tanh": _plain(np.tanh),
    "log": _plain(np.log),
    "log2": _plain(np.log2),
    "sign": _plain(np.sign),
    "abs": _plain(np.abs),
    "bitwise_not": _plain(np.invert),
    "eq": partial(_with_number, np.equal),
    "ne": partial(_with_number, np.not_equal),
    "ge": partial(_compared, np.greater_equal),
    "gt": partial(_compared, np.greater),
    "le": partial(_compared, np.less_equal),
    "lt": partial(_compared, np.less),
    "masked_fill": _masked,
    **dict.fromkeys(_RULES, _resized),
    "cumsum": lambda node, value: np.add.accumulate(value, node.arguments["dim"]),
    "meshgrid": _meshed,
    **dict.fromkeys(("repeat", "tile"), _repeated),
    "repeat_interleave": _interleaved,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unbind"), _parted),
    "unsqueeze": lambda node, value: np.expand_dims(value, node.arguments["dim"]),
}
"""What they give has no more numbers than they take, or than an op states (porter.filegraph.dataflow)."""
SIZED = ("expand", "repeat", "tile", "zeros", "ones", "full", *RESHAPED, *_RULES)
"""Ops that take sizes, of which one may be the number of images; of the others the program says what they
are.
"""
_OVER = ("cumsum", "softmax", "sum")
"""Those that compute along an axis from all of its numbers. Others that take them together give another size,
or take one image.
"""


def for_each_image(nodes: Mapping[str, AtenNode], evaluator: Evaluator) -> Evaluator:
    """An evaluator that computes a constant which is repeated for each image once: the first axis has one
    cell for an open size.
    """

    def evaluate(node: AtenNode, *values: Numbers) -> Any:
        found = evaluator(node, *values)
        taken = [sizes for name, output in node.inputs for sizes in nodes[name].sizes[output : output + 1]]
        if any(isinstance(size, str) for sizes in (*taken, *node.sizes) for size in sizes):
            stated = node.arguments["dim"] if node.op in _OVER else []
            over = stated if isinstance(stated, list) else [stated]
            wanted = [
                (1, *sizes[1:]) if sizes and isinstance(sizes[0], str) else sizes for sizes in node.sizes
            ]
            given = [each.shape for each in (found if isinstance(found, list) else [found])]
            if given != wanted or any(place % values[0].ndim == 0 for place in over):
                raise ValueError("a constant of all images")
        return found

    return evaluate
