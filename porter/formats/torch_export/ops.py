"""ATen's ops in porter's terms, by their names without overloads."""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.name_tables import by_name
from porter.filegraph.tensors.several import einsum, maximum
from porter.formats.torch_export import arithmetic, constants, moves, patches, reductions, resizing, windows
from porter.formats.torch_export.op_readers import AtenFunction, Reader, reader_of, reader_of_row
from porter.formats.torch_export.plain import PLAIN
from porter.formats.torch_export.program_sizes import SIZES, read_size
from porter.graph import ChannelShuffle, DepthToSpace

FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        **arithmetic.FUNCTIONS,
        **constants.FUNCTIONS,
        **moves.FUNCTIONS,
        **patches.FUNCTIONS,
        **reductions.FUNCTIONS,
        **resizing.FUNCTIONS,
        **windows.FUNCTIONS,
        "logical_and bitwise_and __and__": lambda x, other: x * other,
        "logical_or bitwise_or __or__": lambda x, other: maximum(x, other),
        "logical_not bitwise_not": lambda x: ~x,
        "channel_shuffle": lambda x, groups: x.apply_op(ChannelShuffle(groups)),
        "einsum": lambda equation, tensors, path=None: einsum(equation, *tensors),
        "pixel_shuffle": lambda x, upscale_factor: x.apply_op(DepthToSpace(upscale_factor, "CRD")),
    }
)
READERS: Mapping[str, Reader] = {
    **{name: reader_of_row(row) for name, row in PLAIN.items()},
    **{name: reader_of(function) for name, function in FUNCTIONS.items()},
    **dict.fromkeys(SIZES, read_size),
}
INNER = frozenset({"avg_pool3d"})
"""Ops that are read only as parts of several ops that are one layer (porter.filegraph.matching.patterns)."""
