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
        used_names: names of values and tensors.
        nodes: NodeProto.
        constants: by name.
        exact: numbers that an attribute rounds to float32, by the name of the node's value and of the
            attribute.
    """

    dtype: np.dtype[Any]
    tensors: Mapping[str, Mapping[str, str]]
    shapes: Mapping[str, Shape]
    used_names: Names
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    exact: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, op: str, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its value, which is the node's own. An input "" is one that the
        node does not take.
        """
        self.nodes.append(import_onnx().helper.make_node(op, inputs, [name], name, **attributes))
        for key, value in attributes.items():
            if isinstance(value, float) and float(np.float32(value)) != value:
                self.exact.setdefault(name, {})[key] = value
        return name

    def name(self, wanted: str) -> str:
        """Return `wanted`, or the first variation of it that nothing has, and reserve it."""
        return self.used_names.take(wanted)

    def integers(self, name: str, *numbers: int) -> str:
        """Add a constant vector of whole numbers and return its name."""
        return self._add_constant(name, np.array(numbers, np.int64))

    def scalar(self, name: str, number: float) -> str:
        """Add a constant real number and return its name."""
        return self._add_constant(name, np.array(number, self.dtype))

    def numbers(self, name: str, numbers: Sequence[float] | NDArray[Any]) -> str:
        """Add a constant of real numbers and return its name."""
        return self._add_constant(name, np.asarray(numbers, np.float64).astype(self.dtype))

    def _add_constant(self, name: str, array: Array) -> str:
        unique = self.name(name)
        self.constants[unique] = array
        return unique

    def add_filled(self, name: str, shape: str, number: float) -> str:
        """Add a value with `number` everywhere, whose shape is the value of `shape`, and return its name."""
        value = import_onnx().numpy_helper.from_array(np.array([number], self.dtype))
        return self.add("ConstantOfShape", name, shape, value=value)

    def state_all_axes(self) -> None:
        """Replace Pads and Resizes of some axes by those of all axes where a Transpose stands in the model
        and no pool reads them.

        onnxruntime 1.31 moves a Transpose through a Pad as if it stated all axes, and the run fails: "Gather:
        indices element out of data bounds" (onnxruntime/core/optimizer/transpose_optimization, HandlePad).
        For a pool, see `add_pad_by_value`.
        """
        if all(node.op_type != "Transpose" for node in self.nodes):
            return
        read_by_pools = {node.input[0] for node in self.nodes if node.op_type in ("MaxPool", "AveragePool")}
        # A Resize may add nodes to the list.
        for node in [*self.nodes]:
            if node.op_type == "Pad" and node.name not in read_by_pools and node.input[1] in self.constants:
                self._state_axes_of_pad(node)
            elif node.op_type == "Resize":
                self._state_axes_of_resize(node)

    def _state_axes_of_pad(self, node: Any) -> None:
        """Change a Pad of some axes by constant amounts so that it states the amounts of all axes, 0 for the
        others, and no axes.
        """
        # A Pad's inputs are the value, the amounts, the fill (or ""), and the axes.
        amounts, axes = self.constants[node.input[1]], self.constants.pop(node.input[3])
        rank = 1 + len(self.shapes[node.name]) if node.name in self.shapes else 4
        # Rows: the amounts before the cells of each axis, and those after.
        all_amounts = np.zeros((2, rank), np.int64)
        all_amounts[:, axes] = amounts.reshape(2, -1)
        self.constants[node.input[1]] = all_amounts.reshape(-1)
        # The axes go, and a fill that is left out goes with them.
        has_fill = bool(node.input[2])
        del node.input[3 if has_fill else 2 :]

    def _state_axes_of_resize(self, node: Any) -> None:
        """Let a Resize of rows and columns state all axes, because of the same fault (HandleResize): scales
        of 1 for batch and channels, or their own sizes. A Resize that states all axes already stays as it is.
        """
        indices = [index for index, attribute in enumerate(node.attribute) if attribute.name == "axes"]
        if not indices:
            return
        del node.attribute[indices[0]]
        # A Resize's inputs are the value, a region, the scales, and the sizes.
        if node.input[2]:
            self.constants[node.input[2]] = np.concatenate(
                [np.ones(2, np.float32), self.constants[node.input[2]]]
            )
            return
        before = self.nodes.index(node)
        outer = self.add("Shape", self.name(f"{node.name}_outer"), node.input[0], end=2)
        node.input[3] = self.add("Concat", self.name(f"{node.name}_sizes"), outer, node.input[3], axis=0)
        # The two new nodes were added last, and stand before the Resize that reads them.
        self.nodes[before:] = [*self.nodes[-2:], *self.nodes[before:-2]]

    def tensors_of(self, path: str, name: str, *roles: str) -> list[str]:
        """Return the names of a path's tensors of these roles, without those that its op lacks."""
        names = self.tensors.get(path, {})
        return [names[role] for role in roles if role in names]

    def add_slice(
        self,
        name: str,
        source: str,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] = (),
    ) -> str:
        """Add a Slice, along each of `axes` from a start to an end, and return its value."""
        numbers = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        bounds = [self.integers(f"{name}.{key}", *values) for key, values in numbers.items() if values]
        return self.add("Slice", name, source, *bounds)

    def add_pad(self, name: str, source: str, pads: Pads, fill: float, **attributes: Any) -> str:
        """Add a Pad of a map with cells of `fill`, or as `mode` says, and return its value."""
        top, bottom, left, right = pads
        amounts = self.integers(f"{name}.pads", top, left, bottom, right)
        return self.add_pad_by_value(name, source, amounts, fill, **attributes)

    def add_pad_by_value(
        self,
        name: str,
        source: str,
        amounts: str,
        fill: float,
        axes: Sequence[int] = (2, 3),
        **attributes: Any,
    ) -> str:
        """Add a Pad by amounts that are a value: those before the cells of each axis, then those after.

        The axes are stated for a reason: onnxruntime puts a Pad of zeros into the MaxPool behind it, whose
        own pads are -inf, which is another function. It does so by default, and not to a Pad with axes
        (onnxruntime/core/optimizer/pad_fusion.cc).
        """
        fill_value = "" if fill == 0 else self.scalar(f"{name}.fill", fill)
        axes_value = self.integers(f"{name}.axes", *axes)
        return self.add("Pad", name, source, amounts, fill_value, axes_value, **attributes)


@dataclass(frozen=True)
class OnnxSpelled(Spelled[NodeMaker, OpT]):
    """A node of a graph for which nodes of ONNX are added. Its constants have its name and an ending."""

    def integers(self, ending: str, *numbers: int) -> str:
        return self.maker.integers(f"{self.name}.{ending}", *numbers)

    def scalar(self, ending: str, number: float) -> str:
        return self.maker.scalar(f"{self.name}.{ending}", number)

    def numbers(self, ending: str, numbers: Sequence[float] | NDArray[Any]) -> str:
        return self.maker.numbers(f"{self.name}.{ending}", numbers)
