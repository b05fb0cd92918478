"""Torchvision's own models: implementations that porter did not write, for proofs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn

from porter.dtypes import Dtype
from porter.errors import MappingError, MissingFramework, UsageError
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.torch.graph_module import to_tensor

# Variant to torchvision's builder and its arguments. A closed table: nothing from a recipe names what is imported or called.
_BUILDERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mobilenet_v2": ("mobilenet_v2", {}),
    "resnet18": ("resnet18", {}),
    "resnet34": ("resnet34", {}),
    "resnet50": ("resnet50", {}),
    "resnet101": ("resnet101", {}),
    "resnet152": ("resnet152", {}),
    "resnext50_32x4d": ("resnext50_32x4d", {}),
    "resnext101_32x8d": ("resnext101_32x8d", {}),
    "resnext101_64x4d": ("resnext101_64x4d", {}),
    "wide_resnet50_2": ("wide_resnet50_2", {}),
    "wide_resnet101_2": ("wide_resnet101_2", {}),
}


def build_torchvision(variant: str, classes: int, checkpoint: Checkpoint, dtype: Dtype) -> nn.Module:
    """Torchvision's model of `variant` with the tensors of `checkpoint`, in `dtype`, in eval mode.

    Raises:
        UsageError: torchvision has no such model. MappingError: the tensors are not exactly its own.
        MissingFramework: torchvision cannot be imported.
    """
    if variant not in _BUILDERS:
        raise UsageError(f"porter knows no torchvision model '{variant}'", next=f"torchvision's are {', '.join(_BUILDERS)}")
    name, arguments = _BUILDERS[variant]
    # On no device, so that no time goes into random weights that are replaced at once.
    with torch.device("meta"):
        model: nn.Module = getattr(import_models(), name)(weights=None, num_classes=classes, **arguments)
    state = {key: to_tensor(array) for key, array in checkpoint.tensors.items()}
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise MappingError(
            "torchvision's model does not take these tensors: " + " ".join(str(error).split()), where=str(checkpoint.path)
        ) from None
    return model.to(getattr(torch, dtype)).eval()


def import_models() -> ModuleType:
    """torchvision.models, also beside a torch that torchvision's compiled part was not made for.

    Its compiled part is linked to CUDA and does not load beside a CPU torch; its import then stops at operators for detection
    that are not defined. No classifier uses them, so their schemas alone will do.

    Raises:
        MissingFramework: it cannot be imported.
    """
    try:
        try:
            return import_module("torchvision.models")
        except RuntimeError as error:
            if "operator torchvision::nms does not exist" not in str(error):
                raise
            _define_detection_operators()
            return import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        raise MissingFramework(
            f"torchvision cannot be imported: {error}", next="pip install the torchvision that belongs to your torch"
        ) from None


@cache
def _define_detection_operators() -> torch.library.Library:
    """Cached, since the operators live as long as the library object."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    return library
