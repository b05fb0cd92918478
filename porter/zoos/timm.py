"""timm's own models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from porter.base.dtypes import Dtype, NamedArrays
from porter.base.errors import NotInstalled, UsageError
from porter.base.options import STOCK
from porter.data.timm_config import CONFIG_FILE, differences_of_timm, to_timm
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import LayerNames
from porter.graph.plan import Plan
from porter.padding import Size
from porter.zoos.hub_folders import BuiltModel, stated_size
from porter.zoos.implementation import Implementation, StockClass, StockLibrary, StockModel
from porter.zoos.tables import TIMM, TIMM_TF, UNLIKE_TIMM, WITH_EPSILON, Call, takes_any_size
from porter.zoos.torchvision import build_by, import_models

_WEIGHT_ARGUMENTS = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}
)
"""Arguments of timm.create_model that name weights other than the folder's."""
Builders: TypeAlias = Mapping[str, Call]
"""The name of timm's model and its arguments, by variant."""
_CHANNELS = 3
"""timm's own where `in_chans` says nothing. A first convolution may have more: TResNet's has 4x4 pixels."""

_WRAPPER_PREFIX = "timm_model."
"""What TimmWrapperModel and TimmWrapperForImageClassification of transformers 5 put before timm's names."""


def import_timm() -> ModuleType:
    """Import timm.models, which needs torchvision; see `import_models`.

    Raises:
        NotInstalled: it or torchvision cannot be imported.
    """
    import_models()
    try:
        return import_module("timm.models")
    except (ImportError, RuntimeError) as error:
        raise NotInstalled(f"timm cannot be imported: {error}", next="pip install timm") from None


def implementation(builders: Builders) -> Implementation:
    """Make an implementation of the models of a table."""
    return Implementation(
        build_by("timm", builders, import_timm, lambda name: bool(import_timm().is_model(name))),
        runs_at_any_size=takes_any_size,
        stock=StockLibrary(
            partial(_stock_class, builders), partial(_write_stock, builders), takes_any_size=True
        ),
    )


def _call_for(builders: Builders, model: StockModel) -> tuple[Call, dict[str, float]]:
    """Return the call that builds a model with the source's epsilon, where it takes one, and the recipe's
    option that says so.
    """
    name, arguments = builders[model.variant]
    if model.epsilon is None or not name.removeprefix("tf_").startswith(WITH_EPSILON):
        return (name, arguments), {}
    # timm's default of the names that begin with tf_, and of the others
    default_epsilon = arguments.get("bn_eps", 1e-3 if name.startswith("tf_") else 1e-5)
    if model.epsilon != default_epsilon:
        arguments = {**arguments, "bn_eps": model.epsilon}
    return (name, arguments), {"bn_epsilon": model.epsilon}


def _stock_class(builders: Builders, model: StockModel, size: Size) -> StockClass:
    """Return timm's model of a variant, which takes every input size.

    Raises:
        UsageError: it has none.
    """
    if model.variant not in builders:
        reason = UNLIKE_TIMM.get(model.variant)
        message = f"timm has no model of {model.variant}"
        if reason:
            message += f": {reason}"
        raise UsageError(message, where=STOCK, next=f"convert without {STOCK}")
    (name, arguments), options = _call_for(builders, model)
    unlike = differences_of_timm(model.preprocess) if model.preprocess else ()
    cautions = tuple(
        f"timm's transforms from {CONFIG_FILE} are not the port's protocol: {reason}" for reason in unlike
    )
    return StockClass(
        "timm.create_model",
        {"model_name": name, "num_classes": model.classes, **arguments},
        cautions,
        options,
    )


def _write_stock(
    builders: Builders,
    folder: Path,
    plan: Plan,
    model: StockModel,
    arrays: NamedArrays,
    layers: LayerNames,
    dtype: Dtype,
) -> dict[str, str]:
    """Write `model.safetensors`, a state_dict of timm's model, `model.py`, and the `config.json` with which
    `timm.create_model("local-dir:FOLDER", pretrained=True)` opens the folder.
    """
    from porter.frameworks.torch.port_files import write_stock

    (name, arguments), _ = _call_for(builders, model)
    first_layer = next(layers[node.path] for node in plan.graph.nodes if node.path in layers)
    ends = first_layer, layers[plan.graph.output]
    text = json.dumps(_config(model, name, arguments, ends), indent=2).encode()
    (folder / CONFIG_FILE).write_bytes(text)
    return {**write_stock(folder, plan, arrays, layers), CONFIG_FILE: sha256(text).hexdigest()}


def _config(
    model: StockModel, name: str, arguments: Mapping[str, Any], ends: tuple[str, str]
) -> dict[str, Any]:
    """Return the content of config.json, with which timm opens a folder (timm/models/_hub.py).

    Args:
        name, arguments: of the call that builds the model.
        ends: the names of the first convolution and of the classifier.
    """
    pretrained_cfg: dict[str, Any] = {
        "custom_load": False,
        "input_size": [3, *model.size],
        "fixed_input_size": False,
        "first_conv": ends[0],
        "classifier": ends[1],
        **({} if model.preprocess is None else to_timm(model.preprocess)),
    }
    names = {"label_names": list(model.class_names)} if model.class_names else {}
    model_args = {"model_args": dict(arguments)} if arguments else {}
    return {
        "architecture": name,
        "num_classes": model.classes,
        **names,
        "pretrained_cfg": pretrained_cfg,
        **model_args,
    }


def build_stated(config: Mapping[str, Any], checkpoint: Checkpoint) -> BuiltModel:
    """Build a model of timm, with the weights of its folder, as porter.zoos.hub_folders.Library says.
    Arguments that name other weights are refused.

    Raises:
        UsageError: there is no such model, or its arguments are refused.
        NotInstalled: timm is not installed.
    """
    library = import_timm()
    name = str(config["architecture"]).partition(".")[0]
    where = str(checkpoint.path.parent / CONFIG_FILE)
    model_args = config.get("model_args") or {}
    version = f"timm {import_module('timm').__version__}"
    if not library.is_model(name):
        raise UsageError(
            f"{version} has no model '{name:.80}'", where=where, next="pip install --upgrade timm"
        )
    problem = None
    if not isinstance(model_args, dict):
        problem = "is no table of arguments"
    elif naming_weights := _WEIGHT_ARGUMENTS.intersection(model_args):
        problem = f"has '{min(naming_weights)}', which names another file"
    if problem is not None:
        raise UsageError(f"model_args {problem}", where=where, next="fetch the folder again")
    pretrained_cfg = config.get("pretrained_cfg")
    pretrained_cfg = pretrained_cfg if isinstance(pretrained_cfg, dict) else {}
    head_arguments = {
        key: config[key] for key in ("num_classes", "global_pool") if config.get(key) is not None
    }
    build = partial(library.create_model, name, pretrained=False, **{**head_arguments, **model_args})
    from porter.frameworks.torch.construction import build_filled

    model: Any = build_filled(_without_wrapper(checkpoint.tensors), build, where)
    size = pretrained_cfg.get("input_size") or list(model.pretrained_cfg["input_size"])
    return BuiltModel(
        model,
        version,
        stated_size(size[1:]) if isinstance(size, list) else None,
        channels=model_args.get("in_chans", _CHANNELS),
    )


def _without_wrapper(tensors: NamedArrays) -> NamedArrays:
    """Return the tensors under timm's names: without the prefix of the module that transformers wraps around
    timm's models, if all of them have it.
    """
    if not all(name.startswith(_WRAPPER_PREFIX) for name in tensors):
        return tensors
    return {name.removeprefix(_WRAPPER_PREFIX): array for name, array in tensors.items()}


IMPLEMENTATION = implementation(TIMM)
PADDED_AS_TF = implementation(TIMM_TF)
"""timm's own models that pad as TensorFlow does."""
