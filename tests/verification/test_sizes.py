"""The sizes that a port is proved at: what small ones have to keep of the native one, and what a graph allows."""

import pytest

from porter.graph import Graph, MaxPool, Node, shapes, site_of
from porter.padding import Convention, Window
from porter.recipe import expand, find_recipe
from porter.verification.sizes import small_sizes

SAME, VALID = Convention("same"), Convention()
CASES = [("resnet50v2", "keras"), ("mobilenet_v2", "torchvision"), ("mobilenet_v1", "slim"), ("inception_v3", "slim")]


@pytest.mark.parametrize(("variant", "zoo"), CASES)
def test_small_sizes_pad_as_the_native_one_and_an_odd_one_do(variant: str, zoo: str) -> None:
    recipe = find_recipe(variant)
    graph, native = expand(recipe, variant, recipe.zoo(zoo, variant), {}), recipe.native_size()
    small, odd = small_sizes(graph, native)
    assert small[0] < native[0] and small[1] < native[1] and max(odd) < max(native) and odd[0] != odd[1]
    for wanted, size in ((native, small), ((native[0] + 1, native[1] - 23), odd)):
        large, little = shapes(graph, wanted), shapes(graph, size)
        for node, window in ((node, site.window) for node in graph.nodes if (site := site_of(node.op))):
            for axis in (0, 1):
                long, short, least = (known[node.inputs[0]][1 + axis] or 0 for known in (large, little, shapes(graph, native)))
                assert (long - short) % window.stride[axis] == 0, node.path
                assert short >= min(least, window.extent(axis) + window.stride[axis]), node.path


def graph_of(*windows: tuple[Window, Convention]) -> Graph:
    nodes = [Node(f"pool{at}", MaxPool(*window), (f"pool{at - 1}" if at else "input",)) for at, window in enumerate(windows)]
    return Graph(tuple(nodes), 3, nodes[-1].path)


HALVED = (Window((3, 3), (2, 2)), SAME)
STEM = (Window((7, 7), (2, 2)), VALID)


@pytest.mark.parametrize(
    ("windows", "native", "wanted"),
    [
        ((HALVED, HALVED), (32, 32), ((12, 12), (9, 9))),
        ((HALVED, HALVED), (20, 20), ((12, 12), (9, 9))),
        ((STEM, HALVED, HALVED), (20, 20), ((20, 20), (21, 21))),
        ((HALVED,), (3, 3), ((3, 3), (4, 4))),
        # A window as long as its map at the native size needs no longer one.
        (((Window((8, 8)), VALID),), (8, 8), ((8, 8),)),
    ],
)
def test_sizes_that_a_small_graph_takes(
    windows: tuple[tuple[Window, Convention], ...], native: tuple[int, int], wanted: object
) -> None:
    assert small_sizes(graph_of(*windows), native) == wanted
