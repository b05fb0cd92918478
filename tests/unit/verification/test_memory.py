"""Memory between two large steps."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from porter.graph import Graph, Node, Relu, shapes
from porter.verification import memory
from porter.verification.memory import drop_models, free_importers, in_parts

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
    drop_models(models, ["float64"], weights)
    assert [*models] == ["float32"] and len(searches) == searched


def test_nothing_is_looked_for_where_a_model_is_gone_by_itself(searches: list[None]) -> None:
    models = {"float64": Model()}
    drop_models(models, ["float64"], LARGE)
    drop_models(models, [], LARGE)
    assert not models and not searches


def test_what_the_callers_of_an_import_had_at_hand_is_freed() -> None:
    """torch keeps a frame of its own module in a circle."""
    gc.disable()
    try:
        for weights, freed in ((LARGE, True), (100, False)):
            held = _import(weights)
            assert (held() is None) == freed
    finally:
        gc.enable()


def _import(weights: int) -> weakref.ref[Model]:
    at_hand = Model()
    _keep_frame()
    free_importers(weights)
    return weakref.ref(at_hand)


def _keep_frame() -> None:
    frame = sys._getframe()
    assert frame.f_locals


@pytest.mark.parametrize(
    ("least", "machine", "parts"),
    [
        (1, None, ["a", "b", "c"]),
        (3 * 640, None, ["abc"]),
        (2 * 640, 0, ["ab", "c"]),
        (1, 8 * 1280, ["ab", "c"]),
    ],
)
def test_both_sides_hold_as_many_values_as_the_machine_has_room_for(
    least: int, machine: int | None, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of 2 images of 4 x 5 numbers takes 640 bytes on both sides."""
    monkeypatch.setattr(memory, "_LEAST", least)
    monkeypatch.setattr(memory, "_memory", lambda: machine)
    nodes = [Node(path, Relu(), (read,)) for read, path in (("input", "a"), ("a", "b"), ("b", "c"))]
    graph = Graph(tuple(nodes), 1, "c")
    assert ["".join(part) for part in in_parts(graph, shapes(graph, (4, 5)), 2)] == parts
