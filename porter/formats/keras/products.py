"""Keras's products: with a kernel by an equation, and of two values, as they are or over their norms."""

from __future__ import annotations

import math

from porter.base.dtypes import Array
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import Items
from porter.filegraph.tensors.einsum import Kernel, read_equation
from porter.filegraph.tensors.functions import divide_by_norm, norm
from porter.filegraph.tensors.several import einsum
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.stated_layer import KerasLayer, pair

_KERAS_1_EPSILON = 10e-8
"""The epsilon of Keras 1's backends, unless a user's ~/.keras/keras.json stated another one
(keras/backend/common.py).
"""


def stored_array(layer: KerasLayer) -> tuple[str, Array] | None:
    """Return the kernel of an EinsumDense that only multiplies each number by one of its own, as an array
    that broadcasts against the input: its tensor's name and its content. Return None for another layer.

    For instance `bijc,jc->bijc` multiplies each row i by a kernel J×C, which is given as 1×1×J×C. The result
    has the input's axes there, and the kernel some of them in the same order.
    """
    if layer.op != "EinsumDense" or "kernel" not in layer.tensors or "bias" in layer.tensors:
        return None
    kernel = layer.arrays["kernel"]
    equation = read_equation(str(layer.arguments.get("equation")), 0)
    if equation is None or not equation.only_scales or kernel.ndim != len(equation.second):
        return None
    x, second, _ = equation
    sizes = (kernel.shape[second.index(axis)] if axis in second else 1 for axis in x[1:])
    return layer.tensors["kernel"], kernel.reshape(1, *sizes)


def read_einsum(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an EinsumDense that multiplies each number by its own, or that is a dense layer
    over some axes.
    """
    if (stored := stored_array(layer)) is not None:
        name, _ = stored
        return x * x.scope.tensor((name, 0))
    kernel = layer.stored("kernel")
    bias_axes = layer.arguments.get("bias_axes")
    description = f"by '{layer.arguments.get('equation')!s:.40}'"
    equation = read_equation(str(layer.arguments.get("equation")), x.rank)
    if equation is None:
        raise Unsupported(description)
    if bias_axes:
        # The bias's axes must be the units, in their order.
        units = equation.units
        in_result = "".join(axis for axis in equation.result if axis in bias_axes)
        in_order_of_units = "".join(sorted(bias_axes, key=units.find))
        if not units == in_result == in_order_of_units:
            raise Unsupported(f"{description} with a bias along {bias_axes!s:.40}")
    bias = layer.stored("bias").name if bias_axes else None
    product_kernel = Kernel(kernel.name, layer.arrays["kernel"].shape, bias)
    return x.with_kernel(equation, product_kernel).with_refusal_prefix(description)


def read_dot(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of a Dot: the sums over an axis of each of two values; of features N×1, over their
    norms if they are normalised (keras/src/layers/merging/dot.py, `_merge_function`; Keras 2 has
    tf.math.l2_normalize, which bounds the square of a norm).
    """
    axes = pair(layer.arguments["axes"])
    is_normalised = layer.arguments.get("normalize")
    ranks = [value.rank for value in values]
    if len(ranks) != 2 or (is_normalised and ranks != [2, 2]):
        raise Unsupported(f"of normalised values, or of {len(ranks)}")
    # Two values N×C give one sum for each image.
    if ranks == [2, 2] and all(axis in (1, -1) for axis in axes):
        least_norm = 1e-7 if layer.keras > 2 else 1e-6
        first, second = (
            divide_by_norm(value, 2, [1], least_norm) if is_normalised else value for value in values
        )
        return (first * second).sum([1], True)
    # `n` is the batch, and `k` becomes the axis that is summed over: two values of three axes with `axes` of
    # 2 and 1 give nAk,nkE->nAE.
    sides = ["nABC"[: ranks[0]], "nDEF"[: ranks[1]]]
    for side, axis in enumerate(axes):
        sides[side] = sides[side].replace(Items(sides[side])[axis], "k")
    first_axes, second_axes = (letters.replace("k", "") for letters in sides)
    # The second value's first letter is the batch, which the result has once.
    return einsum(f"{','.join(sides)}->{first_axes}{second_axes[1:]}", *values)


def read_cosine(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of Keras 1's Merge by cos of features: their product over that of their norms, or over
    its epsilon where that is smaller. It is N×1×1 (keras/engine/topology.py of Keras 1.2.2, which gives the
    root of the product of the sums of squares).
    """
    if [value.rank for value in values] != [2, 2]:
        raise Unsupported("of other values than two of features, whose sums of products may have no root")
    first, second = values
    norms = norm(first, 2, [1], True) * norm(second, 2, [1], True)
    return ((first * second).sum([1], True) / norms.clip(_KERAS_1_EPSILON, math.inf)).unsqueeze([1])
