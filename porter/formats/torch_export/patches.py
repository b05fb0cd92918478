"""ATen's patches of a map (porter.filegraph.patches): im2col and col2im."""

from __future__ import annotations

from porter.filegraph.layers import both_sides
from porter.filegraph.patches import map_of_patches, patches
from porter.filegraph.walk import Read
from porter.formats.torch_export.moves import taken
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.sizes import sizes_of, whole_numbers
from porter.padding import Pads, Window


def read_patches(walk: Walk, node: AtenNode) -> Read:
    """im2col."""
    return patches(walk, node, taken(node), *_window(walk, node))


def read_map(walk: Walk, node: AtenNode) -> Read:
    """col2im."""
    size = sizes_of(walk, node, "output_size")
    return map_of_patches(walk, node, taken(node), size, *_window(walk, node))


def _window(walk: Walk, node: AtenNode) -> tuple[Window, Pads]:
    """The window of patches, and the zeros around the map."""
    kernel, stride, dilation, pads = (
        whole_numbers(walk, node, name) for name in ("kernel_size", "stride", "dilation", "padding")
    )
    steps = (stride[0], stride[-1]), (dilation[0], dilation[-1])
    return Window((kernel[0], kernel[-1]), *steps), both_sides((pads[0], pads[-1]))
