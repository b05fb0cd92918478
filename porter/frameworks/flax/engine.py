"""Runs modules of flax.nnx. See porter.frameworks.PortEngine. JAX is imported only when something is run."""

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

NAME = "flax"
RUNNER = "JAX"


def build(plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu") -> Any:
    """Build the plan as an nnx.Module in eval mode, with canonical `tensors`, in `dtype`, and return it; see
    porter.frameworks.flax.graph_module. `layers` is unused: every engine takes it.
    """
    for package in ("jax", "flax"):
        expect_installed(package, install("flax"))
    from porter.frameworks.flax.graph_module import build_model

    return build_model(plan, tensors, dtype, device)


def run(model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the module on a batch N×C×H×W and return the values at `taps`, paths of nodes, by path; maps are
    N×C×H×W. By path, `cut` has arrays that are read in place of values. See
    porter.frameworks.flax.graph_module.
    """
    from porter.frameworks.flax.graph_module import run_model

    return run_model(model, batch, taps, cut)


def run_reference(
    model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Return the values at the paths that `taps` has, as `run` does. The layers' names in `taps` are unused:
    porter knows no other implementation in Flax than its own.
    """
    return run(model, batch, list(taps), cut)


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a module where its variables are; its logits are the value at
    the path `tap`, or else the output. `device` is unused. See porter.frameworks.flax.evaluate.
    """
    from porter.frameworks.flax.evaluate import make_classifier

    return make_classifier(model, protocol, how, tap)
