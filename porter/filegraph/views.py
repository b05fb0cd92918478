"""How a file's tensors hold a graph's values: the axes of each (porter.filegraph.axes), and the ops that give
a value as a tensor holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, cast

from porter.base.errors import GraphError
from porter.filegraph.axes import REPEATED, Axes, Piece, View, join_pieces
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dims import (
    BATCH,
    ONLY,
    Dim,
    Open,
    product,
    quotient,
    ratio,
    sizes_text,
    unknown,
)
from porter.filegraph.file_graph import Foreign, Unsupported, none_if_unsupported
from porter.filegraph.places import Items
from porter.graph import (
    AsMap,
    ChannelShuffle,
    ConcatChannels,
    CropMap,
    DepthToSpace,
    Flatten,
    Identity,
    Op,
    Rearrange,
    Resize,
    Shape,
    SpaceToDepth,
    Upsample,
)
from porter.graph.ops import AXES, MOST_AXES, Axis, Merge
from porter.padding import LARGEST

_LETTERS = "abcdefgh"
"""The axes of an array."""
_MOST_COPIES = 64
"""The most copies of all channels beside each other: each is an input of a node, however short the file is.
"""
Names = tuple[Literal["batch"] | Axis, ...]


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
        n, *axes = self._pieces(value)
        order = (
            [n, *axes[1:], *axes[:1]] if self.builder.order == "HWC" and not value.is_array else [n, *axes]
        )
        return View(value, join_pieces((piece,) for piece in order[self.lacks_batch :]))

    @property
    def lacks_batch(self) -> bool:
        """Whether the file's tensors have no batch, since they are one image's."""
        return self.batch == 0

    def as_rank(self, value: Value, rank: int) -> View:
        """Return an array as a tensor of so many axes. The first one holds the batch, and those axes of the
        array that are too many.
        """
        if value.shape is None:
            return View(value, None)
        n, *axes = self._pieces(value)
        # so many axes stand beside the batch in the first one
        lead = len(axes) - rank + 1
        return View(value, join_pieces([(n, *axes[:lead]), *((piece,) for piece in axes[lead:])]))

    def as_rank_of(self, view: View, value: Value) -> View:
        """Return the view of an array that has as many axes in its tensor as another view."""
        return self.as_rank(value, view.rank)

    def with_batch_inside(self, value: Value, position: int, before: bool, behind: bool) -> View:
        """Return an array as a tensor whose axis `position` holds the batch, and if `before` or `behind` an
        axis of the array on that side of it.
        """
        n, *axes = self._pieces(value)
        first, last = position + before, position + before + behind
        return View(
            value,
            join_pieces(
                [
                    *((piece,) for piece in axes[:position]),
                    (*axes[position:first], n, *axes[first:last]),
                    *((piece,) for piece in axes[last:]),
                ]
            ),
        )

    def has_more_than_batch(self, axis: tuple[Piece, ...]) -> bool:
        """Return whether a tensor's first axis holds something beside the batch; without a batch it does,
        since the axis is one of the value's own.
        """
        return self.lacks_batch or any(piece.axis != "N" for piece in axis)

    def layout(self, rank: int = 4) -> Names:
        """Return the names of the axes in the file's own layout: of a map, which has rank 4, or of
        features.
        """
        channels, *cells = AXES[: rank - 1]
        return ("batch", *cells, channels) if self.builder.order == "HWC" else ("batch", channels, *cells)

    @property
    def channels_place(self) -> int:
        """The position of the channels in the file's own layout, of maps and of features."""
        return -1 if self.builder.order == "HWC" else 1

    def axis_names(self, view: View) -> Names | None:
        """Return the name of each axis of the tensor; None if it is more than a transposed map or features. A
        value of unknown shape is taken for a map.
        """
        if view.axes is None:
            return self.layout()
        if view.value.is_array or self.lacks_batch:
            return None
        orders = permutations(self.layout(len(view.axes))) if len(view.axes) in (2, 4) else ()
        return next((order for order in orders if self._is_in_order(view, order)), None)

    def in_axis_order(self, value: Value, names: Names) -> View:
        """Return the view of the value with its axes in this order.

        Raises:
            Unsupported: it has other axes.
        """
        plain = self.own_view(value).axes
        if plain is None:
            return View(value, None)
        layout = self.layout(len(plain))
        if value.is_array or {*layout} != {*names}:
            raise Unsupported("of other axes")
        return View(value, tuple(plain[layout.index(name)] for name in names))

    def _is_in_order(self, view: View, names: Names) -> bool:
        """Return whether a tensor has the axes of its value in this order."""
        return none_if_unsupported(lambda: self.in_axis_order(view.value, names)) == view

    def common_axis_names(self, views: Collection[View]) -> Names | None:
        """Return the name of each axis of all these tensors; None if their axes differ, or one of them is
        more than a transposed value.
        """
        for names in filter(None, map(self.axis_names, views)):
            if all(self._is_in_order(view, names) for view in views):
                return names
        return None

    def has_channels(self, view: View, axis: int) -> bool:
        """Return whether an axis has exactly the channels of the value, so that what a file does there is
        done to each cell.
        """
        if view.axes is None or view.value.shape is None:
            layout = self.layout()
            return layout.index("channels") in (axis, axis + len(layout))
        return view.axes[axis : axis + 1 or None] == join_pieces([[self._channels(view.value)]])

    def along_channels(self, view: View, shape: Sequence[Dim]) -> bool:
        """Return whether numbers of this shape, which are repeated along the other axes of the tensor, are
        one for each channel.
        """
        channels = self._channels(view.value) if view.value.shape else None
        axes = [
            tuple(piece for piece in axis if channels and piece.axis == channels.axis)
            for axis in view.axes or ()
        ]
        sizes = [product(piece.size for piece in axis) for axis in axes]
        in_order = join_pieces([[piece for axis in axes for piece in axis]]) == join_pieces(
            [[channels] if channels else []]
        )
        return in_order and [1] * (len(sizes) - len(shape)) + [*shape] == sizes

    def has_batch_first(self, view: View) -> bool:
        """Return whether the first axis is the batch, so that a norm over others is one of each image."""
        return view.axes is not None and view.axes[:1] == join_pieces([self._pieces(view.value)[:1]])

    def groups_at(self, view: View, position: int) -> int | None:
        """Return the number of groups of channels that an axis counts, which may have one channel each; None
        if it counts something else.
        """
        axis = Items(view.axes or ())[position]
        channels = view.value.channels or 0
        count = product(piece.size for piece in axis)
        if isinstance(count, Open) or (inner := ratio(channels, count)) is None:
            return None
        return count if (axis,) == join_pieces([[Piece("C", count, inner)]]) else None

    def normed_groups(self, view: View, positions: Iterable[int]) -> int | None:
        """Return the groups of a norm over these axes, which are all but the batch and that of the groups;
        None if it has none.
        """
        if not self.has_batch_first(view):
            return None
        left = {*range(view.rank)} - view.positions(positions) - {0}
        return self.groups_at(view, left.pop()) if len(left) == 1 else None

    def with_axes_of(self, view: View, value: Value) -> View:
        """Return the view of a value that an op made cell by cell of the one in `view`: it has the same axes,
        and may have other channels.
        """
        if view.axes is None or value.shape is None:
            return self.own_view(value)
        for axis in "HWabcdefgh":
            if (view.value.node, axis) in self._open:
                self._open[value.node, axis] = self._open[view.value.node, axis]
        return View(
            value,
            join_pieces([*view.axes[:-1], [self._channels(value)]])
            if self.has_channels(view, -1)
            else view.axes,
        )

    def restore_layout(self, name: str, view: View, before: View) -> View:
        """Return a value as a map in the file's own layout if the one `before` was held so, otherwise as it
        is.
        """
        plain = before.value.is_map and self.axis_names(before) == self.layout()
        return self.own_view(self.in_file_layout(name, view)) if plain else view

    def in_file_layout(self, name: str, view: View, tap: str | None = None) -> Value:
        """Return the value in the file's own layout, by the one op that all moves are together: a tensor of
        four axes is a map, one of two is features, and another one is an array. Where porter has no such op,
        it is foreign.
        """
        plain = self.own_view(view.value)
        if view.axes is None or (
            view.axes == plain.axes and not (view.value.is_array and len(view.axes) == 4)
        ):
            return view.value
        special = None if view.value.is_array else self.layout_op(view)
        if special is None and (spread := self.materialise_repeats(f"{name}:repeated", view)) != view:
            return self.in_file_layout(name, spread, tap)
        op: Op | Foreign | None = special or self.rearrange_op(
            view, of_map=len(view.axes) == 4 and not self.lacks_batch
        )
        if op is None:
            # What is foreign has no shape, so the sizes say what porter lacks.
            old, new = (sizes_text((each.sizes or ())[1:]) for each in (plain, view))
            op = Foreign(f"a reshape of {old or 'one number'} to {new or 'one axis'}")
        return self.builder.add(name, op, view.value, tap=tap)

    def materialise_repeats(self, name: str, view: View) -> View:
        """Add ops that repeat the rows, columns or channels of a map that the tensor has several times, and
        return the view of what they give; another tensor is returned as it is.
        """
        axes = view.axes or ()
        repeated = self._repeated_axes(view)
        times = {
            piece.axis: _size_or_one(axes[position][index].size)
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
        cells_by_axis = dict(zip("HW", self._pieces(repeated_value)[2:], strict=True))
        channels = self._channels(view.value)
        copies_of_channels = Piece("C", copies, view.value.channels or 1)
        return View(
            repeated_value,
            join_pieces(
                [
                    copies_of_channels
                    if (position, index) in repeated
                    else cells_by_axis.get(piece.axis, piece)
                    for index, piece in enumerate(axis)
                    if repeated.get((position, index), channels) == channels
                ]
                for position, axis in enumerate(axes)
            ),
        )

    def _repeated_axes(self, view: View) -> dict[tuple[int, int], Piece]:
        """Find the rows, columns or channels that a tensor has several times. Return the repeated piece by
        the axis and the index of the piece that repeats it; nothing if the tensor repeats something else too.
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
        # A repetition that is a whole axis repeats the only channel, if no other axis does.
        alone = [position for position, _ in repeats if len(axes[position]) == 1 and channels.size == 1]
        repeated = dict[tuple[int, int], Piece]()
        for position, index in repeats:
            if index:  # each cell several times
                repeated[position, index] = axes[position][index - 1]
            elif axes[position][1:2] == (channels,) or [position] == alone:  # all channels several times
                repeated[position, index] = channels
        others = len(repeated) < len(repeats) or not {*repeated.values()} <= {channels, *cells}
        return {} if others else repeated

    def layout_op(self, view: View) -> Op | None:
        """Return the one op that gives the value as the tensor holds it, and Identity for the file's own
        layout; None if only `rearrange_op` can.
        """
        value, axes = view.value, view.axes
        if axes is None or axes == self.own_view(value).axes:
            return Identity()
        if value.is_array or self.lacks_batch:
            return None
        n, c, *cells = self._pieces(value)
        ops: list[tuple[Op, Iterable[tuple[Piece, ...]]]] = []  # each with the axes that it gives
        size = [cell.size for cell in cells if isinstance(cell.size, int)]
        if size == [1, 1]:
            ops.append((Flatten(), [(n,), (c,)]))
        if len(size) == 2:
            ops.append((Flatten(size[0], size[1], "HWC"), [(n,), (*cells, c)]))
            ops.append((Flatten(size[0], size[1], "CHW"), [(n,), (c, *cells)]))
        if not cells:
            ops = [(AsMap(), self._map_axes(n, (), (), (c,)))]
        elif len(axes) == 4:
            ops += self._map_ops(n, c, cells[0], cells[1], axes)
        return next((op for op, wanted in ops if axes == join_pieces(wanted)), None)

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
        if max(sum(map(len, axes)), len(axes), len(pieces)) > MOST_AXES:
            return None
        # The number of channels is known at any size of the input.
        becoming = axes[0 if of_map else -1] if axes else ()
        sized = {piece.axis for piece in becoming if isinstance(piece.size, int)}
        sized -= {self._channels(view.value).axis}
        return Rearrange(_pattern([piece.axis for piece in pieces], axes, sized), of_map)

    def _axes_behind_batch(self, view: View) -> Sequence[tuple[Piece, ...]] | None:
        """Return the axes without the batch; what stands beside it comes first, as an axis of its own. None
        if another axis holds the batch, or one repeats something.
        """
        first, *axes = ((), *(view.axes or ())) if self.lacks_batch else view.axes or ((),)
        beside_batch = first[1:]
        behind = [beside_batch, *axes] if beside_batch else axes
        others = any(piece.axis in ("N", REPEATED) for axis in behind for piece in axis)
        (batch,) = join_pieces([self._pieces(view.value)[:1]])
        return None if others or first[:1] != batch else behind

    def _map_ops(
        self, n: Piece, c: Piece, h: Piece, w: Piece, axes: Axes
    ) -> list[tuple[Op, Iterable[tuple[Piece, ...]]]]:
        """Return ops from a map to a map, each with the axes that it gives: an upsampling, a channel shuffle,
        and moves of blocks of cells from or to the channels, with the factors that the axes suggest. The
        caller takes the op whose axes are the tensor's.

        Args:
            n: the whole batch as a piece, as `c`, `h` and `w` are the channels, the rows and the columns.
            axes: the tensor's.
        """
        rows, columns, channels = axes[1:] if self.builder.order == "HWC" else (*axes[2:], axes[1])
        times_down, times_across = (_size_or_one(axis[-1].size) if axis else 1 for axis in (rows, columns))
        ops: list[tuple[Op, Iterable[tuple[Piece, ...]]]] = [
            (
                Upsample(times_down, times_across),
                self._map_axes(
                    n, (h, Piece(REPEATED, times_down, 0)), (w, Piece(REPEATED, times_across, 0)), (c,)
                ),
            )
        ]
        if len(channels) == 2:
            groups = _size_or_one(channels[1].size)
            inner = c.size // groups
            ops.append(
                (
                    ChannelShuffle(groups),
                    self._map_axes(n, (h,), (w,), (Piece("C", inner), Piece("C", groups, inner))),
                )
            )
        # cells of a block that are taken from the channels are the innermost piece of the rows
        block = times_down
        if (rest := ratio(c.size, block**2)) is not None:
            cell = (h, Piece("C", block, block * rest)), (w, Piece("C", block, rest))
            # the cells of a block come first among the channels; below, behind them
            ops.append((DepthToSpace(block, "DCR"), self._map_axes(n, *cell, (Piece("C", rest),))))
            cell = (h, Piece("C", block, block)), (w, Piece("C", block))
            ops.append((DepthToSpace(block, "CRD"), self._map_axes(n, *cell, (Piece("C", rest, block**2),))))
        # the other way, cells of a block are put into the channels: a piece of these is of the rows
        block = next((_size_or_one(piece.size) for piece in channels if piece.axis == h.axis), 1)
        fewer, narrower = (quotient(cell.size, block) for cell in (h, w))
        if block > 1 and fewer is not None and narrower is not None:
            blocks = ((Piece("H", fewer, block),), (Piece("W", narrower, block),))
            within = (Piece("H", block), Piece("W", block))
            ops.append((SpaceToDepth(block, "DCR"), self._map_axes(n, *blocks, (*within, c))))
            ops.append((SpaceToDepth(block, "CRD"), self._map_axes(n, *blocks, (c, *within))))
        return ops

    def _map_axes(
        self, n: Piece, h: tuple[Piece, ...], w: tuple[Piece, ...], c: tuple[Piece, ...]
    ) -> list[tuple[Piece, ...]]:
        """Return the axes of a map in the file's own order."""
        return [(n,), h, w, c] if self.builder.order == "HWC" else [(n,), c, h, w]

    def _pieces(self, value: Value) -> list[Piece]:
        """Return the whole axes of a value as pieces: batch, channels, and the rows and columns of a map, or
        the axes of an array.
        """
        batch: Dim = self.batch or 1
        if self.batch is None:
            batch = BATCH
        elif self.batch == 1:
            batch = ONLY
        return [
            Piece("N", batch),
            *(
                Piece(axis, self._size(value, axis) if size is None else size)
                for axis, size in _axes_of(value)
            ),
        ]

    def _channels(self, value: Value) -> Piece:
        """Return the channels of a value as one piece; an array has them last."""
        _, *axes = self._pieces(value)
        return axes[-1 if value.is_array else 0] if axes else Piece("a", 1)  # a number of each image has none

    def _size(self, value: Value, axis: str) -> Dim:
        """Return the size of an open axis: what its op computes, or an unknown of its own. It is decided
        once.
        """
        if (value.node, axis) not in self._open:
            for each, size in {
                axis: unknown(f"{axis} of {value.node}"),
                **self._computed_sizes(value),
            }.items():
                self._open.setdefault((value.node, each), size)
        return self._open[value.node, axis]

    def _computed_sizes(self, value: Value) -> dict[str, Dim]:
        """Compute the sizes of a value's open axes by its op's shape rule, and return those that are
        decided.
        """
        node = self.builder.nodes.get(value.node)
        if node is None or isinstance(node.op, Foreign | Resize):
            return {}
        values = [self.builder.value(each) for each in node.inputs]
        sizes = [self._sizes(each) for each in values if each.shape is not None]
        if len(sizes) < len(values):
            return {}
        opened = {axis: index for index, (axis, size) in enumerate(_axes_of(value)) if size is None}
        try:
            shape = _output_shape(node.op, sizes)
        except GraphError:  # of values that a file joins, the sizes are the same
            if not isinstance(node.op, Merge | ConcatChannels):
                return {}
            return {
                axis: each[index]
                for axis, index in opened.items()
                for each in reversed(sizes)
                if isinstance(each[index], Open)
            }
        return {axis: shape[index] for axis, index in opened.items()}

    def _sizes(self, value: Value) -> Sequence[Dim]:
        """Return the sizes of a value's axes in the type of its shape."""
        sizes = (cast(Any, piece.size) for piece in self._pieces(value)[1:])
        return cast(Sequence[Dim], cast(Any, type(value.shape))(sizes))


def _axes_of(value: Value) -> Iterable[tuple[str, int | None]]:
    """Pair the letters of a value's axes with their sizes."""
    return zip(_LETTERS if value.is_array else "CHW", value.shape or (), strict=False)


def _output_shape(op: Op, sizes: Sequence[Sequence[Dim]]) -> Sequence[Dim]:
    """Return the shape of what an op makes of values of these sizes.

    Whether a window fits, and anything is left of a crop, is not asked: no graph takes an image for which it
    is not so. That is, whole strides are added to a map before, and taken off again.

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


def _size_or_one(size: Dim) -> int:
    """Return a size as a number for an op; 1 if it is open."""
    return 1 if isinstance(size, Open) else size


def _pattern(letters: Sequence[str], axes: Sequence[Sequence[Piece]], sized: Collection[str]) -> str:
    """Write the pattern of Rearrange that splits the axes `letters` into pieces, and makes `axes` of
    these.

    Args:
        sized: the axes of which each piece says its size; of others, all but the first say it.
    """
    pieces = sorted((piece for axis in axes for piece in axis), key=lambda piece: -piece.stride)
    words = dict[Piece, str]()
    before = list[list[str]]()
    for letter in letters:
        own = [piece for piece in pieces if piece.axis == letter]
        for index, piece in enumerate(own):
            words[piece] = f"{letter.lower()}{index}" if own[1:] else letter.lower()
        unsized = 0 if letter in sized else 1
        sizes = [f"={piece.size}" if index >= unsized else "" for index, piece in enumerate(own)]
        before.append([words[piece] + size for piece, size in zip(own, sizes, strict=True)])
    after = [[words[piece] for piece in axis] for axis in axes]
    return " -> ".join(" ".join(map(_axis_text, side)) for side in (before, after)).strip()


def _axis_text(axis: Sequence[str]) -> str:
    """Write an axis of a pattern of Rearrange, in parentheses if it has several pieces or states a size."""
    return axis[0] if len(axis) == 1 and "=" not in axis[0] else f"({' '.join(axis)})"
