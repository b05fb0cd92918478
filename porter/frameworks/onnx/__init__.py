"""ONNX: ports as a model that onnxruntime runs, and models of others run beside a port. See `porter.frameworks.Framework`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from porter.frameworks.onnx.evaluate import classifier
from porter.frameworks.onnx.file_reference import build_file, run_reference
from porter.frameworks.onnx.layout import CAPABILITIES, MODEL_FILE, fillings
from porter.frameworks.onnx.port_files import read_port, write
from porter.frameworks.onnx.running import build, run, twin
from porter.graph.plan import Plan

NAME = "onnx"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
PACKAGE = "onnxruntime"
NAMES_LAYERS = False

__all__ = [
    "CAPABILITIES",
    "INPUT_LAYOUT",
    "MODEL_FILE",
    "NAME",
    "NAMES_LAYERS",
    "PACKAGE",
    "build",
    "build_file",
    "classifier",
    "code_files",
    "fillings",
    "read_port",
    "run",
    "run_reference",
    "twin",
    "write",
]


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.onnx is no code."""
    return {}
