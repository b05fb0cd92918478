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

from porter.base.dtypes import Dtype
from porter.base.errors import CannotRun, MappingError
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.padding import KnownSize
from porter.zoos.implementation import Implementation, other_code
from porter.zoos.tables import SIDE, TIMM_JAX, takes_any_size
from porter.zoos.timm import import_timm

if TYPE_CHECKING:
    from torch import nn

_GELU = {True: "gelu_tanh", False: "gelu"}


def build(
    variant: str,
    classes: int,
    size: KnownSize,
    checkpoint: Checkpoint,
    dtype: Dtype,
    options: Mapping[str, Any] = {},
) -> nn.Module:
    """See porter.zoos.implementation.Build."""
    return from_npz(TIMM_JAX[variant][0], settings_of(classes, size, options), checkpoint, dtype)


def settings_of(classes: int, size: KnownSize, options: Mapping[str, Any]) -> dict[str, Any]:
    """What timm's transformers are built with to be Google's.

    Raises:
        CannotRun: they cannot be, with these options.
    """
    if foreign := sorted(options.keys() - {SIDE, "tanh_gelu"}):
        raise CannotRun(
            f"porter cannot build timm's transformer with another value of {', '.join(foreign)}",
            next=other_code(),
        )
    gelu = _GELU[options.get("tanh_gelu", True)]
    return {"num_classes": classes, "act_layer": gelu, "img_size": size[0]}


def from_npz(name: str, settings: Mapping[str, Any], checkpoint: Checkpoint, dtype: Dtype) -> nn.Module:
    """timm's model of a name, filled by its own code for Google's files.

    Raises:
        MappingError: the tensors are not the model's.
    """
    for package in ("torch", "torchvision", "timm"):
        expect_installed(package, "pip install timm")
    builder = getattr(import_timm(), name)
    import torch

    with torch.device("meta"):
        model: nn.Module = builder(**settings)
    model = model.to(getattr(torch, dtype)).to_empty(device="cpu").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    file = io.BytesIO()
    np.savez(file, **checkpoint.tensors)  # type: ignore[arg-type]
    file.seek(0)
    try:
        model.load_pretrained(file)  # type: ignore[operator]
    except (KeyError, RuntimeError, ValueError) as error:
        raise MappingError(f"timm does not load these tensors: {error}", where=checkpoint.path) from None
    if lacking := [name for name, parameter in model.named_parameters() if parameter.isnan().any()]:
        raise MappingError(f"timm finds no numbers for {lacking[0]}", where=checkpoint.path)
    return model


IMPLEMENTATION = Implementation(build, runs_at_any_size=takes_any_size, engine="torch")
