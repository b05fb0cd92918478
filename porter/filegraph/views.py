"""How a file's tensors hold a graph's values: the axes of each (porter.filegraph.axes), and the ops that give
a value as a tensor holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, cast

from porter.base.errors import GraphError
from porter.filegraph.axes import Axes, Piece, View, join_pieces
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

    def of(self, value: Value) -> View:
        """The value in the file's own layout: N×H×W×C or N×C×H×W for a map, N×C for features; an array has
        its own.
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
        """Whether the file's tensors have no batch."""
        return self.batch == 0

    def as_rank(self, value: Value, rank: int) -> View:
        """An array as a tensor of so many axes, of which the first is the batch and those of the array's that
        are too many.
        """
        if value.shape is None:
            return View(value, None)
        n, *axes = self._pieces(value)
        lead = len(axes) - rank + 1
        return View(value, join_pieces([(n, *axes[:lead]), *((piece,) for piece in axes[lead:])]))

    def as_rank_of(self, view: View, value: Value) -> View:
        """An array of the same axes as another one, as its tensor holds it."""
        return self.as_rank(value, view.rank)

    def with_batch_inside(self, value: Value, at: int, before: bool, behind: bool) -> View:
        """An array as a tensor whose axis `at` is the batch, with an axis of the array before and behind it
        in that axis.
        """
        n, *axes = self._pieces(value)
        first, last = at + before, at + before + behind
        return View(
            value,
            join_pieces(
                [
                    *((piece,) for piece in axes[:at]),
                    (*axes[at:first], n, *axes[first:last]),
                    *((piece,) for piece in axes[last:]),
                ]
            ),
        )

    def has_more_than_batch(self, axis: tuple[Piece, ...]) -> bool:
        """Whether more than the batch is in a first axis."""
        return self.lacks_batch or any(piece.axis != "N" for piece in axis)

    def layout(self, rank: int = 4) -> Names:
        """The axes of the file's own layout of a map, which has rank 4, or of features."""
        channels, *cells = AXES[: rank - 1]
        return ("batch", *cells, channels) if self.builder.order == "HWC" else ("batch", channels, *cells)

    @property
    def channels_place(self) -> int:
        """Where the file's own layout has the channels, of maps and of features."""
        return -1 if self.builder.order == "HWC" else 1

    def axis_names(self, view: View) -> Names | None:
        """What each axis of the tensor is; None where it is more than a transposed map or features. A value
        of unknown shape is a map.
        """
        if view.axes is None:
            return self.layout()
        if view.value.is_array or self.lacks_batch:
            return None
        orders = permutations(self.layout(len(view.axes))) if len(view.axes) in (2, 4) else ()
        return next((order for order in orders if self._is_in_order(view, order)), None)

    def in_axis_order(self, value: Value, names: Names) -> View:
        """The value with its axes in this order.

        Raises:
            Unsupported: it has other axes.
        """
        plain = self.of(value).axes
        if plain is None:
            return View(value, None)
        layout = self.layout(len(plain))
        if value.is_array or {*layout} != {*names}:
            raise Unsupported("of other axes")
        return View(value, tuple(plain[layout.index(name)] for name in names))

    def _is_in_order(self, view: View, names: Names) -> bool:
        """Whether a tensor has the axes of its value in this order."""
        return none_if_unsupported(lambda: self.in_axis_order(view.value, names)) == view

    def common_axis_names(self, views: Collection[View]) -> Names | None:
        """What each axis of all these tensors is; None where they have others, or one of them is more than a
        transposed value.
        """
        orders = filter(None, map(self.axis_names, views))
        return next(
            (names for names in orders if all(self._is_in_order(view, names) for view in views)), None
        )

    def has_channels(self, view: View, axis: int) -> bool:
        """Whether an axis has exactly the channels of the value, so that what a file does there is done to
        each cell.
        """
        if view.axes is None or view.value.shape is None:
            layout = self.layout()
            return layout.index("channels") in (axis, axis + len(layout))
        return view.axes[axis : axis + 1 or None] == join_pieces([[self._channels(view.value)]])

    def along_channels(self, view: View, shape: Sequence[Dim]) -> bool:
        """Whether numbers of this shape, which are repeated along the other axes of the tensor, are one for
        each channel.
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
        """Whether the first axis is the batch, so that a norm over others is one of each image."""
        return view.axes is not None and view.axes[:1] == join_pieces([self._pieces(view.value)[:1]])

    def groups_at(self, view: View, position: int) -> int | None:
        """The groups of channels that an axis counts, which may have one channel each; None where it is
        something else.
        """
        axis = Items(view.axes or ())[position]
        channels = view.value.channels or 0
        count = product(piece.size for piece in axis)
        if isinstance(count, Open) or (inner := ratio(channels, count)) is None:
            return None
        return count if (axis,) == join_pieces([[Piece("C", count, inner)]]) else None

    def normed_groups(self, view: View, positions: Iterable[int]) -> int | None:
        """The groups of a norm over these axes, which are all but the batch and that of the groups; None if
        it has none.
        """
        if not self.has_batch_first(view):
            return None
        left = {*range(view.rank)} - view.positions(positions) - {0}
        return self.groups_at(view, left.pop()) if len(left) == 1 else None

    def with_axes_of(self, view: View, value: Value) -> View:
        """What an op gives that keeps the cells of `view` and is done to each, in the same axes; its channels
        may be others.
        """
        if view.axes is None or value.shape is None:
            return self.of(value)
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
        """A value of the same axes as one `before`: as a map, if that held one in the file's own layout."""
        plain = before.value.is_map and self.axis_names(before) == self.layout()
        return self.of(self.in_file_layout(name, view)) if plain else view

    def in_file_layout(self, name: str, view: View, tap: str | None = None) -> Value:
        """The value in the file's own layout, by the op that the moves are together: a tensor of four axes is
        a map, one of two is features, and another one is an array; a foreign one where porter has none.
        """
        plain = self.of(view.value)
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
        """A tensor that has each row, column or channel of a map several times, or all channels, over the map
        that has them so; another one as it is.
        """
        axes = view.axes or ()
        repeated = self._repeated_axes(view)
        times = {piece.axis: _size_or_one(axes[at][index].size) for (at, index), piece in repeated.items()}
        copies = times.pop("C", 1)
        if not repeated or copies > _MOST_COPIES:
            return view
        whole = view.value
        if copies > 1:
            whole = self.builder.concat(f"{name}:channels", *[whole] * copies)
        if times:
            whole = self.builder.add(name, Upsample(times.get("H", 1), times.get("W", 1)), whole)
        wide = dict(zip("HW", self._pieces(whole)[2:], strict=True))
        channels = self._channels(view.value)
        behind = Piece("C", copies, view.value.channels or 1)
        return View(
            whole,
            join_pieces(
                [
                    behind if (at, index) in repeated else wide.get(piece.axis, piece)
                    for index, piece in enumerate(axis)
                    if repeated.get((at, index), channels) == channels
                ]
                for at, axis in enumerate(axes)
            ),
        )

    def _repeated_axes(self, view: View) -> dict[tuple[int, int], Piece]:
        """The rows, columns or channels that a tensor has several times, by the axis and the index of the
        piece that repeats them; none where it repeats something else too.
        """
        if not view.value.is_map:
            return {}
        axes = view.known_axes
        _, channels, *cells = self._pieces(view.value)
        repeats = [
            (at, index)
            for at, axis in enumerate(axes)
            for index, piece in enumerate(axis)
            if piece.axis == "R"
        ]
        alone = [at for at, index in repeats if len(axes[at]) == 1 and channels.size == 1]
        repeated = {
            (at, index): axes[at][index - 1] if index else channels
            for at, index in repeats
            if index or axes[at][1:2] == (channels,) or [at] == alone
        }
        return (
            repeated if len(repeated) == len(repeats) and {*repeated.values()} <= {channels, *cells} else {}
        )

    def layout_op(self, view: View) -> Op | None:
        """The op that gives the value as a tensor holds it, Identity for the file's own layout; None if that
        is none or a `rearranged`.
        """
        value, axes = view.value, view.axes
        if axes is None or axes == self.of(value).axes:
            return Identity()
        if value.is_array or self.lacks_batch:
            return None
        n, c, *cells = self._pieces(value)
        ops: list[tuple[Op, Iterable[tuple[Piece, ...]]]] = []
        size = [cell.size for cell in cells if isinstance(cell.size, int)]
        if len(size) == 2:
            ops = [
                (Flatten(size[0], size[1], "HWC"), [(n,), (*cells, c)]),
                (Flatten(size[0], size[1], "CHW"), [(n,), (c, *cells)]),
            ]
            ops = [(Flatten(), [(n,), (c,)]), *ops] if size == [1, 1] else ops
        if not cells:
            ops = [(AsMap(), self._map_axes(n, (), (), (c,)))]
        elif len(axes) == 4:
            ops += self._map_ops(n, c, cells[0], cells[1], axes)
        return next((op for op, wanted in ops if axes == join_pieces(wanted)), None)

    def rearrange_op(self, view: View, of_map: bool = False) -> Rearrange | None:
        """The op that gives the tensor's axes as an array or features, or with `of_map` as a map in the
        file's own layout; None for repetitions, and where the batch is not the first axis. What stands beside
        the batch in that axis becomes one of its own.
        """
        whole = self._pieces(view.value)[1:]
        axes = self._axes_behind_batch(view)
        if not whole or axes is None or (of_map and len(axes) != 3):
            return None
        if of_map and self.builder.order == "HWC":
            axes = [axes[2], axes[0], axes[1]]
        if max(sum(map(len, axes)), len(axes), len(whole)) > MOST_AXES:
            return None
        # The number of channels is known at any size of the input.
        becoming = axes[0 if of_map else -1] if axes else ()
        sized = {piece.axis for piece in becoming if isinstance(piece.size, int)}
        sized -= {self._channels(view.value).axis}
        return Rearrange(_pattern([piece.axis for piece in whole], axes, sized), of_map)

    def _axes_behind_batch(self, view: View) -> Sequence[tuple[Piece, ...]] | None:
        """The axes but the batch, of which what stands beside it is the first; None where another axis is the
        batch, or repeats something.
        """
        first, *axes = ((), *(view.axes or ())) if self.lacks_batch else view.axes or ((),)
        behind = [first[1:], *axes] if first[1:] else axes
        others = any(piece.axis in "NR" for axis in behind for piece in axis)
        return None if others or first[:1] != join_pieces([self._pieces(view.value)[:1]])[0] else behind

    def _map_ops(
        self, n: Piece, c: Piece, h: Piece, w: Piece, axes: Axes
    ) -> list[tuple[Op, Iterable[tuple[Piece, ...]]]]:
        """Ops from a map to a map, with the numbers that the axes suggest."""
        rows, across, channels = axes[1:] if self.builder.order == "HWC" else (*axes[2:], axes[1])
        block, columns = (_size_or_one(axis[-1].size) if axis else 1 for axis in (rows, across))
        ops: list[tuple[Op, Iterable[tuple[Piece, ...]]]] = [
            (
                Upsample(block, columns),
                self._map_axes(n, (h, Piece("R", block, 0)), (w, Piece("R", columns, 0)), (c,)),
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
        if (rest := ratio(c.size, block**2)) is not None:
            cell = (h, Piece("C", block, block * rest)), (w, Piece("C", block, rest))
            ops.append((DepthToSpace(block, "DCR"), self._map_axes(n, *cell, (Piece("C", rest),))))
            cell = (h, Piece("C", block, block)), (w, Piece("C", block))
            ops.append((DepthToSpace(block, "CRD"), self._map_axes(n, *cell, (Piece("C", rest, block**2),))))
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
        return [(n,), h, w, c] if self.builder.order == "HWC" else [(n,), c, h, w]

    def _pieces(self, value: Value) -> list[Piece]:
        """Batch, channels, and the rows and columns of a map, or the axes of an array, each whole."""
        batch = BATCH if self.batch is None else ONLY if self.batch == 1 else self.batch or 1
        return [
            Piece("N", batch),
            *(
                Piece(axis, self._size(value, axis) if size is None else size)
                for axis, size in _axes_of(value)
            ),
        ]

    def _channels(self, value: Value) -> Piece:
        _, *axes = self._pieces(value)
        return axes[-1 if value.is_array else 0] if axes else Piece("a", 1)  # a number of each image has none

    def _size(self, value: Value, axis: str) -> Dim:
        if (value.node, axis) not in self._open:
            for each, size in {
                axis: unknown(f"{axis} of {value.node}"),
                **self._computed_sizes(value),
            }.items():
                self._open.setdefault((value.node, each), size)
        return self._open[value.node, axis]

    def _computed_sizes(self, value: Value) -> dict[str, Dim]:
        """The sizes of a value's open axes as its op makes them of those of the values that it takes; without
        those that are undecided.
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
        """The sizes of a value's axes as a shape of its kind."""
        sizes = (cast(Any, piece.size) for piece in self._pieces(value)[1:])
        return cast(Sequence[Dim], cast(Any, type(value.shape))(sizes))


def _axes_of(value: Value) -> Iterable[tuple[str, int | None]]:
    """The letters of a value's axes, and their sizes."""
    return zip(_LETTERS if value.is_array else "CHW", value.shape or (), strict=False)


def _output_shape(op: Op, sizes: Sequence[Sequence[Dim]]) -> Sequence[Dim]:
    """The shape of what an op makes of values of these sizes.

    Whether a window fits, and anything is left of a crop, is not asked: no graph takes an image for which it
    is not so. That is, whole strides are added to a map before, and taken off again.

    Raises:
        GraphError: it depends on the input's size in a way that has no sum.
    """
    if not (op.site or isinstance(op, CropMap)):
        return cast(Sequence[Dim], op.shape(*cast(list[Shape], sizes)))
    channels, *cells = sizes[0]
    strides = op.site.window.stride if op.site else (1, 1)
    more = [isinstance(size, Open) * 2 * LARGEST for size in cells]
    large = [size + count * stride for size, count, stride in zip(cells, more, strides, strict=True)]
    filters, *extents = cast(Sequence[Dim], op.shape(cast(Shape, (channels, *large))))
    return filters, *(size - count for size, count in zip(extents, more, strict=True))


def _size_or_one(size: Dim) -> int:
    """A size that may be a number of an op; one if it is open."""
    return 1 if isinstance(size, Open) else size


def _pattern(letters: Sequence[str], axes: Sequence[Sequence[Piece]], sized: Collection[str]) -> str:
    """The pattern of Rearrange that takes these axes apart, and makes others of their pieces.

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
    """An axis in a pattern of Rearrange."""
    return axis[0] if len(axis) == 1 and "=" not in axis[0] else f"({' '.join(axis)})"
