"""Keras's activations in porter's ops, by their names: as arguments of a layer, and as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.functions import exp, glu, hard_shrink, log_sigmoid, relu, soft_shrink, sqrt
from porter.filegraph.tensor import Tensor
from porter.formats.keras.layer import KerasLayer, axes_in, number, whole
from porter.graph import Op, ops


@dataclass(frozen=True)
class ActivationRow:
    """An activation with attributes that a function of `keras.ops` has too: of each Keras's name and
    default.
    """

    op: type[Any]
    attributes: Mapping[str, tuple[str, float]]

    def __call__(self, layer: KerasLayer) -> Op:
        attributes = {
            name: number(layer.first_of(own, default=usual)) for name, (own, usual) in self.attributes.items()
        }
        op: Op = self.op(**attributes)
        return op

    def write(self, op: Op) -> tuple[float, ...]:
        """The arguments of the function, after its value."""
        return tuple(getattr(op, name) for name in self.attributes)

    def settings(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The arguments by name, where a file states them."""
        return {
            own: usual if given.get(own) is None else given[own] for own, usual in self.attributes.values()
        }


def _row(op: type[Any], **attributes: tuple[str, float]) -> ActivationRow:
    return ActivationRow(op, attributes)


# The destination takes an op's last name.
ACTIVATIONS: Mapping[str, Op | ActivationRow | Callable[[KerasLayer], Op]] = {
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


def _half(x: Tensor) -> Tensor:
    return x.apply_elementwise(ops.HardSigmoid(0.5, 0.5))


_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exponential": exp,
    "hard_shrink": lambda x: hard_shrink(x, _AT),
    "hard_tanh": lambda x: x.apply_elementwise(ops.Clip(-1.0, 1.0)),
    "log_sigmoid": log_sigmoid,
    "soft_shrink": lambda x: soft_shrink(x, _AT),
    "sparse_plus": lambda x: _half(x) ** 2.0 + relu(x - 1.0),
    "sparse_sigmoid": _half,
    "squareplus": lambda x: 0.5 * x + sqrt(0.25 * x**2.0 + 1.0),
    "tanh_shrink": lambda x: x - x.apply_elementwise(ops.Tanh()),
}
"""Activations that are several of porter's ops, with Keras's own numbers
(keras/src/backend/tensorflow/nn.py).
"""
PARTS = frozenset({"glu", *_FUNCTIONS})
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


def activated(layer: KerasLayer, x: Tensor) -> Tensor:
    """The value of the activation that `layer.op` names.

    Raises:
        Unsupported: porter has no op for it.
    """
    arguments = layer.arguments
    if layer.op in PARTS and (arguments.get("threshold", _AT) != _AT or arguments.get("b", 4) != 4):
        raise Unsupported("with other numbers than its own")
    if layer.op == "glu":
        return glu(x, whole(arguments.get("axis", -1)))
    if layer.op in _FUNCTIONS:
        return _FUNCTIONS[layer.op](x)
    form = ACTIVATIONS.get(layer.op)
    if form is None:
        raise Unsupported(f"with activation '{layer.op:.60}'")
    if isinstance(form, ops.Softmax | ops.LogSoftmax):
        return x.softmax(*axes_in(layer, x), op=form)
    return x.apply_elementwise(form if isinstance(form, Op) else form(layer))
