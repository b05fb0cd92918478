"""Readers of ATen's ops as functions of their arguments, under the names that torch's schemas give these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

from porter.filegraph.dataflow import NodeOutput
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.readers import as_outputs
from porter.filegraph.tensor import Scope, Tensor
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
        """What the op computes."""


Function = Callable[..., AtenResult | Call]
_NAMES = {"self": "x", "input": "x"}
"""What parameters are called for arguments of these names."""
_WITHOUT_EFFECT = frozenset(
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
"""Arguments that say how numbers are stored and computed, or again what sizes the value has."""


@cache
def _parameters(function: Function) -> Mapping[str, Parameter]:
    return signature(function).parameters


def reads(function: Function) -> Reader:
    """A reader by a function, or by the class of a call, whose parameter `x` is the op's first value, and
    `scope` the node that is being read. It is given values as tensors, sizes as sizes, and only what is not
    None.

    An argument that the function does not take is refused by its name, because the op would be another one
    without it.
    """
    parameters = _parameters(function)

    def read(walk: Walk, node: AtenNode) -> Outputs:
        scope = Scope(walk, node)
        arguments = {
            _NAMES.get(name, name): _given(scope, name, each)
            for name, each in node.arguments.items()
            if each is not None
        }
        for name in _WITHOUT_EFFECT - parameters.keys():
            arguments.pop(name, None)
        if others := [name for name in arguments if name not in parameters]:
            raise Unsupported(f"with {' and '.join(others)}")
        for name, parameter in parameters.items():
            if name == "scope":
                arguments[name] = scope
            elif name not in arguments and parameter.default is Parameter.empty:
                raise ValueError(f"it lacks the argument '{name}'")
        result = function(**arguments)
        return as_outputs(result.read() if isinstance(result, Call) else result)

    return read


def _given(scope: Scope, name: str, argument: Any) -> Any:
    """An argument, with its values as tensors; with sizes of values as numbers."""
    several = argument if isinstance(argument, list) else [argument]
    nodes = scope.walk.flow.nodes
    if name not in OPERANDS and any(_is_size(nodes, each) for each in several):
        if scope.node.name not in scope.walk.flow.live:
            if scope.node.op not in SIZED or not isinstance(argument, list):
                raise Unsupported("of a constant whose size depends on the input's")
            return _of_constant(scope, name, several)
        numbers = sizes_of(scope.walk, scope.node, name, first_value(scope.node))
        return numbers if isinstance(argument, list) else numbers[0]
    tensors = [scope.tensor(each) if isinstance(each, tuple) else each for each in several]
    return tensors if isinstance(argument, list) else tensors[0]


def _of_constant(scope: Scope, name: str, sizes_stated: Sequence[Any]) -> list[Any]:
    """Sizes that a program computes and a constant has, or how often they are those of what it repeats."""
    if name not in ("repeats", "dims"):
        return constant_sizes(scope.node, sizes_stated)
    source = first_value(scope.node)
    count = len(scope.node.sizes[0])
    own = scope.tensor(source).sizes if source else ()
    cells = [*[1] * (count - len(own)), *own][-len(sizes_stated) :]
    sizes = constant_sizes(scope.node, [None] * count)[-len(sizes_stated) :]
    each_size = zip(sizes_stated, sizes, cells, strict=True)
    return [each if isinstance(each, int) else size // old for each, size, old in each_size]


def _is_size(nodes: Mapping[str, AtenNode], argument: Any) -> bool:
    return isinstance(argument, tuple) and nodes[argument[0]].op in SIZES


def first_value(node: AtenNode) -> NodeOutput | None:
    """The value that a node works on; None where it works on something else."""
    value = node.arguments.get("self", node.arguments.get("input"))
    return value if isinstance(value, tuple) else None


def reads_row(row: AtenRow) -> Reader:
    """A reader of an op of each number."""

    def read(walk: Walk, node: AtenNode) -> Outputs:
        source = first_value(node)
        if source is None:
            raise ValueError("it works on no value")
        return Scope(walk, node).tensor(source).apply_elementwise(row.read(node)).outcome()

    return read
