"""What people are told of a check."""

from __future__ import annotations

import pytest

from porter.cli import verdict_text
from porter.verification.inputs import SIGNED
from porter.verification.results import Distance, NodeDistance, Parity
from porter.verification.verdict import Verdict


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
    lines = verdict_text.verdict(verdict, layers=False)
    assert lines[0].startswith(said) and lines[-3:] == [
        "note: model.py is another",
        f"reference: {reference}, run by the zoo; images, 2 in float64: {SIGNED.words}",
        "its tensors: held to h5py",
    ]
