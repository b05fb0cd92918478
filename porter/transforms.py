"""The closed list of what a recipe may have done to a tensor beyond its framework's axis order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from porter.dtypes import Array
from porter.errors import MappingError


def _drop_background(role: str, array: Array) -> Array:
    """A head without its first row: ImageNet's 1000 classes after a background class (tensorflow/models#2383).

    There is no way back: the row is gone.
    """
    if array.shape[0] < 2:
        raise MappingError(f"a head of {array.shape[0]} rows has no background row to drop from its {role}")
    return array[1:]


def _conv1x1_to_dense(role: str, array: Array) -> Array:
    """The kernel of a head that is a 1x1 convolution in the source, (units, features, 1, 1), as a dense one."""
    return array.reshape(array.shape[:2]) if role == "kernel" else array


TRANSFORMS: Mapping[str, Callable[[str, Array], Array]] = {
    "conv1x1_to_dense": _conv1x1_to_dense,
    "drop_background": _drop_background,
}


def apply_transforms(names: tuple[str, ...], role: str, array: Array) -> Array:
    """A canonical array (porter.graph.tensor_shapes) after the named transforms, in order."""
    for name in names:
        array = TRANSFORMS[name](role, array)
    return array
