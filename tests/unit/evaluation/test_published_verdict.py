from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from porter.base.ways_to_run import Run
from porter.data.photos import Bytes, Failure, Photo, PhotoSet
from porter.evaluation.intervals import wilson
from porter.evaluation.photo_options import Options
from porter.evaluation.published_verdict import (
    judge,
    notes_on_weights,
    obstacle_of_protocol,
    obstacles,
    published_figure,
)
from porter.evaluation.results import Accuracy
from porter.files import WeightsFile
from porter.port import Record, SourceFile
from porter.recipe import Published, find_member
from porter.recipe.recipe import Weights

PUBLISHED = Published(top1=71.878, top5=90.286, size=224, source="torchvision")
MEMBER = find_member("mobilenet_v2", "torchvision")


def accuracy(top1: float, images: int = 50_000) -> Accuracy:
    return Accuracy(images, top1, 90.0, wilson(round(top1 * images / 100), images))


def record(**fields: Any) -> Record:
    zoo = MEMBER.zoo
    source = SourceFile(file=zoo.files["mobilenet_v2"].name, format="torch", sha256="0" * 64, published=True)
    own = {
        "variant": "mobilenet_v2",
        "zoo": "torchvision",
        "labels": "imagenet-1000",
        "preprocess": zoo.preprocess,
        "source": source,
    }
    return Record.model_construct(**{**own, **fields})


def photos(count: int = 50_000, labels: tuple[int, ...] = (0,), **fields: Any) -> PhotoSet:
    return PhotoSet(
        Path("val"),
        "class folders",
        (Photo("a", labels, Bytes(Path("a"))),) * count,
        **{"validation": True, **fields},
    )


@pytest.mark.parametrize(
    ("top1", "verdict"),
    [
        (71.878, "reproduced"),
        (71.928, "reproduced"),
        (71.828, "reproduced"),
        (71.930, "off by +0.05"),
        (72.188, "off by +0.31"),
        (70.878, "off by -1.00"),
    ],
)
def test_within_five_hundredths_is_reproduced(top1: float, verdict: str) -> None:
    found = judge(accuracy(top1), PUBLISHED, ())
    assert found.verdict == verdict and "71.878" in found.why and f"{top1:.3f}" in found.why


def test_without_a_published_figure() -> None:
    assert judge(accuracy(70), None, ()).verdict == "no published figure"


def test_an_obstacle_makes_it_not_comparable_and_gives_the_interval() -> None:
    found = judge(accuracy(82.8, 500), PUBLISHED, ["500 images"])
    assert found.verdict == "not comparable" and "79.25 and 85.85" in found.why
    assert found.why.startswith(f"with the published 71.878 ({PUBLISHED.source}); 500 images; ")


def against(**changed: Any) -> list[str]:
    options = Options(crops=changed.pop("crops", 1), run=Run(changed.pop("precision", "fp32")))
    of = accuracy(71, changed.pop("images", 50_000))
    given: dict[str, Any] = {"side": 224, "photos": photos(), "complete": True, **changed}
    return obstacles(**given, published=PUBLISHED, options=options, accuracy=of)


def test_the_published_protocol_over_the_whole_set_is_comparable() -> None:
    assert against() == []
    assert [obstacle_of_protocol(record(protocol_by=by)) for by in ("published", "recipe", None)] == [
        [],
        [],
        [],
    ]


def test_a_protocol_that_is_not_the_zoos_is_an_obstacle() -> None:
    assert [obstacle_of_protocol(record(protocol_by=by)) for by in ("user", "file")] == [
        ["the preprocessing is your own, and not the zoo's"],
        ["the preprocessing is the file's, and not the zoo's"],
    ]


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"complete": False}, "interrupted"),
        ({"images": 49_999}, "49,999 images"),
        ({"photos": photos(validation=False)}, "images"),
        ({"photos": photos(labels=(0, 1))}, "labels"),
        (
            {"photos": photos(excluded=(Failure("a", "links are not followed"),))},
            "1 left out: a: links are not followed",
        ),
        ({"crops": 10}, "10 crops"),
        ({"precision": "tf32"}, "tf32"),
        ({"side": 160}, "fed 160x160, published at 224x224"),
    ],
)
def test_each_obstacle(changed: dict[str, Any], word: str) -> None:
    (found,) = against(**changed)
    assert word in found


def test_weights_that_are_not_the_published_ones_are_said() -> None:
    assert notes_on_weights(record(), MEMBER) == []
    other = record(source=SourceFile(file="mine.pth", format="torch", sha256="f" * 64))
    (note,) = notes_on_weights(other, MEMBER)
    assert "mine.pth" in note and "mobilenet_v2-b0353104.pth" in note
    assert notes_on_weights(other, None) == []


@pytest.mark.parametrize(
    ("published", "sha256", "words"),
    [
        (None, "b0353104" + "0" * 56, ()),
        (None, "f" * 64, ("which is not the published",)),
        (False, "b0353104" + "0" * 56, ("which is not the published",)),
    ],
)
def test_a_record_that_does_not_say_whether_its_file_is_published(
    published: Any, sha256: str, words: tuple[str, ...]
) -> None:
    found = notes_on_weights(
        record(source=SourceFile(file="a.pth", format="torch", sha256=sha256, published=published)), MEMBER
    )
    assert len(found) == len(words) and all(word in note for word, note in zip(words, found, strict=True))


def test_a_record_that_cannot_be_compared_with_a_published_digest_is_said() -> None:
    weights = {"mobilenet_v2": Weights(WeightsFile("a.pth", md5="0" * 32), None, None, None)}
    unpinned = MEMBER._replace(zoo=replace(MEMBER.zoo, weights=weights))
    (note,) = notes_on_weights(
        record(source=SourceFile(file="a.pth", format="torch", sha256="f" * 64)), unpinned
    )
    assert "does not record" in note and "convert again" in note


def test_the_figure_is_the_recipes() -> None:
    found = published_figure(record(), MEMBER)
    assert found is not None and found.top1 == 71.878
    assert published_figure(record(), None) is None
    assert published_figure(record(labels=None), MEMBER) is None
