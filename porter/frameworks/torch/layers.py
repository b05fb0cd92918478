"""The layers that torch.nn lacks. Generated model.py files have copies of them, so they use only torch and the standard library.

Sizes are computed so that a traced or exported program computes them again at run time: no `max`, and no division of a negative
number, which such programs get wrong (`-(-n // s)` gives 28 for 29 at odd sizes in torch.onnx.export).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """Average pool over zeros (left, right, top, bottom); the divisor counts `counted` of them."""

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
