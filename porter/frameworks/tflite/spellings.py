"""How a model without trained layers says the ops that hold an array: the array is a constant of it.

A layer of Keras would take the product of the array with ones of the batch's size, which TensorFlow Lite only
knows as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.dtypes import Array
from porter.frameworks.tf.maker import LayerMaker
from porter.frameworks.tf.model import Constant
from porter.frameworks.tf.statement import Symbol
from porter.graph import Op, ops


def _add(maker: LayerMaker, op: ops.AddArray, name: str, inputs: list[Symbol], array: Array) -> Symbol:
    return maker.operation("add", name, inputs[0], array[None])


def _multiply(
    maker: LayerMaker, op: ops.MultiplyArray, name: str, inputs: list[Symbol], array: Array
) -> Symbol:
    return maker.operation("multiply", name, inputs[0], array[None])


def _tokens(maker: LayerMaker, op: ops.Tokens, name: str, inputs: list[Symbol], array: Array) -> Symbol:
    """Zeros before the array's tokens, to which the trained ones are added."""
    whole = maker.operation("pad", maker.name(f"{name}_room"), inputs[0], ((0, 0), (op.count, 0), (0, 0)))
    first = maker.part(whole, (slice(None), slice(None, op.count)), maker.name(f"{name}_zeros"))
    tokens = maker.operation("add", maker.name(f"{name}_tokens"), first, array[None])
    return maker.layer("Concatenate", name, [tokens, inputs[0]], axis=1)


CONSTANTS: Mapping[type[Op], Constant] = {
    ops.AddArray: _add,
    ops.MultiplyArray: _multiply,
    ops.Tokens: _tokens,
}
