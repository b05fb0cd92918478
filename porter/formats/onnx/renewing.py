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


def with_tensors(model: OnnxGraph, tensors: NamedArrays) -> OnnxGraph:
    """Return a model with other tensors, each in the type that the model states. torch's counters of batches,
    which no model of ONNX has, are left out.

    Raises:
        MappingError: the model has no such tensor, or it has another shape, or a type that does not hold its
            numbers.
    """
    tensors = {name: array for name, array in tensors.items() if not name.endswith(_COUNTER)}
    if unexpected := [name for name in tensors if name not in model.arrays]:
        raise MappingError(f"the model has no tensor {_quote_names(unexpected)}", next=_all_tensors_hint())
    arrays = dict(model.arrays)
    for name, array in tensors.items():
        own_array = arrays[name]
        if own_array.shape != array.shape:
            raise MappingError(
                f"{name}: the model's has the shape {own_array.shape}, this one {array.shape}",
                next=_all_tensors_hint(),
            )
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(own_array.dtype)
        if not np.array_equal(arrays[name], array, equal_nan=is_floating(array)):
            own_type = own_array.dtype
            message = f"{name}: the model's is {own_type}, which does not hold these numbers of {array.dtype}"
            raise MappingError(message, next=f"save the tensors as {own_type}")
    return replace(model, arrays=arrays)


def expect_every_tensor(model: OnnxGraph, graph: FileGraph, tensors: NamedArrays) -> None:
    """Refuse tensors among which one is missing that a layer of the graph is computed from. Scalars and whole
    numbers are no weights, and may be missing.

    Raises:
        MappingError: it names the tensors that lack.
    """
    names = [stored.name for node in graph.nodes for stored in node.tensors.values()]
    initial = {tensor.name for tensor in model.proto.graph.initializer}

    def sources_of(name: str) -> list[str]:
        """Return the names of what a tensor is computed from; none for one that is stored."""
        return [source for source, _ in model.nodes[name].inputs] if name in model.nodes else []

    used = upstream(names, sources_of)
    arrays = ((name, model.arrays[name]) for name in sorted(used & initial))
    if missing := [
        name for name, array in arrays if array.ndim and is_floating(array) and name not in tensors
    ]:
        raise MappingError(
            f"there is no tensor for the model's {_quote_names(missing)}", next=_all_tensors_hint()
        )


def _quote_names(names: Sequence[str]) -> str:
    return some([f"'{name}'" for name in names])


def _all_tensors_hint() -> str:
    """Return the advice to give every tensor, with the command that lists them."""
    lists = INSPECT.advise(file=FILE, tensors=True)
    return f"give every tensor of the model under its own name: {lists} lists them"
