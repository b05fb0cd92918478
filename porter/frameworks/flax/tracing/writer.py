"""A model in the making: the operations that JAX traces, written as operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.formats.onnx.proto import import_onnx
from porter.frameworks.flax.tracing.trace import MOST_STEPS, JaxEquation, PerTrace, Shape, Traced

LAST = "@last"
"""See porter.frameworks.in_memory.Saved.calls."""
FOREIGN = "jax"
"""The domain of primitives that ONNX has no operator for."""
_LOOPS = {
    "scan": f"scan of more than {MOST_STEPS} steps; a loop in Python may have more",
    "while": "while, whose steps nobody counts before it runs; a loop in Python says them",
}
"""What refusals call loops that are not written step by step."""
_MOVES = frozenset({"Expand", "Squeeze", "Reshape", "Transpose", "Unsqueeze"})


@dataclass
class Writer:
    """A model in the making.

    Attributes:
        writes: by primitive, what adds its operators.
        known: by name of a traced value, the name of the value in the model.
        owners: by name of a traced value, the layer whose variable it is.
        sizes: by open size, a value of the model and its axis that has it.
        made: the operation that gives a traced value.
        narrow: traced values whose value in the model lacks cells.
        kept: by name of a traced value that a sum has left axes out of, these, which its value in the model
            has with one cell.
        reduced: by value in the model, its operator and what that reduces.
        calls: by name of a value in the model, the traced one; with LAST where its map has its channels
            last, and the value in the model first.
        names: of nodes.
    """

    traced: Traced
    writes: Mapping[str, Write]
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    sizes: dict[PerTrace, tuple[str, int]] = field(default_factory=dict)
    made: dict[str, JaxEquation] = field(default_factory=dict)
    narrow: set[str] = field(default_factory=set)
    kept: dict[str, tuple[int, ...]] = field(default_factory=dict)
    reduced: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    _count: int = 0

    def __post_init__(self) -> None:
        self.onnx = import_onnx()
        self.owners = {name: name.rpartition(".")[0].replace(".", "/") for name in self.traced.variables}

    def write(self, operation: JaxEquation) -> None:
        """Add what computes an operation's values."""
        for name in operation.outputs:
            self.made[name] = operation
        constants = [self.constant(name) for name in operation.inputs]
        if (
            operation.name in ("broadcast_in_dim", "reshape")
            and not is_open(constants[0])
            and np.ndim(constants[0]) == 0
        ):
            self.traced.constants[operation.outputs[0]] = constants[0]  # one number for all cells
            self.narrow.add(operation.outputs[0])
            return
        if (
            self.narrow.isdisjoint(operation.inputs)
            and all(each is not None for each in constants)
            and not has_open([*constants, *operation.params.values()])
        ):
            computed = operation.primitive.bind(*constants, **operation.params)
            values = computed if operation.primitive.multiple_results else [computed]
            self.traced.constants.update(zip(operation.outputs, values, strict=True))
            return
        title = next((self.owners[name] for name in operation.inputs if name in self.owners), "")
        if title and all(name in self.owners or name in self.traced.constants for name in operation.inputs):
            self.owners.update(dict.fromkeys(operation.outputs, title))
        before = len(self.nodes)
        made = write(self, operation) if (write := self.writes.get(operation.name)) else None
        if made is None:
            inputs = [self.full(name) for name in operation.inputs]
            kind = _LOOPS.get(operation.name, operation.name)
            made = self.several(kind, inputs, len(operation.outputs), domain=FOREIGN)
        for node in self.nodes[before:]:
            self._name(node, title)
        for name, value in zip(operation.outputs, [made] if isinstance(made, str) else made, strict=True):
            self.known[name] = value
            if name not in self.narrow and name not in self.kept:
                self.see(name)
                self.calls.setdefault(value, name)

    def _name(self, node: Any, title: str) -> None:
        """Call a node as its layer and its operator, as torch's exporter does. ONNX has each name once."""
        name = f"{title}/{node.op_type}"
        if title and node.op_type not in _MOVES and name not in self.names:
            self.names.add(name)
            node.name = name

    def see(self, name: str) -> None:
        """Remember where open sizes can be taken from."""
        for axis, size in enumerate(self.traced.shapes[name]):
            if isinstance(size, PerTrace):
                self.sizes.setdefault(size, (self.known[name], axis))

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        (made,) = self.several(kind, inputs, 1, output, **attributes)
        return made

    def several(
        self, kind: str, inputs: Sequence[str], count: int, output: str | None = None, **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs. Return their names."""
        self._count += 1
        first = output or f"{kind}_{self._count}"
        names = [first, *(f"{first}_{number}" for number in range(1, count))]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def add_constant(self, array: Array, name: str | None = None) -> str:
        """Add a constant. Return its name."""
        self._count += 1
        self.initializers.append(
            self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name or f"numbers_{self._count}")
        )
        return str(self.initializers[-1].name)

    def integers(self, *numbers: int) -> str:
        return self.add_constant(np.asarray(numbers, np.int64))

    def constant(self, name: str) -> Any:
        """Return the numbers of a value that the module's code states; None of another one."""
        return self.traced.constants.get(name)

    def of(self, name: str) -> str:
        """Return the value in the model of a traced one, which may have one cell where that repeats it."""
        if name not in self.known:
            if name in self.traced.variables:
                self.known[name] = self.add_constant(
                    np.asarray(self.traced.variables[name], np.float32), name
                )
            else:
                constant = self.traced.constants[name]
                if isinstance(constant, PerTrace):
                    raise NotImplementedError("a number that is computed from open sizes")
                self.known[name] = self.add_constant(np.asarray(constant))
        return self.known[name]

    def full(self, name: str) -> str:
        """Return the value as `of` gives it, but with all of its elements and no other axes."""
        if name in self.kept:
            axes = self.integers(*self.kept.pop(name))
            kind, source = self.reduced.get(self.known[name], ("", ""))
            value = (
                self.node(kind, source, axes, keepdims=0)
                if kind
                else self.node("Squeeze", self.known[name], axes)
            )
            self.known[name] = value
            self.see(name)
        if name in self.narrow:
            self.narrow.discard(name)
            self.known[name] = self.node("Expand", self.of(name), self.dims(self.traced.shapes[name]))
            self.see(name)
        return self.of(name)

    def stretching(self, operation: JaxEquation) -> list[str]:
        """Return what an operator of each number takes, which stretches axes of one cell itself."""
        names, (made,) = operation.inputs, operation.outputs
        axes = {self.kept.get(name) for name in names if self.shape(name)}
        (own,) = axes if len(axes) == 1 else (None,)
        if own is not None:
            self.kept[made] = own
        else:
            for name in filter(self.kept.__contains__, names):
                self.full(name)
        if self.shape(made) in [self.shape(name) for name in names if name not in self.narrow]:
            return [*map(self.of, names)]
        return [*map(self.full, names)] if own is None else [*map(self.of, names)]

    def reduce(self, kind: str, source: str, axes: Sequence[int]) -> str:
        """Return a value whose axes keep one cell."""
        value = self.full(source)
        made = self.node(kind, value, self.integers(*axes), keepdims=1)
        self.reduced[made] = (kind, value)
        return made

    def alias(self, source: str, made: str) -> str:
        """Return the value of another traced one of the same shape."""
        if source in self.narrow:
            self.narrow.add(made)
        if source in self.kept:
            self.kept[made] = self.kept[source]
        return self.of(source)

    def wide(self, name: str) -> Shape:
        """Return the shape of the value in the model, where it has axes that a sum has left out."""
        sizes = [*self.shape(name)]
        for axis in self.kept.get(name, ()):
            sizes.insert(axis, 1)
        return tuple(sizes)

    def turned(self, name: str, order: Sequence[int]) -> str:
        """Return the value in the model of a traced one, with its axes in another order."""
        value = self.node("Transpose", self.full(name), perm=order)
        if tuple(order) == (0, 3, 1, 2):
            self.calls[value] = f"{name}{LAST}"
        return value

    def shape(self, name: str) -> Shape:
        return self.traced.shapes[name]

    def dims(self, sizes: Sequence[Any], before: Shape = ()) -> str:
        """Return sizes as a value of the model.

        Args:
            before: of the value that a Reshape takes.
        """
        parts = list[int | str]()
        free = bool(before)
        for index, size in enumerate(sizes):
            if not isinstance(size, PerTrace):
                parts.append(size)
            elif index < len(before) and before[index] == size:
                parts.append(0)
            elif free:
                parts.append(-1)
                free = False
            else:
                parts.append(self.size(size))
        if all(isinstance(part, int) for part in parts):
            return self.integers(*(int(part) for part in parts))
        return self.node(
            "Concat", *(part if isinstance(part, str) else self.integers(part) for part in parts), axis=0
        )

    def size(self, size: PerTrace) -> str:
        """Return an open size as a value of the model, of one number."""
        if size not in self.sizes:
            raise NotImplementedError(f"the size {size}")
        value, axis = self.sizes[size]
        return self.node("Gather", self.node("Shape", value), self.integers(axis), axis=0)

    def giving(self, name: str, kind: str) -> JaxEquation | None:
        """Return the operation of this kind that gives a value, which may be broadcast or reshaped, if it
        does not get other cells.
        """
        made = self.made.get(name)
        while (
            made is not None
            and made.name in ("broadcast_in_dim", "reshape", "stop_gradient")
            and made.name != kind
        ):
            made = self.made.get(made.source)
        return made if made is not None and made.name == kind else None


def is_open(number: Any) -> bool:
    """Say whether a number is none, or not the same at each size."""
    return number is None or isinstance(number, PerTrace)


def has_open(value: Any) -> bool:
    return isinstance(value, PerTrace) or (isinstance(value, tuple | list) and any(map(has_open, value)))


Write = Callable[[Writer, JaxEquation], "str | list[str] | None"]
"""Adds what computes an operation's values, and gives their names; None where ONNX has no operator for it."""


def plain(kind: str, *attributes: tuple[str, Any]) -> Write:
    """Return an operator of each number, of values that may be stretched."""

    def write(writer: Writer, operation: JaxEquation) -> str:
        return writer.node(kind, *writer.stretching(operation), **dict(attributes))

    return write
