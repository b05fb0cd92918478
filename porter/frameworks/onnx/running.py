"""A plan as an object that is called with arrays: run by onnxruntime, and in float64 by ONNX's reference
implementation.

onnxruntime has no convolution in double precision. It runs a port with its default optimisations, as people
run the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.base.errors import UsageError
from porter.base.options import DEVICE, DTYPE
from porter.base.package import expect_installed, install
from porter.frameworks import UNCUT, LayerNames, Tensors
from porter.frameworks.batches import arrays_for_inputs, expect_fit, expect_inputs, expect_nodes
from porter.frameworks.onnx.model import ModelParts, make_model, make_model_session
from porter.frameworks.onnx.session import Session
from porter.graph.plan import Plan


@dataclass
class OnnxModel:
    """A plan's model. Each set of values to give is a session of its own."""

    plan: Plan = field(repr=False)
    model: ModelParts = field(repr=False)
    dtype: Dtype
    _sessions: dict[tuple[str, ...], Session] = field(default_factory=dict, repr=False)

    def __call__(self, *batches: Array) -> Array | tuple[Array, ...]:
        """Run the model on a batch N×C×H×W. Return its output, or a tuple of several: maps N×C×H×W, features
        N×C, in the model's own number type. An input that is no map has its own axes; several inputs come in
        the graph's order.

        Raises:
            UsageError: a batch does not fit its input, or there are more or fewer.
        """
        expect_inputs(batches, self.plan.lowered, self.plan.only_size)
        outputs = self._run(batches, ())
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def values(self, batch: Array, paths: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Run the model on a batch N×C×H×W and return the values at paths of the graph. Outputs are those of
        the model as it is; a session that gives other values too may compute them in another way, because no
        optimisation merges what it gives.

        Args:
            cut: see porter.frameworks.PortEngine.run; in float64.
        """
        graph = self.plan.lowered
        expect_nodes(paths, graph.by_path)
        # Outputs that a session of onnxruntime computes in a run of their own: only it optimises.
        own_run = [] if self.dtype == "float64" else [path for path in paths if path in graph.outputs]
        other_paths = tuple(dict.fromkeys(path for path in paths if path not in own_run))
        values: dict[str, Array] = {}
        if other_paths:
            values |= zip(other_paths, self._values(batch, other_paths, cut), strict=True)
        if own_run:
            values |= zip(graph.outputs, self._values(batch, ()), strict=True)
        return {path: values[path] for path in paths}

    def _values(self, batch: Array, paths: tuple[str, ...], cut: NamedArrays = UNCUT) -> list[Array]:
        """Run the session that gives the values at `paths`, or the outputs without any, on maps N×C×H×W, and
        return them in their order.
        """
        expect_fit(batch.shape, self.plan.lowered.channels, *(self.plan.only_size or (None, None)))
        return self._run(arrays_for_inputs(batch, self.plan.lowered), paths, cut)

    def _run(self, batches: Sequence[Array], paths: tuple[str, ...], cut: NamedArrays = UNCUT) -> list[Array]:
        """Run the session that gives the values at `paths` on a batch for each input, and return them in
        their order. Each set of values has a session, which is made at its first run.
        """
        if paths not in self._sessions:
            self._sessions[paths] = self._make_session(paths)
        inputs = (np.ascontiguousarray(batch, storage_type(self.dtype)) for batch in batches)
        # Sessions of onnxruntime take no `cut`.
        return self._sessions[paths](*inputs, **({"cut": cut} if cut else {}))

    def _make_session(self, paths: tuple[str, ...]) -> Session:
        """Make a session that gives the values at `paths`, or the model's outputs where these are none."""
        graph = self.model.proto.graph
        infos = {value.name: value for value in (*graph.value_info, *graph.output)}
        outputs = [infos[path] for path in paths] or graph.output
        return make_model_session(self.model, self.dtype, outputs, optimised=True)


def build(plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu") -> OnnxModel:
    """Make the plan's model, an object that is called with a batch. ONNX models run on the CPU.

    Raises:
        UsageError: the device is another one, or onnxruntime does not run this number type.
        MappingError: the tensors do not fit the graph. NotInstalled: onnx or onnxruntime is not
            installed.
    """
    expect_installed("onnxruntime", install("onnx"))
    if device != "cpu":
        raise UsageError("porter runs ONNX models on the CPU", where=DEVICE, next="leave it out")
    if dtype == "bfloat16":
        message = "porter runs ONNX models in float32, float16 and float64, not in bfloat16"
        raise UsageError(message, where=DTYPE, next=f"write {DTYPE('float16')}")
    return OnnxModel(plan, make_model(plan, tensors, dtype), dtype)


def run(model: OnnxModel, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run the model on a batch N×C×H×W and return by path its values at `taps`, paths of the plan's graph;
    maps are N×C×H×W. In float64, `cut` has by path what is read in place of values.
    """
    return model.values(batch, taps, cut)


def with_other_pads(model: OnnxModel, plan: Plan) -> None:
    """Return None: a model is made of sessions, which share no weights."""
