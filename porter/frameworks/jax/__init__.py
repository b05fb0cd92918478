"""What porter knows of JAX: how Flax names tensors and orders their axes. It runs no models and writes no
ports.
"""
