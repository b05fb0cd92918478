"""Keras's activations in porter's ops, by their names: as arguments of a layer, and as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors.functions import exp, glu, hard_shrink, log_sigmoid, relu, soft_shrink, sqrt
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.stated_layer import KerasLayer, axes_in, number, whole_number
from porter.graph import Op, ops


@dataclass(frozen=True)
class ActivationRow:
    """An activation with attributes, which a function of `keras.ops` has too.

    Attributes:
        op: the class of porter's op.
        attributes: Keras's name and default of each attribute, by porter's name.
    """

    op: type[Any]
    attributes: Mapping[str, tuple[str, float]]

    def __call__(self, layer: KerasLayer) -> Op:
        """Return porter's op with the attributes that a layer states."""
        attributes = {
            name: number(layer.first_of(keras_name, default=default))
            for name, (keras_name, default) in self.attributes.items()
        }
        op: Op = self.op(**attributes)
        return op

    def write(self, op: Op) -> tuple[float, ...]:
        """Return the arguments of the function that come after its value."""
        return tuple(getattr(op, name) for name in self.attributes)

    def settings(self, stated: Mapping[str, Any]) -> dict[str, float]:
        """Return the function's arguments by Keras's names; `stated` are those that a file states."""
        return {
            name: default if stated.get(name) is None else stated[name]
            for name, default in self.attributes.values()
        }


def _activation_row(op: type[Any], **attributes: tuple[str, float]) -> ActivationRow:
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
    "elu": _activation_row(ops.Elu, alpha=("alpha", 1.0)),
    "celu": _activation_row(ops.Celu, alpha=("alpha", 1.0)),
    "gelu": lambda layer: ops.Gelu(bool(layer.arguments.get("approximate"))),
    "leaky_relu": lambda layer: ops.LeakyRelu(number(layer.first_of("negative_slope", "alpha", default=0.2))),
    # Keras 1 and 2 have 0.2 * x + 0.5, Keras 3 x / 6 + 0.5.
    "hard_sigmoid": lambda layer: ops.HardSigmoid() if layer.keras > 2 else ops.HardSigmoid(0.2),
}


_SHRINK_THRESHOLD = 0.5
"""The threshold of a shrink, where nothing else is stated."""
_SQUAREPLUS_B = 4
"""The argument `b` of squareplus, where nothing else is stated."""


def _sparse_sigmoid(x: Tensor) -> Tensor:
    return x.apply_elementwise(ops.HardSigmoid(0.5, 0.5))


_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exponential": exp,
    "hard_shrink": lambda x: hard_shrink(x, _SHRINK_THRESHOLD),
    "hard_tanh": lambda x: x.apply_elementwise(ops.Clip(-1.0, 1.0)),
    "log_sigmoid": log_sigmoid,
    "soft_shrink": lambda x: soft_shrink(x, _SHRINK_THRESHOLD),
    "sparse_plus": lambda x: _sparse_sigmoid(x) ** 2.0 + relu(x - 1.0),
    "sparse_sigmoid": _sparse_sigmoid,
    "squareplus": lambda x: 0.5 * x + sqrt(0.25 * x**2.0 + 1.0),
    "tanh_shrink": lambda x: x - x.apply_elementwise(ops.Tanh()),
}
"""Activations that are several of porter's ops, with Keras's own numbers
(keras/src/backend/tensorflow/nn.py).
"""
PARTS = frozenset({"glu", *_FUNCTIONS})
"""Activations that porter says by several ops, or otherwise than Keras."""


def activation_name(value: Any) -> str | None:
    """Return the name in a layer's `activation` argument; None where it is an object.

    Keras 3 writes its own activations as texts, and a user's function as an object. Before Keras had a
    `relu6`, it was an activation of keras.applications.mobilenet (Keras 2.0.6 to 2.2.0).
    """
    if value is None:
        return "linear"
    if not isinstance(value, str):
        return None
    return value.removeprefix("keras.applications.mobilenet.").removeprefix("keras.activations.")


def apply_activation(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of the activation of `x` that `layer.op` names. GLU halves an axis, softmaxes run
    along axes, some activations are made of several ops, and all others are one op on each number.

    Raises:
        Unsupported: porter has no op for it.
    """
    arguments = layer.arguments
    threshold = arguments.get("threshold", _SHRINK_THRESHOLD)
    squareplus_b = arguments.get("b", _SQUAREPLUS_B)
    # Those that are made of parts have these numbers built in.
    if layer.op in PARTS and (threshold != _SHRINK_THRESHOLD or squareplus_b != _SQUAREPLUS_B):
        raise Unsupported("with other numbers than its own")
    if layer.op == "glu":
        return glu(x, whole_number(arguments.get("axis", -1)))
    if layer.op in _FUNCTIONS:
        return _FUNCTIONS[layer.op](x)
    form = ACTIVATIONS.get(layer.op)
    if form is None:
        raise Unsupported(f"with activation '{layer.op:.60}'")
    if isinstance(form, ops.Softmax | ops.LogSoftmax):
        return x.softmax(*axes_in(layer, x), op=form)
    # An op with attributes is made from the layer's arguments.
    return x.apply_elementwise(form if isinstance(form, Op) else form(layer))
