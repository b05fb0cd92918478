"""ONNX: a model's own graph, run beside a port. porter writes no ONNX models yet, so this is no destination."""

from porter.frameworks.onnx.file_reference import build_file, classifier, run_reference

__all__ = ["NAME", "build_file", "classifier", "run_reference"]

NAME = "onnx"
