"""The JSON Schema of recipes: what an editor accepts and refuses."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from porter.authoring.json_schema import json_schema, schema_text
from porter.recipe import recipes_folder
from porter.recipe.keys import KEYS
from porter.recipe.schema import SECTIONS, keys_of
from porter.recipe.source import read_source
from tests.roads.recipe.test_extends import MORE
from tests.support.fixtures import Cli
from tests.support.recipe.recipes import VALID, write

FILES = sorted(recipes_folder().rglob("*.yaml"))
ZOO = """\
zoo: home
framework: torch
protocols: {small: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32}}
architectures:
  tiny:
    protocol: small
    weights: {tiny: {file: tiny.pth, md5: abc, top1: 50.0}}
"""


@cache
def validators() -> tuple[Any, Any]:
    """Of the draft that the schema is of, and of the one that many editors read it as."""
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema), Draft7Validator(schema)


def wrong(path: Path) -> list[str]:
    """The places of a file that the schema refuses."""
    data = json.loads(json.dumps(read_source(path).data))
    places = [
        sorted({error.json_path for error in validator.iter_errors(data)}) for validator in validators()
    ]
    assert places[0] == places[1]
    return places[0]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(recipes_folder())) for path in FILES])
def test_porters_own_recipes_are_accepted_and_name_their_schema(path: Path) -> None:
    assert wrong(path) == []
    modeline = re.fullmatch(
        r"# yaml-language-server: \$schema=(\S+)", path.read_text(encoding="utf-8").splitlines()[0]
    )
    assert modeline and (path.parent / modeline[1]).resolve() == recipes_folder() / "schema.json"


def test_the_schema_beside_the_recipes_is_what_the_command_prints(cli: Cli) -> None:
    shipped = (recipes_folder() / "schema.json").read_text(encoding="utf-8")
    assert cli("recipe schema").out == cli("recipe schema --json").out == schema_text() == shipped, (
        "python -m tests.support.recipe_guide"
    )
    assert json.loads(shipped) == json.loads(json.dumps(json_schema()))


def test_everything_in_the_schema_is_explained() -> None:
    keys = {key for kind in SECTIONS for key in keys_of(kind)}
    assert keys | {"prefix", "from", "when", "repeat", "first", "last", "branches", "norm"} == KEYS.keys()


def test_a_recipe_of_ones_own_is_accepted(tmp_path: Path) -> None:
    assert wrong(write(tmp_path, VALID)) == wrong(write(tmp_path, ZOO)) == wrong(write(tmp_path, MORE)) == []


WITHOUT_BLOCKS = VALID.replace('  - {unit: stage1/unit, repeat: "=depths[0]", filters: =width}\n', "")
WITHOUT_BLOCKS = (
    WITHOUT_BLOCKS[: WITHOUT_BLOCKS.index("blocks:")] + WITHOUT_BLOCKS[WITHOUT_BLOCKS.index("zoos:") :]
)
REFUSED = [
    (VALID, "kernel: 3, stride: 2, pad: same", "kernal: 3, stride: 2, pad: same", "$.graph[0]"),
    (VALID, "stride: 2, pad: same", "stride: two, pad: same", "$.graph[0].stride"),
    (VALID, "stride: 2, pad: same", "stride: 2, pad: sme", "$.graph[0].pad"),
    (
        VALID,
        "kernel: 3, stride: 2, pad: same",
        "kernel: [3, 3, 3], stride: 2, pad: same",
        "$.graph[0].kernel",
    ),
    (VALID, "filters: =width, kernel: 3, stride", "kernel: 3, stride", "$.graph[0]"),
    (VALID, "relu: stem/relu", "relu: 5", "$.graph[2].relu"),
    (VALID, "when: =stem_pool", "when: stem_pool", "$.graph[3].when"),
    (VALID, "size: 32, channels: 3", "size: wide, channels: 3", "$.input.size"),
    (VALID, "framework: torch", "framework: pytorch", "$.zoos.home.framework"),
    (VALID, "[conv1x1_to_dense]", "[conv1x1_to_dens]", "$.zoos.home.names['head/logits']"),
    (VALID, "architecture: tiny", "architekture: tiny", "$"),
    (WITHOUT_BLOCKS, "conv: stem/conv", "cnv: stem/conv", "$.graph[0]"),
    (MORE, "only: [resnet50", "graph: [resnet50", "$.zoos.mine"),
    (ZOO, "size: 40", "size: a", "$.protocols.small.size"),
    (ZOO, "top1: 50.0", "top1: 500", "$.architectures.tiny.weights.tiny.top1"),
    (ZOO, "md5: abc", "md6: abc", "$.architectures.tiny.weights.tiny"),
]


@pytest.mark.parametrize(("text", "old", "new", "place"), REFUSED, ids=[new for _, _, new, _ in REFUSED])
def test_a_mistake_is_refused_at_its_place(tmp_path: Path, text: str, old: str, new: str, place: str) -> None:
    assert text.count(old) == 1 and wrong(write(tmp_path, text)) == []
    assert place in wrong(write(tmp_path, text.replace(old, new)))
