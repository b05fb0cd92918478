"""TensorFlow's checkpoints, of both versions."""
