"""The zoo `caffe`: files as its authors write them, and weights without their net. test_parity.py compares
all ports.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import FileError
from tests.roads.frameworks.caffe.test_ports import db
from tests.support.caffe_files import run_by_opencv, zoo_files
from tests.support.random_graphs import difference
from tests.support.shallow import shallow_recipes
from tests.support.standin import smooth_images


@pytest.mark.full
def test_weights_with_their_net_and_without(tmp_path: Path) -> None:
    recipes = shallow_recipes(tmp_path / "recipes", (1, 2, 1, 1))
    net = zoo_files(tmp_path, "resnet50", recipes=recipes)
    settings: dict[str, Any] = {"recipes": recipes, "input_size": "64", "check": False}
    whole = porter.convert("resnet50", "caffe", "torch", weights=net, out=tmp_path / "whole", **settings)
    assert str(whole.port.plan.realisations["stem/pool"]) == "valid, ceil"
    assert not whole.port.record.assumed and whole.port.record.preprocess.channels == "bgr"  # type: ignore[union-attr]
    net.unlink()
    weights = net.with_suffix(".caffemodel")
    bare = porter.convert("resnet50", "caffe", "torch", weights=weights, out=tmp_path / "bare", **settings)
    assert (tmp_path / "bare/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()
    assert {node.path: node.op for node in bare.port.graph.nodes} == {
        node.path: node.op for node in whole.port.graph.nodes
    }
    again = porter.convert("resnet50", "caffe", "caffe", weights=weights, out=tmp_path / "again", **settings)
    images = np.random.default_rng(0).normal(0, 50, (2, 3, 64, 64)).astype(np.float32)
    torch = whole.port.destination.ENGINE.run(whole.port.build(), images, [whole.port.graph.output])
    assert db(porter.load(again.port.folder)(images), torch[whole.port.graph.output]) > 100
    for name in ("one", "two"):
        (tmp_path / f"{name}.prototxt").write_text("layer { }")
    with pytest.raises(FileError, match="there are 2"):
        porter.inspect(weights)


@pytest.mark.full
@pytest.mark.parametrize("variant", ["mobilenet_v1", "mobilenet_v2", "resnet50"])
def test_ports_of_a_net_compute_what_opencv_does_of_it(variant: str, tmp_path: Path) -> None:
    net = zoo_files(tmp_path, variant)
    *_, head, softmax = re.findall(r'name: "(\w+)"', net.read_text())
    assert softmax == "prob"
    for to in ("torch", "onnx", "tf"):
        port = porter.convert(net, to=to, out=tmp_path / to, check=False).port
        engine, output = port.destination.ENGINE, port.graph.output
        for size in ((224, 224), (139, 129)):
            images = smooth_images(3, size, 5, 2)
            exact = engine.run(port.build("float64"), images.astype(np.float64), [output])[output]
            found = engine.run(port.build("float32"), images.astype(np.float32), [output])[output]
            given = run_by_opencv(net, images, [head])[head].reshape(exact.shape)
            assert exact.std(0).mean() > 0.01 * np.abs(exact).mean()
            limit = max(1e-5, 4 * difference(found, exact))
            assert difference(found, given) <= limit and difference(given, exact) <= limit, (to, size)
