"""Memory between two large steps."""

from __future__ import annotations

import gc

import pytest

from porter.verification.memory import let_go

LARGE = 10_000_000


class Model:
    circle: Model | None = None


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An item for each time that Python looks for circles."""
    found: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: found.append(None))
    return found


@pytest.mark.parametrize(("weights", "searched"), [(LARGE, 1), (100, 0)])
def test_a_large_model_in_a_circle_is_looked_for(weights: int, searched: int, searches: list[None]) -> None:
    model = Model()
    model.circle = model
    models = {"float64": model, "float32": Model()}
    del model
    let_go(models, ["float64"], weights)
    assert [*models] == ["float32"] and len(searches) == searched


def test_nothing_is_looked_for_where_a_model_is_gone_by_itself(searches: list[None]) -> None:
    models = {"float64": Model()}
    let_go(models, ["float64"], LARGE)
    let_go(models, [], LARGE)
    assert not models and not searches
