"""The zoo `caffe`: files as its authors write them, and weights without their net. tests/test_parity.py compares all ports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import porter
from porter.base.errors import FileError
from tests.caffe_files import zoo_files
from tests.frameworks.caffe.test_ports import db
from tests.shallow import shallow_recipes


@pytest.mark.full
def test_weights_with_their_net_and_without(tmp_path: Path) -> None:
    recipes = shallow_recipes(tmp_path / "recipes", (1, 2, 1, 1))
    net = zoo_files(tmp_path, "resnet50", recipes=recipes)
    settings = {"recipes": recipes, "input_size": "64", "check": False}
    whole = porter.convert("resnet50", "caffe", "torch", weights=net, out=tmp_path / "whole", **settings)
    assert str(whole.port.plan.realisations["stem/pool"]) == "valid, ceil"
    assert not whole.port.record.assumed and whole.port.record.preprocess.channels == "bgr"  # type: ignore[union-attr]
    net.unlink()
    weights = net.with_suffix(".caffemodel")
    bare = porter.convert("resnet50", "caffe", "torch", weights=weights, out=tmp_path / "bare", **settings)
    assert (tmp_path / "bare/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    assert {node.path: node.op for node in bare.port.graph.nodes} == {node.path: node.op for node in whole.port.graph.nodes}
    again = porter.convert("resnet50", "caffe", "caffe", weights=weights, out=tmp_path / "again", **settings)
    images = np.random.default_rng(0).normal(0, 50, (2, 3, 64, 64)).astype(np.float32)
    torch = whole.port.destination.ENGINE.run(whole.port.build(), images, [whole.port.graph.output])
    assert db(porter.load(again.port.folder)(images), torch[whole.port.graph.output]) > 100
    for name in ("one", "two"):
        (tmp_path / f"{name}.prototxt").write_text("layer { }")
    with pytest.raises(FileError, match="there are 2"):
        porter.inspect(weights)
