"""A class that model.py gets, as the text below it calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.graph.blocks.parameters import Vector


@dataclass(frozen=True)
class Parameter:
    """A constructor argument: its value in each use, and its default, if most uses share one."""

    name: str
    values: Vector
    default: str | None


@dataclass(frozen=True)
class Class:
    """A class that model.py gets: its name, its constructor's arguments, and its lines."""

    name: str
    parameters: tuple[Parameter, ...]
    lines: tuple[str, ...]


ClassesByName = Mapping[str, Class]
