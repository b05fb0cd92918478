"""nn's modules as Lua calls them, for porter's own engine. It shares with network.py, which makes layers of
them for the reader, only the objects of the file: a mistake there would be on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from porter.filegraph.kernels.program import OperatorCall
from porter.formats.torch7.objects import Thing, names_of_outputs

Given: TypeAlias = "str | tuple[Given, ...]"
"""The name of a value, or a table of them."""
_Part: TypeAlias = tuple[Thing, tuple[str, ...]]
"""A module in a container, and its place in the containers that it is in."""
INPUT = "image"
_ARRAYS = ("weight", "bias", "running_mean", "running_var", "running_std")
_THROUGH = ("Identity", "Copy", "Contiguous", "GradientReversal", "TotalVariation", "WhiteNoise")
_NAMES = ("model", "net", "network", "module")


class ModuleFields(dict[str, Any]):
    """What a module states by name."""

    def whole(self, name: str, otherwise: int) -> int:
        return int(self.get(name, otherwise))

    def sides(self, name: str, otherwise: int) -> tuple[int, int]:
        """A setting of rows and of columns."""
        return self.whole(f"{name}H", otherwise), self.whole(f"{name}W", otherwise)

    def sizes(self) -> list[int]:
        """The sizes of a View or a Reshape, which are a storage or a table."""
        sizes = self["size"]
        return (
            [int(sizes[number]) for number in sorted(sizes)]
            if isinstance(sizes, dict)
            else [*map(int, sizes)]
        )


@dataclass(frozen=True)
class _ModuleCalls:
    """Calls in their order; arrays that several modules share have the name of the first one's."""

    steps: list[OperatorCall] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def forward(self, module: Thing, path: tuple[str, ...], given: Given) -> Given:
        """What a module gives: containers call their parts, others are steps."""
        kind = module.kind.split(".")[-1]
        fields = ModuleFields(module.fields)
        parts = [(part, (*path, str(number))) for number, part in _numbered(fields.get("modules"))]
        match kind:
            case "DataParallel" | "DataParallelTable":  # the others are copies of the first one
                return self._in_turn(parts[:1], given)
            case "Sequential" | "Inception" | "NoBackprop" | "Decorator":
                return self._in_turn(parts, given)
            case "ConcatTable":
                return self._each(parts, (given,) * len(parts))
            case "Concat" | "DepthConcat":
                given = self._each(parts, (given,) * len(parts))
            case "ParallelTable" if isinstance(given, tuple):
                return self._each(parts, given)
            case "MapTable" if isinstance(given, tuple):
                numbers = map(str, range(1, len(given) + 1))
                copies = [(part, (*path, number)) for part, _ in parts[:1] for number in numbers]
                return self._each(copies, given[: len(copies)])
            case "SelectTable" if isinstance(given, tuple):
                index = fields.whole("index", 1)
                return ((), *given)[index] if index > 0 else given[index]
            case "FlattenTable":
                return tuple(_leaves(given))
            case _ if _passes(kind, fields):
                return given
        return self._called(kind, "/".join(path) or kind, fields, given)

    def _in_turn(self, parts: Sequence[_Part], given: Given) -> Given:
        for part, path in parts:
            given = self.forward(part, path, given)
        return given

    def _each(self, parts: Sequence[_Part], given: Sequence[Given]) -> tuple[Given, ...]:
        return tuple(self.forward(*part, one) for part, one in zip(parts, given, strict=True))

    def _called(self, kind: str, name: str, fields: ModuleFields, given: Given) -> str:
        """Adds the step of a module. Returns the name of its value."""
        arrays_by_role = {role: fields[role] for role in _ARRAYS if isinstance(fields.get(role), np.ndarray)}
        roles = tuple(role for role, array in arrays_by_role.items() if array.size)
        arrays = [
            self.names.setdefault(id(arrays_by_role[role]), ".".join((*name.split("/"), role)))
            for role in roles
        ]
        attributes = {"fields": fields, "roles": roles}
        self.steps.append(OperatorCall(kind, (*_leaves(given), *arrays), (name,), attributes))
        return name


def steps_of(content: Any) -> tuple[OperatorCall, ...]:
    """The calls that a file's module makes, and its values under the names that they have as outputs."""
    calls = _ModuleCalls()
    ends = dict.fromkeys(_leaves(calls.forward(_module(content), (), INPUT)))
    nothing = {"fields": ModuleFields(), "roles": ()}
    named = zip(names_of_outputs(len(ends)), ends, strict=True)
    return (*calls.steps, *(OperatorCall("Identity", (end,), (name,), nothing) for name, end in named))


def _module(content: Any) -> Thing:
    """The module of a file, or of a table: under one of the usual names, or the only one in it."""
    if isinstance(content, Thing):
        return content
    things = {key: each for key, each in content.items() if isinstance(each, Thing)}
    usual = [things[name] for name in _NAMES if name in things]
    return [*usual, *things.values()][0]


def _passes(kind: str, fields: ModuleFields) -> bool:
    """Whether a module gives what it takes."""
    if kind in ("Dropout", "SpatialDropout"):
        return bool(fields.get("v2") or not fields.get("p"))
    return kind in _THROUGH


def _numbered(table: Any) -> Iterator[tuple[int, Thing]]:
    """The modules of a container, from 1 on."""
    modules = table or {}
    return enumerate(
        (modules[number] for number in sorted(key for key in modules if isinstance(key, float))), 1
    )


def _leaves(given: Given) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    else:
        for each in given:
            yield from _leaves(each)
