"""Operators in the formats that have them, each in a small model that is ported and proved: the table of
docs/operators.md.

python -m tests.support.operator_table
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import porter
from porter.base.errors import PorterError
from tests.support.torch_onnx import export_to_onnx

PAGE = Path("docs/operators.md")
FORMATS = {
    "pt2": "`.pt2`",
    "onnx": "ONNX, `torch.onnx`",
    "torchscript": "ONNX, TorchScript",
    "keras": "`.keras`",
    "frozen": "frozen graph",
    "tflite": "`.tflite`",
}
NONE, READ = "", "read"
"""What a format without such an operator has in the table, and one whose operator is ported and proved."""

Function = Callable[[Any], Any]


def _above(x: Any) -> Any:
    """What is above 0, for functions that take nothing else."""
    return abs(x) + 0.5


OF_TORCH: Mapping[str, Function] = {
    "abs": torch.abs,
    "square": torch.square,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "exp": torch.exp,
    "generalised mean": lambda x: (_above(x) ** 3).mean((2, 3), keepdim=True) ** (1 / 3),
    "log": lambda x: torch.log(_above(x)),
    "sqrt": lambda x: torch.sqrt(_above(x)),
    "rsqrt": lambda x: torch.rsqrt(_above(x)),
    "reciprocal": lambda x: 1 / _above(x),
    "sin": torch.sin,
    "cos": torch.cos,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "erf": torch.erf,
    "elu": F.elu,
    "elu of another alpha": lambda x: F.elu(x, 0.5),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "glu": lambda x: F.glu(x, 1),
    "mish": F.mish,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hard swish": F.hardswish,
    "hard sigmoid": F.hardsigmoid,
    "clip": lambda x: F.hardtanh(x, -0.5, 0.7),
    "softsign": F.softsign,
    "log of a sigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu6": F.relu6,
    "leaky relu": lambda x: F.leaky_relu(x, 0.2),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "variance": lambda x: x.var((2, 3), keepdim=True),
    "deviation": lambda x: x.std((2, 3), keepdim=True),
    "largest channel": lambda x: x.amax(1, keepdim=True),
    "mean of channels": lambda x: x.mean(1, keepdim=True),
    "choice by a comparison": lambda x: torch.where(x > 0.1, x, 0.3 * x),
    "space to depth": lambda x: F.pixel_unshuffle(x, 2),
    "depth to space": lambda x: F.pixel_shuffle(x, 2),
    "flip of channels": lambda x: x.flip(1),
    "some channels": lambda x: x[:, [2, 0, 3, 1]],
    "unit vectors": F.normalize,
    "negative": lambda x: -x,
    "maximum": lambda x: torch.maximum(x, 0.5 * x + 0.1),
    "minimum": lambda x: torch.minimum(x, 0.5 * x),
    "quotient": lambda x: x / _above(x),
    "difference": lambda x: x - F.relu(x + 0.2),
    "upper bound": lambda x: x.clamp(max=0.4),
    "log1p": lambda x: torch.log1p(_above(x)),
    "expm1": torch.expm1,
    "sinh": torch.sinh,
    "trunc": torch.trunc,
    "remainder": lambda x: torch.remainder(x, 0.75),
    "whole quotient": lambda x: torch.floor_divide(x, 0.75),
    "log of a sum of powers": lambda x: torch.logsumexp(0.1 * x, 1, True),
    "running sum": lambda x: torch.cumsum(x, 1),
    "product of channels": lambda x: torch.prod(x, 1, True),
    "flip of rows": lambda x: x.flip(2),
}


def of_keras() -> Mapping[str, Function]:
    from keras import ops

    same = (
        "abs",
        "square",
        "exp",
        "sin",
        "cos",
        "sign",
        "floor",
        "ceil",
        "round",
        "erf",
        "elu",
        "selu",
        "silu",
        "softplus",
    )
    last = {"axis": -1, "keepdims": True}
    return {
        **{
            name: getattr(ops, name)
            for name in (*same, "softsign", "sigmoid", "tanh", "relu6", "negative", "glu")
        },
        "x ** 2": lambda x: x**2,
        "x ** 3": lambda x: x**3,
        "log": lambda x: ops.log(_above(x)),
        "log of a sigmoid": ops.log_sigmoid,
        **{
            name: lambda x, name=name: getattr(ops, name)(_above(x))
            for name in ("sqrt", "rsqrt", "reciprocal")
        },
        "generalised mean": lambda x: ops.mean(_above(x) ** 3, (1, 2), keepdims=True) ** (1 / 3),
        "elu of another alpha": lambda x: ops.elu(x, 0.5),
        "celu": lambda x: ops.celu(x, 0.7),
        "gelu by tanh": ops.gelu,
        "gelu": lambda x: ops.gelu(x, approximate=False),
        "hard swish": ops.hard_silu,
        "hard sigmoid": ops.hard_sigmoid,
        "clip": lambda x: ops.clip(x, -0.5, 0.7),
        "leaky relu": lambda x: ops.leaky_relu(x, 0.2),
        "softmax": ops.softmax,
        "log_softmax": ops.log_softmax,
        "variance": lambda x: ops.var(x, (1, 2), keepdims=True),
        "deviation": lambda x: ops.std(x, (1, 2), keepdims=True),
        "largest channel": lambda x: ops.max(x, **last),
        "mean of channels": lambda x: ops.mean(x, **last),
        "choice by a comparison": lambda x: ops.where(x > 0.1, x, 0.3 * x),
        "flip of channels": lambda x: ops.flip(x, -1),
        "some channels": lambda x: ops.take(x, np.array([2, 0, 3, 1]), -1),
        "unit vectors": lambda x: ops.normalize(x, -1),
        "maximum": lambda x: ops.maximum(x, 0.5 * x + 0.1),
        "minimum": lambda x: ops.minimum(x, 0.5 * x),
        "quotient": lambda x: x / _above(x),
        "difference": lambda x: x - ops.relu(x + 0.2),
        "upper bound": lambda x: ops.minimum(x, 0.4),
        "log1p": lambda x: ops.log1p(_above(x)),
        "expm1": ops.expm1,
        "sinh": ops.sinh,
        "trunc": ops.trunc,
        "remainder": lambda x: ops.mod(x, 0.75),
        "whole quotient": lambda x: ops.floor_divide(x, 0.75),
        "log of a sum of powers": lambda x: ops.logsumexp(0.1 * x, -1, True),
        "running sum": lambda x: ops.cumsum(x, -1),
        "product of channels": lambda x: ops.prod(x, **last),
        "flip of rows": lambda x: ops.flip(x, 1),
    }


def of_tensorflow() -> Mapping[str, Function]:
    """What TensorFlow says in another way than Keras, or only TensorFlow has."""
    import tensorflow as tf

    return {
        "space to depth": lambda x: tf.nn.space_to_depth(x, 2),
        "depth to space": lambda x: tf.nn.depth_to_space(x, 2),
        "unit vectors": lambda x: tf.math.l2_normalize(x, -1),
    }


class Network(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.function = nn.Conv2d(3, 8, 3, padding=1), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.conv(x))


def files(operator: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The formats that have an operator, and a model with it in each."""
    if operator in OF_TORCH:
        yield from _files_of_torch(OF_TORCH[operator], folder)
    function = of_keras().get(operator)
    if function is not None:
        import keras

        keras.utils.set_random_seed(0)
        image = keras.Input((16, 12, 3))
        keras.Model(image, function(keras.layers.Conv2D(8, 3, padding="same")(image))).save(
            folder / "model.keras"
        )
        yield "keras", folder / "model.keras"
    function = of_tensorflow().get(operator, function)
    if function is not None:
        yield from _files_of_tensorflow(function, folder)


def _files_of_torch(function: Function, folder: Path) -> Iterator[tuple[str, Path]]:
    network, image = Network(function).eval(), torch.randn(1, 3, 16, 12)
    torch.export.save(torch.export.export(network, (image,)), folder / "model.pt2")
    yield "pt2", folder / "model.pt2"
    export_to_onnx(network, (image,), folder / "new.onnx", dynamo=True, external_data=False, verbose=False)
    yield "onnx", folder / "new.onnx"
    try:
        torch.onnx.export(network, (image,), folder / "old.onnx", dynamo=False)
    except torch.onnx.errors.OnnxExporterError:
        return
    yield "torchscript", folder / "old.onnx"


def _files_of_tensorflow(function: Function, folder: Path) -> Iterator[tuple[str, Path]]:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    kernel = tf.Variable(np.random.default_rng(0).normal(0, 0.3, (3, 3, 3, 8)).astype("f"))
    net = tf.function(lambda x: tf.identity(function(tf.nn.conv2d(x, kernel, 1, "SAME"))))
    concrete = net.get_concrete_function(tf.TensorSpec((1, 16, 12, 3), tf.float32))
    (folder / "model.pb").write_bytes(
        convert_variables_to_constants_v2(concrete).graph.as_graph_def().SerializeToString()
    )
    yield "frozen", folder / "model.pb"
    try:
        (folder / "model.tflite").write_bytes(
            tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module()).convert()
        )
    except Exception:  # the converter has no such operator, and its errors no common base
        return
    yield "tflite", folder / "model.tflite"


def outcome(file: Path, to: str, folder: Path) -> str:
    """`read`, or why the file is refused."""
    try:
        made = porter.convert(file, to=to, out=folder / f"port-{to}-{file.name}", keep_activation=True)
    except PorterError as error:
        return error.message.replace(f"{folder}/", "").splitlines()[0]
    return READ if made.port.record.proved else made.port.record.check


def outcomes(operator: str, to: str = "torch") -> dict[str, str]:
    """What becomes of an operator, by format; formats that lack it are left out."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {format: outcome(file, to, Path(folder)) for format, file in files(operator, Path(folder))}


def operators() -> list[str]:
    return list(dict.fromkeys((*OF_TORCH, *of_keras(), *of_tensorflow())))


def rows(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The table's lines. A refusal is a number, whose words stand below the table."""
    reasons: dict[str, int] = {}
    lines = [f"| operator | {' | '.join(FORMATS.values())} |", f"| --- |{' --- |' * len(FORMATS)}"]
    for operator, by_format in found.items():
        cells = []
        for format in FORMATS:
            said = by_format.get(format, NONE)
            cells.append(
                said
                if said in (NONE, READ)
                else f"refused ({reasons.setdefault(_plain(said), len(reasons) + 1)})"
            )
        lines.append(f"| {operator} | {' | '.join(cells)} |")
    return [*lines, "", *(f"{number}. {why}" for why, number in reasons.items())]


def _plain(why: str) -> str:
    """A refusal without the names of one file."""
    return why.split(" on inputs of ")[0].split("; of the nodes behind")[0]


def page(found: Mapping[str, Mapping[str, str]]) -> str:
    return "\n".join([HEAD, *rows(found), ""])


HEAD = """# Operators

Small operators beside the layers, each behind a convolution in a model of its own: torch's by `torch.export`
and by both exporters to ONNX, Keras's as `.keras`, and TensorFlow's as frozen graph and `.tflite`. `read`
means that the model is ported to torch and proved in float64 against the file's own graph. An empty cell is a
format that has no such operator, or whose exporter refuses it. Written by `python -m
tests.support.operator_table`, and compared by a test with the marker `full`.
"""

if __name__ == "__main__":
    found = {operator: outcomes(operator) for operator in operators()}
    PAGE.write_text(page(found))
    sys.exit(0)
