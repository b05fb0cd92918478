"""big_vision's vision transformers, written for the tests in linen from arXiv:2205.01580 and 2106.04560: what
an author's own code is for a zoo whose code porter does not have. The modules have the names of zoo
`big_vision`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from porter.source.opened import Opened


class MlpBlock(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        width = x.shape[-1]
        x = nn.gelu(nn.Dense(4 * width)(x), approximate=True)
        return nn.Dense(width)(x)


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y)
        y = nn.LayerNorm()(x)
        return x + MlpBlock()(y)


class Encoder(nn.Module):
    depth: int
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for place in range(self.depth):
            x = Block(self.heads, name=f"encoderblock_{place}")(x)
        return nn.LayerNorm(name="encoder_norm")(x)


class MAPHead(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        probe = self.param("probe", nn.initializers.zeros, (1, 1, x.shape[-1]))
        y = nn.MultiHeadDotProductAttention(self.heads)(jnp.repeat(probe, len(x), 0), x)
        z = nn.LayerNorm()(y)
        return (y + MlpBlock()(z))[:, 0]


class ViT(nn.Module):
    width: int
    depth: int
    patch: int
    classes: int
    pool: str
    plain: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(self.width, 2 * (self.patch,), self.patch, "VALID", name="embedding")(x)
        side, x = x.shape[1], x.reshape(len(x), -1, self.width)
        if self.plain:
            positions = sines(side, self.width)
        else:
            positions = self.param("pos_embedding", nn.initializers.zeros, (1, *x.shape[1:]))
        heads = self.width // 64
        x = Encoder(self.depth, heads, name="Transformer")(x + positions)
        x = MAPHead(heads)(x) if self.pool == "map" else x.mean(1)
        if self.plain:
            x = jnp.tanh(nn.Dense(self.width, name="pre_logits")(x))
        return nn.Dense(self.classes, name="head")(x)


def sines(side: int, width: int) -> Any:
    """Positions, number by number: the quarters of the channels are the sine and the cosine of the column,
    and those of the row.
    """
    found = np.zeros((side, side, width))
    quarter = width // 4
    for channel in range(quarter):
        rate = 10_000 ** (channel / (quarter - 1))
        for place in range(side):
            found[:, place, channel], found[:, place, quarter + channel] = (
                np.sin(place / rate),
                np.cos(place / rate),
            )
            found[place, :, 2 * quarter + channel] = np.sin(place / rate)
            found[place, :, 3 * quarter + channel] = np.cos(place / rate)
    return jnp.asarray(found.reshape(1, side * side, width))


def module(opened: Opened) -> ViT:
    """The network of a source."""
    assert opened.member is not None
    settings: Mapping[str, Any] = opened.member.recipe.variants[opened.member.variant]
    options: Mapping[str, Any] = opened.member.zoo.options
    return ViT(
        settings["width"],
        settings["depths"][0],
        settings["patch"],
        opened.facts.classes,
        options["pool"],
        options.get("representation", False),
    )
