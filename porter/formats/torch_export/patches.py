"""ATen's patches of a map (porter.filegraph.patches): im2col and col2im."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.filegraph.dims import Dim
from porter.filegraph.layers import both_sides
from porter.filegraph.tensor import Tensor
from porter.formats.torch_export.reading import Function
from porter.padding import Pads, Window

Pair = Sequence[int]


def _im2col(x: Tensor, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    return x.patches(*_window(kernel_size, dilation, padding, stride))


def _col2im(
    x: Tensor, output_size: Sequence[Dim], kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    return x.map_of_patches(output_size, _window(kernel_size, dilation, padding, stride))


def _window(kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> tuple[Window, Pads]:
    """The window of patches, and the zeros around the map."""
    steps = (stride[0], stride[-1]), (dilation[0], dilation[-1])
    return Window((kernel[0], kernel[-1]), *steps), both_sides((padding[0], padding[-1]))


FUNCTIONS: Mapping[str, Function] = {"col2im": _col2im, "im2col": _im2col}
