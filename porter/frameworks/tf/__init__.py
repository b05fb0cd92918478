"""TensorFlow: how its code names tensors, what runs Keras models and graphs, and ports as Keras models."""
