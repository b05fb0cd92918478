"""How a file's tensors hold a graph's values: reshapes and transposes are followed, axis by axis, until one
op says them.

A map as features, channels first in between, channels shuffled or laid out as cells, cells listed for a
matrix product: formats write each of them as several ops that only move numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, permutations
from typing import Any, Literal, NamedTuple, TypeVar, cast

from porter.base.errors import GraphError
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dims import (
    BATCH,
    ONLY,
    Dim,
    Open,
    Undecided,
    divides,
    exactly,
    product,
    quotient,
    ratio,
    text,
    unknown,
)
from porter.filegraph.file_graph import Foreign, Unsupported, tried
from porter.filegraph.places import Items, place_of
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

T = TypeVar("T")


class Piece(NamedTuple):
    """A part of an axis: `size` steps of `stride` along the batch N, rows H, columns W, channels C, or along
    an array.s axis, which has a small letter; R is a repetition.
    """

    axis: str
    size: Dim
    stride: int = 1


OF_UNKNOWN_SHAPE = "of a value of unknown shape"
_LETTERS = "abcdefgh"
"""The axes of an array."""
_MOST_COPIES = 64
"""Of all channels beside each other: each is an input of a node, however short the file is."""
Axes = tuple[tuple[Piece, ...], ...]
Names = tuple[Literal["batch"] | Axis, ...]


@dataclass(frozen=True)
class View:
    """A value as one of the file's tensors holds it.

    Attributes:
        axes: of the tensor, batch included, each as its pieces, outermost first; None for a value of unknown
            shape.
    """

    value: Value
    axes: Axes | None

    @property
    def sizes(self) -> tuple[Dim, ...] | None:
        return None if self.axes is None else self.known_sizes

    @property
    def known_axes(self) -> Axes:
        """Raises Unsupported for a value of unknown shape."""
        if self.axes is None:
            raise Unsupported(OF_UNKNOWN_SHAPE)
        return self.axes

    @property
    def known_sizes(self) -> Items[Dim]:
        """Raises Unsupported for a value of unknown shape."""
        return Items(product(piece.size for piece in axis if piece.size != ONLY) for axis in self.known_axes)

    def size(self, place: int) -> Dim:
        """Of an axis.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return (self.sizes or Items())[place]

    def places(self, places: Iterable[int]) -> set[int]:
        """Places of axes, counted from the first one.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return {place_of(place, len(self.axes or ())) for place in places}

    def axis_at(self, place: int) -> int:
        """The axis of the array at a place of its tensor, which is none of the batch."""
        axes = self.axes or ()
        return place_of(place, len(axes)) - 1 + (len(self.value.shape or ()) - len(axes) + 1)

    def has_batch(self, place: int) -> bool:
        return any(piece.axis == "N" for piece in Items(self.axes or ())[place])

    @property
    def batch_first(self) -> list[int]:
        """The places of the axes, that of the batch first."""
        return sorted(range(len(self.axes or ())), key=lambda place: not self.has_batch(place))

    def covers(self, other: View) -> bool:
        """Whether the other tensor has the same axes, of which some may have one cell in it."""
        if self.axes is None or other.axes is None or len(self.axes) != len(other.axes):
            return False
        return all(axis in ((), own) for own, axis in zip(self.axes, other.axes, strict=True))

    def transposed(self, order: Sequence[int]) -> View:
        """The axes in another order.

        Raises:
            Unsupported: the value's shape is unknown, or the order has not each axis once.
        """
        axes = self.known_axes
        places = [place_of(axis, len(axes)) for axis in order]
        if sorted(places) != [*range(len(axes))]:
            raise Unsupported(f"of {len(axes)} axes in the order {[*order]}")
        return replace(self, axes=tuple(axes[place] for place in places))

    def restored(self, order: Sequence[int]) -> View:
        """The axes as they were before they were `transposed` into this order."""
        return self.transposed([order.index(place) for place in range(len(order))])

    def without(self, places: Iterable[int]) -> View:
        """The tensor without axes, of one cell, at these places.

        Raises:
            Unsupported: they have more.
        """
        if self.axes is None:
            return self
        gone = self.places(places)
        if any(map(self.has_batch, gone)):
            raise Unsupported("of the batch of one image: name the axes in the model, or export several")
        if any(self.axes[place] for place in gone):
            raise Unsupported("of axes of more than one cell")
        return replace(self, axes=tuple(axis for place, axis in enumerate(self.axes) if place not in gone))

    def with_axes(self, places: Collection[int]) -> View:
        """The tensor with axes of one cell, which have these places in it."""
        if self.axes is None:
            return self
        added, left = {place_of(place, len(self.axes) + len(places)) for place in places}, iter(self.axes)
        count = len(self.axes) + len(added)
        return replace(self, axes=tuple(() if place in added else next(left) for place in range(count)))

    def repeated(self, times: Sequence[int]) -> View:
        """Each axis so many times, one whole copy after the other.

        Raises:
            Unsupported: the value's shape is unknown, or an axis is left out.
        """
        axes = self.known_axes
        if len(times) != len(axes) or min(times, default=1) < 1:
            raise Unsupported(f"of {len(axes)} axes {[*times]} times")
        return replace(
            self, axes=joined((Piece("R", count, 0), *axis) for count, axis in zip(times, axes, strict=True))
        )

    def reshaped(self, sizes: Sequence[Dim]) -> View:
        """Other axes over the same numbers; -1 is what is left.

        Raises:
            Unsupported: the value's shape is unknown, or an axis cannot be split so.
        """
        total = product(self.known_sizes)
        wanted = next(
            (found for each in (list(sizes), _exact(sizes)) if (found := _whole(each, total))), list(sizes)
        )
        batch = self.known_sizes[0]
        if wanted and wanted[0] == 1 and total == batch * product(wanted):
            wanted[0] = batch  # a graph for one image, whose batch is free in the port
        pieces = [piece for axis in self.known_axes for piece in axis]
        only = next((place for place, piece in enumerate(pieces) if piece.size == ONLY), None)
        if only is not None and wanted:
            wanted[_place_of_only(wanted, product(piece.size for piece in pieces[:only]))] *= ONLY
        axes = _split(pieces, wanted)
        if axes is None:
            raise Unsupported(f"from {text(self.known_sizes[1:])} to {text(sizes[1:])}")
        return replace(self, axes=axes)


@dataclass(frozen=True)
class Aligned:
    """A value whose axes are those of a tensor: what an op does along one of them, the file does along the
    tensor's.

    Attributes:
        axes: the value's, by the places of the tensor's; None for the batch.
        held: how the tensor holds what such ops make of the value.
    """

    value: Value
    axes: Items[int | None]
    held: Callable[[Value], View]

    def by_axis(self, stated: Mapping[int, T]) -> dict[int, T]:
        """What a file states for places of its tensor, by the value's axes.

        Raises:
            ValueError: the tensor lacks one of them, or one is stated twice.
            Unsupported: the batch is among them.
        """
        axes = [self.axes[place] for place in stated]
        if len({*axes}) < len(axes):
            raise ValueError("an axis that is stated twice")
        found = {axis: each for axis, each in zip(axes, stated.values(), strict=True) if axis is not None}
        if len(found) < len(axes):
            raise Unsupported("of the batch")
        return found


def unrepeated(views: Sequence[View]) -> list[View]:
    """Tensors of as many axes; an axis that is only repeated in one of them has one cell, where another has
    its own numbers.
    """
    own = [
        {at for at, axis in enumerate(view.axes or ()) if any(piece.axis != "R" for piece in axis)}
        for view in views
    ]
    filled = set().union(*own)

    def once(view: View, held: Collection[int]) -> View:
        axes = enumerate(view.axes or ())
        return replace(
            view, axes=view.axes and tuple(() if at in filled - {*held} else axis for at, axis in axes)
        )

    return [once(view, held) for view, held in zip(views, own, strict=True)]


def _exact(sizes: Sequence[Dim]) -> list[Dim]:
    """Sizes of which no part is rounded, since a file's reshape keeps all numbers; as they are where that is
    undecided.
    """
    try:
        return [exactly(size) for size in sizes]
    except Undecided:
        return [*sizes]


def _whole(sizes: Sequence[Dim], total: Dim) -> list[Dim] | None:
    """The sizes with -1 as what is left of the total; None where they do not have it."""
    if -1 not in sizes:
        return [*sizes] if product(sizes) == total else None
    left = quotient(total, -product(sizes)) if sizes.count(-1) == 1 else None
    return None if left is None else [left if size == -1 else size for size in sizes]


def _place_of_only(sizes: Sequence[Dim], before: Dim) -> int:
    """The axis that gets an only image, which follows so many cells. It has one cell, so that it may stand in
    any near them: in one of its own, otherwise at the head of the next one, but not of the channels, which
    are the last.
    """
    counts: list[Dim] = [*accumulate(sizes, operator.mul, initial=1)]
    ends = (
        place
        for place, count in enumerate(counts[1:])
        if counts[place] == before or not divides(count, before)
    )
    place = next(ends, len(sizes) - 1)
    return (
        place - 1 if 0 < place == len(sizes) - 1 and counts[place] == before and sizes[place] != 1 else place
    )


def _split(pieces: Iterable[Piece], sizes: Iterable[Dim]) -> Axes | None:
    """Axes of these sizes over pieces; None where a piece cannot be split so."""
    left = [*pieces][::-1]
    found = []
    for size in sizes:
        taken, missing = [], size
        while missing != 1 and left:
            piece = left.pop()
            if isinstance(missing, int) and missing < 1:
                return None
            if (
                isinstance(missing, int)
                and isinstance(piece.size, int)
                and missing % piece.size
                and not piece.size % missing
            ):
                inner = piece.size // missing
                left.append(Piece(piece.axis, inner, piece.stride))
                piece = Piece(piece.axis, missing, piece.stride * inner)
            elif isinstance(missing, Open) and (inner := ratio(piece.size, missing) or 1) > 1:
                left.append(Piece(piece.axis, inner, piece.stride))
                piece = Piece(piece.axis, missing, piece.stride * inner)
            if not divides(piece.size, missing):
                return None
            taken.append(piece)
            missing = missing // piece.size
        if missing != 1:
            return None
        found.append(tuple(taken))
    return None if left else joined(found)


def joined(axes: Iterable[Iterable[Piece]]) -> Axes:
    """Without pieces of one step, and with pieces that follow each other in the value as one."""
    found = []
    for axis in axes:
        pieces: list[Piece] = []
        for piece in axis:
            last = pieces[-1] if pieces else None
            if last and last.axis == piece.axis and last.stride == piece.stride * piece.size:
                pieces[-1] = Piece(piece.axis, last.size * piece.size, piece.stride)
            elif piece.size != 1:
                pieces.append(piece)
        found.append(tuple(pieces))
    return tuple(found)


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
        return View(value, joined((piece,) for piece in order[self.whole :]))

    @property
    def whole(self) -> bool:
        """Whether the file's tensors have no batch."""
        return self.batch == 0

    def led(self, value: Value, rank: int) -> View:
        """An array as a tensor of so many axes, of which the first is the batch and those of the array's that
        are too many.
        """
        if value.shape is None:
            return View(value, None)
        n, *axes = self._pieces(value)
        lead = len(axes) - rank + 1
        return View(value, joined([(n, *axes[:lead]), *((piece,) for piece in axes[lead:])]))

    def led_like(self, view: View, value: Value) -> View:
        """An array of the same axes as another one, as its tensor holds it."""
        return self.led(value, len(view.axes or ()))

    def around(self, value: Value, at: int, before: bool, behind: bool) -> View:
        """An array as a tensor whose axis `at` is the batch, with an axis of the array before and behind it
        in that axis.
        """
        n, *axes = self._pieces(value)
        first, last = at + before, at + before + behind
        return View(
            value,
            joined(
                [
                    *((piece,) for piece in axes[:at]),
                    (*axes[at:first], n, *axes[first:last]),
                    *((piece,) for piece in axes[last:]),
                ]
            ),
        )

    def has_more(self, axis: tuple[Piece, ...]) -> bool:
        """Whether more than the batch is in a first axis."""
        return self.whole or any(piece.axis != "N" for piece in axis)

    def layout(self, rank: int = 4) -> Names:
        """The axes of the file's own layout of a map, which has rank 4, or of features."""
        channels, *cells = AXES[: rank - 1]
        return ("batch", *cells, channels) if self.builder.order == "HWC" else ("batch", channels, *cells)

    @property
    def channels_place(self) -> int:
        """Where the file's own layout has the channels, of maps and of features."""
        return -1 if self.builder.order == "HWC" else 1

    def names(self, view: View) -> Names | None:
        """What each axis of the tensor is; None where it is more than a transposed map or features. A value
        of unknown shape is a map.
        """
        if view.axes is None:
            return self.layout()
        if view.value.is_array or self.whole:
            return None
        orders = permutations(self.layout(len(view.axes))) if len(view.axes) in (2, 4) else ()
        return next((order for order in orders if self._is_laid(view, order)), None)

    def laid(self, value: Value, names: Names) -> View:
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

    def _is_laid(self, view: View, names: Names) -> bool:
        """Whether a tensor has the axes of its value in this order."""
        return tried(lambda: self.laid(view.value, names)) == view

    def alike(self, views: Collection[View]) -> Names | None:
        """What each axis of all these tensors is; None where they have others, or one of them is more than a
        transposed value.
        """
        orders = filter(None, map(self.names, views))
        return next((names for names in orders if all(self._is_laid(view, names) for view in views)), None)

    def has_channels(self, view: View, place: int) -> bool:
        """Whether an axis has exactly the channels of the value, so that what a file does there is done to
        each cell.
        """
        if view.axes is None or view.value.shape is None:
            layout = self.layout()
            return layout.index("channels") in (place, place + len(layout))
        return view.axes[place : place + 1 or None] == joined([[self._channels(view.value)]])

    def along_channels(self, view: View, shape: Sequence[Dim]) -> bool:
        """Whether numbers of this shape, which are repeated along the other axes of the tensor, are one for
        each channel.
        """
        channels = self._channels(view.value) if view.value.shape else None
        found = [
            tuple(piece for piece in axis if channels and piece.axis == channels.axis)
            for axis in view.axes or ()
        ]
        sizes = [product(piece.size for piece in axis) for axis in found]
        in_order = joined([[piece for axis in found for piece in axis]]) == joined(
            [[channels] if channels else []]
        )
        return in_order and [1] * (len(sizes) - len(shape)) + [*shape] == sizes

    def of_each_image(self, view: View) -> bool:
        """Whether the first axis is the batch, so that a norm over others is one of each image."""
        return view.axes is not None and view.axes[:1] == joined([self._pieces(view.value)[:1]])

    def groups(self, view: View, place: int) -> int | None:
        """The groups of channels that an axis counts, which may have one channel each; None where it is
        something else.
        """
        axis, channels = Items(view.axes or ())[place], view.value.channels or 0
        count = product(piece.size for piece in axis)
        if isinstance(count, Open) or (inner := ratio(channels, count)) is None:
            return None
        return count if (axis,) == joined([[Piece("C", count, inner)]]) else None

    def normed_groups(self, view: View, places: Iterable[int]) -> int | None:
        """The groups of a norm over these axes, which are all but the batch and that of the groups; None if
        it has none.
        """
        if not self.of_each_image(view):
            return None
        left = {*range(len(view.axes or ()))} - view.places(places) - {0}
        return self.groups(view, left.pop()) if len(left) == 1 else None

    def like(self, view: View, value: Value) -> View:
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
            joined([*view.axes[:-1], [self._channels(value)]]) if self.has_channels(view, -1) else view.axes,
        )

    def as_held(self, name: str, view: View, before: View) -> View:
        """A value of the same axes as one `before`: as a map, if that held one in the file's own layout."""
        plain = before.value.is_map and self.names(before) == self.layout()
        return self.of(self.settled(name, view)) if plain else view

    def settled(self, name: str, view: View, tap: str | None = None) -> Value:
        """The value in the file's own layout, by the op that the moves are together: a tensor of four axes is
        a map, one of two is features, and another one is an array; a foreign one where porter has none.
        """
        plain = self.of(view.value)
        if view.axes is None or (
            view.axes == plain.axes and not (view.value.is_array and len(view.axes) == 4)
        ):
            return view.value
        special = None if view.value.is_array else self.op(view)
        if special is None and (spread := self.spread(f"{name}:repeated", view)) != view:
            return self.settled(name, spread, tap)
        op: Op | Foreign | None = special or self.rearranged(
            view, of_map=len(view.axes) == 4 and not self.whole
        )
        if op is None:
            # What is foreign has no shape, so the sizes say what porter lacks.
            old, new = (text((each.sizes or ())[1:]) for each in (plain, view))
            op = Foreign(f"a reshape of {old or 'one number'} to {new or 'one axis'}")
        return self.builder.add(name, op, view.value, tap=tap)

    def spread(self, name: str, view: View) -> View:
        """A tensor that has each row, column or channel of a map several times, or all channels, over the map
        that has them so; another one as it is.
        """
        channels, *cells = self._pieces(view.value)[1:] or [Piece("C", 1)]
        axes = [*enumerate(view.axes or ())]
        alone = [place for place, axis in axes if [piece.axis for piece in axis] == ["R"]]
        of_one = alone if channels.size == 1 and len(alone) == 1 else []
        copied = {
            (place, at): axis[at - 1] if at else channels
            for place, axis in axes
            for at, piece in enumerate(axis)
            if piece.axis == "R" and (at or axis[1:2] == (channels,) or place in of_one)
        }
        count = sum(piece.axis == "R" for _, axis in axes for piece in axis)
        if (
            not view.value.is_map
            or not 0 < len(copied) == count
            or not {*copied.values()} <= {channels, *cells}
        ):
            return view
        times = {before.axis: _stated(axes[place][1][at].size) for (place, at), before in copied.items()}
        whole, copies = view.value, times.get("C", 1)
        if copies > _MOST_COPIES:
            return view
        if copies > 1:
            whole = self.builder.concat(f"{name}:channels", *[whole] * copies)
        if {*times} - {"C"}:
            whole = self.builder.add(name, Upsample(times.get("H", 1), times.get("W", 1)), whole)
        wide = dict(zip("HW", self._pieces(whole)[2:], strict=True))
        behind = Piece("C", copies, view.value.channels or 1)
        return View(
            whole,
            joined(
                [
                    behind if copied.get((place, at)) == channels else wide.get(piece.axis, piece)
                    for at, piece in enumerate(axis)
                    if copied.get((place, at), channels) == channels
                ]
                for place, axis in axes
            ),
        )

    def op(self, view: View) -> Op | None:
        """The op that gives the value as a tensor holds it, Identity for the file's own layout; None if that
        is none or a `rearranged`.
        """
        value, axes = view.value, view.axes
        if axes is None or axes == self.of(value).axes:
            return Identity()
        if value.is_array or self.whole:
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
            ops = [(AsMap(), self._map(n, (), (), (c,)))]
        elif len(axes) == 4:
            ops += self._moves(n, c, cells[0], cells[1], axes)
        return next((op for op, wanted in ops if axes == joined(wanted)), None)

    def rearranged(self, view: View, of_map: bool = False) -> Rearrange | None:
        """The op that gives the tensor's axes as an array or features, or with `of_map` as a map in the
        file's own layout; None for repetitions, and where the batch is not the first axis. What stands beside
        the batch in that axis becomes one of its own.
        """
        n, *whole = self._pieces(view.value)
        first, *axes = ((), *(view.axes or ())) if self.whole else view.axes or ((),)
        if (
            not whole
            or first[:1] != joined([[n]])[0]
            or any(piece.axis in "NR" for axis in (first[1:], *axes) for piece in axis)
        ):
            return None
        axes = [first[1:], *axes] if first[1:] else axes
        if of_map and len(axes) != 3:
            return None
        axes = [axes[2], axes[0], axes[1]] if of_map and self.builder.order == "HWC" else axes
        placed = sorted((piece for axis in axes for piece in axis), key=lambda piece: -piece.stride)
        if max(len(placed), len(axes), len(whole)) > MOST_AXES:
            return None
        split, names, channels = list[list[str]](), dict[Piece, str](), self._channels(view.value).axis
        becoming = axes[0 if of_map else -1] if axes else ()
        for letter in (each.axis for each in whole):
            parts = [piece for piece in placed if piece.axis == letter]
            names |= {
                piece: letter.lower() + (str(place) if len(parts) > 1 else "")
                for place, piece in enumerate(parts)
            }
            # The number of channels is known at any size of the input.
            sized = letter != channels and any(
                piece in becoming and isinstance(piece.size, int) for piece in parts
            )
            split.append(
                [
                    names[piece] + (f"={piece.size}" if place or sized else "")
                    for place, piece in enumerate(parts)
                ]
            )
        after = [[names[piece] for piece in axis] for axis in axes]
        return Rearrange(
            " -> ".join(" ".join(map(_written, side)) for side in (split, after)).strip(), of_map
        )

    def _moves(
        self, n: Piece, c: Piece, h: Piece, w: Piece, axes: Axes
    ) -> list[tuple[Op, Iterable[tuple[Piece, ...]]]]:
        """Ops from a map to a map, with the numbers that the axes suggest."""
        rows, across, channels = axes[1:] if self.builder.order == "HWC" else (*axes[2:], axes[1])
        block, columns = (_stated(axis[-1].size) if axis else 1 for axis in (rows, across))
        ops: list[tuple[Op, Iterable[tuple[Piece, ...]]]] = [
            (
                Upsample(block, columns),
                self._map(n, (h, Piece("R", block, 0)), (w, Piece("R", columns, 0)), (c,)),
            )
        ]
        if len(channels) == 2:
            groups = _stated(channels[1].size)
            inner = c.size // groups
            ops.append(
                (
                    ChannelShuffle(groups),
                    self._map(n, (h,), (w,), (Piece("C", inner), Piece("C", groups, inner))),
                )
            )
        if (rest := ratio(c.size, block**2)) is not None:
            cell = (h, Piece("C", block, block * rest)), (w, Piece("C", block, rest))
            ops.append((DepthToSpace(block, "DCR"), self._map(n, *cell, (Piece("C", rest),))))
            cell = (h, Piece("C", block, block)), (w, Piece("C", block))
            ops.append((DepthToSpace(block, "CRD"), self._map(n, *cell, (Piece("C", rest, block**2),))))
        block = next((_stated(piece.size) for piece in channels if piece.axis == h.axis), 1)
        fewer, narrower = (quotient(cell.size, block) for cell in (h, w))
        if block > 1 and fewer is not None and narrower is not None:
            blocks, within = (
                ((Piece("H", fewer, block),), (Piece("W", narrower, block),)),
                (Piece("H", block), Piece("W", block)),
            )
            ops.append((SpaceToDepth(block, "DCR"), self._map(n, *blocks, (*within, c))))
            ops.append((SpaceToDepth(block, "CRD"), self._map(n, *blocks, (c, *within))))
        return ops

    def _map(
        self, n: Piece, h: tuple[Piece, ...], w: tuple[Piece, ...], c: tuple[Piece, ...]
    ) -> list[tuple[Piece, ...]]:
        return [(n,), h, w, c] if self.builder.order == "HWC" else [(n,), c, h, w]

    def _pieces(self, value: Value) -> list[Piece]:
        """Batch, channels, and the rows and columns of a map, or the axes of an array, each whole."""
        batch = BATCH if self.batch is None else ONLY if self.batch == 1 else self.batch or 1
        sizes = zip(_LETTERS if value.is_array else "CHW", value.shape or (), strict=False)
        return [
            Piece("N", batch),
            *(Piece(axis, self._size(value, axis) if size is None else size) for axis, size in sizes),
        ]

    def _channels(self, value: Value) -> Piece:
        _, *axes = self._pieces(value)
        return axes[-1 if value.is_array else 0] if axes else Piece("a", 1)  # a number of each image has none

    def _size(self, value: Value, axis: str) -> Dim:
        if (value.node, axis) not in self._open:
            size = self._computed(value.node, axis)
            self._open[value.node, axis] = unknown(f"{axis} of {value.node}") if size is None else size
        return self._open[value.node, axis]

    def _computed(self, name: str, axis: str) -> Dim | None:
        """The size of an axis as its op makes it of those of the values that it takes; None where that is
        undecided.
        """
        node, place = self.builder.nodes.get(name), ("CHW" if axis.isupper() else _LETTERS).index(axis)
        if node is None or isinstance(node.op, Foreign | Resize):
            return None
        values = [self.builder.value(each) for each in node.inputs]
        sizes = [
            cast(Sequence[Dim], type(value.shape)(cast(Any, piece.size) for piece in self._pieces(value)[1:]))
            for value in values
            if value.shape is not None
        ]
        if len(sizes) < len(values):
            return None
        try:
            found = _shape(node.op, sizes)[place]
        except GraphError:  # of values that a file joins, the sizes are the same
            opened = (each[place] for each in sizes if isinstance(each[place], Open))
            return next(opened, None) if isinstance(node.op, Merge | ConcatChannels) else None
        return found


def _shape(op: Op, sizes: Sequence[Sequence[Dim]]) -> Sequence[Dim]:
    """The shape of what an op makes of values of these sizes.

    Whether a window fits, and anything is left of a crop, is not asked: no graph takes an image for which it
    is not so. That is, whole strides are added to a map before, and taken off again.

    Raises:
        GraphError: it depends on the input's size in a way that has no sum.
    """
    if not (op.site or isinstance(op, CropMap)):
        return cast(Sequence[Dim], op.shape(*cast(list[Shape], sizes)))
    (channels, *cells), strides = sizes[0], op.site.window.stride if op.site else (1, 1)
    more = [isinstance(size, Open) * 2 * LARGEST for size in cells]
    large = [size + count * stride for size, count, stride in zip(cells, more, strides, strict=True)]
    filters, *found = cast(Sequence[Dim], op.shape(cast(Shape, (channels, *large))))
    return filters, *(size - count for size, count in zip(found, more, strict=True))


def _stated(size: Dim) -> int:
    """A size that may be a number of an op; one if it is open."""
    return 1 if isinstance(size, Open) else size


def _written(axis: Sequence[str]) -> str:
    """An axis in a pattern of Rearrange."""
    return axis[0] if len(axis) == 1 and "=" not in axis[0] else f"({' '.join(axis)})"
