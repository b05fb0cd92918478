"""docs/hub.md shows what works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from shutil import copyfile

import pytest
import yaml

from porter.zoos.transformers import import_transformers
from tests.support.checkout import ROOT
from tests.support.fixtures import Cli
from tests.support.hub_server import COMMIT, OWNED, hub_server

PAGE = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")


def test_every_command_runs(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = import_transformers()
    library.set_seed(0)
    config = library.MobileNetV1Config(
        num_labels=3, depth_multiplier=0.25, id2label={0: "ant", 1: "bee", 2: "cat"}
    )
    library.MobileNetV1ForImageClassification(config).save_pretrained(tmp_path / "net")
    library.MobileNetV1ImageProcessorPil().save_pretrained(tmp_path / "net")
    copyfile(ROOT / "scripts" / "photos" / "chelsea.png", tmp_path / "chelsea.png")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    with hub_server({path.name: path.read_bytes() for path in (tmp_path / "net").iterdir()}) as server:
        server.stands_for_the_hub(monkeypatch, tmp_path / "cache")
        ran = [
            cli(*shlex.split(line)[1:], *(["--no-check"] if "convert" in line else []))
            for line in block.splitlines()
        ]
    assert [each.status for each in ran] == [0] * len(ran), ran
    assert (
        "mobilenet_v1_0.25 from transformers" in ran[0].out
        and (tmp_path / "net-tf" / "model.keras").is_file()
    )
    assert any(name in ran[-1].out for name in ("ant", "bee", "cat"))
    _, front, card = (tmp_path / "net-again" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "pytorch" and f"of hf://{OWNED}@{COMMIT}" in card
