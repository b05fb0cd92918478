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
        """The names of the source's tensors that the variable is made of."""
        parts = (
            part
            for argument in self.given.values()
            for part in (argument.parts if isinstance(argument, Joined) else (argument,))
        )
        return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, TakenTensor)))

    def made(self, source: NamedArrays) -> Array:
        """Return the variable's numbers: the array that the expression of `text` gives.

        Args:
            source: the tensors of the source by name.
        """
        arguments = {name: _made(argument, source) for name, argument in self.given.items()}
        if self.function is not None:
            value = moved(self.after, getattr(converter_functions, self.function)(**arguments))
        else:
            (value,) = arguments.values()
        if isinstance(value, float):
            return np.full(self.shape, value, self.dtype)
        return value.astype(self.dtype) if self.cast else value

    def text(self, names: Mapping[str, str]) -> str:
        """Return how the variable is made as an expression of numpy, such as
        `source["conv1.weight"].transpose(2, 3, 1, 0)`.

        Args:
            names: by the name of each of the source's tensors, the text that stands for it.
        """
        arguments = {name: _text(argument, names) for name, argument in self.given.items()}
        if self.function is not None:
            expression = move_text(self.after, f"{self.function}({', '.join(arguments.values())})")
        elif not self.sources:
            (number,) = self.given.values()
            function = {0.0: "zeros", 1.0: "ones"}.get(float(number))  # type: ignore[arg-type]
            shape = str(self.shape)
            kind = "" if self.dtype == "float64" else f", np.{self.dtype}"
            return f"np.{function}({shape}{kind})" if function else f"np.full({shape}, {number!r}{kind})"
        else:
            (expression,) = arguments.values()
        return f"{expression}.astype(np.{self.dtype})" if self.cast else expression

    def record(self) -> dict[str, Any]:
        """Return the row as a line of the table in into.json."""
        names = {name: f"source[{name!r}]" for name in self.sources}
        return {
            "name": self.name,
            "from": [*self.sources],
            "how": self.text(names),
            "shape": [*self.shape],
            "dtype": self.dtype,
        }


def _made(argument: Given, source: NamedArrays) -> Any:
    """Return the numbers of a moved tensor or of joined ones; a number as it is."""
    match argument:
        case TakenTensor(name, move):
            return moved(move, source[name])
        case Joined(parts, axis):
            return np.concatenate([moved(part.move, source[part.name]) for part in parts], axis)
    return argument


def _text(argument: Given, names: Mapping[str, str]) -> str:
    """Return the expression of numpy that computes what `_made` returns."""
    match argument:
        case TakenTensor(name, move):
            return move_text(move, names[name])
        case Joined(parts, axis):
            arrays = ", ".join(move_text(part.move, names[part.name]) for part in parts)
            axis_text = f", {axis}" if axis else ""
            return f"np.concatenate([{arrays}]{axis_text})"
    return f"{argument:g}" if float(f"{argument:g}") == argument else repr(argument)


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
    """Return where each canonical tensor of a model lies in its variables: by path and role, the variable's
    name, and for each cell of the tensor its place in that variable. It is found by the numbers, which are
    random. Tensors that are no variable in another order of axes are left out.
    """
    by_size: dict[int, list[tuple[str, float]]] = {}
    for name, array in variables.items():
        if is_floating(array):
            by_size.setdefault(array.size, []).append((name, _sum(array)))
    located_tensors = dict[Key, tuple[str, Places]]()
    for path, roles in tensors.items():
        for role, tensor in roles.items():
            total = _sum(tensor)
            # Equal sums are cheap to find; then the numbers are compared.
            similar = [
                name
                for name, variable_sum in by_size.get(tensor.size, ())
                if abs(variable_sum - total) <= 1e-6 * total
            ]
            arrangements = (
                (name, order)
                for name in similar
                for order in (*_USUAL, *permutations(range(variables[name].ndim)))
                if len(order) == variables[name].ndim
            )
            for name, order in arrangements:
                if np.array_equal(variables[name].transpose(order).reshape(tensor.shape), tensor):
                    places = counted(variables[name].shape).transpose(order).reshape(tensor.shape)
                    located_tensors[path, role] = name, places
                    break
    return located_tensors


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
        variable = self.variables[name]
        # `places` is from canonical cells to the variable's; here is the canonical cell of each of those.
        cells = np.empty(places.size, np.int64)
        cells[places.reshape(-1)] = np.arange(places.size)
        canonical_cells = cells.reshape(variable.shape)
        kind = self.kinds.get(key[0], "")
        shape, dtype = variable.shape, variable.dtype.name
        match value:
            case SameNumber(number):
                return Row(name, {"": float(number)}, shape, dtype, kind=kind)
            case Copied():
                taken = self._given(value, canonical_cells)
                if taken is None:
                    return None
                return Row(name, {"": taken}, shape, dtype, cast=self._casts(taken, variable), kind=kind)
            case ComputedValue(function, arguments):
                after = move_of(canonical_cells, places.shape)
                given = {
                    parameter: argument if isinstance(argument, float) else self._given(argument, None)
                    for parameter, argument in arguments.items()
                }
                known = {parameter: argument for parameter, argument in given.items() if argument is not None}
                if after is None or len(known) < len(given):
                    return None
                cast = any(self._casts(argument, variable) for argument in known.values())
                return Row(name, known, shape, dtype, function, after, cast, kind)

    def _given(self, copied: Copied, canonical_cells: Places | None) -> TakenTensor | Joined | None:
        """Return what of the source's file gives the numbers of a tensor; None where no steps of numpy do.

        Args:
            copied: the source's cells that they are.
            canonical_cells: the canonical cell of each of the variable's cells; None for the canonical tensor
                itself.
        """
        cells = [self.source.cells(key) for key in copied.keys]
        if len(cells) > 1:
            return self._joined(copied, cells, canonical_cells)
        # The place in the source's array of each canonical cell, and then of each cell of the variable.
        name, source_places = cells[0]
        places = source_places
        if copied.places is not None:
            places = source_places.reshape(-1)[copied.places]
        if canonical_cells is not None:
            places = places.reshape(-1)[canonical_cells]
        move = move_of(places, self.source.arrays[name].shape)
        return None if move is None else TakenTensor(name, move)

    def _joined(
        self, copied: Copied, cells: Sequence[tuple[str, Places]], canonical_cells: Places | None
    ) -> Joined | None:
        """Return tensors of several names, which follow each other along an axis; None where they do not.

        Args:
            copied: the source's cells that they are.
            cells: for each name, the place in its array of each cell of its tensor.
            canonical_cells: as in `_given`.
        """
        assert copied.which is not None and copied.places is not None
        order = counted(copied.which.shape) if canonical_cells is None else canonical_cells
        # for each cell, which of the names it is from
        which, places = copied.which.reshape(-1), copied.places.reshape(-1)
        # the place of each cell in the array of its name
        array_places = np.empty_like(places)
        for index, (_, source_places) in enumerate(cells):
            array_places[which == index] = source_places.reshape(-1)[places[which == index]]
        array_places, which = array_places[order], which[order]
        for axis in range(which.ndim):
            line = np.moveaxis(which, axis, 0).reshape(which.shape[axis], -1)
            starts = [0, *(np.flatnonzero(np.diff(line[:, 0])) + 1).tolist(), len(line)]
            # Along this axis each index has cells of one tensor only.
            if (line == line[:, :1]).all():
                parts = list[TakenTensor]()
                for start, stop in pairwise(starts):
                    name, _ = cells[int(line[start, 0])]
                    places_of_part = array_places[(slice(None),) * axis + (slice(start, stop),)]
                    move = move_of(places_of_part, self.source.arrays[name].shape)
                    if move is None:
                        return None
                    parts.append(TakenTensor(name, move))
                return Joined(tuple(parts), axis)
        return None

    def _casts(self, given: Given, variable: Array) -> bool:
        """Return whether some of the source's tensors have another type than the variable."""
        if isinstance(given, float):
            return False
        parts = given.parts if isinstance(given, Joined) else (given,)
        return any(self.source.arrays[part.name].dtype != variable.dtype for part in parts)
