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


def channel_choice_kernel(op: ChannelChoice, channels: int) -> Array:
    """Return the kernel, filters x channels of the input, of a choice of channels: each filter takes one
    channel, or none and is zero. The last two of three channels are chosen by [[0, 1, 0], [0, 0, 1]].
    """
    if isinstance(op, ops.SliceChannels):
        chosen_channels: list[int | None] = [*op.channels]
    elif isinstance(op, ops.PadChannels):
        chosen_channels = [*[None] * op.before, *range(channels), *[None] * op.after]
    else:
        # A shuffle takes one channel of each group after the other.
        chosen_channels = [int(channel) for channel in np.arange(channels).reshape(op.groups, -1).T.ravel()]
    kernel = np.zeros((len(chosen_channels), channels))
    for filter, channel in enumerate(chosen_channels):
        if channel is not None:
            kernel[filter, channel] = 1
    return kernel


def gathering_kernel(op: ops.SpaceToDepth, channels: int) -> Array:
    """Return the kernel of a convolution that gathers the cells of a block as channels, filters x channels x
    rows x columns; its windows stand side by side.
    """
    filters = channels * op.block**2
    # The two ops are inverse, and a transposed convolution has the kernel of its inverse.
    kernel, _ = spreading_kernel(ops.DepthToSpace(op.block, op.order), filters)
    return kernel


def spreading_kernel(op: Spread, channels: int) -> tuple[Array, int]:
    """Return the kernel of a transposed convolution that makes a block of cells of each cell, channels x
    filters of a group x rows x columns, and its number of groups: all channels for an Upsample, 1 for a
    DepthToSpace. Its windows stand side by side.
    """
    if isinstance(op, ops.Upsample):
        return np.ones((channels, 1, op.rows, op.columns)), channels
    block = op.block
    # The channel that holds each cell of a block, by row, column and filter. Among the channels, the cells
    # come first (DCR), or the filters (CRD).
    if op.order == "DCR":
        channel_of_cell = np.arange(channels).reshape(block, block, -1)
    else:
        channel_of_cell = np.arange(channels).reshape(-1, block, block).transpose(1, 2, 0)
    kernel = np.zeros((channels, channels // block**2, block, block))
    for (row, column, filter), channel in np.ndenumerate(channel_of_cell):
        kernel[channel, filter, row, column] = 1
    return kernel, 1
