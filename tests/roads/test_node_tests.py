"""ONNX's own tests of single operators, ported: each is exact, or refused by name."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from tests.support.node_tests import Outcome, cases, outcome

ATTENTION = ("3d_gqa", "4d_attn_mask_bool", "4d_with_past_and_present")
EXACT = {"torch": (486, 134), "tf": (486, 134), "onnx": (488, 135)}
"""At least so many of all, and of the classic ones, which are 1404 and 140 with onnx 1.23."""


@pytest.mark.full
@pytest.mark.parametrize("destination", EXACT)
def test_every_operator_is_exact_or_refused_by_name(destination: str) -> None:
    found = [(case, outcome(case, destination)) for case in cases()]
    assert not [(case.name, each.why) for case, each in found if each.state == "wrong"]
    assert not [case.name for case, each in found if each.state == "refused" and not each.why]
    exact = [case.classic for case, each in found if each.state == "exact"]
    least, classic = EXACT[destination]
    assert len(exact) >= least and sum(exact) >= classic


@pytest.mark.full
def test_attentions_of_several_inputs() -> None:
    chosen = [case for case in cases() if case.name.removeprefix("test_attention_") in ATTENTION]
    assert [outcome(case, "torch", check=True) for case in chosen] == [Outcome("exact")] * len(ATTENTION)
