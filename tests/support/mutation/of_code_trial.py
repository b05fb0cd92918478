"""Porter with a mistake in its source, asked to port a few small files: refused, crashed, equal, or proved
and wrong.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import CodeType

import porter
from porter.base.errors import PorterError
from tests.support.mutation.corpus import Item, outputs_of, same
from tests.support.mutation.nursery import Nursery, Say
from tests.support.mutation.of_code import Functions, Mistake, Place, codes_with, give

STATES = ("refused", "crashed", "slow", "equal", "unproved", "not planted", "proved and wrong")
SECONDS = 20
WARMED = ("onnx", "torch")
"""Of these formats a file is ported before any child is made. Keras's files run TensorFlow."""


def nursery(items: Sequence[Item]) -> Nursery:
    """Where the mistakes are planted."""
    first = {item.name.split("-")[0]: item for item in reversed(items)}
    return Nursery(partial(state_of, first[kind]) for kind in WARMED if kind in first)


def outcome(mistake: Mistake, items: Sequence[Item], nursery: Nursery) -> tuple[str, str]:
    """How the first of some files ended that did not end equal under a mistake, and its name."""
    codes = codes_with(mistake)
    said, status = nursery.child(partial(_port, items, codes, nursery.functions))
    states = [STATES[each] for each in said]
    if os.WIFSIGNALED(status):
        states.append("slow" if os.WTERMSIG(status) == signal.SIGALRM else "crashed")
    return states[-1], items[len(states) - 1].name


def _port(items: Sequence[Item], codes: dict[Place, CodeType], functions: Functions, say: Say) -> None:
    planted = give(codes, functions)
    for item in items:
        signal.alarm(SECONDS)
        state = state_of(item) if planted else "not planted"
        say(bytes([STATES.index(state)]))
        if state != "equal":
            return


def state_of(item: Item) -> str:
    """How porting a file ends."""
    try:
        return _state(item)
    except BaseException:
        return "crashed"


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
