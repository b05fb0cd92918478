"""A zoo's own implementation as what a port is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, CheckFailed
from porter.base.ways_to_run import FP32
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import RETURNED, Classifier, Engine, OwnTensors, get_engine
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Dense, Node, Relu, Relu6
from porter.padding import KnownSize
from porter.recipe import Zoo
from porter.recipe.expressions import Value
from porter.source.fitting.fit import Fit, own_checkpoint
from porter.verification.memory import drop_models
from porter.verification.references.background import (
    path_with_background,
    with_changed_logits,
    without_background,
    without_background_logit,
)
from porter.verification.references.reference import UNDER_ITS_NAME, describe_difference, is_asked, run_cut
from porter.zoos.implementation import BuildRequest, Implementation, get_implementation


@dataclass
class ZooReference:
    """The zoo's own implementation, which porter did not write, with the file's tensors under its own names.

    Attributes:
        classes: of the implementation's head.
        taps: by path, the implementation's layer.
        without_background: path of the head whose row 0 the port lacks.
        options: options of the recipe that a caller set to another value than the zoo's.
        behind: the file's dense layers after the implementation's features, with their tensors. They are
            computed in NumPy.
        output: path of the node that the implementation returns.
    """

    engine: Engine
    implementation: Implementation
    name: str
    variant: str
    classes: int
    checkpoint: Checkpoint
    taps: Mapping[str, str]
    without_background: str | None
    options: Mapping[str, Value] = field(default_factory=dict)
    behind: tuple[tuple[Node, NamedArrays], ...] = ()
    output: str = ""
    _built: dict[tuple[tuple[int, ...] | None, Dtype], Any] = field(default_factory=dict, init=False)

    @property
    def run_by(self) -> str:
        return f"its own code in {self.engine.RUNNER}"

    def takes(self, size: KnownSize) -> bool:
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Run the zoo's model, and the layers behind it that are the user's own, and return the values by
        path in the number type. Taps are the names under which the engine gives a value, such as
        `layer1.0.conv1`. In float64 what the model returns is also compared with the value at the output's
        tap. See Reference.run.

        Raises:
            CheckFailed: the implementation returns another value than the layer that the recipe names.
        """
        model = self._model((batch.shape[2], batch.shape[3]), dtype)
        read_behind = {path for node, _ in self.behind for path in node.inputs}
        taps = {path: tap for path, tap in self.taps.items() if is_asked(path, paths) or path in read_behind}
        # In float64 only: elsewhere the two may differ by rounding.
        if dtype == "float64" and self.output in taps:
            taps[UNDER_ITS_NAME] = RETURNED
        values = dict(self.engine.run_reference(model, batch.astype(dtype), taps))
        if UNDER_ITS_NAME in values:
            self._expect_returned(values.pop(UNDER_ITS_NAME), values)
        return _add_layers_behind(without_background(values, self.without_background), self.behind)

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the zoo's model with values replaced; see CutReference.run_cut."""
        model = self._model((batch.shape[2], batch.shape[3]), "float64")
        values = run_cut(self.engine, model, batch, self.taps, paths, cut)
        return without_background(values, self.without_background)

    def is_moved(self, path: str) -> bool:
        """Return False; see CutReference.is_moved."""
        return False

    def _model(self, size: KnownSize, dtype: Dtype) -> Any:
        """Return the model of a size and number type, which is built once and kept. Models of other sizes are
        dropped, unless the implementation runs at any size: such a model is kept under None in place of its
        size.
        """
        built_size = None if self.implementation.runs_at_any_size(self.variant) else size
        key = (built_size, dtype)
        if key not in self._built:
            # Models are large; both types of a size are wanted in turns.
            weights = sum(tensor.size for tensor in self.checkpoint.tensors.values())
            of_other_sizes = [known for known in self._built if known[0] != built_size]
            drop_models(self._built, of_other_sizes, weights)
            self._built[key] = self._build(size, dtype)
        return self._built[key]

    def _build(self, size: KnownSize, dtype: Dtype) -> Any:
        return self.implementation.build(
            BuildRequest(self.variant, self.classes, size, self.checkpoint, dtype, self.options)
        )

    def _expect_returned(self, returned: Array, values: NamedArrays) -> None:
        """Expect that what the implementation returns is the value of the layer that the recipe names for its
        output: otherwise a recipe that leaves out the last step would compare too little.

        Args:
            returned: by the implementation.
            values: of the layers, by path.

        Raises:
            CheckFailed: it is another value.
        """
        value = values.get(self.output)
        difference = None if value is None else describe_difference(returned, value)
        if difference is None:
            return
        raise CheckFailed(
            f"expected it to return the value of its '{self.taps[self.output]}', which the recipe names for "
            f"{self.output}, got another value: {difference}",
            where=self.name,
            next="name the layer that gives its logits, or add what follows it to the recipe's graph",
        )

    def classifier(self, output: str, size: KnownSize, protocol: Preprocess, device: str) -> Classifier:
        """Return a function from pixels to the logits at `output` in float32; the model gives no other
        values.
        """
        model = self._build(size, "float32")
        # With a head of the user's own, the zoo's model ends at what the first layer of that head reads.
        end = self.behind[0][0].source if self.behind else output
        classifier = self.engine.classifier(model, protocol, device, FP32, self.taps[end])
        if self.behind:
            return with_changed_logits(
                classifier, lambda features: _add_layers_behind({end: features}, self.behind)[output]
            )
        return without_background_logit(classifier) if output == self.without_background else classifier


def zoo_reference(zoo: Zoo, variant: str, checkpoint: Checkpoint, fit: Fit) -> ZooReference:
    """Make a reference of the zoo's implementation with the file's tensors, for a source of `fit`. For a file
    whose head the zoo lacks, the implementation gets a stand-in: a head that gives its input, so that the
    file's own head can be computed behind it.
    """
    tensors = own_checkpoint(fit, checkpoint)
    classes, output = fit.source_classes, fit.graph.output
    taps = dict(fit.in_zoo.taps)
    if fit.in_zoo.stand_in is not None:
        output = fit.in_zoo.stand_in.path
        taps[output] = fit.in_zoo.stand_in.tap
        tensors = {**tensors, **fit.in_zoo.stand_in.tensors}
        classes = fit.graph.channels_by_path[output]
    of_implementation = replace(checkpoint, tensors=tensors, graph=None, counted=False)
    name = str(zoo.reference)
    implementation = get_implementation(name)
    return ZooReference(
        get_engine(implementation.engine or zoo.framework),
        implementation,
        name,
        variant,
        classes,
        checkpoint=of_implementation,
        taps=taps,
        without_background=path_with_background(fit),
        options=zoo.chosen,
        behind=_read_layers_behind(get_dialect(zoo.framework), checkpoint, fit),
        output=output,
    )


def _read_layers_behind(
    dialect: Dialect, checkpoint: Checkpoint, fit: Fit
) -> tuple[tuple[Node, dict[str, Array]], ...]:
    """Return the nodes after the features of a stand-in, with their canonical tensors: a stand-in is a head
    that gives its input, so that the zoo's code can be built for a file with another head. Return none
    without a stand-in.
    """
    if fit.in_zoo.stand_in is None:
        return ()
    paths = [node.path for node in fit.graph.nodes]
    nodes = fit.graph.nodes[paths.index(fit.in_zoo.stand_in.path) + 1 :]
    tensors: OwnTensors = {node.path: {} for node in nodes}
    for (path, role), name in fit.tensors.items():
        if path in tensors:
            tensors[path][role] = dialect.to_canonical(
                fit.graph, fit.graph.by_path[path], role, checkpoint.tensors[name]
            )
    return tuple((node, tensors[node.path]) for node in nodes)


def _add_layers_behind(values: NamedArrays, behind: Sequence[tuple[Node, NamedArrays]]) -> dict[str, Array]:
    """Return the values by path with those of the dense layers and activations behind them, computed in the
    same type. These are the user's own head, behind the features of the zoo's network. Raise CannotRun for
    other ops, which no head of porter's has.
    """
    known = dict(values)
    for node, tensors in behind:
        value = known[node.source]
        match node.op:
            case Dense():
                value = value.reshape(len(value), -1)  # Keras's MobileNet v1 pools to maps of one cell
                bias = tensors.get("bias", np.zeros(1))
                value = value @ tensors["kernel"].T.astype(value.dtype) + bias.astype(value.dtype)
            case Relu():
                value = np.clip(value, 0, None)
            case Relu6():
                value = np.clip(value, 0, 6)
            case _:
                raise CannotRun(f"nothing computes a {node.op.words} behind a zoo's code", where=node.path)
        known[node.path] = value
    return known
