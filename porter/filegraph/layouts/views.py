"""How a file's tensors hold a graph's values: the axes of each (porter.filegraph.layouts.axes), and the ops
that give a value as a tensor holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, cast

from porter.base.errors import GraphError
from porter.filegraph.builder import Builder
from porter.filegraph.file_graph import Foreign, Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import REPEATED, Piece, View, join_pieces
from porter.filegraph.layouts.dims import (
    BATCH,
    ONLY,
    Dim,
    Open,
    product,
    ratio,
    sizes_text,
    unknown,
)
from porter.filegraph.layouts.map_ops import OpAndAxes, axes_of_map, map_ops, size_or_one
from porter.filegraph.places import Items
from porter.graph import (
    AsMap,
    ConcatChannels,
    CropMap,
    Flatten,
    Identity,
    Op,
    Rearrange,
    Resize,
    Shape,
    Upsample,
)
from porter.graph.ops import AXES, MOST_AXES, Axis, Merge, axis_letters
from porter.padding import LARGEST

_MOST_COPIES = 64
"""The most copies of all channels beside each other: each is an input of a node, however short the file is.
"""
AxisNames = tuple[Literal["batch"] | Axis, ...]
"""The name of each axis of a tensor that is a map or features."""


@dataclass
class Views:
    """The values of a graph in the making, as the file's tensors hold them.

    Attributes:
        batch: the batch that the file states; None where it is free, 0 where its tensors have none: they are
            one image's.
    """

    builder: Builder
    batch: int | None = None
    _open: dict[tuple[str, str], Dim] = field(default_factory=dict)

    def own_view(self, value: Value) -> View:
        """Return the value in the file's own layout: N×H×W×C or N×C×H×W for a map, N×C for features; an array
        has its own axes.
        """
        if value.shape is None:
            return View(value, None)
        batch, *axes = self._pieces(value)
        if self.builder.order == "HWC" and not value.is_array:
            channels, *cells = axes
            axes = [*cells, channels]
        tensor_axes = axes if self.lacks_batch else [batch, *axes]
        return View(value, join_pieces((piece,) for piece in tensor_axes))

    @property
    def lacks_batch(self) -> bool:
        """Whether the file's tensors have no batch, since they are one image's."""
        return self.batch == 0

    def as_rank(self, value: Value, rank: int) -> View:
        """Return an array as a tensor of so many axes. If the array has more, the first ones stand with the
        batch in the tensor's first axis: a tensor of rank 2 has an array of axes a, b as (N a) and b.
        """
        if value.shape is None:
            return View(value, None)
        batch, *axes = self._pieces(value)
        count_with_batch = len(axes) - rank + 1  # of the axes in the tensor's first one
        first_axis = (batch, *axes[:count_with_batch])
        other_axes = [(piece,) for piece in axes[count_with_batch:]]
        return View(value, join_pieces([first_axis, *other_axes]))

    def as_rank_of(self, view: View, value: Value) -> View:
        """Return the view of an array that has as many axes in its tensor as another view."""
        return self.as_rank(value, view.rank)

    def with_batch_inside(self, value: Value, position: int, before: bool, behind: bool) -> View:
        """Return an array as a tensor whose axis `position` holds the batch, and if `before` or `behind` an
        axis of the array on that side of it: with both, position 1 and axes a to d, a, (b N c), d.
        """
        batch, *axes = self._pieces(value)
        start_behind = position + before
        end = start_behind + behind
        axis_of_batch = (*axes[position:start_behind], batch, *axes[start_behind:end])
        axes_before = [(piece,) for piece in axes[:position]]
        axes_behind = [(piece,) for piece in axes[end:]]
        return View(value, join_pieces([*axes_before, axis_of_batch, *axes_behind]))

    def array_of_own_axes(self, view: View) -> View | None:
        """Return the view if it holds an array, or features, with that value's own axes, so that no op is
        needed to make an array of it; otherwise None.
        """
        shape, axes = view.value.shape, view.axes
        if axes is None or shape is None or view.value.is_map:
            return None
        # the first axis of the tensor may hold one axis of the value beside the batch
        axes_in_batch = len(shape) - len(axes) + 1
        has_as_many_axes = axes_in_batch == self.has_more_than_batch(axes[0])
        is_unmoved = has_as_many_axes and self.as_rank(view.value, len(axes)) == view
        return view if is_unmoved else None

    def has_more_than_batch(self, axis: tuple[Piece, ...]) -> bool:
        """Return whether a tensor's first axis holds something beside the batch; without a batch it does,
        since the axis is one of the value's own.
        """
        return self.lacks_batch or any(piece.axis != "N" for piece in axis)

    def layout(self, rank: int = 4) -> AxisNames:
        """Return the names of the axes in the file's own layout: of a map, which has rank 4, or of
        features.
        """
        channels, *cells = AXES[: rank - 1]
        return ("batch", *cells, channels) if self.builder.order == "HWC" else ("batch", channels, *cells)

    @property
    def channels_place(self) -> int:
        """The position of the channels in the file's own layout, of maps and of features."""
        return -1 if self.builder.order == "HWC" else 1

    def axis_names(self, view: View) -> AxisNames | None:
        """Return the name of each axis of the tensor, such as batch, channels, rows, columns; None if it is
        no map and no features whose axes are only transposed. A value of unknown shape is taken for a map.
        """
        if view.axes is None:
            return self.layout()
        if view.value.is_array or self.lacks_batch or len(view.axes) not in (2, 4):
            return None
        orders = permutations(self.layout(len(view.axes)))
        return next((order for order in orders if self._is_in_order(view, order)), None)

    def in_axis_order(self, value: Value, names: AxisNames) -> View:
        """Return the view of the value with its axes in this order.

        Raises:
            Unsupported: it has other axes.
        """
        layout_axes = self.own_view(value).axes
        if layout_axes is None:
            return View(value, None)
        layout = self.layout(len(layout_axes))
        if value.is_array or {*layout} != {*names}:
            raise Unsupported("of other axes")
        return View(value, tuple(layout_axes[layout.index(name)] for name in names))

    def _is_in_order(self, view: View, names: AxisNames) -> bool:
        """Return whether a tensor has the axes of its value in this order."""
        return none_if_unsupported(lambda: self.in_axis_order(view.value, names)) == view

    def common_axis_names(self, views: Collection[View]) -> AxisNames | None:
        """Return the name of each axis (`axis_names`) that all these tensors have; None if their axes differ,
        or an axis of them has no name.
        """
        for names in filter(None, map(self.axis_names, views)):
            if all(self._is_in_order(view, names) for view in views):
                return names
        return None

    def has_channels(self, view: View, axis: int) -> bool:
        """Return whether an axis of the tensor is exactly the channels of the value: an op along it then acts
        on the channels of each cell.
        """
        if view.axes is None or view.value.shape is None:
            layout = self.layout()
            return layout.index("channels") in (axis, axis + len(layout))
        axis_there = view.axes[axis : axis + 1 or None]  # empty if the tensor has no such axis
        return axis_there == join_pieces([[self._channels(view.value)]])

    def along_channels(self, view: View, shape: Sequence[Dim]) -> bool:
        """Return whether numbers of this shape, which an op stretches along the other axes of the tensor, are
        one for each channel: of shape 8x1x1 for a tensor N×8×H×W, or 2x4x1x1 for channels in two axes.
        """
        channels = self._channels(view.value) if view.value.shape else None
        # of each axis of the tensor, the pieces that are of the channels
        channel_pieces = [
            tuple(piece for piece in axis if channels and piece.axis == channels.axis)
            for axis in view.axes or ()
        ]
        joined = join_pieces([[piece for pieces in channel_pieces for piece in pieces]])
        are_in_order = joined == join_pieces([[channels] if channels else []])
        wanted_shape = [product(piece.size for piece in pieces) for pieces in channel_pieces]
        missing_axes = len(wanted_shape) - len(shape)
        return are_in_order and [1] * missing_axes + [*shape] == wanted_shape

    def has_batch_first(self, view: View) -> bool:
        """Return whether the first axis is the batch, so that a norm over others is one of each image."""
        return view.axes is not None and view.axes[:1] == join_pieces([self._pieces(view.value)[:1]])

    def groups_at(self, view: View, position: int) -> int | None:
        """Return the number of groups of channels that an axis counts, which may have one channel each; None
        if it counts something else. A group norm is written so: a reshape of N×C×H×W to N×8×C/8×H×W has 8
        groups at position 1.
        """
        axis = Items(view.axes or ())[position]
        channels = view.value.channels or 0
        groups = product(piece.size for piece in axis)
        if isinstance(groups, Open) or (channels_of_group := ratio(channels, groups)) is None:
            return None
        return groups if (axis,) == join_pieces([[Piece("C", groups, channels_of_group)]]) else None

    def normed_groups(self, view: View, positions: Iterable[int]) -> int | None:
        """Return the number of groups of channels if a norm over these axes is a group norm, which leaves out
        the batch and the axis that counts the groups; None for another norm.
        """
        if not self.has_batch_first(view):
            return None
        batch = 0
        left_out = {*range(view.rank)} - view.positions(positions) - {batch}
        return self.groups_at(view, left_out.pop()) if len(left_out) == 1 else None

    def with_axes_of(self, view: View, value: Value) -> View:
        """Return the view of a value that an op made cell by cell of the one in `view`: it has the same axes,
        and may have other channels. Open sizes of the two values become the same ones.
        """
        if view.axes is None or value.shape is None:
            return self.own_view(value)
        for axis in f"HW{axis_letters(MOST_AXES)}":
            if (view.value.node, axis) in self._open:
                self._open[value.node, axis] = self._open[view.value.node, axis]
        if self.has_channels(view, -1):
            return View(value, join_pieces([*view.axes[:-1], [self._channels(value)]]))
        return View(value, view.axes)

    def restore_layout(self, name: str, view: View, before: View) -> View:
        """Return a value as a map in the file's own layout if the one `before`, which it was made of, was
        held so; otherwise as it is.
        """
        was_in_layout = before.value.is_map and self.axis_names(before) == self.layout()
        return self.own_view(self.in_file_layout(name, view)) if was_in_layout else view

    def in_file_layout(self, name: str, view: View, tap: str | None = None) -> Value:
        """Return the value in the file's own layout: a tensor of four axes is a map, one of two is features,
        and another one is an array. All reshapes and transposes that the file has made of the value so far
        (its view) become one op, which is added; where porter has no such op, a foreign node is.

        Args:
            name: of the op.
            tap: the framework's name for the value that the op gives.
        """
        own_view = self.own_view(view.value)
        is_unmoved = view.axes == own_view.axes
        is_array_as_map = view.value.is_array and view.axes is not None and len(view.axes) == 4
        if view.axes is None or (is_unmoved and not is_array_as_map):
            return view.value
        op: Op | Foreign | None = None if view.value.is_array else self.layout_op(view)
        if op is None:
            unrepeated = self.materialise_repeats(f"{name}:repeated", view)
            if unrepeated != view:
                return self.in_file_layout(name, unrepeated, tap)
            op = self.rearrange_op(view, of_map=len(view.axes) == 4 and not self.lacks_batch)
        if op is None:
            # a foreign node has no shape, so the message has the sizes
            own_sizes = sizes_text((own_view.sizes or ())[1:])
            sizes = sizes_text((view.sizes or ())[1:])
            op = Foreign(f"a reshape of {own_sizes or 'one number'} to {sizes or 'one axis'}")
        return self.builder.add(name, op, view.value, tap=tap)

    def materialise_repeats(self, name: str, view: View) -> View:
        """Add ops that repeat the rows, columns or channels of a map that the tensor has several times: an
        Upsample, and a concatenation of the map with itself. Return the view of what they give; a tensor that
        repeats something else, or nothing, is returned as it is.
        """
        axes = view.axes or ()
        repeated = self._repeated_axes(view)
        # by H, W or C, how often the tensor has it
        times = {
            piece.axis: size_or_one(axes[position][index].size)
            for (position, index), piece in repeated.items()
        }
        copies = times.pop("C", 1)
        if not repeated or copies > _MOST_COPIES:
            return view
        repeated_value = view.value
        if copies > 1:
            repeated_value = self.builder.concat(f"{name}:channels", *[repeated_value] * copies)
        if times:
            repeated_value = self.builder.add(
                name, Upsample(times.get("H", 1), times.get("W", 1)), repeated_value
            )
        _, _, *cells = self._pieces(repeated_value)
        cells_by_axis = dict(zip("HW", cells, strict=True))  # the rows and columns with their repetitions
        channels = self._channels(view.value)
        copies_of_channels = Piece("C", copies, view.value.channels or 1)
        repeated_axes = list[list[Piece]]()
        for position, axis in enumerate(axes):
            pieces = list[Piece]()
            for index, piece in enumerate(axis):
                repeated_piece = repeated.get((position, index))
                if repeated_piece is None:
                    pieces.append(cells_by_axis.get(piece.axis, piece))
                elif repeated_piece == channels:
                    pieces.append(copies_of_channels)
                # a repetition of rows or columns is in their piece already
            repeated_axes.append(pieces)
        return View(repeated_value, join_pieces(repeated_axes))

    def _repeated_axes(self, view: View) -> dict[tuple[int, int], Piece]:
        """Find the rows, columns or channels that a tensor has several times. Return the repeated piece by
        the place of the REPEATED piece that repeats it: the position of its axis and its index there. The
        result is empty if the tensor repeats something else too.
        """
        if not view.value.is_map:
            return {}
        axes = view.known_axes
        _, channels, *cells = self._pieces(view.value)
        repeats = [
            (position, index)
            for position, axis in enumerate(axes)
            for index, piece in enumerate(axis)
            if piece.axis == REPEATED
        ]
        # a repetition that is a whole axis repeats the only channel, if no other axis does
        whole_axes = [position for position, _ in repeats if len(axes[position]) == 1 and channels.size == 1]
        repeated = dict[tuple[int, int], Piece]()
        for position, index in repeats:
            stands_before_channels = axes[position][1:2] == (channels,)
            if index > 0:  # behind a piece: each cell of it several times
                repeated[position, index] = axes[position][index - 1]
            elif stands_before_channels or [position] == whole_axes:  # all channels several times
                repeated[position, index] = channels
        has_unknown_repeats = len(repeated) < len(repeats)
        repeats_others = not {*repeated.values()} <= {channels, *cells}
        return {} if has_unknown_repeats or repeats_others else repeated

    def layout_op(self, view: View) -> Op | None:
        """Return the one op that gives the value as the tensor holds it, and Identity for the file's own
        layout; None if only `rearrange_op` can.
        """
        value, axes = view.value, view.axes
        if axes is None or axes == self.own_view(value).axes:
            return Identity()
        if value.is_array or self.lacks_batch:
            return None
        batch, channels, *cells = self._pieces(value)
        candidates: list[OpAndAxes] = []  # each with the axes that it gives
        known_size = [cell.size for cell in cells if isinstance(cell.size, int)]
        if known_size == [1, 1]:
            candidates.append((Flatten(), [(batch,), (channels,)]))
        if len(known_size) == 2:
            rows, columns = known_size
            candidates.append((Flatten(rows, columns, "HWC"), [(batch,), (*cells, channels)]))
            candidates.append((Flatten(rows, columns, "CHW"), [(batch,), (channels, *cells)]))
        if not cells:
            candidates = [(AsMap(), axes_of_map(self.builder.order, batch, (), (), (channels,)))]
        elif len(axes) == 4:
            candidates += map_ops(self.builder.order, (batch, channels, *cells), axes)
        return next((op for op, op_axes in candidates if axes == join_pieces(op_axes)), None)

    def rearrange_op(self, view: View, of_map: bool = False) -> Rearrange | None:
        """Return the op that gives the tensor's axes as an array or features, or with `of_map` as a map in
        the file's own layout; None for repetitions, and where the batch is not the first axis. What stands
        beside the batch in that axis becomes an axis of its own.
        """
        pieces = self._pieces(view.value)[1:]
        axes = self._axes_behind_batch(view)
        if not pieces or axes is None or (of_map and len(axes) != 3):
            return None
        if of_map and self.builder.order == "HWC":
            axes = [axes[2], axes[0], axes[1]]
        count_of_parts = sum(map(len, axes))
        if max(count_of_parts, len(axes), len(pieces)) > MOST_AXES:
            return None
        # The new channels have to be known at any size of the input, so the pattern states their sizes.
        new_channels = axes[0 if of_map else -1] if axes else ()
        sized = {piece.axis for piece in new_channels if isinstance(piece.size, int)}
        sized -= {self._channels(view.value).axis}
        return Rearrange(_pattern([piece.axis for piece in pieces], axes, sized), of_map)

    def _axes_behind_batch(self, view: View) -> Sequence[tuple[Piece, ...]] | None:
        """Return the axes without the batch; what stands beside it comes first, as an axis of its own. None
        if another axis holds the batch, or one repeats something.
        """
        first_axis, *other_axes = ((), *(view.axes or ())) if self.lacks_batch else view.axes or ((),)
        beside_batch = first_axis[1:]
        behind_batch = [beside_batch, *other_axes] if beside_batch else other_axes
        has_other = any(piece.axis in ("N", REPEATED) for axis in behind_batch for piece in axis)
        (batch,) = join_pieces([self._pieces(view.value)[:1]])
        return None if has_other or first_axis[:1] != batch else behind_batch

    def _pieces(self, value: Value) -> list[Piece]:
        """Return the whole axes of a value as pieces: batch, channels, and the rows and columns of a map, or
        the axes of an array.
        """
        batch: Dim = self.batch or 1
        if self.batch is None:
            batch = BATCH
        elif self.batch == 1:
            batch = ONLY
        axes = [
            Piece(axis, self._size(value, axis) if size is None else size) for axis, size in _axes_of(value)
        ]
        return [Piece("N", batch), *axes]

    def _channels(self, value: Value) -> Piece:
        """Return the channels of a value as one piece; an array has them last."""
        _, *axes = self._pieces(value)
        if not axes:  # a number of each image
            return Piece("a", 1)
        return axes[-1] if value.is_array else axes[0]

    def _size(self, value: Value, axis: str) -> Dim:
        """Return the size of an open axis. Those of all open axes of the value are found together, and
        kept.
        """
        if (value.node, axis) not in self._open:
            shape = self._computed_shape(value) or [None] * len(value.shape or ())
            for (open_axis, size), computed in zip(_axes_of(value), shape, strict=False):
                if size is None:
                    new = unknown(f"{open_axis} of {value.node}") if computed is None else computed
                    self._open.setdefault((value.node, open_axis), new)
        return self._open[value.node, axis]

    def _computed_shape(self, value: Value) -> Sequence[Dim | None] | None:
        """Compute the sizes of a value, open ones too, by its op's shape rule from the sizes that the op
        reads; None, for all or for an axis, where the rule does not tell.
        """
        node = self.builder.nodes.get(value.node)
        if node is None or isinstance(node.op, Foreign | Resize):
            return None
        inputs = [self.builder.value(name) for name in node.inputs]
        if any(read.shape is None for read in inputs):
            return None
        input_sizes = [self._sizes(read) for read in inputs]
        try:
            return _output_shape(node.op, input_sizes)
        except GraphError:
            if not isinstance(node.op, Merge | ConcatChannels):
                return None
            # a file that joins values states that their sizes are the same: the first open one of each axis
            return [
                next((size for size in sizes if isinstance(size, Open)), None)
                for sizes in zip(*input_sizes, strict=False)
            ]

    def _sizes(self, value: Value) -> Sequence[Dim]:
        """Return the sizes of a value's axes, open ones too, in the type of its shape, as an op's shape rule
        takes them.
        """
        sizes = (cast(Any, piece.size) for piece in self._pieces(value)[1:])
        return cast(Sequence[Dim], cast(Any, type(value.shape))(sizes))


def _axes_of(value: Value) -> Iterable[tuple[str, int | None]]:
    """Pair the letters of a value's axes, CHW of a map, C of features or abc... of an array, with their
    sizes.
    """
    shape = value.shape or ()
    return zip(axis_letters(len(shape)) if value.is_array else "CHW", shape, strict=False)


def _output_shape(op: Op, sizes: Sequence[Sequence[Dim]]) -> Sequence[Dim]:
    """Return the shape of what an op makes of values of these sizes, which may be open.

    The op's rule would ask whether a window fits into a map, and whether a crop leaves anything of it, which
    an open size does not tell. No graph takes an image for which it is not so. So many whole strides are
    added to open sizes that the answer is yes, and as many cells are taken off the result.

    Raises:
        GraphError: it depends on the input's size in a way that has no sum.
    """
    if not (op.site or isinstance(op, CropMap)):
        return cast(Sequence[Dim], op.shape(*cast(list[Shape], sizes)))
    channels, *cells = sizes[0]
    strides = op.site.window.stride if op.site else (1, 1)
    added_strides = [2 * LARGEST if isinstance(size, Open) else 0 for size in cells]
    large = [size + count * stride for size, count, stride in zip(cells, added_strides, strides, strict=True)]
    filters, *extents = cast(Sequence[Dim], op.shape(cast(Shape, (channels, *large))))
    return filters, *(size - count for size, count in zip(extents, added_strides, strict=True))


def _pattern(letters: Sequence[str], axes: Sequence[Sequence[Piece]], sized: Collection[str]) -> str:
    """Write the pattern of Rearrange that splits the axes `letters` into pieces, and makes `axes` of
    these: `(c0 c1=4) h w -> (h w) c1 c0` for channels in two pieces.

    Args:
        sized: the axes of which each piece says its size; of others, all but the first say it.
    """
    outermost_first = sorted((piece for axis in axes for piece in axis), key=lambda piece: -piece.stride)
    words = dict[Piece, str]()
    before = list[list[str]]()
    for letter in letters:
        pieces = [piece for piece in outermost_first if piece.axis == letter]
        is_split = len(pieces) > 1
        count_unsized = 0 if letter in sized else 1
        sized_words = []
        for index, piece in enumerate(pieces):
            words[piece] = f"{letter.lower()}{index}" if is_split else letter.lower()
            sized_words.append(words[piece] if index < count_unsized else f"{words[piece]}={piece.size}")
        before.append(sized_words)
    after = [[words[piece] for piece in axis] for axis in axes]
    return " -> ".join(" ".join(map(_axis_text, side)) for side in (before, after)).strip()


def _axis_text(axis: Sequence[str]) -> str:
    """Write an axis of a pattern of Rearrange, in parentheses if it has several pieces or states a size."""
    return axis[0] if len(axis) == 1 and "=" not in axis[0] else f"({' '.join(axis)})"
