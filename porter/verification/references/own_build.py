"""Porter's own build of a source as what a port is compared with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.ways_to_run import FP32
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier, Destination, Tensors
from porter.graph import Graph
from porter.graph.plan import Plan, make_plan
from porter.padding import KnownSize
from porter.port import OWN_BUILD
from porter.verification.references.reference import is_asked


@dataclass
class OwnBuild:
    """Porter's own build in the source's framework: it shows that two frameworks agree, not that the graph is
    right.
    """

    destination: Destination
    graph: Graph
    tensors: Tensors
    name: str = OWN_BUILD
    _built: dict[Dtype, tuple[Plan, Any]] = field(default_factory=dict, init=False)

    @property
    def run_by(self) -> str:
        return f"porter's own build in {self.destination.ENGINE.RUNNER}"

    def takes(self, size: KnownSize) -> bool:
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Run porter's own build; see Reference.run."""
        model = self._model((batch.shape[2], batch.shape[3]), dtype)
        shown = [path for path in self.graph.by_path if is_asked(path, paths)]
        return self.destination.ENGINE.run(model, batch.astype(dtype), shown)

    def _model(self, size: KnownSize, dtype: Dtype) -> Any:
        """Return the model of a number type; it is built again where its plan holds at another size only."""
        plan, model = self._built.get(dtype, (None, None))
        if plan is None or plan.only_size not in (None, size):
            plan = make_plan(self.graph, size, self.destination.CAPABILITIES)
            model = self.destination.ENGINE.build(plan, self.tensors, {}, dtype, "cpu")
            self._built[dtype] = plan, model
        return model

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run porter's own build with values replaced; see CutReference.run_cut."""
        model = self._model((batch.shape[2], batch.shape[3]), "float64")
        return self.destination.ENGINE.run(model, batch.astype(np.float64), [*paths], cut)

    def is_moved(self, path: str) -> bool:
        """Return False; see CutReference.is_moved."""
        return False

    def classifier(self, output: str, size: KnownSize, protocol: Preprocess, device: str) -> Classifier:
        """Return a function from pixels to logits; see ZooReference.classifier."""
        plan = make_plan(self.graph, size, self.destination.CAPABILITIES)
        model = self.destination.ENGINE.build(plan, self.tensors, {}, "float32", device)
        return self.destination.ENGINE.classifier(model, protocol, device, FP32)
