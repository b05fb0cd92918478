"""Runs modules of flax.nnx. See porter.frameworks.PortEngine. JAX is imported only when something is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.frameworks.code.built_modules import BuiltModules
from porter.frameworks.defaults import (
    build_file as build_file,
    disagreement as disagreement,
    with_other_pads as with_other_pads,
)

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.ways_to_run import Run
    from porter.data.preprocess import Preprocess
    from porter.frameworks import Classifier

NAME = "flax"
RUNNER = "JAX"


_MODULES = BuiltModules("flax", ("jax", "flax"))
build, run, run_reference = _MODULES.build, _MODULES.run, _MODULES.run_reference


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a module where its variables are; its logits are the value at
    the path `tap`, or else the output. `device` is unused. See porter.frameworks.flax.evaluate.
    """
    from porter.frameworks.flax.evaluate import make_classifier

    return make_classifier(model, protocol, how, tap)
