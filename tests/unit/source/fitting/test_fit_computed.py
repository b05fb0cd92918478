"""An array that a zoo's code computes, in a recipe: no file holds it, and a port has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import MappingError, RecipeError
from porter.recipe import expand, layer_names, load_recipe
from tests.support.arrays import Array
from tests.support.recipe.recipes import write

COMPUTED = 'stem/positions: {name: "", tensor: positions, computed: sines_2d}'
RECIPE = f"""\
architecture: plain
variants: {{plain: {{width: 8}}}}
options: {{classes: 7}}
input: {{size: 12}}
graph:
  - {{conv: stem/patches, filters: =width, kernel: 4, stride: 4, pad: valid, bias: true}}
  - {{rearrange: stem/cells, pattern: "c h w -> (h w) c"}}
  - {{add_array: stem/positions, sizes: [9, =width]}}
  - {{gelu: stem/gelu}}
  - {{reduce_axis: head/mean, function: mean, axis: 0}}
  - {{dense: head/logits, units: =classes}}
zoos:
  own:
    framework: jax
    names:
      stem/patches: patches
      {COMPUTED}
      head/logits: head
"""


def arrays() -> dict[str, Array]:
    random, shapes = np.random.default_rng(3), {"patches/kernel": (4, 4, 3, 8), "head/kernel": (8, 7)}
    return {
        **{name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()},
        **{f"{name}/bias": np.zeros(size, np.float32) for name, size in (("patches", 8), ("head", 7))},
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_port_has_the_array_that_the_file_lacks(dtype: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", allow_pickle=False, **arrays())
    write(tmp_path, RECIPE, "plain.yaml")
    settings: dict[str, Any] = {"weights": tmp_path / "file.npz", "recipes": tmp_path, "dtype": dtype}
    port = porter.convert("plain", "own", "torch", out=tmp_path / "port", check=False, **settings).port
    held = port.tensors()["stem/positions"]["value"]
    # Cell 5 is in the second row and the third column; the second of two powers is 1/10000.
    expected = [wave(angle) for at in (2, 1) for wave in (np.sin, np.cos) for angle in (at, at / 10_000)]
    np.testing.assert_array_equal(held[5], np.array(expected, dtype))
    assert held.dtype == dtype and port.record.evaluated == ("stem/positions (sines_2d)",)
    assert [*port.record.tensors.used.values()].count("stem/positions:value") == 0


def test_a_file_that_holds_it_is_of_another_network(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", allow_pickle=False, **arrays(), positions=np.zeros((1, 9, 8), np.float32))
    write(tmp_path, RECIPE, "plain.yaml")
    with pytest.raises(MappingError, match="1 tensors unexpected: positions"):
        settings: dict[str, Any] = {"weights": tmp_path / "file.npz", "recipes": tmp_path}
        porter.convert("plain", "own", "torch", out=tmp_path / "port", **settings)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tensor: positions, ", "", "'computed' needs a 'tensor'"),
        ("width: 8", "width: 6", "'stem/positions' has 9x6 numbers, and 'sines_2d' can only be of the cells"),
        ("width: 8", "width: 4", "'stem/positions' has 9x4 numbers"),
        ("[9, =width]", "[1, =width]", None),
        ("sines_2d", "sines", "there is no computed array 'sines'"),
    ],
)
def test_what_cannot_be_computed_so_is_refused_with_its_place(
    old: str, new: str, message: str | None, tmp_path: Path
) -> None:
    path = write(tmp_path, RECIPE.replace(old, new), "plain.yaml")
    if message is None:
        layer_names(member := load_recipe(path).member("plain", "own"), expand(member))
        return
    with pytest.raises(RecipeError, match=message) as caught:
        layer_names(member := load_recipe(path).member("plain", "own"), expand(member))
    assert str(caught.value.where).startswith(f"{path}:") and caught.value.next
