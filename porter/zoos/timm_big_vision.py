"""DeiT III as big_vision publishes it, for JAX: timm builds the network in torch, whose class token has no
position, and fills it from Google's files with its own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Dtype
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import KnownSize
from porter.zoos.implementation import Implementation
from porter.zoos.tables import TIMM_BIG_VISION, takes_any_size
from porter.zoos.timm_jax import from_npz, settings_of

if TYPE_CHECKING:
    from torch import nn


def build(
    variant: str,
    classes: int,
    size: KnownSize,
    checkpoint: Checkpoint,
    dtype: Dtype,
    options: Mapping[str, Any] = {},
) -> nn.Module:
    """See porter.zoos.implementation.Build."""
    settings = settings_of(classes, size, options) | {"no_embed_class": True}
    return from_npz(TIMM_BIG_VISION[variant][0], settings, checkpoint, dtype)


IMPLEMENTATION = Implementation(build, runs_at_any_size=takes_any_size, engine="torch")
