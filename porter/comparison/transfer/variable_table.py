"""The table of a transfer: how each variable of a model is made of the source's tensors, as both files have
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, permutations
from typing import Any, TypeAlias

import numpy as np

from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.base.errors import MappingError
from porter.comparison.transfer import converter_functions
from porter.comparison.transfer.array_moves import Move, Places, counted, move_of, move_text, moved
from porter.comparison.transfer.assigning import ComputedValue, Copied, Key, SameNumber, Value
from porter.frameworks import Tensors
from porter.frameworks.dialects import get_dialect
from porter.graph import tensor_shapes
from porter.source.opened import Opened, laid_out

_USUAL = ((3, 2, 0, 1), (2, 3, 0, 1), (1, 0))
"""Orders of axes in which most kernels lie in frameworks whose channels are last."""


@dataclass(frozen=True)
class TakenTensor:
    """A tensor of the source, moved."""

    name: str
    move: Move


@dataclass(frozen=True)
class Joined:
    """Tensors of the source along an axis."""

    parts: tuple[TakenTensor, ...]
    axis: int


Given: TypeAlias = TakenTensor | Joined | float


@dataclass(frozen=True)
class Row:
    """How one variable is made.

    Attributes:
        name: of the variable.
        given: what it is made of, by the name of an argument of `function`, otherwise the only one; a number
            fills it.
        function: of porter.comparison.transfer.converter_functions; None where numbers are only moved.
        after: the steps from what the function gives.
        dtype, shape: of the variable.
        cast: whether the source has another type.
        kind: the op of the layer that has it.
    """

    name: str
    given: Mapping[str, Given]
    shape: tuple[int, ...]
    dtype: str
    function: str | None = None
    after: Move = ()
    cast: bool = False
    kind: str = ""

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The names of the source's tensors."""
        each = (one.parts if isinstance(one, Joined) else (one,) for one in self.given.values())
        return tuple(dict.fromkeys(one.name for some in each for one in some if isinstance(one, TakenTensor)))

    def made(self, source: NamedArrays) -> Array:
        """Return the variable's numbers, as the text computes them.

        Args:
            source: the tensors of the source by name.
        """
        given = {name: _made(one, source) for name, one in self.given.items()}
        if self.function is not None:
            value = moved(self.after, getattr(converter_functions, self.function)(**given))
        else:
            (value,) = given.values()
        if isinstance(value, float):
            return np.full(self.shape, value, self.dtype)
        return value.astype(self.dtype) if self.cast else value

    def text(self, names: Mapping[str, str]) -> str:
        """Return the same as an expression of numpy.

        Args:
            names: what stands for each of the source's tensors.
        """
        given = {name: _text(one, names) for name, one in self.given.items()}
        if self.function is not None:
            said = move_text(self.after, f"{self.function}({', '.join(given.values())})")
        elif not self.sources:
            (number,) = self.given.values()
            made = {0.0: "zeros", 1.0: "ones"}.get(float(number))  # type: ignore[arg-type]
            shape = str(self.shape)
            kind = "" if self.dtype == "float64" else f", np.{self.dtype}"
            return f"np.{made}({shape}{kind})" if made else f"np.full({shape}, {number!r}{kind})"
        else:
            (said,) = given.values()
        return f"{said}.astype(np.{self.dtype})" if self.cast else said

    def record(self) -> dict[str, Any]:
        """Return a line of the table."""
        names = {name: f"source[{name!r}]" for name in self.sources}
        return {
            "name": self.name,
            "from": [*self.sources],
            "how": self.text(names),
            "shape": [*self.shape],
            "dtype": self.dtype,
        }


def _made(given: Given, source: NamedArrays) -> Any:
    """Return the numbers of a moved tensor or of joined ones; a number as it is."""
    match given:
        case TakenTensor(name, move):
            return moved(move, source[name])
        case Joined(parts, axis):
            return np.concatenate([moved(part.move, source[part.name]) for part in parts], axis)
    return given


def _text(given: Given, names: Mapping[str, str]) -> str:
    """Return the same as `_made` as an expression of numpy."""
    match given:
        case TakenTensor(name, move):
            return move_text(move, names[name])
        case Joined(parts, axis):
            said = ", ".join(move_text(part.move, names[part.name]) for part in parts)
            return f"np.concatenate([{said}]{f', {axis}' if axis else ''})"
    return f"{given:g}" if float(f"{given:g}") == given else repr(given)


@dataclass
class SourceTensors:
    """The tensors of a source as its file has them, under the file's names. What porter computed, or read of
    a port, is a tensor of its own under the node's path and the role.

    Attributes:
        own: names that the file does not have.
    """

    opened: Opened
    arrays: dict[str, Array] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    def cells(self, key: Key) -> tuple[str, Places]:
        """Return the name of a canonical tensor's array, and the place in it of each of its cells. It is the
        file's tensor if that has these numbers, otherwise the canonical tensor itself, which is then kept as
        one of the source's own.

        Args:
            key: the node's path and the tensor's role.
        """
        path, role = key
        tensor, fitted = self.opened.tensors[path][role], self.opened.fitted
        name = fitted.fit.tensors.get(key) if fitted is not None else None
        if name is not None and fitted is not None:
            array, expected = fitted.checkpoint.tensors[name], self._shapes.get(path, {}).get(role)
            member = self.opened.member
            dialect = None if member is None else get_dialect(member.zoo.framework)
            try:
                # The cells' numbers go the way of the tensor itself.
                places: Any = laid_out(fitted.fit, dialect, key, expected, counted(array.shape))
            except MappingError:
                places = np.empty(0)
            if places.shape == tensor.shape and np.array_equal(array.reshape(-1)[places], tensor):
                self.arrays[name] = array
                return name, places
        name = f"{path}/{role}"
        self.arrays[name] = tensor
        self.own.add(name)
        return name, counted(tensor.shape)

    @cached_property
    def _shapes(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        return tensor_shapes(self.opened.graph)


def located(variables: NamedArrays, tensors: Tensors) -> dict[Key, tuple[str, Places]]:
    """Return the variable that each canonical tensor is, and the place in it of each of its cells: by their
    numbers, which are random. Tensors that are no variable in another order of axes are left out.
    """
    by_size: dict[int, list[tuple[str, float]]] = {}
    for name, array in variables.items():
        if is_floating(array):
            by_size.setdefault(array.size, []).append((name, _sum(array)))
    found = dict[Key, tuple[str, Places]]()
    for path, roles in tensors.items():
        for role, tensor in roles.items():
            total = _sum(tensor)
            # Equal sums are cheap to find; then the numbers are compared.
            near = [name for name, own in by_size.get(tensor.size, ()) if abs(own - total) <= 1e-6 * total]
            ways = (
                (name, order)
                for name in near
                for order in (*_USUAL, *permutations(range(variables[name].ndim)))
                if len(order) == variables[name].ndim
            )
            for name, order in ways:
                if np.array_equal(variables[name].transpose(order).reshape(tensor.shape), tensor):
                    places = counted(variables[name].shape).transpose(order).reshape(tensor.shape)
                    found[path, role] = name, places
                    break
    return found


def _sum(array: Array) -> float:
    return float(array.astype(np.float64).sum())


@dataclass(frozen=True)
class Tabling:
    """Makes rows of values.

    Attributes:
        places: of the target's tensors, as `located` gives them.
        variables: of the target.
        kinds: the ops of the target's nodes by path.
    """

    source: SourceTensors
    places: Mapping[Key, tuple[str, Places]]
    variables: NamedArrays
    kinds: Mapping[str, str]

    def rows(self, values: Mapping[Key, Value]) -> Iterator[Row]:
        """Yield the rows of the values whose tensors are variables. A value that no steps of numpy say is
        left out.
        """
        for key, value in values.items():
            row = self._row(key, value) if key in self.places else None
            if row is not None:
                yield row

    def _row(self, key: Key, value: Value) -> Row | None:
        """Return how a variable is made of a value; None where no steps of numpy say it."""
        name, places = self.places[key]
        own = self.variables[name]
        cells = np.empty(places.size, np.int64)  # the canonical cell of each of the variable's
        cells[places.reshape(-1)] = np.arange(places.size)
        back = cells.reshape(own.shape)
        kind = self.kinds.get(key[0], "")
        said = own.shape, own.dtype.name
        match value:
            case SameNumber(number):
                return Row(name, {"": float(number)}, *said, kind=kind)
            case Copied():
                given = self._given(value, places.shape, back)
                if given is None:
                    return None
                return Row(name, {"": given}, *said, cast=self._casts(given, own), kind=kind)
            case ComputedValue(function, arguments):
                after = move_of(back, places.shape)
                taken = {
                    word: one if isinstance(one, float) else self._given(one, places.shape, None)
                    for word, one in arguments.items()
                }
                whole = {word: one for word, one in taken.items() if one is not None}
                if after is None or len(whole) < len(taken):
                    return None
                cast = any(self._casts(one, own) for one in whole.values())
                return Row(name, whole, *said, function, after, cast, kind)

    def _given(
        self, copied: Copied, shape: tuple[int, ...], back: Places | None
    ) -> TakenTensor | Joined | None:
        """Return what gives the numbers of a canonical tensor of a shape; None where no steps do.

        Args:
            copied: the source's cells that they are.
            back: the canonical cell of each of the variable's cells; None for the tensor as it is.
        """
        cells = [self.source.cells(key) for key in copied.keys]
        if len(cells) > 1:
            return self._joined(copied, cells, back)
        (name, own), places = cells[0], copied.places
        lies = own.reshape(-1) if places is None else own.reshape(-1)[places.reshape(-1)]
        shape = own.shape if places is None else places.shape
        lies = lies.reshape(shape) if back is None else lies[back]
        move = move_of(lies, self.source.arrays[name].shape)
        return None if move is None else TakenTensor(name, move)

    def _joined(
        self, copied: Copied, cells: Sequence[tuple[str, Places]], back: Places | None
    ) -> Joined | None:
        """Return tensors of several names, which follow each other along an axis; None where they do not.

        Args:
            copied: the source's cells that they are.
            cells: for each name, the place in its array of each cell of its tensor.
            back: as in `_given`.
        """
        assert copied.which is not None and copied.places is not None
        which, places = copied.which.reshape(-1), copied.places.reshape(-1)
        # the place of each cell in the array of its name
        lies = np.empty_like(places)
        for index, (_, own) in enumerate(cells):
            lies[which == index] = own.reshape(-1)[places[which == index]]
        order = counted(copied.which.shape) if back is None else back
        lies, which = lies[order], which[order]
        for axis in range(which.ndim):
            line = np.moveaxis(which, axis, 0).reshape(which.shape[axis], -1)
            starts = [0, *(np.flatnonzero(np.diff(line[:, 0])) + 1).tolist(), len(line)]
            # Along this axis each index has cells of one tensor only.
            if (line == line[:, :1]).all():
                parts = list[TakenTensor]()
                for start, stop in pairwise(starts):
                    name = cells[int(line[start, 0])][0]
                    part = lies[(slice(None),) * axis + (slice(start, stop),)]
                    move = move_of(part, self.source.arrays[name].shape)
                    if move is None:
                        return None
                    parts.append(TakenTensor(name, move))
                return Joined(tuple(parts), axis)
        return None

    def _casts(self, given: Given, own: Array) -> bool:
        """Return whether some of the source's tensors have another type than the variable."""
        names = (
            [part.name for part in given.parts]
            if isinstance(given, Joined)
            else [given.name]
            if isinstance(given, TakenTensor)
            else []
        )
        return any(self.source.arrays[name].dtype != own.dtype for name in names)
