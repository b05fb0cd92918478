"""Runs modules of mlx.nn. See porter.frameworks.PortEngine. MLX is imported only when something is run."""

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

NAME = "mlx"
RUNNER = "MLX"


_MODULES = BuiltModules("mlx", ("mlx",))
build, run, run_reference = _MODULES.build, _MODULES.run, _MODULES.run_reference


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a module on the CPU; see porter.frameworks.Engine. The logits
    are the value at the path `tap`, or else the output's. `device` is unused.

    Raises:
        UsageError: MLX has no such run.
    """
    from porter.frameworks import expect_run
    from porter.frameworks.batches import make_cpu_classifier

    expect_run(how, "MLX")
    path = tap or model.program.plan.lowered.output
    return make_cpu_classifier(lambda images: run(model, images, [path])[path], protocol)
