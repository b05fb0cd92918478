"""Runs torch modules. See porter.frameworks.PortEngine. Torch is imported only when something is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.package import expect_installed, install
from porter.formats.triton import load_triton
from porter.frameworks import UNCUT
from porter.frameworks.defaults import disagreement as disagreement

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.base.ways_to_run import Run
    from porter.data.preprocess import Preprocess
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks import Classifier, LayerNames, Tensors
    from porter.graph.plan import Plan
    from porter.padding import Size

NAME = "torch"
RUNNER = "torch"


def build(
    plan: Plan,
    tensors: Tensors,
    layers: LayerNames,
    dtype: Dtype,
    device: str = "cpu",
) -> Any:
    """Build the plan as a torch.nn.Module in eval mode; see porter.frameworks.torch.graph_module. Its modules
    are called by their paths, so it needs no names of `layers`.
    """
    _expect_torch()
    from porter.frameworks.torch.graph_module import build_model

    return build_model(plan, tensors, dtype, device)


def with_other_pads(model: Any, plan: Plan) -> Any:
    """Return a module of another plan of the same graph, with the parameters of `model`, which the two share;
    see porter.frameworks.torch.graph_module.
    """
    from porter.frameworks.torch.graph_module import module_with_other_pads

    return module_with_other_pads(model, plan)


def run(model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the module on a batch N×C×H×W and return by path its values at `taps`, paths of nodes; maps are
    N×C×H×W. By path, `cut` has arrays that are read in place of values. See porter.frameworks.torch.running.
    """
    from porter.frameworks.torch.running import run_model

    return run_model(model, batch, taps, cut)


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """Build the program of a .pt2 as a module in eval mode; see porter.frameworks.torch.exported. `size` is
    unused: the program states its own sizes.

    Raises:
        CannotRun: the file has no such program, because what other torch files compute is Python code;
            or porter does not run one of its ops.
    """
    _expect_torch()
    from porter.frameworks.torch.exported import build_exported

    return build_exported(checkpoint, dtype)


def run_reference(
    model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run a module that porter did not write on a batch N×C×H×W and return its values by path. `taps` is path
    to module name; modules that it lacks are left out, and so are values that cannot be cut. `cut` is as in
    `run`.
    """
    from porter.frameworks.torch.running import run_stock

    return run_stock(model, batch, taps, cut)


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a module in the way `how` on `device`; its logits are the
    output of the module called `tap`, or of the whole. See porter.frameworks.torch.evaluate.
    """
    from porter.frameworks.torch.evaluate import make_classifier

    return make_classifier(model, protocol, device, how, tap)


def _expect_torch() -> None:
    """Expect that torch is installed, and load triton before TensorFlow can (porter.formats.triton)."""
    expect_installed("torch", install("torch"))
    load_triton()
