"""ResNet-50 as a person writes it by hand in flax.nnx, with torchvision's pads: what ports to Flax are timed
beside.
"""

from __future__ import annotations

from typing import Any

from flax import nnx


class Bottleneck(nnx.Module):
    def __init__(self, channels: int, width: int, stride: int, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(channels, width, (1, 1), use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(width, use_running_average=True, epsilon=1e-5, rngs=rngs)
        self.conv2 = nnx.Conv(width, width, (3, 3), stride, padding=1, use_bias=False, rngs=rngs)
        self.bn2 = nnx.BatchNorm(width, use_running_average=True, epsilon=1e-5, rngs=rngs)
        self.conv3 = nnx.Conv(width, 4 * width, (1, 1), use_bias=False, rngs=rngs)
        self.bn3 = nnx.BatchNorm(4 * width, use_running_average=True, epsilon=1e-5, rngs=rngs)
        self.projects = channels != 4 * width
        if self.projects:
            self.projection = nnx.Conv(channels, 4 * width, (1, 1), stride, use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(4 * width, use_running_average=True, epsilon=1e-5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = nnx.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return nnx.relu(y + (self.norm(self.projection(x)) if self.projects else x))


class ResNet50(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(3, 64, (7, 7), 2, padding=3, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(64, use_running_average=True, epsilon=1e-5, rngs=rngs)
        units, channels = [], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for unit in range(depth):
                width = 64 << stage
                units.append(Bottleneck(channels, width, 2 if stage and not unit else 1, rngs))
                channels = 4 * width
        self.units = nnx.List(units)
        self.head = nnx.Linear(channels, 1000, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.norm(self.stem(x)))
        x = nnx.max_pool(x, (3, 3), (2, 2), padding=((1, 1), (1, 1)))
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean(axis=(1, 2)))
