"""Keras's files: weights by layer, and the graph that a whole model's config states. Only model.py runs Keras."""
