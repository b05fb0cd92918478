"""Writes into a value, or into a part of it, such as `table[..., 0] = x`, as values of their own: a port's
values never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from porter.filegraph.dataflow import NodeOutput
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
"""And the argument that says what they write."""
_CHANGES = frozenset(
    f"aten.{op}_.{kind}" for op in ("add", "sub", "mul", "div") for kind in ("Tensor", "Scalar")
)
"""Ops that compute a part anew from what it was, such as `table[..., 0] += x`."""
_MADE = ("zeros", "ones", "full")
"""What makes a value of one number; others do with `new_` before and `_like` behind these names."""
_EMPTY = ("empty", "empty_permuted")
_PARTS = ("slice", "select")
_SCATTERS = {"slice_scatter": "slice", "select_scatter": "select"}
"""Ops that give a value with something else in a part of it, and what gives that part."""
_WITHOUT = frozenset(f"aten.{op}.default" for op in ("copy", *_SCATTERS))
"""What a program has that writes nothing, as torch decomposes one."""
_END = (1 << 63) - 1
"""A slice's end behind every cell."""


def without_writes(program: AtenProgram) -> AtenProgram:
    """The program with what each write makes of the value that it changes: the part before, what is written,
    and the part behind.

    A write stays as it is where an older view of the value is read afterwards, where it casts what it writes,
    and where porter does not know the part.
    """
    program = _with_changes_written(program)
    if not any(node.target in (*_WRITES, *_WITHOUT) for node in program.nodes.values()):
        return program
    program = _with_whole_values(_with_bases_made(program))
    writer = _FunctionalWriter(program)
    for index, node in enumerate(program.nodes.values()):
        writer.add(index, node)
    given = {
        name: writer.now.get(source, source)
        for name, source in program.given.items()
        if name in program.outputs
    }
    return replace(program, nodes=writer.nodes, given={**program.given, **given})


def _with_changes_written(program: AtenProgram) -> AtenProgram:
    """Each change of a part as what it computes, which is then written."""
    if not any(node.target in _CHANGES for node in program.nodes.values()):
        return program
    kinds = {
        source: program.types[value] for value, source in program.given.items() if value in program.types
    }
    nodes: dict[str, AtenNode] = {}
    given, types = {**program.given}, {**program.types}
    for name, node in program.nodes.items():
        part = node.source if node.target in _CHANGES and node.inputs else None
        tensors = [each for each in node.inputs if program.nodes[each[0]].op != "number"] if part else []
        # Where all have one type, nothing is cast as it is written.
        if (
            part is None
            or program.nodes[part[0]].op not in _PARTS
            or len({kinds.get(each) for each in tensors}) != 1
        ):
            nodes[name] = node
            continue
        computed = f"{name}_computed"
        given[computed] = (computed, 0)
        types[computed] = kinds[part]
        nodes[computed] = replace(node, name=computed, target=node.target.replace("_.", "."))
        nodes[name] = replace(
            node,
            op="copy",
            target="aten.copy_.default",
            inputs=(part, (computed, 0)),
            arguments={"self": part, "src": (computed, 0)},
        )
    return replace(program, nodes=nodes, given=given, types=types)


def _with_whole_values(program: AtenProgram) -> AtenProgram:
    """The program in which what a write into a whole value gives is that value, so that its parts are those
    of one.
    """
    names: dict[NodeOutput, NodeOutput] = {}
    nodes: dict[str, AtenNode] = {}
    for name, original in program.nodes.items():
        nodes[name] = node = _renamed(original, names)
        if node.target in _WRITES and node.inputs:
            before = program.nodes[node.source[0]]
            if before.op not in VIEWS and before.target not in _WRITES:
                names[name, 0] = node.source
    # The value has its own name: another one would show it after the write.
    given = {
        name: names.get(source, source)
        for name, source in program.given.items()
        if source not in names or name in program.outputs
    }
    return replace(program, nodes=nodes, given=given)


def _renamed(node: AtenNode, names: Mapping[NodeOutput, NodeOutput]) -> AtenNode:
    """A node that reads other values in the place of these."""

    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return StatedFields((name, read(each)) for name, each in value.items())
        if isinstance(value, list):
            return [read(each) for each in value]
        return names.get(value, value) if isinstance(value, tuple) else value

    inputs = tuple(names.get(source, source) for source in node.inputs)
    return replace(node, inputs=inputs, arguments=read(node.arguments))


def _with_bases_made(program: AtenProgram) -> AtenProgram:
    """What is written into, and is made by another value only for its type or its sizes, made by sizes:
    `zeros_like` is what `zeros` makes, where the sizes are known for each image. What `empty` makes is
    written over, so that it may be zeros.
    """
    bases: dict[str, str] = {}
    for name, node in program.nodes.items():
        part = node.inputs and (node.op in VIEWS or node.target in _WRITES)
        bases[name] = bases[node.source[0]] if part else name
    written = {
        bases[node.source[0]]
        for node in program.nodes.values()
        if node.inputs and (node.target in _WRITES or node.op in _SCATTERS)
    }
    nodes = {
        name: _made(node, program.types.get(name)) if name in written else node
        for name, node in program.nodes.items()
    }
    return replace(program, nodes=nodes)


def _made(node: AtenNode, kind: int | None) -> AtenNode:
    """A value of one number by its sizes, and its ScalarType."""
    plain = node.op.removeprefix("new_").removesuffix("_like")
    op = "zeros" if plain in _EMPTY else plain
    if op not in _MADE or not _is_known(node.sizes[0]):
        return node
    number = {name: value for name, value in node.arguments.items() if name == "fill_value"}
    arguments = {"size": list(node.sizes[0]), "dtype": kind, **number}
    return replace(node, op=op, target=f"aten.{op}.default", inputs=(), arguments=arguments)


def _is_known(sizes: Sizes) -> bool:
    """Whether all sizes but the number of images are."""
    return all(isinstance(size, int) for size in sizes[1:])


@dataclass
class _FunctionalWriter:
    """The nodes so far.

    Attributes:
        now: values that were changed, and what they are since then.
        views: values that are the memory of others, and those others.
        last: the place of the last node that reads a value; that of an output is behind all.
    """

    program: AtenProgram
    nodes: dict[str, AtenNode] = field(default_factory=dict)
    now: dict[NodeOutput, NodeOutput] = field(default_factory=dict)
    views: dict[NodeOutput, NodeOutput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.program.nodes
        self.last = {source: number for number, node in enumerate(nodes.values()) for source in node.inputs}
        self.last |= {self.program.given[name]: len(nodes) for name in self.program.outputs}
        self.types = {source: self.program.types.get(name) for name, source in self.program.given.items()}

    def add(self, number: int, original: AtenNode) -> None:
        """Adds a node; one that writes into a value becomes steps that make a new one."""
        if original.inputs and (original.op in VIEWS or original.target in _WRITES):
            base = self.views.get(original.source, original.source)
            self.views |= {(original.name, output): base for output in range(original.outputs)}
        node = _renamed(original, self.now)
        written = self._steps(number, original) if original.target in _WRITES else None
        if node.target == "aten.copy.default":
            self._add_alias(node, self._copied(node))
        elif node.op in _SCATTERS:
            self._add_alias(node, self._scattered(original))
        elif written is None:
            self.nodes[node.name] = node
        else:
            source = self._written(node)
            self._add_alias(node, source)
            steps, whole = written
            for step in steps:
                source = self._joined(node, step, source)
            self.now[whole] = source

    def _add_alias(self, node: AtenNode, source: NodeOutput | None) -> None:
        """A node as another name of a value; as it is where there is none."""
        self.nodes[node.name] = (
            node
            if source is None
            else replace(
                node, op="alias", target="aten.alias.default", inputs=(source,), arguments={"self": source}
            )
        )

    def _copied(self, node: AtenNode) -> NodeOutput | None:
        """What `copy` gives, the second value in the sizes of the first; None where it casts it to whole
        numbers, or where porter does not know the sizes.
        """
        self._expect_values(node, "src")
        source = node.arguments["src"]
        kinds = (*REALS, self.types.get(source))
        fits = self._sizes(source) == node.sizes[0] or _is_known(node.sizes[0])
        return self._spread(node, source) if fits and self.types.get((node.name, 0)) in kinds else None

    def _spread(self, node: AtenNode, source: NodeOutput) -> NodeOutput:
        """A value, or what it is repeated to the sizes of what a node gives."""
        sizes = node.sizes[0]
        sizes_or_own = [size if isinstance(size, int) else -1 for size in sizes]
        return (
            source
            if self._sizes(source) == sizes
            else self._new(node, "expand", (source,), {"self": source, "size": sizes_or_own}, sizes)
        )

    def _scattered(self, node: AtenNode) -> NodeOutput | None:
        """What a program that writes nothing has in the place of a write; None where porter does not know the
        part.
        """
        self._expect_values(node, "self", "src")
        part = StatedFields((name, value) for name, value in node.arguments.items() if name != "src")
        step = replace(node, op=_SCATTERS[node.op], inputs=(part["self"],), arguments=part)
        if _cells(step, self._sizes(part["self"])) is None:
            return None
        return self._joined(node, step, self._since(node.arguments["src"]))

    def _expect_values(self, node: AtenNode, *names: str) -> None:
        """Raises ValueError: an argument is not a value of the program."""
        for name in names:
            if not isinstance(node.arguments[name], tuple):
                raise ValueError(f"its argument '{name}' is {node.arguments[name]!r:.40}")

    def _since(self, source: NodeOutput) -> NodeOutput:
        return self.now.get(source, source)

    def _steps(self, number: int, node: AtenNode) -> tuple[list[AtenNode], NodeOutput] | None:
        """The slices that a write goes through, the last one first, and what they are of; None where the
        write stays as it is.
        """
        source = self._source(node)
        part = node.arguments["self"]
        base = self.views[node.name, 0]
        plain = _is_known(node.sizes[0])
        if isinstance(source, tuple):
            plain = plain or self._sizes(source) == node.sizes[0]
            plain = plain and self.types.get(source) == self.types.get(part)
        steps: list[AtenNode] = []
        # `contiguous` gives a copy or the same memory: nothing may read that besides.
        while part != base and self.program.nodes[part[0]].op != "contiguous":
            steps.append(step := self.program.nodes[part[0]])
            part = step.inputs[0]
            if step.op not in _PARTS or _cells(step, self._sizes(part)) is None:
                return None
        views = {
            view for view, base_of_view in self.views.items() if base_of_view == base and view[0] != node.name
        }
        older = any(self.last.get(view, 0) > number for view in {*views, base} - {part})
        return (steps, part) if plain and not older and self.program.nodes[base[0]].target else None

    def _source(self, node: AtenNode) -> NodeOutput | float:
        source: NodeOutput | float = node.arguments.get(_WRITES[node.target], 0.0)
        return source

    def _written(self, node: AtenNode) -> NodeOutput:
        """The value that stands in the written part afterwards."""
        source = self._source(node)
        sizes = node.sizes[0]
        if isinstance(source, tuple):
            return self._spread(node, source)
        made = {"size": list(sizes), "dtype": self.types.get((node.name, 0)), "fill_value": source}
        return self._new(node, "full", (), made, sizes)

    def _sizes(self, source: NodeOutput) -> Sizes:
        return self.nodes[source[0]].sizes[source[1]]

    def _joined(self, node: AtenNode, step: AtenNode, source: NodeOutput) -> NodeOutput:
        """What a slice was taken from, with `source` in its place."""
        whole = self._since(step.inputs[0])
        sizes = self._sizes(step.inputs[0])
        axis = range(len(sizes))[step.arguments.get("dim", 0)]
        cells = _cells(step, sizes) or (0, _END)
        times = _period(step, sizes)
        if times == 1:
            part = source if step.op == "slice" else self._with_axis(node, source, sizes, axis)
            return self._replaced(node, whole, axis, cells, part)
        # Each of so many cells is the same place of an axis of its own.
        apart = (*sizes[:axis], int(sizes[axis]) // times, times, *sizes[axis + 1 :])
        whole = self._view(node, whole, apart)
        source = self._with_axis(node, source, apart, axis + 1)
        cells = (cells[0], cells[0] + 1 if cells[0] + 1 < times else _END)
        return self._view(node, self._replaced(node, whole, axis + 1, cells, source), sizes)

    def _replaced(
        self,
        node: AtenNode,
        whole: NodeOutput,
        axis: int,
        cells: tuple[int, int],
        source: NodeOutput,
    ) -> NodeOutput:
        """A value with `source` in the place of some cells of an axis."""
        sizes = self._sizes(whole)
        start, end = cells
        ends = [(0, start), *([] if end == _END else [(end, _END)])]
        parts = [self._part(node, whole, sizes, axis, each) for each in ends if each[1] > each[0]]
        joined = [*parts[: start > 0], source, *parts[start > 0 :]]
        return (
            self._new(node, "cat", tuple(joined), {"tensors": joined, "dim": axis}, sizes)
            if parts
            else source
        )

    def _with_axis(self, node: AtenNode, source: NodeOutput, sizes: Sizes, axis: int) -> NodeOutput:
        """One cell of an axis of these sizes, which it lacks."""
        one = (*sizes[:axis], 1, *sizes[axis + 1 :])
        return self._new(node, "unsqueeze", (source,), {"self": source, "dim": axis}, one)

    def _view(self, node: AtenNode, source: NodeOutput, sizes: Sizes) -> NodeOutput:
        sizes_or_rest = [size if isinstance(size, int) else -1 for size in sizes]
        return self._new(node, "view", (source,), {"self": source, "size": sizes_or_rest}, sizes)

    def _part(
        self, node: AtenNode, whole: NodeOutput, sizes: Sizes, axis: int, cells: tuple[int, int]
    ) -> NodeOutput:
        """The cells of an axis of known size from a first one to the one before another."""
        start, end = cells
        left = len(range(int(sizes[axis]))[start:end])
        arguments = {"self": whole, "dim": axis, "start": start, "end": end}
        return self._new(node, "slice", (whole,), arguments, (*sizes[:axis], left, *sizes[axis + 1 :]))

    def _new(
        self,
        node: AtenNode,
        op: str,
        inputs: tuple[NodeOutput, ...],
        arguments: Mapping[str, Any],
        sizes: Sizes,
    ) -> NodeOutput:
        name = f"{node.name}.{len(self.nodes)}"
        self.nodes[name] = AtenNode(
            name, op, inputs, f"aten.{op}.default", arguments, node.module, sizes=(sizes,)
        )
        return name, 0


def _cells(step: AtenNode, sizes: Sizes) -> tuple[int, int] | None:
    """The first cell of a slice, and the one behind its last, which is _END behind all; None where porter
    does not know them.
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
        elif (start, end) != (0, _END):
            return None
    if start >= end:
        return None
    return start, _END if end == size else end


def _period(step: AtenNode, sizes: Sizes) -> int:
    """Which of all cells of an axis a slice takes: 1 for those between two, 2 for every second one; 0 where
    porter does not know how to write into them.
    """
    times = step.arguments.get("step", 1)
    size = sizes[step.arguments.get("dim", 0)]
    if times == 1:
        return 1
    if not isinstance(times, int) or not isinstance(size, int) or times < 1 or size % times:
        return 0
    cells = range(size)[slice(step.arguments.get("start"), step.arguments.get("end"), times)]
    return times if len(cells) == size // times else 0
