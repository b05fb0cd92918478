"""transformers' own models for classifying images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Dtype
from porter.base.errors import MappingError, MissingFramework
from porter.base.package import expect_installed, install
from porter.filegraph.checkpoint import Checkpoint
from porter.zoos.implementation import OTHER_CODE, Implementation
from porter.zoos.tables import SETTINGS, SIDE, TRANSFORMERS, Call, takes_any_size
from porter.zoos.torchvision import import_models

if TYPE_CHECKING:
    from torch import nn

_INSTALL = "pip install transformers"


def import_transformers() -> ModuleType:
    """transformers, which imports torchvision where it finds it; see `import_models`.

    Raises:
        MissingFramework: it cannot be imported.
    """
    expect_installed("torch", install("torch"))
    expect_installed("transformers", _INSTALL)
    with suppress(MissingFramework):  # only its image processors need torchvision
        import_models()
    try:
        return import_module("transformers")
    except (ImportError, RuntimeError) as error:
        raise MissingFramework(f"transformers cannot be imported: {error}", next=_INSTALL) from None


def implementation(calls: Mapping[str, Call]) -> Implementation:
    """The models of a table, by variant."""

    def build(
        variant: str, classes: int, size: tuple[int, int], checkpoint: Checkpoint, dtype: Dtype, options: Mapping[str, Any] = {}
    ) -> nn.Module:
        """See porter.zoos.implementation.Build. transformers itself gives the tensors of published files the names of its code."""
        library = import_transformers()
        kind, settings = calls[variant]
        built_for = {} if takes_any_size(variant) else {SIDE: size[0]}
        config = library.AutoConfig.for_model(kind, num_labels=classes, **settings, **_settings(kind, {**options, **built_for}))
        import torch

        from porter.frameworks.torch.graph_module import to_tensor

        with _quiet(library):
            model, loaded = library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)].from_pretrained(
                None,
                config=config,
                state_dict={name: to_tensor(array) for name, array in checkpoint.tensors.items()},
                dtype=getattr(torch, dtype),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        for said, found in loaded.items():
            unlike = sorted(name for name in map(str, found) if not name.endswith("num_batches_tracked"))
            if unlike:
                message = f"transformers' model does not take these tensors: {said.replace('_', ' ')}, such as {unlike[0]}"
                raise MappingError(message, where=str(checkpoint.path))
        built: nn.Module = model.eval()
        return built

    return Implementation(build, runs_at_any_size=takes_any_size)


def _settings(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """transformers' settings that say options of a recipe.

    Raises:
        MissingFramework: one has none.
    """
    named = {setting.option: (name, setting.values) for name, setting in SETTINGS[kind].items()}
    if foreign := sorted(options.keys() - named.keys()):
        raise MissingFramework(f"transformers' {kind} cannot be built with another {', '.join(foreign)}", next=OTHER_CODE)
    found = {}
    for option, value in options.items():
        name, values = named[option]
        found[name] = value if values is None else next(one for one, said in values.items() if said == value)
    return found


@contextmanager
def _quiet(library: ModuleType) -> Iterator[None]:
    """Without transformers' reports on stderr, whose content its loading information has too."""
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
