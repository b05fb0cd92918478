"""A small variant of each recipe, with sizes to run it at: for the destinations whose files another program
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from porter.base.dtypes import Dtype
from porter.base.errors import GraphError, PaddingError
from porter.frameworks import Destination, Tensors, get_destination
from porter.graph import Graph, shapes
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY
from porter.recipe import Member, Recipe, find_recipe, recipes_folder
from porter.verification.inputs import PIXELS, stated_range
from tests.support.arrays import Array
from tests.support.random_graphs import difference
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors

LEAST = ("0.25", "0.35", "0.5", "x0_5", "small", "18", "20", "50", "11", "121", "1_1")
"""What the names of small variants end with or have."""
ODD, LARGER = (139, 129), (225, 263)
"""LARGER is for networks whose maps would be too small."""
DTYPES: tuple[Dtype, ...] = ("float64", "float32")

REFUSED = {
    "caffe": {
        "bit": "stage1/unit1/norm1: porter writes no layer of Caffe for a group norm",
        "convnext": "stem/norm: porter writes no layer of Caffe for a layer norm",
        **dict.fromkeys(
            ("mlp_mixer", "vit"),
            "stem/cells: Caffe's layers take maps and features, not arrays of other axes",
        ),
    },
    "mxnet": {
        "bit": "stage1/unit1/norm1: porter writes MXNet's InstanceNorm, not norms of several channels",
        "convnext": "stem/norm: porter writes no layer of MXNet for a layer norm",
        **dict.fromkeys(
            ("mlp_mixer", "vit"),
            "stem/cells: porter writes maps and features for MXNet, not arrays of other axes",
        ),
    },
}
"""What porter says of networks that a destination cannot say, by architecture."""

WITHOUT_LAYER_NORMS = sorted(
    path.stem for path in recipes_folder().glob("*.yaml") if path.stem not in REFUSED["caffe"]
)


def small(recipe: Recipe) -> Iterator[Member]:
    """A small variant of a recipe in each of its zoos."""
    for zoo in recipe.zoos:
        variants = [variant for variant in recipe.variants if zoo in recipe.zoos_of(variant)]
        yield recipe.member(
            next((name for least in LEAST for name in variants if least in name), variants[0]), zoo
        )


def plans(
    graph: Graph, native: tuple[int, int], destination: Destination
) -> Iterator[tuple[Plan, tuple[tuple[int, int], ...]]]:
    """The plan for every size with the sizes to run it at, or one for each size."""
    sizes = (native, ODD if takes(graph, ODD) else LARGER)
    try:
        yield make_plan(graph, ANY, destination.CAPABILITIES), sizes
    except PaddingError:  # SAME under a stride
        yield from ((make_plan(graph, size, destination.CAPABILITIES), (size,)) for size in sizes)
    except GraphError:  # a flatten
        yield make_plan(graph, native, destination.CAPABILITIES), (native,)


def takes(graph: Graph, size: tuple[int, int]) -> bool:
    try:
        return bool(shapes(graph, size))
    except GraphError:
        return False


@dataclass(frozen=True)
class Case:
    """A plan of a network with images, and what torch computes of these.

    Attributes:
        name: for messages.
        wanted: in double precision.
        limits: how far another program's values may be from these, by the type that it computes in.
    """

    name: str
    plan: Plan
    tensors: Tensors
    images: Array
    wanted: Array
    limits: Mapping[Dtype, float]


def cases(architecture: str, destination: Destination) -> Iterator[Case]:
    """Small variants of a recipe, in each zoo and at each size, whose outputs tell images apart and are not
    made of their rounding: EfficientNets answer images that are much brighter than others at random.
    """
    for member in small(find_recipe(architecture)):
        variant, zoo = member.variant, member.zoo.name
        graph, tensors = standin_graph(variant, zoo), standin_tensors(variant, zoo)
        for plan, sizes in plans(graph, member.native_size(), destination):
            for size in sizes:
                images = smooth_images(graph.channels, size, 10, 2)
                if stated_range(graph, None) is PIXELS:
                    images = 64 * images + 128
                wanted, rounded = (_by_torch(graph, tensors, images, dtype) for dtype in DTYPES)
                rounding = difference(rounded, wanted)
                assert wanted.std(0).mean() > 0.01 * np.abs(wanted).mean() and rounding <= 1e-4
                limits = dict(zip(DTYPES, (1e-10, max(1e-5, 4 * rounding)), strict=True))
                yield Case(f"{variant} of {zoo} at {size}", plan, tensors, images, wanted, limits)


def _by_torch(graph: Graph, tensors: Tensors, images: Array, dtype: Dtype) -> Array:
    torch = get_destination("torch")
    size = images.shape[2], images.shape[3]
    model = torch.ENGINE.build(make_plan(graph, size, torch.CAPABILITIES), tensors, {}, dtype)
    return torch.ENGINE.run(model, images.astype(dtype), [graph.output])[graph.output]
