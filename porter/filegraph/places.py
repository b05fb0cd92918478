"""What a file counts: to count further than it has is damage of the file, and an IndexError is a fault of
porter's.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Items(tuple[T, ...]):
    """What a file counts from either end, in a ValueError where it counts further."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place if isinstance(place, slice) else place_of(place, len(self)))


def place_of(place: int, count: int) -> int:
    """A place among so many, counted from the first one.

    Raises:
        ValueError: there are fewer.
    """
    if not -count <= place < count:
        raise ValueError(f"place {place} of {count}")
    return place % count


class Reading:
    """A node whose inputs are those that a file lists."""

    inputs: tuple[tuple[str, int], ...]

    @property
    def source(self) -> tuple[str, int]:
        """The first of its inputs."""
        return self.inputs[0]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", Items(self.inputs))
