from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from porter.verification.references import pairing


@pytest.mark.parametrize(
    ("of_source", "of_file", "apart"),
    [(2.0, 2.0, None), (2.0, 3.0, 0.5), (2.0, np.nan, np.inf), (np.inf, np.inf, None), (0.0, 1.0, np.inf)],
)
def test_weights_are_apart_where_they_are_not_the_same_numbers(
    of_source: float, of_file: float, apart: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is larger than no number, so that it counted as no distance; the same infinities are equal."""
    monkeypatch.setattr(pairing, "to_canonical", lambda tensor, stored, shape: tensor)
    tensor = SimpleNamespace(name="w")
    opened: Any = SimpleNamespace(tensors={"conv": {"kernel": np.array([of_source])}})
    file: Any = SimpleNamespace(by_name={"c": SimpleNamespace(tensors={"kernel": tensor})})
    found = pairing.weight_distances(opened, file, {"w": np.array([of_file])}, {"conv": "c"})
    assert found == ({} if apart is None else {"conv": apart})
