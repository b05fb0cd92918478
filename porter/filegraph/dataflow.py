"""What the nodes of an op graph compute from constants and sizes, each once.

It is the same for every format that is a graph of ops: a format says which of its ops numpy evaluates, and
how.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from porter.base.dtypes import Array, NamedArrays, Numbers, is_floating
from porter.base.left_out import LeftOut
from porter.filegraph.layouts.dims import Dim, fixed_sizes
from porter.filegraph.layouts.size_arrays import are_open, to_whole_number
from porter.filegraph.tensors.constants import MOST_COMPUTED
from porter.filegraph.value_names import NodeOutput
from porter.graph import MOST_CONSTANTS
from porter.graph.walks import downstream, in_order

SourceOrNumber = NodeOutput | float
"""What a node reads: a value, or a number that it states itself."""

MOST_OF_SIZES = 1 << 18
"""The most numbers of a value that a file computes from sizes: a detector has 8,400 cells for an image of
640x640.
"""
_MOST_STEPS = 1 << 18
"""Nodes that `Dataflow.weights` goes through in all: a kernel that a model standardises has ten, and no other
has any of them.
"""


class OperatorNode(Protocol):
    """A node of a format that names each node's op and inputs."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def inputs(self) -> tuple[NodeOutput, ...]: ...
    @property
    def source(self) -> NodeOutput: ...


N = TypeVar("N", bound=OperatorNode)
Evaluate = Callable[[N], Sequence[Numbers | None] | None]
"""Computes what a node gives from constants; None where numpy cannot."""


def names_depending_on(nodes: Mapping[str, OperatorNode], sources: Collection[str]) -> set[str]:
    """Return the names of `sources` and of the nodes that read them, directly or not. `nodes` are in
    topological order.
    """
    return downstream(nodes, lambda name: [source for source, _ in nodes[name].inputs], sources)


class StoredConstants(Protocol):
    """What a file stores, by the names of nodes."""

    def declared(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a constant; None for a node that is computed."""

    def array(self, name: str) -> Array:
        """Return the content of a constant. Raises FileError if it does not hold what it declares."""


@dataclass(frozen=True)
class Arrays:
    """Constants whose arrays are at hand."""

    arrays: NamedArrays

    def declared(self, name: str) -> tuple[int, ...] | None:
        return self.arrays[name].shape if name in self.arrays else None

    def array(self, name: str) -> Array:
        if name not in self.arrays:
            raise ValueError(f"it lacks the tensor '{name:.60}'")
        return self.arrays[name]


@dataclass(frozen=True)
class StoredTensor:
    """A constant or a variable, by the name of its node."""

    name: str
    shape: tuple[int, ...]

    @property
    def is_vector(self) -> bool:
        return bool(self.shape) and math.prod(self.shape) == max(self.shape)


@dataclass(frozen=True)
class Operators(Generic[N]):
    """What a format says of its nodes.

    Attributes:
        kind: the op of a node in patterns; empty if it is part of none.
        is_cast: whether a node gives the numbers of its first input, as a copy or in another type that has
            them.
        reshapes: ops that keep the numbers of their first input, in their order.
        operands: what a node reads in patterns: its inputs, and numbers that its format has as attributes.
        repeats: whether a node repeats a constant, its first input, for each image and no other axis.
        tensors_of: the tensors of a node by role, for formats whose nodes have their own; others read stored
            values among their inputs.
    """

    kind: Callable[[N], str] = lambda node: ""
    is_cast: Callable[[N], bool] = lambda node: False
    reshapes: Collection[str] = ()
    operands: Callable[[N], Sequence[SourceOrNumber]] = lambda node: node.inputs
    repeats: Callable[[N], bool] = lambda node: False
    tensors_of: Callable[[N], Mapping[str, str]] | None = None


@dataclass
class Dataflow(Generic[N]):
    """The constants of a graph.

    What a source holds may be stored, computed from constants, or computed from the sizes of the input:

    | method | stored | from constants | from sizes | gives |
    |---|---|---|---|---|
    | `content` | all | all | all, also truths and open sizes | an array |
    | `constant` | all | all | known numbers | an array |
    | `_small_content` | no more than an op may state | all | as `content` | an array |
    | `number`, `truth`, `dims`, `integers` | small ones | all | those of that kind | numbers of that kind |
    | `shape` | all | all | all | the sizes of `content` |
    | `tensor` | all, through casts | none | none | a name and a shape |
    | `weights` | as `tensor` | all, of any size | none | a name and a shape |

    All give None for what depends on the pixels of the input.

    Attributes:
        nodes: in order, without nodes that give their input unchanged.
        live: names of the nodes that depend on the input.
        budget: bytes that all values computed from constants may take.
        passed: layers that act in training only, which the nodes lack, each with the value that it takes.
        evaluate: the readers of operators, where all that a node reads is a constant. `read_nodes` of
            porter.filegraph.reading sets it: readers are given a walk, which is made of this.
        computed: values from constants, and what live nodes compute from the sizes of values.
        evaluated: tensors of any size that `weights` computed, by the names of their nodes.
        refused: names of those that it could not.
        steps: nodes that it went through.
    """

    nodes: Mapping[str, N]
    live: Collection[str]
    constants: StoredConstants
    operators: Operators[N]
    budget: int = 0
    passed: Sequence[tuple[LeftOut, NodeOutput]] = ()
    evaluate: Evaluate[N] = lambda node: None
    computed: dict[NodeOutput, Numbers] = field(default_factory=dict)
    evaluated: dict[str, Numbers] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    steps: int = 0

    def compute(self, node: N) -> bool:
        """Compute a node's values from constants if numpy can, keep them in `computed`, and return whether it
        could. What the node reads has no more numbers than an op of porter's may state, or is computed from
        sizes. Each node is computed once: in 64 sums of a value with itself it would be read 2**64 times.
        """
        if self.constants.declared(node.name) is not None:
            return False
        inputs = [value for source in node.inputs if (value := self._small_content(source)) is not None]
        # a live node has constant inputs only if these are computed from sizes
        most = MOST_OF_SIZES if node.name in self.live else MOST_CONSTANTS
        has_live_input = len(inputs) < len(node.inputs)
        if has_live_input or sum(value.size for value in inputs) > 4 * most:
            return False
        values = self._compute_outputs(node, most) or {}
        self.computed |= values
        return bool(values)

    def _compute_outputs(self, node: N, most: int) -> dict[NodeOutput, Numbers] | None:
        """Return the values of a node, by output; None if numpy cannot compute them within the budget, or one
        has more than `most` numbers.
        """
        arrays = {
            (node.name, index): value
            for index, value in enumerate(self.evaluate(node) or ())
            if value is not None
        }
        fits = all(value.size <= most for value in arrays.values())
        count_of_bytes = sum(value.nbytes for value in arrays.values())
        return arrays if fits and self.reserve_bytes(count_of_bytes) else None

    def reserve_bytes(self, count: int) -> bool:
        """Take so many bytes from the budget of what is computed from constants, and return whether there
        were as many.
        """
        self.budget -= count
        return self.budget >= 0

    def store_computed(self, name: str, array: Numbers) -> StoredTensor:
        """Keep an array that a reader computes among the stored tensors under this name, and return it as
        one.
        """
        self.evaluated[name] = array
        return StoredTensor(name, array.shape)

    def stored_numbers(self, name: str) -> Numbers:
        """Return the content of a tensor by its name: of a stored one, or of one that was computed."""
        return self.evaluated[name] if name in self.evaluated else self.constants.array(name)

    def drop_equal_rows(self, tensor: StoredTensor) -> StoredTensor:
        """Return a tensor that is the same all along its first axis, as a file repeats it for each image of a
        stated batch, with one cell there; another tensor is returned as it is.
        """
        if len(tensor.shape) <= 2 or tensor.shape[0] <= 1:
            return tensor
        array = self.stored_numbers(tensor.name).reshape(tensor.shape)
        if np.any(array[1:] != array[:1]):
            return tensor
        return self.store_computed(f"{tensor.name}:once", np.asarray(array[:1], np.float64))

    def add_constant(self, name: str, numbers: Numbers) -> NodeOutput:
        """Add numbers that a node states itself as a constant, and return its source."""
        self.computed[name, 0] = numbers
        return name, 0

    def is_live(self, source: NodeOutput) -> bool:
        """Return whether a value depends on the pixels of the input, and not only on its size."""
        return source[0] in self.live and source not in self.computed

    def constant(self, source: NodeOutput) -> Numbers | None:
        """Return a constant, floats in float64, or what is computed from known sizes; None if it depends on
        the input, or numpy cannot compute it.

        Raises:
            FileError: a constant does not hold what it declares.
        """
        node_name, _ = source
        if node_name not in self.live:
            return self.content(source)
        from_sizes = self.computed.get(source)
        # integers and floats, but no truths, and no objects, which are open sizes
        return from_sizes if from_sizes is not None and from_sizes.dtype.kind in "iuf" else None

    def content(self, source: NodeOutput) -> Numbers | None:
        """Return the numbers of a constant, truths, or sizes that may be open; None for what depends on
        pixels.
        """
        node_name, _ = source
        is_stored = self.constants.declared(node_name) is not None
        return self._stored_array(source) if is_stored else self.computed.get(source)

    def number(self, source: SourceOrNumber) -> float | None:
        """Return a constant that is a single number; None for others."""
        if isinstance(source, float):
            return source
        tensor = self.tensor(source)
        if tensor is not None and math.prod(tensor.shape) != 1:  # a large one is not read for this
            return None
        value = self.constant(source)
        return float(value.ravel()[0]) if value is not None and value.size == 1 else None

    def truth(self, source: NodeOutput) -> bool | None:
        """Return a constant that is a single truth (such as the condition of an If), also one that follows
        from sizes whatever the open ones are; None for others.
        """
        value = self._small_content(source)
        is_truth = value is not None and value.size == 1 and value.dtype.kind == "b"
        return bool(value.item()) if value is not None and is_truth else None

    def dims(self, source: NodeOutput) -> list[Dim] | None:
        """Return whole numbers that a node reads, such as the sizes of a reshape; open sizes are among them
        where they depend on the input's size. None if they are unknown or not whole.
        """
        value = self._small_content(source)
        if value is None:
            return None
        are_whole = are_open(value) or np.array_equal(value, np.trunc(value))
        return [to_whole_number(number) for number in value.ravel().tolist()] if are_whole else None

    def integers(self, source: NodeOutput) -> list[int] | None:
        """Return the sizes that `dims` gives, as integers.

        Raises:
            Undecided: one of them is open.
        """
        dims = self.dims(source)
        return None if dims is None else fixed_sizes(dims)

    def tensor(self, source: NodeOutput) -> StoredTensor | None:
        """Return the stored tensor, a constant or a variable, that a node reads here, also through casts.
        None for what is computed, and for a tensor that is reshaped on the way, unless it is a vector, whose
        numbers keep their order.
        """
        origin = self.origin(source)
        shape = self.constants.declared(origin)
        if shape is None or source[0] in self.live:
            return None
        stored = StoredTensor(origin, shape)
        is_reshaped = self._before_casts.get(source[0], source[0]) != origin
        return None if is_reshaped and not stored.is_vector else stored

    def weights(self, source: NodeOutput) -> StoredTensor | None:
        """Return a stored tensor, as `tensor` gives it, or what numpy computes from stored tensors, in
        float64: a kernel that a model standardises as it runs. None for others.

        No step of it has more numbers than its largest operand.
        """
        tensor = self.tensor(source)
        node_name, output = source
        name = f"{node_name}:{output}" if output else node_name
        if tensor is not None or node_name in self.live or self.budget < 0:
            return tensor
        is_new = name not in self.evaluated and name not in self.refused
        if is_new and self.steps <= _MOST_STEPS:
            array = self._compute_value(source)
            if array is None:
                self.refused.add(name)
            else:
                self.evaluated[name] = array
        return StoredTensor(name, self.evaluated[name].shape) if name in self.evaluated else None

    def _compute_value(self, end: NodeOutput) -> Numbers | None:
        """Compute a value from stored tensors of any size; return None if numpy cannot. What it is computed
        from is not kept.
        """
        if end in self.computed:
            return self.computed[end]
        end_node, _ = end
        order = in_order([end_node], lambda name: [read for read, _ in self._operands_of(name)])
        self.steps += len(order)
        kept = {*self.computed}
        try:
            return self.computed.get(end) if self._compute_nodes(order, kept) else None
        finally:
            for source in self.computed.keys() - kept:
                del self.computed[source]

    def _operands_of(self, name: str) -> Sequence[NodeOutput]:
        """Return what a node reads; nothing for a stored tensor."""
        if self.constants.declared(name) is not None:
            return ()
        if name not in self.nodes:
            raise ValueError(f"it lacks the tensor '{name:.60}'")
        return self.nodes[name].inputs

    def _compute_nodes(self, order: Sequence[str], kept: Collection[NodeOutput]) -> bool:
        """Compute nodes, given by name in an order in which each follows what it reads, into `computed`, and
        return whether numpy can compute them all.

        A value is dropped as soon as its last reader is computed, unless it is among `kept`.
        """
        last_reader = {source: name for name in order for source in self._operands_of(name)}
        for name in order:
            if self.constants.declared(name) is not None or (name, 0) in self.computed:
                continue
            operands = self._operands_of(name)
            shapes = [self.shape(source) for source in operands]
            if None in shapes:
                return False
            most = max((MOST_COMPUTED, *(math.prod(shape or ()) for shape in shapes)))
            results = self._compute_outputs(self.nodes[name], most)
            if not results:
                return False
            self.computed |= results
            for source in operands:
                if last_reader[source] == name and source not in kept:
                    self.computed.pop(source, None)
        return True

    def shape(self, source: NodeOutput) -> tuple[int, ...] | None:
        """Return the shape of a constant, or of what is computed from sizes; None if it depends on pixels, or
        numpy cannot compute it.
        """
        computed = self.computed.get(source)
        if computed is not None:
            return computed.shape
        if source[0] in self.live:
            return None
        return self.constants.declared(self._before_casts.get(source[0], source[0]))

    @cached_property
    def readers(self) -> Mapping[str, Sequence[N]]:
        """The nodes that read what a node gives, by its name."""
        readers = defaultdict[str, list[N]](list)
        for node in self.nodes.values():
            for name in dict.fromkeys(name for name, _ in node.inputs):
                readers[name].append(node)
        return readers

    def origin(self, source: NodeOutput) -> str:
        """Return the name of the node that gives a value or, of a constant, of the one before all casts and
        reshapes.
        """
        return self._before_casts_and_reshapes.get(source[0], source[0])

    @cached_property
    def _before_casts(self) -> Mapping[str, str]:
        return self._origins(())

    @cached_property
    def _before_casts_and_reshapes(self) -> Mapping[str, str]:
        return self._origins(self.operators.reshapes)

    def _origins(self, ops: Collection[str]) -> Mapping[str, str]:
        """Return for every node, by name, the node whose numbers it gives: for a cast of a constant, or one
        of these ops on it, the constant that it reads; for any other node itself.
        """
        origins: dict[str, str] = {}
        for node in self.nodes.values():
            keeps_numbers = node.op in ops or self.operators.is_cast(node)
            passes_on = keeps_numbers and node.inputs and node.name not in self.live
            is_origin = not passes_on or self.constants.declared(node.name) is not None
            origins[node.name] = node.name if is_origin else origins[node.source[0]]
        return origins

    def _stored_array(self, source: NodeOutput) -> Numbers | None:
        """Return the array that a constant stores: floats in float64, integers in int64, and others as they
        are. Return None for the output of any other node; a constant has one output, number 0.
        """
        name, output = source
        if output > 0:
            return None
        array = self.constants.array(name)
        if array.dtype.kind not in "iuf" and not is_floating(array):
            return array
        with np.errstate(invalid="ignore"):  # numpy warns of a signalling NaN that it casts
            return array.astype(np.float64 if is_floating(array) else np.int64)

    def _small_content(self, source: NodeOutput) -> Numbers | None:
        """Return a computed value, or a stored one if it is no larger than an op's constants may be;
        otherwise None.
        """
        shape = self.constants.declared(source[0])
        if shape is None:
            return self.computed.get(source)
        return self._stored_array(source) if math.prod(shape) <= MOST_CONSTANTS else None
