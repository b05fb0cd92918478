"""scripts/tensornets_table from beginning to end, with networks of a unit to a stage and small photos."""

from __future__ import annotations

import json
import math
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import porter
from porter.data.labels import imagenet_classes
from porter.frameworks.dialects import get_dialect
from porter.graph import tensor_shapes
from porter.recipe import expand, find_recipe, layer_names
from porter.recipe.transforms import undo_transforms
from tests.support.checkout import ROOT
from tests.support.recipe.recipes import copied

SCRIPT = ROOT / "scripts" / "tensornets_table"
VARIANTS = runpy.run_path(str(SCRIPT))["VARIANTS"]
QUICK = ("resnet50", "resnet50v2", "resnext50_32x4d", "wide_resnet50_2")
CHECKED = "resnext50_32x4d"
SMALLER = {
    r"depths: \[\d+, \d+, \d+, \d+\]": "depths: [2, 1, 1, 1]",
    r"\bwidth: (64|128|256|512)\b": "width: =\\1//2",
    r"size: 256, (.*?)crop: 224": r"size: 52, \1crop: 48",
    r"size: 341, (.*?)crop: 299": r"size: 52, \1crop: 48",
}


@dataclass(frozen=True)
class Place:
    folder: Path
    weights: Path
    rows: Path

    def run(self, monkeypatch: pytest.MonkeyPatch, *more: str | Path) -> int:
        folders = (
            "--data",
            self.folder / "photos",
            "--recipes",
            self.folder / "recipes",
            "--rows",
            self.rows,
        )
        arguments = [SCRIPT, *folders, "--weights-dir", self.weights, "--workers", "0", *more]
        monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
        with pytest.raises(SystemExit) as exited:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return int(exited.value.code or 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("table")
    for name in ("photos", "weights"):
        (folder / name).mkdir()
    copied(
        folder / "recipes",
        SMALLER,
        "resnet_v1",
        "resnet_v2",
        "resnet200v2",
        "resnext",
        "wide_resnet",
        "zoos/tensornets",
    )
    for variant in QUICK:
        write_weights(folder / "weights", folder / "recipes", variant)
    place = Place(folder, folder / "weights", folder / "rows.jsonl")
    write_photos(place)
    return place


def write_photos(place: Place) -> None:
    """Photos with labels that one model gives them first, third and not at all."""
    random, photos = np.random.default_rng(0), []
    for number in range(4):
        photos.append(place.folder / f"{number}.png")
        Image.fromarray(random.integers(0, 256, (70, 80, 3), np.uint8)).save(photos[-1])
    made = porter.convert(
        CHECKED, "tensornets", "torch", weights=place.weights / "resnext_50_32x4d.npz",
            out=place.folder / "port", check=False,
        recipes=place.folder / "recipes",
    )  # fmt: skip
    for photo, found, at in zip(
        photos, porter.predict(made.port.folder, photos), (0, 0, 2, None), strict=True
    ):
        seen = [guess.index for guess in found.top5]
        label = next(index for index in range(1000) if index not in seen) if at is None else seen[at]
        folder = place.folder / "photos" / imagenet_classes()[label].wnid
        folder.mkdir(exist_ok=True)
        photo.rename(folder / photo.name)


def write_weights(folder: Path, recipes: Path, variant: str) -> None:
    """Random numbers as TensorNets publishes them: names and arrays, in an .npz."""
    recipe, tf, random = find_recipe(variant, recipes), get_dialect("tf"), np.random.default_rng(len(variant))
    member = recipe.member(variant, "tensornets")
    graph = expand(member)
    layers, found = layer_names(member, graph), {}
    for path, roles in tensor_shapes(graph).items():
        names = tf.tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, shape in roles.items():
            values = random.standard_normal(shape) * np.sqrt(2 / max(1, math.prod(shape[1:])))
            array = np.ones(shape) if role in ("gamma", "variance") else values
            stored = undo_transforms(layers[path].transforms, role, array.astype(np.float32))
            found[f"{names[role][-1]}:0"] = tf.from_canonical(graph, graph.by_path[path], role, stored)
    arrays = np.empty(len(found), object)
    arrays[:] = list(found.values())
    # By its name, numpy would call resnet50.h5 resnet50.h5.npz.
    with (folder / member.zoo.files[variant].name).open("wb") as file:
        np.savez(file, names=list(found), values=arrays)


def lines_of(out: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")
    ]


@pytest.mark.full
def test_rows_are_studies_and_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run(monkeypatch, *QUICK) == 0
    out = capsys.readouterr().out
    header, _, *lines = lines_of(out)
    assert header == [
        "model",
        "case",
        "photos",
        "top-1 error",
        "top-5 error",
        "ten-crop top-5 error",
        "log-loss",
    ]
    assert list(dict.fromkeys(line[0] for line in lines)) == list(QUICK)
    weights, recipes = place.weights / "resnext_50_32x4d.npz", place.folder / "recipes"
    measured = porter.study(
        CHECKED, "tensornets", place.folder / "photos", weights=weights, recipes=recipes, crops=10, workers=0
    )
    assert (measured.cases[0].name, measured.cases[0].top1_error, measured.cases[0].top5_error) == (
        "as shipped = symmetric",
        50,
        25,
    )
    expected = []
    for case in measured.cases:
        figures = [
            f"{error:.3f}"
            for error in (case.top1_error, case.top5_error, case.ten_crop_top5_error, case.log_loss)
        ]
        expected.append(
            [f"**{case.name}**" if case.name == measured.trained.name else case.name, "4", *figures]
        )
    assert [line[1:] for line in lines if line[0] == CHECKED] == expected

    # What is finished is not measured again; a line that was cut short is.
    kept = place.rows.read_text().splitlines(keepends=True)
    assert [json.loads(line)["variant"] for line in kept] == list(QUICK)
    place.rows.write_text("".join(kept[:-1]) + kept[-1][:40])
    studied, whole = [], porter.study
    monkeypatch.setattr(
        porter,
        "study",
        lambda variant, *args, **more: studied.append(variant) or whole(variant, *args, **more),
    )
    assert place.run(monkeypatch, *QUICK) == 0
    assert studied == [QUICK[-1]] and capsys.readouterr().out == out
    assert [json.loads(line)["variant"] for line in place.rows.read_text().splitlines()] == list(QUICK)

    # Fewer photos make another row. A missing file is named, and the others have their rows.
    assert place.run(monkeypatch, "--limit", "2", "resnet101", "resnet50") == 1
    captured = capsys.readouterr()
    assert studied[1:] == ["resnet50"]
    assert "resnet101: " in captured.err and "resnet101.h5: there is no such file" in captured.err
    assert {line[0] for line in lines_of(captured.out)[2:]} == {"resnet50"}


@pytest.mark.full
def test_all_eleven(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variant in VARIANTS:
        write_weights(place.weights, place.folder / "recipes", variant)
    assert len(VARIANTS) == 11 and place.run(monkeypatch) == 0
    assert list(dict.fromkeys(line[0] for line in lines_of(capsys.readouterr().out)[2:])) == list(VARIANTS)
