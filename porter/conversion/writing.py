"""A source's graph and tensors as the model files of a port: unchanged, with batch norms folded, or as a
stock class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import GraphError, PaddingError, UsageError
from porter.base.options import STOCK
from porter.base.package import __version__
from porter.conversion.refusals import under_own_names
from porter.conversion.stock import as_stock, norms_epsilon, stock_arrays
from porter.frameworks import Destination, Tensors, is_converted
from porter.graph import Graph, tensor_shapes
from porter.graph.folding import Folding, fold_norms
from porter.graph.left_out import notes_on
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, Size
from porter.port import Quantize
from porter.port.layer_names import layers_in
from porter.source.opened import Opened
from porter.zoos.implementation import StockClass, StockModel, stock_libraries


@dataclass(frozen=True)
class Target:
    """What is written.

    Attributes:
        size: rows and columns of the input, or ANY.
        dtype: of storage.
        allow_overflow: values that `dtype` cannot hold become infinite.
        quantize: see porter.port.Record.
    """

    framework: Destination
    size: Size
    dtype: Dtype = "float32"
    allow_overflow: bool = False
    quantize: Quantize | None = None

    def plan(self, opened: Opened, graph: Graph) -> Plan:
        """Make the plan of a graph, which has the source's only size if there is one."""
        plan = make_plan(graph, self.size, self.framework.CAPABILITIES)
        return replace(
            plan, only_size=opened.sizes.only or plan.only_size, notes=notes_on(opened.facts.left_out)
        )

    def stored(self, tensors: Tensors) -> dict[str, dict[str, Array]]:
        """Return tensors in the type of storage; a converter rounds what it has computed of them.

        Raises:
            PorterError: a value is too large for it.
        """
        dtype = "float32" if is_converted(self.framework) else self.dtype
        return {
            path: {
                role: cast(array, dtype, f"{path}:{role}", self.allow_overflow)
                for role, array in roles.items()
            }
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
    """Write a port under porter's own names (in Keras, those of keras.applications' layers), and return what
    went into its files.

    Args:
        folder: where the files are written.
        fold_bn: folds the batch norms that can be folded.

    Raises:
        PorterError: a site without an exact form, values that `dtype` cannot hold, or a missing framework.
    """
    folding = fold_norms(opened.graph, opened.tensors) if fold_bn else Folding(opened.graph, opened.tensors)
    framework = target.framework
    layers = {}
    if framework.NAMES_LAYERS:
        layers = layers_in(framework.NAME, opened.member, opened.facts, folding.graph)
    try:
        plan = target.plan(opened, folding.graph)
        if refused := framework.refusals(plan):
            raise under_own_names(refused, folding.graph, opened, target.size)[0]
        about = facts_of(opened)
        if target.quantize:
            about["porter.quantize"] = target.quantize
        model = framework.write(folder, plan, target.stored(folding.tensors), layers, target.dtype, about)
    except (GraphError, PaddingError) as error:
        raise under_own_names([error], folding.graph, opened, target.size)[0] from None
    filled = framework.fillings(plan.graph, folding.tensors)
    folded = folding.folded if fold_bn else None
    copies = _copies(folding.graph, plan)
    return Written(plan, model, folding.tensors, layers, filled, folded=folded, warnings=copies)


def _copies(graph: Graph, plan: Plan) -> tuple[str, ...]:
    """Return a warning if calls of one layer are layers of their own in a plan, each with a copy of the
    tensors; none if no call is.
    """
    apart = [
        node.path
        for node in graph.nodes
        if node.shares is not None and plan.graph.by_path[node.path].shares is None
    ]
    if not apart:
        return ()
    # the first call of the layer, which has the tensors
    holder = graph.by_path[apart[0]].shares
    why = "its padding differs from that of the layer's other calls"
    consequence = "training would make the copies differ"
    return (f"{apart[0]} has a copy of the tensors of {holder}, because {why}: {consequence}",)


def write_stock(folder: Path, opened: Opened, target: Target, library: str | None) -> Written:
    """Write a port as a stock class of the destination, which has to compute exactly the source's function,
    and return what went into its files. A class that takes every size may be the function at the port's size
    only: a warning says so.

    Args:
        library: see porter.zoos.implementation.stock_libraries.

    Raises:
        UsageError: there is no such class, or it computes another function than the source.
        PorterError: as `write_plain`.
    """
    member, facts = opened.member, opened.facts
    if member is None:
        raise UsageError(
            "only a recipe's variant has a stock class, and no recipe has this graph",
            where=str(STOCK),
            next="leave it out",
        )
    framework, libraries = target.framework, stock_libraries(target.framework.NAME, library)
    any_size = all(library.takes_any_size for library in libraries.values())
    epsilon = norms_epsilon(opened.graph)
    model = StockModel(
        member.variant, facts.classes, opened.sizes.built, facts.preprocess, facts.class_names, epsilon
    )
    stock_at = partial(as_stock, member, libraries, model, opened.graph, opened.tensors)
    # The class is compared for every size first: one that pads by the size, as TensorFlow does, is right at
    # every size, where the port's own pads are for one.
    size = ANY if any_size else target.size
    try:
        stock = stock_at(size)
    except UsageError:
        only_size = target.plan(opened, opened.graph).only_size
        if not any_size or only_size is None:
            raise
        size = only_size
        stock = stock_at(size)
    rows, columns = size
    fixed = None if rows is None or columns is None else (rows, columns)
    plan = replace(target, size=size).plan(opened, stock.graph)
    plan = replace(plan, only_size=opened.sizes.only or fixed)
    arrays, filled = stock_arrays(framework, stock, target.stored(stock.tensors), target.dtype)
    shapes_of_stock = tensor_shapes(stock.graph)
    layers = {
        path: layer.name
        for path, layer in stock.layers.items()
        if framework.NAMES_LAYERS or path in shapes_of_stock
    }
    digests = libraries[stock.zoo].write(folder, plan, model, arrays, layers, target.dtype)
    warnings = stock.builder.cautions
    if any_size and fixed is not None:
        only = f"is the source's function only at {rows}x{columns}"
        warnings += (f"{stock.builder.name} takes every input size, but {only}",)
    return Written(
        plan,
        digests,
        stock.tensors,
        layers,
        filled,
        absorbed=stock.absorbed,
        stock=stock.builder,
        warnings=warnings,
    )


def facts_of(opened: Opened) -> dict[str, str]:
    """Return what a model's own file says of itself, so that it can be used without port.json: by name, as
    text or as JSON, for example `{'porter.classes': '1000'}`.
    """
    file, member, source_facts = opened.file, opened.member, opened.facts
    facts = {
        "version": __version__,
        "source": file.file,
        "source_sha256": file.sha256,
        "variant": member.variant if member else None,
        "zoo": member.zoo.name if member else None,
        "licence": source_facts.licence,
        "native_size": opened.sizes.built,
        "preprocess": asdict(source_facts.preprocess) if source_facts.preprocess else None,
        "output": source_facts.output,
        "output_names": source_facts.output_names or None,
        "activation": source_facts.activation,
        "classes": source_facts.classes,
        "labels": source_facts.labels,
        "class_names": source_facts.class_names or None,
        "background": source_facts.background,
    }
    known_facts = {name: fact for name, fact in facts.items() if fact is not None}
    return {
        f"porter.{name}": fact if isinstance(fact, str) else json.dumps(fact)
        for name, fact in known_facts.items()
    }
