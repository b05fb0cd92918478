"""porter moves trained weights of vision models between frameworks so that the port computes the same
function, and proves it.

The names below are the whole API, which docs/api.md shows. Each is imported when it is first asked for; none
imports a framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from porter.base.package import __version__ as __version__

if TYPE_CHECKING:
    from porter.api.entry_points import (
        compare as compare,
        convert as convert,
        evaluate as evaluate,
        evaluate_several as evaluate_several,
        inspect as inspect,
        list_models as list_models,
        load as load,
        open as open,
        predict as predict,
        report as report,
        study as study,
        verify as verify,
    )
    from porter.api.port import Port as Port, Ported as Ported
    from porter.base.errors import (
        CannotRun as CannotRun,
        CheckFailed as CheckFailed,
        ChecksumError as ChecksumError,
        Contradiction as Contradiction,
        DownloadError as DownloadError,
        FileError as FileError,
        GraphError as GraphError,
        MappingError as MappingError,
        NotInstalled as NotInstalled,
        OverflowsError as OverflowsError,
        PaddingError as PaddingError,
        PluginError as PluginError,
        PorterError as PorterError,
        RecipeError as RecipeError,
        UsageError as UsageError,
    )

_NAMES = {
    "porter.api.entry_points": """
        compare convert evaluate evaluate_several inspect list_models load open predict report study verify
    """,
    "porter.api.port": "Port Ported",
    "porter.base.errors": """
        CannotRun CheckFailed ChecksumError Contradiction DownloadError FileError GraphError MappingError
        NotInstalled OverflowsError PaddingError PluginError PorterError RecipeError UsageError
    """,
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'porter' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
