"""The models that a port is compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import FP32, Array, Dtype, NamedArrays, is_floating, storage_type
from porter.base.errors import CheckFailed, Contradiction, escaped, some
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.kernels import values as kernels
from porter.frameworks import (
    RETURNED,
    Classifier,
    Destination,
    Engine,
    OwnTensors,
    Tensors,
    get_engine,
)
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import (
    Dense,
    GlobalAvgPool,
    Graph,
    LogSoftmax,
    Node,
    Op,
    Relu6,
    Shape,
    Sigmoid,
    Softmax,
    channels_of,
    shapes,
)
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, KnownSize
from porter.port import OWN_BUILD
from porter.recipe import Zoo
from porter.recipe.expressions import Value
from porter.source.fitting.fit import Fit, own_checkpoint, shape_text
from porter.verification.memory import drop_models
from porter.verification.numbers import FLOAT64_LIMIT, norms
from porter.zoos.implementation import BuildRequest, Implementation, get_implementation

_UNDER_ITS_NAME = "given: "
"""Begins the keys of values that the source itself gives under a name, and no path of a graph."""


class SourceValues(Protocol):
    """Gives the source's values at a graph's nodes."""

    @property
    def name(self) -> str:
        """The reference that computes them, or OWN_BUILD."""

    @property
    def run_by(self) -> str:
        """What runs the reference, in words."""

    def takes(self, size: KnownSize) -> bool:
        """Return whether the source can be run on an input of `size` (rows, columns)."""

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> NamedArrays:
        """Return values by path for a batch N x C x H x W, maps as N x C x H x W; of `paths` only, where it
        can leave others out.
        """


@runtime_checkable
class CutSource(SourceValues, Protocol):
    """A source in which what reads a value can be given another one."""

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the source with values replaced, and return values in float64 by path, for a batch N x C x H x
        W.

        Args:
            paths: the values that are wanted. One that cannot be replaced is left out.
            cut: by path, the numbers that every layer which reads the value is given in its place; they come
                back under that path.
        """

    def is_moved(self, path: str) -> bool:
        """Return whether the source also has the value's numbers in another order of axes, which may be read
        instead and is not cut.
        """


@dataclass
class Wrapped:
    """A source that stands around another one."""

    source: SourceValues

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def run_by(self) -> str:
        return self.source.run_by

    def takes(self, size: KnownSize) -> bool:
        return self.source.takes(size)


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
        tap. See SourceValues.run.

        Raises:
            CheckFailed: the implementation returns another value than the layer that the recipe names.
        """
        model = self._model((batch.shape[2], batch.shape[3]), dtype)
        read_behind = {path for node, _ in self.behind for path in node.inputs}
        taps = {path: tap for path, tap in self.taps.items() if _is_asked(path, paths) or path in read_behind}
        # In float64 only: elsewhere the two may differ by rounding.
        if dtype == "float64" and self.output in taps:
            taps[_UNDER_ITS_NAME] = RETURNED
        values = dict(self.engine.run_reference(model, batch.astype(dtype), taps))
        if _UNDER_ITS_NAME in values:
            self._expect_returned(values.pop(_UNDER_ITS_NAME), values)
        return _add_layers_behind(_without_background(values, self.without_background), self.behind)

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the zoo's model with values replaced; see CutSource.run_cut."""
        model = self._model((batch.shape[2], batch.shape[3]), "float64")
        values = _run_cut(self.engine, model, batch, self.taps, paths, cut)
        return _without_background(values, self.without_background)

    def is_moved(self, path: str) -> bool:
        """Return False; see CutSource.is_moved."""
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
        difference = None if value is None else _describe_difference(returned, value)
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
            return _with_changed_logits(
                classifier, lambda features: _add_layers_behind({end: features}, self.behind)[output]
            )
        return _without_background_logit(classifier) if output == self.without_background else classifier


def zoo_reference(zoo: Zoo, variant: str, checkpoint: Checkpoint, fit: Fit) -> ZooReference:
    """Make a reference of the zoo's implementation with the file's tensors, for a source of `fit`. For a file
    whose head the zoo lacks, the implementation gets a stand-in: a head that gives its input, so that the
    file's own head can be computed behind it.
    """
    tensors = own_checkpoint(fit, checkpoint)
    classes, output = fit.source_classes, fit.graph.output
    taps = dict(fit.reference_taps)
    if fit.stand_in is not None:
        output = fit.stand_in.path
        taps[output] = fit.stand_in.tap
        tensors = {**tensors, **fit.stand_in.tensors}
        classes = channels_of(fit.graph)[output]
    of_implementation = replace(checkpoint, tensors=tensors, graph=None, counted=False)
    name = str(zoo.reference)
    implementation = get_implementation(name)
    return ZooReference(
        get_engine(implementation.engine or zoo.framework),
        implementation,
        name,
        variant,
        classes,
        of_implementation,
        taps,
        _path_with_background(fit),
        zoo.chosen,
        _read_layers_behind(get_dialect(zoo.framework), checkpoint, fit),
        output,
    )


def _run_cut(
    engine: Engine,
    model: Any,
    batch: Array,
    taps: Mapping[str, str],
    paths: Collection[str],
    cut: NamedArrays,
) -> dict[str, Array]:
    """Run a model with values replaced, and return values in float64 by path, as CutSource.run_cut says.
    Paths that `taps` lacks are left out. So are two paths of `cut` that are one value of the model, because
    what reads one of them would be given the other's numbers too.

    Args:
        taps: by path, the name under which the engine gives the value.
        paths: the values that are wanted.
        cut: by path, the numbers that its readers are given.
    """
    paths_of_tap = Counter(taps.values())
    shared_cuts = {path for path in cut if path in taps and paths_of_tap[taps[path]] > 1}
    wanted_taps = {path: taps[path] for path in paths if path in taps and path not in shared_cuts}
    replaced = {path: numbers for path, numbers in cut.items() if path in wanted_taps}
    return engine.run_reference(model, batch.astype(np.float64), wanted_taps, replaced)


@dataclass
class FileGraphSource:
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
        is what porter takes for them. See SourceValues.run.

        Raises:
            Contradiction: a value or the order of the outputs differs.
        """
        model, output = self._model(dtype), self.fit.graph.output
        last_node = self.fit.graph.by_path[output]
        wants_output = _is_asked(output, paths)
        # what the file names as outputs, by the key under which the engine is asked for it
        names_by_key = dict[str, str]()
        if wants_output and dtype == "float64":
            names_by_key = {f"{_UNDER_ITS_NAME}{name}": name for name in self.fit.given}
        if wants_output and paths:
            # What is compared below has to be computed too. `paths` of None asks for all already.
            paths = {*paths, *last_node.inputs, *(taken.path for taken in self.fit.given.values())}
        taps = {path: tap for path, tap in self.fit.taps.items() if _is_asked(path, paths)}
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
        return _without_background(values, _path_with_background(self.fit))

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the file's graph with values replaced; see CutSource.run_cut."""
        values = _run_cut(self.engine, self._model("float64"), batch, self.fit.taps, paths, cut)
        return _without_background(values, _path_with_background(self.fit))

    def is_moved(self, path: str) -> bool:
        """Return whether the file's graph also has the value in another order of axes, as after a transpose;
        see CutSource.is_moved.
        """
        tap = self.fit.taps.get(path)
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
        stated = dict.fromkeys(taken.path for taken in self.fit.given.values() if taken.path in outputs)
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
        counterpart = self.fit.given[name]
        if counterpart.path not in values:
            return
        value = values[counterpart.path]
        for op in counterpart.after:
            value = _apply(value, op)
        shape = known[counterpart.path]
        if given is None:
            wrong: str | None = "what runs the file gives no such value"
        else:
            wrong = _describe_difference(given, value)
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
        classifier = self.engine.classifier(model, protocol, device, FP32, self.fit.taps[output])
        drops = output == _path_with_background(self.fit)
        return _without_background_logit(classifier) if drops else classifier


def _is_asked(path: str, paths: Collection[str] | None) -> bool:
    """Return whether a value is among those that a caller wants; None asks for all."""
    return paths is None or path in paths


def _describe_difference(stated: Array, porters: Array) -> str | None:
    """Say how far apart values in float64 are that should be equal; None where they are equal, or where
    porter's are not finite.

    Args:
        stated: what the file or the implementation gives.
        porters: what porter takes for it.
    """
    if not np.isfinite(porters).all():
        return None
    same_size = porters.size == stated.size
    rel_l2 = norms(stated, porters.reshape(stated.shape)).rel_l2 if same_size else math.inf
    return f"their relative distance is {rel_l2:.1e}" if rel_l2 > FLOAT64_LIMIT else None


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


def _path_with_background(fit: Fit) -> str | None:
    """Return the path of the head whose row 0 the port lacks; None if the port has all rows."""
    return fit.graph.output if drops_background(fit) else None


def drops_background(fit: Fit) -> bool:
    """Return whether the port lacks row 0 of the source's head, as where a head of 1,001 classes has one for
    the background.
    """
    return "drop_background" in fit.transforms.get(fit.graph.output, ())


def _without_background_logit(classifier: Classifier) -> Classifier:
    """Return the classifier without the first of its logits, that of the background."""
    return _with_changed_logits(classifier, lambda logits: logits[:, 1:])


def _with_changed_logits(classifier: Classifier, change: Callable[[Array], Array]) -> Classifier:
    """Return the classifier with `change` applied to its logits, once they are waited for: a classifier
    begins to compute, and gives a function that waits for the result.
    """

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        pending = classifier(pixels)
        return lambda: change(pending())

    return classify


def _read_layers_behind(
    dialect: Dialect, checkpoint: Checkpoint, fit: Fit
) -> tuple[tuple[Node, dict[str, Array]], ...]:
    """Return the nodes after the features of a stand-in, with their canonical tensors: a stand-in is a head
    that gives its input, so that the zoo's code can be built for a file with another head. Return none
    without a stand-in.
    """
    if fit.stand_in is None:
        return ()
    paths = [node.path for node in fit.graph.nodes]
    nodes = fit.graph.nodes[paths.index(fit.stand_in.path) + 1 :]
    tensors: OwnTensors = {node.path: {} for node in nodes}
    for (path, role), name in fit.tensors.items():
        if path in tensors:
            tensors[path][role] = dialect.to_canonical(
                fit.graph, fit.graph.by_path[path], role, checkpoint.tensors[name]
            )
    return tuple((node, tensors[node.path]) for node in nodes)


def _add_layers_behind(values: NamedArrays, behind: Sequence[tuple[Node, NamedArrays]]) -> dict[str, Array]:
    """Return the values by path with those of the dense layers and activations behind them, computed in the
    same type. These are the user's own head, behind the features of the zoo's network.
    """
    known = dict(values)
    for node, tensors in behind:
        value = known[node.source]
        if isinstance(node.op, Dense):
            value = value.reshape(len(value), -1)  # Keras's MobileNet v1 pools to maps of one cell
            bias = tensors.get("bias", np.zeros(1))
            value = value @ tensors["kernel"].T.astype(value.dtype) + bias.astype(value.dtype)
        else:  # a ReLU or a ReLU6
            value = np.clip(value, 0, 6 if isinstance(node.op, Relu6) else None)
        known[node.path] = value
    return known


def _without_background(values: NamedArrays, path: str | None) -> dict[str, Array]:
    """Return the values by path; the one at `path`, logits of a head with a background class, without its
    column 0.
    """
    return {known: value[:, 1:] if known == path else value for known, value in values.items()}


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
        """Run porter's own build; see SourceValues.run."""
        model = self._model((batch.shape[2], batch.shape[3]), dtype)
        shown = [path for path in self.graph.by_path if _is_asked(path, paths)]
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
        """Run porter's own build with values replaced; see CutSource.run_cut."""
        model = self._model((batch.shape[2], batch.shape[3]), "float64")
        return self.destination.ENGINE.run(model, batch.astype(np.float64), [*paths], cut)

    def is_moved(self, path: str) -> bool:
        """Return False; see CutSource.is_moved."""
        return False

    def classifier(self, output: str, size: KnownSize, protocol: Preprocess, device: str) -> Classifier:
        """Return a function from pixels to logits; see ZooReference.classifier."""
        plan = make_plan(self.graph, size, self.destination.CAPABILITIES)
        model = self.destination.ENGINE.build(plan, self.tensors, {}, "float32", device)
        return self.destination.ENGINE.classifier(model, protocol, device, FP32)


def round_checkpoint(checkpoint: Checkpoint, dtype: Dtype, held: Collection[str]) -> Checkpoint:
    """Round the checkpoint's floating tensors to a port's storage type, so that both sides hold the same
    numbers.

    Args:
        held: names of those that layers have. Others are constants of the graph, which a port holds as
            exactly as the file.
    """
    tensors = {
        name: _round(array, dtype) if name in held else array for name, array in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def round_tensors(tensors: Tensors, dtype: Dtype) -> OwnTensors:
    """Round canonical tensors as `round_checkpoint` does."""
    return {
        path: {role: _round(array, dtype) for role, array in roles.items()} for path, roles in tensors.items()
    }


def _round(array: Array, dtype: Dtype) -> Array:
    """Return a tensor rounded to a storage type and held in float32, as `0.1` in float16 is 0.09998. float64
    rounds nothing, and numbers that are not floating stay as they are.
    """
    if dtype == "float64" or not is_floating(array):
        return array
    return array.astype(storage_type(dtype), copy=False).astype(np.float32, copy=False)
