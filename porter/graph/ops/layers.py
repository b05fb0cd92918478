"""Ops with a number for each channel, and the dense layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.errors import GraphError
from porter.graph.ops.kinds import MOST_CONSTANTS, Constants, Count, Flag, Number, Share
from porter.graph.ops.op import (
    Axes,
    KeepsSign,
    OfChannels,
    Op,
    Shape,
    TensorShapes,
    bias_shape,
    expect_channels,
    expect_known_channels,
    expect_map,
    expect_rank,
    shape_text,
    with_channels,
)


@dataclass(frozen=True)
class Dense(Op, name="dense"):
    """A weighted sum of all features, for each unit; of an array's channels in each place of its other
    axes.
    """

    is_linear = True

    units: Count
    bias: Flag = True

    def shape(self, *inputs: Shape) -> Shape:
        if not isinstance(inputs[0], Axes):
            expect_rank(inputs[0], 1)
        return with_channels(expect_known_channels(inputs[0]), self.units)

    def tensors(self, channels: int) -> TensorShapes:
        return {"kernel": (self.units, channels), **bias_shape(self.bias, self.units)}

    @property
    def words(self) -> str:
        return f"a dense layer of {self.units} units"


USUAL_MOMENTUM = 0.1
"""torch's own, of a norm whose file does not state its momentum."""


@dataclass(frozen=True)
class BatchNorm(OfChannels, name="batch_norm"):
    """Batch normalisation; `momentum` is the weight of each new batch (as in torch: 1 - decay)."""

    is_linear = True

    epsilon: Share
    momentum: Share
    scale: Flag = True
    center: Flag = True

    def tensors(self, channels: int) -> TensorShapes:
        return {
            **_scale_and_center(self.scale, self.center, channels),
            "mean": (channels,),
            "variance": (channels,),
        }


@dataclass(frozen=True)
class LayerNorm(Op, name="layer_norm"):
    """(x - mean) / sqrt(variance + epsilon) over the channels of each cell of a map or an array, times gamma,
    plus beta.
    """

    epsilon: Share
    scale: Flag = True
    center: Flag = True

    def shape(self, *inputs: Shape) -> Shape:
        return expect_known_channels(inputs[0])

    def tensors(self, channels: int) -> TensorShapes:
        return _scale_and_center(self.scale, self.center, channels)


@dataclass(frozen=True)
class RmsNorm(Op, name="rms_norm"):
    """x / sqrt(mean of squares + epsilon) over the channels of each cell of a map or an array, times
    gamma.
    """

    epsilon: Share
    scale: Flag = True

    def shape(self, *inputs: Shape) -> Shape:
        return expect_known_channels(inputs[0])

    def tensors(self, channels: int) -> TensorShapes:
        return _scale_and_center(self.scale, False, channels)


@dataclass(frozen=True)
class GroupNorm(Op, name="group_norm"):
    """(x - mean) / sqrt(variance + epsilon) over all cells of a group of channels, times gamma, plus beta.

    Each group has channels that follow each other; with as many groups as channels it is instance
    normalisation.
    """

    groups: Count
    epsilon: Share
    scale: Flag = True
    center: Flag = True

    def shape(self, *inputs: Shape) -> Shape:
        if (expect_channels(inputs[0])[0] or 0) % self.groups:
            raise GraphError(f"{self.groups} groups do not divide {shape_text(inputs[0])}")
        if inputs[0] == (self.groups, 1, 1)[: len(inputs[0])]:
            # Torch runs none of one image.
            raise GraphError(f"{self.groups} groups of one number in {shape_text(inputs[0])}")
        return inputs[0]

    def tensors(self, channels: int) -> TensorShapes:
        return _scale_and_center(self.scale, self.center, channels)


@dataclass(frozen=True)
class LocalResponseNorm(KeepsSign, name="local_response_norm"):
    """x / (bias + alpha * sum of squares)^beta over `size` channels: size // 2 before a channel, (size - 1)
    // 2 after it.

    `alpha` multiplies the sum, as in TensorFlow; torch and Caffe state it times `size`.
    """

    size: Count
    alpha: Number
    beta: Number
    bias: Number

    def shape(self, *inputs: Shape) -> Shape:
        return expect_map(inputs[0])


@dataclass(frozen=True)
class ChannelScale(OfChannels, name="channel_scale"):
    """x times one trained number for each channel, plus another one with `bias`."""

    is_linear = True

    bias: Flag = False

    def tensors(self, channels: int) -> TensorShapes:
        return _scale_and_center(True, self.bias, channels)


@dataclass(frozen=True)
class Affine(Op, name="affine"):
    """x * scale + offset with constants, one for all channels or one each, such as a model's scaling of
    pixels.
    """

    is_linear = True

    scale: Constants
    offset: Constants

    def shape(self, *inputs: Shape) -> Shape:
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            count = len(values)
            fits = count == 1 or (count > 1 and count == expect_channels(inputs[0])[0])
            if not fits or len(values) > MOST_CONSTANTS:
                expected = f"one {name} or one for each of {inputs[0][0]} channels (at most {MOST_CONSTANTS})"
                raise GraphError(f"expected {expected}, got {len(values)}")
            unbounded = [value for value in values if not math.isfinite(value)]
            if unbounded:
                raise GraphError(f"expected finite numbers, got {unbounded[0]} as {name}")
        return inputs[0]

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and min(*self.scale, *self.offset) >= 0


def _scale_and_center(scale: bool, center: bool, channels: int) -> TensorShapes:
    """Return by role the shapes of a norm's gamma, if it has a scale, and beta, if it has an offset."""
    return {**({"gamma": (channels,)} if scale else {}), **({"beta": (channels,)} if center else {})}
