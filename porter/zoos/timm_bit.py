"""Google's Big Transfer, which timm builds in torch and fills from Google's files with its own code.

Google's code adds 1e-10 to the variance of a kernel (StdConv2d in bit_pytorch/models.py), timm's 1e-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Dtype
from porter.base.errors import CannotRun
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import KnownSize
from porter.zoos.implementation import Implementation, other_code
from porter.zoos.tables import TIMM_BIT
from porter.zoos.timm_jax import from_npz

if TYPE_CHECKING:
    from torch import nn

_EPSILON = 1e-10


def build(
    variant: str,
    classes: int,
    size: KnownSize,
    checkpoint: Checkpoint,
    dtype: Dtype,
    options: Mapping[str, Any] = {},
) -> nn.Module:
    """See porter.zoos.implementation.Build."""
    if options:
        raise CannotRun(
            f"porter cannot build timm's BiT with another value of {', '.join(sorted(options))}",
            next=other_code(),
        )
    model = from_npz(TIMM_BIT[variant][0], {"num_classes": classes}, checkpoint, dtype)
    from timm.layers.std_conv import StdConv2d

    for module in model.modules():
        if isinstance(module, StdConv2d):
            module.eps = _EPSILON
    return model


IMPLEMENTATION = Implementation(build, runs_at_any_size=lambda _: True, engine="torch")
