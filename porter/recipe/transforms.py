"""The closed list of changes to an array between a file and a graph, besides its framework's axis order.

Each works on one role (`kernel`, `bias`, ...) of one node, on an array in porter's axis order: convolutions
(filters, channels / groups, rows, columns), dense kernels (units, features). A recipe names them beside a
tensor's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from porter.base.errors import MappingError

if TYPE_CHECKING:  # recipes are loaded by commands that need no numpy
    from porter.base.dtypes import Array


@dataclass(frozen=True)
class Transform:
    """A change of a file's array, and its inverse; both take the role.

    Attributes:
        inverse: None if something is lost.
        computes: whether kernels get other numbers, which are rounded when they are stored.
    """

    forward: Callable[[str, Array], Array]
    inverse: Callable[[str, Array], Array] | None
    computes: bool = False


def _conv1x1_to_dense(role: str, array: Array) -> Array:
    """Return a kernel (units, features, 1, 1) as (units, features). A matrix stays as it is: TensorFlow's
    reader squeezes heads.
    """
    if role != "kernel" or array.ndim == 2:
        return array
    if array.ndim != 4 or array.shape[2:] != (1, 1):
        raise MappingError(f"expected a 1x1 convolution, got a kernel of shape {array.shape}")
    return array[:, :, 0, 0]


def _dense_to_conv1x1(role: str, array: Array) -> Array:
    """Return a kernel (units, features) as (units, features, 1, 1)."""
    return array[:, :, None, None] if role == "kernel" and array.ndim == 2 else array


def _drop_background(role: str, array: Array) -> Array:
    """Return a head's array without row 0, which is the background class in TF-slim's models of 1001
    classes.
    """
    if array.shape[0] < 2:
        raise MappingError(f"expected classes besides the background, got a {role} of shape {array.shape}")
    return array[1:]


def _depthwise_to_grouped(role: str, array: Array) -> Array:
    """Return a ResNeXt kernel of keras-applications (width, groups * width, rows, columns) as the kernel of a
    grouped convolution: W[g * width + m, j] = D[m, g * width + j].

    The file has a depthwise convolution with `width` outputs per channel before a fixed sum over each group;
    the grouped convolution is both together.
    """
    if role != "kernel":
        return array
    if array.ndim != 4 or array.shape[1] % array.shape[0]:
        raise MappingError(
            f"expected (width, groups * width, rows, columns), got a kernel of shape {array.shape}"
        )
    width, channels, rows, columns = array.shape
    in_groups = array.reshape(width, channels // width, width, rows, columns)
    return in_groups.transpose(1, 0, 2, 3, 4).reshape(channels, width, rows, columns)


def _grouped_to_depthwise(role: str, array: Array) -> Array:
    """Return the kernel of a grouped convolution as that of a depthwise one, with as many filters for each
    channel: the inverse of `_depthwise_to_grouped`.
    """
    if role != "kernel":
        return array
    channels, width, rows, columns = array.shape
    in_groups = array.reshape(channels // width, width, width, rows, columns)
    return in_groups.transpose(1, 0, 2, 3, 4).reshape(width, channels, rows, columns)


def _standardize(epsilon: str) -> Transform:
    """Return the transform that gives each filter of a kernel the mean 0 and the variance 1, in float64; it
    cannot be undone.
    """

    def forward(role: str, array: Array) -> Array:
        if role != "kernel":
            return array
        import numpy as np

        filters = array.astype(np.float64)
        axes = tuple(range(1, array.ndim))
        deviations = np.sqrt(filters.var(axes, keepdims=True) + float(epsilon))
        return np.asarray((filters - filters.mean(axes, keepdims=True)) / deviations)

    forward.__doc__ = f"""(w - mean) / sqrt(variance + {epsilon}) over each filter w, in float64."""
    return Transform(forward, None, computes=True)


TRANSFORMS: Mapping[str, Transform] = {
    "conv1x1_to_dense": Transform(_conv1x1_to_dense, _dense_to_conv1x1),
    "dense_to_conv1x1": Transform(_dense_to_conv1x1, _conv1x1_to_dense),
    "drop_background": Transform(_drop_background, None),
    "depthwise_to_grouped": Transform(_depthwise_to_grouped, _grouped_to_depthwise),
    "standardized_1e-10": _standardize("1e-10"),
    "standardized_1e-8": _standardize("1e-8"),
}


def apply_transforms(names: Sequence[str], role: str, array: Array) -> Array:
    """Return a file's array, in porter's axis order, as the graph's tensor; a view where possible.

    Raises:
        MappingError: the transform does not fit an array of this shape.
    """
    for name in names:
        array = TRANSFORMS[name].forward(role, array)
    return array


def computes_numbers(names: Sequence[str], role: str) -> bool:
    """Return whether transforms give a tensor other numbers than the file's."""
    return role == "kernel" and any(TRANSFORMS[name].computes for name in names)


def undo_transforms(names: Sequence[str], role: str, array: Array) -> Array:
    """Return the array of a file for a graph's tensor: the inverse of `apply_transforms`.

    Raises:
        MappingError: a transform that cannot be undone.
    """
    for name in reversed(names):
        inverse = TRANSFORMS[name].inverse
        if inverse is None:
            raise MappingError(f"'{name}' cannot be undone")
        array = inverse(role, array)
    return array
