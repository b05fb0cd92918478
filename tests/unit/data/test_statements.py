"""Protocols as people state them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import UsageError
from porter.data.preprocess import Preprocess
from porter.data.statements import example_protocol, protocol_text as written, read_preprocess

KERAS = Preprocess("squash", 96, "tf_bilinear", divide=127.5, mean=(1, 1, 1))
SCALED = Preprocess("squash", 96, "tf_bilinear", mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5))
TORCH = Preprocess(
    "shorter_side",
    256,
    "pil_bicubic",
    crop=224,
    crop_rounding="down",
    jpeg="fast",
    channels="bgr",
    divide=255,
    mean=(0.485, 0.456, 0.406),
    std=(0.2, 0.3, 0.4),
)


@pytest.mark.parametrize(
    ("stated", "protocol"),
    [
        ("resize=squash,size=96,interpolation=tf_bilinear,divide=127.5,mean=1", KERAS),
        (" resize = squash, size = 96, interpolation = tf_bilinear, divide = 127.5, mean = 1, 1, 1, ", KERAS),
        (
            "resize=shorter_side,size=256,interpolation=pil_bicubic,crop=224,crop_rounding=down,jpeg=fast,channels=bgr,divide=255,"
            "mean=0.485,0.456,0.406,std=0.2,0.3,0.4",
            TORCH,
        ),
        ("resize=squash,size=96,interpolation=tf_bilinear,mean=[127.5, 127.5,127.5],std=(127.5,)", SCALED),
        (json.dumps(asdict(TORCH)), TORCH),
        (asdict(KERAS), KERAS),
        ({"resize": "none", "size": 32, "mean": [1, 2, 3]}, Preprocess("none", 32, "none", mean=(1, 2, 3))),
    ],
)
def test_a_protocol_is_read_as_text_json_a_mapping_or_a_file(
    stated: Any, protocol: Preprocess, tmp_path: Path
) -> None:
    assert read_preprocess(stated) == protocol == read_preprocess(written(protocol))
    (tmp_path / "size=96").write_text(stated if isinstance(stated, str) else json.dumps(stated))
    assert read_preprocess(tmp_path / "size=96") == protocol
    # As Windows writes it.
    (tmp_path / "size=96").write_text((tmp_path / "size=96").read_text(), encoding="utf-8-sig")
    assert read_preprocess(tmp_path / "size=96") == protocol


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("resize=squash,size=96", "needs 'interpolation'"),
        ("crop=4", "needs 'resize' and 'size' and 'interpolation'"),
        ("resize=squash,size=big,interpolation=pil_box", "'size' must be a whole number, got 'big'"),
        ("resize=squash,size=9,interpolation=pil_box,divide=x", "'divide' must be a number, got 'x'"),
        ("resize=squash,size=9,interpolation=pil_box,mean=1,2", "'mean' must have three values"),
        ("resize=squash,size=9,interpolation=pil_box,mean=a", "'mean' must be one number or three"),
        ("resize=squash,size=9,interpolation=cubic", "'interpolation' must be one of pil_nearest, "),
        ("resize=squash,size=9,interpolation=pil_box,jpeg=quick", "'jpeg' must be one of fast, got 'quick'"),
        (
            "resize=squash,size=9,interpolation=pil_box,crop_rounding=off",
            "'crop_rounding' must be one of even, down, up, got 'off'",
        ),
        ("resize=squash,side=9", "a protocol has no 'side'; its parts are resize, size, "),
        ("96,resize=squash", "a protocol has no ''"),
        ("squash", "'squash' is no file and no protocol"),
        ("", "'' is no file and no protocol"),
        ("squash" * 50, "is no file and no protocol"),
        ("resize=" + "squash" * 50, "needs 'size' and 'interpolation'"),
        ("{", "this is no JSON"),
        ('{"size": [9], "resize": "squash", "interpolation": "pil_box"}', "'size' must be a whole number"),
    ],
)
def test_what_is_no_protocol_is_an_error_with_a_line_to_type(stated: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_preprocess(stated)
    assert said in caught.value.message and "size=224,interpolation=pil_bilinear" in str(caught.value.next)


def test_the_line_to_type_is_a_protocol() -> None:
    assert read_preprocess(example_protocol(96, "tf_bilinear").split(" ", 1)[1].strip("'")) == Preprocess(
        "squash", 96, "tf_bilinear", divide=255
    )
