"""Keras's norms, and what else has a number for each cell of some axes, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from porter.base.dtypes import Float64Array
from porter.filegraph.dims import Dim, sizes_text
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.functions import divide_by_norm
from porter.filegraph.places import position_of
from porter.filegraph.tensor import Tensor
from porter.formats.keras.layer import KerasLayer, axes_in, count, number
from porter.formats.keras.scaling import constant, normalising, statistics
from porter.graph import ops

_LEAST_NORM = 1e-12
"""UnitNormalization's bound (keras/src/layers/normalization/unit_normalization.py, `call`)."""


def read_batch_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """A BatchNormalization with stored statistics."""
    if layer.arguments.get("renorm"):
        raise Unsupported("with renorm")
    if layer.arguments.get("mode", 0) != 0:
        raise Unsupported(f"in Keras 1's mode {layer.arguments['mode']!r:.20}")
    tensors = _trained(layer)
    tensors |= {"mean": layer.stored("moving_mean"), "variance": layer.stored("moving_variance")}
    # Rounded, because 1 - 0.999 is not 0.001 in binary.
    momentum = round(1 - number(layer.arguments.get("momentum", 0.99)), 12)
    op = ops.BatchNorm(number(layer.arguments["epsilon"]), momentum, "gamma" in tensors, "beta" in tensors)
    return x.apply_along(_axis(layer, x), op, tensors, of_map=True)


def read_layer_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """A norm over any axes, of which several are one in porter. One without numbers of its own over all axes
    but one, such as the rows and columns of a map, is a norm of groups, which takes open sizes.
    """
    if layer.arguments.get("rms_scaling"):
        raise Unsupported("with rms_scaling")
    epsilon = number(layer.arguments["epsilon"])
    axes = axes_in(layer, x)
    tensors = _trained(layer)
    if not tensors and (groups := x.normed_groups(axes)):
        return x.apply_elementwise(ops.GroupNorm(groups, epsilon, False, False))
    return x.apply_along(axes, ops.LayerNorm(epsilon, "gamma" in tensors, "beta" in tensors), tensors)


def read_rms_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """A norm over the last axes: Keras multiplies these by the scales of any others (keras/src/ops/nn.py,
    `_rms_normalization`).
    """
    axes = axes_in(layer, x)
    if sorted(position_of(axis, x.rank) for axis in axes) != [*range(x.rank - len(axes), x.rank)]:
        raise Unsupported(f"over the axes {axes!r:.40}")
    op = ops.RmsNorm(number(layer.arguments["epsilon"]))
    return x.apply_along(axes, op, {"gamma": layer.stored("scale")})


def read_group_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """A GroupNormalization; -1 groups are one for each channel."""
    axes = _axis(layer, x)
    tensors = _trained(layer)
    groups_argument = layer.arguments["groups"]
    if not x.walk.views.has_batch_first(x.view):
        raise Unsupported("over the batch")
    groups = count(x.size(*axes) if groups_argument == -1 else groups_argument)
    op = ops.GroupNorm(groups, number(layer.arguments["epsilon"]), "gamma" in tensors, "beta" in tensors)
    return x.apply_along(axes, op, tensors, of_map=True)


def read_unit_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    return divide_by_norm(x, 2, axes_in(layer, x), _LEAST_NORM)


def _trained(layer: KerasLayer) -> dict[str, Stored]:
    is_trained = {"gamma": layer.flag("scale"), "beta": layer.flag("center")}
    return {name: layer.stored(name) for name, needed in is_trained.items() if needed}


def _axis(layer: KerasLayer, x: Tensor) -> list[int]:
    axes = axes_in(layer, x)
    if len(axes) != 1:
        raise Unsupported(f"over the axes {axes!r:.40}")
    return axes


def read_prelu(layer: KerasLayer, x: Tensor) -> Tensor:
    """Slopes with cells of their own along some axes, which together are the channels of porter's op; one
    slope is that of a leaky ReLU.
    """
    alpha = layer.stored("alpha")
    slopes = layer.arrays["alpha"]
    sizes = x.sizes
    wide = [axis for axis, size in enumerate(slopes.shape, 1) if size != 1]
    if len(slopes.shape) != len(sizes) - 1 or any(sizes[axis] != slopes.shape[axis - 1] for axis in wide):
        raise Unsupported(f"of slopes {'x'.join(map(str, slopes.shape))} for {sizes_text(sizes[1:])}")
    if not wide and x.value.channels != 1:
        return x.apply_elementwise(ops.LeakyRelu(number(float(slopes.ravel()[0]))))
    return x.apply_along(wide or [-1], ops.PRelu(), {"alpha": alpha}, of_map=True)


def read_rescaling(layer: KerasLayer, x: Tensor) -> Tensor:
    scale = constant(layer.arguments["scale"])
    offset = constant(layer.arguments.get("offset", 0.0))
    if scale is None or offset is None:
        raise Unsupported("by something that is not one number per channel")
    return _affine(x, scale, offset)


def read_normalization(layer: KerasLayer, x: Tensor) -> Tensor:
    """A normalisation by numbers along some axes, in the order of these."""
    axis_argument = layer.arguments.get("axis", -1)
    sizes = x.sizes
    places = (
        [] if axis_argument in (None, []) else sorted(position_of(axis, x.rank) for axis in axes_in(layer, x))
    )
    moments = statistics(layer.arguments, layer.arrays)
    if moments is None or 0 in places:
        raise Unsupported("without one mean and variance per channel")
    scale, offset = (
        _laid(each, sizes, places) for each in normalising(*moments, bool(layer.arguments.get("invert")))
    )
    if scale is None or offset is None:
        raise Unsupported(f"over axis {axis_argument!r:.40}")
    return _affine(x, scale, offset, {variable: Stored(name) for variable, name in layer.tensors.items()})


def _laid(numbers: Float64Array, sizes: tuple[Dim, ...], places: Collection[int]) -> Float64Array | None:
    """Numbers for the cells of these axes with the axes of a tensor behind its batch; None where they are of
    another number.
    """
    wide = [size if axis in places else 1 for axis, size in enumerate(sizes)][1:]
    sizes_known = [size for size in wide if isinstance(size, int)]
    if numbers.size == 1:
        return numbers.reshape(-1)
    if len(sizes_known) < len(wide) or math.prod(sizes_known) != numbers.size:
        return None
    return (
        numbers.reshape(sizes_known)
        if len(places) > 1 or {*places} != {len(sizes) - 1}
        else numbers.reshape(-1)
    )


def _affine(
    x: Tensor, scale: Float64Array, offset: Float64Array, tensors: Mapping[str, Stored] | None = None
) -> Tensor:
    """x * scale + offset, by numbers along the last axes."""
    if x.walk.views.axis_names(x.walk.try_lay_out(x.source)) and scale.ndim == offset.ndim == 1:
        return x.affine(scale, offset, tensors)
    return x * x.scope.constant(scale) + x.scope.constant(offset)
