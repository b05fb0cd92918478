"""The ResNets of flax's ImageNet example, as training saves them. tests/roads/test_parity.py holds what they
compute to linen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import unflatten_dict

import porter
from tests.support.shallow import shallow_recipes
from tests.support.standin_files import source_checkpoint


@pytest.mark.usefixtures("in_double")
def test_a_training_state_of_orbax_is_ported_and_compared_with_the_build_in_flax(tmp_path: Path) -> None:
    recipes = shallow_recipes(tmp_path / "recipes", (1, 1, 1, 1))
    tensors = source_checkpoint("resnet18", "flax_examples", classes=10, recipes=recipes).tensors
    state = {
        **unflatten_dict(tensors, sep="/"),
        "step": np.int32(7),
        "opt_state": {"trace": np.ones(3)},
        "dynamic_scale": None,
    }
    ocp.PyTreeCheckpointer().save(tmp_path / "state", state)
    settings: dict[str, Any] = {
        "weights": tmp_path / "state",
        "recipes": recipes,
        "input_size": "any",
        "out": tmp_path / "port",
    }
    record = porter.convert("resnet18", "flax_examples", "torch", **settings).port.record
    assert record.source.format == "orbax" and "own build" in record.check and record.classes == 10
