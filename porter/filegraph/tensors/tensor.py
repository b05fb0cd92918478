"""Tensors with numpy's operations: the reader of an operator says what the operator computes as an
expression.

An operation becomes nodes of the graph when something reads its value. The one that a reader returns has the
operator's name; those within it have that and a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.builder import CELLS, Builder
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Stored, Unsupported, first_supported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Undecided, fixed_sizes, sizes_text
from porter.filegraph.layouts.size_arrays import are_open, as_real, sizes_array
from porter.filegraph.places import position_of
from porter.filegraph.tensors import (
    arithmetic,
    constants,
    einsum as einsums,
    joins,
    moves,
    norms,
    parts,
    patches as patch_moves,
    products,
    reductions,
    resampling,
)
from porter.filegraph.tensors.along import Positions, TensorLayer, apply_along
from porter.filegraph.tensors.norms import NormLayer, NormOp
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import COMPUTED, Read, Walk, apply_elementwise, expect_known, part_of
from porter.graph import Op, ops

Arithmetic = Literal["Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Max", "Min", "Mod", "Pow"]
P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Scope:
    """A node that is being read, and what has been read before it."""

    walk: Walk
    node: Any

    def tensor(self, source: Source) -> Tensor:
        """Return what the node reads, a value or a constant, as a tensor."""
        return Tensor(self, "", lambda node: self.walk.view(source), source)

    def constant(self, numbers: Numbers | float) -> Tensor:
        """Return numbers that the node states itself, as a tensor; they become a constant of the graph."""
        array = np.asarray(numbers, np.float64)
        name = repr(array.item()) if array.size == 1 else f"numbers {len(self.walk.flow.computed)}"
        return self.tensor(self.walk.flow.add_constant(f"{self.node.name}:{name}", array))


def _operation(
    function: Callable[Concatenate[Walk, OperatorNode, Source, P], Read],
    of_constant: Callable[Concatenate[Numbers, P], Numbers] | None = None,
    word: str = "",
) -> Callable[Concatenate[Tensor, P], Tensor]:
    """Return a method of Tensor that does what a function of another module does: `x.clip(0, 6)` adds what
    `arithmetic.clip(walk, node, source, 0, 6)` adds.

    Args:
        function: adds the operation to the graph.
        of_constant: what numpy computes where the tensor is a constant, if it can.
        word: what the result is called among the parts of its node; the function's name if it is empty.
    """
    name = word or function.__name__

    def operation(x: Tensor, /, *arguments: P.args, **named: P.kwargs) -> Tensor:
        def make(node: OperatorNode) -> Read:
            return function(x.walk, node, x.source, *arguments, **named)

        if of_constant is None:
            return x.derive(name, make)
        return compute_or_derive(name, lambda array: of_constant(array, *arguments, **named), make, x)

    operation.__doc__ = function.__doc__
    return operation


def _layer(
    add: Callable[Concatenate[Builder, str, Value, P], Value],
) -> Callable[Concatenate[Tensor, P], Tensor]:
    """Return a method of Tensor that adds a layer by a method of Builder: `x.pool(...)` by
    `Builder.pool(name, value, ...)`, with the tensor's value as a map or features.
    """

    def layer(x: Tensor, /, *arguments: P.args, **named: P.kwargs) -> Tensor:
        def make(node: OperatorNode) -> Value:
            return add(x.walk.builder, node.name, x.value, *arguments, **named)

        return x.derive(add.__name__, make)

    layer.__doc__ = add.__doc__
    return layer


@dataclass(frozen=True, eq=False)
class Tensor:
    """What an operator reads or gives: a value of the network, a constant of the file, or what operations
    make of such tensors.

    Attributes:
        scope: the node in whose reading it is computed.
        word: what it is called among the parts of that node.
        make: adds what gives it, as the node that it is called with.
        known_source: the value, if no operation has to make it.
    """

    scope: Scope
    word: str
    make: Callable[[OperatorNode], Read]
    known_source: Source | None = None

    @property
    def walk(self) -> Walk:
        return self.scope.walk

    @cached_property
    def _value_or_numbers(self) -> Source | Numbers:
        """A value or a constant of the file, or computed numbers: made once, as a part of the node."""
        if self.known_source is not None:
            return self.known_source
        read = self.make(part_of(self.scope.node, self.word))
        return read if isinstance(read, np.ndarray) else self.walk.as_view(read)

    @property
    def source(self) -> Source:
        """The value, as an operand of another operation; computed numbers become a constant of the graph."""
        content = self._value_or_numbers
        if isinstance(content, np.ndarray):
            return self.walk.flow.add_constant(f"{self.scope.node.name}:{self.word}", content)
        return content

    @property
    def array(self) -> Numbers | None:
        """The numbers of a constant; None for a value of the network."""
        content = self._value_or_numbers
        if isinstance(content, np.ndarray):
            return content
        return None if isinstance(content, View) else self.walk.flow.content(content)

    def outcome(self) -> Read:
        """Return what the operator gives: a view, or the numbers of a constant. What no operation has asked
        for yet is made now, under the operator's own name.
        """
        is_made = "_value_or_numbers" in vars(self)
        if self.known_source is None and not is_made:
            return self.make(self.scope.node)
        array = self.array
        return self.walk.view(self.source) if array is None else array

    def derive(self, word: str, make: Callable[[OperatorNode], Read]) -> Tensor:
        """Return the tensor that `make` makes, in the reading of the same node; `word` names it among the
        node's parts.
        """
        return Tensor(self.scope, word, make)

    def or_else(self, other: Tensor) -> Tensor:
        """Return the tensor of what this one makes, or of what the other one makes if porter has no op for
        this one.
        """

        def make(node: OperatorNode) -> Read:
            return first_supported(lambda: self.make(node), lambda: other.make(node))

        return replace(self, make=make)

    def with_refusal_prefix(self, words: str) -> Tensor:
        """Return a tensor that makes the same; where porter refuses it (Unsupported), the message begins with
        these words.
        """

        def make(node: OperatorNode) -> Read:
            try:
                return self.make(node)
            except Unsupported as error:
                raise Unsupported(f"{words} {error}") from error

        return replace(self, make=make)

    # What is known of it.

    @property
    def is_value(self) -> bool:
        """Whether it depends on the pixels of the input."""
        return self.walk.is_value(self.source)

    @property
    def reference(self) -> NodeOutput:
        """The file's own name of the value.

        Raises:
            Unsupported: the operator computes the value itself, so that the file has no name for it.
        """
        if isinstance(self.source, View):
            raise Unsupported("of a value that it computes itself")
        return self.source

    @property
    def view(self) -> View:
        return self.walk.view(self.source)

    @property
    def value(self) -> Value:
        """The value as a map or features, by an op if the file's tensor holds it in another way."""
        if isinstance(self.source, View):
            return self.walk.views.in_file_layout(f"{self.scope.node.name}:{self.word}", self.source)
        return self.walk.layouts.in_file_layout(self.source)

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """The sizes of its axes.

        Raises:
            Unsupported: the value's shape is unknown.
        """
        content = self._value_or_numbers
        return content.shape if isinstance(content, np.ndarray) else self.walk.known_sizes(content)

    @property
    def rank(self) -> int:
        """The number of its axes; 0 for a value of unknown shape."""
        content = self._value_or_numbers
        return content.ndim if isinstance(content, np.ndarray) else len(self.walk.sizes(content) or ())

    def size(self, axis: int) -> Dim:
        """Return the size of an axis. Raises ValueError if the tensor has no such axis."""
        sizes = self.sizes
        return sizes[position_of(axis, len(sizes))]

    def number(self) -> float:
        """Return the single number of a constant. Raises Unsupported if it is none that the file states."""
        return expect_known(self.walk.flow.number(self.reference))

    def item(self) -> Any:
        """Return the number that `number` gives, in its own type: a whole number, a real one, or a size."""
        array = self.array
        if array is None or array.size != 1:
            raise Unsupported(COMPUTED)
        return array.item()

    def integers(self) -> list[int]:
        """Return the whole numbers of a constant. Raises Unsupported if the file states none."""
        return expect_known(self.walk.flow.integers(self.reference))

    def dims(self) -> list[Dim]:
        """Return what `integers` gives, but as sizes, which may be open."""
        return expect_known(self.walk.flow.dims(self.reference))

    def numbers(self) -> Numbers:
        """Return the numbers of a constant. Raises Unsupported if the model computes them as it runs."""
        return expect_known(self.walk.flow.constant(self.reference))

    # Each number.

    def real(self) -> Tensor:
        """Cast to real numbers; a value of the network has real numbers anyway."""
        return self.derive("real", lambda node: self.outcome() if self.array is None else as_real(self.array))

    def apply_elementwise(self, *steps: Op) -> Tensor:
        """Apply ops to each number, one after the other, in whatever axes the tensor has."""
        word = steps[-1].name if steps else "same"
        return compute_or_derive(
            word,
            lambda array: constants.chain(array, *steps),
            lambda node: apply_elementwise(self.walk, node, self.source, *steps),
            self,
        )

    def __add__(self, other: Operand) -> Tensor:
        return combine_operands("sum", "Add", self, other)

    def __radd__(self, other: float) -> Tensor:
        return combine_operands("sum", "Add", self, other)

    def __sub__(self, other: Operand) -> Tensor:
        return combine_operands("difference", "Sub", self, other)

    def __rsub__(self, other: float) -> Tensor:
        return combine_operands("difference", "Sub", self.scope.constant(other), self)

    def __mul__(self, other: Operand) -> Tensor:
        return combine_operands("product", "Mul", self, other)

    def __rmul__(self, other: float) -> Tensor:
        return combine_operands("product", "Mul", self, other)

    def __truediv__(self, other: Operand) -> Tensor:
        return combine_operands("quotient", "Div", self, other)

    def __rtruediv__(self, other: float) -> Tensor:
        return combine_operands("quotient", "Div", self.scope.constant(other), self)

    def __pow__(self, other: Operand) -> Tensor:
        return combine_operands("power", "Pow", self, other)

    def __abs__(self) -> Tensor:
        return self.apply_elementwise(ops.Abs())

    # A comparison is 1 where it holds and 0 elsewhere, by the sign of a difference, which is exact.

    def __gt__(self, other: Operand) -> Tensor:
        return compare_operands("Greater", self, other, lambda x, y: (x - y).apply_elementwise(ops.Step()))

    def __ge__(self, other: Operand) -> Tensor:
        return compare_operands(
            "GreaterOrEqual", self, other, lambda x, y: (x - y).apply_elementwise(ops.Step(True))
        )

    def __lt__(self, other: Operand) -> Tensor:
        return compare_operands("Less", self, other, lambda x, y: (y - x).apply_elementwise(ops.Step()))

    def __le__(self, other: Operand) -> Tensor:
        return compare_operands(
            "LessOrEqual", self, other, lambda x, y: (y - x).apply_elementwise(ops.Step(True))
        )

    def __invert__(self) -> Tensor:
        """Return 1 where a comparison does not hold, and 0 elsewhere."""
        return compute_or_derive("not", np.logical_not, lambda node: (1.0 - self).make(node), self)

    __neg__ = _operation(arithmetic.negative, constants.negative)
    clip = _operation(arithmetic.clip, constants.clip)
    full_like = _operation(arithmetic.full_like, constants.full_like, word="filled")

    def prelu(self, slopes: Tensor) -> Tensor:
        """Multiply the numbers below 0 by one slope, or by one for each channel."""
        alpha = slopes.reference
        return self.derive("prelu", lambda node: arithmetic.prelu(self.walk, node, self.source, alpha))

    # Along axes. They stay with one cell if `keep`.

    reduce = _operation(reductions.reduce, constants.reduce)
    softmax = _operation(reductions.softmax, constants.softmax)
    cumsum = _operation(einsums.running_sums, constants.cumsum)

    def sum(self, axes: Positions, keep: bool = False) -> Tensor:
        return self.reduce("sum", axes, keep)

    def mean(self, axes: Positions, keep: bool = False) -> Tensor:
        return self.reduce("mean", axes, keep)

    def max(self, axes: Positions, keep: bool = False) -> Tensor:
        return self.reduce("max", axes, keep)

    def min(self, axes: Positions, keep: bool = False) -> Tensor:
        return self.reduce("min", axes, keep)

    # The axes themselves.

    cells_as_channels = _operation(moves.cells_as_channels)
    cut = _operation(parts.cut, constants.cut)
    diagonal = _operation(parts.diagonal)
    repeat_images = _operation(moves.repeat_images, word="each_image")
    expand = _operation(moves.expand, constants.expand)
    extend = _operation(parts.extend)
    flatten = _operation(moves.flatten, constants.flatten)
    flip = _operation(parts.flip, constants.flip, "turned_round")
    gather = _operation(joins.gather, constants.gather)
    gather_cells = _operation(joins.gather_cells)
    interleave = _operation(moves.interleave, constants.interleave)
    pad = _operation(parts.pad, constants.pad)
    repeat = _operation(moves.repeat, constants.repeat)
    reshape = _operation(moves.reshape, constants.reshape)
    roll = _operation(parts.roll)
    rot90 = _operation(moves.rot90, word="quarter_turns")
    squeeze = _operation(moves.squeeze, constants.squeeze)
    take = _operation(parts.take, constants.take)
    transpose = _operation(moves.transpose, constants.transpose)
    unsqueeze = _operation(moves.unsqueeze, constants.unsqueeze)
    windows = _operation(joins.windows)

    def split(self, axis: int, sizes: Sequence[Dim], keep: bool = True) -> list[Tensor]:
        """Split an axis into parts of these sizes, and return them in order; -1 is what is left. Without
        `keep` each part has to have one cell, and loses the axis.

        Raises:
            Unsupported: the parts are not the axis together.
        """
        part_sizes = parts.split_sizes(self.size(axis), sizes)
        # where the parts begin, and where the last one ends: 0, 2, 5 of parts of 2 and 3 cells
        bounds = [sum(part_sizes[:index]) for index in range(len(part_sizes) + 1)]
        if keep:
            return [self.cut({axis: slice(start, end)}) for start, end in pairwise(bounds)]
        starts = bounds[:-1]
        return [self.cut({axis: start}) for start in fixed_sizes(starts)]

    def split_evenly(self, axis: int, count: int, keep: bool = True) -> list[Tensor]:
        """Split an axis into `count` parts of one size, as `split` does. Cells that are left over are an
        error of `split`.
        """
        size = self.size(axis)
        if not isinstance(size, int) or not 0 < count <= size:
            raise Unsupported(f"of {sizes_text([size])} cells into {count} parts")
        return self.split(axis, [size // count] * count, keep)

    def without_axes(self, axes: Positions) -> Tensor:
        """Remove axes that have one cell. Raises Unsupported if one of them has more."""
        return compute_or_derive(
            "squeezed",
            lambda array: constants.squeeze(array, axes),
            lambda node: self.view.without_axes(axes),
            self,
        )

    # Layers, by stored tensors.

    conv_along_channels = _operation(products.conv_along_channels, word="conv")
    dense = _operation(products.dense)
    linear = _operation(products.linear, word="dense")
    with_kernel = _operation(einsums.with_kernel)
    with_matrices = _operation(einsums.with_matrices)
    map_of_patches = _operation(patch_moves.map_of_patches)
    patches = _operation(patch_moves.patches)
    resize = _operation(resampling.resize, constants.resize)
    as_row_map = _operation(moves.as_row_map, word="row")
    without_rows = _operation(moves.without_rows, word="of_row")
    affine = _layer(Builder.affine)
    conv = _layer(Builder.conv)
    fully_connected = _layer(Builder.dense)
    pad_map = _layer(Builder.pad)
    pool = _layer(Builder.pool)

    def apply_op(self, op: Op, **tensors: Stored) -> Tensor:
        """Apply an op to the value as a map or features; `tensors` are the op's, by role."""
        return self.derive(
            op.name, lambda node: self.walk.builder.add(node.name, op, self.value, tensors=tensors)
        )

    def normed_groups(self, axes: Positions) -> int | None:
        """Return how many groups of channels a norm of a map over these axes has, if it is a group norm;
        otherwise None.
        """
        view = self.walk.layouts.operand(self.source)
        return self.walk.views.normed_groups(view, axes) if view.value.is_map else None

    def adaptive_pool(self, function: ops.Function, counts: tuple[Dim, Dim]) -> Tensor:
        """Pool a map to so many rows and columns."""
        return self.derive(
            "pool", lambda node: resampling.adaptive_pool(self.walk, node, self.value, function, counts)
        )

    def global_pool(self, function: ops.Function) -> Tensor:
        """Pool all rows and columns of a map into one cell, which stays a map."""
        return self.derive(
            function, lambda node: self.walk.builder.reduce(node.name, self.value, function, CELLS)
        )

    def apply_along(
        self, axes: Positions, op: Op, tensors: Mapping[str, Stored] | None = None, of_map: bool = False
    ) -> Tensor:
        """Apply an op to each cell of a tensor, where these axes together are the channels, in their order in
        the tensor.

        Args:
            of_map: the op takes no arrays, so that the cells of an array are put on a map.
        """
        layer = TensorLayer(op, tensors or {}, of_map)
        return self.derive(op.name, lambda node: apply_along(self.walk, node, self.source, axes, layer))

    def batch_norm(self, epsilon: float, momentum: float = 0.0, **tensors: Tensor | None) -> Tensor:
        """Normalise by stored vectors. `momentum` is as in torch, and 0 where the file does not state it."""
        return self._norm(norms.batch_norm, ops.BatchNorm(epsilon, momentum), tensors)

    def layer_norm(self, axes: Positions, epsilon: float, **tensors: Tensor | None) -> Tensor:
        """Normalise over the last axes, by stored tensors with these axes."""
        return self._norm(norms.norm_last_axes, ops.LayerNorm(epsilon), tensors, axes)

    def rms_norm(self, axes: Positions, epsilon: float, gamma: Tensor | None = None) -> Tensor:
        """Divide by the root mean square over the last axes, and multiply by `gamma` if it is given."""
        return self._norm(norms.norm_last_axes, ops.RmsNorm(epsilon), {"gamma": gamma}, axes)

    def group_norm(self, groups: int, epsilon: float, **tensors: Tensor | None) -> Tensor:
        """Normalise over all cells of each group of channels, by stored vectors."""
        return self._norm(norms.group_norm, ops.GroupNorm(groups, epsilon), tensors)

    def instance_norm(self, epsilon: float, **tensors: Tensor | None) -> Tensor:
        """Normalise over all axes but the first two, which are the batch and the channels, or groups of
        channels.
        """
        groups = 1  # not read: the second axis says how many there are
        return self._norm(norms.instance_norm, ops.GroupNorm(groups, epsilon), tensors)

    def _norm(
        self, add: Callable[..., View], op: NormOp, tensors: Mapping[str, Tensor | None], *axes: Positions
    ) -> Tensor:
        """Add a norm by a function of porter.filegraph.tensors.norms. Tensors that are None are left out."""
        stored = {role: tensor.reference for role, tensor in tensors.items() if tensor is not None}
        norm = NormLayer(op, stored)
        return self.derive("norm", lambda node: add(self.walk, node, self.source, norm, *axes))


Operand = Tensor | float


def compute_or_derive(
    word: str,
    of_constants: Callable[..., Numbers],
    make: Callable[[OperatorNode], Read],
    *tensors: Tensor,
) -> Tensor:
    """Return the tensor of an operation: the numbers that numpy computes if all operands are constants and it
    can, otherwise what `make` adds to the graph.

    Args:
        word: what the result is called among the parts of its node.
        of_constants: computes the numbers, from those of the operands.
        tensors: the operands.
    """

    def compute_or_make(node: OperatorNode) -> Read:
        """Compute the result if all operands are constants, otherwise call `make`."""
        arrays = list[Numbers]()
        for operand in tensors:
            array = operand.array
            if array is None:
                return make(node)
            arrays.append(array)
        try:
            numbers = np.asarray(of_constants(*arrays))
            return sizes_array(numbers) if are_open(numbers) else numbers
        # numpy's errors for an axis that a tensor lacks, and for over 32 axes
        except (IndexError, RuntimeError) as error:
            raise ValueError(str(error)) from error
        except (Unsupported, Undecided):
            return make(node)
        except TypeError:  # numpy's error for a function that open sizes lack
            if not any(map(are_open, arrays)):
                raise
            return make(node)

    return tensors[0].derive(word, compute_or_make)


def _as_tensors(*operands: Operand) -> list[Tensor]:
    """Return operands as tensors: numbers among them become constants of the node. At least one operand is a
    tensor.
    """
    scope = next(operand.scope for operand in operands if isinstance(operand, Tensor))
    return [operand if isinstance(operand, Tensor) else scope.constant(operand) for operand in operands]


def combine_operands(word: str, kind: Arithmetic, *operands: Operand) -> Tensor:
    """Combine two operands by arithmetic; one may be a number. Of constants the result is a constant."""
    tensors = _as_tensors(*operands)

    def make(node: OperatorNode) -> Read:
        return arithmetic.combine(tensors[0].walk, node, kind, [each.source for each in tensors])

    return compute_or_derive(word, partial(constants.compute_elementwise, kind), make, *tensors)


def compare_operands(
    kind: str, first: Operand, second: Operand, of_values: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Compare two operands. Of constants the result is an array of booleans, of values it is what `of_values`
    makes: 1 where the comparison holds, and 0 elsewhere.

    Args:
        kind: what constants.compute_elementwise calls the comparison, such as `Greater`.
    """
    tensors = _as_tensors(first, second)
    return compute_or_derive(
        kind.lower(),
        partial(constants.compute_elementwise, kind),
        lambda node: of_values(*tensors).make(node),
        *tensors,
    )
