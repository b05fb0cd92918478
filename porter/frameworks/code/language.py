"""How a framework's code says layers, modules and their calls, for model.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.code.text import Bracketed, Expression, Item
from porter.graph.blocks.parameters import PlainValue

CHAIN, ROW = "chain", "row"
"""Kinds of parts that are modules one after the other, with names or without."""
Apply = Callable[[Sequence[Expression]], Expression]
"""Applies a layer to the expressions of values."""


@dataclass(frozen=True)
class Norm:
    """A kind of batch norm that has a name of its own where several places share the arguments `shared`.

    Attributes:
        name: in the text.
        maker: the framework's.
        shared: arguments with their defaults.
    """

    name: str
    maker: str
    shared: Mapping[str, PlainValue]


class Language(ABC):
    """How the code of a framework says layers, modules and their calls.

    Attributes:
        layers: what the framework's module of layers is imported as, such as `nn`.
        begin: the lines with which a constructor begins.
        method: what a call of a module runs.
        identity: a layer that changes nothing.
        of_modules: names that every module has; a part of that name would hide them.
        functions: kinds that are said where they are applied, and have no arguments.
        with_tensors: kinds that hold tensors.
        of_map: the layer that makes a map of features.
        own_layers: the text of porter's own layers and functions, by name, of which model.py has copies; each
            uses only those before it.
        imports: the lines of the framework's imports, each with a pattern of the text that needs it.
        images: the axes of images of `{channels}`.
        norms: kinds of batch norms by the names that they get where several places share some arguments, with
            these arguments' defaults.
        passed: an argument that every constructor takes by name and passes on, such as `rngs`.
        rows: whether numbered uses of a block, one after the other, are a list without names.
    """

    layers: str
    begin: tuple[str, ...]
    method: str
    identity: str
    of_modules: frozenset[str]
    functions: Collection[str]
    with_tensors: Collection[str]
    of_map: Layer
    norms: Mapping[str, Norm]
    own_layers: Mapping[str, str]
    imports: Mapping[str, str]
    images: str
    passed: str = ""
    rows: bool = False

    @property
    @abstractmethod
    def imported(self) -> frozenset[str]:
        """Names that the text imports, and functions that it defines and calls."""

    @property
    @abstractmethod
    def taken(self) -> frozenset[str]:
        """Other names that it uses itself."""

    @abstractmethod
    def keep_map(self, layer: Layer) -> Layer | None:
        """Return the global pool that keeps the map of one that does not; None for other layers."""

    @abstractmethod
    def apply_function(self, function: str, inputs: Sequence[Expression]) -> Expression:
        """Return the expression of one of `functions` applied to values: of `maximum`, a and b,
        `torch.maximum(a, b)`.
        """

    @abstractmethod
    def construct(self, kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
        """Return the expression that makes a layer, `nn.Conv2d(3, 64, 7)`, without the arguments that are at
        their defaults.

        Args:
            texts: of all arguments, by name; of a norm under a name, without those that the name includes.
            name: the variable that holds the class, as `norm_layer` does; None for the class itself.
        """

    @abstractmethod
    def chain(self, items: tuple[Item, ...], row: bool) -> Bracketed:
        """Return the expression of layers one after the other, whose items are named, or of a `row` of them:
        `nnx.Sequential(a, b)`.
        """

    @abstractmethod
    def add_part(self, target: str, name: str, layer: Expression) -> Bracketed:
        """Return the call that adds a part to a module (`self`) or to a row, by its name as the inside of an
        f-string: `setattr(self, f"unit{index}", layer)`.
        """

    @abstractmethod
    def get_part(self, name: str) -> str:
        """Return the expression of the part of that name: `getattr(self, f"unit{index}")`."""

    @abstractmethod
    def refuse_size(self, x: str, rows: int, columns: int, message: str) -> list[str]:
        """Return the lines that raise an error where the input `x`, a map, has another size: the message,
        followed by the size that it has.
        """

    @abstractmethod
    def refuse_shape(self, x: str, axes: int, wrong_sizes: Sequence[str], message: str) -> list[str]:
        """Return the lines that raise an error where the input `x` has another number of axes, the batch with
        them, or where one of the conditions `wrong_sizes` holds: the message, followed by its shape.
        """

    def inline(self, kind: str, texts: Mapping[str, Expression]) -> Apply | None:
        """Return how a layer of constant arguments, the same in all uses of a block, is said where it is
        applied: `nnx.max_pool(x, (2, 2))`. None where it is a part of its module.
        """
        return None

    @property
    def module(self) -> str:
        """The class that modules extend."""
        return f"{self.layers}.Module"

    @property
    def row(self) -> str:
        """An empty row of modules."""
        return f"{self.layers}.Sequential()"

    @property
    def in_a_row(self) -> str:
        """The kind of parts that a loop can make."""
        return ROW if self.rows else CHAIN

    @property
    def passed_names(self) -> tuple[str, ...]:
        """How a function takes `passed`."""
        return (self.passed,) if self.passed else ()

    @property
    def passed_items(self) -> tuple[Item, ...]:
        """How a call passes `passed` on."""
        return tuple(Item(name, name) for name in self.passed_names)

    @property
    def reserved(self) -> frozenset[str]:
        """Names that no variable can have."""
        return self.imported | {"self", "index"}
