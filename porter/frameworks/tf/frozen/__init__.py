"""Frozen graphs, run by TensorFlow."""
