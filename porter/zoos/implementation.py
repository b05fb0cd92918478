"""What porter asks of an implementation that it did not write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from porter.base import options
from porter.base.dtypes import Dtype, NamedArrays
from porter.base.errors import CannotRun, PluginError, UsageError
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import LayerNames
from porter.graph.plan import Plan
from porter.padding import KnownSize, Size
from porter.zoos import tables
from porter.zoos.added import added_zoo


def expect_usual(what: str, foreign: Collection[str]) -> None:
    """Refuse options of the recipe that a zoo's code does not take, because its model would then be another
    one than the source.

    Args:
        what: the model, for errors.
        foreign: the names of such options.

    Raises:
        CannotRun: there are some.
    """
    if foreign:
        raise CannotRun(
            f"porter cannot build {what} with another value of {', '.join(sorted(foreign))}",
            next="build it in code of your own, and compare with that: "
            f"{options.REFERENCE('FILE.py:CALLABLE')}",
        )


@dataclass(frozen=True)
class StockClass:
    """How to build a model that gives logits: the name of a class or function, and its arguments, which JSON
    can hold.

    Attributes:
        cautions: what its files say otherwise than the port.
        options: the recipe's, which the arguments set otherwise than the zoo does.
    """

    name: str
    arguments: Mapping[str, Any]
    cautions: tuple[str, ...] = ()
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildRequest:
    """The model that an implementation is asked for.

    Attributes:
        size: of its input: rows and columns.
        options: the recipe's options that differ from the zoo's own.
    """

    variant: str
    classes: int
    size: KnownSize
    checkpoint: Checkpoint
    dtype: Dtype
    options: Mapping[str, Any] = field(default_factory=dict)


Build = Callable[[BuildRequest], Any]
"""Makes a zoo's own model, giving logits, with the weights of the checkpoint, loaded by its own names and in
its own axis order. So porter's mapping is not part of the reference.

Its framework, or its `engine`, runs it (porter.frameworks.Engine.run_reference).

Raises:
    UsageError: it has no such variant, or refuses the size.
    MappingError: checkpoint and model do not cover each other, or a shape differs.
    NotInstalled: a package that it needs is not installed.
    CannotRun: it cannot be built with these options.
"""


class StockModel(NamedTuple):
    """What a stock class is asked for.

    Attributes:
        size: rows and columns that the model is for.
        preprocess, class_names: see porter.port.Facts, for files that can hold them.
        epsilon: that of the source's norms; None where they have none or several.
    """

    variant: str
    classes: int
    size: KnownSize
    preprocess: Preprocess | None = None
    class_names: tuple[str, ...] = ()
    epsilon: float | None = None


class WriteStock(Protocol):
    """Writes a port under the names of a library's own class."""

    def __call__(
        self,
        folder: Path,
        plan: Plan,
        model: StockModel,
        arrays: NamedArrays,
        layers: LayerNames,
        dtype: Dtype,
    ) -> dict[str, str]:
        """Write a port's model files as the library's own class; as porter.frameworks.Destination.write.

        Args:
            arrays: all tensors of the class, by its names and in its axis order.
            layers: names of its layers by path.
        """


@dataclass(frozen=True)
class StockLibrary:
    """A library of models of a framework, whose names `--stock` writes.

    Attributes:
        stock_class: the class of a model, for an input of a size; a UsageError if there is none.
        takes_any_size: whether its models are right at every input size, not only at the size that they are
            built for.
    """

    stock_class: Callable[[StockModel, Size], StockClass]
    write: WriteStock
    takes_any_size: bool


@dataclass(frozen=True)
class Implementation:
    """An implementation of a zoo's variants that porter did not write.

    Attributes:
        runs_at_any_size: whether the model of a variant is right at every input size, not only at the one
            that it is built for.
        variables: shapes of its variables by name, for a variant and a number of classes, in the order in
            which it makes them, if its loader ignores the names in a file and uses their places; otherwise
            None.
        stock: if `--stock` writes its names.
        engine: what runs its models, if that is not the zoo's framework.
    """

    build: Build
    runs_at_any_size: Callable[[str], bool]
    variables: Callable[[str, int], Mapping[str, tuple[int, ...]]] | None = None
    stock: StockLibrary | None = None
    engine: str | None = None


_ELSEWHERE = {
    "tf_slim": "slim.networks:IMPLEMENTATION",
    "tensornets": "slim.tensornets:IMPLEMENTATION",
    "timm_tf": "timm:PADDED_AS_TF",
    "transformers_torch": "transformers:PADDED_AS_TORCH",
}
"""Where an implementation stands that is not the one of the module of its own name."""


def get_implementation(reference: str) -> Implementation:
    """Return the implementation of a recipe's `reference`. This imports no framework.

    Raises:
        UsageError: there is none.
        PluginError: a plug-in adds it, and it is none.
    """
    known = [name for references in tables.REFERENCES.values() for name in references]
    added = None if reference in known else added_zoo(reference)
    if added is not None:
        if isinstance(added.implementation, Implementation):
            return added.implementation
        kind = type(added.implementation).__name__
        raise PluginError(
            f"expected a porter.zoos.implementation.Implementation, got {kind}",
            where=f"porter.zoos: {reference}",
            next="mend the package that adds it; porter --version names it",
        )
    if reference not in known:
        raise UsageError(f"there is no reference '{reference}'", next=f"references are {', '.join(known)}")
    module, name = _ELSEWHERE.get(reference, f"{reference}:IMPLEMENTATION").split(":")
    implementation: Implementation = getattr(import_module(f"porter.zoos.{module}"), name)
    return implementation


def stock_libraries(framework: str, library: str | None) -> dict[str, StockLibrary]:
    """Return what writes the classes of `--stock LIBRARY`, by the zoo that the library has the models of;
    for None, those of the framework's default zoo.

    Raises:
        UsageError: the framework has no such library.
    """
    libraries = tables.STOCK.get(framework)
    if libraries is None:
        raise UsageError(f"{framework} has no stock classes", where=options.STOCK, next="leave it out")
    name = library or tables.DEFAULT_ZOOS[framework]
    if name not in libraries:
        raise UsageError(
            f"{framework} has no stock classes of {name}",
            where=options.STOCK,
            next=f"it has those of {', '.join(libraries)}",
        )
    libraries_by_zoo = {zoo: get_implementation(zoo).stock for zoo in libraries[name]}
    return {zoo: stock for zoo, stock in libraries_by_zoo.items() if stock is not None}
