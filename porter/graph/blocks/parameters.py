"""The parameters of a block: the differences between its uses, in as few names as possible.

Everything is decided on vectors: the value that a slot has in each use of the block. An expression is used
for a slot only if it gives the slot's value in every use, so it is right for this model. Expressions are
written as Python and recipes write them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import TypeAlias

PlainValue: TypeAlias = "int | float | bool | str | tuple[PlainValue, ...] | None"
Vector = Mapping[int, PlainValue]
"""The value in each use of the block that has the slot, by the number of the use."""

# The names that a person gives torch's arguments in a block's own signature; the other slots have such names.
_NAMES = {
    "in_channels": "channels",
    "dims": "channels",
    "num_features": "channels",
    "num_parameters": "channels",
    "normalized_shape": "channels",
    "in_features": "features",
    "input_dims": "features",
    "out_channels": "filters",
    "out_features": "units",
    "output_dims": "units",
    "kernel_size": "kernel",
}
# Slots whose value a person would choose by a condition, rather than pass in.
_CONDITIONAL = frozenset({"padding", "bias", "ceil_mode", "count_include_pad", "affine", "pad"})
_SHARED_PRODUCT = 3
"""A product that is used this often gets a name."""


class Arguments:
    """The parameters of one block.

    Args:
        given: known ones, and `channels`, by name: the value in each use.
        literal: writes a value; None where the language has no such literal in an expression.
        only_written: an equation with a product is a condition only where some expression is that product,
            and there are no products of two arguments: two numbers can be equal by chance.
        products: names for products of two arguments, such as `{"expansion * channels": "hidden"}`.

    Attributes:
        unread: of the new arguments that some uses have no slot for, the value that these have.
    """

    def __init__(
        self,
        given: Mapping[str, Vector],
        literal: Callable[[PlainValue], str | None],
        products: Mapping[str, str] | None = None,
        only_written: bool = False,
    ) -> None:
        self.only_written = only_written
        self.given = dict(given)
        self.literal = literal
        self.products = dict(products or {})
        self.product_uses: Counter[str] = Counter()
        self.derived: dict[str, Vector] = {}
        self.unread: dict[str, PlainValue] = {}
        self.texts: set[str] = set()
        self._used: set[str] = set()

    def used_arguments(self) -> dict[str, Vector]:
        """Return the arguments that some expression reads: `channels` first, then the recipe's, then those
        that porter added.
        """
        vectors = {**self.given, **self.derived}
        return {
            name: vectors[name]
            for name in sorted(vectors, key=lambda name: name != "channels")
            if name in self._used
        }

    def shared_product(self) -> str | None:
        """Return the product of arguments that is used most, such as `expansion * channels`, if it is used
        often enough to get a name; otherwise None.
        """
        for text, uses in self.product_uses.most_common(1):
            if uses >= _SHARED_PRODUCT:
                return text
        return None

    def express(self, slot: str, vector: Vector, owner: str) -> str:
        """Return an expression that has the value of `slot`, an argument of a layer, in every use. It is
        found among the arguments, their multiples and products, and for some slots among conditions; a new
        argument is added if there is no other.

        Args:
            vector: the value in each use that has the slot.
            owner: the part that has the slot, to name a new argument after.
        """
        for text, names, candidate in self._expressions_for(slot):
            if _has_values(candidate, vector):
                self._used.update(names)
                self.texts.add(text)
                if text in self.products:
                    return self.products[text]
                self.product_uses[text] += len(names) > 1
                return text
        expression = self._choice_of_two(vector) if slot in _CONDITIONAL else None
        if expression is None and slot == "padding":
            expression = self._padding_expression(vector)
        return expression or self._add_argument(_NAMES.get(slot, slot), vector, owner)

    def _choice_of_two(self, vector: Vector) -> str | None:
        """Return an expression for a slot of two values, such as `False if last else True`; None if it has
        more or fewer, or nothing known tells the uses apart.
        """
        values = set(vector.values())
        if len(values) != 2:
            return None
        # the value of fewer uses stands under the condition
        rare, usual = sorted(values, key=lambda value: list(vector.values()).count(value))
        rare_text, usual_text = self.literal(rare), self.literal(usual)
        if rare_text is None or usual_text is None:
            return None
        condition = self._find_condition({use: value == rare for use, value in vector.items()})
        return None if condition is None else f"{rare_text} if {condition} else {usual_text}"

    def _padding_expression(self, vector: Vector) -> str | None:
        """Return an expression of a padding that is 0 in some uses, because a pad layer stands in front
        there: `0 if stride > 1 else kernel // 2`. None for another padding.
        """
        padded_uses = {use: value for use, value in vector.items() if value != 0}
        for text, names, candidate in self._expressions_for("padding"):
            if not _has_values(candidate, padded_uses):
                continue
            condition = self._find_condition({use: value == 0 for use, value in vector.items()})
            if condition is not None:
                self._used.update(names)
                return f"0 if {condition} else {text}"
        return None

    def condition(self, vector: Mapping[int, bool], name: str, part: str = "") -> str:
        """Return a condition on the arguments that holds in exactly those uses; an argument `name` is added
        if there is none.

        Args:
            part: the part that differs. An argument of its name is the likeliest reason.
        """
        return self._find_condition(vector, part) or self._add_argument(name, vector, name)

    def _argument_names(self, slot: str) -> list[str]:
        """Return the names of all arguments, those that a slot likely has first: `channels` for a slot of
        input channels, for other slots the others.
        """
        names = [*self.given, *self.derived]
        takes_channels = _NAMES.get(slot) == "channels"
        return sorted(names, key=lambda name: (name == "channels") != takes_channels)

    def _expressions_for(self, slot: str) -> Iterator[tuple[str, tuple[str, ...], Vector]]:
        """Yield expressions that a person may have written for an argument of a layer, the likeliest first:
        an argument of the block (`width`), a product of two that the block has already, half of a kernel for
        pads, a small multiple (`4 * width`, a bottleneck's), any product, and a quotient (`width // 4`, a
        squeeze's).

        Args:
            slot: the layer's argument, such as `out_channels`.

        Yields:
            The text, the block's arguments that it reads, and its value in each use of the block.
        """
        vectors = {**self.given, **self.derived}
        names = self._argument_names(slot)
        numeric_names = [
            name for name in names if all(type(value) is int for value in vectors[name].values())
        ]
        for name in names:
            yield name, (name,), vectors[name]
        pairs = (
            () if self.only_written else combinations([name for name in vectors if name in numeric_names], 2)
        )
        products = [(f"{left} * {right}", (left, right)) for left, right in pairs]
        for text, pair in products:
            if text in self.products:
                yield text, pair, _product_vector(vectors, pair)
        if slot == "padding":
            for name in numeric_names:
                halves = {use: value // 2 for use, value in _whole_numbers(vectors[name])}
                yield f"{name} // 2", (name,), halves
                # SAME at an even size and a stride of 2
                uneven_pads = {use: (half - 1, half) * 2 for use, half in halves.items()}
                yield f"({name} // 2 - 1, {name} // 2) * 2", (name,), uneven_pads
        for name in numeric_names:
            for factor in (2, 3, 4, 6, 8):
                multiples = {use: factor * value for use, value in _whole_numbers(vectors[name])}
                yield f"{factor} * {name}", (name,), multiples
        for text, pair in products:
            yield text, pair, _product_vector(vectors, pair)
        # a nested block's width, such as that of a squeeze; a layer's own width is not a quotient
        for name in numeric_names if slot not in _NAMES else []:
            for divisor in (2, 4, 8, 16):
                quotients = {use: value // divisor for use, value in _whole_numbers(vectors[name])}
                yield f"{name} // {divisor}", (name,), quotients

    def _find_condition(self, vector: Mapping[int, bool], part: str = "") -> str | None:
        """Return an expression that is true for the uses where `vector` is, and false for the others: one
        plain condition, or two joined by `and`. None if there is none.
        """
        # conditions on an argument of the part's name first
        conditions = sorted(self._simple_conditions(), key=lambda condition: part not in condition[1])
        for text, names, holds in conditions:
            if _has_values(holds, vector):
                self._used.update(names)
                return text
        # Only conditions without a product are joined, because any two equations can agree by chance.
        plain_conditions = [condition for condition in conditions if "*" not in condition[0]]
        for (text, names, holds), (other_text, other_names, other_holds) in combinations(plain_conditions, 2):
            both_hold = {use: holds[use] and other_holds[use] for use in holds}
            if _has_values(both_hold, vector):
                self._used.update(names + other_names)
                return f"{text} and {other_text}"
        return None

    def _simple_conditions(self) -> Iterator[tuple[str, tuple[str, ...], dict[int, bool]]]:
        """Yield the simplest conditions: flags, and comparisons of a number with one of its values or another
        number. Each comes as its text, the arguments that it reads, and whether it holds in each use.
        """
        vectors = {**self.given, **self.derived}
        numeric_vectors = {
            name: dict(_whole_numbers(vector))
            for name, vector in vectors.items()
            if len(_whole_numbers(vector)) == len(vector)
        }
        for name, vector in vectors.items():
            if all(isinstance(value, bool) for value in vector.values()):
                yield name, (name,), {use: bool(value) for use, value in vector.items()}
                yield f"not {name}", (name,), {use: not value for use, value in vector.items()}
        for name, numbers in numeric_vectors.items():
            yield f"{name} > 1", (name,), {use: number > 1 for use, number in numbers.items()}
            yield f"{name} == 1", (name,), {use: number == 1 for use, number in numbers.items()}
        # only those equations between numbers that projections and residuals depend on
        channels_first = sorted(numeric_vectors, key=lambda name: name != "channels")
        for first, second in combinations(channels_first, 2):
            yield from self._equations(first, second, numeric_vectors)
        for name, vector in vectors.items():
            for word in dict.fromkeys(value for value in vector.values() if isinstance(value, str)):
                yield (
                    f"{name} == {self.literal(word)}",
                    (name,),
                    {use: value == word for use, value in vector.items()},
                )

    def _equations(
        self, first: str, second: str, vectors: Mapping[str, Mapping[int, int]]
    ) -> Iterator[tuple[str, tuple[str, ...], dict[int, bool]]]:
        """Yield the conditions that one of two arguments is, or is not, the other or 4 or 2 times the other,
        such as `channels != 4 * width`, as `_simple_conditions` does.
        """
        for factor in (1, 4, 2):
            orders = [(first, second)] if factor == 1 else [(first, second), (second, first)]
            for left, right in orders:
                multiple = right if factor == 1 else f"{factor} * {right}"
                if self.only_written and factor > 1 and multiple not in self.texts:
                    continue
                equal = {use: number == factor * vectors[right][use] for use, number in vectors[left].items()}
                unequal = {use: not is_equal for use, is_equal in equal.items()}
                yield f"{left} != {multiple}", (left, right), unequal
                yield f"{left} == {multiple}", (left, right), equal

    def _add_argument(self, name: str, vector: Vector, owner: str) -> str:
        """Add an argument with these values, and return its name. It may take the name of a recipe's argument
        that nothing reads.
        """
        taken_names = self._used | self.derived.keys()
        if name in taken_names:
            name = f"{owner.replace('.', '_')}_{name}"
        while name in taken_names:
            name += "_"
        all_uses = range(len([*self.given.values(), vector][0]))
        # uses that lack the slot get the most frequent value
        ((usual, _),) = Counter(vector.values()).most_common(1)
        arguments = self.given if name in self.given else self.derived
        arguments[name] = {use: vector.get(use, usual) for use in all_uses}
        if len(vector) < len(all_uses):
            self.unread[name] = usual
        self._used.add(name)
        return name


def _product_vector(vectors: Mapping[str, Vector], names: tuple[str, str]) -> Vector:
    """Return the product of two arguments, by the uses of the block in which both are numbers."""
    left, right = (dict(_whole_numbers(vectors[name])) for name in names)
    return {use: value * right[use] for use, value in left.items()}


def _whole_numbers(vector: Vector) -> list[tuple[int, int]]:
    """Return the uses of the block in which an argument is a whole number, each with that number."""
    return [(use, value) for use, value in vector.items() if type(value) is int]


def _has_values(candidate: Mapping[int, object], vector: Mapping[int, object]) -> bool:
    """Return whether an expression or an argument (`candidate`) has the value that `vector` has, of the same
    type, in each of the vector's uses.
    """
    return all(
        use in candidate and candidate[use] == value and type(candidate[use]) is type(value)
        for use, value in vector.items()
    )
