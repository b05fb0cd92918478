"""Makes the nodes of one symbol. See porter.frameworks.numpy.nets.Maker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from porter.base.dtypes import Array
from porter.frameworks.numpy.nets import Maker, NetArray, PortTensor
from porter.frameworks.spelled import OpT, Spelled
from porter.graph import INPUT
from porter.graph.ops import is_map
from porter.graph.plan import Plan
from porter.padding import ANY, Pads, Size

MxnetAttribute: TypeAlias = bool | int | float | str | Sequence[int]


_VERSION = 10901
"""MXNet 1.9.1, whose operators a symbol says: without a version it would be taken for one of 0.8."""


class SymbolMaker(Maker):
    """Nodes as the symbol's JSON has them.

    Attributes:
        states: the variables that are no arguments: MXNet updates them in training.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.states = set[str]()
        self.nodes = list[dict[str, Any]]()
        self._index_of_node = dict[str, int]()
        self._variables: dict[PortTensor, str] = {}
        input_axes = self.graph.axes or (self.graph.channels, *self.size)
        self.add("null", self.values[INPUT], __shape__=(0, *(axis or 0 for axis in input_axes)))

    def layer_name(self, path: str) -> str:
        return self.values[path]

    def add_placeholder(self, path: str) -> None:
        self.add("null", self.values[path])

    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """Write the symbol as JSON, with facts as its attributes; see Maker. It states the one size that it
        takes, so `size` is unused.
        """
        variables = [index for index, node in enumerate(self.nodes) if node["op"] == "null"]
        facts = {name: ["str", fact] for name, fact in (about or {}).items()}
        # The format's other tables: which nodes are variables, and where each node's outputs begin: each has
        # one.
        further: dict[str, Any] = {"arg_nodes": variables, "node_row_ptr": [*range(len(self.nodes) + 1)]}
        further |= {"heads": [[self.node_index(path), 0, 0] for path in self.graph.outputs]}
        further |= {"attrs": {"mxnet_version": ["int", _VERSION], **facts}}
        lines = ",\n".join(json.dumps(node) for node in self.nodes)
        ends = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in further.items())
        return f'{{"nodes": [\n{lines}\n],\n{ends}}}\n'

    def add(self, op: str, name: str, /, *inputs: str, **attributes: MxnetAttribute) -> str:
        """Add a node and return its name, which is its value's. A path in `inputs` stands for the value of
        that path.
        """
        # An entry is a node, which of its outputs, and a version.
        sources = [[self.node_index(source), 0, 0] for source in inputs]
        self._index_of_node[name] = len(self.nodes)
        node: dict[str, Any] = {"op": op, "name": name}
        if attributes:
            node["attrs"] = {key: _attribute_text(value) for key, value in attributes.items()}
        self.nodes.append({**node, "inputs": sources})
        return name

    def node_index(self, source: str) -> int:
        """Return the index, among all nodes, of the node that gives a path's value, or of a node or variable
        of this name.
        """
        return self._index_of_node[self.values.get(source, source)]

    def add_variable(self, name: str, content: NetArray, *, state: bool = False) -> str:
        """Add a variable for an array and return its name. A tensor of the port has one variable only, which
        all calls of its layer share.
        """
        if isinstance(content, PortTensor):
            content = replace(content, path=self.graph.by_path[content.path].holder)
            if content in self._variables:
                return self._variables[content]
        name = self.name(name)
        if isinstance(content, PortTensor):
            self._variables[content] = name
        self.contents[name] = content
        self.states |= {name} if state else set()
        return self.add("null", name)

    def tensors_of(self, path: str, name: str, *roles: str) -> list[str]:
        """Add variables for the tensors of a path of these roles, under the layer's `name`, and return their
        names, without those that its op lacks; see porter.frameworks.spelled.LayerMaker.
        """
        shapes = self.tensors.get(path, {})
        return [
            self.add_variable(f"{name}_{NAMES[role]}", PortTensor(path, role, shapes[role]))
            for role in roles
            if role in shapes
        ]

    def shape_along_channels(self, path: str) -> tuple[int, ...]:
        """Return the shape of an array with one number for each channel of a path's value: (1, C, 1, 1) for a
        map, (1, C) for features.
        """
        axes_of_cells = (1, 1) if is_map(self.shapes[path]) else ()
        return (1, self.channels(path), *axes_of_cells)

    def add_crop(self, name: str, source: str, pads: Pads) -> str:
        """Cut so many rows and columns off a map at its top, bottom, left and right, and return the name of
        the result: of `source` where nothing is cut.
        """
        top, bottom, left, right = pads
        for axis, before, after in ((2, top, bottom), (3, left, right)):
            # The last cut gives the value, so it has the name.
            is_last = axis == 3 or not (left or right)
            if before or after:
                step_name = name if is_last else self.name(f"{name}_rows")
                end = -after if after else "None"
                source = self.add("slice_axis", step_name, source, axis=axis, begin=before, end=end)
        return source

    def add_pad(self, name: str, source: str, pads: Pads, fill: float = 0.0, mode: str = "constant") -> str:
        """Add a Pad of a map at its top, bottom, left and right, with `fill` or by another mode, and return
        the name of its value.
        """
        return self.add("Pad", name, source, mode=mode, pad_width=(0, 0, 0, 0, *pads), constant_value=fill)

    def add_pad_or_crop(self, name: str, source: str, pads: Pads) -> str:
        """Add pads of zeros to a map, or cut off as many cells where they are negative, and return the name
        of the result: of `source` where all are 0.
        """
        top, bottom, left, right = pads
        added = (max(top, 0), max(bottom, 0), max(left, 0), max(right, 0))
        cut = (max(-top, 0), max(-bottom, 0), max(-left, 0), max(-right, 0))
        if any(cut):
            source = self.add_crop(self.name(f"{name}_cut") if any(added) else name, source, cut)
        return self.add_pad(name, source, added) if any(added) else source

    def add_channel_sums(
        self, name: str, source: str, kernel: Array, stride: Sequence[int] = (1, 1), groups: int = 1
    ) -> str:
        """Add sums over channels, as those of a convolution of one cell; the kernel is filters x channels of
        a group.
        """
        # A value that is no path, such as a crop, is a map.
        if not is_map(self.shapes.get(source, (0, 0, 0))):
            weight = self.add_variable(f"{name}_weight", kernel)
            return self.add("FullyConnected", name, source, weight, num_hidden=len(kernel), no_bias=True)
        weight = self.add_variable(f"{name}_weight", kernel[:, :, None, None])
        filters = {"num_filter": len(kernel), "num_group": groups}
        return self.add(
            "Convolution", name, source, weight, kernel=(1, 1), stride=stride, no_bias=True, **filters
        )

    def add_filled(self, name: str, source: str, number: float) -> str:
        """Add a value of the shape of another, with `number` everywhere: 0 * x + number."""
        zeros = self.add("_mul_scalar", self.name(f"{name}_zero"), source, scalar=0.0)
        return self.add("_plus_scalar", name, zeros, scalar=number)


MxnetNode = Spelled[SymbolMaker, OpT]
"""A node that nodes of MXNet say."""


NAMES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "gamma",
    "beta": "beta",
    "alpha": "gamma",
    "mean": "moving_mean",
    "variance": "moving_var",
}
"""MXNet's names of tensors, by role."""


def _attribute_text(value: MxnetAttribute) -> str:
    """Return an attribute's value as the symbol's text has it, as Python spells it: `True`, `(3, 3)`."""
    if isinstance(value, bool | int | float | str):
        return str(value)
    numbers = ", ".join(map(str, value))
    return f"({numbers},)" if len(value) == 1 else f"({numbers})"
