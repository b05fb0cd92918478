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

from porter.base.errors import PorterError
from tests.mutation.corpus import Given, Item, given_by, port_of, same
from tests.mutation.nursery import Nursery, Say
from tests.mutation.of_code import Functions, Mistake, plant
from tests.support.arrays import Array

WRONG = "proved and wrong"
STATES = ("refused", "crashed", "slow", "equal", "unproved", "not planted", WRONG)
SECONDS = 20
WARMED = ("onnx", "torch")
"""Of these formats a file is ported before any child is made. Keras's files run TensorFlow."""


def nursery(items: Sequence[Item]) -> Nursery:
    """Where the mistakes are planted."""
    first = {item.name.split("-")[0]: item for item in reversed(items)}
    return Nursery(partial(state_of, first[kind]) for kind in WARMED if kind in first)


def outcome(mistake: Mistake, items: Sequence[Item], nursery: Nursery) -> tuple[str, str]:
    """How the file of some ended under a mistake that ended worst, and its name: proved and wrong, otherwise
    the first that did not end equal.
    """
    states: list[str] = []
    while len(states) < len(items):
        said, status = nursery.child(partial(_port, items[len(states) :], mistake, nursery.functions))
        states += [STATES[each] for each in said]
        if os.WIFSIGNALED(status):
            states.append("slow" if os.WTERMSIG(status) == signal.SIGALRM else "crashed")
        elif not said:  # what the mistake makes of a table cannot be computed
            states.append("crashed")
    ranks = [("equal", WRONG).index(state) * 2 if state in ("equal", WRONG) else 1 for state in states]
    worst = ranks.index(max(ranks))
    return states[worst], items[worst].name


def _port(items: Sequence[Item], mistake: Mistake, functions: Functions, say: Say) -> None:
    planted = plant(mistake, functions)
    for item in items:
        signal.alarm(SECONDS)
        say(bytes([STATES.index(state_of(item) if planted else "not planted")]))


def state_of(item: Item) -> str:
    """How porting a file ends."""
    try:
        return _state(item)
    except BaseException:
        return "crashed"


def _state(item: Item) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            port = port_of(item.file, item.images, Path(folder) / "port")
        except PorterError:
            return "refused"
        if port.port.record.check != "passed":
            return "unproved"
        try:
            found = given_by(port.folder, item.images)
        except PorterError:
            return "refused"
    return "equal" if same_function(found, item.given) else WRONG


def same_function(found: Given, wanted: Given) -> bool:
    """Whether two ports of a file give the same. One may lack the activation at the end of the file, and one
    have it: then they give the same with it. Otherwise what they give themselves is compared, because a
    softmax gives the same for logits that are moved together.
    """
    if found.activation != wanted.activation:
        found, wanted = found.of_file(), wanted.of_file()
    return len(found.outputs) == len(wanted.outputs) and all(map(_equal, found.outputs, wanted.outputs))


def _equal(found: Array, wanted: Array) -> bool:
    """Whether an output is the wanted one. A map may also be an array with the file's axes, which a port
    says of it.
    """
    orders = ((0, 2, 3, 1), (0, 3, 1, 2)) if wanted.ndim == 4 else ()
    return same(found, wanted) or any(same(found, wanted.transpose(order)) for order in orders)
