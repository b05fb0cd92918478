"""The ResNets of flax's ImageNet example, written for the tests in linen: what an author's own code is for a
zoo whose code porter does not have. The modules have the names of zoo `flax_examples`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from porter.base.dtypes import Array, Dtype
from porter.recipe import expand, layer_names
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


class OwnCode:
    """The values of a source by this code, run by jax (porter.verification.references.SourceValues)."""

    name, run_by = "the example's own code", "JAX"

    def __init__(self, opened: Opened) -> None:
        assert opened.member is not None and opened.fitted is not None
        graph, settings = expand(opened.member), opened.member.recipe.variants[opened.member.variant]
        block = BottleneckResNetBlock if settings["bottleneck"] else ResNetBlock
        self.model = ResNet(settings["depths"], block, opened.facts.classes)
        self.paths = {
            layer.name.removeprefix("params/"): path
            for path, layer in layer_names(opened.member, graph).items()
        }
        self.tensors: Mapping[str, Array] = opened.fitted.checkpoint.tensors

    def takes(self, size: tuple[int, int]) -> bool:
        return True

    def run(self, batch: Array, dtype: Dtype) -> dict[str, Array]:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            state = unflatten_dict(
                {name: array.astype(dtype) for name, array in self.tensors.items() if "/" in name}, sep="/"
            )
            _, shown = self.model.apply(
                state, batch.astype(dtype).transpose(0, 2, 3, 1), capture_intermediates=True
            )
        values = {
            name.removesuffix("/__call__"): np.asarray(value[0])
            for name, value in flatten_dict(shown["intermediates"], sep="/").items()
        }
        return {
            path: values[name].transpose(0, 3, 1, 2) if values[name].ndim == 4 else values[name]
            for name, path in self.paths.items()
            if name in values
        }
