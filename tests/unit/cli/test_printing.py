"""What people are told: what a check has shown, and what a file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.cli import printing
from porter.filegraph.checkpoint import Checkpoint
from porter.recipe import find_member
from porter.source.fitting.candidate import Candidate
from porter.source.inspection import Inspection
from porter.source.ranking.rank import Match
from porter.verification.inputs import SIGNED
from porter.verification.results import Distance, NodeDistance, Parity
from porter.verification.verdict import Verdict


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
    lines = printing.inspection(found)
    (line,) = [line for line in lines if line.startswith("  classes    ")]
    assert (
        line[13:].startswith(said)
        and "  also fits  resnet50 from timm (99.5%)" in lines
        and not any("keras" in line for line in lines)
    )


@pytest.mark.parametrize(
    ("reference", "ok", "said"),
    [
        ("keras", True, "float64: same function as keras at 224x224;"),
        ("keras", False, "float64: DIFFERS from keras at 224x224;"),
        ("self", True, "float64: agrees with porter's own build, which is no proof, at 224x224;"),
        ("self", False, "float64: DIFFERS from self at 224x224;"),
    ],
)
def test_porters_own_build_is_never_called_the_same_function(reference: str, ok: bool, said: str) -> None:
    logits = Distance(max_abs=0.0, l1=0.0, rel_l2=0.0, snr_db=None, psnr_db=None, argmax_equal=ok)
    node = NodeDistance("stem/conv", rel_l2=0.0, max_abs=0.0, limit=1e-10)
    sizes = ((224, 224),)
    parity = Parity(
        ok, reference, "float64", sizes, 2, 1e-10, 0.0, logits, None, (node,), (), run_by="the zoo"
    )
    verdict = Verdict((parity,), SIGNED, notes=("model.py is another",), held=("its tensors: held to h5py",))
    lines = printing.verdict(verdict, layers=False)
    assert lines[0].startswith(said) and lines[-3:] == [
        "note: model.py is another",
        f"reference: {reference}, run by the zoo; images, 2 in float64: {SIGNED.words}",
        "its tensors: held to h5py",
    ]
