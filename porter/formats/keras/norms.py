"""Keras's norms, and what else has a number for each cell of some axes, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from porter.filegraph.arithmetic import combine_constant
from porter.filegraph.dims import Dim, text
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.places import place_of
from porter.filegraph.reductions import over_norm
from porter.filegraph.walk import Read, apply
from porter.formats.keras.layer import Layer, axes_in, count, number
from porter.formats.keras.scaling import Numbers, constant, normalising, statistics
from porter.graph import ops

_LEAST_NORM = 1e-12
"""UnitNormalization's bound (keras/src/layers/normalization/unit_normalization.py, `call`)."""


def read_batch_norm(layer: Layer) -> Read:
    if layer.arguments.get("renorm"):
        raise Unsupported("with renorm")
    if layer.arguments.get("mode", 0) != 0:
        raise Unsupported(f"in Keras 1's mode {layer.arguments['mode']!r:.20}")
    tensors = _trained(layer) | {
        "mean": layer.tensor("moving_mean"),
        "variance": layer.tensor("moving_variance"),
    }
    # Rounded, because 1 - 0.999 is not 0.001 in binary.
    momentum = round(1 - number(layer.arguments.get("momentum", 0.99)), 12)
    op = ops.BatchNorm(number(layer.arguments["epsilon"]), momentum, "gamma" in tensors, "beta" in tensors)
    return layer.along(_axis(layer), op, tensors, of_map=True)


def read_layer_norm(layer: Layer) -> Read:
    """A norm over any axes, of which several are one in porter. One without numbers of its own over all axes
    but one, such as the rows and columns of a map, is a norm of groups, which takes open sizes.
    """
    if layer.arguments.get("rms_scaling"):
        raise Unsupported("with rms_scaling")
    epsilon, axes, tensors = number(layer.arguments["epsilon"]), axes_in(layer), _trained(layer)
    view = layer.walk.kept(layer.source)
    groups = layer.walk.views.normed_groups(view, axes) if not tensors and view.value.is_map else None
    if groups:
        op = ops.GroupNorm(groups, epsilon, False, False)
        return layer.walk.views.like(view, layer.build.add(layer.name, op, view.value))
    return layer.along(axes, ops.LayerNorm(epsilon, "gamma" in tensors, "beta" in tensors), tensors)


def read_rms_norm(layer: Layer) -> Read:
    """A norm over the last axes: Keras multiplies these by the scales of any others (keras/src/ops/nn.py,
    `_rms_normalization`).
    """
    axes, rank = axes_in(layer), len(layer.walk.sizes(layer.source) or ())
    if sorted(place_of(axis, rank) for axis in axes) != [*range(rank - len(axes), rank)]:
        raise Unsupported(f"over the axes {axes!r:.40}")
    return layer.along(
        axes, ops.RmsNorm(number(layer.arguments["epsilon"])), {"gamma": layer.tensor("scale")}
    )


def read_group_norm(layer: Layer) -> Read:
    view, axes, tensors = layer.walk.kept(layer.source), _axis(layer), _trained(layer)
    if not layer.walk.views.of_each_image(view):
        raise Unsupported("over the batch")
    stated, channels = layer.arguments["groups"], view.size(*axes)
    groups = count(channels if stated == -1 else stated)
    op = ops.GroupNorm(groups, number(layer.arguments["epsilon"]), "gamma" in tensors, "beta" in tensors)
    return layer.along(axes, op, tensors, of_map=True)


def read_unit_norm(layer: Layer) -> Read:
    return over_norm(layer.walk, layer, layer.source, axes_in(layer), _LEAST_NORM)


def _trained(layer: Layer) -> dict[str, Stored]:
    stated = {"gamma": layer.flag("scale"), "beta": layer.flag("center")}
    return {name: layer.tensor(name) for name, needed in stated.items() if needed}


def _axis(layer: Layer) -> list[int]:
    axes = axes_in(layer)
    if len(axes) != 1:
        raise Unsupported(f"over the axes {axes!r:.40}")
    return axes


def read_prelu(layer: Layer) -> Read:
    """Slopes with cells of their own along some axes, which together are the channels of porter's op; one
    slope is that of a leaky ReLU.
    """
    alpha, slopes = layer.tensor("alpha"), layer.arrays["alpha"]
    wide, sizes = (
        [place for place, size in enumerate(slopes.shape, 1) if size != 1],
        layer.walk.sizes(layer.source) or (),
    )
    if len(slopes.shape) != len(sizes) - 1 or any(sizes[place] != slopes.shape[place - 1] for place in wide):
        raise Unsupported(f"of slopes {'x'.join(map(str, slopes.shape))} for {text(sizes[1:])}")
    if not wide and layer.walk.kept(layer.source).value.channels != 1:
        return apply(layer.walk, layer, layer.source, ops.LeakyRelu(number(float(slopes.ravel()[0]))))
    return layer.along(wide or [-1], ops.PRelu(), {"alpha": alpha}, of_map=True)


def read_rescaling(layer: Layer) -> Read:
    scale, offset = constant(layer.arguments["scale"]), constant(layer.arguments.get("offset", 0.0))
    if scale is None or offset is None:
        raise Unsupported("by something that is not one number per channel")
    return _affine(layer, scale, offset)


def read_normalization(layer: Layer) -> Read:
    """A normalisation by numbers along some axes, in the order of these."""
    stated, sizes = layer.arguments.get("axis", -1), layer.walk.sizes(layer.source) or ()
    places = [] if stated in (None, []) else sorted(place_of(axis, len(sizes)) for axis in axes_in(layer))
    found = statistics(layer.arguments, layer.arrays)
    if found is None or 0 in places:
        raise Unsupported("without one mean and variance per channel")
    scale, offset = (
        _laid(each, sizes, places) for each in normalising(*found, bool(layer.arguments.get("invert")))
    )
    if scale is None or offset is None:
        raise Unsupported(f"over axis {stated!r:.40}")
    return _affine(layer, scale, offset, {variable: Stored(name) for variable, name in layer.tensors.items()})


def _laid(numbers: Numbers, sizes: tuple[Dim, ...], places: Collection[int]) -> Numbers | None:
    """Numbers for the cells of these axes with the axes of a tensor behind its batch; None where they are of
    another number.
    """
    wide = [size if place in places else 1 for place, size in enumerate(sizes)][1:]
    known = [size for size in wide if isinstance(size, int)]
    if numbers.size == 1:
        return numbers.reshape(-1)
    if len(known) < len(wide) or math.prod(known) != numbers.size:
        return None
    return numbers.reshape(known) if len(places) > 1 or {*places} != {len(sizes) - 1} else numbers.reshape(-1)


def _affine(
    layer: Layer, scale: Numbers, offset: Numbers, tensors: Mapping[str, Stored] | None = None
) -> Read:
    """x * scale + offset, by numbers along the last axes."""
    view = layer.walk.kept(layer.source)
    if layer.walk.views.names(view) and scale.ndim == offset.ndim == 1:
        return layer.build.affine(layer.name, layer.input, scale, offset, tensors=tensors)
    by, plus = (
        layer.walk.flow.stated(f"{layer.name}:{what}", each)
        for what, each in (("scale", scale), ("offset", offset))
    )
    scaled = combine_constant(layer.walk, replace(layer, name=f"{layer.name}:scaled"), "Mul", view, by)
    return combine_constant(layer.walk, layer, "Add", scaled, plus)
