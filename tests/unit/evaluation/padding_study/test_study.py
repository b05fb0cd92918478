"""The whole study of a small model that was trained on its photos, so that the right answer is known."""

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import FileError, PorterError, UsageError
from porter.cli.app import main
from porter.cli.study_text import study as printed
from porter.data.photo_decoding import open_image
from porter.evaluation.padding_study import runs, study
from porter.evaluation.padding_study.study_results import Study
from porter.evaluation.scoring import score
from porter.frameworks import get_destination
from porter.port import read_port
from tests.support.evaluation.padding_study.studies import (
    ASYMMETRIC,
    PHOTOS,
    VARIANT,
    ZOO,
    build,
    fitted,
    model,
    write_photos,
    write_recipes,
    write_weights,
)
from tests.support.photo_files import prepare_ten

WHOSE = "those of weights that were not trained"


@dataclass(frozen=True)
class Place:
    recipes: Path
    weights: Path
    """Trained on the photos under SAME at every strided site."""
    photos: Path

    def study(self, **more: Any) -> Study:
        arguments: dict[str, Any] = {
            "data": self.photos,
            "weights": self.weights,
            "recipes": self.recipes,
            "workers": 0,
            **more,
        }
        return porter.study(VARIANT, ZOO, **arguments)


def figures(found: Study) -> list[tuple[object, ...]]:
    losses = [(case.log_loss, case.entropy, case.p) for case in found.cases]
    rounded = [tuple(None if value is None else round(value, 3) for value in each) for each in losses]
    return [
        (case.name, case.top1_error, case.top5_error, *each)
        for case, each in zip(found.cases, rounded, strict=True)
    ]


def without_classes(photos: Path, folder: Path) -> Path:
    """The same photos in one folder."""
    folder.mkdir()
    for photo in photos.glob("*/*.png"):
        shutil.copy(photo, folder / f"{photo.parent.name}-{photo.name}")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("study")
    recipes = write_recipes(folder / "recipes")
    photos = write_photos(folder / "photos")
    return Place(
        recipes,
        write_weights(folder / "weights.safetensors", recipes, fitted(recipes, photos, ASYMMETRIC)),
        photos,
    )


@pytest.fixture(scope="module")
def found(place: Place) -> Study:
    return place.study(crops=10)


def test_the_convention_of_training_is_found(found: Study) -> None:
    assert found.trained.name == "asymmetric" and found.trained.certain and not found.trained.also
    assert found.judged_by == "log_loss" and found.images == PHOTOS and found.complete and not found.failed
    cases: dict[str, Any] = {case.name: case for case in found.cases}
    assert list(cases)[:3] == ["as shipped", "asymmetric", "symmetric"]
    best, other = cases["asymmetric"], cases["symmetric"]
    assert best.top1_error == best.top5_error == 0 < other.top5_error < other.top1_error
    assert (
        best.log_loss < other.log_loss
        and best.p == 1
        and max(case.p for case in found.cases if case is not best) < 0.05 / 7
    )
    assert cases["asymmetric"].sites == {"stem/conv": "same", "stem/pool": "same, -inf", "deep/conv": "same"}
    assert cases["as shipped"].sites == {} and cases["symmetric"].sites == {"stem/pool": "1, -inf"}


def test_single_sites_change_from_the_best_case_and_a_pool_of_zeros_is_tried_with_both_fills(
    found: Study,
) -> None:
    prefix = "asymmetric, but "
    assert [case.name.removeprefix(prefix) for case in found.cases[3:]] == [
        "stem/conv 1",
        "stem/pool same",
        "stem/pool 1, -inf",
        "stem/pool 1",
        "deep/conv 1",
    ]
    assert found.sites["stem/pool"] == ("1", "same, -inf", "1, -inf", "same")


def test_ten_crops_are_averaged_and_their_centre_gives_the_single_crop_errors(
    place: Place, found: Study
) -> None:
    single = place.study()
    assert figures(single) == figures(found)
    assert all(case.ten_crop_top5_error is None for case in single.cases)
    recipe, graph = model(place.recipes)
    protocol, torch = recipe.zoo(ZOO, VARIANT).preprocess, get_destination("torch")
    assert protocol is not None
    built, missed = build(place.recipes, fitted(place.recipes, place.photos, ASYMMETRIC), {}), 0
    for path in place.photos.glob("*/*.png"):
        logits = torch.ENGINE.run(built, prepare_ten(open_image(path), protocol), [graph.output])[
            graph.output
        ].astype(np.float64)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        missed += int(path.parent.name) not in np.argsort(-shares.mean(axis=0))[:5]
    assert found.cases[0].ten_crop_top5_error == 100 * missed / PHOTOS > 0


def test_shipped_pads_that_are_those_of_training_stay(place: Place, tmp_path: Path) -> None:
    weights = write_weights(
        tmp_path / "shipped.safetensors", place.recipes, fitted(place.recipes, place.photos, {})
    )
    found = place.study(weights=weights)
    assert found.trained.name == "as shipped" and found.trained.certain and found.cases[0].top1_error == 0
    assert found.cases[-1].name.startswith("as shipped, but ")


def test_photos_without_classes_are_enough(place: Place, found: Study, tmp_path: Path) -> None:
    plain = place.study(data=without_classes(place.photos, tmp_path / "plain"), crops=10)
    assert plain.judged_by == "entropy" and plain.by_entropy is None and plain.trained == found.by_entropy
    assert plain.trained.name == "asymmetric" and plain.trained.certain
    names = ("top1_error", "top5_error", "ten_crop_top5_error", "log_loss")
    assert {getattr(case, name) for case in plain.cases for name in names} == {None}
    assert [case.entropy for case in plain.cases] == pytest.approx(
        [case.entropy for case in found.cases], rel=1e-6
    )
    text = "\n".join(printed(plain))
    assert "40 photos lie in no class folder" in text and "top-1" not in text and "log-loss" not in text


def test_weights_that_were_not_trained_are_not_judged(place: Place, tmp_path: Path) -> None:
    """By their entropy one rule was certain, by chance."""
    random = fitted(place.recipes, place.photos, ASYMMETRIC)
    head = {role: 1e-3 * array[::-1] for role, array in random["head/logits"].items()}
    weights = write_weights(tmp_path / "random.safetensors", place.recipes, {**random, "head/logits": head})
    plain = without_classes(place.photos, tmp_path / "plain")
    for found in (place.study(weights=weights), place.study(weights=weights, data=plain)):
        assert found.chance is not None and found.by_entropy is None
        assert (found.trained.name, found.trained.certain) == ("as shipped", False)
        assert {found.trained.name, *found.trained.also} == {case.name for case in found.cases}
        assert {case.p for case in found.cases} == {1.0} and not any(map(found.note_beside, found.cases))
        text = "\n".join(printed(found))
        assert f"Not judged: the answers say nothing of the photos, as {WHOSE}.\n  {found.chance}" in text
        assert "certain" not in text and "may be it" not in text


def test_the_cases_that_are_left_are_marked(place: Place) -> None:
    found = place.study(limit=8)
    assert found.chance is None and len(found.trained.also) > 1
    rows = [line for line in printed(found) if line.startswith(tuple(case.name for case in found.cases))]
    left = {found.trained.name, *found.trained.also}
    assert sum("may be it" in row for row in rows) >= len(left) and " or as shipped" not in "".join(rows)
    assert f"one of {len(left)} cases (not certain)" in "\n".join(printed(found))


def test_pads_that_the_recipe_states_are_a_case(place: Place, tmp_path: Path) -> None:
    recipes = tmp_path / "recipes"
    shutil.copytree(place.recipes, recipes)
    text = (recipes / "strided.yaml").read_text()
    stated = text.replace(
        "    names:", "    padding_as_trained: {stem/pool: {pad: same, fill: -.inf}}\n    names:"
    )
    (recipes / "strided.yaml").write_text(stated)
    made = place.study(recipes=recipes, limit=8, sites=["stem/conv=same"])
    assert [case.name for case in made.cases[:4]] == ["as shipped", "asymmetric", "symmetric", "as trained"]
    assert made.images == made.record()["limit"] == 8 and ", --limit)" in printed(made)[1]
    assert made.cases[3].sites == {"stem/pool": "same, -inf"}


def test_sites_asked_for_replace_the_second_round(place: Place) -> None:
    made = place.study(sites=["deep/conv=1,valid", "stem/conv=same"])
    assert [case.name for case in made.cases[3:]] == [
        "asymmetric, but deep/conv 1",
        "asymmetric, but deep/conv valid",
    ]
    assert made.skipped == {
        "asymmetric, but stem/conv same": "at this size it has the windows of 'asymmetric'"
    }


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sites": ["stem/cnv=1"]}, ("is not a node of this model", "did you mean 'stem/conv'?")),
        ({"sites": ["stem/norm=1"]}, ("is not a padding site",)),
        ({"crops": 5}, ("crops: expected one of 1, 10, got '5'",)),
        ({"batch_size": 0}, ("batch_size: expected at least 1, got 0",)),
        ({"workers": -1}, ("workers: expected at least 0, got -1",)),
        ({"limit": 0}, ("limit: expected at least 1, got 0",)),
        ({"device": "cuda:99"}, ("cuda:99",)),
        ({"data": Path("nowhere")}, ("nowhere",)),
    ],
    ids=str,
)
def test_bad_input_is_told_before_anything_runs(
    place: Place, more: dict[str, object], words: tuple[str, ...]
) -> None:
    with pytest.raises(PorterError) as error:
        place.study(**more)
    assert all(word in str(error.value) for word in words)


def test_a_photo_that_cannot_be_read_counts_as_wrong_in_every_case(
    place: Place, found: Study, tmp_path: Path
) -> None:
    shutil.copytree(place.photos, tmp_path / "photos")
    broken = next((tmp_path / "photos").glob("*/*.png"))
    broken.write_bytes(broken.read_bytes()[:40])
    made = place.study(data=tmp_path / "photos")
    assert [photo.name for photo in made.failed] == [f"{broken.parent.name}/{broken.name}"]
    assert made.images == PHOTOS and made.cases[1].top1_error == 100 / PHOTOS
    assert f"failed    {made.failed[0].name}" in "\n".join(printed(made))


def test_without_torch_the_sources_framework_runs_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.running_framework("tf").NAME == "torch"
    monkeypatch.setattr(runs, "find_spec", lambda name: None)
    assert runs.running_framework("tf").NAME == "tf"


def test_frameworks_agree_on_the_cases_whose_weights_are_shared_or_not(
    place: Place, found: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "running_framework", lambda own: get_destination("tf"))
    monkeypatch.setattr(runs, "MOST_BYTES", 60_000)  # two models to a pass
    assert figures(place.study()) == figures(found)


def test_ctrl_c_in_a_later_round_leaves_that_round_out(
    place: Place, found: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = iter([True, False])
    whole = score
    monkeypatch.setattr(
        runs, "score", lambda *args, **more: replace(whole(*args, **more), complete=next(passes))
    )
    interrupted = place.study()
    assert (
        not interrupted.complete
        and figures(interrupted) == figures(found)[:3]
        and interrupted.trained.name == "asymmetric"
    )
    # It is the best so far, and cases are missing.
    assert not interrupted.trained.certain and not interrupted.trained.also
    assert "INCOMPLETE" in "\n".join(printed(interrupted))


def test_ctrl_c_in_the_first_round_leaves_nothing_to_report(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = score
    monkeypatch.setattr(runs, "score", lambda *args, **more: replace(whole(*args, **more), complete=False))
    with pytest.raises(KeyboardInterrupt):
        place.study(limit=4)


@pytest.fixture
def port(place: Place, tmp_path: Path) -> Path:
    porter.convert(
        VARIANT,
        ZOO,
        "torch",
        weights=place.weights,
        out=tmp_path / "port",
        recipes=place.recipes,
        check=False,
    )
    return tmp_path / "port"


def test_the_study_goes_into_the_ports_record(place: Place, port: Path) -> None:
    before = read_port(port).record
    made = place.study(port=port, limit=8)
    after = read_port(port).record
    assert (
        after.study == json.loads(json.dumps(made.record()))
        and after.model_copy(update={"study": None}) == before
    )
    assert {path.name for path in port.iterdir()} == {"port.json", "model.py", "model.safetensors"}


def test_a_study_that_cannot_be_written_or_is_incomplete_is_told(
    place: Place, port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise FileError("cannot be written: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(study, "update_record", full)
        assert any(
            "the study is not in the port's folder" in line
            for line in place.study(port=port, limit=8).warnings
        )
    passes = iter([True, False])
    whole = score
    monkeypatch.setattr(
        runs, "score", lambda *args, **more: replace(whole(*args, **more), complete=next(passes))
    )
    assert not place.study(port=port).complete and read_port(port).record.study is None


def test_a_port_of_other_weights_is_refused_before_anything_runs(
    place: Place, port: Path, tmp_path: Path
) -> None:
    other = write_weights(
        tmp_path / "other.safetensors", place.recipes, fitted(place.recipes, place.photos, {})
    )
    before = (port / "port.json").read_bytes()
    with pytest.raises(UsageError, match="not from this file"):
        place.study(port=port, weights=other, data=Path("never-read"))
    with pytest.raises(UsageError, match="this is not a port"):
        place.study(port=tmp_path, data=Path("never-read"))
    assert (port / "port.json").read_bytes() == before


def test_a_port_is_a_source_as_good_as_its_file(place: Place, found: Study, port: Path) -> None:
    assert figures(place.study(weights=port)) == figures(found)


def test_command_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        f"porter study padding {VARIANT} --from {ZOO} --weights {place.weights} --data "
        f"{place.photos} --recipes {place.recipes}"
    )

    def run(*more: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [*command.split(), "--limit", "8", "--workers", "0", *more])
        with pytest.raises(SystemExit) as exited:
            main()
        return int(exited.value.code or 0), capsys.readouterr().out

    status, out = run("--json", "--site", "stem/conv=1", "--crops", "10")
    record = json.loads(out)
    assert status == 0 and {"sites", "cases", "judged_by", "trained"} <= set(record)
    assert {"name", "certain", "also"} <= set(record["trained"])
    assert set(record["cases"][0]) >= {
        "name",
        "convention",
        "top1_error",
        "top5_error",
        "ten_crop_top5_error",
        "log_loss",
        "entropy",
    }
    status, out = run("--site", "stem/conv=1")
    assert status == 0 and "Trained with " in out and "asymmetric, but stem/conv 1" in out
    status, out = run("--json", "--site", "stem/conv=sam")
    assert status == 2 and json.loads(out)["error"]["next"] == "did you mean 'same'?"
