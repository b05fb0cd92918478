"""nn's modules as Lua calls them, for porter's own engine. It shares with network.py, which makes layers of
them for the reader, only the objects of the file: a mistake there would be on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from porter.filegraph.program import OperatorCall
from porter.formats.torch7.objects import LuaObject, output_names

Values: TypeAlias = "str | tuple[Values, ...]"
"""The name of a value, or a table of them."""
_Part: TypeAlias = tuple[LuaObject, tuple[str, ...]]
"""A module in a container, and its place in the containers that it is in."""
INPUT = "image"
_ARRAYS = ("weight", "bias", "running_mean", "running_var", "running_std")
_PASS_THROUGH = ("Identity", "Copy", "Contiguous", "GradientReversal", "TotalVariation", "WhiteNoise")
_NAMES_OF_MODEL = ("model", "net", "network", "module")


class ModuleFields(dict[str, Any]):
    """What a module states by name."""

    def integer(self, name: str, otherwise: int) -> int:
        """Return a setting that is a whole number."""
        return int(self.get(name, otherwise))

    def rows_and_columns(self, name: str, otherwise: int) -> tuple[int, int]:
        """Return a setting of rows and of columns."""
        return self.integer(f"{name}H", otherwise), self.integer(f"{name}W", otherwise)

    def sizes(self) -> list[int]:
        """Return the sizes of a View or a Reshape, which are a storage or a table with numbers as keys."""
        sizes = self["size"]
        if isinstance(sizes, dict):
            return [int(sizes[number]) for number in sorted(sizes)]
        return [*map(int, sizes)]


@dataclass(frozen=True)
class _ModuleCalls:
    """Makes the calls of a module's parts, in their order. Arrays that several modules share have the name of
    the first one's.
    """

    steps: list[OperatorCall] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def forward(self, module: LuaObject, path: tuple[str, ...], values: Values) -> Values:
        """Add the steps of a module, and return the name of what it gives, or a tuple of names for a table.
        Containers only call their parts, and modules that do nothing in inference give what they take.

        Args:
            path: the numbers of the module and its containers.
            values: the names of what it takes.
        """
        kind = module.kind.split(".")[-1]
        fields = ModuleFields(module.fields)
        parts = [(part, (*path, str(number))) for number, part in _modules_in_order(fields.get("modules"))]
        match kind:
            case "DataParallel" | "DataParallelTable":  # the others are copies of the first one
                return self._run_in_turn(parts[:1], values)
            case "Sequential" | "Inception" | "NoBackprop" | "Decorator":
                return self._run_in_turn(parts, values)
            case "ConcatTable":
                return self._run_beside(parts, (values,) * len(parts))
            case "Concat" | "DepthConcat":
                values = self._run_beside(parts, (values,) * len(parts))
            case "ParallelTable" if isinstance(values, tuple):
                return self._run_beside(parts, values)
            case "MapTable" if isinstance(values, tuple):
                numbers = map(str, range(1, len(values) + 1))
                # The one module is called for each value.
                copies = [(part, (*path, number)) for part, _ in parts[:1] for number in numbers]
                return self._run_beside(copies, values[: len(copies)])
            case "SelectTable" if isinstance(values, tuple):
                index = fields.integer("index", 1)
                # Lua counts from 1, and from the end below zero.
                return values[index - 1] if index > 0 else values[index]
            case "FlattenTable":
                return tuple(_leaves(values))
            case _ if _passes_through(kind, fields):
                return values
        return self._add_call(kind, "/".join(path) or kind, fields, values)

    def _run_in_turn(self, parts: Sequence[_Part], values: Values) -> Values:
        """Return what the last of some modules gives, each of which takes what the one before gives."""
        for part, path in parts:
            values = self.forward(part, path, values)
        return values

    def _run_beside(self, parts: Sequence[_Part], values: Sequence[Values]) -> tuple[Values, ...]:
        """Return what modules give beside each other, each from its own value."""
        return tuple(self.forward(*part, value) for part, value in zip(parts, values, strict=True))

    def _add_call(self, kind: str, name: str, fields: ModuleFields, values: Values) -> str:
        """Add the step of a module with its values and its arrays, and return the name of its value."""
        arrays_by_role = {role: fields[role] for role in _ARRAYS if isinstance(fields.get(role), np.ndarray)}
        # An empty array is none.
        roles = tuple(role for role, array in arrays_by_role.items() if array.size)
        arrays = [
            self.names.setdefault(id(arrays_by_role[role]), ".".join((*name.split("/"), role)))
            for role in roles
        ]
        attributes = {"fields": fields, "roles": roles}
        self.steps.append(OperatorCall(kind, (*_leaves(values), *arrays), (name,), attributes))
        return name


def steps_of(content: Any) -> tuple[OperatorCall, ...]:
    """Return the calls that a file's module makes, and its values under the names that they have as outputs.
    Their order is that in which they run.
    """
    calls = _ModuleCalls()
    ends = dict.fromkeys(_leaves(calls.forward(_find_module(content), (), INPUT)))
    no_attributes = {"fields": ModuleFields(), "roles": ()}
    outputs = zip(output_names(len(ends)), ends, strict=True)
    return (
        *calls.steps,
        *(OperatorCall("Identity", (end,), (name,), no_attributes) for name, end in outputs),
    )


def _find_module(content: Any) -> LuaObject:
    """Return the module of a file, or of a table: under one of the usual names, or the only one in it."""
    if isinstance(content, LuaObject):
        return content
    modules = {key: value for key, value in content.items() if isinstance(value, LuaObject)}
    with_usual_name = [modules[name] for name in _NAMES_OF_MODEL if name in modules]
    return [*with_usual_name, *modules.values()][0]


def _passes_through(kind: str, fields: ModuleFields) -> bool:
    """Return whether a module gives what it takes. A dropout of the first version does so only at a rate of
    0, because it scales in inference.
    """
    if kind in ("Dropout", "SpatialDropout"):
        return bool(fields.get("v2") or not fields.get("p"))
    return kind in _PASS_THROUGH


def _modules_in_order(table: Any) -> Iterator[tuple[int, LuaObject]]:
    """Yield the modules of a container with their numbers, from 1 on."""
    modules = table or {}
    # Lua's numbers are floats; other keys are names.
    keys = sorted(key for key in modules if isinstance(key, float))
    return enumerate((modules[key] for key in keys), 1)


def _leaves(values: Values) -> Iterator[str]:
    """Yield the names of the values in a table of them, at any depth; of a single value its name."""
    if isinstance(values, str):
        yield values
    else:
        for inner in values:
            yield from _leaves(inner)
