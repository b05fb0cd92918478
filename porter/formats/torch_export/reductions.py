"""What ATen computes along axes of tensors: sums and extremes, spreads, norms and softmaxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import maximum, minimum
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.torch_export.constants import REALS, type_name
from porter.formats.torch_export.op_readers import AtenFunction, as_list
from porter.graph import LogSoftmax, Softmax


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


def _with_mean(spread: Callable[..., Tensor]) -> AtenFunction:
    """Return the function of var_mean or std_mean: the spread along axes, and the mean."""

    @wraps(spread)
    def spread_and_mean(x: Tensor, **arguments: Any) -> list[Tensor]:
        return [
            spread(x, **arguments),
            x.mean(_axes(x, arguments.get("dim")), arguments.get("keepdim", False)),
        ]

    return spread_and_mean


def _axes(x: Tensor, dim: Any) -> Sequence[int]:
    """Return the axes of a reduction; a constant may be reduced over all of them.

    Raises:
        Unsupported: they are all axes of a value, the batch's among them.
    """
    if dim in ([], (), None) and x.array is None:
        raise Unsupported("of all images together")
    return range(x.rank) if dim in ([], (), None) else as_list(dim)


def _expect_type(dtype: int | None) -> None:
    """Raise Unsupported for a type that rounds."""
    if dtype not in REALS:
        raise Unsupported(f"in {type_name(dtype)}")


def _reduction_function(function: Reduction) -> AtenFunction:
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


def _extremum_function(function: Reduction, of_two: Callable[[Tensor, Tensor], Tensor]) -> AtenFunction:
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


def _softmax_function(op: Softmax | LogSoftmax) -> AtenFunction:
    """Return the function of a softmax or its logarithm."""

    def softmax(x: Tensor, dim: int, half_to_float: bool = False, dtype: int | None = None) -> Tensor:
        _expect_type(dtype)
        return x.softmax(dim, op=op)

    return softmax


FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        "log_softmax _log_softmax": _softmax_function(LogSoftmax()),
        "softmax _softmax": _softmax_function(Softmax()),
        "amax": _reduction_function("max"),
        "amin": _reduction_function("min"),
        "cumsum": _cumsum,
        "linalg_vector_norm": _vector_norm,
        "logsumexp": lambda x, dim, keepdim=False: functions.log_sum_exp(x, dim, keepdim),
        "max": _extremum_function("max", maximum),
        "mean": _reduction_function("mean"),
        "min": _extremum_function("min", minimum),
        "prod": _prod,
        "std": _std,
        "std_mean": _with_mean(_std),
        "sum": _reduction_function("sum"),
        "var": _var,
        "var_mean": _with_mean(_var),
    }
)
