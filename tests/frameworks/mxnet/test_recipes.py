"""A small variant of every recipe to MXNet: its symbol, and under `full`, in each zoo, what MXNet computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from porter.base.dtypes import Array, Dtype
from porter.base.errors import GraphError, PaddingError
from porter.frameworks import Tensors, get_destination
from porter.frameworks.mxnet import destination as mxnet
from porter.frameworks.mxnet.symbol import make_symbol
from porter.graph import Graph, shapes
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY
from porter.recipe import Member, Recipe, expand, find_recipe, recipes_folder
from tests.mxnet_runs import needs_mxnet, run_symbol
from tests.random_graphs import difference
from tests.recipe.recipes import all_recipes
from tests.standin import smooth_images
from tests.support import standin_graph, standin_tensors

LEAST = ("0.25", "0.35", "0.5", "x0_5", "small", "18", "20", "50", "11", "121", "1_1")
"""What the names of small variants end with or have."""
ODD, LARGER = (139, 129), (225, 263)
"""LARGER is for networks whose maps would be too small."""


CONVOLUTIONAL = sorted(path.stem for path in recipes_folder().glob("*.yaml") if path.stem != "vit")


def small(recipe: Recipe) -> Iterator[Member]:
    """A small variant of a recipe in each of its zoos."""
    for zoo in recipe.zoos:
        variants = [variant for variant in recipe.variants if zoo in recipe.zoos_of(variant)]
        yield recipe.member(next((name for least in LEAST for name in variants if least in name), variants[0]), zoo)


def plans(graph: Graph, native: tuple[int, int]) -> Iterator[tuple[Plan, tuple[tuple[int, int], ...]]]:
    """The plan for every size with the sizes to run it at, or one for each size."""
    sizes = (native, ODD if takes(graph, ODD) else LARGER)
    try:
        yield make_plan(graph, ANY, mxnet.CAPABILITIES), sizes
    except PaddingError:  # SAME under a stride
        yield from ((make_plan(graph, size, mxnet.CAPABILITIES), (size,)) for size in sizes)
    except GraphError:  # a flatten
        yield make_plan(graph, native, mxnet.CAPABILITIES), (native,)


def test_every_recipe_has_a_symbol_but_the_transformers() -> None:
    for recipe in all_recipes():
        member = next(small(recipe))
        plan = make_plan(expand(member), member.native_size(), mxnet.CAPABILITIES)
        if recipe.architecture != "vit":
            assert len(make_symbol(plan).nodes) > len(plan.graph.nodes)
            continue
        with pytest.raises(GraphError, match="porter writes maps and features for MXNet, not arrays of other axes"):
            make_symbol(plan)


def takes(graph: Graph, size: tuple[int, int]) -> bool:
    try:
        return bool(shapes(graph, size))
    except GraphError:
        return False


def by_torch(graph: Graph, tensors: Tensors, images: Array, dtype: Dtype) -> Array:
    torch = get_destination("torch")
    size = images.shape[2], images.shape[3]
    model = torch.ENGINE.build(make_plan(graph, size, torch.CAPABILITIES), tensors, {}, dtype)
    return torch.ENGINE.run(model, images.astype(dtype), [graph.output])[graph.output]


@needs_mxnet
@pytest.mark.parametrize("architecture", CONVOLUTIONAL)
def test_mxnet_computes_a_ports_function(architecture: str, tmp_path: Path) -> None:
    for member in small(find_recipe(architecture)):
        name, zoo = member.variant, member.zoo.name
        graph, tensors = standin_graph(name, zoo), standin_tensors(name, zoo)
        for plan, sizes in plans(graph, member.native_size()):
            for size in sizes:
                images = smooth_images(graph.channels, size, 5, 2)
                wanted, rounded = (by_torch(graph, tensors, images, dtype) for dtype in ("float64", "float32"))
                assert wanted.std(0).mean() > 0.01 * np.abs(wanted).mean()
                limits: dict[Dtype, float] = {"float64": 1e-10, "float32": max(1e-5, 4 * difference(rounded, wanted))}
                for dtype, limit in limits.items():
                    mxnet.write(tmp_path, plan, tensors, {}, dtype, {})
                    (found,) = run_symbol(tmp_path, images, dtype)
                    assert difference(found, wanted) <= limit, (name, zoo, size, dtype)
