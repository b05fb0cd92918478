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

LEAST_SHARE = 0.05
"""A zoo could have named a file if at least this share of the file's tensors has names like its own."""

_NUMBER = re.compile(r"\d+")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")


def zoo_screen(checkpoint: Checkpoint) -> Callable[[Zoo], bool]:
    """Return a function that tells quickly whether a zoo could have named the file's tensors, so that no
    variant of other zoos is expanded. It is always true where names do not decide how well a file fits: its
    graph counts too, or its names are Keras's counters.
    """
    # All numbers are alike here, so that a file has few different names.
    names = Counter(_NUMBER.sub("0", name) for name in checkpoint.tensors)
    if checkpoint.counted or checkpoint.graph is not None:
        return lambda zoo: True

    def could_name(zoo: Zoo) -> bool:
        pattern = _pattern_of_zoo(zoo)
        alike = sum(count for name, count in names.items() if pattern.search(name))
        return alike >= LEAST_SHARE * names.total()

    return could_name


def _pattern_of_zoo(zoo: Zoo) -> re.Pattern[str]:
    """Return the pattern that finds a name of the zoo's layers in a tensor's name, in which every number is
    written 0: after any prefix, and before the variable (such as `.weight`), which may have a moving
    average.
    """
    tables = (zoo.names, *(older.names for older in zoo.generations.values()))
    patterns = sorted({_pattern_of_name(rule.name) for table in tables for rule in table})
    # Gluon puts `_` before the variable: conv0_weight.
    variable = r"(?:\.[^./]+|(?:/[^/]+){1,2}|_(?:weight|bias|gamma|beta|(?:running|moving)_(?:mean|var)))"
    # `_0`: Keras appends a number to a name that it has had already.
    return re.compile(rf"(?:^|[./]|\w0_)(?:{'|'.join(patterns)})(?:_0)?{variable}$")


def _pattern_of_name(name: str) -> str:
    """Return the pattern of a recipe's name of a layer, with any value in place of its expressions: of
    `block{i + 1}/conv` it is `block0/conv`, because every number is written 0. An expression's number next
    to a digit makes one number with it.
    """
    parts = _EXPRESSION.split(name)  # texts and expressions, in turns
    pattern = [
        # every second part is an expression
        _pattern_of_value(part) if index % 2 else re.escape(_NUMBER.sub("0", part))
        for index, part in enumerate(parts)
    ]
    return re.sub("0+", "0", "".join(pattern))


def _pattern_of_value(expression: str) -> str:
    """Return the pattern of an expression's value: one number (`0`) for a place or a calculation, otherwise
    any text.
    """
    counted = expression.strip() == PLACE or isinstance(parse(expression.strip()), ast.BinOp)
    return "0" if counted else ".*"
