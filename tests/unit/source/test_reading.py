"""Weights of transformers' classes in TensorFlow and Flax, as the same classes in torch have them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.source.place import file_at
from porter.source.reading import read
from tests.support import orphans

SHAPES = {
    "net.embeddings.cls_token": (1, 1, 6),
    "net.encoder.stages.1.layers.0.layer.2.convolution.weight": (6, 2, 3, 5),
    **{f"net.encoder.stages.1.layers.0.layer.2.normalization.{name}": (6,) for name in ("weight", "bias")},
    **{
        f"net.encoder.stages.1.layers.0.layer.2.normalization.running_{name}": (6,)
        for name in ("mean", "var")
    },
    "classifier.1.weight": (4, 6),
    "classifier.1.bias": (4,),
}
STATE = {
    name: np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
    for name, shape in SHAPES.items()
}


@pytest.mark.parametrize(
    ("file", "write"),
    [
        ("tf_model.h5", orphans.write_tf),
        ("tf_model.h5", partial(orphans.write_tf, above="")),
        ("flax_model.msgpack", orphans.write_flax),
    ],
)
def test_names_and_axes_are_those_of_torch(file: str, write: Any, tmp_path: Path) -> None:
    write(tmp_path / file, STATE)
    assert read(file_at(tmp_path / file)).tensors.keys() != STATE.keys(), (
        "without a config.json nothing says whose they are"
    )
    (tmp_path / "config.json").write_text('{"model_type": "net"}')
    found = read(file_at(tmp_path / file))
    assert found.dialect == "torch" and found.tensors.keys() == STATE.keys()
    for name, value in STATE.items():
        np.testing.assert_array_equal(found.tensors[name], value)
