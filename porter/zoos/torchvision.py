"""Torchvision's own models."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from porter.base.dtypes import Dtype, NamedArrays
from porter.base.errors import MappingError, NotInstalled, UsageError
from porter.base.options import STOCK
from porter.base.package import expect_installed, install
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.triton import load_triton
from porter.frameworks import LayerNames
from porter.graph.plan import Plan
from porter.padding import Size
from porter.zoos.implementation import (
    Build,
    BuildRequest,
    Implementation,
    StockClass,
    StockLibrary,
    StockModel,
    expect_usual,
)
from porter.zoos.tables import OF_ONE_SIZE, SIDE, TORCHVISION, Call, takes_any_size

if TYPE_CHECKING:
    import torch
    from torch import nn


def build_by(
    library: str,
    builders: Mapping[str, Call],
    models: Callable[[], ModuleType],
    has: Callable[[str], bool] = lambda name: False,
) -> Build:
    """Return a function that builds the models of `library` in eval mode, by its builders of the variants in
    the module that `models` imports. Options have to be arguments of the builder.

    Args:
        library: the name that errors say.
        builders: by variant, the builder's name and its arguments.
        models: imports the module.
        has: whether the module has a builder of the same name as a variant that is not in `builders`.
    """

    def build(request: BuildRequest) -> nn.Module:
        """Build the model of a request on no device, then load the checkpoint's tensors into it."""
        for package in ("torch", "torchvision", library):
            expect_installed(package, "pip install timm" if package == "timm" else install("torch"))
        if request.variant not in builders and not has(request.variant):
            raise UsageError(
                f"porter knows no {library} model '{request.variant}'",
                next=f"{library}'s are {', '.join(builders)}",
            )
        name, arguments = builders.get(request.variant, (request.variant, {}))
        # The size of the request says what SIDE says.
        options = {option: value for option, value in request.options.items() if option != SIDE}
        expect_usual(f"{library}.{name}", options.keys() - arguments.keys())
        builder = getattr(models(), name, None) or models().model_entrypoint(name)
        built_for = {} if takes_any_size(request.variant) else {OF_ONE_SIZE[library]: request.size[0]}
        import torch

        # On no device, because random weights would take time and be replaced at once. Nothing is downloaded.
        make = partial(builder, num_classes=request.classes, **{**arguments, **built_for, **options})
        try:
            with torch.device("meta"):
                model: nn.Module = make()
        except NotImplementedError:  # torchvision's RegNets compute their widths with tensors
            with torch.random.fork_rng(devices=()):
                model = make()
        _load(library, model, request.checkpoint)
        return model.to(getattr(torch, request.dtype)).eval()

    return build


def _load(library: str, model: nn.Module, checkpoint: Checkpoint) -> None:
    """Load a checkpoint's tensors into a model; all of both have to fit.

    Raises:
        MappingError: they do not.
    """
    from porter.frameworks.torch.graph_module import to_tensor

    state = OrderedDict((key, to_tensor(array)) for key, array in checkpoint.tensors.items())
    # MNASNet's loader asks which version of its code wrote them.
    state._metadata = {"": {"version": model._version}}  # type: ignore[attr-defined]
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise MappingError(
            f"{library}'s model does not take these tensors: " + " ".join(str(error).split()),
            where=checkpoint.path,
        ) from None


def stock_class(model: StockModel, size: Size) -> StockClass:
    """Return torchvision's builder of a variant; its models take every input size.

    Raises:
        UsageError: it has none.
    """
    variant, classes = model.variant, model.classes
    if variant not in TORCHVISION:
        raise UsageError(
            f"torchvision has no class of {variant}", where=STOCK, next=f"convert without {STOCK}"
        )
    name, arguments = TORCHVISION[variant]
    return StockClass(f"torchvision.models.{name}", {"num_classes": classes, **arguments})


def write_stock(
    folder: Path,
    plan: Plan,
    model: StockModel,
    arrays: NamedArrays,
    layers: LayerNames,
    dtype: Dtype,
) -> dict[str, str]:
    """Write `model.safetensors`, a state_dict of torchvision's class, and `model.py`."""
    from porter.frameworks.torch.port_files import write_stock

    return write_stock(folder, plan, arrays, layers)


def import_models() -> ModuleType:
    """Import torchvision.models, also with a torch for which torchvision's compiled part was not made.

    The compiled part is linked to CUDA and does not load with a CPU torch. The import then stops at undefined
    operators for detection. No classifier uses them, so it is enough to define their schemas.

    Raises:
        NotInstalled: it cannot be imported.
    """
    load_triton()
    try:
        try:
            return import_module("torchvision.models")
        except RuntimeError as error:
            if "operator torchvision::nms does not exist" not in str(error):
                raise
            _define_detection_operators()
            return import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        raise NotInstalled(
            f"torchvision cannot be imported: {error}",
            next="pip install the torchvision that belongs to your torch",
        ) from None


@cache
def _define_detection_operators() -> torch.library.Library:
    """Define the operators that the import asks for. Cached, because they live as long as the library
    object.
    """
    import torch

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    return library


IMPLEMENTATION = Implementation(
    build_by("torchvision", TORCHVISION, import_models),
    runs_at_any_size=takes_any_size,
    stock=StockLibrary(stock_class, write_stock, takes_any_size=True),
)
