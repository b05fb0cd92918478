"""`--between ZOO,ZOO` names the zoo whose network some weights were trained as: by pads, by an epsilon, by an
activation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import porter
from porter.base.errors import MappingError, UsageError
from porter.cli.app import main
from porter.cli.study_text import study as printed
from porter.evaluation.padding_study.study_results import Study
from tests.support.evaluation.padding_study.studies import (
    ASYMMETRIC,
    RECIPE,
    VARIANT,
    fitted,
    write_photos,
    write_recipes,
    write_weights,
)

TWINS = (
    RECIPE.replace("options: {classes: 20,", "options: {classes: 20, soft: false, wide: 96,")
    .replace(
        "  - {relu: deep/relu}\n",
        "  - {relu: deep/relu, when: =not soft}\n  - {swish: deep/relu, when: =soft}\n",
    )
    .replace("filters: 96", "filters: =wide")
    + """\
  away: {extends: home, padding: {stem/conv: same, stem/pool: same, deep/conv: same}, protocol: PROTOCOL}
  epsilon: {extends: away, options: {bn_epsilon: 0.3}, protocol: PROTOCOL}
  soft: {extends: away, options: {soft: true}, protocol: PROTOCOL}
  again: {extends: away, protocol: PROTOCOL}
  wide: {extends: away, options: {wide: 80}, protocol: PROTOCOL}
  dark: {extends: home, protocol: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32,
                                    divide: 255}}
""".replace("PROTOCOL", RECIPE.rpartition("protocol: ")[2].strip())
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Recipes, weights that were trained as the zoo away has the network, and the photos of the training."""
    folder = tmp_path_factory.mktemp("twins")
    recipes, photos = write_recipes(folder / "recipes", TWINS), write_photos(folder / "photos")
    return (
        recipes,
        write_weights(folder / "weights.safetensors", recipes, fitted(recipes, photos, ASYMMETRIC)),
        photos,
    )


def study(place: tuple[Path, Path, Path], between: Any, **more: Any) -> Study:
    recipes, weights, photos = place
    return porter.study(
        VARIANT, None, photos, between=between, weights=weights, recipes=recipes, workers=0, **more
    )


@pytest.mark.parametrize("other", ["home", "epsilon", "soft"])
def test_the_zoo_of_training_is_found(other: str, place: tuple[Path, Path, Path]) -> None:
    """Here 40 photos are few, and the head was fitted to them: the classes say what the training was."""
    for between in (("away", other), f"{other},away"):
        found = study(place, between)
        assert (found.trained.name, found.trained.certain, found.trained.also) == ("away", True, ()), (
            found.trained
        )
        assert {case.name for case in found.cases} == {"away", other} and found.judged_by == "log_loss"
    assert f"Trained as away, not {other} (certain)." in "\n".join(printed(found))
    assert found.record()["between"] == (other, "away")


def test_each_network_is_fed_as_each_zoo_prepares_photos(place: tuple[Path, Path, Path]) -> None:
    found = study(place, "dark,away")
    assert [case.name for case in found.cases] == [
        "dark",
        "away",
        "dark, photos prepared as away's",
        "away, photos prepared as dark's",
    ]
    assert found.trained.name == "away" and found.protocol == "each zoo's own"
    stated = study(
        place,
        "dark,away",
        preprocess="resize=shorter_side,size=40,interpolation=pil_bilinear,crop=32,divide=63.75,mean=2",
    )
    assert [case.name for case in stated.cases] == ["dark", "away"] and stated.trained.name == "away"


@pytest.mark.parametrize("unused", [{"sites": ["stem/conv=1,same"]}, {"origin": "soft"}])
def test_what_would_not_be_used_is_refused(unused: dict[str, Any], place: tuple[Path, Path, Path]) -> None:
    with pytest.raises(UsageError, match="leave"):
        study(place, "away,home", **unused)


def test_an_option_is_of_both_networks(place: tuple[Path, Path, Path]) -> None:
    with pytest.raises(UsageError, match="compute the same"):
        study(place, "away,epsilon", options={"bn_epsilon": 0.3})


@pytest.mark.parametrize(
    ("between", "error", "said"),
    [
        ("away,again", UsageError, "compute the same"),
        ("away", UsageError, "expected two zoos"),
        ("away,away", UsageError, "expected two zoos"),
        ("away,nowhere", UsageError, "nowhere"),
        ("away,wide", MappingError, "needs tensors here that differ"),
    ],
)
def test_what_decides_nothing_is_refused(
    between: str, error: type[Exception], said: str, place: tuple[Path, Path, Path]
) -> None:
    with pytest.raises(error, match=said) as refused:
        study(place, between)
    assert refused.value.next  # type: ignore[attr-defined]


def test_the_command_line_says_the_same(
    place: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes, weights, photos = place
    words = [
        "study",
        "padding",
        VARIANT,
        "--weights",
        str(weights),
        "--recipes",
        str(recipes),
        "--data",
        str(photos),
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["porter", *words, "--between", "home,away"])
    with pytest.raises(SystemExit) as ended:
        main()
    record = json.loads(capsys.readouterr().out)
    assert (
        ended.value.code in (None, 0)
        and record["trained"]["name"] == "away"
        and record["sites"]["stem/conv"] == ["1", "same"]
    )
    monkeypatch.setattr(sys, "argv", ["porter", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "--between ZOO,ZOO" in capsys.readouterr().out
