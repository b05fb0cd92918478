"""Names that nothing else has, and the names of a graph's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise

from porter.base.errors import UsageError
from porter.base.options import OUTPUTS
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign
from porter.graph import INPUT


def expect_values(names: Sequence[str], values: Iterable[str]) -> None:
    """Expect that a file's graph has values of these names, which a user gives.

    Raises:
        UsageError: it lacks one of them.
    """
    words = sorted(values)
    lacking = next((name for name in names if name not in set(words)), None)
    if lacking is not None:
        examples = get_close_matches(lacking, words, 3, 0.5) or words[-3:]
        message = f"the file's graph has no value '{lacking}'"
        raise UsageError(
            message,
            where=OUTPUTS,
            next=f"write the file's own name of a value, such as {', '.join(examples)}",
        )


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, or the first of `name_2`, `name_3`, ... that is free if it is taken. Of many names,
    `Names` gives each in constant time.
    """
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


class Names:
    """Names that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._last: dict[str, int] = {}

    def take(self, wanted: str, first: int = 1) -> str:
        """Take `wanted`, or if that is taken the first free one of `wanted_2`, `wanted_3`, ... from the
        number `first` on, and return it.
        """
        last_number = self._last.get(wanted, 1)  # the search goes on there
        is_free = first == 1 and wanted not in self.taken
        number = 1 if is_free else max(first, last_number)
        name = wanted if number == 1 else f"{wanted}_{number}"
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self._last[wanted] = max(number, last_number)
        self.taken.add(name)
        return name


def with_scope_names(graph: FileGraph, titles: Mapping[str, str] | None = None) -> FileGraph:
    """Return the graph with each node named by the scope of its tensors: `Conv1` if these are `Conv1/kernel`
    and `Conv1/bias`.

    A node without tensors, or with a scope that others or an input share, has its name in `titles`, or keeps
    its own.
    """
    inputs = {INPUT, *(image.path for image in graph.further_inputs)}
    names = _new_names(graph, inputs, titles or {})
    nodes = (
        replace(node, name=names[node.name], inputs=tuple(names[name] for name in node.inputs))
        for node in graph.nodes
    )
    left_out = tuple(replace(layer, after=names.get(layer.after or "")) for layer in graph.left_out)
    return replace(
        graph,
        nodes=tuple(nodes),
        outputs=tuple(names[name] for name in graph.outputs),
        given={tap: names[name] for tap, name in graph.given.items()},
        left_out=left_out,
    )


def _new_names(graph: FileGraph, inputs: Collection[str], titles: Mapping[str, str]) -> dict[str, str]:
    """Return the new names of nodes by the old ones: the scope in the file if no other node or input has it,
    otherwise the title with a number.
    """
    scopes = {node.name: _scope(node, graph.evaluated) for node in graph.nodes}
    counts = Counter(scopes.values())
    unique_scopes = {scope for scope, count in counts.items() if scope and count == 1 and scope not in inputs}
    other_names = Names({*inputs, *unique_scopes})
    new_names = {name: name for name in inputs}
    title_counts = Counter[str]()
    for name, scope in scopes.items():
        title = titles.get(name, name)
        # counted for nodes with scopes too, so that the number says which of that title a node is
        title_counts[title] += 1
        new_names[name] = scope if scope in unique_scopes else other_names.take(title, title_counts[title])
    return new_names


def node_titles(paths: Mapping[str, tuple[str, ...]], ops: Mapping[str, str]) -> dict[str, str]:
    """Return the titles of nodes by their names: `layer1/0/conv1` for a node of the modules layer1 and 0.

    A last word that is the node's op is left out where the module computes nothing else and holds no other
    module: `stem/pool`, not `stem/pool/MaxPool`. Nodes whose title would be empty get none.

    Args:
        paths: by a node's name, the modules that it is in, outermost first, and a last word of its own.
        ops: by a node's name, the name of its op.
    """
    modules = Counter(path[:-1] for path in paths.values())
    # In sorted order a module stands directly before those that it holds.
    outer_modules = {outer for outer, inner in pairwise(sorted(modules)) if inner[: len(outer)] == outer}
    title_of = {}
    for name, (*module, word) in paths.items():
        is_alone = modules[tuple(module)] == 1 and tuple(module) not in outer_modules
        title_of[name] = "/".join(module if is_alone and word == ops[name] else (*module, word))
    return {name: title for name, title in title_of.items() if title.strip("/")}


def _scope(node: FileNode, computed: Collection[str]) -> str:
    """Return the scope that the names of a node's tensors share: `Conv1` of `Conv1/kernel` and `Conv1/bias`.
    It is empty for a node without tensors, with tensors of several scopes, and that porter has no op for.

    Args:
        computed: names of tensors that the file does not have, since porter computed them.
    """
    if isinstance(node.op, Foreign):
        return ""
    names = [stored.name for stored in node.tensors.values() if stored.name not in computed]
    # ONNX models of torch have torch's names, whose parts are joined by dots
    scopes = [name.split("/" if "/" in name else ".")[:-1] for name in names]
    shared_parts: list[str] = []
    for parts in zip(*scopes, strict=False):
        if len(set(parts)) > 1:
            break
        shared_parts.append(parts[0])
    return "/".join(shared_parts)
