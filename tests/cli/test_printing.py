"""What a check is said to have shown."""

from __future__ import annotations

import pytest

from porter.cli import printing
from porter.verification.check import Verdict
from porter.verification.numbers import Distance
from porter.verification.parity import NodeDistance, Parity


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
    parity = Parity(ok, reference, "float64", ((224, 224),), 2, 1e-10, 0.0, logits, None, (node,), ())
    lines = printing.verdict(Verdict((parity,), notes=("model.py is another",)), layers=False)
    assert lines[0].startswith(said) and lines[-1] == "note: model.py is another"
