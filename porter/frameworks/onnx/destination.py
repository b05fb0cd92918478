"""ONNX's ports: a model that onnxruntime runs. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import DestinationDefaults
from porter.frameworks.onnx import engine
from porter.frameworks.onnx.layout import MODEL_FILE, fillings
from porter.frameworks.onnx.port_files import read_port, write
from porter.frameworks.onnx.sites import CAPABILITIES

if TYPE_CHECKING:
    from porter.frameworks import PortEngine


class OnnxDestination(DestinationDefaults):
    """Writes ONNX's ports."""

    NAME = "onnx"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
    PACKAGE = "onnxruntime"
    NAMES_LAYERS = False
    ENGINE: PortEngine = engine
    MODEL_FILE = MODEL_FILE
    CAPABILITIES = CAPABILITIES

    fillings = staticmethod(fillings)
    write = staticmethod(write)
    read_port = staticmethod(read_port)


DESTINATION: OnnxDestination = OnnxDestination()
