"""What porter knows of the zoos that are written in JAX: how Flax's older modules, flax.linen, name tensors
and order their axes. It runs no models and writes no ports. porter.frameworks.flax does that in flax.nnx,
whose names and axes are others.
"""
