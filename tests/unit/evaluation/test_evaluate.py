"""porter eval over generated photos, whose folders are named by what the port itself sees in them: so the
figures are known.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from markupsafe import escape
from PIL import Image

import porter
from porter.base.errors import FileError, UsageError
from porter.base.ways_to_run import FP32, Run
from porter.data.labels import imagenet_classes
from porter.data.photo_decoding import open_image
from porter.data.pipeline import making
from porter.evaluation import (
    evaluate as evaluate_module,
    measuring,
    scoring,
    shared_passes,
    speed,
    unfinished,
)
from porter.evaluation.csv_tables import write_results
from porter.evaluation.distributed import Process
from porter.evaluation.measuring import Measured
from porter.evaluation.results import NAMED, Accuracy, Evaluation
from porter.evaluation.scoring import Scored
from porter.files import new_folder
from porter.port import DETAILS, OWN_FOLDERS, RECORD, read_port, update_record
from porter.reporting.records import read_contents
from porter.reporting.write_page import report
from tests.support.data.layouts.making import real, val
from tests.support.fixtures import WeightsMaker
from tests.unit.evaluation.test_distributed import run_two

VARIANT = "mobilenet_v2_0.35"
PROTOCOL: dict[str, Any] = {
    "resize": "shorter_side",
    "size": 110,
    "interpolation": "pil_bilinear",
    "crop": 96,
    "divide": 255.0,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
"""The zoo's, for smaller images."""
FIRST, AMONG_FIVE, WRONG = 4, 3, 2
PHOTOS = FIRST + AMONG_FIVE + WRONG
_BEGIN = scoring._begin
BROKEN = {"cut.JPEG": b"\xff\xd8\xff\xe0 cut", "empty.JPEG": b""}


@dataclass(frozen=True)
class Made:
    """A port, the weights it was made from, and photos of which the first ones are right, the next among
    five, the rest wrong.
    """

    port: Path
    weights: Path
    photos: Path


@pytest.fixture(scope="session")
def made(weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("evaluate")
    weights = weights_file(VARIANT, "torchvision", ".pth")
    porter.convert(
        VARIANT,
        "torchvision",
        "torch",
        weights=weights,
        out=folder / "port",
        check=False,
        preprocess=PROTOCOL,
    )
    rng = np.random.default_rng(0)
    plain = []
    for number in range(PHOTOS):
        coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        plain.append(folder / f"{number:02d}.png")
        Image.fromarray(coarse).resize((320, 260 + number), Image.Resampling.BICUBIC).save(plain[-1])
    for place, seen in enumerate(porter.predict(folder / "port", plain)):
        best = [guess.index for guess in seen.top5]
        wrong = next(index for index in range(1000) if index not in best)
        label = best[0] if place < FIRST else best[3] if place < FIRST + AMONG_FIVE else wrong
        target = folder / "photos" / imagenet_classes()[label].wnid
        target.mkdir(parents=True, exist_ok=True)
        shutil.move(plain[place], target / plain[place].name)
    for name, content in BROKEN.items():
        (target / name).write_bytes(content)
    return Made(folder / "port", weights, folder / "photos")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where interrupted runs are kept."""
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unfinished"


@pytest.fixture
def mine(made: Made, tmp_path: Path) -> Made:
    """With a port of the test's own."""
    shutil.copytree(made.port, tmp_path / "port")
    return Made(tmp_path / "port", made.weights, made.photos)


def run(given: Made, **options: Any) -> Evaluation:
    return porter.evaluate(given.port, given.photos, **{"batch_size": 5, "workers": 0, **options})


@pytest.fixture(scope="module")
def measured(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    """A port of this module's own, evaluated by itself."""
    port = tmp_path_factory.mktemp("measured") / "port"
    shutil.copytree(made.port, port)
    return port, run(Made(port, made.weights, made.photos))


def test_top1_top5_and_failures_in_the_denominator(made: Made, measured: tuple[Path, Evaluation]) -> None:
    _, found = measured
    images = PHOTOS + len(BROKEN)
    assert found.images == images
    assert found.top1 == pytest.approx(100 * FIRST / images)
    assert found.top5 == pytest.approx(100 * (FIRST + AMONG_FIVE) / images)
    assert sorted(Path(photo.name).name for photo in found.failed) == sorted(BROKEN) and all(
        photo.why for photo in found.failed
    )
    wnids, logits, labels = [entry.wnid for entry in imagenet_classes()], [], []
    photos = sorted(made.photos.glob("*/*.png"))
    for photo, seen in zip(photos, porter.predict(measured[0], photos), strict=True):
        logits.append(torch.from_numpy(seen.logits).double())
        labels.append(wnids.index(photo.parent.name))
    wanted = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(labels)).item()
    assert found.loss == pytest.approx(wanted, rel=1e-6) and found.line()["loss"] == found.loss
    assert found.verdict == "no published figure" and found.ok and found.complete and found.source is None


def test_the_record_has_the_fields_that_scripts_read(measured: tuple[Path, Evaluation]) -> None:
    record = json.loads(json.dumps(measured[1].record(), allow_nan=False))
    assert {
        "ok",
        "images",
        "failed",
        "top1",
        "top5",
        "ci95",
        "protocol",
        "published",
        "verdict",
    } <= record.keys()
    assert {tuple(photo) for photo in record["failed"]} == {("file", "why")}
    assert record["published"] is None and record["verdict"] == "no published figure"
    assert record["limit"] is None and record["labels"] is None


def test_figures_and_details_stay_with_the_port(made: Made, measured: tuple[Path, Evaluation]) -> None:
    folder, found = measured
    record = read_port(folder).record
    assert record.evaluation == json.loads(json.dumps(found.summary()))
    assert record.model_copy(update={"evaluation": None, "evaluations": ()}) == read_port(made.port).record
    left = json.loads((folder / DETAILS).read_text())
    assert left["pairs"] == [] and 0 < len(left["photos"]) <= 12
    for photo in left["photos"]:
        assert photo["source"] is None and len(photo["port"]) == 5 and photo["name"].endswith(".png")
        assert max(Image.open(BytesIO(base64.b64decode(photo["thumbnail"]))).size) == 128
    right = [photo["port"][0]["index"] in photo["labels"] for photo in left["photos"]]
    assert right == sorted(right) and sum(right) < len(right)  # wrong ones first
    assert left["photos"][0]["port"][0].keys() == {"index", "name", "probability"}


def test_a_port_made_anew_has_none_of_them(measured: tuple[Path, Evaluation], tmp_path: Path) -> None:
    shutil.copytree(measured[0], tmp_path / "port")
    with new_folder(tmp_path / "port", OWN_FOLDERS):
        pass
    assert not any((tmp_path / "port").iterdir())


def test_the_source_beside_the_port(mine: Made) -> None:
    found = run(mine, source=True, weights=mine.weights)
    assert found.source is not None and found.source.reference == "torchvision"
    assert (found.source.compared, found.source.agreeing, found.source.differing) == (PHOTOS, PHOTOS, ())
    theirs = vars(found.source.accuracy)
    assert {name: theirs[name] for name in ("images", "top1", "top5", "ci95")}.items() <= vars(found).items()
    assert theirs["loss"] == pytest.approx(found.loss, rel=1e-6) and found.source.max_abs < 1e-4
    left = json.loads((mine.port / DETAILS).read_text())
    assert 0 < len(left["pairs"]) <= 4000 and all(abs(source - port) < 1e-4 for source, port in left["pairs"])
    assert all(photo["source"][0]["index"] == photo["port"][0]["index"] for photo in left["photos"])


def test_a_port_that_differs_is_named(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    original = scoring._logits
    turned_at: list[int] = []

    def turned(begun: Any, batch: Any) -> Any:
        found = original(begun, batch)
        if not turned_at:
            turned_at.append(batch.positions[0])
            found["port 0"][0] = -found["port 0"][0]
        return found

    monkeypatch.setattr(scoring, "_logits", turned)
    found = run(mine, source=True, weights=mine.weights)
    assert found.source is not None and found.source.agreeing == PHOTOS - 1
    (photo,) = found.source.differing
    assert photo.source != photo.port and found.source.rel_l2 > 1
    assert json.loads((mine.port / DETAILS).read_text())["photos"][0]["name"] == photo.name


def test_photos_on_which_the_source_fails_are_told(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    original = scoring._logits

    def broken(begun: Any, batch: Any) -> Any:
        found = original(begun, batch)
        return {**found, "source 0": np.multiply(found["source 0"], np.nan)}

    monkeypatch.setattr(scoring, "_logits", broken)
    found = run(mine, source=True, weights=mine.weights)
    assert found.source is not None and (found.source.compared, found.source.accuracy.top1) == (0, 0.0)
    assert f"failed on {PHOTOS} photos" in found.warnings[-1] and found.top1 > 0


def test_weights_that_the_port_was_not_made_from(mine: Made, tmp_path: Path) -> None:
    """Its digest tells, before its tensors are looked at."""
    (tmp_path / "other.pth").write_bytes(mine.weights.read_bytes() + b" ")
    torch.save({"another.weight": torch.ones(3)}, tmp_path / "another.pth")
    for name in ("other.pth", "another.pth"):
        with pytest.raises(UsageError, match=r"was made from .*, not from this file"):
            run(mine, source=True, weights=tmp_path / name)


def test_ten_crops(mine: Made) -> None:
    found = run(mine, crops=10, limit=2)
    assert "ten crops of 96" in found.protocol and found.images == 2 and found.crops == 10


def test_a_limit_spreads_over_the_set_and_stands_in_the_record(mine: Made) -> None:
    found = run(mine, limit=4)
    assert found.images == found.record()["limit"] == 4
    record = read_port(mine.port).record.evaluation
    assert record is not None and record["limit"] == 4


def test_labels_of_another_file_stand_in_the_record(mine: Made, tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    for number, photo in enumerate(sorted(mine.photos.glob("*/*.png"))[:2], start=1):
        shutil.copy(photo, tmp_path / "val" / val(number))
    labels = real(tmp_path / "real.json")
    found = run(Made(mine.port, mine.weights, tmp_path / "val"), labels=labels)
    record = read_port(mine.port).record.evaluation
    assert record is not None and record["labels"] == found.record()["labels"] == str(labels)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crops": 5}, "expected one of 1, 10"),
        ({"precision": "fp8"}, "expected one of fp32, tf32, bf16, fp16"),
        ({"fast": True, "precision": "bf16"}, "and bf16 is given too"),
        ({"batch_size": 0}, "at least 1"),
        ({"workers": -1}, "at least 0"),
        ({"limit": 0}, "at least 1"),
        ({"tolerance": 0.1}, "expect_top1"),
        ({"expect_top1": 101.0}, "0 to 100"),
        ({"expect_top1": 50.0, "tolerance": -1.0}, "0 to 100"),
        ({"expect_top1": float("nan")}, "0 to 100"),
        ({"weights": Path("w")}, "source"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_bad_options(made: Made, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(made, **options)


def test_a_fast_run_stands_beside_fp32(
    mine: Made, measured: tuple[Path, Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_MEASURED", 0.01)
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)
    found, plain = run(mine, fast=True), measured[1]
    near: Any = pytest.approx(plain.loss, rel=1e-6)
    assert found.fp32 == Accuracy(plain.images, plain.top1, plain.top5, plain.ci95, loss=near)
    assert (
        found.run == found.tried[0].run.words
        and len(found.tried) == 5
        and not any(each.refused for each in found.tried)
    )
    record = read_port(mine.port).record.evaluation
    assert record is not None and record["tried"][0]["per_second"] == found.tried[0].per_second
    monkeypatch.setattr(evaluate_module, "this_process", lambda: Process(0, 2))
    with pytest.raises(UsageError, match="several processes could each"):
        run(mine, fast=True)


def test_a_fast_run_in_fp32_is_its_own_figure_beside(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = list[Run](), measuring.classifier_of

    def counted(entrant: measuring.Entrant, device: str, way: Run) -> Any:
        made.append(way)
        return original(entrant, device, way)

    monkeypatch.setattr(measuring, "classifier_of", counted)
    monkeypatch.setattr(measuring, "try_runs", lambda *args: (speed.Tried(FP32, 1.0),))
    found = run(mine, fast=True)
    assert made == [FP32] and found.fp32 is not None and found.fp32.top1 == found.top1


def test_reals_labels_stand_beside_the_photos_own(
    mine: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "val").mkdir()
    photos = sorted(mine.photos.glob("*/*.png"))[:3]
    best = [porter.predict(mine.port, [photo])[0].top5[0].index for photo in photos]
    wnids = [entry.wnid for entry in imagenet_classes()]
    for number, photo in enumerate(photos, start=1):
        folder = tmp_path / "val" / photo.parent.name
        folder.mkdir(exist_ok=True)
        shutil.copy(photo, folder / val(number))
    labels = real(tmp_path / "real.json")
    lists = json.loads(labels.read_text())
    lists[:3] = [[best[0], 7], [(best[1] + 1) % 1000], []]
    labels.write_text(json.dumps(lists))
    found = run(Made(mine.port, mine.weights, tmp_path / "val"), real_labels=labels)
    own = [wnids.index(photo.parent.name) for photo in photos]
    assert found.images == 3 and found.top1 == pytest.approx(100 * sum(map(int.__eq__, own, best)) / 3)
    assert found.real is not None and (found.real.images, found.real.top1) == (2, 50.0)
    with monkeypatch.context() as patch:
        interrupted_at(patch, 2)
        part = run(Made(mine.port, mine.weights, tmp_path / "val"), real_labels=labels, batch_size=1)
    assert not part.complete and part.images == 1, "only what was reached counts"
    assert part.real is not None and (part.real.images, part.real.top1) == (1, 100.0)
    monkeypatch.setattr(
        shared_passes,
        "measure",
        lambda *args: pytest.fail("photos were scored before the labels were read"),
    )
    with pytest.raises(FileError, match="there is no such file"):
        run(Made(mine.port, mine.weights, tmp_path / "val"), real_labels=tmp_path / "none.json")


def test_control_c_leaves_the_record_as_it_is(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = scoring._begin, []

    def interrupted(models: Any, batch: Any) -> Any:
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(models, batch)

    before = (mine.port / RECORD).read_bytes()
    monkeypatch.setattr(scoring, "_begin", interrupted)
    found = run(mine, expect_top1=100.0, predictions=mine.port.parent / "seen.csv")
    assert f"{mine.port.parent / 'seen.csv'} is not written: the run was interrupted" in found.warnings
    assert not found.complete and not found.ok and found.images == 5
    seen = {photo.parent for photo in sorted(mine.photos.glob("*/*"))[:5]}
    assert found.classes_present == len(seen) < len(list(mine.photos.iterdir()))
    assert (mine.port / RECORD).read_bytes() == before and not (mine.port / DETAILS).exists()


def untimed(record: dict[str, Any]) -> dict[str, Any]:
    """Without the figures that depend on how busy the machine is."""
    return {name: value for name, value in record.items() if name not in ("per_second", "waited", "network")}


def test_fewer_photos_do_not_replace_more(mine: Made, tmp_path: Path) -> None:
    run(mine, predictions=tmp_path / "seen.csv")
    before = read_port(mine.port).record
    shown = (mine.port / DETAILS).read_bytes()
    small = run(mine, limit=3)
    after = read_port(mine.port).record
    assert after.evaluation == before.evaluation and (mine.port / DETAILS).read_bytes() == shown
    assert [line["images"] for line in after.evaluations] == [PHOTOS + len(BROKEN), 3] and after.evaluations[
        1
    ]["limit"] == 3
    more = f"the port's record keeps the figures of {PHOTOS + len(BROKEN)} photos, which are more"
    assert small.warnings[-1] == f"{more}; the report lists these figures beside them"
    assert not any("keeps the figures" in warning for warning in run(mine).warnings)
    squashed = run(mine, limit=3, preprocess="resize=squash,size=224,interpolation=pil_bilinear,divide=255")
    assert "keeps the figures" in squashed.warnings[-1]
    runs = read_contents(mine.port).runs
    assert [run.images for run in runs] == [PHOTOS + len(BROKEN), 3, PHOTOS + len(BROKEN), 3]
    assert runs[-1].protocol == squashed.protocol != runs[0].protocol
    page = report(mine.port, tmp_path / "report.html").path.read_text(encoding="utf-8")
    assert "Every run, the latest last" in page and escape(squashed.protocol) in page

    with (tmp_path / "seen.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ranks = [int(row["rank"]) for row in rows if row["rank"]]
    assert (
        len(ranks) == PHOTOS
        and len(rows) == PHOTOS + len(BROKEN)
        and ranks.count(0) == FIRST
        and sum(rank < 5 for rank in ranks) == FIRST + AMONG_FIVE
    )
    assert all(row["label"] == row["class1"] for row in rows if row["rank"] == "0")
    assert (
        rows[0]["name1"] == imagenet_classes()[int(rows[0]["class1"])].name
        and 0 < float(rows[0]["probability1"]) <= 1
    )


@pytest.fixture(scope="module")
def others(made: Made, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ports of the same weights: fed the same pixels on another scale, in another framework, and resized
    otherwise.
    """
    folder = tmp_path_factory.mktemp("others")
    stated: dict[str, tuple[str, Any]] = {
        "scaled": ("torch", PROTOCOL | {"mean": 0.5, "std": 1.0}),
        "onnx": ("onnx", PROTOCOL),
        "down": ("torch", PROTOCOL | {"crop_rounding": "down"}),
        "squashed": (
            "torch",
            {"resize": "squash", "size": 128, "interpolation": "pil_bicubic", "divide": 255.0},
        ),
    }
    for name, (framework, preprocess) in stated.items():
        out = folder / name
        porter.convert(
            VARIANT,
            "torchvision",
            framework,
            weights=made.weights,
            out=out,
            check=False,
            preprocess=preprocess,
        )
    return [folder / name for name in stated]


def test_several_ports_get_the_figures_of_separate_runs_from_one_decoding(
    mine: Made, others: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, decoded = open_image, []
    monkeypatch.setattr(
        making, "open_image", lambda photo, jpeg: (decoded.append(photo), original(photo, jpeg))[1]
    )
    ports = [mine.port, *others]
    settings: dict[str, Any] = {"source": True, "weights": mine.weights, "batch_size": 5, "workers": 0}
    found = porter.evaluate_several(ports, mine.photos, **settings)
    # The empty photo is not opened; other crops and squashed ones are other groups.
    assert len(decoded) == 3 * (PHOTOS + 1)
    assert [(each.port, each.framework) for each in found] == [
        (str(port), framework)
        for port, framework in zip(ports, ("torch", "torch", "onnx", "torch", "torch"), strict=True)
    ]
    assert len({each.evaluation.loss for each in found}) == 5
    assert all(read_port(Path(each.port)).record.evaluation is not None for each in found)
    for each in found[::2]:  # one of each framework, and of each group
        alone, both = porter.evaluate(each.port, mine.photos, **settings).record(), each.evaluation.record()
        assert untimed(alone) == untimed(both)

    write_results(tmp_path / "results.csv", found)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["port"], float(row["top1"]), float(row["loss"])) for row in rows] == [
        (each.port, each.evaluation.top1, each.evaluation.loss) for each in found
    ]
    assert rows[0]["name"] == f"{VARIANT} from torchvision" and rows[4]["protocol"].startswith("128x128 by")


def test_control_c_in_the_second_pass_keeps_the_figures_of_the_first(
    mine: Made, others: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, passes = scoring.score, []

    def score(*given: Any) -> Any:
        passes.append(given)
        if len(passes) == 2:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(measuring, "score", score)
    found = porter.evaluate_several([mine.port, others[2], others[0]], mine.photos, batch_size=5, workers=0)
    assert [each.port for each in found] == [str(mine.port), str(others[0])] and all(
        each.evaluation.complete for each in found
    )


def test_ports_that_cannot_be_measured_together(mine: Made, tmp_path: Path) -> None:
    twice = [mine.port, mine.port / ".." / "port"]
    for folders, options, words in (
        ([], {}, "no port"),
        (twice, {}, "given twice"),
        ([mine.port, tmp_path / "other"], {"predictions": tmp_path / "seen.csv"}, "one port"),
    ):
        with pytest.raises(UsageError, match=words):
            porter.evaluate_several(folders, mine.photos, **options)  # type: ignore[arg-type]


def interrupted_at(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Ctrl-C comes when this batch of the next run begins; 0 for none."""
    original, begun = _BEGIN, []

    def begin(models: Any, given: Any) -> Any:
        begun.append(given)
        if len(begun) == batch:
            raise KeyboardInterrupt
        return original(models, given)

    monkeypatch.setattr(scoring, "_begin", begin)


@pytest.mark.parametrize("source", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_run_goes_on_where_control_c_ended_it(
    mine: Made, others: list[Path], own_cache: Path, source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"batch_size": 3, "workers": 0} | (
        {"source": True, "weights": mine.weights} if source else {}
    )
    ports, decoded = [mine.port, others[0]], list[Any]()
    whole = [each.evaluation for each in porter.evaluate_several(ports, mine.photos, **settings)]
    assert not list(own_cache.glob("*"))

    for batch, seen in ((3, 6), (2, 9)):  # twice
        interrupted_at(monkeypatch, batch)
        parts = porter.evaluate_several(ports, mine.photos, **settings)
        assert len(list(own_cache.glob("*"))) == 1
        for part in parts:
            assert not part.evaluation.complete and part.evaluation.images == seen
            said = f"another run goes on at photo {seen} of {PHOTOS + len(BROKEN)}; with afresh, at the first"
            assert part.evaluation.warnings[-1] == said

    interrupted_at(monkeypatch, 0)
    original = open_image
    monkeypatch.setattr(
        making, "open_image", lambda photo, jpeg: (decoded.append(photo), original(photo, jpeg))[1]
    )
    found = [each.evaluation for each in porter.evaluate_several(ports, mine.photos, **settings)]
    assert not list(own_cache.glob("*"))
    for once, again in zip(whole, found, strict=True):
        went_on = f"went on at photo 9 of {PHOTOS + len(BROKEN)}, where an earlier run had ended"
        assert went_on in again.warnings
        assert untimed(again.record() | {"warnings": once.warnings}) == untimed(once.record())


def test_a_run_that_was_killed_goes_on_with_what_was_kept(
    mine: Made, others: list[Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its second pass: the first one is not run again."""
    settings: dict[str, Any] = {"batch_size": 3, "workers": 0}
    ports, decoded = [mine.port, others[-1]], list[Any]()
    whole = [each.evaluation for each in porter.evaluate_several(ports, mine.photos, **settings)]
    batches = -(-(PHOTOS + 1) // 3)

    def killed(models: Any, given: Any) -> Any:
        decoded.append(given)
        if len(decoded) == batches + 4:
            raise SystemExit
        return _BEGIN(models, given)

    monkeypatch.setattr(measuring, "KEPT_EVERY", 0)
    monkeypatch.setattr(scoring, "_begin", killed)
    with pytest.raises(SystemExit):
        porter.evaluate_several(ports, mine.photos, **settings)
    decoded.clear()
    found = [each.evaluation for each in porter.evaluate_several(ports, mine.photos, **settings)]
    assert len(decoded) < batches and not list(own_cache.glob("*"))
    for once, again in zip(whole, found, strict=True):
        assert any(warning.startswith("went on at photo") for warning in again.warnings)
        assert untimed(again.record() | {"warnings": once.warnings}) == untimed(once.record())


def test_what_is_kept_belongs_to_the_same_photos_port_and_settings(
    mine: Made, others: list[Path], own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(mine.photos, tmp_path / "photos")
    given, changed = (
        Made(mine.port, mine.weights, tmp_path / "photos"),
        Made(others[0], mine.weights, tmp_path / "photos"),
    )

    def goes_on(port: Made, **options: Any) -> bool:
        """Whether the run, which is ended again, counts the photos of the first one."""
        interrupted_at(monkeypatch, 2)
        return run(port, **options).images > 5

    assert (
        not goes_on(given)
        and not goes_on(changed)
        and not goes_on(given, batch_size=4)
        and not goes_on(given, limit=9)
    )
    kept = {file: file.read_text() for file in own_cache.glob("*")}
    assert len(kept) == 4 and not goes_on(given, afresh=True)
    for file in kept:
        file.write_text("{")  # cut short by a full disk
    assert not goes_on(given)
    for file, text in kept.items():
        file.write_text(text)
    photo = min(given.photos.glob("*/*"))
    photo.write_bytes(photo.read_bytes() + b" ")
    assert not goes_on(given)
    assert goes_on(given)


def test_a_pass_that_cannot_be_kept_hinders_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[Path]()
    monkeypatch.setattr(unfinished, "keep", lambda file, group: (tried.append(file), file.name != "one")[1])
    scored = Scored({}, np.array([True]), {}, False, 1.0)
    passes = shared_passes.Passes(
        dict.fromkeys((0, 1), Measured(scored)), {Path("one"): [0], Path("two"): [1]}
    )
    assert not passes.settle(False) and [file.name for file in tried] == ["one", "two"]


def test_only_a_few_runs_are_kept(mine: Made, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_cache.mkdir(parents=True)
    for number in range(20):
        (own_cache / f"{number}.json").write_text("[]")
        os.utime(own_cache / f"{number}.json", (number, number))
    interrupted_at(monkeypatch, 2)
    run(mine)
    left = sorted(file.stem for file in own_cache.glob("*"))
    assert len(left) == 8 and "12" not in left and "13" in left and "19" in left


def test_control_c_before_the_first_photos_says_so(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring, "_begin", interrupted)
    with pytest.raises(
        KeyboardInterrupt, match="before the first photos were scored, so there are no figures"
    ):
        run(mine)


def test_figures_that_cannot_be_written_are_not_lost(mine: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise FileError("cannot be written: no space", where="port.json")

    monkeypatch.setattr("porter.evaluation.evaluate.update_record", full)
    found = run(mine)
    assert found.complete and "no space" in found.warnings[-1]


@pytest.mark.full  # how processes share their finds is in test_distributed.py
def test_two_processes_give_what_one_gives(mine: Made, tmp_path: Path) -> None:
    many = tmp_path / "many"
    for photo in mine.photos.glob("*/*"):  # 16 photos make one share: here are two
        (many / photo.parent.name).mkdir(parents=True, exist_ok=True)
        for copy in range(2):
            shutil.copy(photo, many / photo.parent.name / f"{copy}-{photo.name}")
    shutil.copytree(mine.port, tmp_path / "shared")
    program = "import sys; from porter.cli.app import main; sys.argv[0] = 'porter'; main()"
    options = ("--data", str(many), "--source", "--weights", str(mine.weights), "--workers", "0", "--json")
    (status, output), (other_status, nothing) = run_two(
        ["-c", program, "eval", str(tmp_path / "shared"), *options], tmp_path
    )
    assert status == other_status == 0 and nothing == ""  # the first one prints, for both
    whole, found = (
        porter.evaluate(mine.port, many, source=True, weights=mine.weights, workers=0),
        json.loads(output),
    )
    # Speeds are others, and warnings name options as they are typed.
    others = ("per_second", "network", "waited", "warnings", "source", "loss")
    for field, value in json.loads(json.dumps(whole.record())).items():
        assert field in others or found[field] == value, field
    assert len(found["warnings"]) == len(whole.warnings)
    assert found["loss"] == pytest.approx(whole.loss, rel=1e-6)  # batches of other sizes
    assert whole.source is not None and found["source"]["agreeing"] == whole.source.agreeing == 2 * PHOTOS
    theirs = vars(whole.source.accuracy)
    assert found["source"]["accuracy"] == {
        **theirs,
        "ci95": list(theirs["ci95"]),
        "loss": pytest.approx(theirs["loss"], rel=1e-6),
    }

    def left(port: Path) -> list[Any]:
        photos = json.loads((port / DETAILS).read_text())["photos"]
        return [
            (photo["name"], [[guess["index"] for guess in photo[model]] for model in ("source", "port")])
            for photo in photos
        ]

    assert (
        left(tmp_path / "shared") == left(mine.port)
        and read_port(tmp_path / "shared").record.evaluation is not None
    )


def test_long_lists_are_cut_in_the_record_and_counted(measured: tuple[Path, Evaluation]) -> None:
    _, found = measured
    many = Evaluation(**{**vars(found), "failed": found.failed * NAMED})
    cut = many.summary()
    assert len(cut["failed"]) == NAMED and cut["unnamed"] == {"failed": len(found.failed) * NAMED - NAMED}
    assert len(many.record()["failed"]) == len(found.failed) * NAMED and many.record()["unnamed"] == {}


def test_a_study_keeps_the_evaluation(measured: tuple[Path, Evaluation], tmp_path: Path) -> None:
    shutil.copytree(measured[0], tmp_path / "port")
    before = read_port(tmp_path / "port").record.evaluation
    update_record(tmp_path / "port", "study", {"trained": "shipped"})
    record = read_port(tmp_path / "port").record
    assert before is not None and record.study == {"trained": "shipped"} and record.evaluation == before
