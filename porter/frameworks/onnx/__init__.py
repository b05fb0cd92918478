"""ONNX: models that onnxruntime and ONNX's reference implementation run, and ports."""
