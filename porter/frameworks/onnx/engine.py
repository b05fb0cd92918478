"""Runs ONNX models: ports, and others' beside them. See porter.frameworks.PortEngine."""

from porter.frameworks.onnx.disagreement import disagreement as disagreement
from porter.frameworks.onnx.evaluate import classifier as classifier
from porter.frameworks.onnx.file_reference import (
    build_file as build_file,
    run_reference as run_reference,
)
from porter.frameworks.onnx.running import build as build, run as run, with_other_pads as with_other_pads

NAME = "onnx"
RUNNER = "ONNX's reference implementation in float64, onnxruntime in float32"
