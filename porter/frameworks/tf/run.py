"""Running Keras models, with taps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import UsageError
from porter.filegraph.kernels.layouts import with_channels_first, with_channels_last
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import UNCUT
from porter.frameworks.batches import arrays_for_inputs, expect_fit
from porter.frameworks.last_uses import last_uses
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.runtime import import_keras, quiet_logger, tensorflow_device
from porter.graph import TakesInputs
from porter.padding import KnownSize

_RUNNER = "porter_runner"


@dataclass(frozen=True, eq=False)
class Runner:
    """Evaluates named values of one Keras model. The names, by which a comparison asks for values inside a
    model, are its taps.

    A model is not compiled, because running a few batches takes less time. A model with grouped convolutions
    is compiled, because Keras runs these on a CPU by XLA, which would compile them at every call
    (keras/src/backend/tensorflow/nn.py, `conv`).

    Attributes:
        model: of Keras.
        values: the model's tensors, by the names under which they are asked for.
        device: where the model is run.
        any_size: the model is right at every input size, even if its own input states one.
        arrays: names of values that are no maps, whatever axes they have.
        takes: a graph that says what the model takes, where that is more than a map.
        usual_size: see porter.graph.plan.Plan.
        moved: names of values that are other values with their axes moved: what reads those is not cut off.
    """

    model: Any
    values: Mapping[str, Any]
    device: str = "cpu"
    any_size: bool = False
    arrays: Collection[str] = ()
    takes: TakesInputs | None = None
    usual_size: KnownSize | None = None
    moved: Collection[str] = ()
    _functions: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def __call__(self, batch: Array, names: tuple[str, ...], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Return the values called `names` for a batch N×C×H×W; maps come back as N×C×H×W.

        Args:
            cut: by name, the array that the layers which read a value are given in its place.

        Raises:
            UsageError: the model lacks a name, or the batch does not fit its input.
        """
        unknown = [name for name in names if name not in self.values]
        if unknown:
            raise UsageError(f"the model has no node '{unknown[0]}'")
        if not names:
            return {}
        tensorflow = import_tensorflow()
        inputs = [np.ascontiguousarray(array) for array in self._as_inputs(batch)]
        replacements = {
            id(self.values[name]): value if name in self.arrays else with_channels_last(value)
            for name, value in cut.items()
        }
        if cut:
            # This function is made for this run only, because it holds the arrays.
            function = self._function(names, replacements)
        else:
            if names not in self._functions:
                self._functions[names] = self._function(names)
            function = self._functions[names]
        # TensorFlow warns of retracing if several grouped convolutions are compiled, because Keras has one
        # function for all.
        with (
            tensorflow.device(tensorflow_device(self.device)),
            tf32(tensorflow, False),
            quiet_logger(tensorflow),
        ):
            results = function([tensorflow.cast(array, self.model.inputs[0].dtype) for array in inputs])
        # A model of Keras refers to itself in circles, and would hold the arrays until Python looks for it.
        replacements.clear()
        # TensorFlow's own memory, read-only: `Tensor.numpy` would copy it, and all maps of a network are
        # large.
        arrays = {name: np.asarray(results.pop(name)) for name in names}
        return {
            name: array if name in self.arrays else with_channels_first(array)
            for name, array in arrays.items()
        }

    def value_of(self, name: str) -> Hashable:
        """Return a key that is equal for two names of the same value."""
        return id(self.values[name])

    def _as_inputs(self, batch: Array) -> list[Array]:
        """Return a batch as the model's inputs, in their axes. One of another size than the input's is
        refused.
        """
        takes_map = self.takes is None or not self.takes.axes
        if takes_map:
            _, rows, columns, channels = self.model.inputs[0].shape
            size = (None, None) if self.any_size else (rows, columns)
            expect_fit(batch.shape, channels, *size)
        if self.takes is None:
            return [batch.transpose(0, 2, 3, 1)]
        return arrays_for_inputs(batch, self.takes, channels_last=True)

    def _function(
        self, names: tuple[str, ...], cut: Mapping[int, Array] = MappingProxyType({})
    ) -> Callable[[Any], dict[str, Any]]:
        """Return the function from the list of inputs to the values of these names, compiled where a grouped
        convolution needs it.

        Args:
            cut: arrays that layers read in place of values, by the ids of Keras's symbolic values.
        """
        tapped = _memory_saving_model()(self.model.inputs, {name: self.values[name] for name in names})
        tapped.input_spec = None  # `expect_fit` checks the size
        # Keras would copy a plain dict, and hold the arrays as long as the model.
        tapped.cut = MappingProxyType(cut)

        def call(batches: list[Any]) -> dict[str, Any]:
            values: dict[str, Any] = tapped(batches if len(batches) > 1 else batches[0], training=False)
            return values

        is_grouped = any(getattr(layer, "groups", 1) > 1 for layer in self.model.layers)
        if not is_grouped:
            return call
        return cast(Callable[[Any], dict[str, Any]], import_tensorflow().function(call))


@cache
def _memory_saving_model() -> Any:
    """Return a class of functional models that free a value after its last use, and replace the values in
    `cut` for the layers that read them: Keras's own hold all values until the end (keras/src/ops/function.py,
    `Function._run_through_graph`). Eight images in a ViT-Ti took 1.6 GB, and take 0.7.
    """
    keras = import_keras()
    model: Any = keras.Model

    class Frugal(model):  # type: ignore[misc]  # Keras has no types
        def _run_through_graph(
            self, inputs: Any, operation_fn: Any = lambda operation: operation, **options: Any
        ) -> Any:
            """Run the layers one after the other, as Keras's own method does, and drop each value after its
            last use; a value that is cut is replaced for the layers that read it.
            """
            if options:  # Keras only infers shapes, without values
                return super()._run_through_graph(inputs, operation_fn=operation_fn, **options)
            nodes = [
                node
                for depth in sorted(self._nodes_by_depth, reverse=True)
                for node in self._nodes_by_depth[depth]
            ]
            nodes = [node for node in nodes if not node.is_input]
            used = (map(id, (*node.input_tensors, *node.outputs)) for node in nodes)
            # Values by the ids of their symbolic tensors: the outputs as they are computed, and what layers
            # read, which may be an array in a value's place.
            output_values = dict(zip(map(id, self.inputs), keras.tree.flatten(inputs), strict=True))
            values_to_read = dict(output_values)
            outputs = set(map(id, self.outputs))
            for node, read_last in zip(nodes, last_uses(used), strict=True):
                arguments, keywords = node.arguments.fill_in(values_to_read)
                returned = operation_fn(node.operation)(*arguments, **keywords)
                for key, value in zip(map(id, node.outputs), keras.tree.flatten(returned), strict=False):
                    values_to_read[key] = value
                    if key in outputs:
                        output_values[key] = value
                    if key in self.cut:
                        values_to_read[key] = keras.ops.cast(self.cut[key], value.dtype)
                for key in read_last:
                    values_to_read.pop(key, None)
            return keras.tree.pack_sequence_as(
                self._outputs_struct, [output_values[id(symbol)] for symbol in self.outputs]
            )

    return Frugal


def attach_runner(runner: Runner) -> None:
    """Attach a Runner to its model for `run`; it is not saved with the model."""
    setattr(runner.model, _RUNNER, runner)


def usual_size_of(model: Any) -> tuple[int, int] | None:
    """Return the size that the source of a port was built for, if `build` made the model; None for any
    other.
    """
    return getattr(getattr(model, _RUNNER, None), "usual_size", None)


def run(model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
    """Run a model that `build` made on a batch N×C×H×W and return by path its values at `taps`, paths of the
    graph; maps are N×C×H×W.

    Args:
        cut: by path, what is read in place of the value; see porter.frameworks.PortEngine.run.

    Raises:
        UsageError: the model lacks a tap, or the batch does not fit its input.
    """
    runner: Runner = getattr(model, _RUNNER)
    return runner(batch, tuple(taps), cut)


def run_reference(
    model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run a model of `build_file` or of a zoo's implementation on a batch N×C×H×W and return the outputs of
    its layers by path; maps are N×C×H×W. Paths of layers that it lacks, or that cannot be cut, are left out.

    Args:
        taps: path to the reference's layer name; layers that it lacks are left out.
        cut: by path, what is read in place of the value; see porter.frameworks.Engine.run_reference.

    Raises:
        UsageError: the batch does not fit the model's input.
    """
    runner: Runner | GraphRunner = model if isinstance(model, GraphRunner) else getattr(model, _RUNNER)
    layers = {path: layer for path, layer in taps.items() if layer in runner.values}
    paths_of_value = Counter(map(runner.value_of, layers.values()))

    def can_be_cut(layer: str) -> bool:
        """Say whether a value can be replaced by itself: not one that several paths have, or that is another
        with its axes moved.
        """
        return paths_of_value[runner.value_of(layer)] == 1 and layer not in runner.moved

    layers = {path: layer for path, layer in layers.items() if path not in cut or can_be_cut(layer)}
    replacements = {layers[path]: cut[path] for path in cut if path in layers}
    results = runner(batch, tuple(dict.fromkeys(layers.values())), replacements)
    return {path: results[layer] for path, layer in layers.items()}


def tap_value(model: Any, tap: str) -> Any:
    """Return the value called `tap`, a layer's name, as Keras's symbolic tensor, of a model that `build_file`
    or a zoo's implementation gave.
    """
    return getattr(model, _RUNNER).values[tap]


@contextmanager
def tf32(tensorflow: Any, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 within the context; in TF32, an NVIDIA GPU keeps 10 of float32's 23 bits."""
    config = tensorflow.config.experimental
    before = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(allowed)
    try:
        yield
    finally:
        config.enable_tensor_float_32_execution(before)
