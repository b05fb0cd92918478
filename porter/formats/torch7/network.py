"""A network of nn's modules as layers in the order in which they run: containers only say what reads what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.left_out import LeftOut
from porter.filegraph.places import Reading
from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import MOST_NODES, StatedFields
from porter.formats.torch7.objects import LuaObject, Table

Flow = NodeOutput | list["Flow"]
"""A value, or a table of them."""
IMAGE = "image"
_IN_TURN = frozenset(
    {"Sequential", "DataParallel", "DataParallelTable", "Inception", "NoBackprop", "Decorator"}
)
_BESIDE = ("ConcatTable", "Concat", "DepthConcat", "ParallelTable", "MapTable")
_PASS_THROUGH = frozenset(
    {"Identity", "Copy", "Contiguous", "GradientReversal", "TotalVariation", "WhiteNoise"}
)
_ARRAY_FIELDS = ("weight", "bias", "running_mean", "running_var", "running_std")
_NAMES_OF_MODEL = ("model", "net", "network", "module")


@dataclass(frozen=True)
class Torch7Layer(Reading):
    """A module that computes something.

    Attributes:
        name: the places of the module in its containers, from 1 on as in Lua: `5/1/2`.
        op: its class, without the package.
        inputs: what it reads.
        fields: of its object.
        tensors: the names of its arrays by field.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    fields: Mapping[str, Any]
    tensors: Mapping[str, str]

    def number(self, name: str, default: float) -> float:
        """Return a field as a number; the default where it is missing or something else."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, float | bool) else default

    def count(self, name: str, default: int) -> int:
        return int(self.number(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.number(name, default))

    def counts(self, name: str) -> list[int]:
        """Return a list of whole numbers, which is a storage or a table; an empty one where the field is
        missing.
        """
        values = self.fields.get(name)
        if isinstance(values, dict):
            return [int(values[key]) for key in sorted(values)]
        return [int(number) for number in np.asarray(values if values is not None else [])]

    def pair(self, rows: str, columns: str, default: int) -> tuple[int, int]:
        return self.count(rows, default), self.count(columns, default)


@dataclass(frozen=True)
class Torch7Network:
    """A module's layers.

    Attributes:
        tensors: by name; those that several modules share have one.
        ends: the values that it gives, at which the graph ends.
        passed: dropouts, which inference leaves out, each with the value that it reads.
    """

    layers: tuple[Torch7Layer, ...]
    tensors: NamedArrays
    ends: tuple[NodeOutput, ...]
    passed: tuple[tuple[LeftOut, NodeOutput], ...] = ()


def find_network(content: Any) -> LuaObject | None:
    """Return the module of a file, or of a table that somebody saved: the one under a usual name, or the only
    one. Return None if there is none, or it is not clear which.
    """
    if isinstance(content, LuaObject):
        return content
    table = content if isinstance(content, dict) else {}
    modules = {key: value for key, value in table.items() if isinstance(value, LuaObject)}
    for name in _NAMES_OF_MODEL:
        if name in modules:
            return modules[name]
    return next(iter(modules.values())) if len(modules) == 1 else None


def find_arrays(content: Any) -> NamedArrays:
    """Return the arrays of a table that holds no module, by the keys that lead to them: `epoch/weights/1`."""
    arrays = dict[str, Array]()
    waiting = [("", content)]
    seen = set[int]()  # the tables so far, one of which may hold itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, np.ndarray):
            arrays[path] = value
        elif isinstance(value, dict | LuaObject) and id(value) not in seen:
            seen.add(id(value))
            fields = value if isinstance(value, dict) else value.fields
            named_values = (
                (str(int(key)) if isinstance(key, float) else str(key), field_value)
                for key, field_value in fields.items()
            )
            # Reversed, because the last one is taken first.
            waiting += [
                (f"{path}/{name}" if path else name, field_value) for name, field_value in named_values
            ][::-1]
    return arrays


def read_network(module: LuaObject) -> Torch7Network:
    """Return the layers of a module.

    Raises:
        ValueError: modules do not fit, or there are too many of them.
        RecursionError: modules hold each other.
    """
    reader = _NetworkReader()
    ends = tuple(dict.fromkeys(_flatten_values(reader.run(module, "", (IMAGE, 0)))))
    return Torch7Network(tuple(reader.layers), reader.tensors, ends, tuple(reader.passed))


@dataclass
class _NetworkReader:
    """The layers so far.

    Attributes:
        names: of tensors, by the identity of their arrays.
        left: how many modules may follow.
    """

    layers: list[Torch7Layer] = field(default_factory=list)
    tensors: dict[str, Array] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    passed: list[tuple[LeftOut, NodeOutput]] = field(default_factory=list)
    left: int = MOST_NODES

    def run(self, module: Any, path: str, value: Flow) -> Flow:
        """Return what a module gives from a value, which may be a table (a list) of values. Containers run
        their parts, modules that do nothing in inference give what they take, and every other one becomes a
        layer. Raise ValueError for what is no module, and for too many.
        """
        self.left -= 1
        if self.left < 0:
            raise ValueError("it has too many modules")
        if not isinstance(module, LuaObject):
            raise ValueError(f"module {path or 'of the file'} is none of nn's")
        op = module.kind.rpartition(".")[2]
        fields = module.fields
        if op in _IN_TURN:
            # The further modules of a DataParallel are copies of the first one.
            modules = _modules(fields)[: 1 if op.startswith("DataParallel") else None]
            for number, inner_module in enumerate(modules, 1):
                value = self.run(inner_module, _path_of_part(path, number), value)
            return value
        if op in _BESIDE:
            return self._run_beside(op, fields, path, value)
        if op == "FlattenTable":
            return list(_flatten_values(value))
        if op == "SelectTable" and isinstance(value, list):
            index = int(fields.get("index", 1))
            # Lua counts from 1, and from the end below zero.
            return value[index - 1 if index > 0 else index]
        if _is_plain_dropout(op, fields):
            self._leave_out(op, fields.get("p"), path, value)
            return value
        return value if op in _PASS_THROUGH else self._add(path, op, value, fields)

    def _leave_out(self, op: str, rate: Any, path: str, value: Flow) -> None:
        """Record a dropout as left out, for each of the values that it reads."""
        layer = LeftOut(path or op, op, float(rate) if isinstance(rate, int | float) else None)
        self.passed.extend((layer, source) for source in _flatten_values(value))

    def _run_beside(self, op: str, fields: Table, path: str, value: Flow) -> Flow:
        """Return what modules give beside each other: each from the whole value, or each from its own. Concat
        and DepthConcat join these into one value. Raise ValueError if there are not as many values as
        modules.
        """
        modules = _modules(fields)
        if op in ("ConcatTable", "Concat", "DepthConcat"):
            inputs = [value] * len(modules)
        elif isinstance(value, list) and modules:
            inputs = value
            modules = modules[:1] * len(value) if op == "MapTable" else modules
        else:
            return self._add(path, op, value, fields)
        if len(modules) != len(inputs):
            raise ValueError(f"module {path}: {len(modules)} modules of {len(inputs)} values")
        values: list[Flow] = [
            self.run(module, _path_of_part(path, number), input_value)
            for number, (module, input_value) in enumerate(zip(modules, inputs, strict=True), 1)
        ]
        return self._add(path, op, values, fields) if op in ("Concat", "DepthConcat") else values

    def _add(self, path: str, op: str, value: Flow, fields: Table) -> NodeOutput:
        """Add the layer of a module with its arrays, and return its value."""
        name = path or op
        names = dict[str, str]()
        for role in _ARRAY_FIELDS:
            array = fields.get(role)
            if isinstance(array, np.ndarray) and array.size:
                names[role] = self.names.setdefault(id(array), f"{name}/{role}".replace("/", "."))
                self.tensors[names[role]] = array
        fields_by_name = {str(key): content for key, content in fields.items()}
        self.layers.append(
            Torch7Layer(name, op, tuple(_flatten_values(value)), fields_by_name, StatedFields(names))
        )
        return name, 0


def _is_plain_dropout(op: str, fields: Table) -> bool:
    """Return whether a module is a dropout that scales nothing in evaluation."""
    return op in ("Dropout", "SpatialDropout") and (fields.get("v2") is True or not fields.get("p"))


def _modules(fields: Table) -> list[Any]:
    """Return the modules of a container in their order; none if it holds none."""
    modules = fields.get("modules")
    if not isinstance(modules, dict):
        return []
    # Lua's numbers are floats; other keys are names.
    return [modules[key] for key in sorted(key for key in modules if isinstance(key, float))]


def _path_of_part(path: str, number: int) -> str:
    """Return the path of the module of a number in a container; the number alone for the outermost one."""
    return f"{path}/{number}" if path else str(number)


def _flatten_values(value: Flow) -> list[NodeOutput]:
    """Return the values in a table of them, at any depth; a single value as a list of one."""
    if not isinstance(value, list):
        return [value]
    return [flat for inner in value for flat in _flatten_values(inner)]
