"""What a file counts: to count further than it has is damage of the file, and an IndexError is a fault of
porter's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")


class Items(tuple[T, ...]):
    """A tuple of what a file counts, from either end. Counting further than it has is a ValueError, not an
    IndexError.
    """

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index if isinstance(index, slice) else position_of(index, len(self)))


def position_of(index: int, count: int) -> int:
    """Return an index among `count` places, counted from the first one: -1 of 4 becomes 3.

    Raises:
        ValueError: there are fewer.
    """
    if not -count <= index < count:
        raise ValueError(f"place {index} of {count}")
    return index % count


class Watched(dict[str, T]):
    """What a file states of an operator, by name, which knows what of it was looked at: what a reader passes
    over would make another function.
    """

    def __init__(self, items: Mapping[str, T] = MappingProxyType({})) -> None:
        super().__init__(items)
        self._read = set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> T:
        self._read.add(name)
        return super().__getitem__(name)

    @property
    def passed_over(self) -> list[str]:
        """The names of what no reader has looked at."""
        return [name for name in self if name not in self._read]


class Reading:
    """A node whose inputs are those that a file lists."""

    inputs: tuple[tuple[str, int], ...]

    @property
    def source(self) -> tuple[str, int]:
        """The first of its inputs."""
        return self.inputs[0]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", Items(self.inputs))
