"""Keras's Inception v3, whose layers Keras numbers, in files of models that were not the first of their
session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import porter
from porter.base.errors import MappingError
from porter.formats.reading import read_checkpoint
from porter.frameworks import get_destination
from porter.graph.plan import make_plan
from porter.recipe import Member, find_recipe
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.source.open import open_source
from porter.source.place import find
from porter.verification.references.source_references import references_of
from porter.verification.references.zoo_reference import ZooReference
from porter.zoos.implementation import BuildRequest, get_implementation
from tests.support.arrays import Array
from tests.support.standin_files import make_batch, source_checkpoint, standin_graph, standin_tensors

RECIPE = find_recipe("inception_v3")
ZOO = RECIPE.zoo("keras", "inception_v3")
SIZE = (75, 75)


@pytest.fixture(scope="module")
def second() -> Any:
    """The stand-in weights in the second model of a session, or a later one."""
    checkpoint = source_checkpoint("inception_v3", "keras")
    models = [
        get_implementation("keras").build(BuildRequest("inception_v3", 1000, SIZE, checkpoint, "float32"))
        for _ in range(2)
    ]
    numbered = [
        int(name.rpartition("_")[2])
        for name in (layer.name for layer in models[1].layers)
        if re.match(r"conv2d_", name)
    ]
    assert min(numbered) >= 94 and len(numbered) == 94
    return models[1]


def only_weights(path: Path, model: Any) -> Path:
    from keras.src.legacy.saving import legacy_h5_format

    with h5py.File(path, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    return path


def saved(path: Path, model: Any) -> Path:
    model.save(path)
    return path


def saved_weights(path: Path, model: Any) -> Path:
    model.save_weights(path)
    return path


def saved_without_names(path: Path, model: Any) -> Path:
    """As earlier Keras 3 wrote weights: layers only by class and counter."""
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        file.visititems(lambda _, item: item.attrs.pop("name", None) and None)
    return path


FILES: dict[str, Callable[[Path, Any], Path]] = {
    "weights.h5": only_weights,
    "whole.h5": saved,
    "model.keras": saved,
    "named.weights.h5": saved_weights,
    "counted.weights.h5": saved_without_names,
}
INSPECTED = ("model.keras", "counted.weights.h5")
"""In CI, one that carries its graph and one without layers' names."""


@pytest.fixture(scope="module")
def file(second: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes one of FILES, each once."""
    folder = tmp_path_factory.mktemp("files")
    return cache(lambda name: FILES[name](folder / name, second))


def expect_standins(tensors: Any) -> None:
    wanted = standin_tensors("inception_v3", "keras")
    assert {path: roles.keys() for path, roles in tensors.items()} == {
        path: roles.keys() for path, roles in wanted.items()
    }
    for path, roles in wanted.items():
        for role, array in roles.items():
            assert np.array_equal(tensors[path][role], array), (path, role)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("weights.h5", *INSPECTED) else pytest.mark.full)
        for name in FILES
    ],
)
def test_every_tensor_finds_its_node(name: str, file: Callable[[str], Path]) -> None:
    expect_standins(open_source(find(file(name)), member=Member(RECIPE, "inception_v3", ZOO)).tensors)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in INSPECTED else pytest.mark.full) for name in FILES]
)
def test_inspect_knows_the_file(name: str, file: Callable[[str], Path]) -> None:
    path = file(name)
    best = porter.inspect(path).matches[0]
    assert (*best.member.is_a, best.score, best.missing, best.unexpected) == (
        "inception_v3",
        "keras",
        1.0,
        (),
        (),
    )


def test_the_reference_is_given_what_the_file_holds(file: Callable[[str], Path]) -> None:
    given = {}
    for name in ("weights.h5", "counted.weights.h5"):
        opened = open_source(find(file(name)), member=Member(RECIPE, "inception_v3", ZOO))
        assert opened.fitted is not None and opened.fitted.checkpoint.counted == name.startswith("counted")
        (reference,) = references_of(opened, "float32")
        assert isinstance(reference, ZooReference)
        given[name] = reference.checkpoint.tensors
    named, counted = given.values()
    assert named.keys() == counted.keys() and all(
        np.array_equal(named[name], counted[name]) for name in named
    )
    batch = make_batch(SIZE, 2, 3, ZOO.preprocess)
    wanted: Array = reference.run(batch, "float64")["head/logits"]
    torch, graph = get_destination("torch"), standin_graph("inception_v3", "keras")
    tensors = standin_tensors("inception_v3", "keras")
    model = torch.ENGINE.build(make_plan(graph, SIZE, torch.CAPABILITIES), tensors, {}, "float64", "cpu")
    got: Array = torch.ENGINE.run(model, batch, ["head/logits"])["head/logits"]
    assert np.linalg.norm(got - wanted) <= 1e-10 * np.linalg.norm(wanted)


def test_keras_2_counted_from_one_and_other_layers_may_be_beside(tmp_path: Path) -> None:
    checkpoint = source_checkpoint("inception_v3", "keras")
    tensors = {up(name): array for name, array in checkpoint.tensors.items()}
    assert {"conv2d_1/kernel", "conv2d_94/kernel"} <= tensors.keys() and "conv2d/kernel" not in tensors
    fit = fit_by_names(
        Candidate.of(Member(RECIPE, "inception_v3", ZOO), replace(checkpoint, tensors=tensors))
    )
    assert fit.tensors["conv1a_3x3/conv", "kernel"] == "conv2d_1/kernel" and fit.tensors[
        "mixed7c/branch_pool/bn", "mean"
    ] == ("batch_normalization_94/moving_mean")
    assert {fit.in_zoo.names[name] for name in fit.tensors.values()} == checkpoint.tensors.keys()


def up(name: str) -> str:
    """A tensor's name with its layer's number one higher."""
    layer, _, variable = name.rpartition("/")
    kind, number = re.fullmatch(r"(conv2d|batch_normalization|.*?)(?:_(\d+))?", layer).groups()  # type: ignore[union-attr]
    return name if layer == "predictions" else f"{kind}_{int(number or 0) + 1}/{variable}"


def test_a_file_with_a_layer_too_few_or_too_many_is_refused() -> None:
    checkpoint = source_checkpoint("inception_v3", "keras")
    numbered = {up(name): array for name, array in checkpoint.tensors.items()}
    fewer = {name: array for name, array in numbered.items() if name != "conv2d_50/kernel"}
    more = {**numbered, "conv2d_95/kernel": numbered["conv2d_94/kernel"]}
    for tensors in (fewer, more):
        with pytest.raises(MappingError, match=r"missing|unexpected"):
            fit_by_names(
                Candidate.of(Member(RECIPE, "inception_v3", ZOO), replace(checkpoint, tensors=tensors))
            )


def test_the_file_of_a_backbone_without_a_head(second: Any, tmp_path: Path) -> None:
    import keras

    backbone = keras.Model(second.input, second.layers[-2].output)
    opened = open_source(
        find(only_weights(tmp_path / "notop.h5", backbone)), member=Member(RECIPE, "inception_v3", ZOO)
    )
    assert opened.facts.output == "features" and opened.facts.source_classes == 0
    assert (
        read_checkpoint(tmp_path / "notop.h5")
        .tensors.keys()
        .isdisjoint({"predictions/kernel", "conv2d/kernel"})
    )
