"""A plain loop over windows: what a convention means, written without padding arithmetic of torch's."""

from __future__ import annotations

import numpy as np

from porter.padding import LOWEST, Site, row
from tests.support.arrays import Array
from tests.support.padding.windows import divisors


def run_site(site: Site, x: Array, kernel: Array | None = None) -> Array:
    """One windowed layer over N×C×H×W in float64; `kernel` is O×I×k×k for a convolution."""
    window, convention = site.window, site.convention
    rows, columns = (row(convention, window, axis, x.shape[2 + axis]) for axis in (0, 1))
    down, across = (divisors(convention, window, axis, x.shape[2 + axis]) for axis in (0, 1))
    channels = x.shape[1] if kernel is None else kernel.shape[0]
    out = np.empty((x.shape[0], channels, rows.count, columns.count))
    for i in range(rows.count):
        for j in range(columns.count):
            cells = _cells(x, site, rows.start + i * window.stride[0], columns.start + j * window.stride[1])
            if kernel is not None:
                out[:, :, i, j] = np.einsum("ncyx,ocyx->no", cells, kernel)
            elif site.kind == "max_pool":
                out[:, :, i, j] = cells.max(axis=(2, 3))
            else:
                out[:, :, i, j] = cells.sum(axis=(2, 3)) / (down[i] * across[j])
    return out


def _cells(x: Array, site: Site, top: int, left: int) -> Array:
    window = site.window
    fill = site.convention.fill if site.kind == "max_pool" else 0.0
    cells = np.full((*x.shape[:2], *window.kernel), LOWEST if fill == LOWEST else 0.0)
    for y in range(window.kernel[0]):
        for z in range(window.kernel[1]):
            r, c = top + y * window.dilation[0], left + z * window.dilation[1]
            if 0 <= r < x.shape[2] and 0 <= c < x.shape[3]:
                cells[:, :, y, z] = x[:, :, r, c]
    return cells
