"""The tensors of another file in place of those that an ONNX model stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from porter.base.commands import FILE, INSPECT
from porter.base.dtypes import NamedArrays, is_floating
from porter.base.errors import MappingError, some
from porter.filegraph.file_graph import FileGraph
from porter.formats.onnx.proto import OnnxGraph
from porter.graph.walks import upstream

_COUNTER = "num_batches_tracked"
"""The last part of the name of a counter of torch's, which no model computes with."""


def renewed(model: OnnxGraph, given: NamedArrays) -> OnnxGraph:
    """A model with other tensors, each in the type that the model states.

    Raises:
        MappingError: the model has no such tensor, or it has another shape, or a type that does not hold its
            numbers.
    """
    given = {name: array for name, array in given.items() if not name.endswith(_COUNTER)}
    if unexpected := [name for name in given if name not in model.arrays]:
        raise MappingError(f"the model has no tensor {_quoted(unexpected)}", next=_all())
    arrays = dict(model.arrays)
    for name, array in given.items():
        own = arrays[name]
        if own.shape != array.shape:
            raise MappingError(
                f"{name}: the model's has the shape {own.shape}, this one {array.shape}", next=_all()
            )
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(own.dtype)
        if not np.array_equal(arrays[name], array, equal_nan=is_floating(array)):
            said = f"{name}: the model's is {own.dtype}, which does not hold these numbers of {array.dtype}"
            raise MappingError(said, next=f"save the tensors as {own.dtype}")
    return replace(model, arrays=arrays)


def expect_every_tensor(model: OnnxGraph, graph: FileGraph, given: NamedArrays) -> None:
    """Refuses tensors that lack one that a layer of the graph is computed from. Scalars and whole numbers are
    no weights, and may lack.

    Raises:
        MappingError: it names the tensors that lack.
    """
    names = [stored.name for node in graph.nodes for stored in node.tensors.values()]
    initial = {tensor.name for tensor in model.proto.graph.initializer}
    used = upstream(
        names,
        lambda name: [source for source, _ in model.nodes[name].inputs] if name in model.nodes else [],
    )
    arrays = ((name, model.arrays[name]) for name in sorted(used & initial))
    if missing := [name for name, array in arrays if array.ndim and is_floating(array) and name not in given]:
        raise MappingError(f"there is no tensor for the model's {_quoted(missing)}", next=_all())


def _quoted(names: Sequence[str]) -> str:
    return some([f"'{name}'" for name in names])


def _all() -> str:
    lists = INSPECT.advise(file=FILE, tensors=True)
    return f"give every tensor of the model under its own name: {lists} lists them"
