"""Runs TensorFlow Lite's models. See porter.frameworks.PortEngine. TensorFlow is imported only when something
is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.errors import UsageError
from porter.base.options import DEVICE
from porter.frameworks import UNCUT
from porter.frameworks.defaults import (
    build_file as build_file,
    disagreement as disagreement,
    with_other_pads as with_other_pads,
)
from porter.frameworks.tf import engine as keras
from porter.frameworks.tflite import FILE

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.base.ways_to_run import Run
    from porter.data.preprocess import Preprocess
    from porter.frameworks import Classifier, LayerNames, Tensors
    from porter.graph.plan import Plan

NAME = "tflite"
RUNNER = "TensorFlow Lite"


def build(plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu") -> Any:
    """Return a model of the file that `tensors` holds (porter.frameworks.is_converted), otherwise of what the
    converter makes of them. In float64, in which TensorFlow Lite does not compute, it is the Keras model that
    the converter is given. A plan without tensors needs none for it.

    Raises:
        UsageError: the device is another one than the CPU, or the tensors are not there in float64.
        NotInstalled: TensorFlow or Keras is not installed.
        GraphError: the converter has no operator for an op.
    """
    if device != "cpu":
        raise UsageError("porter runs TensorFlow Lite's models on the CPU", where=DEVICE, next="leave it out")
    from porter.graph import tensor_shapes

    others = {path: roles for path, roles in tensors.items() if path != FILE}
    if dtype != "float64":
        from porter.frameworks.tflite.running import build as build_lite

        return build_lite(plan, others, tensors.get(FILE))
    # Beside a file alone, the numbers of the graph's tensors are unknown.
    if others.keys() or FILE not in tensors or not tensor_shapes(plan.lowered):
        return keras.build(plan, others, layers, dtype)
    raise UsageError("TensorFlow Lite computes in float32 only", next="verify the port beside its source")


def run(model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the model on a batch N×C×H×W and return by path its values at `taps`, paths of nodes, without those
    that the file does not keep; maps are N×C×H×W. By path, `cut` has arrays that are read in place of values.
    See porter.frameworks.tflite.running; a model in float64 is run as Keras's.
    """
    from porter.frameworks.tflite.running import LiteModel

    if isinstance(model, LiteModel):
        return model.values(batch, taps, cut)
    return keras.run(model, batch, taps, cut)


def run_reference(
    model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Return the values at the paths that `taps` has, as `run` does. The layers' names in `taps` are unused:
    porter knows no other implementation in TensorFlow Lite than its own.
    """
    return run(model, batch, list(taps), cut)


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a port on the CPU; its logits are the value at the path `tap`,
    or else the output. `device` is unused.

    Raises:
        UsageError: TensorFlow Lite has no such run.
    """
    from porter.frameworks import expect_run
    from porter.frameworks.batches import make_cpu_classifier

    expect_run(how, "TensorFlow Lite")
    path = tap or model.plan.lowered.output
    return make_cpu_classifier(lambda images: run(model, images, [path])[path], protocol)
