"""What several tests need: calibrated stand-in weights as the files that people have, and graphs with one pad
put in wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from porter.base.errors import GraphError
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.files import digest
from porter.frameworks.dialects import get_dialect
from porter.graph import AvgPool, ChannelScale, Conv, Graph, MaxPool, Node, is_depthwise, shapes, site_of
from porter.padding import Convention
from porter.port import read_port, write_record
from porter.recipe import expand, find_recipe, layer_names
from porter.recipe.zoo_names import tensor_names
from porter.source.fitting.locating import adapted_tensors
from porter.verification.inputs import SIGNED, Images, _range_of, make_images
from tests.support.arrays import Array
from tests.support.standin import calibrated_tensors

CALIBRATION_SIZE = (96, 96)


def sign(folder: Path) -> None:
    """Puts the digests of a port's files as they are now into its port.json, as a port made with these files
    would have them.
    """
    record = read_port(folder, verify_digests=False).record
    write_record(
        folder, record.model_copy(update={"model": {name: digest(folder / name) for name in record.model}})
    )


@lru_cache(maxsize=4)
def standin_graph(variant: str, zoo: str, classes: int = 1000, recipes: Path | None = None) -> Graph:
    recipe = find_recipe(variant, recipes)
    return expand(recipe.member(variant, zoo), {"classes": classes})


@lru_cache(maxsize=4)  # each is as large as its file
def standin_tensors(
    variant: str, zoo: str, classes: int = 1000, recipes: Path | None = None
) -> Mapping[str, Mapping[str, Array]]:
    """Calibrated random weights: logits depend on the image, so that a wrong pad shows."""
    graph = standin_graph(variant, zoo, classes, recipes)
    native = find_recipe(variant, recipes).member(variant, zoo).native_size()
    size = CALIBRATION_SIZE if takes(graph, CALIBRATION_SIZE) else native
    return calibrated_tensors(graph, size, seed=len(variant), lowered=_pooled_unclipped(graph))


def takes(graph: Graph, size: tuple[int, int]) -> bool:
    try:
        shapes(graph, size)
    except GraphError:
        return False
    return True


def _pooled_unclipped(graph: Graph) -> list[str]:
    """Convolutions with a bias that a max pool reads as they are: of values mostly above zero, no pool tells
    what fills its pad.
    """
    pools = [node for node in graph.nodes if isinstance(node.op, MaxPool) and max(node.op.window.kernel) > 1]
    read = [graph.by_path[path] for pool in pools for path in pool.inputs]
    return [node.path for node in read if isinstance(node.op, Conv) and node.op.bias]


def source_checkpoint(
    variant: str, zoo_name: str, classes: int = 1000, recipes: Path | None = None
) -> Checkpoint:
    """The stand-in weights under the zoo's own names and in its framework's axis order."""
    recipe = find_recipe(variant, recipes)
    member = recipe.member(variant, zoo_name)
    dialect, graph = get_dialect(member.zoo.framework), standin_graph(variant, zoo_name, classes, recipes)
    layers = layer_names(member, graph)
    tensors: dict[str, Array] = {}
    for path, roles in standin_tensors(variant, zoo_name, classes, recipes).items():
        node = graph.by_path[path]
        names = tensor_names(dialect, graph, path, layers[path])
        if layers[path].computed:
            continue  # no file has it
        for role, array in roles.items():
            stored = dialect.from_canonical(graph, node, role, array)
            # A transformer's tokens and positions have an axis for the images of a batch.
            if layers[path].bare and role == "value":
                stored = stored[np.newaxis]
            if role == "kernel" and "conv1x1_to_dense" in layers[path].transforms:
                stored = (
                    stored[..., np.newaxis, np.newaxis]
                    if member.zoo.framework == "torch"
                    else stored[np.newaxis, np.newaxis]
                )
            if role == "kernel" and "dense_to_conv1x1" in layers[path].transforms:
                stored = stored.squeeze((2, 3) if member.zoo.framework == "torch" else (0, 1))
            if (
                (variant.partition("_")[0], zoo_name) == ("convnext", "keras")
                and is_depthwise(graph, node)
                and role == "kernel"
            ):
                # A Conv2D with groups.
                stored, names = (
                    stored.transpose(0, 1, 3, 2),
                    {**names, role: (f"{layers[path].name}/kernel",)},
                )
            if (
                role == "gamma"
                and layers[path].name.startswith("features.")
                and isinstance(node.op, ChannelScale)
            ):
                stored = stored[:, np.newaxis, np.newaxis]  # torchvision's layer_scale
            tensors[names[role][0]] = np.ascontiguousarray(stored)
    for path, layer in layers.items():
        if layer.adapted:
            tensors |= zip(adapted_tensors(layer), _adapted(graph.channels_by_path[path]), strict=True)
    return Checkpoint(Path("stand-in"), "memory", member.zoo.framework, tensors)


def _adapted(channels: int) -> tuple[Array, Array, Array]:
    """The mean, the variance and the count of a Normalization, which leave the size of numbers about 1 as it
    is.
    """
    random = np.random.default_rng(channels)
    mean, variance = random.uniform(-0.2, 0.2, channels), random.uniform(0.8, 1.2, channels)
    return mean.astype(np.float32), variance.astype(np.float32), np.array(0, np.int32)


def with_convention(graph: Graph, path: str, convention: Convention) -> Graph:
    """The graph with one site padded otherwise."""
    return replace(
        graph, nodes=tuple(_padded(node, convention) if node.path == path else node for node in graph.nodes)
    )


def _padded(node: Node, convention: Convention) -> Node:
    assert isinstance(node.op, Conv | MaxPool | AvgPool)
    return replace(node, op=replace(node.op, convention=convention))


def strided_sites(graph: Graph) -> list[str]:
    """Paths of the padding sites at which conventions part: kernels above 1 at strides above 1."""
    return [
        node.path
        for node in graph.nodes
        if (site := site_of(node.op)) and max(site.window.stride) > 1 and max(site.window.kernel) > 1
    ]


def make_batch(
    size: tuple[int, int], count: int, channels: int, protocol: Preprocess | None, seed: int = 0
) -> Images:
    """Makes the images of `make_images`, scaled as the zoo's protocol scales pixels, or from -1 to 1."""
    return make_images(size, count, channels, SIGNED if protocol is None else _range_of(protocol), seed)
