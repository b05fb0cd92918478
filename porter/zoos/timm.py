"""timm's own models."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from porter.base.errors import MissingFramework
from porter.zoos.implementation import Implementation
from porter.zoos.tables import TIMM
from porter.zoos.torchvision import build_by, import_models


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


IMPLEMENTATION = Implementation(build_by("timm", TIMM, import_timm), runs_at_any_size=lambda variant: True)
