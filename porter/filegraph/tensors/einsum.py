"""Products by an equation such as `abc,cd->abd`, as Keras, TensorFlow and others write the layers of an
attention: of two values, or of a value and a stored kernel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.dataflow import OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported, first_supported
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Open, product
from porter.filegraph.places import position_of
from porter.filegraph.tensors.arithmetic import apply_stored_array, combine, combine_values
from porter.filegraph.tensors.parts import diagonal
from porter.filegraph.tensors.products import multiply_matrices
from porter.filegraph.tensors.reductions import reduce
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Walk, part_of
from porter.graph import Conv
from porter.graph.ops import axis_letters
from porter.padding import Convention, Window

_MOST_SUMMED = 1024
"""More cells than sums are kept of: a matrix has the square of it."""


class Equation(NamedTuple):
    """The axes of two operands and of the result of an einsum, a letter for each: `abc`, `cd` and `abd` of
    `abc,cd->abd`.
    """

    first: str
    second: str
    result: str

    @property
    def free(self) -> str:
        """The axes of the first operand only: `ab` of `abc,cd->abd`."""
        return "".join(axis for axis in self.first if axis not in self.second)

    @property
    def units(self) -> str:
        """The axes of the second operand only: `d` of `abc,cd->abd`."""
        return "".join(axis for axis in self.second if axis not in self.first)

    @property
    def shared(self) -> str:
        """The axes of both operands and of the result: `h` of `ahk,hkn->ahn`."""
        return "".join(axis for axis in self.second if axis in self.first and axis in self.result)

    @property
    def summed(self) -> str:
        """The axes of both operands that the result lacks: `c` of `abc,cd->abd`."""
        return "".join(axis for axis in self.second if axis in self.first and axis not in self.result)

    @property
    def is_product(self) -> bool:
        """Whether the result has all other axes than the summed ones."""
        return sorted(self.result) == sorted(self.shared + self.free + self.units)

    @property
    def only_scales(self) -> bool:
        """Whether nothing is summed and no axis is new: the second operand has some of the first one's axes
        but the batch, in their order, and scales it along these.
        """
        scaled = "".join(axis for axis in self.first[1:] if axis in self.second)
        return self.result == self.first and self.second == scaled


class Kernel(NamedTuple):
    """A stored operand of an einsum.

    Attributes:
        name, shape: of the tensor.
        bias: the name of a stored tensor that is added to the result; it has the axes that only the operand
            has.
    """

    name: str
    shape: tuple[int, ...]
    bias: str | None = None


def read_equation(text: str, rank: int) -> Equation | None:
    """Read an einsum's equation. Return None for other than two operands, and if an operand has a letter
    twice, or axes without one.

    Args:
        rank: of the first operand. Its axes without a letter, written as an ellipsis, get one: of rank 3,
            `...c,cd->...d` is read as `ABc,cd->ABd`.
    """
    first, _, rest = text.replace(" ", "").partition(",")
    free_letters = "".join(letter for letter in "ABCDEFGHIJ" if letter not in text)
    # the ellipsis stands for as many axes as the operand has beside its letters
    count_unnamed = rank - (len(first) - len("..."))
    unnamed = free_letters[: max(count_unnamed, 0)]
    inputs, _, result = f"{first},{rest}".replace("...", unnamed).partition("->")
    sides = (*inputs.split(","), result)
    fits = len(sides) == 3 and all(side.isalpha() and len({*side}) == len(side) for side in sides)
    return Equation(*sides) if fits else None


def einsum(walk: Walk, node: OperatorNode, text: str, sources: Sequence[Source]) -> View:
    """Add an einsum of one or two operands, by an equation such as `abc,cd->abd`, and return its view.

    Raises:
        Unsupported: as `_einsum`, in words that name the equation.
    """
    try:
        return _einsum(walk, node, text, sources)
    except Unsupported as error:
        raise Unsupported(f"by '{text:.40}' {error}") from error


def _einsum(walk: Walk, node: OperatorNode, text: str, sources: Sequence[Source]) -> View:
    """Add an einsum, and return its view. One operand is transposed, summed over axes and cut to diagonals;
    two values are multiplied as matrices; a value and a stored array, in either order, are a dense layer, a
    convolution in groups, or a product of numbers if the array only scales the value along some of its axes.

    Raises:
        Unsupported: the equation is none of these, or the array is computed.
    """
    if len(sources) == 1:
        return _einsum_of_one(walk, node, text, sources[0])
    equation = read_equation(text, len(walk.sizes(sources[0]) or ()))
    if equation is None or len(sources) != 2:
        raise Unsupported("which is no product of two values that names each axis once")
    if all(map(walk.is_value, sources)):
        return _einsum_of_values(walk, node, equation, sources)
    if not walk.is_value(sources[0]):
        # the value comes first, and the stored array second
        equation = Equation(equation.second, equation.first, equation.result)
        sources = sources[::-1]
    tensor = walk.weights(sources[1])
    if equation.only_scales:
        return _scale_by_stored(walk, node, equation, sources, tensor)
    if tensor is None:
        raise Unsupported("with a kernel that is computed")
    kernel = Kernel(tensor.name, tensor.shape)
    view = walk.layouts.operand(sources[0])
    return first_supported(
        lambda: with_kernel(walk, node, view, equation, kernel),
        lambda: _multiply_by_groups(walk, node.name, view, equation, kernel),
    )


def with_matrices(walk: Walk, node: OperatorNode, source: Source, matrices: StoredTensor) -> View:
    """Multiply a value by stored matrices, and return the view: by one matrix, or by one for each place of
    the value's axes before the last two, such as one for each head.
    """
    rank = len(walk.sizes(source) or ())
    kernel = _matrices(matrices, rank)
    places = axis_letters(max(rank - 2, 0))  # letters of the value's axes before the last two
    count_shared = len(kernel.shape) - 2  # of these axes, the matrices have the last ones
    shared = places[len(places) - count_shared :]
    # rows m and columns n of the product; k is summed
    equation = Equation(f"{places}mk", f"{shared}kn", f"{places}mn")
    if not shared:
        return with_kernel(walk, node, source, equation, kernel)
    return _multiply_by_groups(walk, node.name, walk.layouts.operand(source), equation, kernel)


def matmul_stored(walk: Walk, node: OperatorNode, first: NodeOutput, source: Source) -> View:
    """Multiply a stored matrix, from the left, by the matrices of a value, as attention does with learned
    queries and the tokens of an image. The file may repeat the stored matrix for each image.
    """
    matrix = walk.weights(walk.drop_repeats(first))
    rank = len(walk.sizes(source) or ())
    if matrix is None or rank < 3:
        raise Unsupported("of a constant and a value")
    kernel = _matrices(walk.flow.drop_equal_rows(matrix), rank)
    places = axis_letters(rank - 2)
    # rows n and columns m of the product; k is summed
    return with_kernel(walk, node, source, Equation(f"{places}km", "nk", f"{places}nm"), kernel)


def _matrices(stored: StoredTensor, rank: int) -> Kernel:
    """Return stored matrices as the kernel of a product with a value of `rank` axes, without axes of one cell
    before them, in which they are the same for each place of the value. Matrices of more axes would give the
    value further ones, which is Unsupported.
    """
    shape = stored.shape
    if len(shape) > rank:
        raise Unsupported("with matrices of other axes")
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return Kernel(stored.name, shape)


def bilinear(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], kernel: NodeOutput, bias: NodeOutput | None
) -> View:
    """Multiply each feature of a value with each of another one, by a stored matrix for each unit: a dense
    layer over all of these products.

    Args:
        kernel: units×features×features.
    """
    tensor = walk.weights(kernel)
    places = axis_letters(len(walk.sizes(sources[0]) or ()) - 1)
    vector = None if bias is None else walk.weights(bias)
    if tensor is None or not all(map(walk.is_value, sources)) or (bias is not None and vector is None):
        raise Unsupported("of a constant, or by matrices that are computed")
    outer_product = Equation(f"{places}x", f"{places}y", f"{places}xy")
    views = [walk.layouts.operand(source) for source in sources]
    products = _multiply_outer(walk, part_of(node, "products"), outer_product, views)
    sum_of_products = Equation(outer_product.result, "oxy", f"{places}o")
    kernel_and_bias = Kernel(tensor.name, tensor.shape, None if vector is None else vector.name)
    return with_kernel(walk, node, products, sum_of_products, kernel_and_bias)


def multiply_along_axis(
    walk: Walk, node: OperatorNode, source: Source, position: int, matrix: Numbers
) -> View:
    """Multiply a matrix by the numbers along an axis of known size, for running sums for instance, and return
    the view: the axis then has a number for each row of the matrix.
    """
    view = walk.layouts.operand(source)
    rank = view.rank
    if not rank or view.has_batch(position) or not walk.flow.reserve_bytes(matrix.nbytes):
        raise Unsupported("over the batch, or over too many cells")
    value_axes = axis_letters(rank)
    axis = value_axes[position_of(position, rank)]
    stored = walk.flow.store_computed(f"{node.name}:matrix", matrix)
    equation = Equation(value_axes, f"z{axis}", value_axes.replace(axis, "z"))  # z are the matrix's rows
    return with_kernel(walk, node, view, equation, Kernel(stored.name, stored.shape))


def running_sums(
    walk: Walk, node: OperatorNode, source: Source, axis: int, reverse: bool = False, exclusive: bool = False
) -> View:
    """Sum the numbers of an axis up to each of them, by a triangular matrix of ones: 1, 2, 3 become 1, 3, 6.

    Args:
        reverse: from the last one on.
        exclusive: without each number itself.
    """
    size = walk.view(source).size(axis)
    if isinstance(size, Open) or size > _MOST_SUMMED:
        raise Unsupported(f"along an axis of open size, or of more than {_MOST_SUMMED} cells")
    matrix = np.tri(size, k=-exclusive)
    return multiply_along_axis(walk, node, source, axis, matrix.T if reverse else matrix)


def _scale_by_stored(
    walk: Walk, node: OperatorNode, equation: Equation, sources: Sequence[Source], tensor: StoredTensor | None
) -> View:
    """Multiply a value by a stored array that has some of the value's axes, in their order, as
    `abcd,bd->abcd` does, and return the product's view.
    """
    value_axes, stored_axes, _ = equation
    # axes at the end broadcast as they are; others get axes of one cell between them
    if value_axes.endswith(stored_axes):
        return walk.as_view(combine(walk, node, "Mul", sources))
    if tensor is None:
        raise Unsupported("by an array that is computed")
    array = walk.layouts.array(sources[0])
    sizes = dict(zip(stored_axes, tensor.shape, strict=True))
    stored = StoredTensor(tensor.name, tuple(sizes.get(axis, 1) for axis in value_axes[1:]))
    return walk.views.as_rank_of(array, apply_stored_array(walk, node.name, "Mul", array.value, stored))


def with_kernel(walk: Walk, node: OperatorNode, source: Source, equation: Equation, kernel: Kernel) -> View:
    """Add a dense layer over axes of a value, and return its view. The features that it sums, and its units,
    may be several axes each: `abc,bcde->ade` sums over b and c, and has d * e units.

    Raises:
        Unsupported: it is another product.
    """
    view = walk.layouts.operand(source)
    name = node.name
    value_axes, kernel_axes, result = equation
    other_axes, unit_axes = equation.free, equation.units
    fits = equation.is_product and len(kernel.shape) == len(kernel_axes)
    if not fits or equation.shared or not (equation.summed and other_axes):
        raise Unsupported("with a kernel of other axes")
    kernel_sizes = dict(zip(kernel_axes, kernel.shape, strict=True))
    sizes = {**_sizes_by_letter(value_axes, view), **kernel_sizes}
    joined = _join_axes(view, value_axes, [*other_axes, equation.summed], sizes)
    if not walk.views.has_channels(joined, -1):
        joined = walk.layouts.as_array(f"{name}:taken", joined)
    if not walk.views.has_channels(joined, -1):
        raise Unsupported("over other axes than the channels")
    # a kernel's axes that the value has too are summed: they are the layer's inputs, I
    letters = "".join("I" if axis in value_axes else "O" for axis in kernel_axes)
    tensors = {"kernel": Stored(kernel.name, letters)}
    if kernel.bias is not None:
        tensors["bias"] = Stored(kernel.bias, "O" * len(unit_axes))
    units = math.prod(kernel_sizes[axis] for axis in unit_axes)
    value = walk.builder.dense(name, joined.value, units, tensors)
    return _split_axes(walk.views.with_axes_of(joined, value), [*other_axes, unit_axes], result, sizes)


def _multiply_by_groups(walk: Walk, name: str, view: View, equation: Equation, kernel: Kernel) -> View:
    """Multiply a value by a kernel of its own for each place of some axes, which the result keeps, and return
    the view. It is a 1x1 convolution in groups, with a group for each place: `abhk,hkn->abhn` has one for
    each h.

    Raises:
        Unsupported: it is another product.
    """
    value_axes, kernel_axes, result = equation
    groups, others, units, summed = equation.shared, equation.free, equation.units, equation.summed
    is_groups_first = [axis for axis in kernel_axes if axis not in summed] == [*groups, *units]
    if not (equation.is_product and is_groups_first and summed and groups and others):
        raise Unsupported("with matrices of other axes")
    letters = "".join("I" if axis in summed else "O" for axis in kernel_axes)
    kernel_sizes = dict(zip(kernel_axes, kernel.shape, strict=True))
    sizes = {**_sizes_by_letter(value_axes, view), **kernel_sizes}
    joined = _join_axes(view, value_axes, [*others, groups + summed], sizes)
    cells = walk.layouts.as_cells(f"{name}:cells", walk.layouts.as_array(f"{name}:taken", joined))
    group_count = math.prod(kernel_sizes[axis] for axis in groups)
    filters = group_count * math.prod(kernel_sizes[axis] for axis in units)
    op = Conv(filters, Window((1, 1)), Convention(), groups=group_count)
    value = walk.builder.conv(name, cells.value, op, {"kernel": Stored(kernel.name, letters)})
    return _split_axes(walk.views.with_axes_of(cells, value), [*others, groups + units], result, sizes)


def _einsum_of_values(walk: Walk, node: OperatorNode, equation: Equation, sources: Sequence[Source]) -> View:
    """Add an einsum of two values, as a matrix product of them with their axes in order, and return the view.
    Axes that one operand has alone and the result lacks are summed before; if nothing else is summed, the
    product is one of numbers.

    Raises:
        Unsupported: the axes of the result are others, or the operands share none that it keeps.
    """
    first_view, second_view = (walk.layouts.operand(source) for source in sources)
    first_axes, second_axes, result = equation
    left_axes, left = _sum_unwanted(walk, node, first_view, first_axes, {*second_axes, *result})
    right_axes, right = _sum_unwanted(walk, node, second_view, second_axes, {*first_axes, *result})
    product_equation = Equation(left_axes, right_axes, result)
    if not product_equation.is_product or not product_equation.shared:
        raise Unsupported("of other axes")
    if not product_equation.summed:
        return _multiply_outer(walk, node, product_equation, [left, right])
    sizes = _sizes_by_letter(left_axes, left) | _sizes_by_letter(right_axes, right)
    batch_axes = {
        axis
        for axis, pieces in zip(left_axes, left.known_axes, strict=False)
        if any(piece.axis == "N" for piece in pieces)
    }

    def batch_first(axis: str) -> tuple[bool, int]:
        """Return the key that puts the batch before the other axes, since it has to be an array's first."""
        return axis not in batch_axes, left_axes.index(axis)

    shared = sorted(product_equation.shared, key=batch_first)
    summed = "".join(sorted(product_equation.summed, key=left_axes.index))
    free, units = product_equation.free, product_equation.units
    rows = _join_axes(left, left_axes, [*shared, free, summed], sizes)
    columns = _join_axes(right, right_axes, [*shared, summed, units], sizes)
    products = multiply_matrices(walk, node, (rows, columns))
    return _split_axes(products, [*shared, free, units], result, sizes)


def _einsum_of_one(walk: Walk, node: OperatorNode, text: str, source: Source) -> View:
    """Add an einsum of one operand, and return its view: diagonals of axes with the same letter, sums over
    axes that the result lacks, and a transpose.
    """
    axes, _, result = text.replace(" ", "").partition("->")
    view = walk.layouts.operand(source)
    for letter in sorted({*axes}):
        if axes.count(letter) == 2:
            positions = axes.index(letter), axes.rindex(letter)
            view = diagonal(walk, part_of(node, f"diagonal_{letter}"), view, positions, 0)
            axes = axes.replace(letter, "") + letter  # the diagonal is the last axis
    has_each_once = axes.isalpha() and all(len({*letters}) == len(letters) for letters in (axes, result))
    if not has_each_once or not {*result} <= {*axes}:
        raise Unsupported("which has an axis more than twice, or in the result only")
    kept_axes, summed = _sum_unwanted(walk, node, view, axes, result)
    return summed.transposed([kept_axes.index(axis) for axis in result])


def _sum_unwanted(
    walk: Walk, node: OperatorNode, view: View, letters: str, wanted: Collection[str]
) -> tuple[str, View]:
    """Sum a value over those of its axes that are not wanted, and return the letters of the axes that are
    left, and the sums.
    """
    unwanted = [index for index, axis in enumerate(letters) if axis not in wanted]
    if not unwanted:
        return letters, view
    summed = reduce(walk, part_of(node, "sum"), view, "sum", unwanted, False)
    return "".join(axis for axis in letters if axis in wanted), summed


def _multiply_outer(walk: Walk, node: OperatorNode, equation: Equation, views: Sequence[View]) -> View:
    """Add a product that sums nothing, such as `ab,ac->abc`, and return its view: both values get all axes of
    the result, with one cell where they have none, and are multiplied number by number.
    """
    operands = []
    for letters, view in zip((equation.first, equation.second), views, strict=True):
        axes_in_order = [axis for axis in equation.result if axis in letters]
        if len(axes_in_order) < len(letters):
            raise Unsupported("of other axes")
        in_order = view.transposed([letters.index(axis) for axis in axes_in_order])
        added = [index for index, axis in enumerate(equation.result) if axis not in letters]
        operands.append(in_order.with_axes(added) if added else in_order)
    return combine_values(walk, node, "Mul", operands)


def _sizes_by_letter(letters: str, view: View) -> dict[str, Dim]:
    """Return the sizes of a view's axes by their letters; nothing if its rank is another one."""
    sizes = view.sizes or ()
    return dict(zip(letters, sizes, strict=True)) if len(letters) == len(sizes) else {}


def _join_axes(view: View, letters: str, wanted: Sequence[str], sizes: Mapping[str, Dim]) -> View:
    """Return the tensor with its axes in another order and joined: `abcd` with `wanted` = `["a", "db", "c"]`
    gets the axes a, d and b joined (d outermost), and c.

    Args:
        letters: of the tensor's axes.
        sizes: of the axes, by letter.
    """
    if len(view.known_axes) != len(letters):
        raise Unsupported(f"of {len(view.known_axes)} axes")
    in_order = view.transposed([letters.index(axis) for axis in "".join(wanted)])
    return in_order.reshaped([product(sizes[axis] for axis in axes) for axes in wanted])


def _split_axes(view: View, letters: Sequence[str], result: str, sizes: Mapping[str, Dim]) -> View:
    """Undo `_join_axes`: split each axis of a tensor into those of its letters, such as `db` into d and b.
    Return the tensor with its axes in the order of the result.
    """
    split_sizes = list[Dim]()
    for axes, joined_size in zip(letters, view.sizes or (), strict=True):
        # an axis that is not split keeps its size, because an open size is another unknown in each value
        split_sizes += [joined_size] if len(axes) == 1 else [sizes[axis] for axis in axes]
    split_letters = "".join(letters)
    return view.reshaped(split_sizes).transposed([split_letters.index(axis) for axis in result])
