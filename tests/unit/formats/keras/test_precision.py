"""The number types that Keras's configs state."""

from __future__ import annotations

from typing import Any

import pytest

from porter.formats.keras.precision import compute_type, halves_in, policy_of


def policy(name: Any, kind: str = "DTypePolicy") -> dict[str, Any]:
    return {"module": "keras", "class_name": kind, "config": {"name": name}}


MAP = {
    "class_name": "DTypePolicyMap",
    "config": {"default_policy": policy("mixed_bfloat16"), "policy_map": {}},
}
STATED: list[tuple[Any, str, str]] = [
    (None, "float32", "float32"),
    ("float16", "float16", "float16"),
    ("mixed_float16", "mixed_float16", "float16"),
    (policy("mixed_bfloat16"), "mixed_bfloat16", "bfloat16"),
    (policy("mixed_float16", "Policy"), "mixed_float16", "float16"),
    (MAP, "mixed_bfloat16", "bfloat16"),
    ("float64", "float64", "float64"),
    ("uint8", "float32", "float32"),
    ("int8_from_mixed_float16", "float32", "float32"),
    (policy(["float16"]), "float32", "float32"),
    (policy({"config": None}), "float32", "float32"),
    (3, "float32", "float32"),
]


@pytest.mark.parametrize(("stated", "name", "type"), STATED)
def test_what_a_dtype_says(stated: Any, name: str, type: str) -> None:
    assert (policy_of(stated), compute_type(stated)) == (name, type)
    config = {"layers": [{"config": {"dtype": "float32", "layers": [{"config": {"dtype": stated}}]}}]}
    assert halves_in(config) == ((type,) if type in ("float16", "bfloat16") else ())


def test_both_halves() -> None:
    assert halves_in([{"dtype": "bfloat16"}, {"dtype": "mixed_float16"}]) == ("float16", "bfloat16")
