"""Google's Big Transfer, which timm builds in torch and fills from Google's files with its own code.

Google's code adds 1e-10 to the variance of a kernel (StdConv2d in bit_pytorch/models.py), timm's 1e-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.zoos.implementation import BuildRequest, Implementation, expect_usual
from porter.zoos.tables import TIMM_BIT
from porter.zoos.timm_jax import from_npz

if TYPE_CHECKING:
    from torch import nn

_EPSILON = 1e-10


def build(request: BuildRequest) -> nn.Module:
    """Build timm's BiT model of a request, with the tensors of Google's file and the epsilon of Google's
    code; see porter.zoos.implementation.Build.

    Raises:
        CannotRun: the request has options of the recipe.
        MappingError: the tensors are not the model's.
    """
    expect_usual("timm's BiT", request.options)
    model = from_npz(TIMM_BIT[request.variant][0], {"num_classes": request.classes}, request)
    from timm.layers.std_conv import StdConv2d

    for module in model.modules():
        if isinstance(module, StdConv2d):
            module.eps = _EPSILON
    return model


IMPLEMENTATION = Implementation(build, runs_at_any_size=lambda _: True, engine="torch")
