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
        near = get_close_matches(lacking, words, 3, 0.5) or words[-3:]
        message = f"the file's graph has no value '{lacking}'"
        raise UsageError(
            message,
            where=OUTPUTS,
            next=f"write the file's own name of a value, such as {', '.join(near)}",
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
        count = 1 if first == 1 and wanted not in self.taken else max(first, self._last.get(wanted, 1))
        name = wanted if count == 1 else f"{wanted}_{count}"
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self._last[wanted] = max(count, self._last.get(wanted, 1))
        self.taken.add(name)
        return name


def with_scope_names(graph: FileGraph, titles: Mapping[str, str] | None = None) -> FileGraph:
    """Return the graph with each node named by the scope of its tensors.

    A node without tensors, or with a scope that others or an input share, has its name in `titles`, or keeps
    its own.
    """
    inputs = {INPUT, *(each.path for each in graph.further_inputs)}
    names = _new_names(graph, inputs, titles or {})
    nodes = (
        replace(node, name=names[node.name], inputs=tuple(names[name] for name in node.inputs))
        for node in graph.nodes
    )
    left_out = tuple(replace(each, after=names.get(each.after or "")) for each in graph.left_out)
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
    own = {scope for scope, count in counts.items() if scope and count == 1 and scope not in inputs}
    free = Names({*inputs, *own})
    names = {name: name for name in inputs}
    uses = Counter[str]()
    for name, scope in scopes.items():
        title = titles.get(name, name)
        # counted for nodes with scopes too, so that the number says which of that title a node is
        uses[title] += 1
        names[name] = scope if scope in own else free.take(title, uses[title])
    return names


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
    """Return the scope that a node's own tensors share: `Conv1` of `Conv1/kernel` and `Conv1/bias`. It is
    empty for a node without tensors, with tensors of several scopes, and that porter has no op for.
    """
    if isinstance(node.op, Foreign):
        return ""
    # ONNX models of torch have torch's names.
    own = [stored.name for stored in node.tensors.values() if stored.name not in computed]
    paths = [name.split("/" if "/" in name else ".")[:-1] for name in own]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)
