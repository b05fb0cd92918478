"""A file whose values are cut off: what reads one of them reads an input of the file instead."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from importlib import import_module

from porter.formats.tensorflow import import_tensorflow


def cut_tensors(content: bytes, cut: Collection[int], shown: Collection[int]) -> tuple[bytes, dict[int, int]]:
    """Return a file with the operators of `content`, in its order, in which new inputs are read in place of
    the tensors that are cut; and the index of each new input by that of its tensor. So the operators behind
    a value can be run on other numbers. The new inputs are in none of the file's signatures.

    Args:
        content: of a file with one subgraph.
        cut: the indices of tensors.
        shown: the indices of tensors that are outputs too: a delegate keeps no others.
    """
    import_tensorflow()
    flatbuffer = import_module("tensorflow.lite.tools.flatbuffer_utils")
    model = flatbuffer.convert_bytearray_to_object(bytearray(content))
    (graph,) = model.subgraphs
    replacements = dict[int, int]()
    for index in cut:
        replacements[index] = len(graph.tensors)
        new_input = copy(graph.tensors[index])
        new_input.name, new_input.buffer = f"cut/{index}".encode(), 0  # buffer 0 is the empty one
        graph.tensors.append(new_input)
    for operator in graph.operators:
        operator.inputs = [replacements.get(index, index) for index in operator.inputs]
    graph.inputs = [*graph.inputs, *replacements.values()]
    graph.outputs = [*dict.fromkeys((*graph.outputs, *shown))]
    return bytes(flatbuffer.convert_object_to_bytearray(model)), replacements
