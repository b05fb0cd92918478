"""Runs Keras models, and the graphs of TensorFlow's files. See porter.frameworks.PortEngine. What runs them
is imported only when something is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, Run
    from porter.data.preprocess import Preprocess
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks import Alone, Classifier, Tensors
    from porter.graph.plan import Plan
    from porter.padding import Size

NAME = "tf"
RUNNER = "TensorFlow"


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str = "cpu") -> Any:
    """The plan as a keras.Model; see porter.frameworks.tf.ports.build."""
    from porter.frameworks.tf.ports.build import build

    return build(plan, tensors, layers, dtype, device)


def twin(model: Any, plan: Plan) -> None:
    """None: a Keras layer gets its padding when it is made, and does not share its weights."""


def run(model: Any, batch: Array, taps: Sequence[str]) -> dict[str, Array]:
    """Values at `taps` for a batch N×C×H×W; see porter.frameworks.tf.run."""
    from porter.frameworks.tf.run import run

    return run(model, batch, taps)


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """The graph of a Keras file or of TensorFlow's; see porter.frameworks.tf.file_reference."""
    from porter.frameworks.tf.file_reference import build_file

    return build_file(checkpoint, dtype, size)


def run_reference(model: Any, batch: Array, taps: Mapping[str, str]) -> dict[str, Array]:
    """As `run`, for a reference: `taps` is path to layer name; layers that it lacks are left out."""
    from porter.frameworks.tf.run import run_reference

    return run_reference(model, batch, taps)


def run_alone(model: Any, fed: Mapping[str, Alone]) -> dict[str, Array]:
    """See porter.frameworks.tf.run."""
    from porter.frameworks.tf.run import run_alone

    return run_alone(model, fed)


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """A model as evaluations run it; see porter.frameworks.tf.evaluate."""
    from porter.frameworks.tf.evaluate import classifier

    return classifier(model, protocol, device, how, tap)


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """None: TensorFlow is the only one that runs these files."""
