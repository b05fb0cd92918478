"""How often a file's graph is read, and at which sizes."""

from __future__ import annotations

import pytest

from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, read_for_sizes
from porter.graph import INPUT, AvgPool, Dense, Flatten, GlobalAvgPool, Op, Rearrange, Relu, Resize
from porter.padding import ANY, Convention, Size, Window

STATED = (6, 6)
OPEN = Rearrange("c h w -> (c h w)")
POOL = AvgPool(Window((6, 6)), Convention())


@pytest.mark.parametrize(
    ("ops", "at_stated", "resizable"),
    [
        ([Relu()], None, True),
        ([Resize("linear", size=(9, 9))], None, True),
        ([OPEN], [Flatten(6, 6)], False),
        ([OPEN], [OPEN], True),
        ([OPEN, Dense(2)], [Flatten(6, 6), Dense(2)], False),
        ([Foreign("Reshape")], [Flatten(6, 6)], False),
        ([Resize("linear", size=STATED)], [Relu()], False),
        ([POOL], [GlobalAvgPool(keep=True)], False),
        ([AvgPool(Window((7, 7)), Convention())], [Foreign("a pool that does not fit")], False),
    ],
)
def test_a_graph_is_read_again_only_where_something_in_it_asks_for_the_size(
    ops: list[Op | Foreign], at_stated: list[Op | Foreign] | None, resizable: bool
) -> None:
    sizes: list[Size] = []

    def read(size: Size) -> FileGraph:
        sizes.append(size)
        found = ops if size == ANY else at_stated or []
        names = [INPUT, *(f"n{place}" for place in range(len(found)))]
        nodes = map(FileNode, names[1:], found, zip(names[:-1]))
        return FileGraph(tuple(nodes), (names[-1],), 3, size)

    found = read_for_sizes(STATED, read)
    assert sizes == ([ANY] if at_stated is None else [ANY, STATED])
    assert (found.size, found.resizable) == (STATED, resizable)
    assert [node.op for node in found.nodes] == (ops if at_stated is None else at_stated)
    sizes.clear()
    assert read_for_sizes(ANY, read).resizable and sizes == [ANY]
