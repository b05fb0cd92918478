"""Makes the nodes of one symbol. See porter.frameworks.numpy.nets.Maker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from porter.base.dtypes import Array
from porter.frameworks.numpy.nets import Maker, NetArray, Trained
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
        self._places = dict[str, int]()
        self._trained: dict[Trained, str] = {}
        taken = self.graph.axes or (self.graph.channels, *self.size)
        self.add("null", self.values[INPUT], __shape__=(0, *(axis or 0 for axis in taken)))

    def own_name(self, path: str) -> str:
        return self.values[path]

    def left_out(self, path: str) -> None:
        self.add("null", self.values[path])

    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """See Maker. The symbol states the one size that it takes."""
        variables = [index for index, node in enumerate(self.nodes) if node["op"] == "null"]
        facts = {name: ["str", fact] for name, fact in (about or {}).items()}
        known: dict[str, Any] = {"arg_nodes": variables, "node_row_ptr": [*range(len(self.nodes) + 1)]}
        known |= {"heads": [[self.place(path), 0, 0] for path in self.graph.outputs]}
        known |= {"attrs": {"mxnet_version": ["int", _VERSION], **facts}}
        lines = ",\n".join(json.dumps(node) for node in self.nodes)
        ends = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in known.items())
        return f'{{"nodes": [\n{lines}\n],\n{ends}}}\n'

    def add(self, op: str, name: str, /, *inputs: str, **attributes: MxnetAttribute) -> str:
        """Add a node and return its name, which is its value's. A path in `inputs` stands for the value of
        that path.
        """
        sources = [[self.place(source), 0, 0] for source in inputs]
        words = {key: _said(value) for key, value in attributes.items()}
        self._places[name] = len(self.nodes)
        self.nodes.append(
            {"op": op, "name": name} | ({"attrs": words} if words else {}) | {"inputs": sources}
        )
        return name

    def place(self, source: str) -> int:
        """Return the number of a path's value, or of a node or variable, among all nodes."""
        return self._places[self.values.get(source, source)]

    def variable(self, name: str, held: NetArray, *, state: bool = False) -> str:
        """Add a variable and return its name: of a tensor that has one, this."""
        if isinstance(held, Trained):
            held = replace(held, path=self.graph.by_path[held.path].holder)
            if held in self._trained:
                return self._trained[held]
        name = self.name(name)
        if isinstance(held, Trained):
            self._trained[held] = name
        self.held[name] = held
        self.states |= {name} if state else set()
        return self.add("null", name)

    def trained(self, path: str, name: str, *roles: str) -> list[str]:
        """Return variables, see porter.frameworks.spelled.LayerMaker."""
        shapes = self.tensors.get(path, {})
        return [
            self.variable(f"{name}_{NAMES[role]}", Trained(path, role, shapes[role]))
            for role in roles
            if role in shapes
        ]

    def along_channels(self, path: str) -> tuple[int, ...]:
        """Return the shape of one number for each channel of a path's value."""
        return (1, self.channels(path), *((1, 1) if is_map(self.shapes[path]) else ()))

    def cropped(self, name: str, source: str, pads: Pads) -> str:
        """Return a map without so many rows and columns at its top, bottom, left and right."""
        for axis, (before, after) in ((2, pads[:2]), (3, pads[2:])):
            last = axis == 3 or not any(pads[2:])
            if before or after:
                own = name if last else self.name(f"{name}_rows")
                source = self.add(
                    "slice_axis", own, source, axis=axis, begin=before, end=-after if after else "None"
                )
        return source

    def padded(self, name: str, source: str, pads: Pads, fill: float = 0.0, mode: str = "constant") -> str:
        return self.add("Pad", name, source, mode=mode, pad_width=(0, 0, 0, 0, *pads), constant_value=fill)

    def moved(self, name: str, source: str, pads: Pads) -> str:
        """Return a map between pads of zeros, or without as many cells where they are negative."""
        top, bottom, left, right = (max(-pad, 0) for pad in pads)
        more, less = tuple(max(pad, 0) for pad in pads), (top, bottom, left, right)
        if any(less):
            source = self.cropped(self.name(f"{name}_cut") if any(more) else name, source, less)
        return self.padded(name, source, (more[0], more[1], more[2], more[3])) if any(more) else source

    def chosen(
        self, name: str, source: str, kernel: Array, stride: Sequence[int] = (1, 1), groups: int = 1
    ) -> str:
        """Sum over channels, as of a convolution of one cell: filters x channels of a group."""
        if not is_map(self.shapes.get(source, (0, 0, 0))):
            weight = self.variable(f"{name}_weight", kernel)
            return self.add("FullyConnected", name, source, weight, num_hidden=len(kernel), no_bias=True)
        weight = self.variable(f"{name}_weight", kernel[:, :, None, None])
        own = {"num_filter": len(kernel), "num_group": groups}
        return self.add(
            "Convolution", name, source, weight, kernel=(1, 1), stride=stride, no_bias=True, **own
        )

    def filled(self, name: str, source: str, number: float) -> str:
        """Return a value of the shape of another, with `number` everywhere."""
        return self.add(
            "_plus_scalar",
            name,
            self.add("_mul_scalar", self.name(f"{name}_zero"), source, scalar=0.0),
            scalar=number,
        )


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


def _said(value: MxnetAttribute) -> str:
    if isinstance(value, bool | int | float | str):
        return str(value)
    return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
