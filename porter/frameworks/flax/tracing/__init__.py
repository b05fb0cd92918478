"""What JAX traces of a module of flax.nnx, and that as an ONNX model."""
