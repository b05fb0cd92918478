"""A destination whose framework is not run, as a stranger would add it: this folder as
`porter/frameworks/toy/`, and its name in porter/frameworks/__init__.py.

It writes toy models (tests/toy_format): `model.toy`, JSON that says the layers in order, and `model.npz` with
their tensors.
"""
