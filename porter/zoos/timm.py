"""timm's own models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from math import floor
from pathlib import Path
from types import ModuleType
from typing import Any

from porter.base.dtypes import Array, Dtype
from porter.base.errors import MissingFramework, UsageError
from porter.data.preprocess import Preprocess
from porter.graph.plan import Plan
from porter.padding import Size
from porter.zoos.implementation import Implementation, StockClass, StockLibrary, StockModel
from porter.zoos.tables import TIMM, Call
from porter.zoos.torchvision import build_by, import_models

CONFIG_FILE = "config.json"


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


def implementation(builders: Mapping[str, Call]) -> Implementation:
    """The models of a table, by variant."""

    def stock_class(model: StockModel, size: Size) -> StockClass:
        """timm's model of a variant, which takes every input size.

        Raises:
            UsageError: it has none.
        """
        if model.variant not in builders:
            raise UsageError(f"timm has no model of {model.variant}", where="--stock", next="convert without --stock")
        name, arguments = builders[model.variant]
        return StockClass("timm.create_model", {"model_name": name, "num_classes": model.classes, **arguments}, cautions(model))

    def write_stock(
        folder: Path, plan: Plan, model: StockModel, arrays: Mapping[str, Array], layers: Mapping[str, str], dtype: Dtype
    ) -> dict[str, str]:
        """Writes `model.safetensors`, a state_dict of timm's model, `model.py`, and the `config.json` with which
        `timm.create_model("local-dir:FOLDER", pretrained=True)` opens the folder.
        """
        from porter.frameworks.torch.port_files import write_stock

        name, arguments = builders[model.variant]
        ends = layers[plan.graph.nodes[0].path], layers[plan.graph.output]
        text = json.dumps(_config(model, name, arguments, ends), indent=2).encode()
        (folder / CONFIG_FILE).write_bytes(text)
        return {**write_stock(folder, plan, arrays, layers), CONFIG_FILE: sha256(text).hexdigest()}

    stock = StockLibrary(stock_class, write_stock, takes_any_size=True)
    return Implementation(build_by("timm", builders, import_timm), runs_at_any_size=lambda variant: True, stock=stock)


def cautions(model: StockModel) -> tuple[str, ...]:
    """What timm's own transforms, made from its config.json, do otherwise than the port's protocol."""
    taken = model.preprocess
    if taken is None:
        return ()
    differs = {
        f"it resizes by Pillow, the protocol by {taken.interpolation}": taken.interpolation not in _interpolations(),
        "it keeps no part of the photo before resizing": taken.central_fraction is not None,
        "it feeds RGB": taken.channels != "rgb",
        "it resizes": taken.resize == "none",
    }
    return tuple(f"timm's transforms from {CONFIG_FILE} are not the port's protocol: {said}" for said, so in differs.items() if so)


def _config(model: StockModel, name: str, arguments: Mapping[str, Any], ends: tuple[str, str]) -> dict[str, Any]:
    """The content of config.json (timm/models/_hub.py).

    Args:
        ends: the names of the first convolution and of the classifier.
    """
    about: dict[str, Any] = {
        "custom_load": False,
        "input_size": [3, *model.size],
        "fixed_input_size": False,
        "first_conv": ends[0],
        "classifier": ends[1],
        **({} if model.preprocess is None else _transforms(model.preprocess)),
    }
    names = {"label_names": list(model.class_names)} if model.class_names else {}
    given = {"model_args": dict(arguments)} if arguments else {}
    return {"architecture": name, "num_classes": model.classes, **names, "pretrained_cfg": about, **given}


def _transforms(taken: Preprocess) -> dict[str, Any]:
    """A protocol as timm's transforms state it: they scale pixels to 0 to 1 before mean and std."""
    side = taken.crop or taken.size
    mean, std = ([round(value * taken.divide / 255, 9) for value in values] for values in (taken.mean, taken.std))
    return {
        "input_size": [3, side, side],
        "interpolation": _interpolations().get(taken.interpolation, "bilinear"),
        "crop_pct": _share(side, taken.size),
        "crop_mode": "squash" if taken.resize == "squash" else "center",
        "mean": mean,
        "std": std,
    }


def _interpolations() -> dict[str, str]:
    return {f"pil_{name}": name for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")}


def _share(crop: int, size: int) -> float:
    """The share of which timm makes `size` again: it takes the whole part of crop / share."""
    shares = (round(crop / size, digits) for digits in range(3, 17))
    return next((share for share in shares if floor(crop / share) == size), crop / (size + 0.5))


IMPLEMENTATION = implementation(TIMM)
