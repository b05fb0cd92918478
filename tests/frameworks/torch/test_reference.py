from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from porter.errors import MappingError, MissingFramework, UsageError
from porter.frameworks import torch as framework
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.torch import reference
from porter.plan import make_plan
from porter.recipe import expand, find_recipe, layer_names
from tests.standin import calibrated_tensors, smooth_images

SIZE = (64, 64)


@pytest.fixture(scope="module")
def source():
    recipe = find_recipe("mobilenet_v2")
    zoo = recipe.zoo("torchvision", "mobilenet_v2")
    graph = expand(recipe, "mobilenet_v2", zoo, {"classes": 10})
    layers = {path: layer.name for path, layer in layer_names(recipe, "mobilenet_v2", zoo, graph).items()}
    tensors = calibrated_tensors(graph, SIZE, 3)
    state = {}
    for path, roles in tensors.items():
        names = framework.tensor_names(graph, graph.by_path[path], layers[path])
        state.update({names[role][0]: array for role, array in roles.items()})
    return graph, layers, tensors, Checkpoint(Path("weights.pth"), "torch", "torch", state)


def build(checkpoint, variant="mobilenet_v2", dtype="float64"):
    return framework.build_reference("torchvision", variant, 10, SIZE, checkpoint, dtype)


def test_every_tap_agrees_with_the_port_in_float64(source):
    graph, layers, tensors, checkpoint = source
    batch = smooth_images(3, (65, 63), 4, 3).astype(np.float64)
    wanted = framework.run_reference(build(checkpoint), batch, layers)
    port = framework.build(make_plan(graph, SIZE, framework.CAPABILITIES), tensors, {}, "float64")
    found = framework.run(port, batch, list(wanted))
    assert {"stem/conv", "block3/depthwise/conv", "head/logits"} <= set(wanted)
    for path, value in wanted.items():
        assert np.linalg.norm(found[path] - value) <= 1e-10 * np.linalg.norm(value), path
    assert wanted["head/logits"].std(axis=0).mean() > 0


def test_taps_are_taken_before_what_follows_in_place(source):
    _, layers, _, checkpoint = source
    found = framework.run_reference(
        build(checkpoint), smooth_images(3, SIZE, 4, 2), {"norm": layers["stem/norm"], "none": "no.such"}
    )
    assert set(found) == {"norm"}
    assert found["norm"].min() < 0, "the ReLU6 that follows works in place"
    assert found["norm"].dtype == np.float64


def test_only_its_own_tensors_are_taken(source):
    *_, checkpoint = source
    less = dict(checkpoint.tensors)
    less["other.weight"] = less.pop("features.0.0.weight")
    with pytest.raises(MappingError, match=r"weights\.pth: .*features\.0\.0\.weight.*other\.weight"):
        build(Checkpoint(checkpoint.path, "torch", "torch", less))
    with pytest.raises(UsageError, match="mobilenet_v3"):
        build(checkpoint, variant="mobilenet_v3")


def test_torchvision_missing(monkeypatch, source):
    *_, checkpoint = source
    monkeypatch.setattr(framework, "find_spec", lambda name: None if name == "torchvision" else object())
    with pytest.raises(MissingFramework, match=r"torchvision is not installed.*pip install"):
        build(checkpoint)


def test_torchvision_that_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(MissingFramework, match="cannot be imported"):
        reference.import_models()


def test_every_builder_exists():
    models = reference.import_models()
    assert all(hasattr(models, name) for name, _ in reference._BUILDERS.values())
