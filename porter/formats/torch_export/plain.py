"""ATen's ops of one value that are one op of porter's, with torch.nn's class: the destination takes the reader's rows backwards."""

from __future__ import annotations

from collections.abc import Mapping

from porter.graph import HardSwish, Op, Relu, Relu6, Selu, Sigmoid, Swish, Tanh

PLAIN: Mapping[str, tuple[Op, str]] = {
    "hardswish": (HardSwish(), "Hardswish"),
    "relu": (Relu(), "ReLU"),
    "relu6": (Relu6(), "ReLU6"),
    "selu": (Selu(), "SELU"),
    "sigmoid": (Sigmoid(), "Sigmoid"),
    "silu": (Swish(), "SiLU"),
    "tanh": (Tanh(), "Tanh"),
}
