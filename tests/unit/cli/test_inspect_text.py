"""What people are told of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.cli import inspect_text
from porter.filegraph.checkpoint import Checkpoint
from porter.recipe import find_member
from porter.source.fitting.candidate import Candidate
from porter.source.inspection import Inspection
from porter.source.ranking.rank import Match


@pytest.mark.parametrize(
    ("classes", "of_file", "said"),
    [(7, 7, "7"), (1000, 1001, "1000 of the file's 1001"), (1, 1, "1 (one number"), (0, 0, "none")],
)
def test_inspect_says_classes_and_what_fits_as_well(classes: int, of_file: int, said: str) -> None:
    checkpoint = Checkpoint(Path("own.pth"), "pth", "torch", {})
    matches = tuple(
        Match(Candidate.of(find_member("resnet50", zoo), checkpoint), score, (), ())
        for zoo, score in (("torchvision", 1.0), ("timm", 0.995), ("keras", 0.5))
    )
    found = Inspection(checkpoint, matches, matches[0], classes=classes, source_classes=of_file)
    lines = inspect_text.inspection(found)
    (line,) = [line for line in lines if line.startswith("  classes    ")]
    assert (
        line[13:].startswith(said)
        and "  also fits  resnet50 from timm (99.5%)" in lines
        and not any("keras" in line for line in lines)
    )
