"""ONNX: ports as a model that onnxruntime runs, and models of others run beside a port. See `porter.frameworks.Framework`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from porter.frameworks.onnx.disagreement import disagreement as disagreement
from porter.frameworks.onnx.evaluate import classifier as classifier
from porter.frameworks.onnx.file_reference import build_file as build_file, run_reference as run_reference
from porter.frameworks.onnx.layout import CAPABILITIES as CAPABILITIES, MODEL_FILE as MODEL_FILE, fillings as fillings
from porter.frameworks.onnx.port_files import read_port as read_port, write as write
from porter.frameworks.onnx.running import build as build, run as run, twin as twin
from porter.graph.plan import Plan

NAME = "onnx"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
PACKAGE = "onnxruntime"
NAMES_LAYERS = False


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.onnx is no code."""
    return {}
