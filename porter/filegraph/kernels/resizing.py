"""Maps with other cells, by ONNX's rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from porter.base.dtypes import Numbers


@dataclass(frozen=True)
class Rule:
    """What ONNX's Resize states (onnx/defs/tensor/defs.cc). `inside`: cells beyond the map have no share."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    a: float = -0.75
    inside: bool = False


def resize(x: Numbers, axis: int, cells: int, scale: float, rule: Rule) -> Numbers:
    """Resize an axis to so many cells. `scale` says how many times as long it becomes, which ONNX's rules
    compute the places of cells by.

    Raises:
        NotImplementedError: the mode or the coordinates are others.
    """
    count = x.shape[axis]
    places = _source_places(count, cells, scale, rule.coordinates)
    if rule.mode == "nearest":
        return np.take(x, _nearest(places, rule.nearest).astype(int).clip(0, count - 1), axis)
    before = np.floor(places).astype(int)
    reach = {"linear": 1, "cubic": 2}.get(rule.mode)  # cells on each side that have a share
    if reach is None:
        raise NotImplementedError(f"a resize by {rule.mode}")
    # for each new cell a row: the old cells around its place, and their weights
    neighbours = before[:, None] + np.arange(1 - reach, 1 + reach)
    distances = np.abs(places[:, None] - neighbours)
    weights = 1 - distances if reach == 1 else _cubic(distances, rule.a)
    if rule.inside:
        weights = weights * ((neighbours >= 0) & (neighbours < count))
        weights /= weights.sum(1, keepdims=True)
    # the shape in which a number for each cell is broadcast along the axis
    axes_behind = x.ndim - 1 - axis % x.ndim
    along_axis = (-1, *[1] * axes_behind)
    weighted = [
        np.take(x, neighbour, axis) * weight.reshape(along_axis)
        for neighbour, weight in zip(neighbours.T.clip(0, count - 1), weights.T, strict=True)
    ]
    resized: Numbers = np.sum(weighted, 0)
    return resized


def _source_places(source_cells: int, target_cells: int, scale: float, coordinates: str) -> Numbers:
    """Return for each cell of the resized axis its place on the old one, by ONNX's rule `coordinates`: cell 3
    of an axis that is twice as long has the place 1.25 by `half_pixel`, and 1.5 by `asymmetric`.
    """
    cells = np.arange(target_cells, dtype=np.float64)
    match coordinates:
        case "align_corners":
            return cells * ((source_cells - 1) / max(target_cells - 1, 1))
        case "asymmetric":
            return cells / scale
        case "tf_half_pixel_for_nn":
            return (cells + 0.5) / scale
        case "pytorch_half_pixel" if target_cells == 1:
            return cells
        # The cells that a fraction of the scale leaves out are taken from both ends.
        case "half_pixel_symmetric":
            left_out = 1 - target_cells / (scale * source_cells)
            return source_cells / 2 * left_out + (cells + 0.5) / scale - 0.5
        case "half_pixel" | "pytorch_half_pixel":
            return (cells + 0.5) / scale - 0.5
    raise NotImplementedError(f"a resize by {coordinates}")


def _nearest(places: Numbers, rule: str) -> Numbers:
    """Round each place to the nearest cell, by ONNX's rule for ties."""
    rounded: dict[str, Numbers] = {
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
    }
    return rounded[rule]


def _cubic(distances: Numbers, a: float) -> Numbers:
    """Return the weights of cells in a cubic resize by their distances, by Keys's two polynomials: one up to
    a distance of 1, the other from there to 2.
    """
    up_to_1 = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    up_to_2 = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    weights: Numbers = np.where(distances <= 1, up_to_1, up_to_2)
    return weights
