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
        """Return the product of arguments that is used most, if it is used often; otherwise None."""
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
        values = set(vector.values())
        if len(values) == 2 and slot in _CONDITIONAL:
            # the value of fewer uses stands under the condition
            rare, usual = sorted(values, key=lambda value: list(vector.values()).count(value))
            rare_text, usual_text = self.literal(rare), self.literal(usual)
            if rare_text is not None and usual_text is not None:
                condition = self._find_condition({use: value == rare for use, value in vector.items()})
                if condition is not None:
                    return f"{rare_text} if {condition} else {usual_text}"
        expression = self._padding_expression(vector) if slot == "padding" else None
        return expression or self._add_argument(_NAMES.get(slot, slot), vector, owner)

    def _padding_expression(self, vector: Vector) -> str | None:
        """Return torch's padding if it is 0 in some uses, because a pad layer stands in front of it there;
        None for other paddings.
        """
        padded = {use: value for use, value in vector.items() if value != 0}
        for text, names, candidate in self._expressions_for("padding"):
            if not _has_values(candidate, padded):
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
        """Return the names of all arguments, likely ones for this slot first."""
        names = [*self.given, *self.derived]
        return sorted(names, key=lambda name: (name == "channels") != (_NAMES.get(slot) == "channels"))

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
        numbers = [name for name in names if all(type(value) is int for value in vectors[name].values())]
        for name in names:
            yield name, (name,), vectors[name]
        pairs = () if self.only_written else combinations([name for name in vectors if name in numbers], 2)
        products = [(f"{left} * {right}", (left, right)) for left, right in pairs]
        for text, pair in products:
            if text in self.products:
                yield text, pair, _product_vector(vectors, pair)
        if slot == "padding":
            for name in numbers:
                halves = {use: value // 2 for use, value in _whole_numbers(vectors[name])}
                yield f"{name} // 2", (name,), halves
                # SAME at an even size and a stride of 2.
                yield (
                    f"({name} // 2 - 1, {name} // 2) * 2",
                    (name,),
                    {use: (half - 1, half) * 2 for use, half in halves.items()},
                )
        for name in numbers:
            for factor in (2, 3, 4, 6, 8):
                yield (
                    f"{factor} * {name}",
                    (name,),
                    {use: factor * value for use, value in _whole_numbers(vectors[name])},
                )
        for text, pair in products:
            yield text, pair, _product_vector(vectors, pair)
        # A nested block's width, such as that of a squeeze; a layer's own width is not a quotient.
        for name in numbers if slot not in _NAMES else []:
            for divisor in (2, 4, 8, 16):
                yield (
                    f"{name} // {divisor}",
                    (name,),
                    {use: value // divisor for use, value in _whole_numbers(vectors[name])},
                )

    def _find_condition(self, vector: Mapping[int, bool], part: str = "") -> str | None:
        """Return an expression that is true for the uses where `vector` is, and false for the others: one
        plain condition, or two joined by `and`. None if there is none.
        """
        # conditions on an argument of the part's name first
        atoms = sorted(self._simple_conditions(), key=lambda atom: part not in atom[1])
        for text, names, candidate in atoms:
            if _has_values(candidate, vector):
                self._used.update(names)
                return text
        # Only plain conditions are joined, because any two equations can agree by chance.
        plain = [atom for atom in atoms if "*" not in atom[0]]
        for (text, names, holds), (other_text, other_names, other_holds) in combinations(plain, 2):
            if _has_values({use: holds[use] and other_holds[use] for use in holds}, vector):
                self._used.update(names + other_names)
                return f"{text} and {other_text}"
        return None

    def _simple_conditions(self) -> Iterator[tuple[str, tuple[str, ...], dict[int, bool]]]:
        """Yield the simplest conditions: flags, and comparisons of a number with one of its values or another
        number. Each comes as its text, the arguments that it reads, and whether it holds in each use.
        """
        vectors = {**self.given, **self.derived}
        numbers = {
            name: dict(_whole_numbers(vector))
            for name, vector in vectors.items()
            if len(_whole_numbers(vector)) == len(vector)
        }
        for name, vector in vectors.items():
            if all(isinstance(value, bool) for value in vector.values()):
                yield name, (name,), {use: bool(value) for use, value in vector.items()}
                yield f"not {name}", (name,), {use: not value for use, value in vector.items()}
        for name, counts in numbers.items():
            yield f"{name} > 1", (name,), {use: value > 1 for use, value in counts.items()}
            yield f"{name} == 1", (name,), {use: value == 1 for use, value in counts.items()}
        # Only those equations between numbers that projections and residuals depend on.
        for pair in combinations(sorted(numbers, key=lambda name: name != "channels"), 2):
            for factor in (1, 4, 2):
                orders = [pair] if factor == 1 else [pair, pair[::-1]]
                for left, right in orders:
                    text = right if factor == 1 else f"{factor} * {right}"
                    if self.only_written and factor > 1 and text not in self.texts:
                        continue
                    equal = {
                        use: value == factor * numbers[right][use] for use, value in numbers[left].items()
                    }
                    yield f"{left} != {text}", (left, right), {use: not value for use, value in equal.items()}
                    yield f"{left} == {text}", (left, right), equal
        for name, vector in vectors.items():
            for value in dict.fromkeys(value for value in vector.values() if isinstance(value, str)):
                yield (
                    f"{name} == {self.literal(value)}",
                    (name,),
                    {use: other == value for use, other in vector.items()},
                )

    def _add_argument(self, name: str, vector: Vector, owner: str) -> str:
        """Add an argument with these values, and return its name. It may take the name of a recipe's argument
        that nothing reads.
        """
        taken_names = self._used | self.derived.keys()
        if name in taken_names:
            name = f"{owner.replace('.', '_')}_{name}"
        while name in taken_names:
            name += "_"
        # of the block; uses that lack the slot get the most frequent value
        uses = len(next(iter(self.given.values()), vector))
        usual = Counter(vector.values()).most_common(1)[0][0]
        known = self.given if name in self.given else self.derived
        known[name] = {use: vector.get(use, usual) for use in range(uses)}
        if len(vector) < uses:
            self.unread[name] = usual
        self._used.add(name)
        return name


def _product_vector(vectors: Mapping[str, Vector], names: tuple[str, str]) -> Vector:
    """Return the product of two arguments in each use that has both as numbers."""
    left, right = (dict(_whole_numbers(vectors[name])) for name in names)
    return {use: value * right[use] for use, value in left.items()}


def _whole_numbers(vector: Vector) -> list[tuple[int, int]]:
    """Return the whole numbers of a vector, with their uses."""
    return [(use, value) for use, value in vector.items() if type(value) is int]


def _has_values(candidate: Mapping[int, object], vector: Mapping[int, object]) -> bool:
    """Return whether a parameter has the wanted value, of the same type, in each of these uses."""
    return all(
        use in candidate and candidate[use] == value and type(candidate[use]) is type(value)
        for use, value in vector.items()
    )
