"""What `recipe show` and `pads` say of ports: recipes/proofs.json, which scripts/parity writes."""

import json
from pathlib import Path

import pytest

from porter.frameworks import DESTINATION_NAMES
from porter.recipe import load_recipe, proof_of, proofs, recipes_folder
from tests.support.fixtures import Cli
from tests.support.recipe.recipes import all_recipes

ROWS = {
    "mobilenet_v1/keras/tf": {"outcome": "exact", "float64": 0.0, "reference": "keras", "date": "2026-11-22"},
    "mobilenet_v1/keras/torch": {
        "outcome": "exact",
        "float64": 9e-14,
        "reference": "keras",
        "date": "2026-11-22",
    },
    "mobilenet_v1/keras/tflite": {
        "outcome": "exact",
        "float64": 0,
        "of": "Keras build",
        "reference": "keras",
        "date": "2026-11-22",
    },
    "mobilenet_v1/keras/onnx": {"outcome": "refused", "reason": "block1: no pad", "date": "2026-11-22"},
}
SAID = {
    "tf": "exact (bit for bit in float64 beside keras, 2026-11-22)",
    "torch": "exact (worst node 9.0e-14 in float64 beside keras, 2026-11-22)",
    "onnx": "refused (block1: no pad)",
    "tflite": "Keras build exact (bit for bit in float64 beside keras, 2026-11-22)",
    "mxnet": "unproven until porter convert compares it",
}


def test_each_row_is_of_a_port_that_a_recipe_has() -> None:
    known = {
        f"{one.variant}/{one.zoo.name}/{to}"
        for recipe in all_recipes()
        for one in recipe.members()
        for to in DESTINATION_NAMES
    }
    shipped = proofs._read(recipes_folder() / proofs.FILE)
    assert shipped.keys() <= known and len(shipped) > 500
    assert all(
        row.float64 is not None and row.float64 < 1e-10 for row in shipped.values() if row.outcome == "exact"
    )


def test_show_and_pads_say_what_is_known(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / proofs.FILE).write_text(json.dumps(ROWS))
    monkeypatch.setattr(proofs, "_read", lambda file, read=proofs._read: read(tmp_path / proofs.FILE))
    shown = next(
        line.split("  ") for line in cli("recipe show mobilenet_v1").out.splitlines() if "exact 0" in line
    )
    assert [cell.strip() for cell in shown if cell] == [
        "keras",
        "exact 0",
        "exact 9e-14",
        "refused",
        *["unproven"] * 2,
        "Keras build exact 0",
        *["unproven"] * 2,
    ]
    for to, said in SAID.items():
        ran = cli("pads mobilenet_v1 --from keras --to", to)
        assert ran.status == 0 and ran.out.splitlines()[-1] == f"this port: {said}"


def test_of_other_peoples_recipes_nothing_is_known(tmp_path: Path) -> None:
    own = recipes_folder() / "mobilenet_v1.yaml"
    (tmp_path / own.name).write_text(own.read_text())
    (tmp_path / "zoos").symlink_to(own.parent / "zoos")
    theirs, ours = (load_recipe(file).member("mobilenet_v1", "keras") for file in (tmp_path / own.name, own))
    assert (proof_of(theirs, "tf").outcome, proof_of(ours, "tf").outcome) == ("unproven", "exact")
