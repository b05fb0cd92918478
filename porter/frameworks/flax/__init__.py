"""Flax: what porter writes modules of flax.nnx with, and runs them. JAX is imported only to run."""

from typing import Any

QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_disable_hlo_passes": "convolution-group-converter",
}
"""How XLA compiles what is run once or twice, for checks: compiling takes longer than running.

The compiler takes half the time, and its code a few percent more. The pass makes a depthwise convolution
dense, with zeros for the other channels, if its kernel is larger than its map: in float64, one of ConvNeXt's
of 768 channels took 20 s.
"""
