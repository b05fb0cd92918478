"""A process from which children are made that have imported everything, and have ported nothing."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable
from functools import _lru_cache_wrapper, cache, cached_property, partial
from typing import Any

import porter
from tests.mutation.of_code import functions_of

Say = Callable[[bytes], object]


class Nursery:
    """Imports what a conversion imports, and does some work, so that its children find the frameworks ready.
    What porter itself remembers of the work, they forget. The work runs no TensorFlow: a process that has
    run it cannot be forked.
    """

    def __init__(self, work: Iterable[Callable[[], object]] = ()) -> None:
        _import_all()
        self._tables = [(table, dict(table)) for table in _tables()]
        for each in work:
            each()
        gc.collect()
        objects: list[Any] = gc.get_objects()
        self.functions = functions_of(objects)
        self._caches = [each for each in objects if _is_cache(each)]
        self._remembering: list[tuple[Any, list[str]]] = [
            (each, names)
            for each in objects
            if (names := _remembered(type(each)))  # type: ignore[arg-type]  # a class is hashable
        ]
        del objects
        gc.freeze()  # a collection would copy every page into the child

    def child(self, act: Callable[[Say], object]) -> tuple[bytes, int]:
        """What a child says, and the status that it ends with."""
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                _be_silent()
                self._forget()
                act(partial(os.write, write))
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as text:
            said = text.read()
        return said, os.waitpid(child, 0)[1]

    def _forget(self) -> None:
        for each in self._caches:
            each.cache_clear()
        for holder, names in self._remembering:
            for name in names:
                vars(holder).pop(name, None)
        for table, before in self._tables:
            if len(table) != len(before):
                table.clear()
                table.update(before)


def _import_all() -> None:
    for name in ("torch", "tensorflow", "keras", "onnx.reference", "onnxruntime", "onnxscript"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(porter.__path__, "porter."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    import torch

    torch.set_num_threads(1)


def _tables() -> list[dict[object, object]]:
    """The dictionaries of porter's modules, which functions may fill."""
    modules = [module for name, module in sys.modules.items() if name.startswith("porter.")]
    return [value for module in modules for value in vars(module).values() if type(value) is dict]


def _is_cache(each: object) -> bool:
    return isinstance(each, _lru_cache_wrapper) and each.__wrapped__.__module__.startswith("porter")


@cache
def _remembered(kind: type) -> list[str]:
    """The cached properties of one of porter's classes."""
    if not str(kind.__module__).startswith("porter"):
        return []
    held = [item for base in kind.__mro__ for item in vars(base).items()]
    return [name for name, value in held if isinstance(value, cached_property)]


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
