"""Readers of ATen's ops as functions of their arguments, under the names that torch's schemas give these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.readers import as_outputs
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Outputs
from porter.formats.torch_export.constants import SIZED, constant_sizes
from porter.formats.torch_export.nodes import OPERANDS, AtenNode, Walk
from porter.formats.torch_export.plain import AtenRow
from porter.formats.torch_export.program_sizes import SIZES, sizes_of

Reader = Callable[[Walk, AtenNode], Outputs]
AtenResult = Tensor | Outputs | Sequence[Tensor | None]


class Call(ABC):
    """An op of many arguments: a dataclass with these as its fields."""

    @abstractmethod
    def read(self) -> AtenResult:
        """Return what the op computes."""


AtenFunction = Callable[..., AtenResult | Call]
_PARAMETER_NAMES = {"self": "x", "input": "x"}
"""What parameters are called for arguments of these names."""
_IGNORED_ARGUMENTS = frozenset(
    {
        "C",
        "HxW",
        "N",
        "copy",
        "cudnn_enable",
        "cudnn_enabled",
        "implicit",
        "memory_format",
        "non_blocking",
        "pin_memory",
    }
)
"""Arguments that change no value: they say how numbers are stored and computed, or again what sizes the value
has.
"""


@cache
def _parameters(function: AtenFunction) -> Mapping[str, Parameter]:
    return signature(function).parameters


def reader_of(function: AtenFunction) -> Reader:
    """Return the reader of an op by a function of the op's arguments, such as `_linear(x, weight,
    bias=None)`, or by the class of a call, whose fields they are.

    The parameter `x` is the op's first value, and `scope` the node that is being read; all others have the
    names of torch's schemas. The function is given values as tensors, sizes as sizes, and only what is not
    None. An argument that the op lacks is a ValueError. One that the function does not take is refused by its
    name, because the op would be another one without it.
    """
    parameters = _parameters(function)

    def read(walk: Walk, node: AtenNode) -> Outputs:
        """Return what the function gives for the node's arguments: each under the name of its parameter,
        values as tensors. Raise Unsupported for an argument that the function does not take, and ValueError
        for one that the node lacks.
        """
        scope = Scope(walk, node)
        arguments = {
            _PARAMETER_NAMES.get(name, name): _convert_argument(scope, name, argument)
            for name, argument in node.arguments.items()
            if argument is not None
        }
        # These arguments change no value; only a function that asks for one gets it.
        for name in _IGNORED_ARGUMENTS - parameters.keys():
            arguments.pop(name, None)
        if unknown := [name for name in arguments if name not in parameters]:
            raise Unsupported(f"with {' and '.join(unknown)}")
        for name, parameter in parameters.items():
            if name == "scope":
                arguments[name] = scope
            elif name not in arguments and parameter.default is Parameter.empty:
                raise ValueError(f"it lacks the argument '{name}'")
        result = function(**arguments)
        return as_outputs(result.read() if isinstance(result, Call) else result)

    return read


def _convert_argument(scope: Scope, name: str, argument: Any) -> Any:
    """Return an argument with tensors in place of its values, or, where it states sizes that the program
    computes, with these sizes: `[("sym_size", 0), 3]` becomes the walk's size and 3.
    """
    is_list = isinstance(argument, list)
    items = argument if is_list else [argument]
    nodes = scope.walk.flow.nodes
    if name not in OPERANDS and any(_is_size(nodes, item) for item in items):
        # A constant, whose sizes do not come from the walk.
        if scope.node.name not in scope.walk.flow.live:
            if scope.node.op not in SIZED or not is_list:
                raise Unsupported("of a constant whose size depends on the input's")
            return _constant_argument_sizes(scope, name, items)
        sizes = sizes_of(scope.walk, scope.node, name, first_value(scope.node))
        return sizes if is_list else sizes[0]
    tensors = [scope.tensor(item) if isinstance(item, tuple) else item for item in items]
    return tensors if is_list else tensors[0]


def _constant_argument_sizes(scope: Scope, name: str, sizes_stated: Sequence[Any]) -> list[Any]:
    """Return the numbers of an argument of a constant that the program computes: its sizes, or of a `repeat`
    how often these are those of what it repeats.
    """
    if name not in ("repeats", "dims"):
        return [_known(size) for size in constant_sizes(scope.node, sizes_stated)]
    source = first_value(scope.node)
    count = len(scope.node.sizes[0])
    source_sizes = scope.tensor(source).sizes if source else ()
    # Axes that the repeat adds in front had one cell.
    new_axes = [1] * (count - len(source_sizes))
    # The numbers are of the last axes.
    sizes_before = [*new_axes, *source_sizes][-len(sizes_stated) :]
    sizes_after = constant_sizes(scope.node, [None] * count)[-len(sizes_stated) :]
    return [
        stated if isinstance(stated, int) else _known(after) // before
        for stated, after, before in zip(sizes_stated, sizes_after, sizes_before, strict=True)
    ]


def _known(size: int | str) -> int:
    """Return a size of a constant. An open one is Unsupported: what is repeated for each row of an image is
    no constant.
    """
    if isinstance(size, str):
        raise Unsupported("to sizes of the image")
    return size


def _is_size(nodes: Mapping[str, AtenNode], argument: Any) -> bool:
    """Return whether an argument is a size that the program computes."""
    return isinstance(argument, tuple) and nodes[argument[0]].op in SIZES


def first_value(node: AtenNode) -> NodeOutput | None:
    """Return the value that a node works on; None where it works on something else."""
    value = node.arguments.get("self", node.arguments.get("input"))
    return value if isinstance(value, tuple) else None


def reader_of_row(row: AtenRow) -> Reader:
    """Return the reader of an op that works on each number by itself, which is a row in the table of plain
    ops.
    """

    def read(walk: Walk, node: AtenNode) -> Outputs:
        """Apply the row's op to the node's value."""
        source = first_value(node)
        if source is None:
            raise ValueError("it works on no value")
        return Scope(walk, node).tensor(source).apply_elementwise(row.read(node)).outcome()

    return read


def as_list(argument: Any) -> list[Any]:
    """Return one number or several as a list."""
    return argument if isinstance(argument, list) else [argument]
