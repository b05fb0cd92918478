"""The model card: front matter that YAML reads, text in which no record is Markdown, and code that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import porter
from porter.reporting.model_card import front_matter, model_card, write_card
from porter.reporting.records import read_contents
from tests.support.fixtures import Cli
from tests.support.reporting.ports import full_port, write_port

EVIL = "x`</code>|\n---\n# h <script>alert(1)</script> [a](javascript:b) ![i](http://x) ```sh"


def parsed(card: str) -> tuple[dict[str, Any], str]:
    _, front, text = card.split("---\n", 2)
    return yaml.safe_load(front), text


@pytest.mark.parametrize(
    ("changes", "front"),
    [
        ({"licence": "Apache-2.0"}, {"license": "apache-2.0"}),
        ({"licence": "CC BY-NC 4.0"}, {"license": "cc-by-nc-4.0"}),
        ({"licence": "My own: terms"}, {"license": "other", "license_name": "my-own:-terms"}),
        ({"licence": None}, {}),
    ],
)
def test_the_front_matter_says_what_is_known(
    changes: dict[str, Any], front: dict[str, Any], tmp_path: Path
) -> None:
    contents = read_contents(write_port(tmp_path / "port", **changes))
    found, _ = parsed(model_card(contents, "port"))
    assert found == front_matter(contents)
    assert {key: value for key, value in found.items() if key.startswith("license")} == front
    assert found["pipeline_tag"] == "image-classification" and "datasets" not in found
    assert found["library_name"] == "pytorch" and "porter" in found["tags"]


def test_the_card_says_what_the_report_does(tmp_path: Path) -> None:
    _, text = parsed(model_card(read_contents(full_port(tmp_path / "port")), "port"))
    for said in ("Proved", "## Accuracy", "## Padding", "porter verify port", "from model import load"):
        assert said in text


def test_a_strangers_words_are_no_markdown(tmp_path: Path) -> None:
    contents = read_contents(
        write_port(tmp_path / "port", licence=EVIL, labels=EVIL, assumed=[EVIL], ended_at=[EVIL])
    )
    front, text = parsed(model_card(contents, "port"))
    assert front["license"] == "other"
    plain = re.sub(r"\\.", "", text)
    outside = re.sub(r"```.*?\n```\n|`[^`\n]*`", "", plain, flags=re.DOTALL)
    assert "alert(1)" in outside and not re.search(r"[<\[!`]", outside)
    assert "\n# h" not in text and "\n---" not in text.replace("\n|---|---|", "")


def test_a_port_is_saved_with_its_card(cli: Cli, tmp_path: Path) -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    port = porter.convert(module, input_size=24, out=tmp_path / "own")
    saved = port.save(tmp_path / "saved", hub=True)
    card = (saved.folder / "README.md").read_text(encoding="utf-8")
    assert not (tmp_path / "own" / "README.md").exists() and porter.open(saved.folder).proof == port.proof
    assert write_card(saved.folder).read_text(encoding="utf-8") == card
    assert (
        cli("convert", str(saved.folder), "--to", "onnx", "--out", str(tmp_path / "onnx"), "--card").status
        == 0
    )
    assert parsed((tmp_path / "onnx" / "README.md").read_text(encoding="utf-8"))[0]["library_name"] == "onnx"
