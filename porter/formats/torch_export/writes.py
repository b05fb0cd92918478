"""Writes into a value, or into a part of it, such as `table[..., 0] = x`, as values of their own: a port's
values never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import StatedFields
from porter.formats.torch_export.constants import REALS
from porter.formats.torch_export.moves import VIEWS
from porter.formats.torch_export.nodes import AtenNode, AtenProgram, Sizes

_WRITES = {
    "aten.copy_.default": "src",
    "aten.fill_.Tensor": "value",
    "aten.fill_.Scalar": "value",
    "aten.zero_.default": "",
}
"""Ops that write into a value, and the argument that says what they write."""
_UPDATES = frozenset(
    f"aten.{op}_.{kind}" for op in ("add", "sub", "mul", "div") for kind in ("Tensor", "Scalar")
)
"""Ops that compute a part anew from what it was, such as `table[..., 0] += x`."""
_FILLS = ("zeros", "ones", "full")
"""Ops that make a value of one number; others do with `new_` before and `_like` behind these names."""
_EMPTY = ("empty", "empty_permuted")
_SLICES = ("slice", "select")
_SCATTERS = {"slice_scatter": "slice", "select_scatter": "select"}
"""Ops that give a value with something else in a part of it, and what gives that part."""
_DECOMPOSED_WRITES = frozenset(f"aten.{op}.default" for op in ("copy", *_SCATTERS))
"""Ops in place of writes in a program that torch has decomposed, and that writes nothing."""
_END = (1 << 63) - 1
"""A slice's end behind every cell."""


def replace_writes(program: AtenProgram) -> AtenProgram:
    """Return the program without writes: in place of each is what it makes of the value that it changes,
    which is the part before, what is written, and the part behind.

    A write stays as it is where an older view of the value is read afterwards, where it casts what it writes,
    and where porter does not know the part.
    """
    program = _split_updates(program)
    if not any(node.target in (*_WRITES, *_DECOMPOSED_WRITES) for node in program.nodes.values()):
        return program
    program = _name_whole_writes(_make_bases_by_size(program))
    writer = _FunctionalWriter(program)
    for index, node in enumerate(program.nodes.values()):
        writer.add(index, node)
    outputs = {
        name: writer.current.get(source, source)
        for name, source in program.sources.items()
        if name in program.outputs
    }
    return replace(program, nodes=writer.nodes, sources={**program.sources, **outputs})


def _split_updates(program: AtenProgram) -> AtenProgram:
    """Return the program with each update of a part, such as `x[0] += y`, as two nodes: what it computes, and
    a write of that into the part.
    """
    if not any(node.target in _UPDATES for node in program.nodes.values()):
        return program
    kinds = {
        source: program.types[value] for value, source in program.sources.items() if value in program.types
    }
    nodes: dict[str, AtenNode] = {}
    sources, types = {**program.sources}, {**program.types}
    for name, node in program.nodes.items():
        part = _updated_part(program, node, kinds)
        if part is None:
            nodes[name] = node
            continue
        computed = f"{name}_computed"
        sources[computed] = (computed, 0)
        types[computed] = kinds[part]
        nodes[computed] = replace(node, name=computed, target=node.target.replace("_.", "."))
        nodes[name] = replace(
            node,
            op="copy",
            target="aten.copy_.default",
            inputs=(part, (computed, 0)),
            arguments={"self": part, "src": (computed, 0)},
        )
    return replace(program, nodes=nodes, sources=sources, types=types)


def _updated_part(program: AtenProgram, node: AtenNode, kinds: Mapping[NodeOutput, int]) -> NodeOutput | None:
    """Return the slice that an update such as `add_` writes into; None for another node, for an update of
    another value than a slice, and for one that casts what it writes.

    Args:
        kinds: the ScalarTypes of all values.
    """
    if node.target not in _UPDATES or not node.inputs:
        return None
    is_slice = program.nodes[node.source[0]].op in _SLICES
    tensors = [source for source in node.inputs if program.nodes[source[0]].op != "number"]
    # Where all have one type, nothing is cast as it is written.
    have_one_type = len({kinds.get(source) for source in tensors}) == 1
    return node.source if is_slice and have_one_type else None


def _name_whole_writes(program: AtenProgram) -> AtenProgram:
    """Return the program in which what a write into a whole value gives goes by that value's name, so that
    its parts are those of one value: after `b = a.copy_(x)`, what reads b reads a.
    """
    names: dict[NodeOutput, NodeOutput] = {}
    nodes: dict[str, AtenNode] = {}
    for name, original in program.nodes.items():
        nodes[name] = node = _with_sources(original, names)
        if node.target in _WRITES and node.inputs:
            before = program.nodes[node.source[0]]
            # A whole value: neither a part of one nor written before.
            if before.op not in VIEWS and before.target not in _WRITES:
                names[name, 0] = node.source
    # The value has its own name: another one would show it after the write.
    sources = {
        name: names.get(source, source)
        for name, source in program.sources.items()
        if source not in names or name in program.outputs
    }
    return replace(program, nodes=nodes, sources=sources)


def _with_sources(node: AtenNode, names: Mapping[NodeOutput, NodeOutput]) -> AtenNode:
    """Return a node that reads, in its inputs and its arguments, other values in place of those that `names`
    has.
    """

    def rename(value: Any) -> Any:
        """Return an argument with the other values in it, at any depth."""
        if isinstance(value, Mapping):
            return StatedFields((name, rename(item)) for name, item in value.items())
        if isinstance(value, list):
            return [rename(item) for item in value]
        return names.get(value, value) if isinstance(value, tuple) else value

    inputs = tuple(names.get(source, source) for source in node.inputs)
    return replace(node, inputs=inputs, arguments=rename(node.arguments))


def _make_bases_by_size(program: AtenProgram) -> AtenProgram:
    """Return the program with values that are written into made by their sizes, where they were made by
    another value only for its type or its sizes: `zeros_like(x)` becomes `zeros(sizes of x)`, where these are
    known for each image, so that the value does not depend on `x`. What `empty` makes is written over, so
    that it may be zeros.
    """
    # By a node's name, the node that made the value of which it is a part.
    bases: dict[str, str] = {}
    for name, node in program.nodes.items():
        is_part = node.inputs and (node.op in VIEWS or node.target in _WRITES)
        bases[name] = bases[node.source[0]] if is_part else name
    written = {
        bases[node.source[0]]
        for node in program.nodes.values()
        if node.inputs and (node.target in _WRITES or node.op in _SCATTERS)
    }
    nodes = {
        name: _make_by_size(node, program.types.get(name)) if name in written else node
        for name, node in program.nodes.items()
    }
    return replace(program, nodes=nodes)


def _make_by_size(node: AtenNode, kind: int | None) -> AtenNode:
    """Return a node that makes a value of one number by its sizes and its ScalarType; `node` itself if it
    makes another value, or of unknown sizes.
    """
    plain = node.op.removeprefix("new_").removesuffix("_like")
    op = "zeros" if plain in _EMPTY else plain
    if op not in _FILLS or not _is_known(node.sizes[0]):
        return node
    number = {name: value for name, value in node.arguments.items() if name == "fill_value"}
    arguments = {"size": list(node.sizes[0]), "dtype": kind, **number}
    return replace(node, op=op, target=f"aten.{op}.default", inputs=(), arguments=arguments)


def _is_known(sizes: Sizes) -> bool:
    """Return whether all sizes are known but the number of images."""
    return all(isinstance(size, int) for size in sizes[1:])


@dataclass
class _FunctionalWriter:
    """Collects the nodes of a program without writes.

    Attributes:
        nodes: those so far, by name.
        current: values that were changed, and what they are since then.
        views: values that are the memory of others, and those others.
        last_reads: the place of the last node that reads a value; that of an output is behind all.
    """

    program: AtenProgram
    nodes: dict[str, AtenNode] = field(default_factory=dict)
    current: dict[NodeOutput, NodeOutput] = field(default_factory=dict)
    views: dict[NodeOutput, NodeOutput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the place of each value's last read, and the types of all values."""
        nodes = self.program.nodes
        self.last_reads = {
            source: number for number, node in enumerate(nodes.values()) for source in node.inputs
        }
        self.last_reads |= {self.program.sources[name]: len(nodes) for name in self.program.outputs}
        self.types = {source: self.program.types.get(name) for name, source in self.program.sources.items()}

    def add(self, number: int, original: AtenNode) -> None:
        """Add a node. One that writes into a value becomes steps that make a new one, which is read in place
        of the value from then on; a copy and a scatter become what they give.

        Args:
            number: its place in the program.
            original: the node as the program has it.
        """
        if original.inputs and (original.op in VIEWS or original.target in _WRITES):
            base = self.views.get(original.source, original.source)
            self.views |= {(original.name, output): base for output in range(original.outputs)}
        node = _with_sources(original, self.current)
        path = self._slices_to_base(number, original) if original.target in _WRITES else None
        if node.target == "aten.copy.default":
            self._add_alias(node, self._copy_source(node))
        elif node.op in _SCATTERS:
            self._add_alias(node, self._scatter(original))
        elif path is None:
            self.nodes[node.name] = node
        else:
            source = self._write_source(node)
            self._add_alias(node, source)
            slices, base = path
            # From the innermost part out: each is put into what it was taken from.
            for step in slices:
                source = self._put_into(node, step, source)
            self.current[base] = source

    def _add_alias(self, node: AtenNode, source: NodeOutput | None) -> None:
        """Add a node as an alias, another name of the value `source`, or as it is where `source` is None."""
        if source is not None:
            node = replace(
                node, op="alias", target="aten.alias.default", inputs=(source,), arguments={"self": source}
            )
        self.nodes[node.name] = node

    def _copy_source(self, node: AtenNode) -> NodeOutput | None:
        """Return what `copy` gives, the second value in the sizes of the first; None where it casts it to
        whole numbers, or where porter does not know the sizes.
        """
        self._expect_values(node, "src")
        source = node.arguments["src"]
        # A cast to real numbers changes nothing, and neither does one to the type that the value has.
        kinds = (*REALS, self.types.get(source))
        keeps_numbers = self.types.get((node.name, 0)) in kinds
        has_known_sizes = self._sizes_of(source) == node.sizes[0] or _is_known(node.sizes[0])
        return self._expand_to(node, source) if has_known_sizes and keeps_numbers else None

    def _expand_to(self, node: AtenNode, source: NodeOutput) -> NodeOutput:
        """Return a value, repeated to the sizes of what a node gives; as it is where it has them."""
        sizes = node.sizes[0]
        if self._sizes_of(source) == sizes:
            return source
        sizes_or_own = [size if isinstance(size, int) else -1 for size in sizes]
        return self._add_node(node, "expand", (source,), {"self": source, "size": sizes_or_own}, sizes)

    def _scatter(self, node: AtenNode) -> NodeOutput | None:
        """Return the value with `src` in place of a part of it, which a program that writes nothing has
        instead of a write (slice_scatter, select_scatter): `select_scatter(x, y, 1, 0)` is x after `x[:, 0] =
        y`. Return None where porter does not know the part.
        """
        self._expect_values(node, "self", "src")
        part = StatedFields((name, value) for name, value in node.arguments.items() if name != "src")
        step = replace(node, op=_SCATTERS[node.op], inputs=(part["self"],), arguments=part)
        if _cells(step, self._sizes_of(part["self"])) is None:
            return None
        return self._put_into(node, step, self._current(node.arguments["src"]))

    def _expect_values(self, node: AtenNode, *names: str) -> None:
        """Raise ValueError if one of these arguments is not a value of the program."""
        for name in names:
            if not isinstance(node.arguments[name], tuple):
                raise ValueError(f"its argument '{name}' is {node.arguments[name]!r:.40}")

    def _current(self, source: NodeOutput) -> NodeOutput:
        """Return what a value is after the writes so far."""
        return self.current.get(source, source)

    def _slices_to_base(self, number: int, node: AtenNode) -> tuple[list[AtenNode], NodeOutput] | None:
        """Return the slices that a write goes through, the last one first, and the value that they are of: of
        `x[0][:, 1] = y` the slice `[:, 1]`, the slice `[0]`, and x. Return None where the write stays as it
        is: where the value is not made by an op, where what is written does not fit, and where a part is
        unknown or read later by an older view.

        Args:
            number: the place of the write in the program.
        """
        part, base = node.arguments["self"], self.views[node.name, 0]
        is_made_by_op = bool(self.program.nodes[base[0]].target)  # not given by the caller or stored
        if not is_made_by_op or not self._fits_part(node):
            return None
        steps: list[AtenNode] = []
        # `contiguous` gives a copy or the same memory: nothing may read that besides.
        while part != base and self.program.nodes[part[0]].op != "contiguous":
            steps.append(step := self.program.nodes[part[0]])
            part = step.inputs[0]
            if step.op not in _SLICES or _cells(step, self._sizes_of(part)) is None:
                return None
        views = (view for view, base_of_view in self.views.items() if base_of_view == base)
        older_views = {base, *(view for view in views if view[0] != node.name)} - {part}
        if any(self.last_reads.get(view, 0) > number for view in older_views):
            return None
        return steps, part

    def _fits_part(self, node: AtenNode) -> bool:
        """Say whether what a write puts into its part, a number or a value, is not cast, and has the part's
        sizes or can be repeated to them.
        """
        source, sizes = self._source_of(node), node.sizes[0]
        if not isinstance(source, tuple):
            return _is_known(sizes)
        has_its_type = self.types.get(source) == self.types.get(node.arguments["self"])
        return has_its_type and (_is_known(sizes) or self._sizes_of(source) == sizes)

    def _source_of(self, node: AtenNode) -> NodeOutput | float:
        """Return what a write puts into its part: a value or a number, 0 for one that states none."""
        source: NodeOutput | float = node.arguments.get(_WRITES[node.target], 0.0)
        return source

    def _write_source(self, node: AtenNode) -> NodeOutput:
        """Add the value that stands in the written part afterwards, expanded to the part's sizes or made of
        one number, and return it.
        """
        source = self._source_of(node)
        sizes = node.sizes[0]
        if isinstance(source, tuple):
            return self._expand_to(node, source)
        arguments = {"size": list(sizes), "dtype": self.types.get((node.name, 0)), "fill_value": source}
        return self._add_node(node, "full", (), arguments, sizes)

    def _sizes_of(self, source: NodeOutput) -> Sizes:
        """Return the sizes that the program states for a value."""
        return self.nodes[source[0]].sizes[source[1]]

    def _put_into(self, node: AtenNode, step: AtenNode, source: NodeOutput) -> NodeOutput:
        """Return the value that a slice was taken from, with `source` in place of the slice."""
        value = self._current(step.inputs[0])
        sizes = self._sizes_of(step.inputs[0])
        axis = range(len(sizes))[step.arguments.get("dim", 0)]
        cells = _cells(step, sizes) or (0, _END)
        times = _period(step, sizes)
        # The slice takes all cells between two.
        if times == 1:
            part = source if step.op == "slice" else self._add_axis(node, source, sizes, axis)
            return self._replace_cells(node, value, axis, cells, part)
        # Of every `times` cells the slice has one, at the same place: as one cell of an axis of their own.
        # For instance x[:, 1::2] of N×6 is cell 1 along the last axis of N×3×2.
        split = (*sizes[:axis], int(sizes[axis]) // times, times, *sizes[axis + 1 :])
        value = self._add_view(node, value, split)
        source = self._add_axis(node, source, split, axis + 1)
        cells = (cells[0], cells[0] + 1 if cells[0] + 1 < times else _END)
        return self._add_view(node, self._replace_cells(node, value, axis + 1, cells, source), sizes)

    def _replace_cells(
        self,
        node: AtenNode,
        value: NodeOutput,
        axis: int,
        cells: tuple[int, int],
        source: NodeOutput,
    ) -> NodeOutput:
        """Return a value with `source` in the place of some cells of an axis: the part before them, `source`,
        and the part behind. It is `source` alone where this covers all.

        Args:
            cells: the first one, and the one behind the last, as `_cells` gives them.
        """
        sizes = self._sizes_of(value)
        start, end = cells
        before = [self._add_slice(node, value, sizes, axis, (0, start))] if start > 0 else []
        behind = [self._add_slice(node, value, sizes, axis, (end, _END))] if end != _END else []
        if not before and not behind:
            return source
        parts = [*before, source, *behind]
        return self._add_node(node, "cat", tuple(parts), {"tensors": parts, "dim": axis}, sizes)

    def _add_axis(self, node: AtenNode, source: NodeOutput, sizes: Sizes, axis: int) -> NodeOutput:
        """Add the step that makes a value one cell of an axis of these sizes, which it lacks, and return its
        value.
        """
        sizes_of_cell = (*sizes[:axis], 1, *sizes[axis + 1 :])
        return self._add_node(node, "unsqueeze", (source,), {"self": source, "dim": axis}, sizes_of_cell)

    def _add_view(self, node: AtenNode, source: NodeOutput, sizes: Sizes) -> NodeOutput:
        """Add a view of a value in these sizes, of which one may be open, and return its value."""
        sizes_or_rest = [size if isinstance(size, int) else -1 for size in sizes]
        return self._add_node(node, "view", (source,), {"self": source, "size": sizes_or_rest}, sizes)

    def _add_slice(
        self, node: AtenNode, value: NodeOutput, sizes: Sizes, axis: int, cells: tuple[int, int]
    ) -> NodeOutput:
        """Add a slice of an axis of known size, and return its value.

        Args:
            cells: the first one, and the one behind the last.
        """
        start, end = cells
        count = len(range(int(sizes[axis]))[start:end])
        arguments = {"self": value, "dim": axis, "start": start, "end": end}
        return self._add_node(node, "slice", (value,), arguments, (*sizes[:axis], count, *sizes[axis + 1 :]))

    def _add_node(
        self,
        node: AtenNode,
        op: str,
        inputs: tuple[NodeOutput, ...],
        arguments: Mapping[str, Any],
        sizes: Sizes,
    ) -> NodeOutput:
        """Add one of the nodes that stand in place of `node`, and return its value."""
        name = f"{node.name}.{len(self.nodes)}"
        self.nodes[name] = AtenNode(
            name, op, inputs, f"aten.{op}.default", arguments, node.module, sizes=(sizes,)
        )
        return name, 0


def _cells(step: AtenNode, sizes: Sizes) -> tuple[int, int] | None:
    """Return the first cell of a slice, and the one behind its last, which is _END behind all; None where
    porter does not know them. Of 5 cells, x[1:3] gives (1, 3) and x[-1] gives (4, _END).
    """
    size = sizes[step.arguments.get("dim", 0)]
    if step.op == "select":
        index = step.arguments["index"]
        if not isinstance(index, int) or not isinstance(size, int):
            return None
        start, end = index % size, index % size + 1
    else:
        first, last = (step.arguments.get(name) for name in ("start", "end"))
        start = 0 if first is None else first
        end = _END if last is None else last
        if not isinstance(start, int) or not isinstance(end, int) or _period(step, sizes) < 1:
            return None
        if isinstance(size, int):
            start, end, _ = slice(start, end).indices(size)
        # Of an open size only the whole axis is known.
        elif (start, end) != (0, _END):
            return None
    if start >= end:
        return None
    return start, _END if end == size else end


def _period(step: AtenNode, sizes: Sizes) -> int:
    """Return how far the cells that a slice takes lie from each other: 1 for all cells between two, 2 for
    every second cell of the axis, and so on. Return 0 where porter does not know how to write into them.
    """
    times = step.arguments.get("step", 1)
    size = sizes[step.arguments.get("dim", 0)]
    if times == 1:
        return 1
    if not isinstance(times, int) or not isinstance(size, int) or times < 1 or size % times:
        return 0
    cells = range(size)[slice(step.arguments.get("start"), step.arguments.get("end"), times)]
    # porter knows one of every `times` cells along the whole axis, and no other.
    return times if len(cells) == size // times else 0
