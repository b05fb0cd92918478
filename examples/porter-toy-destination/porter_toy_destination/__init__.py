"""A destination whose framework is not run: what a package brings that adds one.

It writes toy models (porter-toy-format): `model.toy`, JSON that says the layers in order, and `model.npz`
with their tensors.
"""
