"""TensorNets' zoo against TensorNets' own code on the TensorFlow 1.15 that it was written for."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.dtypes import Dtype
from porter.formats.reading import read_checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import get_destination
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.run import run_reference
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import Convention
from porter.recipe import find_recipe, tap_names
from porter.verification.check import PROVED_DTYPES, Check
from porter.verification.sizes import Sizes
from porter.zoos.slim.network import layer_ops
from porter.zoos.tables import TENSORNETS
from tests.support.arrays import Array
from tests.support.checkout import ROOT
from tests.support.recipe.recipes import all_recipes
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors, with_convention
from tests.support.tensornets_files import (
    needs_python37,
    needs_tensornets,
    tensornets_python,
    tensornets_tensors,
)


def test_the_table_has_every_variant_of_the_zoo() -> None:
    assert set(TENSORNETS) == {
        variant
        for recipe in all_recipes()
        for variant in recipe.variants
        if "tensornets" in recipe.zoos_of(variant)
    }


def logits(graph: Graph, variant: str, batch: Array) -> Array:
    torch = get_destination("torch")
    plan = make_plan(graph, batch.shape[2:], torch.CAPABILITIES)
    model = torch.ENGINE.build(plan, standin_tensors(variant, "tensornets"), {}, "float64", "cpu")
    return torch.ENGINE.run(model, batch, [graph.output])[graph.output]


EVERY_SIDE = Convention("explicit", (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("size", "wrong"),
    [
        (65, Convention("same")),  # slim's, which on odd maps has a cell on every side
        (65, EVERY_SIDE),
        (64, EVERY_SIDE),
        (64, Convention("explicit", (0, 1, 0, 1), fill=0.0)),
    ],
)
def test_the_stems_pad_is_told_from_others(size: int, wrong: Convention) -> None:
    graph, batch = (
        standin_graph("resnet50v2", "tensornets"),
        smooth_images(3, (size, size), seed=3, count=2).astype(np.float64),
    )
    exact = logits(graph, "resnet50v2", batch)
    moved = logits(with_convention(graph, "stem/pool", wrong), "resnet50v2", batch)
    assert np.linalg.norm(moved - exact) > 1e-3 * np.linalg.norm(exact)


@dataclass
class Published:
    """The graph that TensorNets made on TensorFlow 1.15, for `check`."""

    definition: bytes
    tensors: dict[str, Array]
    output: str
    taps: dict[str, str]
    size: tuple[int, int]
    name: str = "TensorNets on TensorFlow 1.15"
    run_by: str = "TensorFlow"

    def takes(self, size: tuple[int, int]) -> bool:
        return size == self.size

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        graph: Any = import_tensorflow().compat.v1.GraphDef.FromString(self.definition)
        layers = layer_ops(graph, self.tensors)
        runner = GraphRunner(
            self.definition, self.tensors, [self.output], dtype, layers, decimal_epsilons=True
        )
        return run_reference(runner, batch, self.taps)


@needs_python37
@needs_tensornets
@pytest.mark.parametrize(
    ("variant", "size"),
    [
        ("mobilenet_v1_0.25", (97, 64)),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("mobilenet_v2_0.35", (64, 65)),
                ("resnet50", (65, 96)),
                ("resnet50v2", (65, 96)),
                ("resnet200v2", (65, 64)),
                ("resnext50_32x4d", (65, 64)),
                ("wide_resnet50_2", (65, 64)),
                ("inception_v3", (96, 76)),
                ("inception_v3", (75, 107)),
            )
        ),
    ],
)
def test_as_published(variant: str, size: tuple[int, int], tmp_path: Path) -> None:
    tensors = tensornets_tensors(variant)
    np.savez(tmp_path / "arrays.npz", allow_pickle=False, **tensors)
    saved, frozen = tmp_path / "saved.npz", tmp_path / "frozen.pb"
    script = [
        str(tensornets_python()),
        str(ROOT / "tests/support/tensornets_code.py"),
        *TENSORNETS[variant],
        *map(str, size),
    ]
    ran = subprocess.run(
        [*script, str(tmp_path / "arrays.npz"), str(saved), str(frozen)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr

    found = read_checkpoint(saved).tensors
    # The order in which this TensorFlow makes the variables is also that one's.
    assert list(found) == list(tensors)
    assert all(
        np.array_equal(found[name], tensors[name]) and found[name].dtype == np.float32 for name in tensors
    )

    text = f"{size[0]}x{size[1]}"
    made = porter.convert(
        variant, "tensornets", "torch", weights=saved, out=tmp_path / "port", input_size=text, check=False
    )
    recipe, graph = find_recipe(variant), made.port.graph
    taps = tap_names(recipe.member(variant, "tensornets"), graph)
    output = f"{TENSORNETS[variant][1]}/logits/BiasAdd"
    source = Published(frozen.read_bytes(), dict(tensors), output, dict(taps), size)
    verdict = Check(made.port, PROVED_DTYPES).prove(source, Sizes((size,), (size,)))
    assert verdict.ok and not verdict.proof.uncompared
    assert all(
        node.rel_l2 <= 1e-10
        for parity in verdict.parities
        if parity.dtype == "float64"
        for node in parity.nodes
    )
