"""Runs ports in porter's own engine, for destinations whose framework is not run: the net that a port's file
states, by the rows of its format. The rows decode it as they decode others' files, so what runs is
independent of how the net was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, CheckFailed, Contradiction, UsageError
from porter.base.options import DEVICE
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.filegraph.program import KernelProgram
from porter.frameworks import UNCUT, Classifier, expect_run
from porter.frameworks.batches import (
    arrays_for_inputs,
    as_maps,
    expect_fit,
    expect_nodes,
    make_cpu_classifier,
)
from porter.frameworks.defaults import with_other_pads as with_other_pads
from porter.frameworks.numpy import engine
from porter.frameworks.numpy.engine import NumpyModel
from porter.graph.plan import Plan


@dataclass(frozen=True)
class PortModel:
    """A port's net as porter's own engine runs it: an object that is called with a batch.

    Attributes:
        net: the net, with its tensors.
        values: the name in the net of the value of each path of the plan's graph.
    """

    plan: Plan = field(repr=False)
    net: NumpyModel = field(repr=False)
    values: Mapping[str, str] = field(repr=False)

    def __call__(self, batch: Array) -> Array | tuple[Array, ...]:
        """Run the model on a batch N×C×H×W. Return its output, or a tuple of several: maps N×C×H×W, features
        N×C, in the model's own number type. Where the graph's input is no map, the batch has that input's
        axes.

        Args:
            batch: whatever numpy makes an array of, so a tensor of torch's too.

        Raises:
            UsageError: the batch does not fit the model's input.
        """
        outputs = self.plan.graph.outputs
        values = run(self, as_maps(np.asarray(batch), self.plan.graph), outputs)
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[path] for path in outputs)


def make_port_model(
    plan: Plan,
    program: KernelProgram,
    tensors: NamedArrays,
    values: Mapping[str, str],
    dtype: Dtype,
    device: str,
) -> PortModel:
    """Make a model of a plan's net, which porter.frameworks.numpy.nets builds, and return it.

    Args:
        program: the net, as the rows of its format read its definition.
        tensors: by their names in the file, in its axis order.
        values: as PortModel.

    Raises:
        UsageError: the device is another one than the CPU, or the engine does not run this number type.
    """
    if device != "cpu":
        raise UsageError("porter's own engine runs models on the CPU", where=DEVICE, next="leave it out")
    engine.expect_number_type(dtype, "porter's own engine runs models")
    return PortModel(plan, NumpyModel(program, tensors, dtype), values)


def run(model: PortModel, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the model on a batch N×C×H×W and return by path its values at `taps`, paths of the plan's graph;
    maps are N×C×H×W.

    Args:
        cut: by path, what is read in place of the value; see porter.frameworks.PortEngine.run.

    Raises:
        UsageError: the batch does not fit the model's input, or there is no such path.
        CheckFailed: the net does not run, so it was written wrongly.
    """
    expect_fit(batch.shape, model.plan.graph.channels, *(model.plan.only_size or (None, None)))
    expect_nodes(taps, model.plan.graph.by_path)
    images, *_ = arrays_for_inputs(batch, model.plan.graph)
    names = {path: model.values[path] for path in taps}
    try:
        return engine.run_reference(model.net, images, names, cut)
    except (CannotRun, Contradiction) as error:  # of a source it would be no verdict
        raise CheckFailed(f"the port's own net does not run: {error.message}", where=error.where) from None


def classifier(
    model: PortModel | NumpyModel,
    protocol: Preprocess,
    device: str,
    how: Run,
    tap: str | None = None,
    *,
    framework: str,
) -> Classifier:
    """Return a classifier that gives the output of a port's net, or for a NumpyModel the value called `tap`;
    see porter.frameworks.Engine.classifier. It runs on the CPU.

    Args:
        framework: the name of the port's own, for messages.

    Raises:
        UsageError: the device or the run is another one.
    """
    if isinstance(model, NumpyModel):
        return engine.classifier(model, protocol, device, how, tap)
    expect_run(how, framework)
    output = model.plan.graph.output
    return make_cpu_classifier(lambda images: run(model, images, [output])[output], protocol)
