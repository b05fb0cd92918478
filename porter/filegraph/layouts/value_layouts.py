"""The values of an op graph as porter's ops read them: the ops that lay a value out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from porter.filegraph.builder import Builder
from porter.filegraph.file_graph import Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Aligned, Source, View
from porter.filegraph.layouts.views import Views
from porter.filegraph.places import Items
from porter.filegraph.value_names import NodeOutput
from porter.graph import Rearrange
from porter.graph.ops import AXES, axis_letters


@dataclass
class Layouts:
    """Values, laid out by ops that are added once for each value. All methods that take a source refuse a
    constant (Unsupported), as `view` does.

    | method | adds | refuses | gives |
    |---|---|---|---|
    | `operand` | at most one op | nothing | a map or features in the file's layout, else as held |
    | `side_by_side` | as `operand`, of each value | nothing | values for one op, as maps if one of them is |
    | `in_file_layout` | one op, or a foreign node | nothing | a map, features or an array of its own axes |
    | `array_or_laid_out` | as `in_file_layout` | nothing | an array if it is one or no map, else as that |
    | `with_channels_at` | as `in_file_layout` | as `array` | the channels at an axis, where a form has them |
    | `array`, `as_array` | one op | repetitions, a batch that is not first | an array, or features |
    | `array_unless_map` | one op | nothing | an array, or None for what `operand` lays out |
    | `as_cells` | one op | other than arrays with their channels last | a map of an array's cells |
    | `cells_or_as_held` | at most one op | nothing | what `as_cells` gives, else the value as it is held |
    | `align_axes` | at most one op | as `array` | a value, and which of its axes are the tensor's |
    | `align_values` | as `side_by_side` | nothing | values with the same axes, or None |

    Repeated rows, columns or channels are ops before that one (`Views.materialise_repeats`).

    Attributes:
        view: gives a value as its tensor holds it, without an op; raises Unsupported for a constant.
        tap: gives the framework's name for a value, if it has one.
    """

    builder: Builder
    views: Views
    view: Callable[[Source], View]
    tap: Callable[[NodeOutput], str | None]
    _laid_out: dict[NodeOutput, Value] = field(default_factory=dict)
    _arrays: dict[View, View] = field(default_factory=dict)

    def operand(self, source: Source) -> View:
        """Return a value as a map or features in the file's own layout if one op lays it out so;
        otherwise as its tensor holds it, such as a list of cells.
        """
        view = self.view(source)
        if isinstance(source, View) or view.value.is_array or self.views.layout_op(view) is None:
            return view
        return self.views.own_view(self.in_file_layout(source))

    def side_by_side(self, sources: Collection[Source]) -> list[View]:
        """Return several values that one op reads, each as `operand` gives it. If one is a map in the file's
        layout, arrays of four axes beside it are laid out as maps too, so that all fit together.
        """
        views = [self.operand(source) for source in sources]
        map_layout = self.views.layout()
        if any(view.value.is_map and self.views.axis_names(view) == map_layout for view in views):
            views = [
                self.views.own_view(self.in_file_layout(source))
                if view.value.is_array and view.rank == 4
                else view
                for source, view in zip(sources, views, strict=True)
            ]
        return views

    def array_or_laid_out(self, source: Source) -> View:
        """Return the view of a value in the file's own layout, as a map or features, by an op if the tensor
        holds it in another way. A value that is an array already, or that no single op lays out, is returned
        as an array if it can be one.
        """
        return self.array_unless_map(source) or self.views.own_view(self.in_file_layout(source))

    def array_unless_map(self, source: Source) -> View | None:
        """Return a value as an array if it is one already, or if no single op lays it out as a map or
        features; None for another value, and for one that porter has no op for.
        """
        view = self.view(source)
        is_array = view.value.is_array or self.views.layout_op(view) is None
        return none_if_unsupported(lambda: self.array(source)) if is_array else None

    def in_file_layout(self, source: Source) -> Value:
        """Return a value as a map or features with the axes that the file's own tensor has. Where porter's
        graph holds it with other axes (a transpose that nothing has needed so far), this adds the op that
        turns them, once for each source.

        Args:
            source: an output of a node of the file, or a view of one.
        """
        view = self.view(source)
        if isinstance(source, View):
            return self.views.in_file_layout(view.value.node, view)
        if source not in self._laid_out:
            self._laid_out[source] = self.views.in_file_layout(source[0], view, self._tap_of(view, source))
        return self._laid_out[source]

    def with_channels_at(self, source: Source, axis: int = -1) -> View:
        """Return a value with its channels at an axis: as `operand` gives it, or as an array or a map if
        only these have the channels there.
        """
        view = self.operand(source)
        if self.views.has_channels(view, axis):
            return view
        node_name = view.value.node if isinstance(source, View) else source[0]
        array = self._with_batch_within(node_name, view)
        for candidate in filter(None, (array, self.array_or_laid_out(source))):
            if self.views.has_channels(candidate, axis):
                return candidate
        return (
            self.views.own_view(self.in_file_layout(source))
            if view.rank == 4
            else self.array_or_laid_out(source)
        )

    def align_values(self, sources: Sequence[Source]) -> tuple[list[Value], Callable[[Value], View]] | None:
        """Return the values that an op of several inputs reads, with matching axes, and a function from what
        the op makes of them to the tensor's view of it; None if their axes do not match. One value may have
        all axes, and the others single cells in place of some.
        """
        views = [self.operand(source) for source in sources]
        # the view that has all axes that any of them has
        widest = next((view for view in views if all(map(view.covers, views))), None)
        kinds = {(view.value.is_array, len(view.value.shape or ())) for view in views}
        if widest is not None and len(kinds) == 1:
            return [view.value for view in views], partial(self.views.with_axes_of, widest)
        views = self.side_by_side(sources)
        names = self.views.common_axis_names(views)
        if names is None:
            return None
        return [view.value for view in views], partial(self.views.in_axis_order, names=names)

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
        if (array := self.views.array_of_own_axes(view)) is not None:
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
        letters = axis_letters(len(shape))
        rows, channels = " ".join(letters[:-1]), letters[-1]
        pattern = f"{' '.join(letters)} -> {channels} ({rows}) ()"
        cells = self.builder.add(name, Rearrange(pattern, True), view.value)
        # the channels are the array's last axis, but come second in a map of a file with channels first
        channels_last = [0, 2, 3, 1] if self.builder.order == "CHW" else [0, 1, 2, 3]
        if self.views.lacks_batch:
            channels_last = [axis - 1 for axis in channels_last[1:]]
        return self.views.own_view(cells).transposed(channels_last).reshaped(sizes)

    def cells_or_as_held(self, name: str, view: View) -> View:
        """Return what `as_cells` gives if the view is such an array, otherwise the view as it is."""
        return none_if_unsupported(lambda: self.as_cells(name, view)) or view

    def _tap_of(self, view: View, source: NodeOutput) -> str | None:
        """Return the tap (the framework's name for a value when it runs the graph) for an op that gives a
        value as its tensor holds it; None if the node of the value itself has that tap.
        """
        node = self.builder.nodes.get(view.value.node)
        tap = self.tap(source)
        return None if node is not None and node.tap == tap else tap
