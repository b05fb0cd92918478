"""The files that other tests read are what they are said to be, by TensorFlow's own reader."""

from __future__ import annotations

import numpy as np
import pytest

from porter.formats.tensorflow import import_tensorflow
from tests.support.fixtures import SlimMaker
from tests.support.slim_files import SMALL, SlimFile, slim_checkpoint


@pytest.mark.parametrize(
    "file",
    [
        SlimFile(SMALL[0], "v1", ema=True, scope="tower_0"),
        SlimFile(SMALL[0], "v2", slots=True),
        SlimFile(SMALL[0], "v2", ema=True, partial=3),
    ],
    ids=["v1-ema-tower", "v2-slots", "v2-ema-partial"],
)
def test_a_checkpoint_holds_what_it_is_asked_for(file: SlimFile, slim_file: SlimMaker) -> None:
    path = slim_file(file)
    assert path.is_file() == (file.format == "v1")
    reader = import_tensorflow().train.load_checkpoint(str(path))
    names = set(reader.get_variable_to_shape_map())
    weights = slim_checkpoint(file.variant).tensors
    scope = f"{file.scope}/" if file.scope else ""
    shadowed = 0
    for name, array in weights.items():
        raw, shadow = reader.get_tensor(scope + name), f"{scope}{name}/ExponentialMovingAverage"
        shadowed += shadow in names
        if shadow in names:
            assert np.array_equal(reader.get_tensor(shadow), array)
        assert np.array_equal(raw, array) == (shadow not in names)
        if name.endswith("moving_variance"):
            assert raw.min() > 0
    assert shadowed == (len(weights) - file.partial if file.ema else 0)
    assert any(name.endswith("/RMSProp_1") for name in names) == file.slots
    assert "global_step" in names
