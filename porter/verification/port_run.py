"""A port that is run to be compared."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, CheckFailed, Contradiction
from porter.frameworks import UNCUT, Tensors
from porter.graph import shapes
from porter.graph.ops import shape_text
from porter.padding import KnownSize
from porter.port import StoredPort
from porter.verification.memory import drop_models, free_importers, weights_in


@dataclass
class PortRun:
    """A port's models, each of which is built once, until it is dropped.

    Attributes:
        device: where they run, `cpu` or `cuda`.
        tensors: of the port, instead of the stored ones.
        ending: applied to the port's logits, where its source shows what comes after them.
    """

    stored: StoredPort
    device: str = "cpu"
    tensors: Tensors | None = None
    ending: Callable[[Array], Array] | None = None
    _models: dict[Dtype, Any] = field(default_factory=dict, init=False)

    def run(
        self, batch: Array, dtype: Dtype, paths: Collection[str], cut: NamedArrays = UNCUT
    ) -> NamedArrays:
        """Return the port's values by path for a batch N x C x H x W.

        Args:
            cut: see porter.frameworks.PortEngine.run.

        Raises:
            CheckFailed: the port's framework, which is installed, does not run it.
            Contradiction: an output has other axes than the graph says.
        """
        try:
            if dtype not in self._models:
                self._models[dtype] = self.stored.build(dtype, self.device, self.tensors)
                free_importers(weights_in(self.stored.graph))
            engine, images = self.stored.destination.ENGINE, batch.astype(np.dtype(dtype))
            values = engine.run(self._models[dtype], images, [*paths], cut)
        except CannotRun as error:
            raise CheckFailed(
                f"the port does not run in its own framework: {error.message}",
                where=self.stored.record.name,
                next="no port was written; port to another framework, and report it with the file",
            ) from None
        self._expect_axes(values, (batch.shape[2], batch.shape[3]))
        output = self.stored.graph.output
        if self.ending is None or output not in values:
            return values
        return {**values, output: self.ending(values[output])}

    def drop(self, dtype: Dtype) -> None:
        """Drop the model of a number type: models are large."""
        drop_models(self._models, [dtype], weights_in(self.stored.graph))

    def _expect_axes(self, values: NamedArrays, size: KnownSize) -> None:
        """Expect that each output has the axes that the graph says, by which porter takes it for features or
        a map, and takes off an activation at the end. A comparison does not show it where the source gives
        the port's axes too.
        """
        shown = [path for path in self.stored.graph.outputs if path in values]
        stated = shapes(self.stored.graph, size) if shown else {}
        for path in shown:
            if values[path].shape[1:] != stated[path]:
                computed, expected = (shape_text(axes) for axes in (values[path].shape[1:], stated[path]))
                raise Contradiction(
                    f"the port gives {computed} for each image, and its graph says {expected}",
                    where=path,
                    next="this is a mistake of porter: report it, with the file",
                )
