"""The sizes that a port is proved at: what small ones have to keep of the native one, and what a graph
allows.
"""

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import CheckFailed
from porter.graph import AdaptivePool, Add, Graph, MaxPool, Node, Resize, shapes, site_of
from porter.graph.plan import make_plan
from porter.padding import ANY, LOWEST, Convention, Window
from porter.recipe import expand, find_recipe
from porter.verification.sizes import least_general_size, sizes_to_compare, small_sizes
from tests.support.arrays import Array
from tests.support.recipe.recipes import all_recipes
from tests.unit.verification.test_parity import NATIVE

SAME, VALID = Convention("same"), Convention()


def zoos() -> Iterator[Any]:
    """The first variant of every zoo of every recipe, without transformers and mixers: they take one size. In
    CI the first zoo of each recipe: the others have its windows.
    """
    for recipe in all_recipes():
        if recipe.architecture not in ("vit", "mlp_mixer"):
            for place, zoo in enumerate(recipe.zoos):
                variant = next(variant for variant in recipe.variants if zoo in recipe.zoos_of(variant))
                yield pytest.param(variant, zoo, marks=pytest.mark.full if place else ())


@pytest.mark.parametrize(("variant", "zoo"), list(zoos()))
def test_every_stride_meets_the_native_remainder_and_another(variant: str, zoo: str) -> None:
    recipe = find_recipe(variant)
    graph, native = expand(recipe.member(variant, zoo)), recipe.native_size(recipe.variants[variant])
    sizes = small_sizes(graph, native)
    longest = max(max(site.window.stride) for node in graph.nodes if (site := site_of(node.op)))
    assert len(sizes) == min(longest, 3) and all(rows != columns for rows, columns in sizes)
    # VGG's head and ConvNeXt's windows take a last map of 7x7 cells, which 224 is the least to give; images
    # of CIFAR are as small as any.
    assert recipe.architecture in ("vgg", "convnext", "resnet_cifar") or all(
        max(size) < min(native) for size in sizes
    )
    large, small = shapes(graph, native), [shapes(graph, size) for size in sizes]
    for node, window in ((node, site.window) for node in graph.nodes if (site := site_of(node.op))):
        for axis, stride in enumerate(window.stride):
            long, *short = (known[node.inputs[0]][1 + axis] or 0 for known in (large, *small))
            assert long % stride in {length % stride for length in short}, node.path
            assert stride == 1 or len({length % stride for length in short}) > 1, node.path
            assert min(short) >= min(long, window.extent(axis) + stride), node.path


def graph_of(*windows: tuple[Window, Convention]) -> Graph:
    nodes = [
        Node(f"pool{at}", MaxPool(*window), (f"pool{at - 1}" if at else "input",))
        for at, window in enumerate(windows)
    ]
    return Graph(tuple(nodes), 3, nodes[-1].path)


HALVED = (Window((3, 3), (2, 2)), SAME)
STEM = (Window((7, 7), (2, 2)), VALID)


@pytest.mark.parametrize(
    ("windows", "native", "wanted"),
    [
        ((HALVED, HALVED), (64, 64), ((32, 33), (33, 32))),
        ((HALVED, HALVED), (20, 20), ((20, 21), (21, 20))),
        # The last map has 4 cells at 20x20, where a window of 3 with a stride of 2 shows all on 5.
        ((STEM, HALVED, HALVED), (20, 20), ((28, 33), (33, 28))),
        ((HALVED,), (3, 3), ((5, 6), (6, 5))),
        # A window as long as its map shows nothing of its pads.
        (((Window((8, 8)), VALID),), (8, 8), ((9, 10),)),
        (((Window((2, 2), (2, 2)), VALID),), (64, 64), ((32, 33), (33, 32))),
        (((Window((1, 1)), VALID),), (224, 224), ((32, 33),)),
    ],
)
def test_sizes_that_a_small_graph_takes(
    windows: tuple[tuple[Window, Convention], ...], native: tuple[int, int], wanted: object
) -> None:
    assert small_sizes(graph_of(*windows), native) == wanted


def test_a_third_size_is_taken_where_no_second_one_shows_all() -> None:
    halves = {"up": HALVED, "down": (Window((2, 2), (2, 2)), VALID)}
    nodes = [Node(name, MaxPool(*window), ("input",)) for name, window in halves.items()]
    nodes += [Node(f"{name}2", MaxPool(*HALVED), (name,)) for name in halves]
    sizes = small_sizes(Graph(tuple(nodes), 3, "down2"), (32, 32))
    assert len(sizes) == 3 and all(rows != columns for rows, columns in sizes)
    for axis in (0, 1):
        sides = [size[axis] for size in sizes]
        assert all(
            len({half % 2 for half in halved}) == 2
            for halved in (sides, [-(-n // 2) for n in sides], [n // 2 for n in sides])
        )


def test_a_stride_of_three_meets_every_remainder() -> None:
    """An average whose pads were wrong at one remainder of three was proved at the two others."""
    sizes = small_sizes(graph_of((Window((1, 3), (2, 3)), Convention("cntk"))), (27, 26))
    assert {rows % 2 for rows, _ in sizes} == {0, 1} and {columns % 3 for _, columns in sizes} == {0, 1, 2}


@pytest.mark.parametrize(
    ("graph", "sizes", "every"),
    [
        (graph_of(HALVED, HALVED), ((32, 33), (33, 32)), True),
        (graph_of(HALVED, HALVED), ((32, 33),), False),
        (graph_of(HALVED), ((4, 5), (5, 4)), False),  # no map is as long as a window and its stride
        (graph_of(HALVED), ((5, 6), (6, 5)), True),
        (graph_of(HALVED, HALVED), ((32, 34), (34, 32)), False),  # the second window meets 16 and 17
        (graph_of((Window((3, 3), (3, 3)), SAME)), ((32, 33), (33, 32)), False),
        (graph_of((Window((3, 3), (3, 3)), SAME)), ((32, 33), (33, 34), (34, 32)), True),
        (Graph((Node("a", AdaptivePool(3, 3), ("input",)),), 3, "a"), ((32, 33), (33, 32)), False),
        (Graph((Node("r", Resize("nearest", (2, 2)), ("input",)),), 3, "r"), ((32, 33), (33, 32)), True),
        (Graph((Node("r", Resize("nearest", size=(8, 8)), ("input",)),), 3, "r"), ((32, 33),), False),
        (Graph((Node("r", Resize("nearest", (1.5, 2)), ("input",)),), 3, "r"), ((32, 33), (33, 32)), False),
    ],
)
def test_what_holds_at_every_remainder_holds_at_every_size(
    graph: Graph, sizes: tuple[tuple[int, int], ...], every: bool
) -> None:
    least = min(rows for rows, _ in sizes), min(columns for _, columns in sizes)
    assert least_general_size(graph, sizes) == (least if every else None)


def test_a_size_of_short_maps_takes_no_claim_away() -> None:
    """The native size of a network for small images is among those that are compared."""
    assert least_general_size(graph_of(HALVED), ((3, 3), (5, 6), (6, 5))) == (5, 5)
    assert least_general_size(graph_of(HALVED), ((3, 3), (5, 6))) is None


class Anything:
    """A source that takes every size."""

    name, run_by = "the zoo's code", "nothing"

    def takes(self, size: tuple[int, int]) -> bool:
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        return {}


@pytest.mark.parametrize(("native", "wanted"), [((32, 32), True), ((224, 224), False)])
def test_float64_has_the_native_size_where_that_is_small(native: tuple[int, int], wanted: bool) -> None:
    """A wrong weight of a channel that is alive at 48x48 only, and not at 48x49, was taken for rounding."""
    plan = make_plan(
        graph_of((Window((3, 3), (2, 2)), Convention.stated((1, 1, 1, 1), fill=LOWEST))), ANY, NATIVE
    )
    sizes = sizes_to_compare(plan, native, Anything(), None, ("float32", "float64"))
    assert sizes is not None and sizes.rounded == (native,)
    assert set(small_sizes(plan.graph, native)) <= set(sizes.exact) and (native in sizes.exact) is wanted


def test_what_the_port_has_of_one_size_is_compared_at_another() -> None:
    """A map that the port makes 12x14 of every image was proved at 6x7, where the source doubles it."""
    plan = make_plan(
        Graph((Node("resize", Resize("linear", size=(12, 14)), ("input",)),), 3, "resize"), ANY, NATIVE
    )
    sizes = sizes_to_compare(plan, (6, 7), Anything(), None, ("float32", "float64"))
    assert plan.only_size is None and sizes is not None
    assert sizes.exact == ((6, 7), (7, 9)) and sizes.rounded == ((6, 7),)


def test_a_size_that_no_memory_holds_is_refused_before_an_image_is_made() -> None:
    plan = make_plan(
        graph_of((Window((3, 3), (2, 2)), Convention.stated((1, 1, 1, 1), fill=LOWEST))), ANY, NATIVE
    )
    with pytest.raises(CheckFailed, match=r"comparing at 1048576x1048576 takes .* GiB of memory"):
        sizes_to_compare(plan, (1 << 20, 1 << 20), Anything(), None, ("float64",))


@pytest.mark.parametrize(
    ("limit", "refused"), [("1048576\n", True), ("max\n", False), ("9223372036854771712\n", False)]
)
def test_a_container_may_hold_less_than_its_machine(
    limit: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(
        "porter.verification.memory._CONTAINERS", (tmp_path / "none", tmp_path / "memory.max")
    )
    plan = make_plan(
        graph_of((Window((3, 3), (2, 2)), Convention.stated((1, 1, 1, 1), fill=LOWEST))), ANY, NATIVE
    )
    with pytest.raises(CheckFailed, match="comparing at 224x224") if refused else nullcontext():
        sizes_to_compare(plan, (224, 224), Anything(), None, ("float64",))


def test_a_port_that_takes_fewer_sizes_than_its_source_is_refused() -> None:
    """A pad that is a cell short makes two branches fit at even maps only: no such map may be avoided."""
    halves = {
        "pool": (Window((3, 3), (2, 2)), Convention.stated((1, 1, 1, 1), fill=LOWEST)),
        "point": (Window((1, 1), (2, 2)), VALID),
    }
    nodes = {name: Node(name, MaxPool(*window), ("input",)) for name, window in halves.items()}
    short = replace(nodes["pool"], op=MaxPool(Window((2, 2), (2, 2)), VALID))
    right, wrong = (
        Graph((first, nodes["point"], Node("sum", Add(), ("pool", "point"))), 3, "sum")
        for first in (nodes["pool"], short)
    )

    for graph in (right, wrong):
        plan = make_plan(graph, ANY, NATIVE)
        assert plan.only_size is None
        if graph is right:
            assert sizes_to_compare(plan, (64, 64), Anything(), None, ("float64",)) is not None
        else:
            with pytest.raises(CheckFailed, match="the port does not take 65x64, which the zoo's code takes"):
                sizes_to_compare(plan, (64, 64), Anything(), None, ("float64",))
