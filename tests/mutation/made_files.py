"""Files that carry their graph, made for mutants: whole Keras files that scale pixels, .pt2 and .onnx, with
random weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from porter.verification.inputs import PIXELS, SIGNED, make_images

SIDE = 32


def _keras(scaling: str) -> Callable[[Path, int], Path]:
    """A network with every usual layer of Keras behind a Rescaling or a Normalization."""

    def write(folder: Path, seed: int) -> Path:
        from porter.frameworks.tf.runtime import import_keras

        keras: Any = import_keras()
        layers = keras.layers
        keras.utils.set_random_seed(seed)
        image = keras.Input((None, None, 3) if scaling != "flat" else (SIDE, SIDE, 3))
        if scaling == "normalization":
            value = layers.Normalization(mean=[120.0, 115.0, 104.0], variance=[4000.0, 3500.0, 4500.0])(image)
        else:
            value = layers.Rescaling(1 / 127.5, -1)(image)
        value = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(value)
        value = layers.BatchNormalization(momentum=0.0)(value)
        value = layers.ReLU(6.0)(value)
        value = layers.ZeroPadding2D(((0, 1), (0, 1)))(value)
        value = layers.DepthwiseConv2D(3, strides=2, use_bias=True)(value)
        value = layers.BatchNormalization(momentum=0.0)(value)
        short = value = layers.Activation("swish")(value)
        squeezed = layers.GlobalAveragePooling2D(keepdims=True)(value)
        squeezed = layers.Conv2D(4, 1, activation="relu")(squeezed)
        value = layers.Multiply()([value, layers.Conv2D(8, 1, activation="hard_sigmoid")(squeezed)])
        value = layers.Add()([short, layers.Conv2D(8, 3, padding="same")(value)])
        value = layers.LeakyReLU(negative_slope=0.2)(value)
        value = layers.Concatenate()(
            [layers.MaxPooling2D(3, 1, "same")(value), layers.AveragePooling2D(3, 1, "same")(value)]
        )
        value = layers.Conv2D(6, (3, 1), padding="same", activation="gelu")(value)
        value = layers.Flatten()(value) if scaling == "flat" else layers.GlobalAveragePooling2D()(value)
        model = keras.Model(image, layers.Dense(5, activation="softmax")(value))
        random = np.random.default_rng(seed)
        for variable in model.trainable_variables:
            if variable.path.rpartition("/")[2] in ("beta", "bias", "gamma"):
                variable.assign(variable + random.normal(0, 0.2, variable.shape))
        model(
            make_images((SIDE, SIDE), 8, 3, PIXELS, seed).transpose(0, 2, 3, 1).astype(np.float32),
            training=True,
        )
        path = folder / f"{scaling}.keras"
        model.save(path)
        return path

    return write


def _torch(kind: str, suffix: str) -> Callable[[Path, int], Path]:
    def write(folder: Path, seed: int) -> Path:
        import torch

        torch.manual_seed(seed)
        model = _model(kind)
        image = torch.from_numpy(make_images((SIDE, SIDE), 8, 3, SIGNED, seed).astype(np.float32))
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.momentum = None
                for parameter in module.parameters(recurse=False):
                    if parameter.ndim == 1:
                        parameter += 0.2 * torch.randn_like(parameter)
            model.train()(image)
        model.eval()
        path = folder / f"{kind}{suffix}"
        one = image[:2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if suffix == ".pt2":
                torch.export.save(
                    torch.export.export(model, (one,), dynamic_shapes=({0: torch.export.Dim.AUTO},)), path
                )
            else:
                axes = {"x": {0: "n", 2: "h", 3: "w"}}
                torch.onnx.export(
                    model, (one,), str(path), input_names=["x"], dynamic_axes=axes, dynamo=False
                )
        return path

    return write


def _model(kind: str) -> Any:
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return x + self.layers(x)

    stem = (
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
    )
    if kind == "classes":
        unit = Residual(
            nn.Conv2d(8, 8, 3, padding=1, groups=4),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.Conv2d(8, 8, 3, padding=1),
        )
        tail = nn.Sequential(
            nn.AvgPool2d(2, 2, count_include_pad=False),
            nn.PReLU(8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )
        return nn.Sequential(*stem, unit, nn.GroupNorm(2, 8), nn.Hardswish(), *tail)
    if kind == "twice":  # one module, and a layer of its own, in two places
        unit = Residual(
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.PReLU(8),
            shared := nn.Conv2d(8, 8, 1),
        )
        tail = nn.Sequential(nn.AdaptiveAvgPool2d((2, 3)), shared, nn.Flatten(), nn.Linear(48, 5))
        return nn.Sequential(*stem, unit, nn.Tanh(), unit, *tail)
    unit = Residual(
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 1),
    )
    tail = nn.Sequential(
        nn.ConvTranspose2d(8, 6, 4, 2, 1),
        nn.ELU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(6, 2, 3, padding=1),
        nn.Sigmoid(),
    )
    return nn.Sequential(*stem, unit, nn.LeakyReLU(0.1), *tail)


MADE: Mapping[str, Callable[[Path, int], Path]] = {
    "classes.pt2": _torch("classes", ".pt2"),
    "rescaling.keras": _keras("rescaling"),
    "map.onnx": _torch("map", ".onnx"),
    "twice.pt2": _torch("twice", ".pt2"),
    "normalization.keras": _keras("normalization"),
    "map.pt2": _torch("map", ".pt2"),
    "flat.keras": _keras("flat"),
    "classes.onnx": _torch("classes", ".onnx"),
}
