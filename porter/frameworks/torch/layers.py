"""The layers that torch.nn lacks. Generated model.py files have copies of them, so they use only torch and
the standard library.

Sizes are computed so that a traced or exported program computes them again at run time: no `max`, and no
division of a negative number, which such programs get wrong (`-(-n // s)` gives 28 for 29 at odd sizes in
torch.onnx.export).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


class SamePad2d(nn.Module):
    """Pads by TensorFlow's SAME rule: the odd cell at the end, or at the start if `lower`."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int],
        dilation: int | tuple[int, int] = 1,
        lower: bool = False,
        value: float = 0.0,
    ) -> None:
        super().__init__()
        self.reach = [(k - 1) * d for k, d in zip(pair(kernel_size), pair(dilation), strict=True)]
        self.stride = pair(stride)
        self.lower = lower
        self.value = value

    def amounts(self, size: int, axis: int) -> tuple[int, int]:
        """How many cells to add before and behind an axis of `size` cells."""
        reach, stride = self.reach[axis], self.stride[axis]
        total = reach - (size - 1) % stride
        if reach + 1 < stride:
            # Here total may be negative: then the factor is 0, otherwise 1.
            total = total * ((total + stride - 1) // stride)
        less = total // 2
        return (total - less, less) if self.lower else (less, total - less)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top, bottom = self.amounts(x.shape[2], 0)
        left, right = self.amounts(x.shape[3], 1)
        return F.pad(x, (left, right, top, bottom), value=self.value)


class SymmetricPad2d(nn.Module):
    """Pads by the map mirrored behind its edge. nn.ReflectionPad2d leaves the edge out."""

    def __init__(self, padding: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right, top, bottom = self.padding
        for axis, before, after in ((2, top, bottom), (3, left, right)):
            first = x.narrow(axis, 0, before)
            last = x.narrow(axis, x.shape[axis] - after, after)
            x = torch.cat([first.flip(axis), x, last.flip(axis)], axis)
        return x


class SameAvgPool2d(nn.Module):
    """Average pool under SAME: a window's sum divided by the number of its cells that are input."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int],
        lower: bool = False,
    ) -> None:
        super().__init__()
        self.pad = SamePad2d(kernel_size, stride, lower=lower)
        self.sum = nn.AvgPool2d(kernel_size, stride, divisor_override=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cells = torch.ones_like(x[:1, :1])
        mean: torch.Tensor = self.sum(self.pad(x)) / self.sum(self.pad(cells))
        return mean


class PaddedAvgPool2d(nn.Module):
    """Average pool of a map with zeros around it (left, right, top, bottom). A window's sum is
    divided by the number of its cells in the map and in the zeros that count, `counted`.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int],
        padding: tuple[int, int, int, int],
        counted: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        super().__init__()
        self.padding = padding
        self.counted = counted
        self.rest = [pad - some for pad, some in zip(padding, counted, strict=True)]
        self.sum = nn.AvgPool2d(kernel_size, stride, divisor_override=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cells = F.pad(torch.ones_like(x[:1, :1]), self.counted, value=1.0)
        mean: torch.Tensor = self.sum(F.pad(x, self.padding)) / self.sum(F.pad(cells, self.rest))
        return mean


class Affine(nn.Module):
    """x * scale + offset: constants for all channels or for each. No state_dict holds them."""

    scale: torch.Tensor
    offset: torch.Tensor

    def __init__(
        self,
        scale: float | Sequence[float] = 1.0,
        offset: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        for name, values in (("scale", scale), ("offset", offset)):
            # "cpu", because no file fills them in where a model is made on "meta".
            tensor = torch.tensor(values, dtype=torch.float64, device="cpu")
            self.register_buffer(name, tensor, persistent=False)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        # They move with the model but stay float64: double() cannot restore what float() rounded.
        device = fn(torch.empty(0, device=self.scale.device)).device
        if device.type not in ("meta", "mps"):  # meta has no numbers, mps no float64
            self.scale, self.offset = self.scale.to(device), self.offset.to(device)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        over = (-1, *[1] * (x.dim() - 2))
        return x * self.scale.to(x).view(over) + self.offset.to(x).view(over)


class ChannelScale(nn.Module):
    """x times a weight for each channel, plus a bias."""

    def __init__(self, channels: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        over = (-1, *[1] * (x.dim() - 2))
        scaled = x * self.weight.view(over)
        return scaled if self.bias is None else scaled + self.bias.view(over)


class LayerNorm2d(nn.LayerNorm):
    """Layer normalisation over the channels of each cell of a map."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm2d(nn.RMSNorm):
    """Division by the root of the mean square of the channels of each cell of a map."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CroppedConvTranspose2d(nn.ConvTranspose2d):
    """A transposed convolution without the columns and rows `crop`: left, right, top, bottom.

    A negative number adds cells, which only the bias reaches.
    """

    def __init__(self, *args: Any, crop: tuple[int, int, int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pads = [-cells for cells in crop]

    def forward(self, x: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        without_padding = self.stride, 0, 0, self.groups, self.dilation
        cut = F.pad(F.conv_transpose2d(x, self.weight, None, *without_padding), self.pads)
        return cut if self.bias is None else cut + self.bias.view(-1, 1, 1)


class HardSigmoid(nn.Module):
    """slope * x + offset, from 0 to 1. torch's own has a slope of 1/6."""

    def __init__(self, slope: float, offset: float) -> None:
        super().__init__()
        self.slope = slope
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.slope + self.offset).clamp(0, 1)


class FlattenCells(nn.Module):
    """A map as features, cell by cell, as frameworks with the channels last flatten it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


class DepthToSpace(nn.Module):
    """Channels as cells of block x block, the cell first. nn.PixelShuffle has the channel first."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, rows, columns = x.shape
        cells = x.reshape(n, self.block, self.block, -1, rows, columns).permute(0, 3, 4, 1, 5, 2)
        return cells.reshape(n, -1, rows * self.block, columns * self.block)


class SpaceToDepth(nn.Module):
    """Blocks of cells as channels, the cell first. nn.PixelUnshuffle has the channel first."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, rows, columns = x.shape
        rows, columns = rows // self.block, columns // self.block
        cells = x.reshape(n, -1, rows, self.block, columns, self.block)
        return cells.permute(0, 3, 5, 1, 2, 4).reshape(n, -1, rows, columns)


class Power(nn.Module):
    """x to the power of a number."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.pow(x, self.exponent)


class Step(nn.Module):
    """1 where x is above 0, or with `inclusive` not below it; otherwise 0."""

    def __init__(self, inclusive: bool = False) -> None:
        super().__init__()
        self.inclusive = inclusive

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x >= 0 if self.inclusive else x > 0).to(x)


class PadChannels(nn.Module):
    """Channels of zeros before and after those of x."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.before = before
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (*[0, 0] * (x.dim() - 2), self.before, self.after))


def axes_in(side: str) -> list[list[str]]:
    """The parts of each axis on one side of a pattern: [["k", "c"], ["h"]] for "(k c) h"."""
    return [(group or word).split() for group, word in re.findall(r"\(([^()]*)\)|(\S+)", side)]


class Rearrange(nn.Module):
    """The numbers of x along other axes, as einops writes it without the batch: "c h w -> (h w) c".
    A split axis has the sizes of its parts in place, of which it may leave out one:
    "(k=4 c) h w -> k h w c".
    """

    def __init__(self, pattern: str) -> None:
        super().__init__()
        before, after = (axes_in(side) for side in pattern.split("->"))
        names = [part.partition("=")[0] for axis in before for part in axis]
        self.sizes = [[int(part.partition("=")[2] or -1) for part in axis] for axis in before]
        self.order = [1 + names.index(name) for axis in after for name in axis]
        self.joined = [len(axis) for axis in after]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [x.shape[0]]
        for size, parts in zip(x.shape[1:], self.sizes, strict=True):
            stated = math.prod(part for part in parts if part > 0)
            sizes += [size // stated if part < 0 else part for part in parts]
        x = x.reshape(sizes).permute(0, *self.order)
        if set(self.joined) == {1}:
            return x
        ends = iter(x.shape[1:])
        sizes = [math.prod(next(ends) for _ in range(count)) for count in self.joined]
        return x.reshape(x.shape[0], *sizes)


class MatMul(nn.Module):
    """The matrix product over the last axes; `transpose` swaps those of the second value first."""

    def __init__(self, transpose: bool = False) -> None:
        super().__init__()
        self.transpose = transpose

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x @ (other.transpose(-2, -1) if self.transpose else other)


class Attention(nn.Module):
    """softmax(queries @ keys^T * scale) @ values for each head, which is a part of the channels.
    Queries, keys and values are three values, or one that has them side by side.
    """

    def __init__(self, heads: int, scale: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = scale

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        parts = values[0].chunk(3, -1) if len(values) == 1 else values
        of_heads = [part.reshape(*part.shape[:-1], self.heads, -1) for part in parts]
        query, key, value = (part.transpose(-3, -2) for part in of_heads)
        mixed = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        return mixed.transpose(-3, -2).flatten(-2)


class Join(nn.Module):
    """Values one after the other along an axis, counted with the batch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return torch.cat(values, self.dim)


class CropAxis(nn.Module):
    """x without the first and the last cells of an axis, and of the others every `step`th."""

    def __init__(self, dim: int, before: int, after: int, step: int = 1) -> None:
        super().__init__()
        self.dim = dim
        self.cells = slice(before, -after or None, step)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[(*[slice(None)] * self.dim, self.cells)]


class PadAxis(nn.Module):
    """x with cells of a number before and after those of an axis."""

    def __init__(self, dim: int, before: int, after: int, value: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        self.pads = before, after
        self.value = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (*[0, 0] * (x.dim() - 1 - self.dim), *self.pads), value=self.value)


class Reduce(nn.Module):
    """The mean, the largest value or the norm along an axis, which goes."""

    def __init__(self, function: str, dim: int) -> None:
        super().__init__()
        self.function = function
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(x, self.function)(dim=self.dim)
        return found


class AddArray(nn.Module):
    """x plus a trained array, the same for each image."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


class MultiplyArray(nn.Module):
    """x times a trained array, the same for each image."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Tokens(nn.Module):
    """Trained tokens before those of x, the same for each image."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.weight.expand(x.shape[0], -1, -1), x], 1)


class SliceChannels(nn.Module):
    """The channels of range(start, stop, step), which may run backwards."""

    def __init__(self, start: int, stop: int, step: int = 1) -> None:
        super().__init__()
        channels = range(start, stop, step)
        self.channels = slice(min(channels), max(channels) + 1, abs(step))
        self.backwards = step < 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = x[:, self.channels]
        return found.flip(1) if self.backwards else found
