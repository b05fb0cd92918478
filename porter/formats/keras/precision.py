"""The number types that a Keras model's config states for its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from porter.base.dtypes import HALVES, Dtype

POLICIES = frozenset({"float32", "float64", *HALVES, *(f"mixed_{half}" for half in HALVES)})
"""What a layer's `dtype` may say: `mixed_float16` computes in float16, and its variables are float32."""


def policy_of(stated: Any) -> str:
    """The name in a layer's `dtype`, which is that name or describes a policy; `float32` where it is none of
    POLICIES.
    """
    while isinstance(stated, Mapping):  # a map of policies has one for the layer, and others for its parts
        config = stated.get("config") or {}
        stated = config.get("name") or config.get("default_policy")
    return stated if isinstance(stated, str) and stated in POLICIES else "float32"


def computing(stated: Any) -> Dtype:
    """The type in which a layer computes."""
    return cast(Dtype, policy_of(stated).removeprefix("mixed_"))


def halves_in(config: Any) -> tuple[Dtype, ...]:
    """The types of half precision that any part of a config states."""
    found = {computing(stated) for stated in _stated(config)}
    return tuple(half for half in HALVES if half in found)


def _stated(config: Any) -> Iterator[Any]:
    """Every `dtype` in a config."""
    match config:
        case Mapping():
            for name, value in config.items():
                if name == "dtype":
                    yield value
                else:
                    yield from _stated(value)
        case list():
            for value in config:
                yield from _stated(value)
