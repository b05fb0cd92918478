"""Whether ops of a file are one layer, by a pattern of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from porter.filegraph.dataflow import Dataflow, OperatorNode, SourceOrNumber, StoredTensor

Captures = Mapping[str, Any]
"""What the captures of a pattern are bound to: `{"x": ("conv1", 0), "$epsilon": 0.001}`."""
OpPattern = float | str | tuple[Any, ...]
"""A number; a capture; or an op's kind and the patterns of its inputs. A capture is "x", the value that the
layer takes, "$name", a number, "#name", whole numbers, or "name", a stored vector in the shape in which it is
read; the same capture stands for the same everywhere.
"""

_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})


def match(flow: Dataflow[Any], node: OperatorNode, pattern: OpPattern) -> Captures | None:
    """Match a pattern whose last op is `node`, and return its captures; None if it is another computation.
    `("Mul", "x", ("Sigmoid", "x"))` captures `{"x": ("conv1", 0)}` in a swish of conv1.

    The capture `exact` has the numbers of the pattern that the file stores rounded, by the names of their
    constants.
    """
    return next(_matches(flow, (node.name, 0), pattern, {}), None)


def _matches(
    flow: Dataflow[Any], source: SourceOrNumber, pattern: OpPattern, captures: Captures
) -> Iterator[Captures]:
    """Yield the captures with which a pattern matches what a source is computed by, added to `captures`,
    those of the pattern's parts so far; nothing if it does not match.
    """
    if isinstance(pattern, float | int):
        yield from _match_number(flow, source, pattern, captures)
    elif isinstance(pattern, str):
        captured = _bind_capture(flow, source, pattern)
        if captured is not None and captures.get(pattern, captured) == captured:
            yield {**captures, pattern: captured}
    elif not isinstance(source, float):
        kind, *operand_patterns = pattern
        _, output = source
        node = flow.nodes.get(flow.origin(source))  # stored tensors are no nodes in every format
        operands = flow.operators.operands(node) if node is not None else ()
        if node is None or output > 0 or flow.operators.kind(node) != kind:
            return
        if len(operands) < len(operand_patterns):
            return
        # operands may stand in either order
        is_commutative = kind in _COMMUTATIVE and len(operands) == 2
        for ordered in permutations(operands) if is_commutative else [operands]:
            yield from _match_all(flow, ordered, operand_patterns, captures)


def _match_number(
    flow: Dataflow[Any], source: SourceOrNumber, wanted: float, captures: Captures
) -> Iterator[Captures]:
    """Yield the captures if the source is a number that is the same as `wanted` in float32, in which a file
    may store it. If it differs in float64, `exact` among the captures has `wanted` by the name of the
    constant.
    """
    number = flow.number(source)
    if number is None or np.float32(number) != np.float32(wanted):
        return
    exact = {}
    if number != wanted and not isinstance(source, float):
        exact[flow.origin(source)] = float(wanted)
    yield {**captures, "exact": {**captures.get("exact", {}), **exact}}


def _match_all(
    flow: Dataflow[Any], operands: Sequence[SourceOrNumber], patterns: list[OpPattern], captures: Captures
) -> Iterator[Captures]:
    """Yield the captures with which the first pattern matches the first operand, the second the second, and
    so on. Operands beyond the last pattern may be anything.
    """
    if not patterns:
        yield captures
        return
    for captures_of_first in _matches(flow, operands[0], patterns[0], captures):
        yield from _match_all(flow, operands[1:], patterns[1:], captures_of_first)


def _bind_capture(flow: Dataflow[Any], source: SourceOrNumber, capture: str) -> Any:
    """Return what a capture is bound to: a number (`$`), integers (`#`), the source of a value (`x`) or a
    stored vector in the shape in which it is read; None if the source is no such thing.
    """
    if capture.startswith("$"):
        return flow.number(source)
    if capture.startswith("#"):
        integers = [int(source)] if isinstance(source, float) else flow.integers(source)
        return None if integers is None else tuple(integers)
    if isinstance(source, float):
        return None
    if capture == "x":
        return source if flow.is_live(source) else None
    tensor = flow.tensor(source)
    shape = flow.shape(source)
    if tensor is None or not tensor.is_vector or shape is None:
        return None
    return StoredTensor(tensor.name, shape)
