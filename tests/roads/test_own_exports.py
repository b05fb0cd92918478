"""porter reads what its own ports are exported to: a port's model.py by torch's three exporters, and its
Keras and ONNX files.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from porter.frameworks import get_destination
from porter.graph import BatchNorm, Dense, Graph, LayerNorm, Rearrange, ReduceAxis, Tokens, tensor_shapes
from porter.graph.plan import make_plan
from porter.padding import Size
from porter.recipe import declared_recipes, find_recipe
from tests.support.arrays import Array
from tests.support.frameworks.torch.graphs import Writer, fine_tuned
from tests.support.standin import calibrated_tensors
from tests.support.standin_files import standin_graph, standin_tensors, takes
from tests.support.torch_onnx import export_to_onnx
from tests.unit.frameworks.torch import test_code, test_code_classic as test_classic
from tests.unit.frameworks.torch.test_code import odd_pools

pytestmark = pytest.mark.usefixtures("in_double")

Tensors = Mapping[str, Mapping[str, Array]]
SIZE = (32, 32)
EXPORTERS = ("torch.export", "torch.onnx", "torch.onnx by torch.export")
OWN_FILES = ("model.keras", "SavedModel", "model.onnx")
VARIANTS = [
    (next(iter(recipe.variants)), kind)
    for recipe in declared_recipes(None)
    for kind in (*EXPORTERS, *OWN_FILES)
]
NOT_EXPORTED = ("shufflenet_v2_x0_5", "torch.onnx")
"""torch's older exporter has no channel_shuffle: it raises an UnsupportedOperatorError of its own."""
GOLDEN = tuple(dict.fromkeys((*test_code.MAKERS, *test_classic.PARTS)))


def written(graph: Graph, tensors: Tensors, size: Size, framework: str, folder: Path) -> Path:
    """The files of a port without its record, which makes them anybody's."""
    destination = get_destination(framework)
    destination.write(folder, make_plan(graph, size, destination.CAPABILITIES), tensors, {}, "float32", {})
    return folder


def loaded(folder: Path) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network: torch.nn.Module = module.load(folder)
    return network


def exported(network: torch.nn.Module, image: torch.Tensor, exporter: str, folder: Path) -> Path:
    path = folder / ("network.pt2" if exporter == "torch.export" else f"{exporter[-6:]}.onnx")
    if exporter == "torch.export":
        torch.export.save(torch.export.export(network, (image,)), path)
    else:
        export_to_onnx(network, (image,), path, dynamo="export" in exporter, external_data=False)
    return path


def expect_read(file: Path, size: tuple[int, int] | None = None) -> None:
    """The file is ported and proved, at a size where its own is open."""
    stated = size and "{}x{}".format(*size)
    made = porter.convert(
        file, to="torch", out=file.parent / f"{file.stem}-port", check=True, input_size=stated
    )
    assert made.port.record.check == "passed"


def tensors_of(make: Callable[[], Graph]) -> Tensors:
    graph = make()
    if any(isinstance(node.op, BatchNorm) for node in graph.nodes):
        return calibrated_tensors(graph, SIZE, 1)
    random = np.random.default_rng(0)
    return {
        path: {
            role: random.normal(0, 1 / np.sqrt(np.prod(shape[1:]) or 1), shape)
            for role, shape in roles.items()
        }
        for path, roles in tensor_shapes(graph).items()
    }


def expect_all_read(graph: Graph, tensors: Tensors, size: tuple[int, int], kind: str, folder: Path) -> None:
    if kind in EXPORTERS:
        network = loaded(written(graph, tensors, size, "torch", folder))
        return expect_read(exported(network, torch.rand(1, graph.channels, *size), kind, folder))
    written(graph, tensors, size, "onnx" if kind == "model.onnx" else "tf", folder)
    if kind != "SavedModel":
        return expect_read(folder / kind, size)
    import keras

    keras.models.load_model(folder / "model.keras").export(folder / "saved", verbose=False)
    return expect_read(folder / "saved", size)


def with_a_token() -> Graph:
    """The beginning and the end of a vision transformer."""
    writer = Writer()
    writer.conv("patches", 8, 4, 4, bias=True)
    writer.add("cells", Rearrange("c h w -> (h w) c"))
    writer.add("token", Tokens(1))
    writer.add("norm", LayerNorm(1e-6))
    writer.add("mean", ReduceAxis("mean", 0))
    writer.add("head", Dense(3))
    return writer.graph()


@pytest.mark.parametrize("kind", [*EXPORTERS, *OWN_FILES])
@pytest.mark.parametrize("make", [fine_tuned, odd_pools, with_a_token])
def test_constants_masks_and_tokens_are_read_again(
    make: Callable[[], Graph], kind: str, tmp_path: Path
) -> None:
    expect_all_read(make(), tensors_of(make), SIZE, kind, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", [*EXPORTERS, *OWN_FILES])
@pytest.mark.parametrize("make", [make for make in GOLDEN if make not in (fine_tuned, odd_pools)])
def test_every_golden_model_is_read_again(make: Callable[[], Graph], kind: str, tmp_path: Path) -> None:
    expect_all_read(make(), tensors_of(make), SIZE, kind, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("variant", "kind"), [pair for pair in VARIANTS if pair != NOT_EXPORTED])
def test_the_first_variant_of_every_recipe_is_read_again(variant: str, kind: str, tmp_path: Path) -> None:
    recipe = find_recipe(variant)
    zoo = next(name for name, zoo in recipe.zoos.items() if zoo.has(variant))
    graph, tensors = standin_graph(variant, zoo, 10), standin_tensors(variant, zoo, 10)
    size = next(
        (size for size in ((64, 64), (96, 96)) if takes(graph, size)),
        recipe.member(variant, zoo).native_size(),
    )
    held = {
        path: {role: array for role, array in roles.items() if role != "batches"}
        for path, roles in tensors.items()
    }
    expect_all_read(graph, held, size, kind, tmp_path)
