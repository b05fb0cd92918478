"""What a conversion does once: a variant's expansion, the file's graph, where its tensors are, which layers
are which nodes, and the JSON beside the file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import keras
import numpy as np
import onnx
import pytest
import torch
from flax.traverse_util import unflatten_dict
from safetensors.torch import save_file

import porter
import porter.conversion.convert
import porter.verification.proving
from porter.filegraph import walk
from porter.files import published_weights
from porter.formats.keras import graph as keras_graph
from porter.graph import plan
from porter.port import folder as port_folder, read_port
from porter.recipe import expansion, load
from porter.source import hub_folder
from porter.source.fitting import alignment, locating
from tests.support.fixtures import WeightsMaker
from tests.support.slim_files import SlimFile, write_slim
from tests.support.standin_files import source_checkpoint
from tests.support.transformers_models import class_folder


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of these functions is called, wherever it was imported."""
    found: Counter[str] = Counter()
    # Frameworks' modules import more when they are asked for a name that they lack.
    porters = [module for name, module in tuple(sys.modules.items()) if name.startswith("porter.")]
    for module, name in (
        (expansion, "expand_steps"),
        (locating, "locate"),
        (hub_folder, "_content"),
        (alignment, "align"),
        (keras_graph, "read_graph"),
        (plan, "make_plan"),
        (port_folder, "write_record"),
        (port_folder, "read_port"),
        (published_weights, "is_published"),
    ):
        own = getattr(module, name)
        for each in [each for each in porters if getattr(each, name, None) is own]:
            monkeypatch.setattr(each, name, _counting(own, found))
    monkeypatch.setattr(walk.NodeWalk, "__init__", _counting(walk.NodeWalk.__init__, found))
    return found


def _forget(counted: Counter[str]) -> None:
    """Counts anew, with recipes that have no graphs yet."""
    load._open.cache_clear()
    counted.clear()


def _counting(function: Callable[..., Any], found: Counter[str]) -> Callable[..., Any]:
    def counting(*arguments: Any, **more: Any) -> Any:
        whose = f" {arguments[0].name}" if function.__name__ in ("expand_steps", "_content") else ""
        found[function.__name__ + whose] += 1
        return function(*arguments, **more)

    return counting


VARIANT, ZOO = "mobilenet_v1_0.25", "keras"


def test_a_file_with_its_graph_is_recognised_and_opened_once(
    weights_file: WeightsMaker, counted: Counter[str], tmp_path: Path
) -> None:
    path = weights_file(VARIANT, ZOO, ".whole.h5")
    for make, likely in (
        # slim's and TensorNets' variant have its shapes, and other names
        (lambda: porter.inspect(path), 1),
        (lambda: porter.convert(path, out=tmp_path / "own", check=False), 1),
        (lambda: porter.convert(VARIANT, ZOO, weights=path, out=tmp_path / "asked", check=False), 1),
    ):
        _forget(counted)
        make()
        expanded = {name: count for name, count in counted.items() if name.startswith("expand_steps")}
        assert expanded[f"expand_steps {VARIANT} from {ZOO}"] == 1 and set(expanded.values()) == {1}
        assert len(expanded) == counted["align"] == likely >= counted["locate"] and counted["read_graph"] == 1


def test_a_file_of_weights_is_expanded_once_more_for_the_pads_of_training(
    weights_file: WeightsMaker, counted: Counter[str], tmp_path: Path
) -> None:
    path = weights_file("resnet50v2", ZOO, ".h5")
    own = {"locate": 1, "is_published": 1, "make_plan": 1, "write_record": 1}
    for padding, times in (("shipped", 1), ("trained", 2)):
        _forget(counted)
        made = porter.convert(
            "resnet50v2", ZOO, weights=path, out=tmp_path / padding, padding=padding, check=False
        )
        assert counted == {f"expand_steps resnet50v2 from {ZOO}": times, **own}
        assert read_port(made.port.folder) == made.port


def test_a_check_reads_the_port_once(
    weights_file: WeightsMaker, counted: Counter[str], tmp_path: Path
) -> None:
    weights = weights_file(VARIANT, ZOO, ".h5")  # its making makes a plan of its own
    for to in ("torch", "onnx"):
        _forget(counted)
        made = porter.convert(VARIANT, ZOO, to, weights=weights, out=tmp_path / to, input_size=64)
        assert counted["read_port"] == 1 and counted["write_record"] == 2 and counted["make_plan"] == 2
        assert read_port(made.port.folder) == made.port


@dataclass
class World:
    """Sources of every kind in a folder, each made when it is asked for."""

    weights: WeightsMaker
    folder: Path

    def port(self, to: str = "torch") -> Path:
        if not (path := self.folder / to).exists():
            porter.convert(VARIANT, ZOO, to, weights=self.weights(VARIANT, ZOO, ".h5"), out=path, check=False)
        return path

    def alone(self, to: str) -> Path:
        """A port's folder without its record: other people's files."""
        path = self.folder / f"files-{to}"
        if not path.exists():
            copytree(self.port(to), path, ignore=ignore_patterns("port.json"))
        return path

    def tuned(self) -> Path:
        torch.save(porter.load(self.port()).state_dict(), path := self.folder / "tuned.pth")
        return path

    def exported(self) -> Path:
        module, path = self.module(), self.folder / "net.pt2"
        torch.export.save(torch.export.export(module, (torch.zeros(1, 3, 224, 224),)), path)
        return path

    def module(self) -> torch.nn.Module:
        module: torch.nn.Module = porter.load(self.port()).eval()
        return module

    def of_timm(self) -> Path:
        """ResNet-18 for ten classes, as timm has it on the Hub."""
        (path := self.folder / "timm" / "model.safetensors").parent.mkdir(exist_ok=True)
        save_file(torch.load(self.weights("resnet18", "torchvision", ".pth", 10)), path)
        config = {
            "architecture": "resnet18",
            "num_classes": 10,
            "pretrained_cfg": {"input_size": [3, 224, 224]},
        }
        (path.parent / "config.json").write_text(json.dumps(config))
        return path.parent

    def of_transformers(self) -> Path:
        return class_folder("resnet", self.folder)[1](self.folder, False)

    def of_keras_hub(self) -> Path:
        hub = pytest.importorskip("keras_hub").models
        settings = {"stackwise_num_filters": [64], "stackwise_num_blocks": [1], "stackwise_num_strides": [1]}
        stem: dict[str, Any] = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
        backbone = hub.ResNetBackbone(
            block_type="basic_block", image_shape=(None, None, 3), **settings, **stem
        )
        hub.ResNetImageClassifier(backbone=backbone, num_classes=5).save_to_preset(
            str(path := self.folder / "preset")
        )
        return path

    def of_slim(self, format: str) -> Path:
        return write_slim(self.folder / format, SlimFile(format=format))

    def of_big_vision(self) -> Path:
        tensors = dict(source_checkpoint(VIT, "big_vision").tensors)
        np.savez(path := self.folder / "vit.npz", allow_pickle=False, **tensors)
        return path

    def of_orbax(self) -> Path:
        tensors = source_checkpoint("resnet18", "flax_examples").tensors
        state = unflatten_dict(tensors, sep="/")
        pytest.importorskip("orbax.checkpoint").PyTreeCheckpointer().save(
            path := self.folder / "orbax", state
        )
        return path


VIT = "vit_ti_16"
SOURCES: dict[str, Callable[[World], dict[str, Any]]] = {
    ".h5": lambda world: of(VARIANT, ZOO, world.weights(VARIANT, ZOO, ".h5")),
    ".h5 with its graph": lambda world: of(world.weights(VARIANT, ZOO, ".whole.h5")),
    ".keras": lambda world: of(world.weights(VARIANT, ZOO, ".keras")),
    "a frozen graph": lambda world: of(world.of_slim("frozen")),
    "a SavedModel": lambda world: of(world.of_slim("saved_model")),
    "a checkpoint": lambda world: of("mobilenet_v1_0.25", "slim", world.of_slim("v2")),
    ".pth": lambda world: of("resnet18", "torchvision", world.weights("resnet18", "torchvision", ".pth")),
    ".pt2": lambda world: of(world.exported()),
    "ONNX": lambda world: of(world.alone("onnx") / "model.onnx"),
    "Caffe's pair": lambda world: of(
        world.alone("caffe") / "model.prototxt", weights=world.alone("caffe") / "model.caffemodel"
    ),
    "MXNet's pair": lambda world: of(
        world.alone("mxnet") / "model-symbol.json", weights=world.alone("mxnet") / "model-0000.params"
    ),
    "a folder of timm": lambda world: of(world.of_timm()),
    "a folder of timm, as a variant": lambda world: of("resnet18", "timm", world.of_timm()),
    "a folder of transformers": lambda world: of(world.of_transformers()),
    "a folder of KerasHub": lambda world: {**of(world.of_keras_hub()), "input_size": 32},
    ".npz of big_vision": lambda world: of(VIT, "big_vision", world.of_big_vision()),
    "orbax": lambda world: of("resnet18", "flax_examples", world.of_orbax()),
    "a port": lambda world: of(world.port()),
    "a port, trained further": lambda world: of(world.port(), weights=world.tuned()),
    "a module in memory": lambda world: {**of(world.module()), "input_size": 224},
    "a Keras model in memory": lambda world: of(
        keras.models.load_model(world.weights(VARIANT, ZOO, ".keras"))
    ),
    "an ONNX model in memory": lambda world: of(onnx.load(world.alone("onnx") / "model.onnx")),
}
WITH_GRAPHS = {
    ".h5 with its graph",
    ".keras",
    "a frozen graph",
    "a SavedModel",
    ".pt2",
    "ONNX",
    "Caffe's pair",
    "MXNet's pair",
    "a folder of transformers",
    "a folder of KerasHub",
    "a module in memory",
    "a Keras model in memory",
    "an ONNX model in memory",
}
OF_ONE_SIZE = {"a frozen graph", "a SavedModel"}
"""They have pools as large as the map: they are read for images of any size, and then of the stated one."""
SLOW = {
    "a folder of transformers",
    "a module in memory",
    "a Keras model in memory",
    "a frozen graph",
    "a SavedModel",
    "a checkpoint",
    "a folder of KerasHub",
    "orbax",
    ".npz of big_vision",
}


def of(subject: object, source: str | None = None, weights: Path | None = None) -> dict[str, Any]:
    return {"subject": subject, "source": source, "weights": weights}


@pytest.fixture(scope="module")
def world(weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(weights_file, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    "source", [pytest.param(name, marks=pytest.mark.full) if name in SLOW else name for name in SOURCES]
)
def test_each_part_of_a_source_is_made_once(
    source: str, world: World, counted: Counter[str], tmp_path: Path
) -> None:
    given = SOURCES[source](world)
    file = given["weights"] or given["subject"]
    for road in ("convert", "inspect") if isinstance(file, Path) else ("convert",):
        _forget(counted)
        if road == "convert":
            porter.convert(**given, to="onnx", out=tmp_path / "made", check=False)
        else:
            porter.inspect(file)
        expanded = sum(name.startswith("expand_steps") for name in counted)
        assert counted["locate"] <= expanded and counted["align"] <= expanded
        # A folder's network is not built to be inspected.
        has_graph = source in WITH_GRAPHS and (road == "convert" or "folder" not in source)
        assert counted["__init__"] == has_graph + (source in OF_ONE_SIZE)
        once = {
            name: count for name, count in counted.items() if name.startswith(("expand_steps", "_content"))
        }
        assert all(count == 1 for count in once.values()), once
