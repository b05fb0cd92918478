from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from porter.base.errors import UsageError
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import input_in_words, protocol_in_words
from porter.evaluation.protocol import expect_square, notes_on_proportion, own_protocol, protocol_of
from porter.port import Facts
from tests.support.recipe.recipes import NO_PROTOCOL, all_recipes

CROPPED = Preprocess(
    "shorter_side",
    256,
    "pil_bilinear",
    crop=224,
    divide=255.0,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
SQUASHED = Preprocess(
    "squash", 299, "tf1_bilinear", central_fraction=0.875, divide=255.0, mean=(0.5,) * 3, std=(0.5,) * 3
)


class OwnRecord(SimpleNamespace):
    label_count = Facts.label_count


def port(protocol: Preprocess | None = CROPPED, size: tuple[int, int] | None = None, **fields: Any) -> Any:
    own: dict[str, Any] = {
        "variant": "resnet50v2",
        "zoo": "slim",
        "framework": "torch",
        "output": "logits",
        "preprocess": protocol,
    }
    own |= {"classes": 1000, "background": False}
    taken = SimpleNamespace(
        layout="NCHW", size=size, native_size=(96, 96), channels=fields.pop("channels", 3)
    )
    graph = SimpleNamespace(further_inputs=(), axes=())
    return SimpleNamespace(
        folder=Path("port"), graph=graph, record=OwnRecord(**{**own, "input": taken, **fields})
    )


def test_a_port_is_fed_what_its_protocol_gives_in_proportion_to_its_size() -> None:
    assert (
        protocol_of(port(), 10) == CROPPED == protocol_of(port(size=(224, 224)), 1) and CROPPED.square == 224
    )
    assert protocol_of(port(SQUASHED), 1) == SQUASHED and SQUASHED.square == 299

    assert protocol_of(port(size=(160, 160)), 1) == replace(CROPPED, size=183, crop=160)
    assert protocol_of(port(SQUASHED, size=(224, 224)), 1) == replace(SQUASHED, size=224)


@pytest.mark.parametrize(
    ("interpolation", "size"), [("pil_bilinear", 342), ("pil_bicubic", 341), ("opencv_cubic", 341)]
)
def test_the_size_before_the_crop_is_rounded_as_the_zoo_rounds_it(interpolation: Any, size: int) -> None:
    """From 256 for 224: what torchvision, timm and TensorNets have for 299."""
    assert replace(CROPPED, interpolation=interpolation).at(299).size == size


def test_a_protocol_that_somebody_states_is_not_rescaled_in_silence() -> None:
    for by, said in (("user", True), ("file", True), ("recipe", False), ("published", False)):
        given = port(size=(160, 160), protocol_by=by)
        found = notes_on_proportion(given.record, protocol_of(given, 1))
        assert bool(found) is said and not notes_on_proportion(given.record, CROPPED)
    (line,) = notes_on_proportion(port(protocol_by="user").record, CROPPED.at(160))
    assert line.startswith(
        "the protocol feeds 224x224, and this port takes only 160x160: it is taken in proportion, "
        "shorter side 183"
    )


def test_what_a_model_is_fed_is_said() -> None:
    assert input_in_words(CROPPED.at(160), 160, 160) == "160x160: resized to 183, cropped to 160"
    assert input_in_words(SQUASHED, 299, 299) == "299x299: cut to the central 87.5%, resized to 299x299"


@pytest.mark.parametrize(
    ("given", "crops", "words"),
    [
        (port(output="features"), 1, "no classifier head"),
        (port(replace(CROPPED, crop=None)), 1, "another size"),
        (port(size=(160, 224)), 1, "photos are fed as squares, and this port takes only 160x224"),
        (port(size=(4000, 4000)), 1, "cannot feed 4000x4000.*from 1 to 4096, got 4571"),
        (port(channels=1), 1, "this model takes 1"),
        (port(classes=1), 1, "one output, so there are no classes to tell apart"),
        (port(SQUASHED), 10, "ten crops"),
    ],
)
def test_what_cannot_be_measured(given: Any, crops: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        protocol_of(given, crops)
    assert crops == 10 or own_protocol(given.record) is None


def test_a_model_without_a_protocol_is_not_fed() -> None:
    with pytest.raises(UsageError, match="nothing says how a photo becomes") as caught:
        expect_square(port(None).record, 3, 1, "port")
    assert "--preprocess resize=squash," in str(caught.value.next) and own_protocol(port(None).record) is None


@pytest.mark.parametrize(
    ("protocol", "crops", "words"),
    [
        (
            CROPPED,
            1,
            (
                "shorter side 256 by Pillow's bilinear, centre 224, (RGB / 255 - (0.485, 0.456, 0.406)) / "
                "(0.229, 0.224, 0.225)"
            ),
        ),
        (CROPPED, 10, "ten crops of 224"),
        (SQUASHED, 1, "central 87.5%, 299x299 by TensorFlow 1's bilinear, (RGB / 255 - 0.5) / 0.5"),
        (
            Preprocess("shorter_side", 256, "opencv_cubic", crop=224, channels="bgr"),
            1,
            "OpenCV's cubic, centre 224, BGR",
        ),
    ],
)
def test_in_words(protocol: Preprocess, crops: Any, words: str) -> None:
    assert words in protocol_in_words(protocol, crops)


def test_every_zoo_of_every_recipe_own_protocol_a_square() -> None:
    for recipe in all_recipes(None):
        for variant in recipe.variants:
            for zoo in recipe.zoos_of(variant).values():
                if (recipe.architecture, zoo.name) not in NO_PROTOCOL:
                    assert zoo.preprocess is not None and zoo.preprocess.fed_side, (variant, zoo.name)
                    assert protocol_in_words(zoo.preprocess, 1)
