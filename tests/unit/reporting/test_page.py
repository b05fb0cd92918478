"""The page: well-formed, closed to the network, safe with hostile records, and with the sections that the
records fill.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from porter.data.statements import read_preprocess
from porter.reporting import command_lines
from porter.reporting.page import page, sections
from porter.reporting.records import read_contents
from tests.support.reporting.html import Page, parse
from tests.support.reporting.ports import (
    PROTOCOL,
    details,
    evaluation,
    full_port,
    jpeg,
    parity,
    study,
    write_port,
)

HEADINGS = {
    "errors": "Error of every node",
    "logits": "Logits of source and port",
    "accuracy": "Accuracy",
    "study": "Padding study",
    "photos": "Sample photos",
}
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


def page_of(folder: Path) -> tuple[str, Page]:
    text = page(read_contents(folder))
    return text, parse(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    return page_of(full_port(tmp_path_factory.mktemp("whole") / "port"))


def test_tags_are_balanced(whole: tuple[str, Page], tmp_path: Path) -> None:
    assert whole[1].faults == []
    assert page_of(write_port(tmp_path / "bare"))[1].faults == []


def test_it_asks_for_nothing_from_anywhere(whole: tuple[str, Page]) -> None:
    text, found = whole
    addresses = [
        value
        for _, attributes in found.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset")
    ]
    assert addresses and all(
        value and value.startswith(("data:image/jpeg;base64,", "#")) for value in addresses
    )
    ids = {attributes.get("id") for _, attributes in found.tags}
    assert {value[1:] for value in addresses if value and value.startswith("#")} <= ids
    assert not found.all("script") and not found.all("link") and "url(" not in text and "@import" not in text
    policy = next(
        meta["content"] or ""
        for meta in found.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not any(
        name.startswith("on") or name == "style" for _, attributes in found.tags for name in attributes
    )


def test_headings_tables_and_drawings_can_be_read_without_seeing_them(whole: tuple[str, Page]) -> None:
    text, found = whole
    levels = [int(tag[1]) for tag, _ in found.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert text.count("<caption") == len(found.all("table")) and all(
        "scope" in cell for cell in found.all("th")
    )
    drawings = found.all("svg")
    assert drawings and all(drawing.get("role") == "img" for drawing in drawings)
    assert text.count("<svg") == text.count("<desc>")
    assert all(image.get("alt") for image in found.all("img"))
    assert found.all("html")[0]["lang"] == "en"
    names = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_equal_records_give_equal_pages(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = full_port(tmp_path / "a" / "port"), full_port(tmp_path / "b" / "port")
    assert page(read_contents(one)) == page(read_contents(other))


@pytest.mark.parametrize("part", HEADINGS)
def test_what_was_never_made_is_a_sentence_with_the_command_that_makes_it(part: str, tmp_path: Path) -> None:
    absent: dict[str, dict[str, Any]] = {
        "errors": {"parity": None},
        "accuracy": {"evaluation": None},
        "study": {"study": None},
    }
    folder = full_port(tmp_path / "port", **absent.get(part, {}))
    if part in ("logits", "photos"):
        kept = {"logits": "photos", "photos": "pairs"}[part]
        (folder / "evaluation.json").write_text(json.dumps({kept: details()[kept]}))
    text, found = page_of(folder)
    assert [f">{heading}</h2>" in text for heading in HEADINGS.values()] == [
        other != part for other in HEADINGS
    ]
    assert not sections(read_contents(folder))[part]
    listed = found.text.partition("What is not in this report")[2]
    evaluate = "porter eval port --source --weights weights.h5 --data PATH"
    command = {"errors": "porter convert", "study": "porter study padding"}.get(part, evaluate)
    assert command in listed and listed.count("makes it") == 1


def test_a_study_marks_the_cases_that_are_left_or_says_why_it_judges_none(tmp_path: Path) -> None:
    third = replace(study().cases[1], name="case 3", p=0.3)
    made = study(*study().cases, third)
    left = replace(made.trained, certain=False, also=("case 2", "case 3"), why="not clearly better")
    shown = page_of(full_port(tmp_path / "left", study=replace(made, trained=left).record()))[1].text
    assert "The cases that are left are marked below (not certain): not clearly better." in shown
    assert "case 3 ◂ may be it" in shown and "or case 2" not in shown
    unjudged = replace(
        made, trained=replace(left, in_short="Not judged"), by_entropy=None, chance="by chance"
    )
    shown = page_of(full_port(tmp_path / "chance", study=unjudged.record()))[1].text
    assert "Not judged: by chance." in shown and "may be it" not in shown and "trained with" not in shown


def test_a_part_of_the_photos_is_told_from_all_of_them(whole: tuple[str, Page], tmp_path: Path) -> None:
    limited = {"evaluation": evaluation(limit=500).summary(), "study": replace(study(), limit=16).record()}
    found = page_of(full_port(tmp_path / "limited", **limited))[1].text
    assert "--limit" not in whole[1].text and all(f"--limit {limit}" in found for limit in (500, 16))


@pytest.mark.parametrize("changes", [{}, {"mean": [0.5, 0.5, 0.5], "std": [1.0, 0.5, 0.5]}])
def test_the_line_that_measures_again_states_the_protocol_as_it_is_read(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """It is left out where it is the port's own. The record has lists."""
    fed = {**PROTOCOL, **changes}
    contents = read_contents(full_port(tmp_path / "port", evaluation=evaluation(preprocess=fed).summary()))
    words = shlex.split(command_lines.evaluate(contents.record, "port", contents.evaluation))
    assert ("--preprocess" in words) == bool(changes)
    if changes:
        assert read_preprocess(words[words.index("--preprocess") + 1]) == read_preprocess(fed)


def test_a_whole_report_lacks_nothing(whole: tuple[str, Page]) -> None:
    assert "What is not in this report" not in whole[1].text
    assert all(heading in whole[1].text for heading in HEADINGS.values())


def strings_replaced(value: Any) -> Any:
    """Every string of a record as hostile text; keys stay, because a record's fields have names."""
    if isinstance(value, dict):
        return {key: strings_replaced(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strings_replaced(item) for item in value]
    return EVIL if isinstance(value, str) else value


def test_nothing_in_a_record_becomes_markup(tmp_path: Path) -> None:
    measured = {
        **strings_replaced(evaluation().summary()),
        "crops": 1,
        "precision": "fp32",
        "published": {EVIL: EVIL, "note": EVIL},
        "labels": EVIL,
    }
    studied = {**strings_replaced(study().record()), "sites": {EVIL: [EVIL]}, "judged_by": "log_loss"}
    for case in studied["cases"]:
        case["sites"] = {EVIL: EVIL}
    compared = strings_replaced(parity(1e-14, 2e-14))
    compared |= {"dtype": "float64", "dtypes": {EVIL: compared["dtypes"]["float64"]}}
    names = dict.fromkeys(
        ("architecture", "variant", "zoo", "licence", "check", "labels", "stock_class"), EVIL
    )
    pad = dict.fromkeys(("site", "source", "realised", "kind", "why"), EVIL)
    lists = {"used": {EVIL: EVIL}, "ignored": {EVIL: EVIL}, "filled": {}}
    folder = full_port(
        tmp_path / "port",
        **{
            **names,
            "pads": [pad],
            "tensors": lists,
            "mapped": [EVIL],
            "versions": {EVIL: EVIL},
            "stock_arguments": {EVIL: EVIL},
        },
        **{"source": {"file": EVIL, "format": EVIL, "sha256": EVIL, "notes": [EVIL]}},
        **{"parity": compared, "evaluation": measured, "study": studied},
    )
    shown = strings_replaced(details())
    shown["photos"][0]["thumbnail"] = 'x"><script>alert(3)</script>'
    (folder / "evaluation.json").write_text(json.dumps(shown))
    text, found = page_of(folder)
    assert found.faults == [] and not found.all("script") and not found.all("img")
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert found.text.count("<script>alert(1)</script>") > 30 and "<script" not in text


@pytest.mark.parametrize(
    "thumbnail",
    [
        "not base64",
        "PHNjcmlwdD4=",
        jpeg(129),
        jpeg()[:40],
        jpeg() + "x" * 200_000,
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    ],
)
def test_a_thumbnail_is_a_small_jpeg_or_is_not_shown(thumbnail: str, tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    photo = {**details()["photos"][0], "thumbnail": thumbnail}
    (folder / "evaluation.json").write_text(json.dumps({"photos": [photo]}))
    text, found = page_of(folder)
    assert not found.all("img") and "no thumbnail" in found.text and thumbnail[:24] not in text


def test_photos_mark_where_the_frameworks_differ(whole: tuple[str, Page]) -> None:
    # The second and the third place are exchanged, in the one photo that was compared.
    assert whole[1].text.count("≠") == 2


@pytest.mark.parametrize(
    ("spoil", "counted"),
    [
        (lambda fields: fields.update(crops=3), "evaluation.crops"),
        (lambda fields: fields.pop("top1"), "evaluation.top1"),
    ],
)
def test_a_record_of_another_form_is_refused_with_its_place(
    spoil: Callable[[dict[str, Any]], Any], counted: str, tmp_path: Path
) -> None:
    from porter.base.errors import FileError

    fields = evaluation().summary()
    spoil(fields)
    with pytest.raises(FileError, match=counted):
        page_of(full_port(tmp_path / "port", evaluation=fields))


def test_the_loss_stands_beside_the_accuracies_and_older_records_have_none(tmp_path: Path) -> None:
    fields = evaluation(loss=1.23456).summary()
    assert "1.2346" in page_of(full_port(tmp_path / "new", evaluation=fields))[0]
    del fields["loss"], fields["source"]["accuracy"]["loss"]
    assert "1.2346" not in page_of(full_port(tmp_path / "old", evaluation=fields))[0]


def test_a_port_of_one_size_has_the_steps_of_its_own_size(tmp_path: Path) -> None:
    taken = {"layout": "NCHW", "size": [160, 160], "native_size": [224, 224], "channels": 3}
    fed = "160x160: resized to 183, cropped to 160"
    text, _ = page_of(write_port(tmp_path / "port", input=taken, evaluation=evaluation(fed=fed).summary()))
    assert "Resize the shorter side to 183 pixels" in text and f"fed {fed}" in text
    # Too large for the protocol.
    text, _ = page_of(write_port(tmp_path / "large", input={**taken, "size": [4000, 4000]}))
    assert "Resize the shorter side to 256 pixels" in text and "porter eval" not in text
