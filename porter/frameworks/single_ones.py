"""Kernels of zeros and single ones, for destinations that say by convolutions how channels and cells move:
each sum has one number, so nothing is rounded.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from porter.base.dtypes import Array
from porter.graph import ops

ChannelChoice: TypeAlias = ops.SliceChannels | ops.PadChannels | ops.ChannelShuffle
Spread: TypeAlias = ops.DepthToSpace | ops.Upsample


def choosing(op: ChannelChoice, channels: int) -> Array:
    """Filters x channels of the input: each filter takes one channel, or none and is zero."""
    if isinstance(op, ops.SliceChannels):
        places: list[int | None] = [*op.channels]
    elif isinstance(op, ops.PadChannels):
        places = [*[None] * op.before, *range(channels), *[None] * op.after]
    else:
        places = [int(channel) for channel in np.arange(channels).reshape(op.groups, -1).T.ravel()]
    kernel = np.zeros((len(places), channels))
    for to, channel in enumerate(places):
        if channel is not None:
            kernel[to, channel] = 1
    return kernel


def gathering(op: ops.SpaceToDepth, channels: int) -> Array:
    """Return the kernel of a convolution whose windows stand side by side: filters x channels x rows x
    columns.
    """
    filters = channels * op.block**2
    kernel, _ = spreading(ops.DepthToSpace(op.block, op.order), filters)
    return kernel


def spreading(op: Spread, channels: int) -> tuple[Array, int]:
    """Return the kernel of a transposed convolution whose windows stand side by side, channels x filters of a
    group x rows x columns, and its groups.
    """
    if isinstance(op, ops.Upsample):
        return np.ones((channels, 1, op.rows, op.columns)), channels
    block = op.block
    places = np.arange(channels).reshape((block, block, -1) if op.order == "DCR" else (-1, block, block))
    kernel = np.zeros((channels, channels // block**2, block, block))
    for (row, column, filter), number in np.ndenumerate(
        places if op.order == "DCR" else places.transpose(1, 2, 0)
    ):
        kernel[number, filter, row, column] = 1
    return kernel, 1
