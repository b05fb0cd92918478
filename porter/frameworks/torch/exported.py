"""A torch.export program as the module that a port is compared with. It runs the program's ATen ops one after
the other, and only ops that a closed list names.

The program is read by porter (porter.formats.torch_export) and never by torch, which would run what is
pickled in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from porter.base.dtypes import Array, Dtype
from porter.base.errors import CannotRun, first_line
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.to_graph import expect_batch
from porter.formats.torch_export.aliases import changed_inputs, find_changed_uses
from porter.formats.torch_export.archive import FLOATS, TYPES, parse_json
from porter.formats.torch_export.nodes import UNKNOWN, AtenNode, AtenProgram, read_program
from porter.formats.torch_export.ops import INNER, READERS
from porter.formats.torch_export.program_sizes import SIZE_ARITHMETIC
from porter.formats.torch_export.read import inputs_among, tap_of
from porter.frameworks.batches import further_arrays
from porter.frameworks.last_uses import last_uses
from porter.frameworks.torch.graph_module import as_tensor
from porter.graph.walks import upstream

_RUNNABLE_OPS = frozenset(
    {*READERS, *INNER, "type_as", "one_hot", "copy", "fill", "zero", "slice_scatter"}
    | {"select_scatter", "empty", "empty_like", "empty_permuted", "new_empty"}
    | {"new_zeros", "new_ones", "new_full"}
)
"""The closed list: what porter reads, and what it reads as something else (`rewrites` and `writes` of
porter.formats.torch_export).
"""
_MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
"""MemoryFormat (torch/_export/serde/schema.py)."""
_PLACING_ARGUMENTS = ("device", "layout", "pin_memory")
_FLOAT32_TYPE = 7
"""The ScalarType (torch/_export/serde/schema.py) in which an image is fed that the program states to have
whole numbers.
"""


def build_exported(checkpoint: Checkpoint, dtype: Dtype) -> ExportedModule:
    """Build the program of a .pt2, with the tensors of `checkpoint`, as a module in eval mode.

    Raises:
        CannotRun: it needs an op that is not on the closed list, or that this torch lacks.
    """
    graph = checkpoint.carried
    program = read_program(parse_json(graph.definition, str(checkpoint.path)))
    kind = None if dtype in graph.halves else getattr(torch, dtype)
    return ExportedModule(program, checkpoint, graph.shown, kind)


@dataclass(frozen=True)
class _RunPlan:
    """What a program runs, in its order, and what is kept of it.

    Attributes:
        images: the names of the inputs that are read, or the first of all.
        types: the ScalarType of each value, by name.
        fixed_batch: so many images the program takes at once; None if any number.
        min_images: so many it takes at least.
        nodes: those that run, with what each calls.
        taps_of_node: by the name of a node, the taps of its values with their indices.
        numbers, stored: the program's numbers, and the buffers of its tensors, by name.
        output_values: by tap, the values that are read once more at the end.
        unread_after: by the name of a node, the nodes whose values nothing reads after it.
    """

    images: Sequence[str]
    types: Mapping[str, int]
    fixed_batch: int | None
    min_images: int
    nodes: Sequence[tuple[AtenNode, Callable[[Mapping[str, Any]], Any]]]
    taps_of_node: Mapping[str, Sequence[tuple[str, int]]]
    numbers: Mapping[str, Any]
    stored: Mapping[str, str]
    output_values: Mapping[str, tuple[str, int]]
    unread_after: Mapping[str, Sequence[str]]


def _plan_run(program: AtenProgram, taps: Collection[str], has_autocast: bool) -> _RunPlan:
    """Plan what gives the values at `taps`.

    Args:
        has_autocast: whether nodes run in the types in which the program states that they do.

    Raises:
        CannotRun: as `build_exported`.
    """
    taps_of_node: dict[str, list[tuple[str, int]]] = {}
    for value, (name, index) in program.sources.items():
        if tap_of(value) in taps:
            taps_of_node.setdefault(name, []).append((tap_of(value), index))
    # An op in place may change a value that no tap depends on through it, so it runs too.
    roots = [name for name, node in program.nodes.items() if name in taps_of_node or _is_in_place(node)]
    wanted = upstream(roots, lambda name: [source for source, _ in program.nodes[name].inputs])
    # A program that reads none still takes one, which says the batch.
    images = inputs_among(program, wanted) or program.images[:1]
    batch = program.sizes(images[0])[0]
    nodes: list[tuple[AtenNode, Callable[[Mapping[str, Any]], Any]]] = []
    for node in program.nodes.values():
        if node.name in wanted and node.target:
            is_autocast = has_autocast and node.autocast_type is not None
            nodes.append((node, _with_autocast(node) if is_autocast else _op_function(node)))
    # An output may be changed in place after the op that makes it, so it is read once more at the end.
    changes = any(_is_in_place(node) for node, _ in nodes)
    outputs = {tap_of(value): program.sources[value] for value in program.outputs} if changes else {}
    output_values = {tap: source for tap, source in outputs.items() if tap in taps}
    read_at_end = {name for name, _ in output_values.values()}
    last_read = last_uses(([source for source, _ in node.inputs] for node, _ in nodes), kept=read_at_end)
    stored = sorted(wanted & program.stored.keys())
    return _RunPlan(
        images=images,
        types=program.types,
        fixed_batch=batch if isinstance(batch, int) else None,
        # torch takes an open size for 2 or more: of one image, a squeeze takes the batch away.
        min_images=2 if any(node.op == "squeeze" for node in program.nodes.values()) else 1,
        nodes=nodes,
        taps_of_node=taps_of_node,
        numbers={name: program.numbers[name].item() for name in wanted & program.numbers.keys()},
        stored={name: f"tensor_{index}" for index, name in enumerate(stored)},
        output_values=output_values,
        unread_after={node.name: unread for (node, _), unread in zip(nodes, last_read, strict=True)},
    )


class ExportedModule(nn.Module):
    """A program that gives its first output. Each value that is a tap, a name by which others ask for it,
    passes through a submodule of that name. The program computes in one type, or where that is None in those
    that it states.

    Attributes:
        can_cut: a submodule may give another value, because nothing reads one that is changed later.

    A program may be made for one batch. Other batches go through it in parts, all of them node by node.
    """

    def __init__(
        self, program: AtenProgram, checkpoint: Checkpoint, taps: list[str], dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self._file, self._dtype = checkpoint.graph, dtype
        self.can_cut = not find_changed_uses(program, READERS)
        self._plan = _plan_run(program, taps, has_autocast=dtype is None)
        for tap in taps:
            self.add_module(tap, nn.Identity())
        for name, buffer in self._plan.stored.items():
            self.register_buffer(buffer, as_tensor(checkpoint.tensors[program.stored[name]]))

    def forward(self, images: torch.Tensor, *further: torch.Tensor) -> torch.Tensor:
        """Run the program on a batch N×C×H×W and its further inputs, in parts of as many images as it takes,
        node by node: all parts before the next node. Return the value of the last tap that was computed, or
        of the last output.
        """
        # The number of images in a part.
        size = self._plan.fixed_batch or max(len(images), self._plan.min_images)
        if self._plan.fixed_batch and size > len(images) and self._file is not None:
            expect_batch(self._file, size, (images.shape[2], images.shape[3]))
        # For each part, by the name of a node, the values that it gives.
        values_of_parts = self._first_values((images, *further), size)
        outputs = images
        for node, function in self._plan.nodes:
            # Stored tensors in this module's type, which the parts of a batch share for this node.
            copies: dict[Any, torch.Tensor] = {}
            for values in values_of_parts:
                arguments = {
                    name: self._argument(name, value, values, copies)
                    for name, value in node.arguments.items()
                }
                returned = _call_op(node, function, arguments)
                values[node.name] = list(returned) if isinstance(returned, list | tuple) else [returned]
                if _is_in_place(node) or _storages(values[node.name]) & _storages(copies.values()):
                    copies.clear()  # the next part has its own, because this one's may be changed
            for tap, index in self._plan.taps_of_node.get(node.name, ()):
                joined = _join_parts([values[node.name][index] for values in values_of_parts], len(images))
                outputs = self.get_submodule(tap)(joined)
                if outputs is not joined:  # a hook gives another value
                    for values, part in zip(values_of_parts, torch.split(outputs, size), strict=True):
                        values[node.name][index] = _fill_part(part, size)
            for source in self._plan.unread_after[node.name]:
                for values in values_of_parts:
                    del values[source]
        for tap, (name, index) in self._plan.output_values.items():
            joined = _join_parts([values[name][index] for values in values_of_parts], len(images))
            outputs = self.get_submodule(tap)(joined)
        return outputs

    def _first_values(self, batches: Sequence[torch.Tensor], size: int) -> list[dict[str, list[Any]]]:
        """Split the batches into parts of `size` images, and return for each part the values that are there
        before the first node: its inputs, and the program's numbers and tensors.
        """
        parts_of_inputs = []
        for name, batch in zip(self._plan.images, batches, strict=False):
            stated_type = self._plan.types[name] if self._plan.types[name] in FLOATS else _FLOAT32_TYPE
            # A copy, because an op in place may change the inputs.
            converted = batch.to(self._own_dtype(stated_type), copy=True)
            parts_of_inputs.append([[_fill_part(part, size)] for part in torch.split(converted, size)])
        shared = {
            **self._plan.numbers,
            **{name: self.get_buffer(buffer) for name, buffer in self._plan.stored.items()},
        }
        stored = {name: [value] for name, value in shared.items()}
        return [
            {**stored, **dict(zip(self._plan.images, inputs_of_part, strict=True))}
            for inputs_of_part in zip(*parts_of_inputs, strict=True)
        ]

    def inputs_for(self, batch: Array) -> list[Array]:
        """Return the arrays that the program takes for images N×C×H×W: these, and its further inputs."""
        return [batch] if self._file is None else [batch, *further_arrays(batch, self._file)]

    def _own_dtype(self, stated: int) -> torch.dtype:
        """Return the dtype in which this module computes what the program has in a ScalarType."""
        dtype = self._dtype if stated in FLOATS else None
        return getattr(torch, TYPES[stated]) if dtype is None else dtype

    def _argument(
        self, name: str, value: Any, known: Mapping[str, list[Any]], copies: dict[Any, torch.Tensor]
    ) -> Any:
        """Return an argument of an op as torch takes it.

        Args:
            name: of the argument.
            value: as the program has it: a pair (name of a node, index of its value), a list, or a constant.
                Types and memory formats are numbers there, and become torch's.
            known: the values that are computed, by the node's name.
            copies: of stored tensors, each made once for an op; a new copy is added.
        """
        if isinstance(value, tuple) and value[0] in self._plan.stored:
            # A copy for each op, because all of them in double precision are twice the file, whose own memory
            # is only for reading.
            if value not in copies:
                stored = known[value[0]][value[1]]
                copies[value] = stored.to(self._own_dtype(self._plan.types[value[0]]), copy=True)
            return copies[value]
        if isinstance(value, tuple):
            return known[value[0]][value[1]]
        if isinstance(value, list):
            return [self._argument(name, item, known, copies) for item in value]
        if value is None:
            return None
        if name == "dtype":
            return self._own_dtype(value)
        return _MEMORY_FORMATS[value] if name == "memory_format" else value


def _op_function(node: AtenNode) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that a node runs, which takes its arguments by name: arithmetic of sizes, or an op
    of ATen. Raise CannotRun for an op that is not on the closed list, or that this torch lacks. Arguments
    that say a device are left out.
    """
    if node.target.startswith("_operator.") and node.op in SIZE_ARITHMETIC:
        on_sizes = SIZE_ARITHMETIC[node.op]
        return lambda arguments: on_sizes(*arguments.values())
    # Which device a value is moved to is left out.
    target = "aten.to.dtype" if node.target == "aten.to.device" else node.target
    library, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    is_listed = library == "aten" and node.op in _RUNNABLE_OPS
    packet = getattr(torch.ops.aten, name, None) if is_listed else None
    if packet is None or overload not in packet.overloads() or UNKNOWN in node.arguments.values():
        raise CannotRun(f"porter does not run '{node.target}' with this torch", where=node.name)
    function = getattr(packet, overload)
    new_names: dict[str, str] = {}
    if node.target == "aten.view.default":
        # A view asks for memory in one piece, which a module moved to channels last does not have.
        function = torch.ops.aten.reshape.default
        new_names = {"size": "shape"}
    return lambda arguments: function(
        **{
            new_names.get(argument, argument): value
            for argument, value in arguments.items()
            if argument not in _PLACING_ARGUMENTS
        }
    )


def _with_autocast(node: AtenNode) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that a node runs, as `_op_function` does, in the automatic half precision
    (autocast) that the program states for the node.
    """
    function = _op_function(node)
    kind = getattr(torch, TYPES[node.autocast_type or 0])

    def run(arguments: Mapping[str, Any]) -> Any:
        with torch.autocast("cpu", kind):
            return function(arguments)

    return run


def _call_op(
    node: AtenNode, function: Callable[[Mapping[str, Any]], Any], arguments: Mapping[str, Any]
) -> Any:
    """Call a node's function; CannotRun is raised where torch refuses the arguments."""
    try:
        return function(arguments)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        reason = first_line(error)
        raise CannotRun(
            f"torch cannot run '{node.target}' as the program has it: {reason}", where=node.name
        ) from None


def _storages(values: Iterable[Any]) -> set[int]:
    """Return the addresses of the memory that tensors lie in; tensors that share memory have one address."""
    return {value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)}


def _join_parts(parts: Sequence[torch.Tensor], count: int) -> torch.Tensor:
    """Join the parts of a value, and cut it to so many images."""
    joined = parts[0] if len(parts) == 1 else torch.cat([*parts])
    return joined if len(joined) == count else joined[:count]


def _fill_part(part: torch.Tensor, size: int) -> torch.Tensor:
    """Return a part filled up to `size` images with copies of its last one."""
    if len(part) >= size:
        return part
    copies = part[-1:].expand(size - len(part), *part.shape[1:])
    return torch.cat([part, copies])


def _is_in_place(node: AtenNode) -> bool:
    """Say whether a node changes a value that it reads."""
    return node.target.startswith("aten.") and bool(changed_inputs(node))
