"""Layers of maps with other cells, for which layers.py says what holds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class ResizeLike(nn.Module):
    """The first map at the size of the second."""

    def __init__(self, mode: str, align_corners: bool) -> None:
        super().__init__()
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, like.shape[2:], mode=self.mode, align_corners=self.align_corners)


class PadLike(nn.Module):
    """The first map with as many rows and columns as the second: with cells of 0 at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """

    def __init__(self, rows: str, columns: str) -> None:
        super().__init__()
        self.sides = (rows, columns)

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        pads: list[int] = []
        for axis, side in zip((3, 2), self.sides[::-1], strict=True):
            more = 0 if side == "none" else like.shape[axis] - x.shape[axis]
            before = {"start": more, "both": more // 2}.get(side, 0)
            pads += [before, more - before]
        return F.pad(x, pads)


class CropLike(nn.Module):
    """The first map with as many rows and columns as the second: without cells at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """

    def __init__(self, rows: str, columns: str) -> None:
        super().__init__()
        self.sides = (rows, columns)

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        for axis, side in zip((2, 3), self.sides, strict=True):
            if side != "none":
                less = x.shape[axis] - like.shape[axis]
                before = {"start": less, "both": less // 2}.get(side, 0)
                x = x.narrow(axis, before, like.shape[axis])
        return x


class Resize(nn.Module):
    """Other cells, computed from those around their places by rules that nn.Upsample lacks.

    For rows and columns `cells` says how many, or how many times the map's: (3, 2) is 3/2 of
    them. Otherwise they are as many as a second map has.
    Beyond the map are the cells of its edge; if `inside`, these have no share in a cubic one.
    """

    def __init__(
        self,
        mode: str,
        coordinates: str,
        cells: tuple[int | tuple[int, int], ...] = (),
        rounding: str = "round_prefer_floor",
        a: float = -0.75,
        inside: bool = False,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.coordinates = coordinates
        self.cells = cells
        self.rounding = rounding
        self.a = a
        self.inside = inside

    def places(self, n: int, cells: int | tuple[int, int], device: torch.device) -> torch.Tensor:
        """Where, among the n cells of an axis of the map, each cell of the result lies."""
        if isinstance(cells, tuple):
            parts, whole = cells
            m, step = n * parts // whole, whole / parts
        else:
            m, step = cells, n / cells
        i = torch.arange(m, dtype=torch.float64, device=device)
        if self.coordinates == "align_corners":
            return i * ((n - 1) / (m - 1 + (m == 1)))
        return i * step if self.coordinates == "asymmetric" else (i + 0.5) * step - 0.5

    def nearest(self, places: torch.Tensor) -> torch.Tensor:
        """The nearest cell to each place, by the rule of `rounding`."""
        half = 0.5 if self.rounding.startswith("round") else 0.0
        up = self.rounding in ("ceil", "round_prefer_floor")
        return torch.ceil(places - half) if up else torch.floor(places + half)

    def shares(self, t: torch.Tensor) -> list[torch.Tensor]:
        """The shares of the two or the four cells around each place, which is t behind a cell."""
        if self.mode == "linear":
            return [1 - t, t]
        a = self.a
        outer = [a * (((d - 5) * d + 8) * d - 4) for d in (t + 1, 2 - t)]
        inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
        return [outer[0], *inner, outer[1]]

    def forward(self, x: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
        cells = self.cells if like is None else like.shape[2:]
        for axis in (2, 3):
            n = x.shape[axis]
            places = self.places(n, cells[axis - 2], x.device)
            if self.mode == "nearest":
                x = x.index_select(axis, self.nearest(places).long().clamp(0, n - 1))
                continue
            first = torch.floor(places)
            shares = self.shares(places - first)
            around = [first.long() + k + 1 - len(shares) // 2 for k in range(len(shares))]
            if self.inside:
                shares = [s * ((c >= 0) & (c < n)) for s, c in zip(shares, around, strict=True)]
                shares = [share / sum(shares) for share in shares]
            over = (-1, *[1] * (3 - axis))
            parts = [x.index_select(axis, c.clamp(0, n - 1)) for c in around]
            parts = [p * s.to(x).view(over) for p, s in zip(parts, shares, strict=True)]
            x = sum(parts[1:], parts[0])
        return x
