"""The graph that a file itself carries as what a port is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import Contradiction, escaped, some
from porter.base.ways_to_run import FP32
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.kernels import values as kernels
from porter.frameworks import Classifier, Engine
from porter.graph import GlobalAvgPool, LogSoftmax, Op, Shape, Sigmoid, Softmax, shapes
from porter.padding import ANY, KnownSize
from porter.source.fitting.fit import Fit, shape_text
from porter.verification.references.background import (
    path_with_background,
    without_background,
    without_background_logit,
)
from porter.verification.references.reference import UNDER_ITS_NAME, describe_difference, is_asked, run_cut


@dataclass
class FileGraphReference:
    """The graph that the file itself carries, run by its engine with the file's tensors."""

    engine: Engine
    checkpoint: Checkpoint
    fit: Fit
    name: str = "the file's own graph"
    _built: dict[Dtype, Any] = field(default_factory=dict, init=False)

    @property
    def run_by(self) -> str:
        return self.engine.RUNNER

    def takes(self, size: KnownSize) -> bool:
        """Return whether the file's graph holds at a size (rows, columns). A graph that is not `resizable`
        states its size: it holds at that one, or at any length of an axis for which it states None.
        """
        graph = self.checkpoint.graph
        if graph is None:
            return False
        if graph.resizable:
            return True
        as_stated = all(stated in (None, n) for stated, n in zip(graph.size, size, strict=True))
        return as_stated and graph.has_room(size)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Run the file's graph, and return the values by path; expect that what the file names as its outputs
        is what porter takes for them. See Reference.run.

        Raises:
            Contradiction: a value or the order of the outputs differs.
        """
        model, output = self._model(dtype), self.fit.graph.output
        last_node = self.fit.graph.by_path[output]
        wants_output = is_asked(output, paths)
        # what the file names as outputs, by the key under which the engine is asked for it
        names_by_key = dict[str, str]()
        if wants_output and dtype == "float64":
            names_by_key = {f"{UNDER_ITS_NAME}{name}": name for name in self.fit.in_file.given}
        if wants_output and paths:
            # What is compared below has to be computed too. `paths` of None asks for all already.
            paths = {*paths, *last_node.inputs, *(taken.path for taken in self.fit.in_file.given.values())}
        taps = {path: tap for path, tap in self.fit.in_file.taps.items() if is_asked(path, paths)}
        values = dict(self.engine.run_reference(model, batch.astype(dtype), taps | names_by_key))
        size = batch.shape[2], batch.shape[3]
        known = shapes(self.fit.graph, size) if names_by_key else {}
        self._expect_order()
        for key, name in names_by_key.items():
            self._expect_given(name, values.pop(key, None), values, known)
        # Features are the port's pool. Where the file ends in the map before it, the pool is computed here.
        ends_in_pool = self.fit.output == "features" and isinstance(last_node.op, GlobalAvgPool)
        if ends_in_pool and wants_output and output not in values:
            values[output] = values[last_node.source].mean(axis=(2, 3))
        return without_background(values, path_with_background(self.fit))

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the file's graph with values replaced; see CutReference.run_cut."""
        values = run_cut(self.engine, self._model("float64"), batch, self.fit.in_file.taps, paths, cut)
        return without_background(values, path_with_background(self.fit))

    def is_moved(self, path: str) -> bool:
        """Return whether the file's graph also has the value in another order of axes, as after a transpose;
        see CutReference.is_moved.
        """
        tap = self.fit.in_file.taps.get(path)
        return any(node.moved for node in self.checkpoint.carried.nodes if node.tap == tap)

    def _model(self, dtype: Dtype) -> Any:
        """Return the model of a number type, which is built once."""
        graph = self.checkpoint.graph
        if dtype not in self._built:
            size = ANY if graph is None or graph.resizable else graph.size
            self._built[dtype] = self.engine.build_file(self.checkpoint, dtype, size)
        return self._built[dtype]

    def _expect_order(self) -> None:
        """Expect the port's outputs in the order in which the file gives them; outputs that only the port has
        do not count.

        Raises:
            Contradiction: the order is another one.
        """
        outputs = self.fit.graph.outputs
        given = self.fit.in_file.given.values()
        stated = dict.fromkeys(taken.path for taken in given if taken.path in outputs)
        ported = [*dict.fromkeys(path for path in outputs if path in stated)]  # a file may give a value twice
        if [*stated] != ported:
            raise Contradiction(
                f"expected the outputs in the file's order, {some([*stated])}, got {some(ported)} from "
                "the port",
                where=self.checkpoint.path,
            )

    def _expect_given(
        self, name: str, given: Array | None, values: NamedArrays, known: Mapping[str, Shape]
    ) -> None:
        """Expect that what the file names as an output is what porter takes for it. Otherwise a reader that
        leaves out the file's last step would make the reference end before that step too.

        Args:
            name: of the output, in the file.
            given: its value; None where what runs the file's graph has no such value.
            values: of the source, by path.
            known: the shapes of the port's values.
        """
        counterpart = self.fit.in_file.given[name]
        if counterpart.path not in values:
            return
        value = values[counterpart.path]
        for op in counterpart.after:
            value = _apply(value, op)
        shape = known[counterpart.path]
        if given is None:
            wrong: str | None = "what runs the file gives no such value"
        else:
            wrong = describe_difference(given, value)
            if wrong is None and counterpart.shaped and given.shape[1:] != shape:
                in_file = shape_text(given.shape[1:])
                in_port = shape_text(tuple(n or 0 for n in shape))
                wrong = f"it is {in_file} for each image in the file, and {in_port} in the port"
        if wrong is not None:
            raise Contradiction(
                f"the file gives '{escaped(name)}', for which porter takes '{counterpart.path}': {wrong}",
                where=self.checkpoint.path,
            )

    def disagreement(self, batch: Array) -> str | None:
        """Say what two programs that run the file disagree on; see porter.frameworks.Engine.disagreement."""
        return self.engine.disagreement(self.checkpoint, batch)

    def classifier(self, output: str, size: KnownSize, protocol: Preprocess, device: str) -> Classifier:
        """Return a function from pixels to logits; see ZooReference.classifier."""
        model = self.engine.build_file(self.checkpoint, "float32", size)
        classifier = self.engine.classifier(model, protocol, device, FP32, self.fit.in_file.taps[output])
        drops = output == path_with_background(self.fit)
        return without_background_logit(classifier) if drops else classifier


def _apply(value: Array, op: Op) -> Array:
    """Apply an activation to logits N x C, or N x C x H x W. Return the value as it is for other ops, which
    only move numbers.
    """
    with np.errstate(all="ignore"):
        match op:
            case Softmax():
                return kernels.softmax(value, min(1, value.ndim - 1))
            case LogSoftmax():
                return kernels.log_softmax(value, min(1, value.ndim - 1))
            case Sigmoid():
                return kernels.sigmoid(value)
    return value
