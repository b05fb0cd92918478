"""Products of a value and a stored kernel, as dense layers, and of two values: of their last axes, or by an
equation such as `abc,cd->abd`, as Keras, TensorFlow and others write the layers of an attention.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from porter.filegraph.arithmetic import combine, is_vector, of_values, with_array, with_stored
from porter.filegraph.axes import View
from porter.filegraph.dataflow import N, OperatorNode, Reference, StoredTensor
from porter.filegraph.dims import Dim, Numbers, Open, product
from porter.filegraph.file_graph import Stored, Unsupported, first_of, tried
from porter.filegraph.parts import diagonal
from porter.filegraph.places import place_of
from porter.filegraph.reductions import reduce
from porter.filegraph.walk import NodeWalk, Source, Walk, within
from porter.graph import (
    Add,
    Affine,
    Conv,
    MatMul,
    Softmax,
    Tanh,
)
from porter.padding import Convention, Window

_MOST_SUMMED = 1024
"""More cells than sums are kept of: a matrix has the square of it."""


@dataclass(frozen=True)
class Product:
    """factors[0] * value @ kernel + factors[1] * bias.

    Attributes:
        axes: of the kernel, as in Stored.
        bias: a constant of one number, or one for each unit.
        place: of the features in the value; if it is not the last, the value is transposed before its
            product.
    """

    kernel: Reference
    axes: str
    bias: Reference | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    place: int = -1


def dense(walk: Walk, node: OperatorNode, source: Source, product: Product) -> View:
    """A product as a dense layer, or over the cells of a map as a 1x1 convolution."""
    axes, bias, factors, place = product.axes, product.bias, product.factors, product.place
    tensor = walk.weights(product.kernel)
    if tensor is None or len(tensor.shape) != 2 or not axes:
        raise Unsupported("by a kernel that is computed, or has other axes than two")
    taken, units = (tensor.shape[axes.index(axis)] for axis in "IO")
    view = walk.by_cell(source, place)
    view = view if place == -1 else view.transposed((1, 0))
    if view.axes is not None and not walk.views.has_channels(view, -1):
        view = walk.as_array(f"{node.name}:rows", view)
    if (view.axes is not None and not walk.views.has_channels(view, -1)) or view.value.channels not in (
        None,
        taken,
    ):
        raise Unsupported("over other axes than the channels")
    tensors = {"kernel": Stored(tensor.name, axes)}
    vector = None if bias is None or factors[1] != 1 else walk.weights(bias)
    if vector is not None and is_vector(vector, units):
        tensors["bias"], bias = Stored(vector.name), None
    value = walk.builder.affine(f"{node.name}:factor", view.value, factors[:1], (0.0,))
    value = walk.builder.dense(node.name, value, units, tensors)
    if bias is not None:
        numbers = walk.constant(bias)
        each_row = numbers is not None and numbers.size not in (1, (*numbers.shape, 1)[numbers.ndim - 1])
        if numbers is None or (each_row and not walk.views.whole):
            raise Unsupported("with a bias for each image")
        if each_row or (value.is_array and numbers.size > 1):
            held = walk.flow.hold(f"{node.name}:bias", numbers * factors[1])
            return walk.views.like(view, with_stored(walk, node.name, "Add", value, held))
        value = walk.builder.affine(
            f"{node.name}:bias", value, (1.0,), (numbers.ravel() * factors[1]).tolist()
        )
    return walk.views.like(view, value)


def along_channels(
    walk: NodeWalk[N], node: N, source: Source, kernel: Reference, pads: Sequence[int]
) -> View:
    """A 1-D convolution along the channels by one kernel, as of ECA: a dense layer that has the kernel along
    its diagonals.

    Args:
        kernel: 1×1×numbers; the value is N×1×channels.
        pads: how many zeros stand before the first channel, and after the last one.
    """
    view, numbers = walk.view(source), walk.constant(kernel)
    along = view.sizes is not None and view.sizes[1:-1] == (1,) and walk.views.has_channels(view, -1)
    if numbers is None or numbers.shape[:2] != (1, 1) or not along:
        raise Unsupported("over other axes than the channels")
    channels, (first, last) = view.value.channels or 0, pads
    units = channels + first + last - numbers.size + 1
    if min(first, last, units - 1) < 0:
        raise Unsupported(f"with pads {pads} around {channels} channels")
    if not walk.flow.affords(8 * units * (channels + first + last)):
        raise Unsupported(f"over {channels} channels")
    padded = np.zeros((units, channels + first + last))
    for place, row in enumerate(padded):
        row[place : place + numbers.size] = numbers.ravel()
    held = walk.flow.hold(node.name, padded[:, first : first + channels])
    return walk.views.like(
        view, walk.builder.dense(node.name, view.value, units, {"kernel": Stored(held.name, "OI")})
    )


def matmul(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], turned: Sequence[bool] = (False, False)
) -> View:
    """The product of two values over their last two axes, or over these axes `turned`."""
    views = []
    for source, turns, is_held in zip(sources, turned, (False, True), strict=True):
        view = walk.view(source)
        if not turns and not (is_held and _turned(walk, view) is not None):
            tried(partial(walk.array, source))  # so that the array has the name of the value
        views.append(_with_last_turned(view) if turns else view)
    return _of_matrices(walk, node, views)


def _of_matrices(walk: Walk, node: OperatorNode, views: Sequence[View]) -> View:
    """As `matmul`, of views."""
    rank, held = len(views[1].axes or ()), _turned(walk, views[1])
    first = walk.as_array(f"{node.name}:first", views[0])
    second = held or walk.as_array(f"{node.name}:second", views[1])
    if len(first.axes or ()) != rank or rank < 3:
        raise Unsupported("of values of different axes")
    value = walk.builder.add(node.name, MatMul(held is not None), first.value, second.value)
    return walk.views.led(value, rank)


def _turned(walk: Walk, view: View) -> View | None:
    """An array that a file turns for a product, before that: what is turned in the file, is not turned
    again.
    """
    return walk.settled_array(_with_last_turned(view)) if len(view.axes or ()) > 2 else None


def _with_last_turned(view: View) -> View:
    rank = len(view.known_axes)
    if rank < 3:
        raise Unsupported("of values of fewer than two axes")
    return view.transposed([*range(rank - 2), rank - 1, rank - 2])


def attention(
    walk: Walk,
    node: OperatorNode,
    heads: Sequence[View],
    mask: Reference | None,
    scale: float | None,
    cap: float = 0.0,
) -> View:
    """softmax(scale * q @ k^T + mask) @ v over the last two axes of q, k and v, which are arrays; the usual
    scale is one over the root of q's channels. Under a `cap`, scores are cap * tanh(score / cap).
    """
    query, key, value = heads
    if not query.value.channels:
        raise Unsupported("of values of unknown size")
    factor = scale if scale is not None else 1 / math.sqrt(query.value.channels)
    scaled = walk.builder.affine(f"{node.name}:scale", query.value, (factor,), (0.0,))
    scores = walk.builder.add(f"{node.name}:scores", MatMul(True), scaled, key.value)
    if cap:
        links = Affine((1 / cap,), (0.0,)), Tanh(), Affine((cap,), (0.0,))
        scores = walk.builder.chain(f"{node.name}:capped", scores, links)
    if mask is not None and walk.is_live(mask):
        scores = walk.builder.add(f"{node.name}:mask", Add(), scores, walk.array(mask).value)
    elif mask is not None:
        scores = with_array(walk, f"{node.name}:mask", "Add", scores, mask)
    shares = walk.builder.add(f"{node.name}:shares", Softmax(), scores)
    return walk.views.led_like(query, walk.builder.add(node.name, MatMul(), shares, value.value))


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
    return (
        Equation(*sides)
        if len(sides) == 3 and all(each.isalpha() and len({*each}) == len(each) for each in sides)
        else None
    )


def einsum(walk: Walk, node: OperatorNode, text: str, sources: Sequence[Source]) -> View:
    """The product of two values, or of a value and a stored kernel; of one value its axes turned, and sums
    and diagonals of it.
    """
    try:
        return _einsum(walk, node, text, sources)
    except Unsupported as error:
        raise Unsupported(f"by '{text:.40}' {error}") from error


def _einsum(walk: Walk, node: OperatorNode, text: str, sources: Sequence[Source]) -> View:
    if len(sources) == 1:
        return _of_one(walk, node, text, sources[0])
    equation = read_equation(text, len(walk.sizes(sources[0]) or ()))
    if equation is None or len(sources) != 2:
        raise Unsupported("which is no product of two values that names each axis once")
    if all(map(walk.is_value, sources)):
        return _of_values(walk, node, equation, sources)
    if not walk.is_value(sources[0]):
        equation, sources = Equation(equation.second, equation.first, equation.result), sources[::-1]
    tensor, (x, held, result) = walk.weights(sources[1]), equation
    if result == x and held == "".join(axis for axis in x[1:] if axis in held):
        return _scaled(walk, node, equation, sources, tensor)
    if tensor is None:
        raise Unsupported("with a kernel that is computed")
    kernel, view = Kernel(tensor.name, tensor.shape), walk.kept(sources[0])
    return first_of(
        lambda: with_kernel(walk, node, view, equation, kernel),
        lambda: _by_groups(walk, node.name, view, equation, kernel),
    )


def with_matrices(walk: Walk, node: OperatorNode, source: Source, matrices: StoredTensor) -> View:
    """A value times stored matrices, of which each has a place of its own in the value's axes before the last
    two.
    """
    rank, shape = len(walk.sizes(source) or ()), matrices.shape
    while shape[0] == 1:
        shape = shape[1:]
    places = "abcdefgh"[: max(rank - 2, 0)]
    held = places[len(places) - len(shape) + 2 :] if len(shape) - 2 <= len(places) else ""
    equation = Equation(f"{places}mk", f"{held}kn", f"{places}mn")
    if not len(shape) == len(held) + 2 > 2:
        raise Unsupported("with matrices of other axes")
    return _by_groups(walk, node.name, walk.kept(source), equation, Kernel(matrices.name, shape))


def by_matrix(walk: Walk, node: OperatorNode, first: Reference, source: Source) -> View:
    """A stored matrix, which may be repeated for each image, times the matrices of a value, as learned
    queries meet its tokens.
    """
    matrix, rank = walk.weights(walk.unrepeated(first)), len(walk.sizes(source) or ())
    if matrix is None or rank < 3:
        raise Unsupported("of a constant and a value")
    matrix = walk.flow.once(matrix)
    shape, places = matrix.shape, "abcdefgh"[: rank - 2]
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    equation, kernel = Equation(f"{places}km", "nk", f"{places}nm"), Kernel(matrix.name, shape)
    return with_kernel(walk, node, source, equation, kernel)


def bilinear(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], kernel: Reference, bias: Reference | None
) -> View:
    """The products of each feature of a value with each of another one, by a stored matrix for each unit: a
    dense layer over all of these products.

    Args:
        kernel: units×features×features.
    """
    tensor, places = walk.weights(kernel), "abcdefgh"[: len(walk.sizes(sources[0]) or ()) - 1]
    vector = None if bias is None else walk.weights(bias)
    if tensor is None or not all(map(walk.is_value, sources)) or (bias is not None and vector is None):
        raise Unsupported("of a constant, or by matrices that are computed")
    inner = Equation(f"{places}x", f"{places}y", f"{places}xy")
    products = _each_by_each(walk, within(node, "products"), inner, [walk.kept(each) for each in sources])
    whole = Equation(inner.result, "oxy", f"{places}o")
    held = Kernel(tensor.name, tensor.shape, None if vector is None else vector.name)
    return with_kernel(walk, node, products, whole, held)


def mixed(walk: Walk, node: OperatorNode, source: Source, place: int, matrix: Numbers) -> View:
    """A matrix times the numbers along an axis of known size, such as their running sums."""
    view = walk.kept(source)
    rank = len(view.axes or ())
    if not rank or view.has_batch(place) or not walk.flow.affords(matrix.nbytes):
        raise Unsupported("over the batch, or over too many cells")
    x = "abcdefgh"[:rank]
    axis = x[place_of(place, rank)]
    held = walk.flow.hold(f"{node.name}:matrix", matrix)
    equation = Equation(x, f"z{axis}", x.replace(axis, "z"))
    return with_kernel(walk, node, view, equation, Kernel(held.name, held.shape))


def running_sums(
    walk: Walk, node: OperatorNode, source: Source, place: int, reverse: bool = False, exclusive: bool = False
) -> View:
    """The sums of the numbers of an axis up to each of them, by a matrix of ones.

    Args:
        reverse: from the last one on.
        exclusive: without each number itself.
    """
    size = walk.view(source).size(place)
    if isinstance(size, Open) or size > _MOST_SUMMED:
        raise Unsupported(f"along an axis of open size, or of more than {_MOST_SUMMED} cells")
    matrix = np.tri(size, k=-exclusive)
    return mixed(walk, node, source, place, matrix.T if reverse else matrix)


def _scaled(
    walk: Walk, node: OperatorNode, equation: Equation, sources: Sequence[Source], tensor: StoredTensor | None
) -> View:
    """A value times a stored array that has some of its axes."""
    x, held, _ = equation
    if x.endswith(held):
        return walk.given(combine(walk, node, "Mul", sources))
    if tensor is None:
        raise Unsupported("by an array that is computed")
    array = walk.array(sources[0])
    known = dict(zip(held, tensor.shape, strict=True))
    stored = StoredTensor(tensor.name, tuple(known.get(axis, 1) for axis in x[1:]))
    return walk.views.led_like(array, with_stored(walk, node.name, "Mul", array.value, stored))


def with_kernel(walk: Walk, node: OperatorNode, source: Source, equation: Equation, kernel: Kernel) -> View:
    """A dense layer over axes of a value, whose features and whose units may be several axes.

    Raises:
        Unsupported: it is another product.
    """
    view, name = walk.kept(source), node.name
    x, held, result = equation
    summed, units = [axis for axis in held if axis in x], [axis for axis in held if axis not in x]
    kept = [axis for axis in x if axis not in held]
    if not (summed and kept) or sorted(result) != sorted(kept + units) or len(kernel.shape) != len(held):
        raise Unsupported("with a kernel of other axes")
    stored = dict(zip(held, kernel.shape, strict=True))
    sizes = {**_sizes(x, view), **stored}
    flat = _joined(view, x, [*([axis] for axis in kept), summed], sizes)
    if not walk.views.has_channels(flat, -1):
        flat = walk.as_array(f"{name}:taken", flat)
    if not walk.views.has_channels(flat, -1):
        raise Unsupported("over other axes than the channels")
    tensors = {"kernel": Stored(kernel.name, "".join("I" if axis in x else "O" for axis in held))}
    if kernel.bias is not None:
        tensors["bias"] = Stored(kernel.bias, "O" * len(units))
    value = walk.builder.dense(name, flat.value, math.prod(stored[axis] for axis in units), tensors)
    return _apart(walk.views.like(flat, value), [*([axis] for axis in kept), units], result, sizes)


def _by_groups(walk: Walk, name: str, view: View, equation: Equation, kernel: Kernel) -> View:
    """A kernel for each place of some axes, which stay: a convolution of single cells, where these places are
    the groups.
    """
    x, held, result = equation
    summed, units = [axis for axis in held if axis not in result], [axis for axis in held if axis not in x]
    groups, kept = (
        [axis for axis in held if axis in x and axis in result],
        [axis for axis in x if axis not in held],
    )
    letters = "".join("I" if axis in summed else "O" for axis in held)
    ordered = [axis for axis in held if axis not in summed] == groups + units and {*summed} <= {*x}
    if not ordered or not (summed and groups and kept) or sorted(result) != sorted(kept + groups + units):
        raise Unsupported("with matrices of other axes")
    stored = dict(zip(held, kernel.shape, strict=True))
    sizes = {**_sizes(x, view), **stored}
    flat = _joined(view, x, [*([axis] for axis in kept), groups + summed], sizes)
    cells = walk.as_cells(f"{name}:cells", walk.as_array(f"{name}:taken", flat))
    count = math.prod(stored[axis] for axis in groups)
    op = Conv(count * math.prod(stored[axis] for axis in units), Window((1, 1)), Convention(), groups=count)
    value = walk.builder.conv(name, cells.value, op, {"kernel": Stored(kernel.name, letters)})
    return _apart(walk.views.like(cells, value), [*([axis] for axis in kept), groups + units], result, sizes)


def _of_values(walk: Walk, node: OperatorNode, equation: Equation, sources: Sequence[Source]) -> View:
    wide = [walk.kept(source) for source in sources]
    own, other = ({*letters} | {*equation.result} for letters in equation[:2])
    first, second = (
        _summed(walk, node, view, letters, kept)
        for view, letters, kept in zip(wide, equation[:2], (other, own), strict=True)
    )
    (x, left_view), (y, right_view), result = first, second, equation.result
    views = [left_view, right_view]
    shared, summed = (
        [axis for axis in x if axis in y and axis in result],
        [axis for axis in x if axis in y and axis not in result],
    )
    left, right = ([axis for axis in one if axis not in other] for one, other in ((x, y), (y, x)))
    if sorted(result) != sorted(shared + left + right) or not shared:
        raise Unsupported("of other axes")
    if not summed:
        return _each_by_each(walk, node, Equation(x, y, result), views)
    sizes = _sizes(x, views[0]) | _sizes(y, views[1])
    of_batch = {
        letter
        for letter, axis in zip(x, views[0].axes or (), strict=False)
        if any(piece.axis == "N" for piece in axis)
    }
    shared.sort(key=lambda axis: axis not in of_batch)
    rows = _joined(views[0], x, [*([axis] for axis in shared), left, summed], sizes)
    columns = _joined(views[1], y, [*([axis] for axis in shared), summed, right], sizes)
    found = _of_matrices(walk, node, (rows, columns))
    return _apart(found, [*([axis] for axis in shared), left, right], result, sizes)


def _of_one(walk: Walk, node: OperatorNode, text: str, source: Source) -> View:
    x, _, result = text.replace(" ", "").partition("->")
    view = walk.kept(source)
    for letter in sorted({*x}):
        if x.count(letter) == 2:
            places = x.index(letter), x.rindex(letter)
            view = diagonal(walk, within(node, f"diagonal_{letter}"), view, places, 0)
            x = x.replace(letter, "") + letter
    once = x.isalpha() and all(len({*letters}) == len(letters) for letters in (x, result))
    if not once or not {*result} <= {*x}:
        raise Unsupported("which has an axis more than twice, or in the result only")
    letters, summed = _summed(walk, node, view, x, result)
    return summed.transposed([letters.index(axis) for axis in result])


def _summed(
    walk: Walk, node: OperatorNode, view: View, letters: str, kept: Collection[str]
) -> tuple[str, View]:
    """A value, and the letters of its axes, without those that nothing else has: these are summed."""
    gone = [place for place, axis in enumerate(letters) if axis not in kept]
    if not gone:
        return letters, view
    found = reduce(walk, within(node, "sum"), view, "sum", gone, False)
    return "".join(axis for axis in letters if axis in kept), found


def _each_by_each(walk: Walk, node: OperatorNode, equation: Equation, views: Sequence[View]) -> View:
    """A product that sums nothing: both values along all axes of the result, with one cell where they have
    none.
    """
    wide = []
    for letters, view in zip(equation[:2], views, strict=True):
        own = [axis for axis in equation.result if axis in letters]
        if len(own) < len(letters):
            raise Unsupported("of other axes")
        turned = view.transposed([letters.index(axis) for axis in own])
        added = [place for place, axis in enumerate(equation.result) if axis not in letters]
        wide.append(turned.with_axes(added) if added else turned)
    return of_values(walk, node, "Mul", wide)


def _sizes(letters: str, view: View) -> dict[str, Dim]:
    sizes = view.sizes or ()
    return dict(zip(letters, sizes, strict=True)) if len(letters) == len(sizes) else {}


def _joined(view: View, letters: str, wanted: Sequence[Sequence[str]], sizes: Mapping[str, Dim]) -> View:
    """The tensor with these axes, of which each is several of its own, outermost first."""
    if len(view.known_axes) != len(letters):
        raise Unsupported(f"of {len(view.known_axes)} axes")
    turned = view.transposed([letters.index(axis) for axes in wanted for axis in axes])
    return turned.reshaped([product(sizes[axis] for axis in axes) for axes in wanted])


def _apart(view: View, letters: Sequence[Sequence[str]], result: str, sizes: Mapping[str, Dim]) -> View:
    """The tensor, whose axes are joined ones of these letters, with each of them apart, in the order of the
    result.
    """
    own = zip(letters, view.sizes or (), strict=True)  # an open size has another number in each value
    split = view.reshaped(
        [
            size
            for axes, whole in own
            for size in ([whole] if len(axes) == 1 else [sizes[axis] for axis in axes])
        ]
    )
    order = [axis for axes in letters for axis in axes]
    return split.transposed([order.index(axis) for axis in result])
