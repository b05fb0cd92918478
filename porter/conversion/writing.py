"""A source's graph and tensors as the model files of a port: unchanged, with batch norms folded, or as a stock class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import UsageError
from porter.base.package import __version__
from porter.conversion.stock import as_stock, stock_arrays
from porter.frameworks import Destination, Tensors
from porter.graph import Graph, tensor_shapes
from porter.graph.folding import Folding, fold_norms
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, Size
from porter.recipe import expand, layer_names
from porter.source.opened import Opened
from porter.zoos.implementation import StockClass, StockModel, stock_library
from porter.zoos.tables import DEFAULT_ZOOS


@dataclass(frozen=True)
class Target:
    """What is written.

    Attributes:
        size: rows and columns of the input, or ANY.
        dtype: of storage.
        allow_overflow: values that `dtype` cannot hold become infinite.
    """

    framework: Destination
    size: Size
    dtype: Dtype = "float32"
    allow_overflow: bool = False

    def plan(self, opened: Opened, graph: Graph) -> Plan:
        """The plan of a graph, which has the source's only size if there is one."""
        plan = make_plan(graph, self.size, self.framework.CAPABILITIES)
        return replace(plan, only_size=opened.sizes.only or plan.only_size)

    def stored(self, tensors: Tensors) -> dict[str, dict[str, Array]]:
        """Tensors in the type of storage.

        Raises:
            PorterError: a value is too large for it.
        """
        return {
            path: {role: cast(array, self.dtype, f"{path}:{role}", self.allow_overflow) for role, array in roles.items()}
            for path, roles in tensors.items()
        }


@dataclass(frozen=True)
class Written:
    """What went into a port's model files, and how it differs from the source.

    Attributes:
        model: the sha256 of each file by its name.
        tensors: canonical; only those that the source gives.
        layers: names of the destination's layers by path, where they are not porter's own.
        filled: destination tensors that no source tensor gives, with the number in them.
        folded, absorbed: see porter.port.Record.
        stock: the class whose names the files have.
    """

    plan: Plan
    model: Mapping[str, str]
    tensors: Tensors
    layers: Mapping[str, str]
    filled: Mapping[str, int]
    folded: Mapping[str, str] | None = None
    absorbed: Mapping[str, str] = field(default_factory=dict)
    stock: StockClass | None = None
    warnings: tuple[str, ...] = ()


def write_plain(folder: Path, opened: Opened, target: Target, fold_bn: bool = False) -> Written:
    """Writes a port under porter's own names (in Keras, those of keras.applications' layers). `fold_bn` folds the batch norms that
    can be folded.

    Raises:
        PorterError: a site without an exact form, values that `dtype` cannot hold, or a missing framework.
    """
    folding = fold_norms(opened.graph, opened.tensors) if fold_bn else Folding(opened.graph, opened.tensors)
    framework, plan = target.framework, target.plan(opened, folding.graph)
    layers = _default_layers(opened, framework, folding.graph)
    model = framework.write(folder, plan, target.stored(folding.tensors), layers, target.dtype, facts_of(opened))
    filled = framework.fillings(plan.graph, folding.tensors)
    return Written(plan, model, folding.tensors, layers, filled, folded=folding.folded if fold_bn else None)


def write_stock(folder: Path, opened: Opened, target: Target) -> Written:
    """Writes a port as the destination's stock class, which has to compute exactly the source's function.

    Raises:
        UsageError: there is no such class, or it computes another function than the source.
        PorterError: as `write_plain`.
    """
    if opened.member is None:
        raise UsageError("a stock class is a variant's, and no recipe has this graph", where="--stock", next="leave it out")
    framework, right_at = target.framework, target.plan(opened, opened.graph).only_size or ANY
    library = stock_library(framework.NAME)
    taken = right_at if library.takes_any_size else target.size
    stock = as_stock(opened.member, framework, opened.graph, opened.tensors, opened.facts.classes, taken)
    rows, columns = taken
    fixed = None if rows is None or columns is None else (rows, columns)
    plan = replace(target.plan(opened, stock.graph), only_size=fixed)
    arrays, filled = stock_arrays(framework, stock, target.stored(stock.tensors), target.dtype)
    held = tensor_shapes(stock.graph)
    layers = {path: layer.name for path, layer in stock.layers.items() if framework.NAMES_LAYERS or path in held}
    model = library.write(folder, plan, StockModel(opened.member.variant, opened.facts.classes), arrays, layers, target.dtype)
    warnings: tuple[str, ...] = ()
    if library.takes_any_size and fixed is not None:
        warnings = (f"{stock.builder.name} takes every input size, but is the source's function only at {rows}x{columns}",)
    return Written(plan, model, stock.tensors, layers, filled, absorbed=stock.absorbed, stock=stock.builder, warnings=warnings)


def facts_of(opened: Opened) -> dict[str, str]:
    """What a model's own file says of itself, so that it can be used without port.json: by name, as text or as JSON."""
    file, member, said = opened.file, opened.member, opened.facts
    facts = {
        "version": __version__,
        "source": file.file,
        "source_sha256": file.sha256,
        "variant": member.variant if member else None,
        "zoo": member.zoo.name if member else None,
        "licence": said.licence,
        "native_size": opened.sizes.built,
        "preprocess": asdict(said.preprocess) if said.preprocess else None,
        "output": said.output,
        "output_names": said.output_names or None,
        "activation": said.activation,
        "classes": said.classes,
        "labels": said.labels,
        "class_names": said.class_names or None,
        "background": said.background,
    }
    stated = {name: fact for name, fact in facts.items() if fact is not None}
    return {f"porter.{name}": fact if isinstance(fact, str) else json.dumps(fact) for name, fact in stated.items()}


def _default_layers(opened: Opened, framework: Destination, graph: Graph) -> dict[str, str]:
    """Layer names by path, for destinations whose layers carry names: the file's own without a recipe, otherwise those of the
    destination framework's default zoo.
    """
    member = opened.member
    if not framework.NAMES_LAYERS:
        return {}
    if member is None:
        return {path: name for path, name in opened.facts.names.items() if path in graph.by_path}
    default = DEFAULT_ZOOS[framework.NAME]
    if default not in member.recipe.zoos or not member.recipe.zoos[default].has(member.variant):
        return {}
    named = member.recipe.member(member.variant, default)
    return {path: layer.name for path, layer in layer_names(named, expand(named)).items() if path in graph.by_path}
