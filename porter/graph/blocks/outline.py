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
from porter.graph.walks import in_order, reads_within

FEWEST_UNITS = 6
"""The least number of chains of the same ops for which these are a block."""
MOST_SINGLE = 60
"""Up to so many nodes outside of blocks, each that has a name keeps it. Of more nodes, chains of the same ops
become blocks, whatever the names.
"""


@dataclass(frozen=True)
class Leaf:
    """A node of the graph in the outline.

    Attributes:
        name: in the group around it.
        own: the name comes from the layer's name, and not from the node's op.
    """

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
        """Yield the nodes of the group and of those within it, in order."""
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
    """Return the whole graph as nested groups, by how its values flow and by the names of its layers. The
    root group has no name.

    Args:
        names: what the layers are called, by path, as a person says them.
    """
    return _Outline(graph, names).root()


class _Outline:
    """The grouping of one graph's nodes by their order and their layers' names.

    Attributes:
        nodes: in the order in which they run.
        readers: the number of nodes that read each value; an output is read once more.
        labels: the parts of each layer's name that says more than its op, without those that all have.
        around: how many parts at the beginning of these names all have.
        units: frequent chains, see `_frequent_units`.
    """

    def __init__(self, graph: Graph, names: Mapping[str, str]) -> None:
        order = in_order(graph.outputs, reads_within(graph.by_path))
        self.nodes = [graph.by_path[path] for path in order if path in graph.by_path]
        self.readers = Counter(graph.outputs)
        self.readers.update(source for node in graph.nodes for source in dict.fromkeys(node.inputs))
        self.by_path = graph.by_path
        telling = layer_words.telling_names(names.values())
        self.names = names
        labels = {path: layer_words.labels(name) for path, name in names.items() if name in telling}
        self.around = len(layer_words.common_parts(labels.values())) if len(labels) > 1 else 0
        self.labels = {path: parts[self.around :] for path, parts in labels.items()}
        self.units = self._frequent_units()

    def root(self) -> Group:
        """Return the group of all nodes."""
        return Group("", with_unique_names(self._group_runs(self.nodes, 0)))

    def _boundaries(self, nodes: Sequence[Node]) -> list[int]:
        """Return the indices behind which `nodes` can be split: of the nodes up to such an index, later ones
        read only the one that stands there. If b reads a, and c reads a and b, these are the indices of a and
        c. The last index is always among them.
        """
        paths = {node.path for node in nodes}
        last_reader: dict[str, int] = {}  # the index of the last node that reads a value
        inner_readers: Counter[str] = Counter()
        for index, node in enumerate(nodes):
            for source in dict.fromkeys(node.inputs):
                last_reader[source] = index
                inner_readers[source] += 1
        for path in paths:
            is_read_outside = self.readers[path] > inner_readers[path]  # or an output
            if is_read_outside:
                last_reader[path] = len(nodes)
        boundaries = []
        furthest = -1  # the last reader of the values that were given, or first read, before this index
        for index, node in enumerate(nodes):
            if index > 0:
                furthest = max(furthest, last_reader.get(nodes[index - 1].path, index))
            for source in node.inputs:
                if source not in paths:
                    furthest = max(furthest, last_reader[source])
            if furthest <= index:
                boundaries.append(index)
        last = len(nodes) - 1
        return boundaries if boundaries[-1:] == [last] else [*boundaries, last]

    def _runs(self, nodes: Sequence[Node], depth: int) -> list[_Run]:
        """Split nodes into runs between boundaries. Neighbours with the same label are one run; an activation
        or a norm without a name of its own belongs to those before it.

        Args:
            depth: which part of the layers' names is the label.
        """
        runs: list[_Run] = []
        start = 0
        for end in self._boundaries(nodes):
            members = tuple(nodes[start : end + 1])
            start = end + 1
            run = _Run(members, self._label(members, depth))
            is_nameless = len(members) == 1 and members[0].path not in self.labels
            belongs_to_previous = is_nameless and layer_words.belongs_to_previous(members[0].op_name)
            previous_label = runs[-1].label if runs else None
            if previous_label is not None and (run.label == previous_label or belongs_to_previous):
                runs[-1] = replace(runs[-1], nodes=runs[-1].nodes + members)
            else:
                runs.append(run)
        return runs

    def _label(self, nodes: Sequence[Node], depth: int) -> str | None:
        """Return the part at `depth` of the layers' names, if all that have one share it, or at least half
        share that of the last node; otherwise None.
        """
        names = (self.labels.get(node.path, ()) for node in nodes)
        parts = [name[depth] for name in names if len(name) > depth]
        if len(set(parts)) == 1:
            return parts[0]
        last_name = self.labels.get(nodes[-1].path, ())
        last_part = last_name[depth] if len(last_name) > depth else None
        return last_part if 2 * parts.count(last_part or "") >= len(parts) else None

    def _group_runs(
        self, nodes: Sequence[Node], depth: int, outer: tuple[str, ...] = ()
    ) -> list[Leaf | Group]:
        """Return the runs of `nodes` as groups, and nodes that are in none as leaves.

        Args:
            depth: how many parts of the layers' names the groups around them have used.
            outer: of these, the parts that no group around them is called by.
        """
        members: list[Leaf | Group] = []
        ungrouped: list[Node] = []  # since the last group
        runs = self._runs(nodes, depth)
        lengths = self._shared_lengths(runs, depth)
        for run in runs:
            are_nameless = all(node.path not in self.labels for node in run.nodes)
            is_group = run.label is not None or (are_nameless and _is_region(run.nodes))
            if len(run.nodes) == 1 or not is_group:
                ungrouped += run.nodes
                continue
            members += self._leaves(ungrouped, depth - len(outer))
            ungrouped = []
            stem, _ = layer_words.split_number(run.label or "")
            shared = self._shared_parts(run, depth)[: lengths.get(stem)]
            members += self._run_as_groups(run, shared, depth, outer)
        return [*members, *self._leaves(ungrouped, depth - len(outer))]

    def _shared_lengths(self, runs: Sequence[_Run], depth: int) -> dict[str, int]:
        """Return how many parts of their layers' names each family of runs is called by. A family are the
        runs whose labels are a word and a number, as `block1` and `block2` are of the family `block`, and all
        of it get as many parts: if the layers of block1 share `block1_branch2` and those of block2 only
        `block2`, both are called by one part.

        Args:
            depth: where in the names the parts begin.
        """
        lengths: dict[str, int] = {}
        for run in runs:
            stem, number = layer_words.split_number(run.label or "")
            if number is not None:
                length = len(self._shared_parts(run, depth))
                lengths[stem] = min(length, lengths.get(stem, length))
        return lengths

    def _run_as_groups(
        self, run: _Run, shared: tuple[str, ...], depth: int, outer: tuple[str, ...]
    ) -> list[Leaf | Group]:
        """Return a run as one block, or as a stage of blocks; the blocks of a stage without a number stand
        for themselves, with the stage's name in theirs.

        Args:
            shared: parts of names from `depth` on that the run is called by.
            depth, outer: as in `_group_runs`.
        """
        inner_depth = depth + len(shared)
        inner_runs = self._runs(run.nodes, inner_depth) if shared else []
        name = layer_words.local_name("_".join((*outer, *shared)))
        if not self._is_stage(inner_runs, shared):
            return [self._as_block(run.nodes, name, inner_depth)]
        _, stage_number = layer_words.split_number(shared[-1])
        if stage_number is None:
            return self._group_runs(run.nodes, inner_depth, (*outer, *shared))
        return [Group(name, with_unique_names(self._group_runs(run.nodes, inner_depth)))]

    def _shared_parts(self, run: _Run, depth: int) -> tuple[str, ...]:
        """Return the parts of names from `depth` on that those layers of a run share which have its label."""
        names = (self.labels[node.path][depth:] for node in run.nodes if node.path in self.labels)
        return layer_words.common_parts(parts for parts in names if parts[:1] == (run.label,))

    def _as_block(self, nodes: Sequence[Node], name: str, depth: int) -> Group:
        """Return nodes as one group. If its name has no number, and those of its layers all end with one
        number, the group gets it and they lose it: `conv_2` and `bn_2` in `branch` become `conv` and `bn` in
        `branch2`.
        """
        numbers = set[int | None]()
        for node in nodes:
            parts = self.labels.get(node.path, ())
            if len(parts) > depth:
                _, last_number = layer_words.split_number(parts[-1])
                numbers.add(last_number)
        _, own_number = layer_words.split_number(name)
        takes_number = name and own_number is None
        number = numbers.pop() if len(numbers) == 1 and takes_number else None
        leaves = self._leaves(nodes, max(depth, 1))
        if number is None:
            return Group(name or "block", with_unique_names(leaves))
        trimmed = (
            replace(leaf, name=layer_words.without_number(leaf.name)) if isinstance(leaf, Leaf) else leaf
            for leaf in leaves
        )
        return Group(f"{name}{number}", with_unique_names(trimmed))

    def _is_stage(self, runs: Sequence[_Run], shared: Sequence[str]) -> bool:
        """Return whether runs are the blocks of one stage: two or more of them, at most one without a number.

        Args:
            shared: the parts of names that the stage is called by.
        """
        labels = [layer_words.split_number(run.label) for run in runs if run.label]
        have_labels = len(labels) == len(runs) >= 2
        without_number = sum(number is None for _, number in labels)
        if not have_labels or without_number > 1:
            return False
        _, stage_number = layer_words.split_number(shared[-1])
        if stage_number is None:
            return all(len(run.nodes) > 1 for run in runs)
        return len({stem for stem, _ in labels}) == 1 and any(_is_region(run.nodes) for run in runs)

    def _leaves(self, nodes: Sequence[Node], depth: int) -> list[Leaf | Group]:
        """Return nodes by the rest of their layers' names, and frequent chains as groups. A node without a
        name of its own is named after its op and what it follows.

        Args:
            depth: how many parts of the layers' names the groups around them have used.
        """
        names: dict[str, str] = {}  # of the nodes in no chain, by path
        members: list[Leaf | Group] = []
        chain_of_first = {chain[0].path: chain for chain in self._chains(nodes, len(nodes) > MOST_SINGLE)}
        other_chain_paths = {node.path for chain in chain_of_first.values() for node in chain[1:]}
        for node in nodes:
            if node.path in chain_of_first:
                leaves = [
                    Leaf(layer_words.short_word(member.op_name), member, own=False)
                    for member in chain_of_first[node.path]
                ]
                members.append(Group("conv", with_unique_names(leaves), unit=True))
            elif node.path not in other_chain_paths:
                names[node.path] = self._local_name(node, depth, names.get(node.source))
                members.append(Leaf(names[node.path], node, node.path in self.labels))
        return members

    def _local_name(self, node: Node, depth: int, before: str | None) -> str:
        """Return a node's name in its group: what is left of its layer's name, or a word for its op. An
        activation without a name is named after the layer before it.

        Args:
            depth: how many parts of the layer's name the groups around it have used.
            before: the name of the node that it reads, if that is in the group.
        """
        word = layer_words.short_word(node.op_name)
        if depth <= 0 and not self.around:
            return node.path.replace("/", "_")
        if node.path in self.labels:
            rest = layer_words.without_first_parts(self.names[node.path], self.around + depth)
            return word if not rest or rest.isdigit() else layer_words.local_name(rest)
        if before is not None and word == "act" and node.source in self.labels:
            stem, _, last_word = before.rpartition("_")
            layer = stem if last_word.lower() in ("bn", "norm") else before  # conv1_act, not conv1_bn_act
            return f"{layer}_{word}".lstrip("_")
        return word

    def _chains(self, nodes: Sequence[Node], named: bool) -> list[tuple[Node, ...]]:
        """Return the chains among `nodes` that are one of the frequent units (`_frequent_units`), the longest
        that fits at each place.

        Args:
            named: chains may have nodes with names of their own.
        """
        chains: list[tuple[Node, ...]] = []
        for stretch in self._stretches(nodes, named):
            kinds = tuple(kind_of(node) for node in stretch)
            index = 0
            while index < len(stretch):
                lengths = [len(unit) for unit in self.units if kinds[index : index + len(unit)] == unit]
                if lengths:
                    longest = max(lengths)
                    chains.append(tuple(stretch[index : index + longest]))
                    index += longest
                else:
                    index += 1
        return chains

    def _stretches(self, nodes: Sequence[Node], named: bool) -> list[list[Node]]:
        """Return rows of nodes that only pass their value on to the next; unless `named`, of nodes without
        names of their own.
        """
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
        """Return rows of kinds of nodes, each from one convolution to the next, that stand in the graph at
        least FEWEST_UNITS times.
        """
        counts: Counter[tuple[str, ...]] = Counter()
        for stretch in self._stretches(self.nodes, named=True):
            kinds = [kind_of(node) for node in stretch]
            is_conv = [kind in ("conv", "depthwise") for kind in kinds]
            # convolutions that follow no other one
            starts = [
                index
                for index in range(len(kinds))
                if is_conv[index] and (index == 0 or not is_conv[index - 1])
            ]
            counts.update(tuple(kinds[start:end]) for start, end in pairwise([*starts, len(kinds)]))
        return {unit for unit, count in counts.items() if count >= FEWEST_UNITS and len(unit) > 1}


def kind_of(node: Node) -> str:
    """Return what a node is: its op, but a convolution in groups is a kind of its own."""
    return "depthwise" if isinstance(node.op, Conv) and node.op.groups > 1 else node.op_name


def _is_region(nodes: Sequence[Node]) -> bool:
    """Return whether one of the nodes joins several values, as the sum of a residual block does."""
    return any(len(node.inputs) > 1 for node in nodes)


def with_unique_names(members: Iterator[Leaf | Group] | Sequence[Leaf | Group]) -> tuple[Leaf | Group, ...]:
    """Return members with names of which no two are the same: units are numbered from 1, and others that come
    again get `_2`, `_3`, ...
    """
    members = list(members)
    units = sum(isinstance(member, Group) and member.unit for member in members)
    taken: set[str] = set()
    last_suffix: dict[str, int] = {}
    renamed: list[Leaf | Group] = []
    unit_number = 0
    for member in members:
        name = member.name
        if isinstance(member, Group) and member.unit and units > 1:
            unit_number += 1
            name = f"{layer_words.without_number(member.name)}{unit_number}"
        while name in taken:
            last_suffix[member.name] = last_suffix.get(member.name, 1) + 1
            name = f"{member.name}_{last_suffix[member.name]}"
        taken.add(name)
        renamed.append(replace(member, name=name))
    return tuple(renamed)
