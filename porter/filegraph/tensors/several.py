"""Operations of several tensors: joins, products, extremes and attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce as over

from porter.base.dtypes import Numbers
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import View
from porter.filegraph.tensors import (
    arithmetic,
    attention as attention_layer,
    constants,
    einsum as einsums,
    joins,
    products,
)
from porter.filegraph.tensors.attention import PLAIN, AttentionScores
from porter.filegraph.tensors.tensor import Operand, Tensor, combine_operands, compute_or_derive
from porter.filegraph.walk import Read


def maximum(first: Tensor, second: Operand) -> Tensor:
    return combine_operands("larger", "Max", first, second)


def minimum(first: Tensor, second: Operand) -> Tensor:
    return combine_operands("smaller", "Min", first, second)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors along an axis."""
    return compute_or_derive(
        "joined",
        lambda *arrays: constants.concat(arrays, axis),
        lambda node: joins.concat(tensors[0].walk, node, [each.source for each in tensors], axis),
        *tensors,
    )


def stack(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Stack tensors along a new axis: constants to a constant, values as parts of the channels or as arrays.

    Raises:
        Unsupported: some are constants, and some are not.
    """

    def make(node: OperatorNode) -> Read:
        if not all(each.is_value for each in tensors):
            raise Unsupported("with a constant")
        return joins.stack(tensors[0].walk, node, [each.source for each in tensors], axis)

    return compute_or_derive("stack", lambda *arrays: constants.stack(arrays, axis), make, *tensors)


def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """Multiply and sum tensors along axes by an equation such as `abc,cd->abd`."""
    first = tensors[0]
    return first.derive(
        "product",
        lambda node: einsums.einsum(first.walk, node, equation, [each.source for each in tensors]),
    )


def matmul(first: Tensor, second: Tensor, transposed: Sequence[bool] = (False, False)) -> Tensor:
    """Multiply two tensors as matrices, over their last two axes.

    Args:
        transposed: for each of the two, whether its last two axes are swapped first.
    """

    def of_constants(*arrays: Numbers) -> Numbers:
        """Multiply two arrays, of which some have their last two axes swapped."""
        matrices = (
            array.swapaxes(-1, -2) if swaps else array
            for array, swaps in zip(arrays, transposed, strict=True)
        )
        return constants.matmul(*matrices)

    return compute_or_derive(
        "product",
        of_constants,
        lambda node: products.matmul(first.walk, node, (first.source, second.source), transposed),
        first,
        second,
    )


def attention(query: Tensor, key: Tensor, value: Tensor, scores: AttentionScores = PLAIN) -> Tensor:
    """Add the attention softmax(scale * q @ k^T + mask) @ v over the last two axes, and return it."""
    walk = query.walk

    def make(node: OperatorNode) -> View:
        """Add the attention of the three values as arrays."""
        arrays = [
            walk.layouts.as_array(f"{node.name}:{word}", operand.view)
            if isinstance(operand.source, View)
            else walk.layouts.array(operand.source)
            for word, operand in (("query", query), ("key", key), ("value", value))
        ]
        return attention_layer.attention(walk, node, arrays, scores)

    return query.derive("attention", make)


def matmul_stored(matrix: Tensor, x: Tensor) -> Tensor:
    """Multiply a stored matrix, from the left, by the matrices of a value."""
    return x.derive("product", lambda node: einsums.matmul_stored(x.walk, node, matrix.reference, x.source))


def bilinear(first: Tensor, second: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply each feature of a value with each of another one, by a stored kernel of
    units×features×features.
    """

    def make(node: OperatorNode) -> View:
        stored_bias = None if bias is None else bias.reference
        return einsums.bilinear(
            first.walk, node, (first.source, second.source), kernel.reference, stored_bias
        )

    return first.derive("product", make)


def merge_all(kind: str, tensors: Sequence[Tensor]) -> Tensor:
    """Combine several tensors into their sum, product, mean or extreme, by the kind that `combine` takes. Of
    constants the result is a constant.
    """

    def make(node: OperatorNode) -> Read:
        return arithmetic.combine(tensors[0].walk, node, kind, [each.source for each in tensors])

    return compute_or_derive(
        kind.lower(),
        lambda *arrays: over(partial(constants.compute_elementwise, kind), arrays),
        make,
        *tensors,
    )
