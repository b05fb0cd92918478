"""Ways through a graph whose nodes say by name what they read. None is recursive, because files come from
strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from porter.base.errors import GraphError

_Name = TypeVar("_Name", str, int)
Inputs = Callable[[str], Iterable[str]]
"""The names that a node reads."""


class NamedInputs(Protocol):
    """A node that says by name what it reads."""

    @property
    def inputs(self) -> Iterable[str]: ...


def reads_within(nodes: Mapping[str, NamedInputs]) -> Inputs:
    """Return what each node reads, by its name; nothing for a name that is none of these, as the input's."""
    return lambda name: nodes[name].inputs if name in nodes else ()


def upstream(starts: Iterable[str], inputs: Inputs) -> set[str]:
    """Return `starts`, and all that they are computed from."""
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += inputs(name)
    return reached


def downstream(order: Iterable[str], inputs: Inputs, sources: Iterable[str]) -> set[str]:
    """Return `sources`, and all that is computed from them. `order` has each name after its inputs."""
    reached = set(sources)
    for name in order:
        if not reached.isdisjoint(inputs(name)):
            reached.add(name)
    return reached


def in_order(ends: Iterable[_Name], inputs: Callable[[_Name], Iterable[_Name]]) -> list[_Name]:
    """Return `ends` and what they are computed from, each after its inputs, which come in the order in which
    they are read.

    Raises:
        GraphError: a node is computed from itself; `where` is its name.
    """
    done: dict[_Name, None] = {}
    opened: set[_Name] = set()
    waiting = list(reversed(list(ends)))
    while waiting:
        name = waiting[-1]
        missing = [source for source in inputs(name) if source not in done]
        # a name stays on the stack until its inputs are done, and may lie there twice
        if name in done or not missing:
            done[name] = None
            opened.discard(waiting.pop())
        elif name in opened:
            raise GraphError("the graph runs in a loop through it", where=name)
        else:
            opened.add(name)
            waiting += reversed(missing)
    return list(done)
