"""A reading in progress: the values of an op graph's nodes, and the steps of porter's graph found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Any, Generic, cast

import numpy as np

from porter.base.dtypes import Numbers, is_floating
from porter.base.errors import GraphError
from porter.base.left_out import LeftOut
from porter.filegraph.axes import OF_UNKNOWN_SHAPE, Aligned, T, View
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Dataflow, N, Operand, OperatorNode, StoredTensor
from porter.filegraph.dims import Dim
from porter.filegraph.file_graph import FileGraph, Stored, Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.places import Items, position_of
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.views import Views
from porter.graph import Op, Rearrange
from porter.graph.ops import AXES

Source = NodeOutput | View
"""A value that a node reads, by the file's name, or a view that a reader made of one."""


@dataclass(frozen=True)
class Repeated:
    """A value whose axes of one cell are repeated, as a file's Expand does before ops that would stretch them
    anyway.

    Attributes:
        before: the value before that.
        sizes: of the repeated value.
        view: of it; None for a constant, and where the repeated value has no op.
        lacks: why it has none, see Unsupported.
    """

    before: Source
    sizes: tuple[Dim, ...]
    view: View | None = None
    lacks: str = "of a constant"


@dataclass(frozen=True)
class Zeros:
    """A value of known sizes, of which nothing else is known than that it is zeros, or that it has no cells.

    Attributes:
        lacks: why porter has no op for it, see Unsupported.
    """

    sizes: tuple[Dim, ...]
    lacks: str = ""


Read = View | Value | Numbers | Repeated | Zeros
"""What a node gives: a value as the file's tensor holds it, or in the file's own layout; or numbers that it
states about sizes.
"""
Outputs = Read | Sequence[Read | None]
"""The one value of a node, or its values, of which None is one that porter has no op for."""
Reader = Callable[["NodeWalk[N]", N], Outputs]


COMPUTED = "by numbers that the model computes as it runs"


def _expect_known(value: T | None) -> T:
    """Return a value that Dataflow could compute; raise Unsupported where it could not, and gave None."""
    if value is None:
        raise Unsupported(COMPUTED)
    return value


Tap = Callable[[NodeOutput], str | None]
"""Gives the framework's name for a value when it runs the file's graph; None where it does not give the
value.
"""


def first_output_name(source: NodeOutput) -> str | None:
    """Return the tap of formats whose engines know nodes only: the node's name for the first value that it
    gives, and None for its others, which have no name.
    """
    return None if source[1] else source[0]


@dataclass
class NodeWalk(Generic[N]):
    """Reading in progress.

    Attributes:
        batch: see porter.filegraph.views.Views.
        trained: names of variables; of all that a file stores, where it does not tell variables from
            constants.
        view_of: the values so far, as the file's tensors hold them.
        exact: names of constants that a port says more exactly than the file can, such as the root of a half
            in a GELU.
        repeated: values whose axes of one cell are repeated.
        zero_sizes: values that are zeros of the sizes of others, and their own sizes.
        tap: the framework's name for a value when it runs the file's graph; None where it does not give the
            value.
        images: what the graph takes.
        apart: names of nodes that give what the file holds taken apart, see porter.filegraph.atrous.
    """

    builder: Builder
    flow: Dataflow[N]
    trained: Collection[str] = ()
    batch: InitVar[int | None] = None
    views: Views = field(init=False)
    view_of: dict[NodeOutput, View] = field(default_factory=dict)
    exact: dict[str, float] = field(default_factory=dict)
    repeated: dict[Source, Repeated] = field(default_factory=dict)
    zero_sizes: dict[Source, tuple[Dim, ...]] = field(default_factory=dict)
    tap: Tap = first_output_name
    images: tuple[NodeOutput, ...] = ()
    apart: set[str] = field(default_factory=set)
    _in_file_layout: dict[NodeOutput, Value] = field(default_factory=dict)
    _arrays: dict[View, View] = field(default_factory=dict)

    def __post_init__(self, batch: int | None) -> None:
        self.views = Views(self.builder, batch)

    def view(self, source: Source) -> View:
        """Return a value as its tensor holds it. Outputs that no reader gives are added as foreign nodes.

        Raises:
            Unsupported: it is a constant.
            GraphError: the node that should give it does not exist.
        """
        if isinstance(source, View):
            return source
        if source not in self.view_of:
            self.view_of[source] = self.views.own_view(self._add_foreign_output(source))
        return self.view_of[source]

    def _add_foreign_output(self, source: NodeOutput) -> Value:
        """Add a foreign node for an output that no reader gives, and return its value. Raises as `view`."""
        name, index = source
        if not self.flow.is_live(source):
            raise Unsupported(f"of the constant '{name}'")
        if name not in self.flow.nodes:
            raise GraphError(f"no node gives output {index} of '{name}'")
        node = self.flow.nodes[name]
        if (name, 0) in self.view_of:  # it follows the node's first value, if that is known
            inputs = [self.view_of[name, 0]]
        else:
            inputs = [self.view(read) for read in node.inputs if self.flow.is_live(read)]
        values = [view.value for view in inputs]
        return self.builder.foreign(f"{name}:{index}", f"{node.op} output {index}", *values)

    def sizes(self, source: Source) -> tuple[Dim, ...] | None:
        """Return the sizes of a tensor; None if they are unknown."""
        if isinstance(source, View):
            return source.sizes
        if source in self.zero_sizes:
            return self.zero_sizes[source]
        return self.view(source).sizes if self.flow.is_live(source) else self.flow.shape(source)

    def known_sizes(self, source: Source) -> tuple[Dim, ...]:
        """Return the sizes of a tensor.

        Raises:
            Unsupported: they are unknown.
        """
        sizes = self.sizes(source)
        if sizes is None:
            raise Unsupported(OF_UNKNOWN_SHAPE)
        return sizes

    def number(self, source: Operand) -> float:
        """Return a constant that is a single number, or a number that a node states itself.

        Raises:
            Unsupported: it is no single number that the file states.
        """
        return _expect_known(self.flow.number(source))

    def numbers(self, source: NodeOutput) -> Numbers:
        """Return the numbers of a constant, floats in float64, or what is computed from known sizes.

        Raises:
            Unsupported: the model computes them as it runs.
        """
        return _expect_known(self.flow.value(source))

    def integers(self, source: NodeOutput) -> list[int]:
        """Return the whole numbers of a constant, such as the axes of a reduction, as a list.

        Raises:
            Unsupported: the model computes them as it runs.
            Undecided: one of them depends on an open size.
        """
        return _expect_known(self.flow.integers(source))

    def dims(self, source: NodeOutput) -> list[Dim]:
        """Return the whole numbers of a constant as sizes, such as those of a reshape; they may depend on
        open sizes.

        Raises:
            Unsupported: the model computes them as it runs.
        """
        return _expect_known(self.flow.dims(source))

    def value(self, source: Source) -> Value:
        """Return a value as a map or features with the axes that the file's own tensor has. Where porter's
        graph holds it with other axes (a transpose that nothing has needed so far), this adds the op that
        turns them, once for each source.

        Args:
            source: an output of a node of the file, or a view of one.
        """
        view = self.view(source)
        if isinstance(source, View):
            return self.views.in_file_layout(view.value.node, view)
        if source not in self._in_file_layout:
            self._in_file_layout[source] = self.views.in_file_layout(
                source[0], view, self._tap_of(view, source)
            )
        return self._in_file_layout[source]

    def lay_out(self, source: Source) -> View:
        """Return the view of a value in the file's own layout, as a map or features, by an op if the tensor
        holds it in another way. A value that is an array already, or that no single op lays out, is returned
        as an array if it can be one.
        """
        view = self.view(source)
        is_array = view.value.is_array or self.views.layout_op(view) is None
        array = none_if_unsupported(lambda: self.array(source)) if is_array else None
        return array or self.views.own_view(self.value(source))

    def is_value(self, source: Source) -> bool:
        """Return whether a source depends on the pixels of the input; zeros, and a constant that is repeated
        for each image, do not.
        """
        return source not in self.zero_sizes and self.is_live(self.drop_repeats(source))

    def is_live(self, source: Source) -> bool:
        """Return whether a source depends on the pixels of the input (Dataflow.is_live); a view always
        does.
        """
        return isinstance(source, View) or self.flow.is_live(source)

    def constant(self, source: Source) -> Numbers | None:
        """Return the numbers of a constant (Dataflow.value); None for what depends on pixels."""
        return None if isinstance(source, View) else self.flow.value(source)

    def constant_shape(self, source: Source) -> tuple[int, ...] | None:
        """Return the shape of a constant (Dataflow.shape); None for what depends on pixels."""
        return None if isinstance(source, View) else self.flow.shape(source)

    def constant_number(self, source: Source) -> float | None:
        """Return the number of a constant of one number (Dataflow.number); None for another source."""
        return None if isinstance(source, View) else self.flow.number(source)

    def weights(self, source: Source) -> StoredTensor | None:
        """Return a stored tensor, or one that numpy computes from such tensors (Dataflow.weights); None for
        what depends on pixels.
        """
        return None if isinstance(source, View) else self.flow.weights(source)

    def drop_repeats(self, source: Source) -> Source:
        """Return a constant as it is before it is repeated, for each image or along axes of one cell; another
        source is returned as it is.
        """
        if isinstance(source, View):
            return source
        node = self.flow.nodes.get(source[0])  # the node that gives it
        if node is not None and node.name not in self.flow.live and self.flow.repeats(node):
            return self.drop_repeats(node.source)
        before = self.before_repeat(source)
        # A live value keeps its repetition: only a constant is the same without it.
        return source if self.is_live(before) else before

    def before_repeat(self, source: Source) -> Source:
        """Return a value as it is before its axes of one cell are repeated; another source is returned as it
        is.
        """
        return self.repeated[source].before if source in self.repeated else source

    def constant_fill(self, source: Source, axis: int) -> tuple[Dim, float] | None:
        """Return the size of an axis, and the number, of a constant that is one number everywhere: a join
        with such a constant is a pad of that size. None for other constants.
        """
        if source in self.zero_sizes:
            sizes = self.zero_sizes[source]
            return sizes[position_of(axis, len(sizes))], 0.0
        tensor = self.weights(self.drop_repeats(source))
        if tensor is None:
            return None
        sizes = self.repeated[source].sizes if source in self.repeated else tensor.shape
        numbers = self.flow.stored_numbers(tensor.name)
        if not sizes or not numbers.size or np.any(numbers != numbers.flat[0]):
            return None
        return sizes[position_of(axis, len(sizes))], float(numbers.flat[0])

    def array(self, source: Source, order: Sequence[int] | None = None) -> View:
        """Return a value as an array with its tensor's axes, in another order if one is given, or as
        features.

        Raises:
            Unsupported: porter has no op for that.
        """
        view = self.view(source)
        ordered = view if order is None else view.transposed(order)
        if isinstance(source, View):
            return self.as_array(view.value.node, ordered)
        node_name, _ = source
        tap = self._tap_of(view, source) if ordered == view else None  # it names the value in its own order
        return self.as_array(node_name, ordered, tap)

    def _tap_of(self, view: View, source: NodeOutput) -> str | None:
        """Return the tap (the framework's name for a value when it runs the graph) for an op that gives a
        value as its tensor holds it; None if the node of the value itself has that tap.
        """
        node = self.builder.nodes.get(view.value.node)
        tap = self._tap_name(source)
        return None if node is not None and node.tap == tap else tap

    def _tap_name(self, source: NodeOutput) -> str | None:
        """Return the framework's name for a value; None for an image, which no graph can end at, and for what
        the file holds in another way.
        """
        return None if source in self.images or source[0] in self.apart else self.tap(source)

    def as_array(self, name: str, view: View, tap: str | None = None) -> View:
        """Return a tensor's value as an array with the tensor's axes, or as features; the op for it is added
        once for each view.

        Args:
            name: of the op that makes the array.
            tap: the framework's name for the tensor's value.

        Raises:
            Unsupported: porter has no op for that.
        """
        view = self.views.materialise_repeats(f"{name}:repeated", view)
        if (array := self.array_of_own_axes(view)) is not None:
            return array
        rank = len(view.known_axes)
        if view not in self._arrays:
            op = self.views.rearrange_op(view)
            if op is None:
                raise Unsupported("of values whose batch is not the first axis, or that are repeated")
            # an array with more axes than the tensor, one from beside the batch, is not what the tap names
            tensor_axes = rank if self.views.lacks_batch else rank - 1
            has_tensor_axes = len(op.moves.joined) == tensor_axes
            value = self.builder.add(name, op, view.value, tap=tap if has_tensor_axes else None)
            self._arrays[view] = self.views.as_rank(value, rank)
        return self._arrays[view]

    def _with_batch_within(self, name: str, view: View) -> View | None:
        """Return a tensor whose batch does not come first as a view of an array with the tensor's axes in
        their order. An axis that holds more than the batch is split: what stands in it before the batch and
        behind it become axes of the array. None if the batch comes first, or there is none.
        """
        places_of_batch = [
            (position, index)
            for position, axis in enumerate(view.axes or ())
            for index, piece in enumerate(axis)
            if piece.axis == "N"
        ]
        if view.axes is None or places_of_batch in ([], [(0, 0)]):
            return None
        position, index = places_of_batch[0]
        axis = view.axes[position]
        before, batch, behind = axis[:index], axis[index : index + 1], axis[index + 1 :]
        beside_batch = filter(None, (before, behind))
        array_axes = (*view.axes[:position], *beside_batch, *view.axes[position + 1 :])
        array = self.as_array(name, replace(view, axes=(batch, *array_axes)))
        if len(array.value.shape or ()) != len(array_axes):
            return None
        return self.views.with_batch_inside(array.value, position, len(before) > 0, len(behind) > 0)

    def align_axes(self, name: str, view: View) -> Aligned:
        """Return a value whose axes are the tensor's, for ops along one axis: a map or features, in any order
        of their axes, otherwise an array.

        Args:
            name: of the op that makes the array.

        Raises:
            Unsupported: porter has no op for that.
        """
        names = self.views.axis_names(view)
        if names is not None:
            axes = Items(None if axis == "batch" else AXES.index(axis) for axis in names)
            return Aligned(view.value, axes, partial(self.views.in_axis_order, names=names))
        order = view.batch_first
        array = self.as_array(name, view.transposed(order))
        # by the position of an axis in the tensor, its position with the batch first
        positions = [order.index(position) for position in range(len(order))]
        axes = Items(None if array.has_batch(position) else array.axis_at(position) for position in positions)

        def as_tensor(value: Value) -> View:
            """Return how the tensor holds what an op made of the array."""
            batch_first = self.views.as_rank_of(array, value)
            return batch_first if batch_first.axes is None else batch_first.untransposed(order)

        return Aligned(array.value, axes, as_tensor)

    def array_of_own_axes(self, view: View) -> View | None:
        """Return the view if it holds an array, or features, with that value's own axes, so that no op is
        needed to make an array of it; otherwise None.
        """
        shape, axes = view.value.shape, view.axes
        if axes is None or shape is None or view.value.is_map:
            return None
        # the first axis of the tensor may hold one axis of the value beside the batch
        axes_in_batch = len(shape) - len(axes) + 1
        has_as_many_axes = axes_in_batch == self.views.has_more_than_batch(axes[0])
        is_unmoved = has_as_many_axes and self.views.as_rank(view.value, len(axes)) == view
        return view if is_unmoved else None

    def as_cells(self, name: str, view: View) -> View:
        """Add the op that makes a map of an array, for ops that take maps only, and return the tensor as a
        view of that map. The map has the array's channels, and its other axes as rows: an array of axes
        a, b, c becomes a map of c channels, a * b rows and one column (`a b c -> c (a b) ()`).

        Raises:
            Unsupported: it is no array of known size whose last axis are the channels.
        """
        sizes = view.known_sizes
        shape = view.value.shape or ()
        if not self.views.has_channels(view, -1) or not view.value.is_array or None in shape[1:-1]:
            raise Unsupported("of axes that are no cells of channels")
        letters = "abcdefgh"[: len(shape)]
        rows, channels = " ".join(letters[:-1]), letters[-1]
        pattern = f"{' '.join(letters)} -> {channels} ({rows}) ()"
        cells = self.builder.add(name, Rearrange(pattern, True), view.value)
        # the channels are the array's last axis, but come second in a map of a file with channels first
        channels_last = [0, 2, 3, 1] if self.views.builder.order == "CHW" else [0, 1, 2, 3]
        if self.views.lacks_batch:
            channels_last = [axis - 1 for axis in channels_last[1:]]
        return self.views.own_view(cells).transposed(channels_last).reshaped(sizes)

    def try_as_cells(self, name: str, view: View) -> View:
        """Return what `as_cells` gives if the view is such an array, otherwise the view as it is."""
        return none_if_unsupported(lambda: self.as_cells(name, view)) or view

    def as_view(self, read: Read) -> View:
        """Return what a reader gave as a view.

        Raises:
            Unsupported: porter has no op for it, since it is constants or zeros.
        """
        match read:
            case View():
                return read
            case Value():
                return self.views.own_view(read)
            case Repeated() | Zeros():
                raise Unsupported(read.lacks)
        raise Unsupported("of constants")

    def try_lay_out(self, source: Source) -> View:
        """Return a value as a map or features in the file's own layout (`lay_out`) if one op lays it out so;
        otherwise as its tensor holds it, such as a list of cells.
        """
        view = self.view(source)
        if isinstance(source, View) or view.value.is_array or self.views.layout_op(view) is None:
            return view
        return self.lay_out(source)

    def with_channels_at(self, source: Source, axis: int = -1) -> View:
        """Return a value with its channels at an axis: as `try_lay_out` gives it, or as an array or a map if
        only these have the channels there.
        """
        view = self.try_lay_out(source)
        if self.views.has_channels(view, axis):
            return view
        node_name = view.value.node if isinstance(source, View) else source[0]
        array = self._with_batch_within(node_name, view)
        for candidate in (array, self.lay_out(source)) if array else (self.lay_out(source),):
            if self.views.has_channels(candidate, axis):
                return candidate
        return self.views.own_view(self.value(source)) if view.rank == 4 else self.lay_out(source)

    def lay_out_side_by_side(self, sources: Collection[Source]) -> list[View]:
        """Lay out several values that one op reads, each as `try_lay_out` does. If one is a map in the file's
        layout, arrays of four axes beside it are laid out as maps too, so that all fit together.
        """
        views = [self.try_lay_out(source) for source in sources]
        map_layout = self.views.layout()
        if any(view.value.is_map and self.views.axis_names(view) == map_layout for view in views):
            views = [
                self.views.own_view(self.value(source)) if view.value.is_array and view.rank == 4 else view
                for source, view in zip(sources, views, strict=True)
            ]
        return views

    def align_values(self, sources: Sequence[Source]) -> tuple[list[Value], Callable[[Value], View]] | None:
        """Return the values that an op of several inputs reads, with matching axes, and a function from what
        the op makes of them to the tensor's view of it; None if their axes do not match. One value may have
        all axes, and the others single cells in place of some.
        """
        views = [self.try_lay_out(source) for source in sources]
        # the view that has all axes that any of them has
        widest = next((view for view in views if all(map(view.covers, views))), None)
        kinds = {(view.value.is_array, len(view.value.shape or ())) for view in views}
        if widest is not None and len(kinds) == 1:
            return [view.value for view in views], partial(self.views.with_axes_of, widest)
        views = self.lay_out_side_by_side(sources)
        names = self.views.common_axis_names(views)
        if names is None:
            return None
        return [view.value for view in views], partial(self.views.in_axis_order, names=names)

    def values(self, sources: Iterable[NodeOutput]) -> list[Value]:
        return [self.value(source) for source in sources]

    def output_values(self, sources: Iterable[NodeOutput]) -> dict[NodeOutput, Value]:
        """Return the values of a graph's outputs, without those that are constants. What is neither a map nor
        features in the file's own layout, and what is an array already, becomes an array.
        """
        return {
            source: self._output_value(source)
            for source in dict.fromkeys(sources)
            if self.flow.is_live(source)
        }

    def finish(
        self,
        ends: Mapping[NodeOutput, Value],
        outputs: Iterable[NodeOutput],
        names: Mapping[str, NodeOutput] | None = None,
    ) -> FileGraph:
        """Return the graph of what leads to `outputs`.

        Args:
            ends: the values of porter's graph, by the file's names, at which the file's graph can end.
            outputs: which of them the graph gives.
            names: what the framework calls the values that the file gives; None if these are the taps (the
                framework's names for values) of `ends`.
        """
        graph = self.builder.finish(ends[source] for source in outputs if source in ends)
        if names is None:
            names = {name: source for source in ends if (name := self.tap(source))}
        nodes = {name: ends[source].node for name, source in names.items() if source in ends}
        given_nodes = {name: node for name, node in nodes.items() if node in graph.by_name}
        return replace(graph, given=given_nodes, evaluated=self.flow.evaluated)

    def _output_value(self, source: NodeOutput) -> Value:
        """Return the value of an output, laid out as ports give it. What no port can give becomes foreign."""
        view = self.view(source)
        node_name, _ = source
        if node_name in self.apart:
            return self.builder.foreign(node_name, "an output that is taken apart into images", view.value)
        if view.value.node in self.builder.truths:
            return self.builder.foreign(
                node_name, "an output that says whether something holds, in no numbers", view.value
            )
        if self._has_more_than_batch(view):
            return self.builder.foreign(
                node_name, "an output whose first axis has more than the images", view.value
            )
        rank = view.rank if self.views.lacks_batch else view.rank - 1  # without the batch
        if rank == 0 and view.value.shape != ():
            feature = self.views.in_file_layout(node_name, view.with_axes([-1]))  # a number of each image
            return self.builder.add(node_name, Rearrange("() ->"), feature, tap=self.tap(source))
        is_array = view.value.is_array or self.views.layout_op(view) is None
        array = none_if_unsupported(lambda: self.array(source)) if is_array else None
        has_all_axes = array is not None and len(array.value.shape or ()) == rank
        return array.value if array is not None and has_all_axes else self.value(source)

    def _has_more_than_batch(self, view: View) -> bool:
        """Return whether the first axis of a tensor has more than the images, so that it can be no output."""
        if not view.axes or self.views.batch in (0, 1):
            return False
        return self.views.has_more_than_batch(view.axes[0])

    def record_outputs(self, node: N, outputs: Sequence[Read | None]) -> None:
        """Record what a node gives, output by output: views, and numbers as computed constants. Zeros,
        repeated values without a view, and what porter lacks are foreign nodes where something reads them;
        None records nothing.
        """
        for index, value in enumerate(outputs):
            source = node.name, index
            match value:
                case Repeated():
                    self.repeated[source] = value
                    self._record_output(node, index, value.view or self.foreign(node, value.lacks))
                case Zeros():
                    self.zero_sizes[source] = value.sizes
                    self._record_output(node, index, self.foreign(node, value.lacks))
                case View() | Value():
                    self._record_output(node, index, value)
                case np.ndarray():
                    self.flow.computed[source] = value

    def _record_output(self, node: N, index: int, output: View | Value) -> None:
        """Record one output of a node as its view. The node in porter's graph gets the tap, the name under
        which the framework gives the value, or is marked `moved` if it holds the numbers in another order.
        """
        view = output if isinstance(output, View) else self.views.own_view(output)
        self.view_of[node.name, index] = view
        porter_node = self.builder.nodes.get(view.value.node)
        if porter_node is None:
            return
        tap = None if view.value.node in self.builder.truths else self._tap_name((node.name, index))
        has_own_layout = view == self.views.own_view(view.value)
        if porter_node.tap is None and has_own_layout:
            self.builder.nodes[porter_node.name] = replace(porter_node, tap=tap)
        elif porter_node.tap in (None, tap) and not has_own_layout:
            self.builder.nodes[porter_node.name] = replace(porter_node, tap=None, moved=True)

    def foreign(self, node: N, lacks: str) -> Value:
        """Add a foreign node for what porter has no op for, and return its value.

        Args:
            lacks: what of the operator porter lacks, in words that follow its name, see Unsupported.
        """
        tensors_of = self.flow.tensors_of
        names = self._read_tensors(node) if tensors_of is None else tensors_of(node)
        tensors = {role: Stored(name) for role, name in names.items()}
        sources = [source for source in node.inputs if self.flow.is_live(source)]
        reads = tuple(
            None if self._has_more_than_batch(self.view(source)) else self._tap_name(source)
            for source in sources
        )
        # not laid out as the file has them: that would add ops that nobody asked for
        values = [self.view(source).value for source in sources]
        kind = f"{node.op} {lacks}".strip()
        return self.builder.foreign(node.name, kind, *values, tensors=tensors, reads=reads)

    def _read_tensors(self, node: N) -> dict[str, str]:
        """Return the names of the stored tensors that a node reads, by role: the last part of a name
        (`kernel` of `conv1/kernel`), or the whole name if several share that part.
        """
        tensors = [
            tensor
            for source in node.inputs
            if (tensor := self.flow.tensor(source)) is not None and tensor.shape
        ]
        names = [tensor.name for tensor in tensors if is_floating(self.flow.constants.array(tensor.name))]
        role_of = {name: name.rpartition("/")[2] for name in names}
        counts = Counter(role_of[name] for name in names)
        return {(role_of[name] if counts[role_of[name]] == 1 else name): name for name in names}


Walk = NodeWalk[Any]
"""A walk over nodes of any format: the functions that readers call take it."""


def leave_out(walk: Walk, layer: LeftOut, source: NodeOutput) -> View:
    """Note a layer that acts in training only, such as a dropout, as left out, and return the view of what it
    takes: outside of training it gives that back. A layer of rate 0 does nothing in training either, and is
    not noted.
    """
    view = walk.view(source)
    if layer.rate != 0:
        walk.builder.left_out.append(replace(layer, after=view.value.node))
    return view


def part_of(node: N, name: str) -> N:
    """Return a copy of a node whose name has a further word, `conv1:sum` for `sum`, for a value within it."""
    return cast(N, replace(cast(Any, node), name=f"{node.name}:{name}"))


def apply_elementwise(walk: Walk, node: OperatorNode, source: Source, *ops: Op) -> View:
    """Add ops that compute each number from itself, such as Relu, one after the other, and return the view of
    the last one's value, with the axes that the tensor of `source` has.
    """
    view = walk.try_lay_out(source)
    return walk.views.with_axes_of(view, walk.builder.chain(node.name, view.value, ops))
