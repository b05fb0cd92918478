"""The fingerprints beside porter's own recipes are those of their graphs, and are not used beside other
texts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from porter.recipe import Member, expand, find_recipes, fingerprints, known_variants, recipes_folder
from porter.recipe.fingerprints import FILE, fingerprint_of, shipped_fingerprints, without_numbers
from tests.support.fingerprints import text
from tests.support.recipe.recipes import all_recipes


def test_the_file_is_beside_these_recipes() -> None:
    assert shipped_fingerprints(), "run python -m tests.support.fingerprints"


@pytest.mark.full
def test_the_file_is_that_of_the_recipes() -> None:
    assert (recipes_folder() / FILE).read_text(encoding="utf-8") == text(), (
        "run python -m tests.support.fingerprints"
    )


def test_older_code_has_the_same_tensors() -> None:
    """Whether a file of an older generation can be a variant is told by today's fingerprint."""
    for recipe in all_recipes():
        for zoo in recipe.zoos.values():
            for label, older in zoo.generations.items():
                if older.options:
                    variant = next(variant for variant in recipe.variants if zoo.has(variant))
                    graphs = (
                        expand(Member(recipe, variant, each.of(variant))) for each in (zoo, zoo.at(label))
                    )
                    now, then = (vars(fingerprint_of(graph)) for graph in graphs)
                    assert now == then, (recipe.architecture, zoo.name, label)


@pytest.mark.parametrize("changed", ["recipe", "zoo", "none", "ends of lines"])
def test_after_a_change_the_recipes_are_read(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(recipes_folder(), tmp_path / "recipes"))
    if changed in ("recipe", "zoo"):
        path = folder / ("vgg.yaml" if changed == "recipe" else "zoos/keras.yaml")
        path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    elif changed == "none":
        (folder / FILE).unlink()
    else:
        for path in folder.rglob("*.yaml"):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for module in (fingerprints, find_recipes):
        monkeypatch.setattr(module, "recipes_folder", lambda: folder)
    monkeypatch.chdir(tmp_path.parent)
    known, faults = known_variants()
    assert bool(shipped_fingerprints()) == (changed == "ends of lines") and faults == ()
    assert all((one.fingerprint is None) == (changed != "ends of lines") for one in known)
    listed = [
        (variant, zoo)
        for recipe in all_recipes(folder)
        for variant in recipe.variants
        for zoo in recipe.zoos_of(variant)
    ]
    assert [(one.variant, one.zoo) for one in known] == listed


def test_names_are_alike_whatever_number_an_exporter_gives_them() -> None:
    for name in ("model/conv2d_12/kernel", "model.conv2d.kernel", "model/conv2d_3_1/kernel"):
        assert without_numbers(name) == "model/conv0d/kernel"
    assert without_numbers("layer1.0.conv2") == "layer0/0/conv0"
