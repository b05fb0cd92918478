from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, MappingError, NotInstalled, UsageError
from porter.base.package import install
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import Convention
from porter.recipe import expand, find_recipe, layer_names, tap_names
from porter.zoos import timm, torchvision as reference
from porter.zoos.implementation import BuildRequest, get_implementation
from porter.zoos.library_settings import TRANSFORMERS_DEFAULTS
from porter.zoos.tables import REFERENCES
from porter.zoos.transformers import import_transformers
from tests.support.arrays import Array
from tests.support.standin import calibrated_tensors, smooth_images
from tests.support.standin_files import with_convention

SIZE = (64, 64)


@dataclass(frozen=True)
class Model:
    library: str
    variant: str
    graph: Graph
    layers: Mapping[str, str]
    taps: Mapping[str, str]
    tensors: Mapping[str, Mapping[str, Array]]
    checkpoint: Checkpoint

    def build(self, checkpoint: Checkpoint | None = None, variant: str | None = None) -> Any:
        checkpoint = self.checkpoint if checkpoint is None else checkpoint
        return get_implementation(self.library).build(
            BuildRequest(variant or self.variant, 10, SIZE, checkpoint, "float64")
        )


@pytest.fixture(scope="module", params=["torchvision", "timm"])
def source(request: pytest.FixtureRequest) -> Model:
    variant, recipe = "mobilenet_v2_0.35", find_recipe("mobilenet_v2_0.35")
    member = recipe.member(variant, request.param)
    graph = expand(member, {"classes": 10})
    layers = {path: layer.name for path, layer in layer_names(member, graph).items()}
    tensors = calibrated_tensors(graph, SIZE, 3)
    state = {}
    for path, roles in tensors.items():
        names = get_dialect("torch").tensor_names(graph, graph.by_path[path], layers[path])
        state.update({names[role][0]: array for role, array in roles.items()})
    checkpoint = Checkpoint(Path("weights.pth"), "torch", "torch", state)
    return Model(request.param, variant, graph, layers, tap_names(member, graph), tensors, checkpoint)


def test_every_tap_agrees_with_the_port_in_float64(source: Model) -> None:
    batch = smooth_images(3, (65, 63), 4, 3).astype(np.float64)
    wanted: Mapping[str, Array] = framework.ENGINE.run_reference(source.build(), batch, source.taps)
    port = framework.ENGINE.build(
        make_plan(source.graph, SIZE, framework.CAPABILITIES), source.tensors, {}, "float64"
    )
    found: Mapping[str, Array] = framework.ENGINE.run(port, batch, list(wanted))
    assert set(wanted) >= {node.path for node in source.graph.nodes} - {"head/pool"}
    for path, value in wanted.items():
        assert np.linalg.norm(found[path].reshape(value.shape) - value) <= 1e-10 * np.linalg.norm(value), path
    assert wanted["head/logits"].std(axis=0).mean() >= 0.01 * np.abs(wanted["head/logits"]).mean()


def test_a_wrong_pad_shows(source: Model) -> None:
    batch = smooth_images(3, (65, 63), 4, 3).astype(np.float64)
    logits: Array = framework.ENGINE.run_reference(
        source.build(), batch, {"head/logits": source.taps["head/logits"]}
    )["head/logits"]
    same = with_convention(source.graph, "block1/depthwise/conv", Convention("same"))
    port = framework.ENGINE.build(
        make_plan(same, (65, 63), framework.CAPABILITIES), source.tensors, {}, "float64"
    )
    found: Array = framework.ENGINE.run(port, batch, ["head/logits"])["head/logits"]
    assert np.linalg.norm(found - logits) >= 1e-3 * np.linalg.norm(logits)


def test_taps_are_taken_before_what_follows_in_place(source: Model) -> None:
    taps = {"norm": source.taps["stem/norm"], "none": "no.such"}
    found = framework.ENGINE.run_reference(source.build(), smooth_images(3, SIZE, 4, 2), taps)
    assert set(found) == {"norm"}
    assert found["norm"].min() < 0, "the ReLU6 that follows works in place"
    assert found["norm"].dtype == np.float64


def test_only_its_own_tensors_are_taken(source: Model) -> None:
    less, name = dict(source.checkpoint.tensors), f"{source.layers['stem/conv']}.weight"
    less["other.weight"] = less.pop(name)
    with pytest.raises(
        MappingError, match=rf"weights\.pth: {source.library}.*{re.escape(name)}.*other\.weight"
    ):
        source.build(Checkpoint(source.checkpoint.path, "torch", "torch", less))
    with pytest.raises(UsageError, match=rf"{source.library} model 'mobilenet_v3'"):
        source.build(variant="mobilenet_v3")


def test_timm_has_no_width_of_1_3() -> None:
    with pytest.raises(UsageError, match=r"timm model 'mobilenet_v2_1\.3'.*mobilenet_v2_1\.4"):
        get_implementation("timm").build(
            BuildRequest(
                "mobilenet_v2_1.3", 10, SIZE, Checkpoint(Path("w.pth"), "torch", "torch", {}), "float32"
            )
        )


def test_an_option_that_a_builder_lacks_has_a_next_step() -> None:
    weights = Checkpoint(Path("w.pth"), "torch", "torch", {})
    with pytest.raises(CannotRun, match=r"another value of transform_input .*--reference FILE\.py:CALLABLE"):
        get_implementation("timm").build(
            BuildRequest("mobilenet_v2", 10, SIZE, weights, "float32", {"transform_input": True})
        )


@pytest.mark.parametrize(
    ("package", "next"), [("torchvision", install("torch")), ("timm", "pip install timm")]
)
def test_a_missing_library(monkeypatch: pytest.MonkeyPatch, package: str, next: str) -> None:
    monkeypatch.setattr("porter.base.package.find_spec", lambda name: None if name == package else object())
    with pytest.raises(NotInstalled, match=rf"{package} is not installed.*{re.escape(next)}"):
        get_implementation("timm").build(
            BuildRequest("mobilenet_v2", 10, SIZE, Checkpoint(Path("w.pth"), "torch", "torch", {}), "float32")
        )


def test_an_unknown_library() -> None:
    with pytest.raises(UsageError, match=r"no reference 'os'.*torchvision, timm"):
        get_implementation("os").build(
            BuildRequest("mobilenet_v2", 10, SIZE, Checkpoint(Path("w.pth"), "torch", "torch", {}), "float32")
        )


@pytest.mark.parametrize(
    ("module", "load"),
    [("torchvision.models", reference.import_models), ("timm.models", timm.import_timm)],
)
def test_a_library_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, module: str, load: Callable[[], Any]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalled, match="cannot be imported"):
        load()


def test_every_builder_exists() -> None:
    libraries = {
        "torchvision": reference.import_models(),
        **dict.fromkeys(("timm", "timm_tf"), timm.import_timm()),
    }
    assert {*libraries, "transformers", "transformers_torch"} == set(REFERENCES["torch"])
    for library, module in libraries.items():
        assert all(hasattr(module, name) for name, _ in REFERENCES["torch"][library].values())


def test_the_defaults_of_transformers_are_its_own() -> None:
    config = import_transformers().AutoConfig
    for kind, usual in TRANSFORMERS_DEFAULTS.items():
        own = json.loads(json.dumps(config.for_model(kind).to_dict()))
        assert {name: own[name] for name in usual} == usual
