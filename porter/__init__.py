"""porter moves trained weights of vision models between frameworks so that the port computes the same function, and proves it.

The functions named below are the whole API; each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from porter.base.package import __version__ as __version__

if TYPE_CHECKING:
    from porter.conversion.convert import convert as convert
    from porter.evaluation.evaluate import evaluate as evaluate, evaluate_several as evaluate_several
    from porter.evaluation.padding_study.study import study as study
    from porter.evaluation.prediction import predict as predict
    from porter.identify.inspection import inspect as inspect
    from porter.port.folder import load as load
    from porter.reporting.write import report as report
    from porter.verification.reverify import verify as verify

_MODULES = {
    "convert": "porter.conversion.convert",
    "evaluate": "porter.evaluation.evaluate",
    "evaluate_several": "porter.evaluation.evaluate",
    "inspect": "porter.identify.inspection",
    "load": "porter.port.folder",
    "predict": "porter.evaluation.prediction",
    "report": "porter.reporting.write",
    "study": "porter.evaluation.padding_study.study",
    "verify": "porter.verification.reverify",
}

__all__ = ["convert", "evaluate", "evaluate_several", "inspect", "load", "predict", "report", "study", "verify"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'porter' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
