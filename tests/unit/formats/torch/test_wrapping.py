"""Where training scripts put the state_dict, on plain mappings in which floats stand for tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import FileError
from porter.formats.torch.wrapping import KEYS_OF_AVERAGES, KEYS_OF_RAW, StateDict, list_keys, unwrap

RAW_WEIGHTS = {"a.weight": 1.0, "n.running_mean": 2.0, "n.num_batches_tracked": 3.0}
AVERAGES = {name: -value for name, value in RAW_WEIGHTS.items()}


def unwrapped(loaded: object) -> StateDict:
    return unwrap(loaded, lambda value: isinstance(value, float), Path("w.pth"))


def refused(loaded: object) -> str:
    with pytest.raises(FileError) as caught:
        unwrapped(loaded)
    assert str(caught.value).startswith("w.pth: ") and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("key", [*KEYS_OF_RAW, "weights"])
def test_one_wrapper(key: str) -> None:
    assert unwrapped({"epoch": 3, key: RAW_WEIGHTS, "best": 70.5}) == StateDict(
        RAW_WEIGHTS, (f"read under '{key}'; ignored 'best', 'epoch'",)
    )


@pytest.mark.parametrize("key", KEYS_OF_AVERAGES)
def test_only_averages(key: str) -> None:
    assert unwrapped({key: AVERAGES}) == StateDict(AVERAGES, (f"read the averaged weights under '{key}'",))


@pytest.mark.parametrize("averaged", KEYS_OF_AVERAGES)
@pytest.mark.parametrize("raw", KEYS_OF_RAW)
def test_averages_before_raw_weights(raw: str, averaged: str) -> None:
    note = f"read the averaged weights under '{averaged}', not the raw ones under '{raw}'; ignored 'epoch'"
    assert unwrapped({raw: RAW_WEIGHTS, "epoch": 3, averaged: AVERAGES}) == StateDict(AVERAGES, (note,))


@pytest.mark.parametrize("empty", [None, 0.999, {}, {"decay": 3}, "mean"])
def test_a_key_of_averages_without_any(empty: object) -> None:
    found = unwrapped({"model": RAW_WEIGHTS, "ema": empty})
    assert found == StateDict(RAW_WEIGHTS, ("read under 'model'; ignored 'ema'",))


def test_an_averaged_model_in_a_wrapped_one() -> None:
    averaged = {"n_averaged": 5.0, **{f"module.module.{name}": value for name, value in AVERAGES.items()}}
    found = unwrapped(
        {"model": {f"module.{name}": value for name, value in RAW_WEIGHTS.items()}, "model_ema": averaged}
    )
    assert found.tensors == AVERAGES
    assert found.notes == (
        "read the averaged weights under 'model_ema', not the raw ones under 'model'",
        "ignored 'n_averaged', which counts the steps of an average",
        "prefix 'module.' removed",
        "prefix 'module.' removed",
    )


@pytest.mark.parametrize("name", ["n_averaged", "n.num_batches_tracked"])
def test_counters_need_no_average(name: str) -> None:
    averages = {key: value for key, value in AVERAGES.items() if key != name}
    assert unwrapped({"state_dict": RAW_WEIGHTS, "state_dict_ema": averages}).tensors == averages


def test_averages_of_only_some_weights() -> None:
    raw = {**RAW_WEIGHTS, **{f"more.{number}": 1.0 for number in range(20)}}
    message = refused(
        {"model": raw, "model_ema": {"decay": 0.9, "module": {"a.weight": 1.0, "n.num_batches_tracked": 2.0}}}
    )
    assert (
        "under 'model_ema' lack 21 of the 22 tensors under 'model': 'more.0', 'more.1', 'more.10'" in message
    )
    assert "and 16 more" in message and "torch.save(checkpoint['model'], FILE)" in message


def test_wrappers_in_wrappers() -> None:
    found = unwrapped({"module": {"state_dict": {"model": {"_orig_mod.a": 1.0}}, "step": 5}})
    assert found.tensors == {"a": 1.0}
    assert found.notes == (
        "read under 'module'",
        "read under 'state_dict'; ignored 'step'",
        "read under 'model'",
        "prefix '_orig_mod.' removed",
    )


def test_a_known_key_without_tensors_is_passed_over() -> None:
    assert (
        unwrapped({"state_dict": {"step": 1}, "model": "mobilenet", "net": RAW_WEIGHTS}).tensors
        == RAW_WEIGHTS
    )


def test_a_known_key_goes_before_others_that_hold_more() -> None:
    best, last = {f"layer.{number}": 2.0 for number in range(9)}, {"a": 1.0}
    assert unwrapped({"best": best, "model": last, "worst": best}).tensors == last


def test_several_state_dicts_under_keys_of_their_own() -> None:
    found = unwrapped(
        {
            "student": {"module.a": 1.0},
            "teacher": {"model": {"a": 2.0}},
            "optimizer": {"state": {0: {"m": 5.0}}},
        }
    )
    assert found.tensors == {"student.a": 1.0, "teacher.a": 2.0}
    assert found.notes == (
        "read under 'student', 'teacher', with each key before its names; ignored 'optimizer'",
        "'student': prefix 'module.' removed",
        "'teacher': read under 'model'",
    )


def test_what_is_beside_the_tensors_is_noted() -> None:
    assert unwrapped({"a": 1.0, "arch": "net", 3: 1.0}) == StateDict(
        {"a": 1.0}, ("ignored '3', 'arch', which are not tensors",)
    )


def test_prefixes_on_some_names_are_names() -> None:
    state = {"module.a": 1.0, "b": 2.0}
    assert unwrapped(state) == StateDict(state)
    assert unwrapped({"n_averaged": 1.0, **state}).tensors == {"n_averaged": 1.0, **state}


def test_scopes_stay() -> None:
    state = {"model.features.0": 1.0, "model.classifier": 2.0}
    assert unwrapped({"state_dict": {**state, "criterion.weight": 1.0}}).tensors == {
        **state,
        "criterion.weight": 1.0,
    }
    assert unwrapped(state) == StateDict(state)


@pytest.mark.parametrize(
    "loaded", [None, 5, 1.0, [RAW_WEIGHTS], {}, {"epoch": 3}, {3: 1.0}, {"model": {"a": "b"}}, {"ema": None}]
)
def test_no_state_dict(loaded: object) -> None:
    assert "expected a state_dict" in refused(loaded)


def test_an_optimiser_s_state_is_no_model() -> None:
    state = {"state": {0: {"exp_avg": RAW_WEIGHTS}}, "param_groups": [{"lr": 0.1}]}
    for loaded in (state, {"optimizer": state, "epoch": 3}):
        assert "found an optimiser's state" in refused(loaded)


def test_packed_weights_are_no_tensors() -> None:
    said = refused({"fc.scale": 1.0, "fc._packed_params._packed_params": (1, 2)})
    assert "layer 'fc' is quantised" in said


def endless() -> Mapping[str, Any]:
    """Mappings that hold themselves and one another under every key."""
    rings: list[dict[str, Any]] = [{} for _ in range(50)]
    for ring in rings:
        ring |= dict.fromkeys((*KEYS_OF_RAW, *KEYS_OF_AVERAGES, "other"), rings[0])
        ring |= {f"key{number}": other for number, other in enumerate(rings)}
    return rings[0]


def test_mappings_that_hold_themselves() -> None:
    assert "found no tensor" in refused(endless())
    assert unwrapped({**endless(), "net": RAW_WEIGHTS}).tensors == RAW_WEIGHTS


def test_depth_and_prefixes_without_end() -> None:
    nested: dict[str, Any] = dict(RAW_WEIGHTS)
    for _ in range(5000):
        nested = {"model": nested}
    assert "found no tensor" in refused(nested)
    assert list(unwrapped({"module." * 5000 + "a": 1.0}).tensors) == ["module." * 4994 + "a"]


def test_listed() -> None:
    assert list_keys([]) == "nothing"
    assert list_keys(["b", "a\n", 3]) == r"'3', 'a\n', 'b'"
    assert list_keys(range(10, 20)).endswith("'14', and 5 more")
    assert len(list_keys(["x" * 1000])) <= 80
