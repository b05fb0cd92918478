"""Keras's norms, and what else has a number for each cell of some axes, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from porter.base.dtypes import Float64Array
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layouts.dims import Dim, sizes_text
from porter.filegraph.places import position_of
from porter.filegraph.tensors.functions import divide_by_norm
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.scaling import channel_numbers, normalising, statistics
from porter.formats.keras.stated_layer import KerasLayer, axes_in, count, number
from porter.graph import ops

_LEAST_NORM = 1e-12
"""UnitNormalization's bound (keras/src/layers/normalization/unit_normalization.py, `call`)."""


def read_batch_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a BatchNormalization with stored statistics."""
    if layer.arguments.get("renorm"):
        raise Unsupported("with renorm")
    if layer.arguments.get("mode", 0) != 0:
        raise Unsupported(f"in Keras 1's mode {layer.arguments['mode']!r:.20}")
    tensors = _trained_tensors(layer)
    tensors |= {"mean": layer.stored("moving_mean"), "variance": layer.stored("moving_variance")}
    # Rounded, because 1 - 0.999 is not 0.001 in binary.
    momentum = round(1 - number(layer.arguments.get("momentum", 0.99)), 12)
    op = ops.BatchNorm(number(layer.arguments["epsilon"]), momentum, "gamma" in tensors, "beta" in tensors)
    return x.apply_along(_only_axis(layer, x), op, tensors, of_map=True)


def read_layer_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a norm over any axes; several are one in porter. A norm without numbers of its own
    over all axes but one, such as the rows and columns of a map, is a norm of groups, which takes open sizes.
    """
    if layer.arguments.get("rms_scaling"):
        raise Unsupported("with rms_scaling")
    epsilon = number(layer.arguments["epsilon"])
    axes = axes_in(layer, x)
    tensors = _trained_tensors(layer)
    # `normed_groups` gives None where the axes are no groups of channels.
    if not tensors and (groups := x.normed_groups(axes)):
        return x.apply_elementwise(ops.GroupNorm(groups, epsilon, False, False))
    return x.apply_along(axes, ops.LayerNorm(epsilon, "gamma" in tensors, "beta" in tensors), tensors)


def read_rms_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an RMSNormalization over the last axes. Over others it is Unsupported, because
    Keras multiplies the last axes by the scales even then (keras/src/ops/nn.py, `_rms_normalization`).
    """
    axes = axes_in(layer, x)
    if sorted(position_of(axis, x.rank) for axis in axes) != [*range(x.rank - len(axes), x.rank)]:
        raise Unsupported(f"over the axes {axes!r:.40}")
    op = ops.RmsNorm(number(layer.arguments["epsilon"]))
    return x.apply_along(axes, op, {"gamma": layer.stored("scale")})


def read_group_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a GroupNormalization; -1 groups are one for each channel."""
    axes = _only_axis(layer, x)
    tensors = _trained_tensors(layer)
    groups_argument = layer.arguments["groups"]
    if not x.walk.views.has_batch_first(x.view):
        raise Unsupported("over the batch")
    groups = count(x.size(*axes) if groups_argument == -1 else groups_argument)
    op = ops.GroupNorm(groups, number(layer.arguments["epsilon"]), "gamma" in tensors, "beta" in tensors)
    return x.apply_along(axes, op, tensors, of_map=True)


def read_unit_norm(layer: KerasLayer, x: Tensor) -> Tensor:
    return divide_by_norm(x, 2, axes_in(layer, x), _LEAST_NORM)


def _trained_tensors(layer: KerasLayer) -> dict[str, Stored]:
    """Return the scale (`gamma`) and the offset (`beta`) that a norm was trained with, as far as it states
    that it has them.
    """
    is_trained = {"gamma": layer.flag("scale"), "beta": layer.flag("center")}
    return {name: layer.stored(name) for name, needed in is_trained.items() if needed}


def _only_axis(layer: KerasLayer, x: Tensor) -> list[int]:
    """Return the only axis that a norm is along, as a list of one.

    Raises:
        Unsupported: it is along several.
    """
    axes = axes_in(layer, x)
    if len(axes) != 1:
        raise Unsupported(f"over the axes {axes!r:.40}")
    return axes


def read_prelu(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a PReLU. Its slopes have cells of their own along some axes, which together are the
    channels of porter's op; one slope for all numbers is that of a leaky ReLU.
    """
    alpha = layer.stored("alpha")
    slopes = layer.arrays["alpha"]
    sizes = x.sizes
    # Axes are counted with the batch, which the slopes do not have.
    axes = [axis for axis, size in enumerate(slopes.shape, 1) if size != 1]
    if len(slopes.shape) != len(sizes) - 1 or any(sizes[axis] != slopes.shape[axis - 1] for axis in axes):
        raise Unsupported(f"of slopes {'x'.join(map(str, slopes.shape))} for {sizes_text(sizes[1:])}")
    # One slope for all numbers.
    if not axes and x.value.channels != 1:
        return x.apply_elementwise(ops.LeakyRelu(number(float(slopes.ravel()[0]))))
    return x.apply_along(axes or [-1], ops.PRelu(), {"alpha": alpha}, of_map=True)


def read_rescaling(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a Rescaling by a number, or by one per channel."""
    scale = channel_numbers(layer.arguments["scale"])
    offset = channel_numbers(layer.arguments.get("offset", 0.0))
    if scale is None or offset is None:
        raise Unsupported("by something that is not one number per channel")
    return _affine(x, scale, offset)


def read_normalization(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a Normalization: `(x - mean) / deviation`, or its inverse, by numbers along some
    axes or for all numbers alike.
    """
    axis_argument = layer.arguments.get("axis", -1)
    sizes = x.sizes
    axes: list[int] = []
    # No axis: one mean and variance for all numbers.
    if axis_argument not in (None, []):
        axes = sorted(position_of(axis, x.rank) for axis in axes_in(layer, x))
    moments = statistics(layer.arguments, layer.arrays)
    if moments is None or 0 in axes:
        raise Unsupported("without one mean and variance per channel")
    coefficients = normalising(*moments, bool(layer.arguments.get("invert")))
    scale, offset = (_lay_along(numbers, sizes, axes) for numbers in coefficients)
    if scale is None or offset is None:
        raise Unsupported(f"over axis {axis_argument!r:.40}")
    return _affine(x, scale, offset, {variable: Stored(name) for variable, name in layer.tensors.items()})


def _lay_along(numbers: Float64Array, sizes: tuple[Dim, ...], axes: Collection[int]) -> Float64Array | None:
    """Return numbers for the cells of `axes` in a shape that broadcasts against a tensor of `sizes` without
    its batch; None where the cells are not as many. A single number, and numbers of the last axis, are one
    row: of N×2×3×C, two numbers along axis 1 become 2×1×1, and C numbers along the last axis stay C.
    """
    shape = [size if axis in axes else 1 for axis, size in enumerate(sizes)][1:]
    known = [size for size in shape if isinstance(size, int)]
    if numbers.size == 1:
        return numbers.reshape(-1)
    if len(known) < len(shape) or math.prod(known) != numbers.size:
        return None
    is_of_last_axis = len(axes) <= 1 and {*axes} == {len(sizes) - 1}
    return numbers.reshape(-1) if is_of_last_axis else numbers.reshape(known)


def _affine(
    x: Tensor, scale: Float64Array, offset: Float64Array, tensors: Mapping[str, Stored] | None = None
) -> Tensor:
    """Return x * scale + offset, by numbers along the last axes."""
    # One number per channel of a map or of features is one op; other numbers are arrays to multiply and add.
    if x.walk.views.axis_names(x.walk.layouts.operand(x.source)) and scale.ndim == offset.ndim == 1:
        return x.affine(scale, offset, tensors)
    return x * x.scope.constant(scale) + x.scope.constant(offset)
