"""A graph's nodes in groups: chains and parallel parts with one entry and one exit, by the layers' names
where these say more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from porter.graph.blocks import layer_words
from porter.graph.graph import Graph, Node
from porter.graph.ops import Conv
from porter.graph.walks import in_order

FEWEST_UNITS = 6
"""The least number of chains of the same ops for which these are a block."""
MOST_SINGLE = 60
"""Up to so many nodes outside of blocks, each that has a name keeps it. Of more nodes, chains of the same ops
become blocks, whatever the names.
"""


@dataclass(frozen=True)
class Leaf:
    """A node by its name in the group around it; `own` is whether the name comes from the layer's."""

    name: str
    node: Node
    own: bool = True


@dataclass(frozen=True)
class Group:
    """Nodes that follow each other, with one value that they read and one that is read.

    Attributes:
        name: in the group around it.
        members: each after what it reads.
        unit: a chain that was found by its ops, not by its layers' names.
        module: it is one of the source's modules; `counted` if its name there is a number.
        stage: a module that holds a row of modules, or is beside such a one.
        block: the name of the block that it is a use of; None where there is one use only.
    """

    name: str
    members: tuple[Leaf | Group, ...]
    unit: bool = False
    module: bool = False
    counted: bool = False
    stage: bool = False
    block: str | None = None

    def nodes(self) -> Iterator[Node]:
        """The nodes of the group and of those within it, in order."""
        for member in self.members:
            if isinstance(member, Group):
                yield from member.nodes()
            else:
                yield member.node


@dataclass(frozen=True)
class _Run:
    """Nodes between two values of which everything after them is computed, and the part of a name that they
    share.
    """

    nodes: tuple[Node, ...]
    label: str | None


def outline(graph: Graph, names: Mapping[str, str]) -> Group:
    """The whole graph as nested groups.

    Args:
        names: what the layers are called, by path, as a person says them.
    """
    return _Outline(graph, names).root()


class _Outline:
    def __init__(self, graph: Graph, names: Mapping[str, str]) -> None:
        order = in_order(
            graph.outputs, lambda path: graph.by_path[path].inputs if path in graph.by_path else ()
        )
        self.nodes = [graph.by_path[path] for path in order if path in graph.by_path]
        self.readers = Counter(graph.outputs)
        self.readers.update(source for node in graph.nodes for source in dict.fromkeys(node.inputs))
        self.by_path = graph.by_path
        chosen = layer_words.chosen(names.values())
        self.names = names
        labels = {path: layer_words.labels(name) for path, name in names.items() if name in chosen}
        self.around = len(layer_words.common(labels.values())) if len(labels) > 1 else 0
        self.labels = {path: parts[self.around :] for path, parts in labels.items()}
        self.units = self._frequent_units()

    def root(self) -> Group:
        return Group("", distinct(self._grouped(self.nodes, 0)))

    def _boundaries(self, nodes: Sequence[Node]) -> list[int]:
        """The places after which only the node before them is read."""
        places = {node.path: index for index, node in enumerate(nodes)}
        last: dict[str, int] = {}
        inside: Counter[str] = Counter()
        for index, node in enumerate(nodes):
            for source in dict.fromkeys(node.inputs):
                last[source] = index
                inside[source] += 1
        last.update((path, len(nodes)) for path in places if self.readers[path] > inside[path])
        boundaries, furthest = [], -1
        for index, node in enumerate(nodes):
            before = [last.get(nodes[index - 1].path, index)] if index else []
            furthest = max(
                furthest, *before, *(last[source] for source in node.inputs if source not in places), -1
            )
            if furthest <= index:
                boundaries.append(index)
        return boundaries if boundaries[-1:] == [len(nodes) - 1] else [*boundaries, len(nodes) - 1]

    def _runs(self, nodes: Sequence[Node], depth: int) -> list[_Run]:
        """Neighbours with the same label are one; an activation or a norm without a name of its own belongs
        to those before it.
        """
        runs: list[_Run] = []
        start = 0
        for end in self._boundaries(nodes):
            members = tuple(nodes[start : end + 1])
            run, start = _Run(members, self._label(members, depth)), end + 1
            follows = (
                len(members) == 1
                and members[0].path not in self.labels
                and layer_words.follows(members[0].op_name)
            )
            if runs and runs[-1].label is not None and (run.label == runs[-1].label or follows):
                runs[-1] = replace(runs[-1], nodes=runs[-1].nodes + members)
            else:
                runs.append(run)
        return runs

    def _label(self, nodes: Sequence[Node], depth: int) -> str | None:
        """The part of the name at `depth` that most nodes share with the last one."""
        known = [
            self.labels[node.path][depth] for node in nodes if len(self.labels.get(node.path, ())) > depth
        ]
        labels = (
            known[0]
            if len(set(known)) == 1
            else (self.labels.get(nodes[-1].path, ())[depth : depth + 1] or (None,))[0]
        )
        return labels if 2 * known.count(labels or "") >= len(known) else None

    def _grouped(self, nodes: Sequence[Node], depth: int, outer: tuple[str, ...] = ()) -> list[Leaf | Group]:
        """The runs of `nodes` as groups. `outer` are parts of the names before `depth` that no group around
        them has.
        """
        grouped: list[Leaf | Group] = []
        single: list[Node] = []
        runs = self._runs(nodes, depth)
        lengths = self._shared_lengths(runs, depth)
        for run in runs:
            nameless = all(node.path not in self.labels for node in run.nodes)
            if len(run.nodes) == 1 or (run.label is None and not (nameless and _is_region(run.nodes))):
                single += run.nodes
                continue
            grouped += self._leaves(single, depth - len(outer))
            single = []
            stem, _ = layer_words.numbered(run.label or "")
            shared = self._shared(run, depth)[: lengths.get(stem)]
            grouped += self._groups_of(run, shared, depth, outer)
        return [*grouped, *self._leaves(single, depth - len(outer))]

    def _shared_lengths(self, runs: Sequence[_Run], depth: int) -> dict[str, int]:
        """How many parts of names the groups of numbered runs are called by, by the stem of their labels: as
        many for all, so that beside `block2` there is `block1`, though all layers of that may be
        `block1_branch2...`.
        """
        lengths: dict[str, int] = {}
        for run in runs:
            stem, number = layer_words.numbered(run.label or "")
            if number is not None:
                length = len(self._shared(run, depth))
                lengths[stem] = min(length, lengths.get(stem, length))
        return lengths

    def _groups_of(
        self, run: _Run, shared: tuple[str, ...], depth: int, outer: tuple[str, ...]
    ) -> list[Leaf | Group]:
        """A run as one block, or as a stage of blocks; the blocks of a stage without a number stand for
        themselves, with the stage's name in theirs.

        Args:
            shared: parts of names from `depth` on that the run is called by.
        """
        inner_depth = depth + len(shared)
        inner = self._runs(run.nodes, inner_depth) if shared else []
        name = layer_words.local_name("_".join((*outer, *shared)))
        if not self._is_stage(inner, shared):
            return [self._block(run.nodes, name, inner_depth)]
        if layer_words.numbered(shared[-1])[1] is None:
            return self._grouped(run.nodes, inner_depth, (*outer, *shared))
        return [Group(name, distinct(self._grouped(run.nodes, inner_depth)))]

    def _shared(self, run: _Run, depth: int) -> tuple[str, ...]:
        """The parts of names from `depth` on that the layers of a run share which have its label."""
        known = (self.labels[node.path][depth:] for node in run.nodes if node.path in self.labels)
        return layer_words.common(parts for parts in known if parts[:1] == (run.label,))

    def _block(self, nodes: Sequence[Node], name: str, depth: int) -> Group:
        """A group of nodes as one block, numbered as the names of its layers are."""
        ends = {
            layer_words.numbered(self.labels[node.path][-1])[1]
            for node in nodes
            if len(self.labels.get(node.path, ())) > depth
        }
        number = ends.pop() if len(ends) == 1 and name and layer_words.numbered(name)[1] is None else None
        leaves = self._leaves(nodes, max(depth, 1))
        if number is None:
            return Group(name or "block", distinct(leaves))
        trimmed = (
            replace(leaf, name=layer_words.without_number(leaf.name)) if isinstance(leaf, Leaf) else leaf
            for leaf in leaves
        )
        return Group(f"{name}{number}", distinct(trimmed))

    def _is_stage(self, runs: Sequence[_Run], shared: Sequence[str]) -> bool:
        """Whether runs are numbered blocks of one name."""
        counted = [layer_words.numbered(run.label) for run in runs if run.label]
        if len(counted) < max(len(runs), 2) or sum(number is None for _, number in counted) > 1:
            return False
        if layer_words.numbered(shared[-1])[1] is None:
            return all(len(run.nodes) > 1 for run in runs)
        return len({stem for stem, _ in counted}) == 1 and any(_is_region(run.nodes) for run in runs)

    def _leaves(self, nodes: Sequence[Node], depth: int) -> list[Leaf | Group]:
        """Nodes by the rest of their layers' names. One without a name of its own is named after its op and
        what it follows.
        """
        by_name: dict[str, str] = {}
        members: list[Leaf | Group] = []
        chains = {chain[0].path: chain for chain in self._chains(nodes, len(nodes) > MOST_SINGLE)}
        within = {node.path for chain in chains.values() for node in chain[1:]}
        for node in nodes:
            if node.path in chains:
                inner = [
                    Leaf(layer_words.short_word(member.op_name), member, own=False)
                    for member in chains[node.path]
                ]
                members.append(Group("conv", distinct(inner), unit=True))
            elif node.path not in within:
                by_name[node.path] = self._local(node, depth, by_name.get(node.source))
                members.append(Leaf(by_name[node.path], node, node.path in self.labels))
        return members

    def _local(self, node: Node, depth: int, before: str | None) -> str:
        """A node's name in its group."""
        word = layer_words.short_word(node.op_name)
        if depth <= 0 and not self.around:
            return node.path.replace("/", "_")
        if node.path in self.labels:
            rest = layer_words.rest(self.names[node.path], self.around + depth)
            return word if not rest or rest.isdigit() else layer_words.local_name(rest)
        if before is not None and word == "act" and node.source in self.labels:
            stem, _, end = before.rpartition("_")
            return f"{stem if end.lower() in ('bn', 'norm') else before}_{word}".lstrip("_")
        return word

    def _chains(self, nodes: Sequence[Node], named: bool) -> list[tuple[Node, ...]]:
        """The chains among `nodes` that are one of the frequent units."""
        chains: list[tuple[Node, ...]] = []
        for stretch in self._stretches(nodes, named):
            kinds = tuple(_kind(node) for node in stretch)
            index = 0
            while index < len(stretch):
                size = max(
                    (len(unit) for unit in self.units if kinds[index : index + len(unit)] == unit), default=0
                )
                chains += [tuple(stretch[index : index + size])] if size else []
                index += size or 1
        return chains

    def _stretches(self, nodes: Sequence[Node], named: bool) -> list[list[Node]]:
        """Nodes that only pass their value on to the next, without names of their own unless `named`."""
        stretches: list[list[Node]] = []
        for node in nodes:
            if (node.path in self.labels and not named) or len(node.inputs) > 1:
                continue
            before = stretches[-1][-1].path if stretches else ""
            if node.inputs == (before,) and self.readers[before] == 1:
                stretches[-1].append(node)
            else:
                stretches.append([node])
        return stretches

    def _frequent_units(self) -> set[tuple[str, ...]]:
        """Kinds of nodes in a row that stand in the graph more than once."""
        counts: Counter[tuple[str, ...]] = Counter()
        for stretch in self._stretches(self.nodes, named=True):
            kinds = [_kind(node) for node in stretch]
            starts = [
                index
                for index, kind in enumerate(kinds)
                if kind in ("conv", "depthwise") and kinds[index - 1 : index] not in (["conv"], ["depthwise"])
            ]
            counts.update(tuple(kinds[start:end]) for start, end in pairwise([*starts, len(kinds)]))
        return {unit for unit, count in counts.items() if count >= FEWEST_UNITS and len(unit) > 1}


def _kind(node: Node) -> str:
    return "depthwise" if isinstance(node.op, Conv) and node.op.groups > 1 else node.op_name


def _is_region(nodes: Sequence[Node]) -> bool:
    return any(len(node.inputs) > 1 for node in nodes)


def distinct(members: Iterator[Leaf | Group] | Sequence[Leaf | Group]) -> tuple[Leaf | Group, ...]:
    """Members of which no two have one name; units are numbered from 1."""
    listed = list(members)
    units = sum(isinstance(member, Group) and member.unit for member in listed)
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    renamed: list[Leaf | Group] = []
    count = 0
    for member in listed:
        name = member.name
        if isinstance(member, Group) and member.unit and units > 1:
            count += 1
            name = f"{layer_words.without_number(member.name)}{count}"
        while name in taken:
            numbers[member.name] = numbers.get(member.name, 1) + 1
            name = f"{member.name}_{numbers[member.name]}"
        taken.add(name)
        renamed.append(replace(member, name=name))
    return tuple(renamed)
