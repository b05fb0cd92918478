"""ONNX's ports: a model that onnxruntime runs. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from porter.frameworks.onnx import engine
from porter.frameworks.onnx.layout import (
    CAPABILITIES as CAPABILITIES,
    MODEL_FILE as MODEL_FILE,
    fillings as fillings,
)
from porter.frameworks.onnx.port_files import read_port as read_port, write as write
from porter.graph.plan import Plan

if TYPE_CHECKING:
    from porter.base.errors import PorterError
    from porter.frameworks import PortEngine

NAME = "onnx"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
PACKAGE = "onnxruntime"
NAMES_LAYERS = False
ENGINE: PortEngine = engine


def refusals(plan: Plan) -> tuple[PorterError, ...]:
    """None: ONNX has operators for every op."""
    return ()


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.onnx is not code."""
    return {}
