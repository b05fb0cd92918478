"""The names of layers that are called again: those of the first call, in a module of another name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from porter.graph.blocks import layer_words
from porter.graph.graph import Graph, Node


def name_calls_as_first(graph: Graph, names: Mapping[str, str]) -> dict[str, str]:
    """Return layers' names by path, in which those of a module that is called again are the first call's,
    with the number of the call at the outermost module, so that both calls are found as uses of one block:
    `tower/conv/conv2d_2` is `tower_2/conv`.
    """
    calls = _first_calls(graph)
    if not calls:
        return dict(names)
    # each part of a name keeps the separator behind it
    parts_of = {path: re.split(r"(?<=[./])", name) for path, name in _without_ops(graph, names).items()}
    depth = len(layer_words.common_parts(parts_of.values()))  # of the outermost module
    new_names = {path: "".join(parts) for path, parts in parts_of.items()}
    for path, (first_call, number) in calls.items():
        first_parts = parts_of.get(first_call, [])
        if path in names and len(first_parts) > depth + 1:
            outer, module, inner = first_parts[:depth], first_parts[depth], first_parts[depth + 1 :]
            word, separator = module[:-1], module[-1]
            new_names[path] = "".join([*outer, f"{word}_{number}{separator}", *inner])
    # names that would then be the same stay as they were
    return new_names if len({*new_names.values()}) == len(new_names) else dict(names)


def _without_ops(graph: Graph, names: Mapping[str, str]) -> dict[str, str]:
    """Return names without the op where a module is one layer that is called several times: `tower/conv`, not
    `tower/conv/conv2d`.
    """
    short_names = dict(names)
    # how many layers each module holds, itself and all that is within it
    layer_counts = Counter(
        name[: match.start()] for name in names.values() for match in re.finditer("/|$", name)
    )
    for holder, calls in graph.calls.items():
        module, _, _ = names.get(holder, "").rpartition("/")
        calls_in_module = sum(f"{names.get(call.path, '')}/".startswith(f"{module}/") for call in calls)
        module_is_one_layer = calls_in_module == len(calls) == layer_counts[module]
        if module and len(calls) > 1 and module_is_one_layer:
            short_names[holder] = module
    return short_names


def _first_calls(graph: Graph) -> dict[str, tuple[str, int]]:
    """Map the path of each layer in a later call to the layer of the first call and the number of the call,
    from 2. Layers without tensors belong to a call if they compute the same from its values.
    """
    numbers = {node.path: number for calls in graph.calls.values() for number, node in enumerate(calls, 1)}
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    first_calls: dict[str, tuple[str, int]] = {}
    taken: set[tuple[str, int]] = set()
    for node in graph.nodes:
        calls_before = [first_calls[source] for source in node.inputs if source in first_calls]
        if node.shares is not None:
            first_calls[node.path] = node.shares, numbers[node.path]
        # a node without tensors: find the reader of the first call's value that computes the same
        elif calls_before and not node.op.tensors(1):
            first_source, number = calls_before[0]
            candidates = [
                reader
                for reader in readers.get(first_source, [])
                if reader.path not in first_calls and (reader.path, number) not in taken
            ]
            counterpart = next(
                (reader for reader in candidates if _is_counterpart(node, reader, first_calls)), None
            )
            if counterpart is not None:
                first_calls[node.path] = counterpart.path, number
                taken.add((counterpart.path, number))
    return first_calls


def _is_counterpart(node: Node, of_first_call: Node, first_calls: Mapping[str, tuple[str, int]]) -> bool:
    """Return whether a node of a later call is what `of_first_call` is in the first one: it has the same op,
    and reads the values of its call as the other one does.

    Args:
        first_calls: by the path of a layer in a later call, the layer of the first call, and the number.
    """
    if node.op != of_first_call.op or len(node.inputs) != len(of_first_call.inputs):
        return False
    for source, first_source in zip(node.inputs, of_first_call.inputs, strict=True):
        if source in first_calls and first_calls[source][0] != first_source:
            return False
    return True
