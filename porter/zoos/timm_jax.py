"""Google's vision transformers of JAX, which timm builds in torch and fills from Google's files with its own
code.

JAX's GELU is the approximation by a tanh (flax.linen.gelu), which timm's models have under another name;
timm's own ports compute the exact one.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from porter.base.errors import MappingError
from porter.base.package import expect_installed
from porter.zoos.implementation import BuildRequest, Implementation, expect_usual
from porter.zoos.tables import SIDE, TIMM_JAX, takes_any_size
from porter.zoos.timm import import_timm

if TYPE_CHECKING:
    from torch import nn

_GELU = {True: "gelu_tanh", False: "gelu"}


def build(request: BuildRequest) -> nn.Module:
    """Build as porter.zoos.implementation.Build says."""
    return from_npz(TIMM_JAX[request.variant][0], settings_of(request), request)


def settings_of(request: BuildRequest) -> dict[str, Any]:
    """Return the arguments with which timm's transformer is Google's: its GELU, its number of classes and
    its size.

    Raises:
        CannotRun: they cannot be, with these options.
    """
    expect_usual("timm's transformer", request.options.keys() - {SIDE, "tanh_gelu"})
    gelu = _GELU[request.options.get("tanh_gelu", True)]
    return {"num_classes": request.classes, "act_layer": gelu, "img_size": request.size[0]}


def from_npz(name: str, settings: Mapping[str, Any], request: BuildRequest) -> nn.Module:
    """Build timm's model of a name with the tensors of a request, by timm's own code for Google's .npz
    files.

    Raises:
        MappingError: the tensors are not the model's.
    """
    for package in ("torch", "torchvision", "timm"):
        expect_installed(package, "pip install timm")
    builder = getattr(import_timm(), name)
    import torch

    with torch.device("meta"):
        model: nn.Module = builder(**settings)
    model = model.to(getattr(torch, request.dtype)).to_empty(device="cpu").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # NaN shows a parameter that was not loaded.
            parameter.fill_(torch.nan)
    file = io.BytesIO()
    np.savez(file, **request.checkpoint.tensors)  # type: ignore[arg-type]
    file.seek(0)
    try:
        model.load_pretrained(file)  # type: ignore[operator]
    except (KeyError, RuntimeError, ValueError) as error:
        raise MappingError(
            f"timm does not load these tensors: {error}", where=request.checkpoint.path
        ) from None
    if lacking := [name for name, parameter in model.named_parameters() if parameter.isnan().any()]:
        raise MappingError(f"timm finds no numbers for {lacking[0]}", where=request.checkpoint.path)
    return model


IMPLEMENTATION = Implementation(build, runs_at_any_size=takes_any_size, engine="torch")
