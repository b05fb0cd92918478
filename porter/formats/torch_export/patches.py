"""ATen's patches of a map (porter.filegraph.tensors.patches): im2col and col2im."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from porter.filegraph.layers import symmetric_pads
from porter.filegraph.layouts.dims import Dim
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.torch_export.op_readers import AtenFunction, Call
from porter.padding import Pads, Window

Pair = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class _Im2col(Call):
    """The patches of a map, as an array of one column for each place of a window."""

    x: Tensor
    kernel_size: Pair
    dilation: Pair
    padding: Pair
    stride: Pair

    @property
    def windows(self) -> tuple[Window, Pads]:
        """Return the window of patches, and the zeros around the map."""
        kernel, stride, dilation, padding = (
            (numbers[0], numbers[-1])
            for numbers in (self.kernel_size, self.stride, self.dilation, self.padding)
        )
        return Window(kernel, stride, dilation), symmetric_pads(padding)

    def read(self) -> Tensor:
        return self.x.patches(*self.windows)


@dataclass(frozen=True, kw_only=True)
class _Col2im(_Im2col):
    """The map that the patches of a map add up to."""

    output_size: Sequence[Dim]

    def read(self) -> Tensor:
        return self.x.map_of_patches(self.output_size, self.windows)


FUNCTIONS: Mapping[str, AtenFunction] = {"col2im": _Col2im, "im2col": _Im2col}
