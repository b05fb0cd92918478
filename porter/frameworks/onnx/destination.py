"""ONNX's ports: a model that onnxruntime runs. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import code_files as code_files, refusals as refusals
from porter.frameworks.onnx import engine
from porter.frameworks.onnx.layout import MODEL_FILE as MODEL_FILE, fillings as fillings
from porter.frameworks.onnx.port_files import read_port as read_port, write as write
from porter.frameworks.onnx.sites import CAPABILITIES as CAPABILITIES

if TYPE_CHECKING:
    from porter.frameworks import PortEngine

NAME = "onnx"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
PACKAGE = "onnxruntime"
NAMES_LAYERS = False
ENGINE: PortEngine = engine
