"""A flow that has other calls than the config names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from porter.formats.keras.channels_first import read_calls
from porter.formats.keras.flow import Flow, Result, read_flow, with_places
from porter.formats.keras.wiring import find_misreading, find_wrong_turn


def _layer(name: str, *sources: list[Any] | list[list[Any]], kind: str = "ReLU") -> dict[str, Any]:
    return {"class_name": kind, "name": name, "config": {"name": name}, "inbound_nodes": [*sources]}


def _model(name: str, layers: list[dict[str, Any]], ends: list[Any], *calls: list[Any]) -> dict[str, Any]:
    config = {"name": name, "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": ends}
    return {"class_name": "Functional", "name": name, "config": config, "inbound_nodes": [*calls]}


def _entry(*names: str, call: int = 0) -> list[list[Any]]:
    return [[name, call, 0, {}] for name in names]


IMAGE = {
    "class_name": "InputLayer",
    "name": "x",
    "config": {"batch_shape": [None, 8, 8, 3]},
    "inbound_nodes": [],
}
BLOCK = _model(
    "block",
    [
        IMAGE,
        _layer("a", _entry("x")),
        _layer("b", _entry("a")),
        _layer("both", _entry("b", "a"), kind="Subtract"),
    ],
    [["both", 0, 0]],
    _entry("first"),
    _entry("block", call=1),
)
TEXT = json.dumps(
    _model(
        "net",
        [IMAGE, _layer("first", _entry("x")), BLOCK, _layer("last", [["block", 2, 0, {}]])],
        [["last", 0, 0], ["first", 0, 0]],
    )
)
"""A model that is called twice, the second time with its own value, between two layers."""


@pytest.fixture
def flow() -> Flow:
    found = read_flow(TEXT, "model.json")
    assert found is not None
    return found


def test_calls_as_the_config_names_them(flow: Flow) -> None:
    assert [call.path[-1] for call in flow.calls] == ["first", *("a", "b", "both") * 2, "last"]
    assert find_misreading(flow, TEXT) is None


def _reading(place: int, *sources: int) -> Callable[[Flow], Flow]:
    """The call at a place reads these."""

    def changed(flow: Flow) -> Flow:
        calls = [*flow.calls]
        inbound = replace(calls[place].inbound, arguments=(tuple(map(Result, sources)),))
        calls[place] = replace(calls[place], inbound=inbound)
        return replace(flow, calls=tuple(calls))

    return changed


def _with_keyword(flow: Flow) -> Flow:
    calls = [*flow.calls]
    calls[0] = replace(calls[0], inbound=replace(calls[0].inbound, keywords={"mask": None}))
    return replace(flow, calls=tuple(calls))


def _swapped(flow: Flow) -> Flow:
    return replace(flow, outputs=flow.outputs[::-1])


def _shifted(flow: Flow) -> Flow:
    places = {place: place - 1 for place in range(len(flow.calls))} | {-1: -1}
    calls = tuple(replace(call, inbound=with_places(call.inbound, places)) for call in flow.calls)
    return replace(flow, calls=calls)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_reading(2, 0), r"'block/b' reads \[\], .* \[\['a'\]\]"),
        (_reading(3, 1, 2), r"'block/both' reads \['a', 'b'\]"),
        (_reading(7, 5), "'block' gives b, "),
        (_reading(7, 0), r"'last' reads \['first'\]"),
        (_with_keyword, "'first' is given"),
        (_swapped, r"the model gives \['first', 'last'\]"),
        (_shifted, "reads"),
    ],
)
def test_others(change: Callable[[Flow], Flow], said: str, flow: Flow) -> None:
    assert re.search(said, find_misreading(change(flow), TEXT) or "")


def _sequential(*layers: tuple[str, dict[str, Any]]) -> str:
    stated = [
        {"class_name": kind, "config": {"name": kind.lower(), **config}}
        for kind, config in (("InputLayer", {"batch_shape": [None, 3, 9, 9]}), *layers)
    ]
    return json.dumps({"class_name": "Sequential", "config": {"name": "net", "layers": stated}})


FIRST = {"data_format": "channels_first"}
WINDOW = {"strides": [2, 2], "padding": "valid", **FIRST}
TURNED = {
    "all of it": _sequential(
        ("Conv2D", {"filters": 4, "kernel_size": [3, 3], **WINDOW}),
        ("Flatten", {"data_format": "channels_last"}),
        ("Dense", {"units": 2}),
        ("ReLU", {}),
    ),
    "each layer": _sequential(
        ("MaxPooling2D", {"pool_size": [3, 3], **WINDOW}),
        ("Cropping3D", {}),
        ("ReLU", {}),
    ),
}


def _ends_before(flow: Flow) -> Flow:
    return replace(flow, outputs=(Result(flow.outputs[0].call - 1),))


def _skips(flow: Flow) -> Flow:
    """The last layer reads what the one before it reads."""
    *calls, before, last = flow.calls
    return replace(flow, calls=(*calls, before, replace(last, inbound=before.inbound)))


@pytest.mark.parametrize("text", TURNED.values(), ids=TURNED)
def test_a_model_that_was_turned_has_the_wires_that_its_config_states(text: str) -> None:
    turned, stated = read_calls(text, "model.json"), read_flow(text, "model.json")
    assert turned is not None and stated is not None and len(turned.calls) > len(stated.calls)
    assert find_wrong_turn(turned, stated) is None
    for change, said in ((_ends_before, "the model gives"), (_skips, "'relu' reads")):
        assert said in (find_wrong_turn(change(turned), stated) or "")
