"""Running a frozen TensorFlow graph in float32 or float64, with its ops as taps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, UsageError, first_line
from porter.filegraph.kernels.layouts import with_channels_first, with_channels_last
from porter.formats.limits import most_bytes
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import UNCUT, LayerNames
from porter.frameworks.batches import expect_fit, further_arrays, split_into_batches
from porter.frameworks.tf.frozen.definition import op_name, output_index, read_definition
from porter.frameworks.tf.frozen.retype import in_dtype, read_constants
from porter.graph import TakesInputs

_RUN_IN = ("float32", "float64")


class GraphRunner:
    """Runs one graph on the CPU and returns values of its ops by name. Each op is run as the graph states it:
    TensorFlow's rewriting of graphs is off.

    Attributes:
        values: by the name under which a value is asked for (its tap), the op that gives it: `op` for the
            first output, otherwise `op:place`.
        arrays: names of values that are no maps, whatever axes they have.
        moved: see porter.frameworks.tf.run.Runner.
    """

    moved: Collection[str] = ()

    def __init__(
        self,
        definition: bytes,
        tensors: NamedArrays,
        outputs: Collection[str],
        dtype: Dtype | None,
        layers: LayerNames | None = None,
        decimal_epsilons: bool = False,
        takes: TakesInputs | None = None,
    ) -> None:
        """Args:
            definition: a serialised GraphDef with a placeholder of images N×H×W×C. Only the nodes that lead
                to `outputs` are run.
            tensors: values of Const ops, by name; other constants keep their own.
            outputs: names of ops, for their first output, or `op:place`.
            dtype: None for the types that the graph states.
            layers: further names for ops.
            decimal_epsilons: see `in_dtype`.
            takes: what the graph takes, where that is more than images; the names of its further inputs are
                those of placeholders.

        Raises:
            CannotRun: TensorFlow is not installed, or does not run this graph; an op that is not pure
                maths is named.
            UsageError: such graphs are not run in this type.
            MappingError, FileError, GraphError: as `read_definition` and `read_constants`.
        """
        if dtype not in (None, *_RUN_IN):
            raise UsageError(f"graphs are run in {' or '.join(_RUN_IN)}, not in {dtype}")
        tensorflow = import_tensorflow()
        part = read_definition(definition, outputs)
        constants = read_constants(part, tensors, most_bytes(len(definition)))
        self._takes = takes
        further_names = [further.name for further in takes.further_inputs] if takes else ()
        self._input, self._shape = _find_input(tensorflow, part, further_names)
        type_of_image = next(node.attr["dtype"].type for node in part.node if node.name == self._input)
        self._dtype = tensorflow.as_dtype(type_of_image).as_numpy_dtype if dtype is None else dtype
        self.arrays: Collection[str] = ()
        graph, self._constants = in_dtype(part, constants, dtype, decimal_epsilons)
        self._graph, self._session = graph, _open_session(tensorflow, graph)
        ops_and_outputs = (*(node.name for node in part.node), *outputs)
        self.values = {**{name: name for name in ops_and_outputs}, **(layers or {})}

    def __call__(self, batch: Array, names: tuple[str, ...], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Return the values called `names` for a batch N×C×H×W; maps come back as N×C×H×W.

        Where the graph has a fixed number of images, it is run as often as needed.

        Args:
            cut: by name, the array that the ops which read a value are given in its place.

        Raises:
            UsageError: the graph lacks a name, or the batch does not fit its input.
        """
        unknown = [name for name in names if name not in self.values]
        if unknown:
            raise UsageError(f"the graph has no op '{unknown[0]}'")
        if not names:
            return {}
        images_at_once, rows, columns, channels = self._shape
        expect_fit(batch.shape, channels, rows, columns)
        to_feed = {self._input: self._to_feed(batch)}
        to_feed |= {name: self._to_feed(array) for name, array in self._further_arrays(batch).items()}
        session = self._session
        if cut:
            # The number types of the values that placeholders replace.
            kinds = {
                name: self._session.graph.get_tensor_by_name(_output_name(self.values[name])).dtype
                for name in cut
            }
            graph, holders = _cut_graph(self._graph, {name: self.values[name] for name in cut}, kinds)
            session = _open_session(import_tensorflow(), graph)
            to_feed |= {
                holders[name]: np.asarray(
                    array if name in self.arrays else with_channels_last(array), kinds[name].as_numpy_dtype
                )
                for name, array in cut.items()
            }
        batches = {name: split_into_batches(array, images_at_once) for name, array in to_feed.items()}
        runs = [
            self._run(session, dict(zip(batches, arrays, strict=True)), names)
            for arrays in zip(*batches.values(), strict=True)
        ]
        # The last batch may have been filled up with further images.
        joined = {name: np.concatenate([run.pop(name) for run in runs])[: len(batch)] for name in names}
        return {
            name: value if name in self.arrays else with_channels_first(value)
            for name, value in joined.items()
        }

    def value_of(self, name: str) -> str:
        """Return a key that is equal for two names of the same value."""
        return _output_name(self.values[name])

    def _further_arrays(self, batch: Array) -> dict[str, Array]:
        """Return the arrays to feed to the graph's inputs after the first, by name; they are made of the
        images.
        """
        if self._takes is None:
            return {}
        names = (further.name for further in self._takes.further_inputs)
        return dict(zip(names, further_arrays(batch, self._takes), strict=True))

    def _to_feed(self, array: Array) -> Array:
        """Return a map N×C×H×W as N×H×W×C, or another value as it is, in the graph's number type."""
        return np.ascontiguousarray(with_channels_last(array), dtype=self._dtype)

    def _run(self, session: Any, inputs: dict[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
        """Run the session and return the values of these names. Raise CannotRun where an op has no kernel for
        the type, and UsageError where the graph does not take images of this size.
        """
        tensorflow = import_tensorflow()
        try:
            fed = {f"{op}:0": array for op, array in (self._constants | inputs).items()}
            values: dict[str, Array] = session.run(
                {name: _output_name(self.values[name]) for name in names}, fed
            )
        except (tensorflow.errors.UnimplementedError, tensorflow.errors.NotFoundError) as error:
            raise CannotRun(
                f"TensorFlow {tensorflow.__version__} cannot run this graph: {first_line(error)}"
            ) from None
        except tensorflow.errors.OpError as error:
            _, rows, columns, _ = inputs[self._input].shape
            size = f"{rows}x{columns}"
            raise UsageError(f"the graph cannot be run on images of {size}: {first_line(error)}") from None
        return values


def _output_name(source: str) -> str:
    """Return TensorFlow's name of a tensor, `op:index`, for `op` or `op:index`."""
    return f"{op_name(source)}:{output_index(source)}"


def _cut_graph(graph: Any, values: Mapping[str, str], kinds: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return a copy of a GraphDef in which all ops that read some values read placeholders instead, and the
    placeholders' names by the values' names. So the ops behind a value can be run on other numbers.

    Args:
        values: the values to replace, by name, as `op` or `op:place`.
        kinds: TensorFlow's number types of the values, by name.
    """
    cut_graph = type(graph)()
    cut_graph.CopyFrom(graph)
    used_names = {node.name for node in graph.node}
    placeholders = {_output_name(value): f"cut/{count}" for count, value in enumerate(values.values())}
    # Longer names, until no op of the graph has one of them.
    while used_names.intersection(placeholders.values()):
        placeholders = {value: f"cut/{name}" for value, name in placeholders.items()}
    for node in cut_graph.node:
        for index, source in enumerate(node.input):
            is_control_input = source.startswith("^")
            if not is_control_input and _output_name(source) in placeholders:
                node.input[index] = placeholders[_output_name(source)]
    for name, value in values.items():
        placeholder = cut_graph.node.add(name=placeholders[_output_name(value)], op="Placeholder")
        placeholder.attr["dtype"].type = kinds[name].as_datatype_enum
    return cut_graph, {name: placeholders[_output_name(value)] for name, value in values.items()}


def _find_input(tensorflow: Any, graph: Any, further: Collection[str]) -> tuple[str, tuple[int | None, ...]]:
    """Return the name and the shape (images, rows, columns, channels; None where free) of the graph's only
    input beside the `further` ones. Raise CannotRun where there are none or several, or where it takes no
    images of real numbers.
    """
    placeholders = [node for node in graph.node if node.op == "Placeholder" and node.name not in further]
    if len(placeholders) != 1:
        names = ", ".join(node.name for node in placeholders) or "none"
        raise CannotRun(f"porter runs graphs with one placeholder; this one has {names}")
    (node,) = placeholders
    if not tensorflow.as_dtype(node.attr["dtype"].type).is_floating:
        raise CannotRun("porter runs graphs whose input is of a floating type", where=node.name)
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    # A shape without dimensions is how old graphs say "any".
    if shape is None or shape.unknown_rank or not shape.dim:
        return node.name, (None, None, None, None)
    if len(shape.dim) != 4:
        raise CannotRun(
            f"porter feeds images N×H×W×C; this input has {len(shape.dim)} dimensions", where=node.name
        )
    return node.name, tuple(int(dimension.size) if dimension.size > 0 else None for dimension in shape.dim)


def _open_session(tensorflow: Any, graph: Any) -> Any:
    """Open a session on the CPU that runs the graph as it is, without rewriting it."""
    v1 = tensorflow.compat.v1
    config = v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    imported = tensorflow.Graph()
    try:
        with imported.as_default():
            tensorflow.graph_util.import_graph_def(graph, name="")
    except (ValueError, TypeError, tensorflow.errors.OpError) as error:
        raise CannotRun(
            f"TensorFlow {tensorflow.__version__} does not take this graph: {first_line(error)}"
        ) from None
    return v1.Session(graph=imported, config=config)
