"""Makes the nodes of one ONNX model, and the constants that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.filegraph.names import Names
from porter.formats.onnx.proto import import_onnx
from porter.frameworks.spelled import OpT, Spelled
from porter.graph import Shape
from porter.padding import Pads


@dataclass
class NodeMaker:
    """Nodes in the order in which they are made.

    Attributes:
        dtype: of all values and of the constants that are real numbers.
        tensors: names of the stored tensors, by path and role.
        shapes: of every path, for the sizes of input that the model takes.
        taken: names of values and tensors.
        nodes: NodeProto.
        constants: by name.
        exact: numbers that an attribute rounds to float32, by the name of the node's value and of the
            attribute.
    """

    dtype: np.dtype[Any]
    tensors: Mapping[str, Mapping[str, str]]
    shapes: Mapping[str, Shape]
    taken: Names
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    exact: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, op: str, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its value, which is the node's own. An input "" is one that it
        does not take.
        """
        self.nodes.append(import_onnx().helper.make_node(op, inputs, [name], name, **attributes))
        for key, value in attributes.items():
            if isinstance(value, float) and float(np.float32(value)) != value:
                self.exact.setdefault(name, {})[key] = value
        return name

    def name(self, wanted: str) -> str:
        """`wanted`, or the first variation of it that nothing has."""
        return self.taken.take(wanted)

    def integers(self, name: str, *numbers: int) -> str:
        """Return a constant vector of whole numbers."""
        return self._constant(name, np.array(numbers, np.int64))

    def scalar(self, name: str, number: float) -> str:
        return self._constant(name, np.array(number, self.dtype))

    def numbers(self, name: str, numbers: Sequence[float] | NDArray[Any]) -> str:
        """Return a constant of real numbers."""
        return self._constant(name, np.asarray(numbers, np.float64).astype(self.dtype))

    def _constant(self, name: str, array: Array) -> str:
        unique = self.name(name)
        self.constants[unique] = array
        return unique

    def filled(self, name: str, shape: str, number: float) -> str:
        """Return a value of a shape that is a value, with `number` everywhere."""
        value = import_onnx().numpy_helper.from_array(np.array([number], self.dtype))
        return self.add("ConstantOfShape", name, shape, value=value)

    def state_all_axes(self) -> None:
        """Make Pads and Resizes of some axes those of all where a Transpose stands in the model and no pool
        reads them.

        onnxruntime 1.31 moves a Transpose through a Pad as if it stated all axes, and the run fails: "Gather:
        indices element out of data bounds" (onnxruntime/core/optimizer/transpose_optimization, HandlePad).
        For a pool, see `pad_by`.
        """
        pooled = {node.input[0] for node in self.nodes if node.op_type in ("MaxPool", "AveragePool")}
        turned = any(node.op_type == "Transpose" for node in self.nodes)
        for node in self.nodes if turned else ():
            if node.op_type == "Pad" and node.name not in pooled and node.input[1] in self.constants:
                amounts, axes = self.constants[node.input[1]], self.constants.pop(node.input[3])
                rank = 1 + len(self.shapes[node.name]) if node.name in self.shapes else 4
                whole = np.zeros((2, rank), np.int64)
                whole[:, axes] = amounts.reshape(2, -1)
                self.constants[node.input[1]] = whole.reshape(-1)
                del node.input[3 if node.input[2] else 2 :]
        for node in [node for node in self.nodes if turned and node.op_type == "Resize"]:
            self._resize_all_axes(node)

    def _resize_all_axes(self, node: Any) -> None:
        """Make a Resize of rows and columns one of all axes, for the same fault (HandleResize)."""
        places = [index for index, attribute in enumerate(node.attribute) if attribute.name == "axes"]
        if not places:
            return
        del node.attribute[places[0]]
        if node.input[2]:
            self.constants[node.input[2]] = np.concatenate(
                [np.ones(2, np.float32), self.constants[node.input[2]]]
            )
            return
        before = self.nodes.index(node)
        outer = self.add("Shape", self.name(f"{node.name}_outer"), node.input[0], end=2)
        node.input[3] = self.add("Concat", self.name(f"{node.name}_sizes"), outer, node.input[3], axis=0)
        self.nodes[before:] = [*self.nodes[-2:], *self.nodes[before:-2]]

    def trained(self, path: str, name: str, *roles: str) -> list[str]:
        """Return the names of the tensors of a path of these roles, without those that its op lacks."""
        names = self.tensors.get(path, {})
        return [names[role] for role in roles if role in names]

    def cut(
        self,
        name: str,
        source: str,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] = (),
    ) -> str:
        """Return a Slice: along each of `axes` from a start to an end."""
        numbers = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        given = [self.integers(f"{name}.{key}", *values) for key, values in numbers.items() if values]
        return self.add("Slice", name, source, *given)

    def pad(self, name: str, source: str, pads: Pads, fill: float, **attributes: Any) -> str:
        """Return a map with cells of `fill` around it, or as `mode` says."""
        top, bottom, left, right = pads
        return self.pad_by(
            name, source, self.integers(f"{name}.pads", top, left, bottom, right), fill, **attributes
        )

    def pad_by(
        self,
        name: str,
        source: str,
        amounts: str,
        fill: float,
        axes: Sequence[int] = (2, 3),
        **attributes: Any,
    ) -> str:
        """Pads, as `pad` does, by amounts that are a value: those before the cells of each axis, then those
        after.

        The axes are stated for a reason: onnxruntime puts a Pad of zeros into the MaxPool behind it, whose
        own pads are -inf, which is another function. It does so by default, and not to a Pad with axes
        (onnxruntime/core/optimizer/pad_fusion.cc).
        """
        value = "" if fill == 0 else self.scalar(f"{name}.fill", fill)
        return self.add(
            "Pad", name, source, amounts, value, self.integers(f"{name}.axes", *axes), **attributes
        )


@dataclass(frozen=True)
class OnnxSpelled(Spelled[NodeMaker, OpT]):
    """A node that nodes of ONNX say, and constants under its name."""

    def integers(self, ending: str, *numbers: int) -> str:
        return self.maker.integers(f"{self.name}.{ending}", *numbers)

    def scalar(self, ending: str, number: float) -> str:
        return self.maker.scalar(f"{self.name}.{ending}", number)

    def numbers(self, ending: str, numbers: Sequence[float] | NDArray[Any]) -> str:
        return self.maker.numbers(f"{self.name}.{ending}", numbers)
