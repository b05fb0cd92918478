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

_ROUNDING = 1e-4
"""How far two programs may differ in one operator whose inputs are the same: 300 times what any node of an
EfficientNet or a MobileNetV3 loses in float32 (3.4e-7). An operator of another meaning differs by 1e-2 and
more.
"""
_ABSOLUTE = 4.0
"""So many times the error of porter.graph.rounding a value may be off."""
_OPS: Mapping[str, type[Any]] = {
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
            absolute terms a distance of `_ROUNDING`, if that is larger; infinite where shapes differ.
    """

    node: str
    op: str
    distance: float

    @property
    def words(self) -> str:
        apart = "another shape" if np.isinf(self.distance) else f"relative L2 {self.distance:.1e}"
        return (
            f"onnxruntime and ONNX's reference implementation disagree on '{self.node}' ({self.op}; {apart})"
        )


def disagreement(checkpoint: Checkpoint, batch: Array) -> str | None:
    """See porter.frameworks.Engine.disagreement."""
    first = first_disagreement(checkpoint, batch)
    return None if first is None else first.words


def first_disagreement(checkpoint: Checkpoint, batch: Array) -> Disagreement | None:
    """Return the first node, in the file's order, that the two compute otherwise than float32 rounds; None
    where they agree.

    Each node of the reference gets onnxruntime's own values, so that no rounding adds up on the way.

    Args:
        batch: N×C×H×W; one image is enough.

    Raises:
        CannotRun: one of the two does not run this model.
    """
    return next((each for each in distances(checkpoint, batch) if not each.distance <= _ROUNDING), None)


def distances(checkpoint: Checkpoint, batch: Array) -> Iterator[Disagreement]:
    """Yield the distance at every node that gives real numbers, in the file's order. See
    `first_disagreement`.
    """
    for node, name, run, value, given in build_file(checkpoint, "float32", ANY).compare(batch):
        if is_floating(run):
            error = None
            if given is not None and node.op_type in _OPS:
                error = absolute_error(_OPS[node.op_type], given.astype(np.float64))
            yield Disagreement(node.name or name, node.op_type, _distance(run, value, error))


def _distance(run: Array, value: Array, error: Array | None) -> float:
    """Return how far two values are apart, in relation to the exact one, or to the rounding that an op
    allows.
    """
    if run.shape != value.shape:
        return np.inf
    wide, exact = run.astype(np.float64), value.astype(np.float64)
    least = 0.0 if error is None else _ABSOLUTE / _ROUNDING * np.linalg.norm(error)
    return float(np.linalg.norm(wide - exact) / (max(np.linalg.norm(exact), least) or 1.0))
