"""DeiT III as big_vision publishes it, for JAX: timm builds the network in torch, whose class token has no
position, and fills it from Google's files with its own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.zoos.implementation import BuildRequest, Implementation
from porter.zoos.tables import TIMM_BIG_VISION, takes_any_size
from porter.zoos.timm_jax import from_npz, settings_of

if TYPE_CHECKING:
    from torch import nn


def build(request: BuildRequest) -> nn.Module:
    """Build as porter.zoos.implementation.Build says."""
    settings = settings_of(request) | {"no_embed_class": True}
    return from_npz(TIMM_BIG_VISION[request.variant][0], settings, request)


IMPLEMENTATION = Implementation(build, runs_at_any_size=takes_any_size, engine="torch")
