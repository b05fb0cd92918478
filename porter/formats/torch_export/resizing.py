"""ATen's pads and upsamplings, which give a map more cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Dim, ratio
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.torch_export.op_readers import AtenFunction, Call
from porter.graph import Resize
from porter.graph.ops import Mode

_MODES: Mapping[str, Mode] = {
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}


def _pad(x: Tensor, pad: Sequence[Dim], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Return the value with cells before and after those of axes: one number, or the map's own cells.

    Args:
        pad: two numbers for each axis, from the last one on: (1, 2, 3, 4) adds a column before and two
            behind, three rows before and four behind.
    """
    pairs = {-1 - pair: (pad[2 * pair], pad[2 * pair + 1]) for pair in range(len(pad) // 2)}
    return x.extend(pairs, _MODES[mode]) if mode in _MODES else x.pad(pairs, float(value))


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


FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        **dict.fromkeys(_UPSAMPLES, _Upsample),
        "constant_pad_nd pad": _pad,
        "reflection_pad2d": lambda x, padding: _pad(x, padding, "reflect"),
        "replication_pad2d": lambda x, padding: _pad(x, padding, "replicate"),
    }
)
