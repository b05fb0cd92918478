"""Ops for which the converted model has another form than Keras's layers.

An array is a constant of it, because nothing in a model.tflite is trained: a layer of Keras would take the
product of the array with ones of the batch's size, which TensorFlow Lite only knows as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.base.dtypes import Array
from porter.frameworks.tf.ports.layers import resize, resize_by_operations
from porter.frameworks.tf.ports.maker import LayerMaker
from porter.frameworks.tf.ports.model import Spelling
from porter.frameworks.tf.ports.statement import Symbol
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


def _softplus(maker: LayerMaker, op: ops.Softplus, name: str, inputs: list[Symbol]) -> Symbol:
    """max(x, 0) + log(1 + exp(-abs(x))), which a cut does not change in float32. TensorFlow Lite has no
    operator for Keras's: the converter makes log(exp(x) + 1) of it, which is infinite above 88.
    """

    def step(function: str, *operands: Any) -> Symbol:
        return maker.operation(function, maker.name(f"{name}_{function}"), *operands)

    near = step("exp", step("negative", step("absolute", inputs[0])))
    rest = step("log", step("add", near, 1.0))
    return maker.operation("add", name, maker.layer("ReLU", maker.name(f"{name}_relu"), inputs[0]), rest)


def _resize(maker: LayerMaker, op: ops.Resize, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's UpSampling2D asks whether the new size is above 0, which no graph of an open size answers."""
    spelling = resize_by_operations if None in inputs[0].shape[1:3] and not op.size else resize
    return spelling(maker, op, name, inputs)


SPELLINGS: Mapping[type[Op], Spelling] = {
    ops.Resize: _resize,
    ops.Softplus: _softplus,
    ops.AddArray: _add,
    ops.MultiplyArray: _multiply,
    ops.Tokens: _tokens,
}
