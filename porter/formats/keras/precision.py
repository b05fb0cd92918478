"""The number types that a Keras model's config states for its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from porter.base.dtypes import HALVES, Dtype

POLICIES = frozenset({"float32", "float64", *HALVES, *(f"mixed_{half}" for half in HALVES)})
"""What a layer's `dtype` may say: `mixed_float16` computes in float16, and its variables are float32."""


def policy_of(dtype: Any) -> str:
    """Return the name in a layer's `dtype`, which is that name or describes a policy; `float32` where it is
    none of POLICIES.
    """
    while isinstance(dtype, Mapping):  # a map of policies has one for the layer, and others for its parts
        config = dtype.get("config") or {}
        dtype = config.get("name") or config.get("default_policy")
    return dtype if isinstance(dtype, str) and dtype in POLICIES else "float32"


def compute_type(dtype: Any) -> Dtype:
    """Return the type in which a layer computes."""
    return cast(Dtype, policy_of(dtype).removeprefix("mixed_"))


def halves_in(config: Any) -> tuple[Dtype, ...]:
    """Return the types of half precision that any part of a config states."""
    types = {compute_type(dtype) for dtype in _dtypes_in(config)}
    return tuple(half for half in HALVES if half in types)


def _dtypes_in(config: Any) -> Iterator[Any]:
    """Yield every `dtype` in a config, at any depth of its objects and lists."""
    match config:
        case Mapping():
            for name, value in config.items():
                if name == "dtype":
                    yield value
                else:
                    yield from _dtypes_in(value)
        case list():
            for value in config:
                yield from _dtypes_in(value)
