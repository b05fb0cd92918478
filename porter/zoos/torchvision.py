"""Torchvision's and timm's own models: implementations that porter did not write, for proofs."""

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
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.torch.graph_module import to_tensor
from porter.zoos.stock import StockClass
from porter.zoos.tables import REFERENCES, TORCHVISION


def build_stock(
    reference: str, variant: str, classes: int, checkpoint: Checkpoint, dtype: Dtype, options: Mapping[str, Any] = {}
) -> nn.Module:
    """The model of `variant` that the library `reference` has, with the tensors of `checkpoint`, in `dtype`, in eval mode.

    Args:
        options: the recipe's options that differ from the zoo's own. They have to be arguments of the builder.

    Raises:
        UsageError: the library has no such model. MappingError: the tensors are not exactly the model's.
        MissingFramework: the library cannot be imported, or its builder has no such argument.
    """
    builders = REFERENCES["torch"][reference]
    if variant not in builders:
        raise UsageError(f"porter knows no {reference} model '{variant}'", next=f"{reference}'s are {', '.join(builders)}")
    name, arguments = builders[variant]
    if foreign := sorted(options.keys() - arguments.keys()):
        raise MissingFramework(f"{reference}.{name} cannot be built with another {', '.join(foreign)}")
    builder = getattr(import_models() if reference == "torchvision" else import_timm(), name)
    # On no device, because random weights would take time and be replaced at once. Nothing is downloaded.
    with torch.device("meta"):
        model: nn.Module = builder(num_classes=classes, **{**arguments, **options})
    state = {key: to_tensor(array) for key, array in checkpoint.tensors.items()}
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise MappingError(
            f"{reference}'s model does not take these tensors: " + " ".join(str(error).split()), where=str(checkpoint.path)
        ) from None
    return model.to(getattr(torch, dtype)).eval()


def stock_builder(variant: str, classes: int) -> StockClass:
    """Torchvision's builder of `variant`.

    Raises:
        UsageError: it has none.
    """
    if variant not in TORCHVISION:
        raise UsageError(f"torchvision has no class of {variant}", where="--stock", next="convert without --stock")
    name, arguments = TORCHVISION[variant]
    return StockClass(f"torchvision.models.{name}", {"num_classes": classes, **arguments})


def import_models() -> ModuleType:
    """torchvision.models, also with a torch for which torchvision's compiled part was not made.

    The compiled part is linked to CUDA and does not load with a CPU torch. The import then stops at undefined operators for
    detection. No classifier uses them, so it is enough to define their schemas.

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


def import_timm() -> ModuleType:
    """timm.models, which needs torchvision; see `import_models`.

    Raises:
        MissingFramework: it or torchvision cannot be imported.
    """
    import_models()
    try:
        return import_module("timm.models")
    except (ImportError, RuntimeError) as error:
        raise MissingFramework(f"timm cannot be imported: {error}", next="pip install timm") from None


@cache
def _define_detection_operators() -> torch.library.Library:
    """Cached, because the operators live as long as the library object."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    return library
