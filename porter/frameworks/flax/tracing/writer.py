"""A model in the making: the operations that JAX traces, written as operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.formats.onnx.proto import import_onnx
from porter.frameworks.flax.tracing.trace import MAX_STEPS, JaxEquation, PerTrace, Shape, Traced

LAST = "@last"
"""See porter.frameworks.in_memory.Saved.calls."""
FOREIGN = "jax"
"""The domain of primitives that ONNX has no operator for."""
_LOOPS = {
    "scan": f"scan of more than {MAX_STEPS} steps; a loop in Python may have more",
    "while": "while, whose steps nobody counts before it runs; a loop in Python says them",
}
"""What refusals call loops that are not written step by step."""
_MOVES = frozenset({"Expand", "Squeeze", "Reshape", "Transpose", "Unsqueeze"})


@dataclass
class Writer:
    """An ONNX model in the making. A traced value is one that JAX's operations give, and has a name in the
    trace; its value in the model has another name, and may still lack repeated cells or have further axes.

    Attributes:
        writes: by primitive, what adds its operators.
        model_values: by name of a traced value, the name of the value in the model.
        owners: by name of a traced value, the layer whose variable it is.
        size_sources: by open size, a value of the model and its axis that has it.
        producers: by name of a traced value, the operation that gives it.
        unexpanded: traced values whose value in the model has one cell where they repeat it.
        kept_axes: by name of a traced value that a sum has left axes out of, these axes, which its value in
            the model has with one cell.
        reductions: by value in the model, its operator and the value that it reduces.
        calls: by name of a value in the model, the traced one; with LAST where its map has its channels
            last, and the value in the model first.
        node_names: names that nodes have.
    """

    traced: Traced
    writes: Mapping[str, Write]
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    model_values: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    size_sources: dict[PerTrace, tuple[str, int]] = field(default_factory=dict)
    producers: dict[str, JaxEquation] = field(default_factory=dict)
    unexpanded: set[str] = field(default_factory=set)
    kept_axes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    reductions: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    node_names: set[str] = field(default_factory=set)
    _count: int = 0

    def __post_init__(self) -> None:
        self.onnx = import_onnx()
        self.owners = {name: name.rpartition(".")[0].replace(".", "/") for name in self.traced.variables}

    def write(self, operation: JaxEquation) -> None:
        """Add the operators that compute an operation's values, and note them; constants of constants are
        computed instead. What ONNX has no operator for is a node of the domain FOREIGN.
        """
        for name in operation.outputs:
            self.producers[name] = operation
        if self._fold_constants(operation):
            return
        # The layer whose variable it reads names its nodes.
        title = next((self.owners[name] for name in operation.inputs if name in self.owners), "")
        # What is made of variables only still belongs to their layer.
        if title and all(name in self.owners or name in self.traced.constants for name in operation.inputs):
            self.owners.update(dict.fromkeys(operation.outputs, title))
        count_before = len(self.nodes)
        write = self.writes.get(operation.name)
        values = write(self, operation) if write else None
        if values is None:  # ONNX has no operator for it
            inputs = [self.full_value(name) for name in operation.inputs]
            kind = _LOOPS.get(operation.name, operation.name)
            values = self.add_node_of_several(kind, inputs, len(operation.outputs), domain=FOREIGN)
        for node in self.nodes[count_before:]:
            self._name_node(node, title)
        values_of_outputs = [values] if isinstance(values, str) else values
        for name, value in zip(operation.outputs, values_of_outputs, strict=True):
            self.model_values[name] = value
            if name not in self.unexpanded and name not in self.kept_axes:
                self.note_open_sizes(name)
                self.calls.setdefault(value, name)

    def _fold_constants(self, operation: JaxEquation) -> bool:
        """Compute an operation of constants only, and note its values as constants. Return True if it was
        one, False for any other, for which nothing is done.
        """
        constants = [self.constant(name) for name in operation.inputs]
        is_broadcast = operation.name in ("broadcast_in_dim", "reshape")
        if is_broadcast and not is_open(constants[0]) and np.ndim(constants[0]) == 0:
            self.traced.constants[operation.outputs[0]] = constants[0]  # one number for all cells
            self.unexpanded.add(operation.outputs[0])
            return True
        has_unexpanded = not self.unexpanded.isdisjoint(operation.inputs)
        has_variable = any(constant is None for constant in constants)
        if has_unexpanded or has_variable or has_open([*constants, *operation.params.values()]):
            return False
        computed = operation.primitive.bind(*constants, **operation.params)
        values = computed if operation.primitive.multiple_results else [computed]
        self.traced.constants.update(zip(operation.outputs, values, strict=True))
        return True

    def _name_node(self, node: Any, title: str) -> None:
        """Name a node after its layer and its operator, as torch's exporter does. ONNX has each name once."""
        name = f"{title}/{node.op_type}"
        if title and node.op_type not in _MOVES and name not in self.node_names:
            self.node_names.add(name)
            node.name = name

    def note_open_sizes(self, name: str) -> None:
        """Note in `size_sources` that the open sizes of a value, which differ between traces, can be taken
        from it as the model runs.
        """
        for axis, size in enumerate(self.traced.shapes[name]):
            if isinstance(size, PerTrace):
                self.size_sources.setdefault(size, (self.model_values[name], axis))

    def add_node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node of one output and return its name."""
        (value,) = self.add_node_of_several(kind, inputs, 1, output, **attributes)
        return value

    def add_node_of_several(
        self, kind: str, inputs: Sequence[str], count: int, output: str | None = None, **attributes: Any
    ) -> list[str]:
        """Add a node of `count` outputs and return their names."""
        self._count += 1
        first = output or f"{kind}_{self._count}"
        names = [first, *(f"{first}_{number}" for number in range(1, count))]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def add_constant(self, array: Array, name: str | None = None) -> str:
        """Add a constant and return its name."""
        self._count += 1
        self.initializers.append(
            self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name or f"numbers_{self._count}")
        )
        return str(self.initializers[-1].name)

    def add_integers(self, *numbers: int) -> str:
        """Add a constant vector of whole numbers and return its name."""
        return self.add_constant(np.asarray(numbers, np.int64))

    def constant(self, name: str) -> Any:
        """Return the numbers of a value that the module's code states; None for any other value."""
        return self.traced.constants.get(name)

    def broadcastable_value(self, name: str) -> str:
        """Return the model's value for a traced one: a constant is added at its first use. The value may have
        one cell where the traced one repeats it, and axes of one cell that a sum has left out. Raise
        NotImplementedError for a constant that differs between the traced sizes.
        """
        if name not in self.model_values:
            if name in self.traced.variables:
                self.model_values[name] = self.add_constant(
                    np.asarray(self.traced.variables[name], np.float32), name
                )
            else:
                constant = self.traced.constants[name]
                if isinstance(constant, PerTrace):
                    raise NotImplementedError("a number that is computed from open sizes")
                self.model_values[name] = self.add_constant(np.asarray(constant))
        return self.model_values[name]

    def full_value(self, name: str) -> str:
        """Return the model's value for a traced one with all of its elements and no other axes. Nodes are
        added where it lacks them, once: from then on the traced value stands for what they give.
        """
        if name in self.kept_axes:
            axes = self.add_integers(*self.kept_axes.pop(name))
            # The reduction once more without these axes, or if it is none, a Squeeze.
            kind, source = self.reductions.get(self.model_values[name], ("", ""))
            if kind:
                self.model_values[name] = self.add_node(kind, source, axes, keepdims=0)
            else:
                self.model_values[name] = self.add_node("Squeeze", self.model_values[name], axes)
            self.note_open_sizes(name)
        if name in self.unexpanded:
            self.unexpanded.discard(name)
            self.model_values[name] = self.add_node(
                "Expand", self.broadcastable_value(name), self.add_sizes(self.traced.shapes[name])
            )
            self.note_open_sizes(name)
        return self.broadcastable_value(name)

    def broadcastable_inputs(self, operation: JaxEquation) -> list[str]:
        """Return the values in the model of the inputs of an elementwise operator such as Add, which itself
        repeats axes of one cell. Where all inputs that have axes lack the same ones after a sum, they keep
        them with one cell, and so does the value; otherwise these axes are left out. If no input has all
        cells, all get theirs.
        """
        names, (output,) = operation.inputs, operation.outputs
        # The axes that each input still has with one cell; None for an input without such axes.
        kept_axes = {self.kept_axes.get(name) for name in names if self.shape(name)}
        common_axes = kept_axes.pop() if len(kept_axes) == 1 else None
        if common_axes is not None:
            self.kept_axes[output] = common_axes
        else:
            for name in names:
                if name in self.kept_axes:
                    self.full_value(name)
        # Then the operator repeats the cells of the others.
        one_has_all_cells = self.shape(output) in [
            self.shape(name) for name in names if name not in self.unexpanded
        ]
        if one_has_all_cells or common_axes is not None:
            return [self.broadcastable_value(name) for name in names]
        return [self.full_value(name) for name in names]

    def add_reduction(self, kind: str, source: str, axes: Sequence[int]) -> str:
        """Add a reduction such as ReduceSum, whose axes keep one cell, and return its value. It is noted in
        `reductions`, so that `full_value` can add it without these axes.
        """
        value = self.full_value(source)
        reduced = self.add_node(kind, value, self.add_integers(*axes), keepdims=1)
        self.reductions[reduced] = (kind, value)
        return reduced

    def same_value(self, source: str, output: str) -> str:
        """Return the model's value for `source` as that of `output` too, a traced value of the same shape: it
        may lack the same cells, and have the same axes of one cell.
        """
        if source in self.unexpanded:
            self.unexpanded.add(output)
        if source in self.kept_axes:
            self.kept_axes[output] = self.kept_axes[source]
        return self.broadcastable_value(source)

    def shape_with_kept_axes(self, name: str) -> Shape:
        """Return the shape of the value in the model, with the axes of one cell that a sum has left out."""
        sizes = [*self.shape(name)]
        for axis in self.kept_axes.get(name, ()):
            sizes.insert(axis, 1)
        return tuple(sizes)

    def add_transpose(self, name: str, order: Sequence[int]) -> str:
        """Add a Transpose of a traced value into this order of axes, and return its value. One of a map to
        N×C×H×W is noted in `calls`.
        """
        value = self.add_node("Transpose", self.full_value(name), perm=order)
        if tuple(order) == (0, 3, 1, 2):
            self.calls[value] = f"{name}{LAST}"
        return value

    def shape(self, name: str) -> Shape:
        return self.traced.shapes[name]

    def add_sizes(self, sizes: Sequence[Any], before: Shape = ()) -> str:
        """Add sizes as a vector of the model, and return its name: a constant where all are known, or 0 and
        -1 say them, otherwise a Concat with sizes that are taken from other values.

        Args:
            before: the shape of the value that a Reshape takes, in which a size that stays is 0 and one may
                be -1.
        """
        # Numbers, and names of values that have one.
        parts = list[int | str]()
        can_infer = bool(before)
        for index, size in enumerate(sizes):
            if not isinstance(size, PerTrace):
                parts.append(size)
            elif index < len(before) and before[index] == size:
                # The size of this axis stays.
                parts.append(0)
            elif can_infer:
                # One open size follows from all others.
                parts.append(-1)
                can_infer = False
            else:
                parts.append(self.add_open_size(size))
        if all(isinstance(part, int) for part in parts):
            return self.add_integers(*(int(part) for part in parts))
        values = [part if isinstance(part, str) else self.add_integers(part) for part in parts]
        return self.add_node("Concat", *values, axis=0)

    def add_open_size(self, size: PerTrace) -> str:
        """Add nodes that take an open size from a value that has it, and return their value, a vector of one
        number.
        """
        if size not in self.size_sources:
            raise NotImplementedError(f"the size {size}")
        value, axis = self.size_sources[size]
        return self.add_node("Gather", self.add_node("Shape", value), self.add_integers(axis), axis=0)

    def find_producer(self, name: str, kind: str) -> JaxEquation | None:
        """Return the operation of this kind that gives a value, or None. The value may be broadcast or
        reshaped since, if that gives it no other cells.
        """
        producer = self.producers.get(name)
        while producer is not None and producer.name != kind:
            if producer.name not in ("broadcast_in_dim", "reshape", "stop_gradient"):
                return None
            producer = self.producers.get(producer.source)
        return producer


def is_open(number: Any) -> bool:
    """Say whether a number is not known, or not the same at each size."""
    return number is None or isinstance(number, PerTrace)


def has_open(value: Any) -> bool:
    """Say whether a value is, or holds in tuples or lists, one that differs between the traces."""
    return isinstance(value, PerTrace) or (isinstance(value, tuple | list) and any(map(has_open, value)))


Write = Callable[[Writer, JaxEquation], "str | list[str] | None"]
"""Adds what computes an operation's values, and gives their names; None where ONNX has no operator for it."""


def elementwise(kind: str, *attributes: tuple[str, Any]) -> Write:
    """Return what writes an operator `kind` of each number, whose inputs may have axes of one cell."""

    def write_operator(writer: Writer, operation: JaxEquation) -> str:
        return writer.add_node(kind, *writer.broadcastable_inputs(operation), **dict(attributes))

    return write_operator
