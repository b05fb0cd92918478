"""The quick tier: tests that import no framework. One that would, or that starts another Python, is skipped
where it does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import pytest

from tests.support.durations import file_of, recorded

FRAMEWORKS = frozenset(
    {
        "torch",
        "torchvision",
        "timm",
        "tensorflow",
        "keras",
        "tf_keras",
        "tf_slim",
        "jax",
        "mlx",
        "onnxruntime",
    }
)
LONGEST_S = 30
"""Files that took longer are left out."""


def skip(what: str) -> NoReturn:
    pytest.skip(f"the quick tier has no {what}", allow_module_level=True)


class NoFrameworks(MetaPathFinder, Loader):
    """Finds every framework, so that whatever asks for one goes on until it imports it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in FRAMEWORKS else None

    def exec_module(self, module: ModuleType) -> NoReturn:
        skip(module.__name__)


class NoPython(subprocess.Popen[Any]):
    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        if isinstance(args, list | tuple) and str(args[0]) == sys.executable:
            skip("other Python")
        super().__init__(args, *more, **options)


class Quick:
    """The plugin of the tier."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """A file that was skipped while it was imported is not half there for another one that imports it."""
        report = yield
        if report.skipped:
            for name in [
                name
                for name, module in sys.modules.items()
                if getattr(module, "__file__", None) == str(collector.path)
            ]:
                del sys.modules[name]
        return report

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        seconds = recorded()
        long = [item for item in items if seconds.get(file_of(item.nodeid), 0.0) > LONGEST_S]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if seconds.get(file_of(item.nodeid), 0.0) <= LONGEST_S]


def skip_frameworks() -> None:
    assert FRAMEWORKS.isdisjoint(sys.modules)
    sys.meta_path.insert(0, NoFrameworks())
