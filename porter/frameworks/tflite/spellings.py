"""Ops for which the converted model has another form than Keras's layers.

An array is a constant of it, because nothing in a model.tflite is trained: a layer of Keras would take the
product of the array with ones of the batch's size, which TensorFlow Lite only knows as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.base.dtypes import Array
from porter.frameworks.tf.ports.layers import resize, resize_by_operations
from porter.frameworks.tf.ports.maker import KerasNode
from porter.frameworks.tf.ports.model import Spelling
from porter.frameworks.tf.ports.statement import CallValue
from porter.graph import Op, ops


def _add(node: KerasNode[ops.AddArray], array: Array) -> CallValue:
    return node.operation("add", node.value, array[None])


def _multiply(node: KerasNode[ops.MultiplyArray], array: Array) -> CallValue:
    return node.operation("multiply", node.value, array[None])


def _tokens(node: KerasNode[ops.Tokens], array: Array) -> CallValue:
    """State trained tokens before those of a value. They are zeros of the batch's size, made by a pad of the
    value, to which the trained numbers are added.
    """
    with_room = node.step("room", "pad", node.value, ((0, 0), (node.op.count, 0), (0, 0)))
    first = node.step("zeros", "getitem", with_room, (slice(None), slice(None, node.op.count)))
    tokens = node.step("tokens", "add", first, array[None])
    return node.layer("Concatenate", [tokens, node.value], axis=1)


def _softplus(node: KerasNode[ops.Softplus]) -> CallValue:
    """State max(x, 0) + log(1 + exp(-abs(x))), which a cut does not change in float32. TensorFlow Lite has no
    operator for Keras's Softplus: the converter makes log(exp(x) + 1) of it, which is infinite above 88.
    """

    def step(function: str, *operands: Any) -> CallValue:
        return node.step(function, function, *operands)

    exponential = step("exp", step("negative", step("absolute", node.value)))
    logarithm = step("log", step("add", exponential, 1.0))
    return node.operation("add", node.under("relu").layer("ReLU"), logarithm)


def _resize(node: KerasNode[ops.Resize]) -> CallValue:
    """State a resize by its operations where sizes are open: Keras's UpSampling2D asks whether the new size
    is above 0, which no graph of an open size answers.
    """
    is_of_open_size = None in node.value.shape[1:3] and not node.op.size
    return resize_by_operations(node) if is_of_open_size else resize(node)


SPELLINGS: Mapping[type[Op], Spelling] = {
    ops.Resize: _resize,
    ops.Softplus: _softplus,
    ops.AddArray: _add,
    ops.MultiplyArray: _multiply,
    ops.Tokens: _tokens,
}
