"""Runs modules of mlx.nn. See porter.frameworks.PortEngine. MLX is imported only when something is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.package import expect_installed, install
from porter.frameworks import UNCUT
from porter.frameworks.defaults import (
    build_file as build_file,
    disagreement as disagreement,
    with_other_pads as with_other_pads,
)

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, NamedArrays, Run
    from porter.data.preprocess import Preprocess
    from porter.frameworks import Classifier, LayerNames, Tensors
    from porter.graph.plan import Plan

NAME = "mlx"
RUNNER = "MLX"


def build(plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu") -> Any:
    """Build the plan as a module in inference mode, with canonical `tensors`, in `dtype`, and return it; see
    porter.frameworks.mlx.graph_module. `layers` is unused: every engine takes it.
    """
    expect_installed("mlx", install("mlx"))
    from porter.frameworks.mlx.graph_module import build_model

    return build_model(plan, tensors, dtype, device)


def run(model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the module on a batch N×C×H×W and return the values at `taps`, paths of nodes, by path; maps are
    N×C×H×W. By path, `cut` has arrays that are read in place of values. See
    porter.frameworks.mlx.graph_module.
    """
    from porter.frameworks.mlx.graph_module import run_model

    return run_model(model, batch, taps, cut)


def run_reference(
    model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Return the values at the paths that `taps` has, as `run` does. The layers' names in `taps` are unused:
    porter knows no other implementation in MLX than its own, whose values have paths.
    """
    return run(model, batch, list(taps), cut)


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a module on the CPU; see porter.frameworks.Engine. The logits
    are the value at the path `tap`, or else the output's. `device` is unused.

    Raises:
        UsageError: MLX has no such run.
    """
    from porter.frameworks import expect_run
    from porter.frameworks.images import make_cpu_classifier

    expect_run(how, "MLX")
    path = tap or model.program.plan.lowered.output
    return make_cpu_classifier(lambda images: run(model, images, [path])[path], protocol)
