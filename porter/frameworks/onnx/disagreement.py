"""Where onnxruntime and ONNX's reference implementation do not compute the same of an ONNX file: one of them
is wrong there, and a proof that compares a port with them says nothing about the port. It is asked only after
a proof has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.base.dtypes import Array, is_floating
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.onnx.plain import PLAIN
from porter.frameworks.onnx.file_reference import build_file
from porter.graph import ops
from porter.graph.rounding import absolute_error
from porter.padding import ANY

_MAX_DISTANCE = 1e-4
"""How far two programs may differ in one operator whose inputs are the same: 300 times what any node of an
EfficientNet or a MobileNetV3 loses in float32 (3.4e-7). An operator of another meaning differs by 1e-2 and
more.
"""
_TIMES_ROUNDING = 4.0
"""So many times the error of porter.graph.rounding a value may be off."""
_OP_OF_OPERATOR: Mapping[str, type[Any]] = {
    **{name: row.op for name, row in PLAIN.items()},
    "Gelu": ops.Gelu,
    "LogSoftmax": ops.LogSoftmax,
    "Softmax": ops.Softmax,
    "Swish": ops.Swish,
}
"""The ops of one value, by operator."""


@dataclass(frozen=True)
class Disagreement:
    """An operator that onnxruntime computes otherwise than ONNX's reference implementation.

    Attributes:
        node: the name that the file gives the node, otherwise that of its value.
        op: the operator, such as `Softmax`.
        distance: the relative L2 distance of its value, over what makes the error that float32 may have in
            absolute terms a distance of `_MAX_DISTANCE`, if that is larger; infinite where shapes differ.
    """

    node: str
    op: str
    distance: float

    @property
    def description(self) -> str:
        difference = "another shape" if np.isinf(self.distance) else f"relative L2 {self.distance:.1e}"
        place = f"'{self.node}' ({self.op}; {difference})"
        return f"onnxruntime and ONNX's reference implementation disagree on {place}"


def disagreement(checkpoint: Checkpoint, batch: Array) -> str | None:
    """Say in words at which node onnxruntime and ONNX's reference implementation disagree first; None where
    they agree. See porter.frameworks.Engine.disagreement.
    """
    first = first_disagreement(checkpoint, batch)
    return None if first is None else first.description


def first_disagreement(checkpoint: Checkpoint, batch: Array) -> Disagreement | None:
    """Return the first node, in the file's order, that the two compute otherwise than float32 rounds; None
    where they agree.

    Each node of the reference gets onnxruntime's own values, so that no rounding adds up on the way.

    Args:
        batch: N×C×H×W; one image is enough.

    Raises:
        CannotRun: one of the two does not run this model.
    """
    # Not `>`, so that NaN is a disagreement too.
    too_far = (node for node in distances(checkpoint, batch) if not node.distance <= _MAX_DISTANCE)
    return next(too_far, None)


def distances(checkpoint: Checkpoint, batch: Array) -> Iterator[Disagreement]:
    """Yield the distance between the two at every node that gives real numbers, in the file's order. See
    `first_disagreement`.
    """
    model = build_file(checkpoint, "float32", ANY)
    for node, name, runtime_value, value, input_value in model.compare(batch):
        if not is_floating(runtime_value):
            continue
        rounding_error = None
        if input_value is not None and node.op_type in _OP_OF_OPERATOR:
            rounding_error = absolute_error(_OP_OF_OPERATOR[node.op_type], input_value.astype(np.float64))
        distance = _relative_distance(runtime_value, value, rounding_error)
        yield Disagreement(node.name or name, node.op_type, distance)


def _relative_distance(run: Array, value: Array, error: Array | None) -> float:
    """Return the relative L2 distance of onnxruntime's value `run` from the reference's `value`. It is
    relative to the norm of `value`, or to one that makes the rounding `error`, where that is given, as far as
    is allowed, if this norm is larger; infinite where shapes differ.
    """
    if run.shape != value.shape:
        return np.inf
    computed, exact = run.astype(np.float64), value.astype(np.float64)
    # With this norm, the rounding that is allowed is a distance of _MAX_DISTANCE.
    allowed_norm = 0.0 if error is None else _TIMES_ROUNDING / _MAX_DISTANCE * np.linalg.norm(error)
    norm = max(np.linalg.norm(exact), allowed_norm) or 1.0
    return float(np.linalg.norm(computed - exact) / norm)
