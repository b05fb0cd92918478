"""Sums of products by an equation such as `abc,cd->abd`: the layers of an attention as Keras, TensorFlow and others write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from porter.filegraph import array_products, arrays
from porter.filegraph.arithmetic import combine
from porter.filegraph.dataflow import N, Reference, Tensor
from porter.filegraph.dims import Dim, product
from porter.filegraph.file_graph import Stored
from porter.filegraph.layouts import View
from porter.filegraph.walk import Lacks, Read, Walk
from porter.graph import Conv
from porter.padding import Convention, Window


class Equation(NamedTuple):
    """The axes of two operands and of the result, a letter for each."""

    first: str
    second: str
    result: str


class Kernel(NamedTuple):
    """A stored operand, and what is added to the result, with the axes that only the operand has."""

    name: str
    shape: tuple[int, ...]
    bias: str | None = None


def read_equation(text: str, rank: int) -> Equation | None:
    """None for other than two operands, and where an operand has a letter twice, or axes without one.

    Args:
        rank: of the first operand. Its axes without a letter, written as an ellipsis, get one.
    """
    first, rest = text.replace(" ", "").partition(",")[::2]
    unnamed = "".join(each for each in "ABCDEFGHIJ" if each not in text)[: max(rank - len(first) + 3, 0)]
    inputs, _, result = f"{first},{rest}".replace("...", unnamed).partition("->")
    sides = (*inputs.split(","), result)
    return Equation(*sides) if len(sides) == 3 and all(each.isalpha() and len({*each}) == len(each) for each in sides) else None


def einsum(walk: Walk[N], node: N, text: str, sources: Sequence[Reference]) -> Read:
    """The product of two values, or of a value and a stored kernel."""
    equation = read_equation(text, len(walk.sizes(sources[0]) or ()))
    if equation is None or len(sources) != 2:
        return _unsaid(node, text)
    if all(map(walk.is_value, sources)):
        return _of_values(walk, node, equation, sources) or _unsaid(node, text)
    if not walk.is_value(sources[0]):
        equation, sources = Equation(equation.second, equation.first, equation.result), sources[::-1]
    tensor, (x, held, result) = walk.flow.weights(sources[1]), equation
    if result == x and held == "".join(axis for axis in x[1:] if axis in held):
        return _scaled(walk, node, equation, sources, tensor)
    kernel = Kernel(tensor.name, tensor.shape) if tensor is not None else None
    view = walk.kept(sources[0])
    found = kernel and (with_kernel(walk, node.name, view, equation, kernel) or _by_groups(walk, node.name, view, equation, kernel))
    return found or _unsaid(node, text)


def with_matrices(walk: Walk[N], node: N, source: Reference, matrices: Tensor) -> Read:
    """A value times stored matrices, of which each has a place of its own in the value's axes before the last two."""
    rank, shape = len(walk.sizes(source) or ()), matrices.shape
    while shape[0] == 1:
        shape = shape[1:]
    places = "abcdefgh"[: max(rank - 2, 0)]
    held = places[len(places) - len(shape) + 2 :] if len(shape) - 2 <= len(places) else ""
    equation = Equation(f"{places}mk", f"{held}kn", f"{places}mn")
    kernel, view = Kernel(matrices.name, shape), walk.kept(source)
    fits = len(shape) == len(held) + 2 > 2
    found = _by_groups(walk, node.name, view, equation, kernel) if fits else None
    return found or Lacks(f"{node.op} with matrices of other axes")


def by_matrix(walk: Walk[N], node: N, first: Reference, source: Reference) -> Read:
    """A stored matrix, which may be repeated for each image, times the matrices of a value, as learned queries meet its tokens."""
    matrix, rank = walk.flow.weights(walk.unrepeated(first)), len(walk.sizes(source) or ())
    if matrix is None or rank < 3:
        return Lacks(f"{node.op} of a constant and a value")
    shape, places = matrix.shape, "abcdefgh"[: rank - 2]
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    equation, kernel = Equation(f"{places}km", "nk", f"{places}nm"), Kernel(matrix.name, shape)
    found = with_kernel(walk, node.name, walk.kept(source), equation, kernel)
    return found or Lacks(f"{node.op} of a constant of other axes and a value")


def _scaled(walk: Walk[N], node: N, equation: Equation, sources: Sequence[Reference], tensor: Tensor | None) -> Read:
    """A value times a stored array that has some of its axes."""
    x, held, _ = equation
    if x.endswith(held):
        return combine(walk, node, "Mul", sources)
    array = walk.array(sources[0])
    if array is None or tensor is None:
        return Lacks(f"{node.op} by an array that is computed")
    known = dict(zip(held, tensor.shape, strict=True))
    stored = Tensor(tensor.name, tuple(known.get(axis, 1) for axis in x[1:]))
    value = arrays.with_stored(walk, node.name, "Mul", array.value, stored)
    return arrays.like(walk, array, value) if value is not None else Lacks()


def with_kernel(walk: Walk[N], name: str, view: View, equation: Equation, kernel: Kernel) -> View | None:
    """A dense layer over axes of a value, whose features and whose units may be several axes; None where it is another product."""
    x, held, result = equation
    summed, units = [axis for axis in held if axis in x], [axis for axis in held if axis not in x]
    kept = [axis for axis in x if axis not in held]
    if not (summed and kept) or sorted(result) != sorted(kept + units) or len(kernel.shape) != len(held):
        return None
    stored = dict(zip(held, kernel.shape, strict=True))
    sizes = {**_sizes(x, view), **stored}
    flat = _joined(view, x, [*([axis] for axis in kept), summed], sizes)
    if flat is not None and not walk.views.has_channels(flat, -1):
        flat = walk.as_array(f"{name}:taken", flat)
    if flat is None or not walk.views.has_channels(flat, -1):
        return None
    tensors = {"kernel": Stored(kernel.name, "".join("I" if axis in x else "O" for axis in held))}
    if kernel.bias is not None:
        tensors["bias"] = Stored(kernel.bias, "O" * len(units))
    value = walk.builder.dense(name, flat.value, math.prod(stored[axis] for axis in units), tensors)
    return _apart(walk.views.like(flat, value), [*([axis] for axis in kept), units], result, sizes)


def _by_groups(walk: Walk[N], name: str, view: View, equation: Equation, kernel: Kernel) -> View | None:
    """A kernel for each place of some axes, which stay: a convolution of single cells, where these places are the groups."""
    x, held, result = equation
    summed, units = [axis for axis in held if axis not in result], [axis for axis in held if axis not in x]
    groups, kept = [axis for axis in held if axis in x and axis in result], [axis for axis in x if axis not in held]
    letters = "".join("I" if axis in summed else "O" for axis in held)
    ordered = [axis for axis in held if axis not in summed] == groups + units and {*summed} <= {*x}
    if not ordered or not (summed and groups and kept) or sorted(result) != sorted(kept + groups + units):
        return None
    stored = dict(zip(held, kernel.shape, strict=True))
    sizes = {**_sizes(x, view), **stored}
    flat = _joined(view, x, [*([axis] for axis in kept), groups + summed], sizes)
    array = flat and walk.as_array(f"{name}:taken", flat)
    cells = array and arrays.as_cells(walk, f"{name}:cells", array)
    if not cells:
        return None
    count = math.prod(stored[axis] for axis in groups)
    op = Conv(count * math.prod(stored[axis] for axis in units), Window((1, 1)), Convention(), groups=count)
    value = walk.builder.conv(name, cells.value, op, {"kernel": Stored(kernel.name, letters)})
    return _apart(walk.views.like(cells, value), [*([axis] for axis in kept), groups + units], result, sizes)


def _of_values(walk: Walk[N], node: N, equation: Equation, sources: Sequence[Reference]) -> View | None:
    x, y, result = equation
    views = [walk.kept(source) for source in sources]
    shared, summed = [axis for axis in x if axis in y and axis in result], [axis for axis in x if axis in y and axis not in result]
    left, right = ([axis for axis in one if axis not in other] for one, other in ((x, y), (y, x)))
    if sorted(result) != sorted(shared + left + right) or not (shared and summed):
        return None
    sizes = _sizes(x, views[0]) | _sizes(y, views[1])
    of_batch = {letter for letter, axis in zip(x, views[0].axes or (), strict=False) if any(piece.axis == "N" for piece in axis)}
    shared.sort(key=lambda axis: axis not in of_batch)
    first = _joined(views[0], x, [*([axis] for axis in shared), left, summed], sizes)
    second = _joined(views[1], y, [*([axis] for axis in shared), summed, right], sizes)
    if first is None or second is None:
        return None
    found = array_products.product(walk, node, (first, second))
    return _apart(found, [*([axis] for axis in shared), left, right], result, sizes) if isinstance(found, View) else None


def _sizes(letters: str, view: View) -> dict[str, Dim]:
    sizes = view.sizes or ()
    return dict(zip(letters, sizes, strict=True)) if len(letters) == len(sizes) else {}


def _joined(view: View, letters: str, wanted: Sequence[Sequence[str]], sizes: Mapping[str, Dim]) -> View | None:
    """The tensor with these axes, of which each is several of its own, outermost first."""
    if view.axes is None or len(view.axes) != len(letters):
        return None
    turned = view.transposed([letters.index(axis) for axes in wanted for axis in axes])
    return turned and turned.reshaped([product(sizes[axis] for axis in axes) for axes in wanted])


def _apart(view: View, letters: Sequence[Sequence[str]], result: str, sizes: Mapping[str, Dim]) -> View | None:
    """The tensor, whose axes are joined ones of these letters, with each of them apart, in the order of the result."""
    own = zip(letters, view.sizes or (), strict=True)  # an open size has another number in each value
    split = view.reshaped([size for axes, whole in own for size in ([whole] if len(axes) == 1 else [sizes[axis] for axis in axes])])
    order = [axis for axes in letters for axis in axes]
    return split and split.transposed([order.index(axis) for axis in result])


def _unsaid(node: N, text: str) -> Lacks:
    return Lacks(f"{node.op} by '{text:.40}'")
