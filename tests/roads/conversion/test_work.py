"""What a conversion does once: a variant's expansion, the file's graph, where its tensors are, and which
layers are which nodes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import porter
import porter.conversion.convert
import porter.verification.reverify
from porter.files import weights
from porter.formats.keras import graph as keras_graph
from porter.graph import plan
from porter.port import folder as port_folder, read_port
from porter.recipe import expansion, load
from porter.source import sidecars
from porter.source.fitting import alignment, locating
from tests.support.fixtures import WeightsMaker


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of these functions is called, wherever it was imported."""
    found: Counter[str] = Counter()
    for module, name in (
        (expansion, "expand_steps"),
        (locating, "locate"),
        (sidecars, "_content"),
        (alignment, "align"),
        (keras_graph, "read_graph"),
        (plan, "make_plan"),
        (port_folder, "write_record"),
        (port_folder, "read_port"),
        (weights, "is_published"),
    ):
        own = getattr(module, name)
        for each in [each for each in tuple(sys.modules.values()) if getattr(each, name, None) is own]:
            monkeypatch.setattr(each, name, _counting(own, found))
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


VARIANT, ZOO = "mobilenet_v2_0.35", "keras"


def test_a_file_with_its_graph_is_recognised_and_opened_once(
    weights_file: WeightsMaker, counted: Counter[str], tmp_path: Path
) -> None:
    path = weights_file(VARIANT, ZOO, ".whole.h5")
    for make, likely in (
        (lambda: porter.inspect(path), 3),  # the zoo's, slim's and TensorNets' variant have its shapes
        (lambda: porter.convert(path, out=tmp_path / "own", check=False), 3),
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
    weights = weights_file(VARIANT, ZOO, ".whole.h5")  # its making makes a plan of its own
    for to in ("torch", "onnx"):
        _forget(counted)
        made = porter.convert(VARIANT, ZOO, to, weights=weights, out=tmp_path / to)
        # One of the plans is of the activations that are run by themselves.
        assert counted["read_port"] == 1 and counted["write_record"] == 2 and counted["make_plan"] == 3
        assert read_port(made.port.folder) == made.port


SOURCES: dict[str, Callable[[WeightsMaker, Path], dict[str, Any]]] = {
    ".h5": lambda weights, folder: {
        "subject": VARIANT,
        "source": ZOO,
        "weights": weights(VARIANT, ZOO, ".h5"),
    },
    ".pth": lambda weights, folder: {
        "subject": "resnet18",
        "source": "torchvision",
        "weights": weights("resnet18", "torchvision", ".pth"),
    },
    "a folder of timm": lambda weights, folder: {"subject": _folder(weights, folder)},
    "a folder of timm, as a variant": lambda weights, folder: {
        "subject": "resnet18",
        "source": "timm",
        "weights": _folder(weights, folder),
    },
    "a port": lambda weights, folder: {"subject": _port(weights, folder)},
    "a port, trained further": lambda weights, folder: {
        "subject": _port(weights, folder),
        "weights": _tuned(_port(weights, folder)),
    },
}


def _folder(weights: WeightsMaker, folder: Path) -> Path:
    """ResNet-18 for ten classes, as timm has it on the Hub."""
    path = folder / "hub" / "model.safetensors"
    path.parent.mkdir()
    state = torch.load(weights("resnet18", "torchvision", ".pth", 10))
    save_file(state, path)
    config = {"architecture": "resnet18", "num_classes": 10, "pretrained_cfg": {"input_size": [3, 224, 224]}}
    (path.parent / "config.json").write_text(json.dumps(config))
    return path.parent


def _port(weights: WeightsMaker, folder: Path) -> Path:
    if not (folder / "port").exists():
        porter.convert(VARIANT, ZOO, weights=weights(VARIANT, ZOO, ".h5"), out=folder / "port", check=False)
    return folder / "port"


def _tuned(port: Path) -> Path:
    torch.save(porter.load(port).state_dict(), port.with_name("tuned.pth"))
    return port.with_name("tuned.pth")


@pytest.mark.parametrize("source", SOURCES)
def test_each_part_of_a_source_is_made_once(
    source: str, weights_file: WeightsMaker, counted: Counter[str], tmp_path: Path
) -> None:
    given = SOURCES[source](weights_file, tmp_path)
    _forget(counted)
    porter.convert(**given, to="onnx", out=tmp_path / "made", check=False)
    expanded = sum(name.startswith("expand_steps") for name in counted)
    assert counted["locate"] <= max(expanded, 1)
    once = {name: count for name, count in counted.items() if name.startswith(("expand_steps", "_content"))}
    assert all(count == 1 for count in once.values()), once
