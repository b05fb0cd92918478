"""transformers' own models for classifying images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from porter.base.errors import MappingError, NotInstalled, UsageError, some
from porter.base.package import expect_installed, install
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.zoos.hub_folders import BuiltModel, stated_size
from porter.zoos.implementation import BuildRequest, Implementation, expect_usual
from porter.zoos.library_settings import SETTINGS
from porter.zoos.tables import SIDE, TRANSFORMERS, TRANSFORMERS_TORCH, Call, takes_any_size
from porter.zoos.torchvision import import_models

if TYPE_CHECKING:
    from torch import nn

_INSTALL = "pip install transformers"
_NOT_PASSED = frozenset(
    {
        "auto_map",
        "quantization_config",
        "attn_implementation",
        "dtype",
        "torch_dtype",
        "use_pretrained_backbone",
    }
)
"""Settings that name code or kernels to load, weights to fetch, or types of numbers, which the file of
weights says itself.
"""


def import_transformers() -> ModuleType:
    """Import transformers, which imports torchvision where it finds it; see `import_models`.

    Raises:
        NotInstalled: it cannot be imported.
    """
    expect_installed("torch", install("torch"))
    expect_installed("transformers", _INSTALL)
    with suppress(NotInstalled):  # only its image processors need torchvision
        import_models()
    try:
        return import_module("transformers")
    except (ImportError, RuntimeError) as error:
        raise NotInstalled(f"transformers cannot be imported: {error}", next=_INSTALL) from None


def implementation(calls: Mapping[str, Call]) -> Implementation:
    """Make an implementation of the models of a table, by variant."""

    def build(request: BuildRequest) -> nn.Module:
        """Build as porter.zoos.implementation.Build says. transformers itself gives the tensors of published
        files the names of its code.
        """
        library = import_transformers()
        kind, settings = calls[request.variant]
        build_for_file = {} if takes_any_size(request.variant) else {SIDE: request.size[0]}
        config = library.AutoConfig.for_model(
            kind,
            num_labels=request.classes,
            **settings,
            **_settings_of_options(kind, {**request.options, **build_for_file}),
        )
        import torch

        from porter.frameworks.torch.graph_module import to_tensor

        with _quiet(library):
            model, loaded = library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)].from_pretrained(
                None,
                config=config,
                state_dict={name: to_tensor(array) for name, array in request.checkpoint.tensors.items()},
                dtype=getattr(torch, request.dtype),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        _expect_loaded(loaded, tuple(loaded), str(request.checkpoint.path))
        built: nn.Module = model.eval()
        return built

    return Implementation(build, runs_at_any_size=takes_any_size)


_FOR_IMAGES = ("IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION")
_LOGITS = "logits"


def build_stated(config: Mapping[str, Any], checkpoint: Checkpoint) -> BuiltModel:
    """Build a model of transformers, with the weights of its folder, as porter.zoos.hub_folders.Library says.
    Settings that name code, other files or the Hub are not given to transformers. A note names the tensors
    that the model does not take.

    Raises:
        UsageError: there is no such model, or it is none of images.
        MappingError: tensors are missing or of another shape.
        NotInstalled: transformers is not installed.
    """
    library = import_transformers()
    kind = str(config["model_type"])
    where = str(checkpoint.path.parent / CONFIG_FILE)
    version = f"transformers {library.__version__}"
    if kind not in library.CONFIG_MAPPING:
        update = "pip install --upgrade transformers"
        raise UsageError(f"{version} has no model_type '{kind:.80}'", where=where, next=update)
    from porter.frameworks.torch.construction import build_for_file
    from porter.frameworks.torch.graph_module import to_tensor

    settings = library.CONFIG_MAPPING[kind](**_plain_settings(config))
    architectures = config.get("architectures")
    stated_class = architectures[0] if isinstance(architectures, list) and architectures else None
    model_class = _class_of(library, type(settings), stated_class, where)
    build_for_file(checkpoint.tensors, lambda: model_class(settings), where)
    with _quiet(library):
        model, loaded = model_class.from_pretrained(
            None,
            config=settings,
            state_dict={name: to_tensor(array) for name, array in checkpoint.tensors.items()},
            attn_implementation="sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    _expect_loaded(loaded, ("missing_keys", "mismatched_keys"), where)
    unused = sorted(map(str, loaded["unexpected_keys"]))
    notes = (f"tensors that are not {model_class.__name__}'s are left out: {some(unused)}",) if unused else ()
    image_settings = getattr(settings, "vision_config", settings)
    return BuiltModel(
        _only_logits(model.eval()),
        version,
        stated_size(getattr(image_settings, "image_size", None)) or (224, 224),
        notes,
    )


def _plain_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a config.json that describe a network, without a backbone whose settings
    transformers would fetch.
    """

    def is_plain(name: str, value: object) -> bool:
        """Return whether a setting describes the network, and nothing that transformers fetches or runs."""
        if name in _NOT_PASSED or name.startswith("_"):
            return False
        # `facebook/dinov2` and an address name a backbone on the Hub.
        return name != "backbone" or not {*str(value)} & {*"/:"}

    return {
        name: _plain_settings(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if is_plain(name, value)
    }


def _class_of(library: ModuleType, config: type, stated_class: object, where: str) -> Any:
    """Return the class of a model for images, as config.json names it; if it names none, the first that there
    is, for classification if possible.

    Args:
        config: the class of the model's settings.
        stated_class: the class that config.json names; None if it names none.
    """
    candidates = {}
    for task in _FOR_IMAGES:
        classes = getattr(library, f"MODEL_FOR_{task}_MAPPING").get(config, ())
        # The table has one class or several.
        for model_class in classes if isinstance(classes, tuple) else (classes,):
            candidates[model_class.__name__] = model_class
    for mapping in (library.MODEL_FOR_BACKBONE_MAPPING, library.MODEL_MAPPING):
        model_class = mapping.get(config, None)
        if model_class is not None and model_class.main_input_name == "pixel_values":
            candidates[model_class.__name__] = model_class
    if stated_class is None and candidates:
        return next(iter(candidates.values()))
    if stated_class not in candidates:
        others = "none of its classes takes images only"
        if candidates:
            others = f"porter takes {', '.join(candidates)}"
        raise UsageError(
            f"transformers' {stated_class!s:.80} is not one of the image networks that porter takes",
            where=where,
            next=f"{others}; torch.export.save(torch.export.export(MODEL, (EXAMPLE,)), FILE) keeps the "
            "graph of any module",
        )
    return candidates[stated_class]


def _only_logits(model: nn.Module) -> nn.Module:
    """Make a model of transformers give its logits only, in place of an object with several values (a
    distilled one gives each head's), and return it.
    """
    model_class: Any = type(model)

    class LogitsOnly(model_class):  # type: ignore[misc]
        def forward(self, pixel_values: Any) -> Any:
            returned = super().forward(pixel_values=pixel_values)
            return getattr(returned, _LOGITS, returned)

    LogitsOnly.__name__ = model_class.__name__
    # The object stays, with its weights; only its `forward` is another one.
    model.__class__ = LogitsOnly
    return model


def _expect_loaded(loaded: Mapping[str, Any], kinds: Sequence[str], where: str) -> None:
    """Refuse tensors that transformers could not use, by the report that it gives of its loading.

    Args:
        loaded: the report: names of tensors by what is wrong with them, such as `missing_keys`.
        kinds: the keys of the report that are refused.
        where: the file, for errors.

    Raises:
        MappingError: with the first of them.
    """
    for kind in kinds:
        unlike = sorted(name for name in map(str, loaded[kind]) if not name.endswith("num_batches_tracked"))
        if unlike:
            message = (
                f"transformers' model does not take these tensors: {kind.replace('_', ' ')}, such as "
                f"{unlike[0]}"
            )
            raise MappingError(
                message, where=where, next="fetch the folder again, or pip install --upgrade transformers"
            )


def _settings_of_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which transformers' model has these options of the recipe, by the table
    SETTINGS.

    Raises:
        CannotRun: one has none.
    """
    settings_by_option = {setting.option: (name, setting.values) for name, setting in SETTINGS[kind].items()}
    expect_usual(f"transformers' {kind}", options.keys() - settings_by_option.keys())
    settings = {}
    for option, value in options.items():
        name, option_values = settings_by_option[option]
        if option_values is not None:
            # The table is from the setting's values to the option's.
            value = next(setting for setting, as_option in option_values.items() if as_option == value)
        settings[name] = value
    return settings


@contextmanager
def _quiet(library: ModuleType) -> Iterator[None]:
    """Silence transformers' reports on stderr, whose content its loading information has too."""
    logging = library.utils.logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


IMPLEMENTATION = implementation(TRANSFORMERS)
PADDED_AS_TORCH = implementation(TRANSFORMERS_TORCH)
"""transformers' own models that pad as torch does where its others pad as TensorFlow does."""
