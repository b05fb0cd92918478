"""Porter with a mistake in its source, asked to port a small file: refused, crashed, equal, or proved and
wrong.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from functools import _lru_cache_wrapper
from pathlib import Path

import porter
from porter.base.errors import PorterError
from tests.support.mutation.corpus import Item, outputs_of, same
from tests.support.mutation.of_code import Mistake, plant

STATES = ("refused", "crashed", "slow", "equal", "unproved", "not planted", "proved and wrong")
SECONDS = 60


def warm() -> None:
    """Imports what a conversion imports, and runs nothing: a process that has run TensorFlow cannot be
    forked.
    """
    for name in ("torch", "tensorflow", "keras", "onnx.reference", "onnxruntime", "onnxscript"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(porter.__path__, "porter."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def lines_of(item: Item) -> dict[str, set[int]]:
    """The lines of porter that run when a file is ported, by their file. In a child, because it runs
    TensorFlow.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        found: dict[str, set[int]] = {}
        home = str(Path(porter.__file__).parent)

        def look(frame, event, argument):  # type: ignore[no-untyped-def]
            if not frame.f_code.co_filename.startswith(home):
                return None
            found.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
            return look

        try:
            sys.settrace(look)
            _state(item)
            sys.settrace(None)
            with os.fdopen(write, "w") as out:
                out.write(repr(found))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        from ast import literal_eval

        found = literal_eval(text.read() or "{}")
    os.waitpid(child, 0)
    return found


def outcome(mistake: Mistake, items: Iterable[Item]) -> tuple[str, str]:
    """The worst state of some files under a mistake, and the file that shows it."""
    worst = ("equal", "")
    for item in items:
        state = _forked(mistake, item)
        if state in ("not planted", "proved and wrong"):
            return state, item.name
        if worst[0] == "equal":
            worst = (state, item.name)
    return worst


def _forked(mistake: Mistake, item: Item) -> str:
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        state = "crashed"
        try:
            if plant(mistake) == 0:
                state = "not planted"
            else:
                for each in [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]:
                    each.cache_clear()
                state = _state(item)
        except BaseException:
            state = "crashed"
        os._exit(STATES.index(state))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "slow" if os.WTERMSIG(status) == signal.SIGALRM else "crashed"
    return STATES[os.WEXITSTATUS(status)]


def _state(item: Item) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            port = porter.convert(item.file, to="torch", out=Path(folder) / "port")
        except PorterError:
            return "refused"
        if port.port.record.check != "passed":
            return "unproved"
        try:
            found = outputs_of(port.folder, item.images)
        except PorterError:
            return "refused"
    equal = len(found) == len(item.outputs) and all(map(same, found, item.outputs))
    return "equal" if equal else "proved and wrong"
