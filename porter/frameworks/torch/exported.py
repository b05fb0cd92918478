"""A torch.export program as the module that a port is compared with: its ATen ops, one after the other, by
name from a closed list.

The program is read by porter (porter.formats.torch_export) and never by torch, which would run what is
pickled in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from porter.frameworks.images import beside
from porter.frameworks.torch.graph_module import as_tensor
from porter.graph.walks import upstream

_RUN = frozenset(
    {*READERS, *INNER, "type_as", "one_hot", "copy", "fill", "zero", "slice_scatter"}
    | {"select_scatter", "empty", "empty_like", "empty_permuted", "new_empty"}
    | {"new_zeros", "new_ones", "new_full"}
)
"""The closed list: what porter reads, and what it reads as something else (porter.formats.torch_export.casts,
one_hots and writes).
"""
_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
"""MemoryFormat (torch/_export/serde/schema.py)."""
_WHERE = ("device", "layout", "pin_memory")
_FLOAT = 7
"""ScalarType, of which an image is fed that the program states to have whole numbers."""


def build_exported(checkpoint: Checkpoint, dtype: Dtype) -> ExportedModule:
    """Return the program of a .pt2, with the tensors of `checkpoint`, in eval mode.

    Raises:
        CannotRun: it needs an op that is not on the closed list, or that this torch lacks.
    """
    graph = checkpoint.carried
    program = read_program(parse_json(graph.definition, str(checkpoint.path)))
    kind = None if dtype in graph.halves else getattr(torch, dtype)
    return ExportedModule(program, checkpoint, graph.shown, kind)


class ExportedModule(nn.Module):
    """A program that gives its first output; each value that is a tap passes through a submodule of that
    name. It computes in one type, or where that is None in those that the program states.

    Attributes:
        can_cut: a submodule may give another value, because nothing reads one that is changed later.

    A program may be made for one batch. Other batches go through it in parts, all of them node by node.
    """

    def __init__(
        self, program: AtenProgram, checkpoint: Checkpoint, taps: list[str], dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self._file, self._dtype, self._types = checkpoint.graph, dtype, program.types
        self.can_cut = not find_changed_uses(program, READERS)
        for tap in taps:
            self.add_module(tap, nn.Identity())
        self._shown: dict[str, list[tuple[str, int]]] = {}
        for value, (name, index) in program.sources.items():
            if tap_of(value) in self._modules:
                self._shown.setdefault(name, []).append((tap_of(value), index))
        # An op in place may change a value that no tap depends on through it, so it runs too.
        wanted = upstream(
            [name for name, node in program.nodes.items() if name in self._shown or _is_in_place(node)],
            lambda name: [source for source, _ in program.nodes[name].inputs],
        )
        self._images = inputs_among(program, wanted) or program.images[:1]
        batch = program.sizes(self._images[0])[0]
        self._batch = batch if isinstance(batch, int) else None
        # torch takes an open size for 2 or more: of one image, a squeeze takes the batch away.
        self._fewest = 2 if any(node.op == "squeeze" for node in program.nodes.values()) else 1
        self._nodes = [
            (node, _function(node) if dtype is not None or node.autocast_type is None else _lowered(node))
            for node in program.nodes.values()
            if node.name in wanted and node.target
        ]
        self._numbers = {name: program.numbers[name].item() for name in wanted & program.numbers.keys()}
        self._stored = {
            name: f"tensor_{index}" for index, name in enumerate(sorted(wanted & program.stored.keys()))
        }
        for name, buffer in self._stored.items():
            self.register_buffer(buffer, as_tensor(checkpoint.tensors[program.stored[name]]))
        # What is given may be changed in place after the op that makes it.
        changes = any(_is_in_place(node) for node, _ in self._nodes)
        given = {value: program.sources[value] for value in program.outputs} if changes else {}
        self._given = {tap_of(value): each for value, each in given.items() if tap_of(value) in self._modules}
        names = {name for name, _ in self._given.values()}
        uses = {source: node.name for node, _ in self._nodes for source, _ in node.inputs}
        self._last: dict[str, list[str]] = {}
        for source, user in uses.items():
            if source not in names:
                self._last.setdefault(user, []).append(source)

    def forward(self, images: torch.Tensor, *further: torch.Tensor) -> torch.Tensor:
        size = self._batch or max(len(images), self._fewest)
        if self._batch and size > len(images) and self._file is not None:
            expect_batch(self._file, size, (images.shape[2], images.shape[3]))
        # An op in place may change them.
        copied = [
            each.to(self._kind(self._types[name] if self._types[name] in FLOATS else _FLOAT), copy=True)
            for name, each in zip(self._images, (images, *further), strict=False)
        ]
        parts = zip(
            *([[_filled(part, size)] for part in torch.split(each, size)] for each in copied), strict=True
        )
        shared = {**self._numbers, **{name: self.get_buffer(buffer) for name, buffer in self._stored.items()}}
        stored = {name: [value] for name, value in shared.items()}
        known = [{**stored, **dict(zip(self._images, part, strict=True))} for part in parts]
        outputs = images
        for node, function in self._nodes:
            copies: dict[Any, torch.Tensor] = {}
            for values in known:
                arguments = {
                    name: self._argument(name, value, values, copies)
                    for name, value in node.arguments.items()
                }
                given = _run(node, function, arguments)
                values[node.name] = list(given) if isinstance(given, list | tuple) else [given]
                if _is_in_place(node) or _memory(values[node.name]) & _memory(copies.values()):
                    copies.clear()  # the next part has its own, because this one's may be changed
            for tap, index in self._shown.get(node.name, ()):
                whole = _joined([values[node.name][index] for values in known], len(images))
                outputs = self.get_submodule(tap)(whole)
                if outputs is not whole:  # a hook gives another value
                    for values, part in zip(known, torch.split(outputs, size), strict=True):
                        values[node.name][index] = _filled(part, size)
            for source in self._last.get(node.name, ()):
                for values in known:
                    del values[source]
        for tap, (name, index) in self._given.items():
            outputs = self.get_submodule(tap)(_joined([values[name][index] for values in known], len(images)))
        return outputs

    def fed(self, batch: Array) -> list[Array]:
        """Return what the program is given beside images N×C×H×W, and these."""
        return [batch] if self._file is None else [batch, *beside(batch, self._file)]

    def _kind(self, stated: int) -> torch.dtype:
        """Return the dtype of a ScalarType in this module, which may compute in another one."""
        own = self._dtype if stated in FLOATS else None
        return getattr(torch, TYPES[stated]) if own is None else own

    def _argument(
        self, name: str, value: Any, known: Mapping[str, list[Any]], copies: dict[Any, torch.Tensor]
    ) -> Any:
        """Return an argument of an op: a value, a list of values, or a constant in the program's type."""
        if isinstance(value, tuple) and value[0] in self._stored:
            # A copy for each op, because all of them in double precision are twice the file, whose own memory
            # is only for reading.
            if value not in copies:
                stored = known[value[0]][value[1]]
                copies[value] = stored.to(self._kind(self._types[value[0]]), copy=True)
            return copies[value]
        if isinstance(value, tuple):
            return known[value[0]][value[1]]
        if isinstance(value, list):
            return [self._argument(name, each, known, copies) for each in value]
        if name == "dtype" and value is not None:
            return self._kind(value)
        return _FORMATS[value] if name == "memory_format" and value is not None else value


def _function(node: AtenNode) -> Callable[[Mapping[str, Any]], Any]:
    """Return what a node runs, from its arguments by name."""
    if node.target.startswith("_operator.") and node.op in SIZE_ARITHMETIC:
        on_sizes = SIZE_ARITHMETIC[node.op]
        return lambda arguments: on_sizes(*arguments.values())
    # Which device a value is moved to is left out.
    target = "aten.to.dtype" if node.target == "aten.to.device" else node.target
    library, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    packet = getattr(torch.ops.aten, name, None) if library == "aten" and node.op in _RUN else None
    if packet is None or overload not in packet.overloads() or UNKNOWN in node.arguments.values():
        raise CannotRun(f"porter does not run '{node.target}' with this torch", where=node.name)
    # A view asks for memory in one piece, which a module moved to channels last does not have.
    function = (
        torch.ops.aten.reshape.default if node.target == "aten.view.default" else getattr(packet, overload)
    )
    names = {"size": "shape"} if node.target == "aten.view.default" else {}
    return lambda arguments: function(
        **{names.get(name, name): value for name, value in arguments.items() if name not in _WHERE}
    )


def _lowered(node: AtenNode) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function of `_function`, with the automatic precision that the node runs with."""
    function = _function(node)
    kind = getattr(torch, TYPES[node.autocast_type or 0])

    def run(arguments: Mapping[str, Any]) -> Any:
        with torch.autocast("cpu", kind):
            return function(arguments)

    return run


def _run(node: AtenNode, function: Callable[[Mapping[str, Any]], Any], arguments: Mapping[str, Any]) -> Any:
    """Raise CannotRun where torch refuses the arguments."""
    try:
        return function(arguments)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        reason = first_line(error)
        raise CannotRun(
            f"torch cannot run '{node.target}' as the program has it: {reason}", where=node.name
        ) from None


def _memory(values: Iterable[Any]) -> set[int]:
    return {value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)}


def _joined(parts: Sequence[torch.Tensor], count: int) -> torch.Tensor:
    """Return a value of so many images, from those of their parts."""
    whole = parts[0] if len(parts) == 1 else torch.cat([*parts])
    return whole if len(whole) == count else whole[:count]


def _filled(part: torch.Tensor, size: int) -> torch.Tensor:
    """Return a part of `size` images, the last of which is repeated where it has fewer."""
    return (
        torch.cat([part, part[-1:].expand(size - len(part), *part.shape[1:])]) if len(part) < size else part
    )


def _is_in_place(node: AtenNode) -> bool:
    return node.target.startswith("aten.") and bool(changed_inputs(node))
