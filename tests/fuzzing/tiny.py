"""A recipe for weights without a graph: the smallest with every kind of tensor, in the names of torch and of
Keras.
"""

from __future__ import annotations

RECIPE = """\
architecture: tiny
variants: {tiny: {}}
options: {classes: 3, bn_epsilon: 1.0e-3}
input: {size: 8, channels: 3}
graph:
  - {conv: conv, filters: 4, kernel: 3, pad: 1}
  - {batch_norm: norm}
  - {relu: relu}
  - {global_avg_pool: pool}
  - {dense: head, units: =classes}
zoos:
  home:
    framework: torch
    names: {conv: conv1, norm: bn1, head: fc}
  away:
    framework: tf
    names: {conv: conv1, norm: bn1, head: fc}
"""
_NORM = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (4,))
STATE = {
    "conv1.weight": (4, 3, 3, 3),
    **{f"bn1.{role}": shape for role, shape in _NORM.items()},
    "fc.weight": (3, 4),
    "fc.bias": (3,),
}
"""The shapes of torch's tensors by their names."""
COMPUTED = {
    "conv1.weight_g": (4, 1, 1, 1),
    "conv1.weight_v": (4, 3, 3, 3),
    "fc.weight_orig": (3, 4),
    "fc.weight_u": (3,),
    "fc.weight_v": (4,),
    **{name: shape for name, shape in STATE.items() if name not in ("conv1.weight", "fc.weight")},
}
"""Those of a model with a weight norm and a spectral norm."""
_OF_KERAS = dict.fromkeys(("gamma", "beta", "moving_mean", "moving_variance"), (4,))
VARIABLES = {
    "conv1/kernel": (3, 3, 3, 4),
    **{f"bn1/{role}": shape for role, shape in _OF_KERAS.items()},
    "fc/kernel": (4, 3),
    "fc/bias": (3,),
}
"""Those of Keras's variables."""
