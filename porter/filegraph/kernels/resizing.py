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
    """Resize an axis to so many cells; `scale` says how many times as long it is, which the places depend
    on.

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
    around = before[:, None] + np.arange(1 - reach, 1 + reach)
    away = np.abs(places[:, None] - around)
    shares = 1 - away if reach == 1 else _cubic(away, rule.a)
    if rule.inside:
        shares = shares * ((around >= 0) & (around < count))
        shares /= shares.sum(1, keepdims=True)
    # the shape in which a number for each cell is broadcast along the axis
    along_axis = (-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    parts = [
        np.take(x, cells_taken, axis) * share.reshape(along_axis)
        for cells_taken, share in zip(around.T.clip(0, count - 1), shares.T, strict=True)
    ]
    resized: Numbers = np.sum(parts, 0)
    return resized


def _source_places(source_cells: int, target_cells: int, scale: float, coordinates: str) -> Numbers:
    """Return the place in the source of each target cell."""
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


def _cubic(away: Numbers, a: float) -> Numbers:
    """Return the weights of cells by their distance, below 1 and from there to 2: Keys's polynomials."""
    near = ((a + 2) * away - (a + 3)) * away**2 + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    weights: Numbers = np.where(away <= 1, near, far)
    return weights
