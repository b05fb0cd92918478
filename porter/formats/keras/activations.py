"""Keras's activations in porter's ops, by their names: as arguments of a layer, and as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from porter.filegraph.arithmetic import LOG_SIGMOID
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.reductions import glu, softmax
from porter.filegraph.walk import Read, apply
from porter.formats.keras.layer import Layer, axes_in, number, whole
from porter.graph import Op, ops


@dataclass(frozen=True)
class Row:
    """An activation with attributes that a function of `keras.ops` has too: of each Keras's name and
    default.
    """

    op: type[Any]
    attributes: Mapping[str, tuple[str, float]]

    def __call__(self, layer: Layer) -> Op:
        stated = {
            name: number(layer.first_of(own, default=usual)) for name, (own, usual) in self.attributes.items()
        }
        found: Op = self.op(**stated)
        return found

    def write(self, op: Op) -> tuple[float, ...]:
        """The arguments of the function, after its value."""
        return tuple(getattr(op, name) for name in self.attributes)

    def settings(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The arguments by name, where a file states them."""
        return {
            own: usual if given.get(own) is None else given[own] for own, usual in self.attributes.values()
        }


def _row(op: type[Any], **attributes: tuple[str, float]) -> Row:
    return Row(op, attributes)


# The destination takes an op's last name.
ACTIVATIONS: Mapping[str, Op | Row | Callable[[Layer], Op]] = {
    "relu": ops.Relu(),
    "relu6": ops.Relu6(),
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "softplus": ops.Softplus(),
    "softsign": ops.Softsign(),
    "selu": ops.Selu(),
    "swish": ops.Swish(),
    "silu": ops.Swish(),
    "hard_swish": ops.HardSwish(),
    "hard_silu": ops.HardSwish(),
    "mish": ops.Mish(),
    "softmax": ops.Softmax(),
    "log_softmax": ops.LogSoftmax(),
    "elu": _row(ops.Elu, alpha=("alpha", 1.0)),
    "celu": _row(ops.Celu, alpha=("alpha", 1.0)),
    "gelu": lambda layer: ops.Gelu(bool(layer.arguments.get("approximate"))),
    "leaky_relu": lambda layer: ops.LeakyRelu(number(layer.first_of("negative_slope", "alpha", default=0.2))),
    # Keras 1 and 2 have 0.2 * x + 0.5, Keras 3 x / 6 + 0.5.
    "hard_sigmoid": lambda layer: ops.HardSigmoid() if layer.keras > 2 else ops.HardSigmoid(0.2),
}


_AT = 0.5
"""The threshold of a shrink, where nothing else is stated."""
_HALF = ops.HardSigmoid(0.5, 0.5)
_STEPS: Mapping[str, Sequence[Op]] = {
    "exponential": (ops.Exp(),),
    "hard_tanh": (ops.Clip(-1.0, 1.0),),
    "log_sigmoid": LOG_SIGMOID,
    "sparse_sigmoid": (_HALF,),
}
"""Activations that are ops one after the other."""
_LESS: Mapping[str, tuple[Sequence[Op], Sequence[Op]]] = {
    "tanh_shrink": ((), (ops.Tanh(),)),
    "soft_shrink": ((), (ops.Clip(-_AT, _AT),)),
    "hard_shrink": ((ops.ThresholdedRelu(_AT),), (ops.Affine((-1.0,), (0.0,)), ops.ThresholdedRelu(_AT))),
    "sparse_plus": (
        (_HALF, ops.Power(2.0)),
        (ops.Affine((1.0,), (-1.0,)), ops.Relu(), ops.Affine((-1.0,), (0.0,))),
    ),
    "squareplus": (
        (ops.Affine((0.5,), (0.0,)),),
        (ops.Power(2.0), ops.Affine((0.25,), (1.0,)), ops.Sqrt(), ops.Affine((-1.0,), (0.0,))),
    ),
}
"""Activations that are one value less another one, each of ops one after the other
(keras/src/backend/tensorflow/nn.py).
"""
PARTS = frozenset({"glu", *_STEPS, *_LESS})
"""Activations that porter says by several ops, or otherwise than Keras."""


def activation_name(value: Any) -> str | None:
    """The name in a layer's `activation` argument; None where it is an object.

    Keras 3 writes its own activations as texts, and a user's function as an object. Before Keras had a
    `relu6`, it was an activation of keras.applications.mobilenet (Keras 2.0.6 to 2.2.0).
    """
    if value is None:
        return "linear"
    if not isinstance(value, str):
        return None
    return value.removeprefix("keras.applications.mobilenet.").removeprefix("keras.activations.")


def activated(layer: Layer) -> Read:
    """The value of the activation that `layer.op` names.

    Raises:
        Unsupported: porter has no op for it.
    """
    if layer.op in PARTS:
        return _in_parts(layer)
    found = ACTIVATIONS.get(layer.op)
    if found is None:
        raise Unsupported("that porter does not know")
    if isinstance(found, ops.Softmax | ops.LogSoftmax):
        return softmax(layer.walk, layer, layer.source, *axes_in(layer), op=found)
    return apply(layer.walk, layer, layer.source, found if isinstance(found, Op) else found(layer))


def _in_parts(layer: Layer) -> Read:
    """An activation of PARTS, with Keras's own numbers."""
    name, walk, arguments = layer.op, layer.walk, layer.arguments
    if arguments.get("threshold", _AT) != _AT or arguments.get("b", 4) != 4:
        raise Unsupported("with other numbers than its own")
    if name == "glu":
        return glu(walk, layer, layer.source, whole(arguments.get("axis", -1)))
    if name in _STEPS:
        return apply(walk, layer, layer.source, *_STEPS[name])
    view, build = walk.kept(layer.source), layer.build
    first, second = (build.chain(f"{layer.name}:part", view.value, links) for links in _LESS[name])
    return walk.views.like(view, build.subtract(layer.name, first, second))
