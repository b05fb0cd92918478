"""What ATen does with the axes of tensors. An axis is named by its place, from either end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.base.left_out import LeftOut
from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import View
from porter.filegraph.layouts.dims import Dim, fixed_sizes, ratio
from porter.filegraph.places import position_of
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, maximum, minimum, stack
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.walk import Zeros, leave_out
from porter.formats.torch_export.archive import TYPES
from porter.formats.torch_export.constants import COPIES, REALS, SAME, cast, take_indexed
from porter.formats.torch_export.reading import Call, Function
from porter.graph import LogSoftmax, Resize, Softmax
from porter.graph.ops import Mode

_MODES: Mapping[str, Mode] = {
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


DROPOUTS: Mapping[str, str] = {
    "dropout": "Dropout",
    "feature_dropout": "Dropout2d",
    "alpha_dropout": "AlphaDropout",
    "feature_alpha_dropout": "FeatureAlphaDropout",
}
"""The dropouts of torch, by the names of their ops."""


def _dropout(scope: Scope, x: Tensor, p: float, train: bool) -> Tensor | View:
    """Return the value of a dropout, which does nothing outside of training, and record it as left out."""
    if x.array is not None:
        return x
    if train:
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")
    node = scope.node
    return leave_out(scope.walk, LeftOut(node.module or node.name, DROPOUTS[node.op], float(p)), x.reference)


def _pass_on(
    x: Tensor,
    dtype: int | None = None,
    other: Tensor | None = None,
) -> Tensor | Numbers:
    """Return the value of a cast between real numbers, of a copy, or of what does nothing in inference.
    Constants are cast as numbers; a value's cast that rounds is Unsupported.

    Args:
        other: unused: the value that the op takes beside `x`.
    """
    array = x.array
    if array is not None and (converted := cast(array, dtype)) is not None:
        return converted
    if dtype not in REALS:
        raise Unsupported(f"as a cast to {_type_name(dtype)}, which rounds")
    return x


def _type_name(scalar_type: Any) -> str:
    """Return the name of a number type that an op states."""
    return TYPES.get(scalar_type, "another type") if isinstance(scalar_type, int) else "another type"


def _roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Return `x` with the cells of some axes moved on, those at the end to the beginning; all axes as one are
    Unsupported.
    """
    if dims in ([], ()):
        raise Unsupported("of all axes as one")
    return x.roll(dict(zip(_as_list(dims), _as_list(shifts), strict=True)))


def _as_list(argument: Any) -> list[Any]:
    """Return one number or several as a list."""
    return argument if isinstance(argument, list) else [argument]


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor | Numbers:
    """Return the cells of one axis at these places, as `x[:, [2, 0, 1]]` takes them; the other axes are None.
    A constant may be indexed along several axes; a value is Unsupported then.
    """
    if x.array is not None:
        return take_indexed(x.array, [None if index is None else index.numbers() for index in indices])
    # The first axis that is indexed, and any others.
    ((axis, cells), *further) = ((axis, index) for axis, index in enumerate(indices) if index is not None)
    shape = x.walk.constant_shape(cells.source)
    if further or shape is None or len(shape) != 1:
        raise Unsupported("of several axes, or by indices that the model computes")
    return x.gather(axis, cells.integers())


def _var(
    x: Tensor,
    dim: Sequence[int] = (),
    correction: float | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
) -> Tensor:
    """Return the variance along axes. `unbiased`, the older spelling, is a correction of 1."""
    return functions.variance(
        x, _axes(x, dim), keepdim, float(unbiased) if correction is None else correction
    )


@wraps(_var)
def _std(x: Tensor, **arguments: Any) -> Tensor:
    """Return the standard deviation along axes, by the arguments of `_var`."""
    return functions.sqrt(_var(x, **arguments))


def _with_mean(spread: Callable[..., Tensor]) -> Function:
    """Return the function of var_mean or std_mean: the spread along axes, and the mean."""

    @wraps(spread)
    def spread_and_mean(x: Tensor, **arguments: Any) -> list[Tensor]:
        return [
            spread(x, **arguments),
            x.mean(_axes(x, arguments.get("dim")), arguments.get("keepdim", False)),
        ]

    return spread_and_mean


def _unflatten(x: Tensor, dim: int, sizes: Sequence[Dim]) -> Tensor:
    """Return `x` with several axes in place of one."""
    axis = position_of(dim, len(x.sizes))
    return x.reshape([*x.sizes[:axis], *sizes, *x.sizes[axis + 1 :]])


def _squeeze(x: Tensor, dim: Any = None) -> Tensor:
    """Return the value without axes of one cell; those of several cells stay, also if they are named."""
    sizes = x.sizes
    axes = range(len(sizes)) if dim is None else _as_list(dim)
    squeezed = [axis for axis in axes if sizes[axis] == 1]
    return x.squeeze(squeezed) if squeezed else x


def _repeat(x: Tensor, repeats: Sequence[Dim]) -> Tensor:
    """Return whole copies of `x` along each axis, one after the other; for a value, a number for each of its
    axes.
    """
    if len(repeats) != x.rank and x.array is None:
        raise Unsupported(f"of {x.rank} axes by {len(repeats)} numbers")
    return x.repeat(repeats)


def _repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, output_size: Any = None) -> Tensor:
    """Return each cell of an axis several times, one after the other; those of the first axis are images."""
    if not isinstance(repeats, int) or dim is None:
        raise Unsupported("by numbers of each cell, or of a flat tensor")
    return x.repeat_images(repeats) if dim in (0, -x.rank) else x.interleave(dim, repeats)


def _swap_axes(x: Tensor, first: int, second: int) -> Tensor:
    """Return the value with two axes exchanged."""
    order = [*range(x.rank)]
    first, second = position_of(first, len(order)), position_of(second, len(order))
    order[first], order[second] = order[second], order[first]
    return x.transpose(order)


def _narrow(x: Tensor, dim: int, start: Dim, length: Dim) -> Tensor:
    """Return so many cells from `start` on. A start below 0 counts from the end, as where the cells end."""
    # -2 and 2 cells are the last two, whose slice has no end.
    end = start + length
    return x.cut({dim: slice(start, None if end == 0 and start != 0 else end)})


def _split(x: Tensor, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> list[Tensor]:
    """Return parts of so many cells, of which the last may have fewer, or of stated sizes."""
    sizes = split_size if split_sizes is None else split_sizes
    return x.split(dim, sizes if isinstance(sizes, list) else _piece_sizes(x, dim, sizes))


def _chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """Return at most `chunks` parts of an axis, of one size but for the last, which may be smaller."""
    (size,) = fixed_sizes([x.size(dim)])
    return x.split(dim, _piece_sizes(x, dim, -(-size // chunks)))


def _piece_sizes(x: Tensor, axis: int, most_cells: Dim) -> list[int]:
    """Return the sizes of the parts of an axis that have `most_cells`, but the last one perhaps fewer: 7
    cells in parts of 3 give [3, 3, 1].
    """
    size, largest = fixed_sizes([x.size(axis), most_cells])
    if largest < 1 or size > largest * x.scope.node.outputs:
        raise Unsupported(f"of {size} cells into parts of {largest}")
    return [min(largest, size - start) for start in range(0, size, largest)]


def _pad(x: Tensor, pad: Sequence[Dim], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Return the value with cells before and after those of axes: one number, or the map's own cells.

    Args:
        pad: two numbers for each axis, from the last one on: (1, 2, 3, 4) adds a column before and two
            behind, three rows before and four behind.
    """
    pairs = {-1 - pair: (pad[2 * pair], pad[2 * pair + 1]) for pair in range(len(pad) // 2)}
    return x.extend(pairs, _MODES[mode]) if mode in _MODES else x.pad(pairs, float(value))


def _axes(x: Tensor, dim: Any) -> Sequence[int]:
    """Return the axes of a reduction; a constant may be reduced over all of them.

    Raises:
        Unsupported: they are all axes of a value, the batch's among them.
    """
    if dim in ([], (), None) and x.array is None:
        raise Unsupported("of all images together")
    return range(x.rank) if dim in ([], (), None) else _as_list(dim)


def _expect_type(dtype: int | None) -> None:
    """Raise Unsupported for a type that rounds."""
    if dtype not in REALS:
        raise Unsupported(f"in {_type_name(dtype)}")


def _reduction_function(function: Reduction) -> Function:
    """Return the function of a reduction along axes, all of them where none are stated."""

    def reduce(x: Tensor, dim: Any = (), keepdim: bool = False, dtype: int | None = None) -> Tensor:
        _expect_type(dtype)
        return x.reduce(function, _axes(x, dim), keepdim)

    return reduce


def _vector_norm(
    x: Tensor, ord: float = 2, dim: Any = (), keepdim: bool = False, dtype: int | None = None
) -> Tensor:
    """Return the norm of order `ord` over axes."""
    _expect_type(dtype)
    return functions.norm(x, ord, _axes(x, dim), keepdim)


def _extremum_function(function: Reduction, of_two: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """Return the function of max or min: of two values by `of_two`, or over an axis by the reduction
    `function`. The latter gives the places of the extrema too, which are None here.
    """

    def extremum(
        x: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False
    ) -> Tensor | list[Tensor | None]:
        """Return the extremum of two values, or along axes with None for the places."""
        if other is not None:
            return of_two(x, other)
        return [x.reduce(function, _axes(x, dim), keepdim), None]

    return extremum


def _prod(x: Tensor, dim: int | None = None, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    """Return the product over an axis."""
    _expect_type(dtype)
    return functions.prod(x, _axes(x, dim), keepdim)


def _cumsum(x: Tensor, dim: int, dtype: int | None = None) -> Tensor:
    """Return the running sums along an axis."""
    _expect_type(dtype)
    return x.cumsum(dim)


def _softmax_function(op: Softmax | LogSoftmax) -> Function:
    """Return the function of a softmax or its logarithm."""

    def softmax(x: Tensor, dim: int, half_to_float: bool = False, dtype: int | None = None) -> Tensor:
        _expect_type(dtype)
        return x.softmax(dim, op=op)

    return softmax


def _movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Return the value with some axes at other places, and all others between these in their order: a map
    N×C×H×W with axis 1 moved to 3 is N×H×W×C.
    """
    sources, destinations = (
        [position_of(axis, x.rank) for axis in _as_list(axes)] for axes in (source, destination)
    )
    unmoved_axes = iter(axis for axis in range(x.rank) if axis not in sources)
    source_of = dict(zip(destinations, sources, strict=True))
    order = [source_of[axis] if axis in source_of else next(unmoved_axes) for axis in range(x.rank)]
    return x.transpose(order)


@dataclass(frozen=True, kw_only=True)
class _Upsample(Call):
    """An upsampling by scales, which hold where they are stated, or at a size."""

    x: Tensor
    output_size: Sequence[Dim] = ()
    scale_factors: Sequence[float] = ()
    align_corners: bool = False
    scales_h: float | None = None
    scales_w: float | None = None

    def read(self) -> Tensor:
        """Return the upsampled map, by scales where both are stated, otherwise to a size. Unsupported where
        torch's rounding would take other cells than porter's op.
        """
        name = self.x.scope.node.op
        op = _UPSAMPLES[name]
        if self.align_corners:
            op = replace(op, coordinates="align_corners")
        stated_scales = [*self.scale_factors]
        if not stated_scales:
            stated_scales = [scale for scale in (self.scales_h, self.scales_w) if scale is not None]
        # Rows and columns are the axes 2 and 3.
        scales = dict(enumerate(stated_scales, 2)) if len(stated_scales) == 2 else {}
        target = {} if scales else dict(enumerate(self.output_size, 2))
        if len(scales or target) != 2:
            raise ValueError("neither scales nor sizes of rows and columns")
        if name.endswith("_aa") and (self.align_corners or self._shrinks(scales, target)):
            raise Unsupported("with antialias")
        # porter repeats each cell as often as every other, so torch has to do so too.
        if op == _NEAREST:
            for axis in (2, 3):
                _expect_equal_repetitions(scales.get(axis), target.get(axis), self.x.size(axis))
        return self.x.resize(op, scales, target)

    def _shrinks(self, scales: Mapping[int, float], target: Mapping[int, Dim]) -> bool:
        """Return whether there are fewer cells along an axis than before."""
        sizes = self.x.sizes
        fewer = any(size < sizes[axis] for axis, size in target.items())
        return fewer or any(scale < 1 for scale in scales.values())


def _expect_equal_repetitions(scale: float | None, target: Dim | None, size: Dim) -> None:
    """Raise Unsupported if torch's mode `nearest` repeats the cells of an axis, but not every one equally
    often.

    Args:
        scale: of the axis; None where its new size is stated.
        target: its new size; None where the scale is stated.
        size: its size before.
    """
    factor = scale or (None if target is None else ratio(target, size))
    if size != 1 and factor is not None and _moves_cells(factor):
        raise Unsupported(
            f"by {factor:g}, where torch's rounding moves cells: mode='nearest-exact' repeats all alike"
        )


_NEAREST = Resize("nearest", coordinates="asymmetric", rounding="floor")
_UPSAMPLES: Mapping[str, Resize] = {
    "upsample_nearest2d": _NEAREST,
    "_upsample_nearest_exact2d": Resize("nearest", rounding="round_prefer_ceil"),
    "upsample_bilinear2d": Resize("linear"),
    "upsample_bicubic2d": Resize("cubic"),
    "_upsample_bilinear2d_aa": Resize("linear"),
    "_upsample_bicubic2d_aa": Resize("cubic", a=-0.5, inside=True),
}
"""How each computes cells (aten/src/ATen/native/UpSample.h); with antialias, where the map gets no fewer."""


def _moves_cells(factor: float) -> bool:
    """Return whether torch does not repeat every cell equally often. Its mode `nearest` takes the cell
    floor(place * scale) in float32 (aten/src/ATen/native/UpSample.h), so that at 41, 47, 55 and others the
    first place of a cell rounds down to the cell before.
    """
    is_whole = factor == round(factor) >= 1
    return is_whole and bool(np.float32(factor) * np.float32(1 / factor) < 1)


VIEWS: Mapping[str, Function] = by_name(
    {
        **dict.fromkeys((*SAME, "to"), _pass_on),
        **dict.fromkeys(DROPOUTS, _dropout),
        "_unsafe_view view": lambda x, size: x.reshape(_as_list(size)),
        "reshape_as view_as": lambda x, other: x.reshape(other.sizes),
        "split split_with_sizes": _split,
        "chunk": _chunk,
        "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal((dim1, dim2), offset),
        "expand": lambda x, size: x.expand(_as_list(size)),
        "expand_as": lambda x, other: x.expand(other.sizes),
        "flatten": lambda x, start_dim=0, end_dim=-1: x.flatten(start_dim, end_dim),
        "mT": lambda x: _swap_axes(x, -2, -1),
        "movedim": _movedim,
        "narrow": _narrow,
        "permute": lambda x, dims: x.transpose(dims),
        "reshape": lambda x, shape: x.reshape(_as_list(shape)),
        "select": lambda x, dim, index: x.cut({dim: int(index)}),
        "slice": lambda x, dim=0, start=None, end=None, step=None: x.cut({dim: slice(start, end, step)}),
        "squeeze": _squeeze,
        "swapaxes": lambda x, axis0, axis1: _swap_axes(x, axis0, axis1),
        "numpy_T t": lambda x: x.transpose(range(x.rank)[::-1]),
        "transpose": lambda x, dim0, dim1: _swap_axes(x, dim0, dim1),
        "unbind": lambda x, dim=0: x.split(dim, [1] * x.scope.node.outputs, keep=False),
        "unflatten": _unflatten,
        "unfold": lambda x, dimension, size, step: x.windows(dimension, fixed_sizes([size, step])),
        "unsqueeze": lambda x, dim: x.unsqueeze([dim]),
    }
)
"""Ops whose values may be the memory of what they take."""
FUNCTIONS: Mapping[str, Function] = by_name(
    {
        **VIEWS,
        **dict.fromkeys((*COPIES, "_to_copy"), _pass_on),
        "cat concat": lambda tensors, dim=0: concat(tensors, dim),
        "constant_pad_nd pad": _pad,
        "log_softmax _log_softmax": _softmax_function(LogSoftmax()),
        "softmax _softmax": _softmax_function(Softmax()),
        **dict.fromkeys(_UPSAMPLES, _Upsample),
        "amax": _reduction_function("max"),
        "amin": _reduction_function("min"),
        "cumsum": _cumsum,
        "flip": lambda x, dims: x.flip(dims),
        "glu": lambda x, dim=-1: functions.glu(x, dim),
        "index": _index,
        "index_select": lambda x, dim, index: x.gather(dim, index.integers()),
        "linalg_vector_norm": _vector_norm,
        "logsumexp": lambda x, dim, keepdim=False: functions.log_sum_exp(x, dim, keepdim),
        "max": _extremum_function("max", maximum),
        "mean": _reduction_function("mean"),
        "min": _extremum_function("min", minimum),
        "pixel_unshuffle": lambda x, downscale_factor: x.cells_as_channels(downscale_factor, outer=True),
        "prod": _prod,
        "reflection_pad2d": lambda x, padding: _pad(x, padding, "reflect"),
        "repeat": _repeat,
        "repeat_interleave": _repeat_interleave,
        "replication_pad2d": lambda x, padding: _pad(x, padding, "replicate"),
        "roll": _roll,
        "rot90": lambda x, k=1, dims=(0, 1): x.rot90((dims[0], dims[1]), k),
        "stack": lambda tensors, dim=0: stack(tensors, dim),
        "std": _std,
        "std_mean": _with_mean(_std),
        "sum": _reduction_function("sum"),
        "tile": lambda x, dims: _repeat(x, [*[1] * (x.rank - len(dims)), *dims]),
        "tril": lambda x, diagonal=0: functions.band_part(x, None, diagonal),
        "triu": lambda x, diagonal=0: functions.band_part(x, diagonal, None),
        "var": _var,
        "var_mean": _with_mean(_var),
        "zeros_like": lambda x, dtype=None: Zeros(x.sizes),
    }
)
