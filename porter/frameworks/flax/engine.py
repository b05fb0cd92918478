"""Runs modules of flax.nnx. See porter.frameworks.PortEngine. JAX is imported only when something is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.errors import MissingFramework
from porter.base.package import expect_installed, install

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, Run
    from porter.data.preprocess import Preprocess
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks import Classifier, Tensors
    from porter.graph.plan import Plan
    from porter.padding import Size

NAME = "flax"


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str = "cpu") -> Any:
    """The plan as an nnx.Module in eval mode; see porter.frameworks.flax.graph_module."""
    for package in ("jax", "flax"):
        expect_installed(package, install("flax"))
    from porter.frameworks.flax.graph_module import build_model

    return build_model(plan, tensors, dtype, device)


def twin(model: Any, plan: Plan) -> None:
    """None: a layer of Flax gets its padding when it is made."""


def run(model: Any, batch: Array, taps: Sequence[str]) -> dict[str, Array]:
    """Values at `taps` for a batch N×C×H×W; see porter.frameworks.flax.graph_module."""
    from porter.frameworks.flax.graph_module import run_model

    return run_model(model, batch, taps)


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """None is built: no file has a graph of Flax.

    Raises:
        MissingFramework: always.
    """
    of = checkpoint.carried and checkpoint.format
    raise MissingFramework(f"Flax runs no graph of {of}", where=str(checkpoint.path))


def run_reference(model: Any, batch: Array, taps: Mapping[str, str]) -> dict[str, Array]:
    """As `run`: porter knows no other implementation in Flax than its own."""
    return run(model, batch, list(taps))


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """A module as evaluations run it; see porter.frameworks.flax.evaluate."""
    from porter.frameworks.flax.evaluate import make_classifier

    return make_classifier(model, protocol, how, tap)


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """None: no file has a graph of Flax."""
