"""MLP-Mixers, written for the tests in linen from section 2 of arXiv:2105.01601: what an author's own code is
for a zoo whose code porter does not have. The modules have the names of zoo `vit_jax`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from porter.source.opened import Opened


class Mlp(nn.Module):
    units: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        width = x.shape[-1]
        x = nn.gelu(nn.Dense(self.units)(x), approximate=True)
        return nn.Dense(width)(x)


class MixerBlock(nn.Module):
    mixed: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        x = x + Mlp(self.mixed, name="token_mixing")(y).swapaxes(1, 2)
        y = nn.LayerNorm()(x)
        return x + Mlp(4 * x.shape[-1], name="channel_mixing")(y)


class Mixer(nn.Module):
    width: int
    depth: int
    mixed: int
    classes: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(self.width, (16, 16), 16, name="stem")(x)
        x = x.reshape(len(x), -1, self.width)
        for _ in range(self.depth):
            x = MixerBlock(self.mixed)(x)
        x = nn.LayerNorm(name="pre_head_layer_norm")(x).mean(1)
        return nn.Dense(self.classes, name="head")(x)


def module(opened: Opened) -> Mixer:
    """The network of a source."""
    assert opened.member is not None
    settings: Mapping[str, Any] = opened.member.recipe.variants[opened.member.variant]
    return Mixer(settings["width"], settings["depths"][0], settings["mixed"], opened.facts.classes)
