"""The ResNets of flax's ImageNet example, written for the tests in linen: what an author's own code is for a
zoo whose code porter does not have. The modules have the names of zoo `flax_examples`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from flax import linen as nn

from porter.source.opened import Opened

conv, norm = partial(nn.Conv, use_bias=False), partial(nn.BatchNorm, use_running_average=True, epsilon=1e-5)


class ResNetBlock(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.relu(norm()(conv(self.width, (3, 3), self.stride)(x)))
        return joined(self, x, norm()(conv(self.width, (3, 3))(y)))


class BottleneckResNetBlock(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.relu(norm()(conv(self.width, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.width, (3, 3), self.stride)(y)))
        return joined(self, x, norm()(conv(4 * self.width, (1, 1))(y)))


def joined(block: Any, x: Any, y: Any) -> Any:
    if x.shape != y.shape:
        x = norm(name="norm_proj")(conv(y.shape[-1], (1, 1), block.stride, name="conv_proj")(x))
    return nn.relu(x + y)


class ResNet(nn.Module):
    depths: Sequence[int]
    block: Any
    classes: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = conv(64, (7, 7), 2, padding=[(3, 3), (3, 3)], name="conv_init")(x)
        x = nn.max_pool(nn.relu(norm(name="bn_init")(x)), (3, 3), (2, 2), padding="SAME")
        for stage, depth in enumerate(self.depths):
            for unit in range(depth):
                x = self.block(64 << stage, 2 if stage and not unit else 1)(x)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def module(opened: Opened) -> ResNet:
    """The network of a source."""
    assert opened.member is not None
    settings: Mapping[str, Any] = opened.member.recipe.variants[opened.member.variant]
    block = BottleneckResNetBlock if settings["bottleneck"] else ResNetBlock
    return ResNet(settings["depths"], block, opened.facts.classes)
