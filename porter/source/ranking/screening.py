"""Which zoos could have named a file's tensors: told by the texts of their names, before any variant is
expanded.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable

from porter.filegraph.checkpoint import Checkpoint
from porter.recipe import Zoo
from porter.recipe.expressions import parse
from porter.recipe.recipe import PLACE

LEAST = 0.05
"""A zoo could have named a file if at least this share of the file's tensors has names like its own."""

_NUMBER = re.compile(r"\d+")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")


def screen(checkpoint: Checkpoint) -> Callable[[Zoo], bool]:
    """Tells whether a zoo could have named the file. All could if names do not decide how well the file fits:
    its graph counts too, or its names are Keras's counters.
    """
    # All numbers are alike here, so that a file has few different names.
    names = Counter(_NUMBER.sub("0", name) for name in checkpoint.tensors)
    if checkpoint.counted or checkpoint.graph is not None:
        return lambda zoo: True

    def could_name(zoo: Zoo) -> bool:
        like = _like_any(zoo)
        return sum(count for name, count in names.items() if like.search(name)) >= LEAST * names.total()

    return could_name


def _like_any(zoo: Zoo) -> re.Pattern[str]:
    """Finds a layer of the zoo in a tensor's name, after any prefix and before the variable, which may have a
    moving average.
    """
    tables = (zoo.names, *(older.names for older in zoo.generations.values()))
    likes = sorted({_like(rule.name) for table in tables for rule in table})
    # `_` is Gluon's.
    variable = r"(?:\.[^./]+|(?:/[^/]+){1,2}|_(?:weight|bias|gamma|beta|(?:running|moving)_(?:mean|var)))"
    return re.compile(rf"(?:^|[./]|\w0_)(?:{'|'.join(likes)})(?:_0)?{variable}$")  # Keras adds _1


def _like(name: str) -> str:
    """The pattern of a name with any value in place of its expressions. Numbers that meet are one number."""
    parts = _EXPRESSION.split(name)  # texts and expressions, in turns
    like = [
        _value(part) if index % 2 else re.escape(_NUMBER.sub("0", part)) for index, part in enumerate(parts)
    ]
    return re.sub("0+", "0", "".join(like))


def _value(expression: str) -> str:
    counted = expression.strip() == PLACE or isinstance(parse(expression.strip()), ast.BinOp)
    return "0" if counted else ".*"
