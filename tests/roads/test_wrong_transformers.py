"""What goes wrong in ports of vision transformers, put into the recipe or a port on purpose: each zoo's own
code refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import porter
from porter.base.errors import CheckFailed
from tests.support.shallow import shallow_recipes, shallow_zoos
from tests.support.standin_files import sign
from tests.support.weights_files import published_like

ATTENTION = "      - {attention: attention, from: qkv, heads: =width//64, scale: 0.125, when: =joined}\n"
TURNED = """\
      - {crop_axis: query, from: qkv, axis: 1, before: 0, after: =2*width, when: =joined}
      - {crop_axis: key, from: qkv, axis: 1, before: =width, after: =width, when: =joined}
      - {crop_axis: value, from: qkv, axis: 1, before: =2*width, after: 0, when: =joined}
      - {attention: attention, from: [key, query, value], heads: =width//64, scale: 0.125, when: =joined}
"""
TOKEN = """  - {tokens: stem/token, count: 1, when: "=pool == 'token'"}\n"""
LAST = """\
  - {tokens: stem/token, count: 1}
  - {crop_axis: stem/rest, axis: 0, before: 1, after: 0}
  - {crop_axis: stem/alone, from: stem/token, axis: 0, before: 0, after: "=(side//patch)*(side//patch)"}
  - {join: stem/turned, axis: 0, from: [stem/rest, stem/alone]}
"""
FIRST = 'head/first, axis: 0, before: 0, after: "=(side//patch)*(side//patch)",'
NAMED = '        "{layer}": "MultiHeadDotProductAttention_1/{layer}"\n'
MISTAKES = {
    "the exact GELU for a tanh": (
        "vit_jax",
        [("joined: false, tanh_gelu: true", "joined: false")],
        "block0/gelu",
    ),
    "keys for queries": (
        "vit_jax",
        [
            (
                NAMED,
                NAMED.replace("{layer}", "key", 1).replace("{layer}", "query")
                + NAMED.replace("{layer}", "query", 1).replace("{layer}", "key")
                + NAMED,
            )
        ],
        "block0/attention",
    ),
    "a tanh for the exact GELU": ("timm", [("tanh_gelu: false", "tanh_gelu: true")], "block0/gelu"),
    "keys for queries in one layer": ("timm", [(ATTENTION, TURNED)], "block0/attention"),
    "the epsilon": ("timm", [("epsilon: 1.0e-6", "epsilon: 1.0e-5")], "block0/norm1"),
    "the class token last": (
        "torchvision",
        [(TOKEN, LAST), (FIRST, 'head/first, axis: 0, before: "=(side//patch)*(side//patch)", after: 0,')],
        "stem/positions",
    ),
}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with shallow_zoos():
        yield shallow_recipes(tmp_path_factory.mktemp("shallow") / "recipes")


@pytest.mark.full
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_where_it_is(mistake: str, recipes: Path, tmp_path: Path) -> None:
    zoo, changes, where = MISTAKES[mistake]
    weights = published_like(tmp_path, "vit_b_32", zoo, recipes)
    text = (recipes / "vit.yaml").read_text(encoding="utf-8")
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "vit.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(CheckFailed, match=where):
        porter.convert("vit_b_32", zoo, "torch", weights=weights, recipes=tmp_path, out=tmp_path / "port")
    assert not (tmp_path / "port").exists()


@pytest.mark.full
def test_positions_of_the_next_cell_are_refused(recipes: Path, tmp_path: Path) -> None:
    weights = published_like(tmp_path, "vit_b_32", "timm", recipes)
    porter.convert(
        "vit_b_32", "timm", "torch", weights=weights, recipes=recipes, out=tmp_path / "port", check=False
    )
    file = tmp_path / "port/model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "stem.positions.weight": np.roll(tensors["stem.positions.weight"], 1, 0)}, file)
    sign(tmp_path / "port")
    found = porter.verify(tmp_path / "port", weights=weights, recipes=recipes)
    bad = found.proof.first_bad
    assert not found.ok and bad is not None and bad.path == "stem/positions"
