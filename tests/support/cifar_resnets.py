"""CIFAR's ResNets, written for the tests from section 4.2 of arXiv:1512.03385: what an author's own code is
for a zoo whose code porter does not have. The torch modules have the tensor names of zoo `akamaster`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

WIDTHS = (16, 32, 64)


class Shortcut(nn.Module):
    """Option A."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = (self.width - x.shape[1]) // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, zeros, zeros))


class Unit(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        stride = width // channels
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = Shortcut(width) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(found + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        for stage, width in enumerate(WIDTHS, 1):
            before = WIDTHS[max(stage - 2, 0)]
            units = [Unit(width if place else before, width) for place in range(n)]
            self.add_module(f"layer{stage}", nn.Sequential(*units))
        self.linear = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3):
            x = cast(nn.Sequential, stage)(x)
        return self.linear(x.mean((2, 3)))


cifar_resnet20, cifar_resnet32, cifar_resnet44, cifar_resnet56, cifar_resnet110 = (
    partial(ResNet, n) for n in (3, 5, 7, 9, 18)
)


def keras_model(network: ResNet) -> Any:
    """A Keras model of any input size with the weights of `network`."""
    from porter.frameworks.tf.runtime import import_keras

    keras = import_keras()
    layers = keras.layers

    def normed(x: Any, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Any:
        kernel = conv.weight.detach().permute(2, 3, 1, 0).numpy()
        own = layers.Conv2D(conv.out_channels, 3, conv.stride[0], use_bias=False)
        x = own(layers.ZeroPadding2D(1)(x))
        own.set_weights([kernel])
        found = layers.BatchNormalization(epsilon=norm.eps)
        x = found(x)
        found.set_weights(
            [
                one.detach().numpy()
                for one in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
                if one is not None
            ]
        )
        return x

    x = image = keras.Input((None, None, 3))
    x = layers.ReLU()(normed(x, network.conv1, network.bn1))
    for stage in (network.layer1, network.layer2, network.layer3):
        for unit in cast(Any, stage):
            shortcut = x
            if isinstance(unit.shortcut, Shortcut):
                zeros = (unit.shortcut.width - x.shape[-1]) // 2
                shortcut = keras.ops.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [zeros, zeros]])
            x = normed(layers.ReLU()(normed(x, unit.conv1, unit.bn1)), unit.conv2, unit.bn2)
            x = layers.ReLU()(layers.Add()([x, shortcut]))
    head = layers.Dense(10)
    x = head(layers.GlobalAveragePooling2D()(x))
    head.set_weights([network.linear.weight.detach().T.numpy(), network.linear.bias.detach().numpy()])
    return keras.Model(image, x)
