"""A program of torch.export as nodes: ATen ops and their arguments, by the names of torch's own schemas.

A value is named by the node that gives it and the place among its outputs; a node has the name of its first
output. Numbers that an arithmetic op takes beside values are constants of their own, as they are in other
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.name_tables import JsonObject
from porter.filegraph import walk
from porter.filegraph.places import Reading
from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import MOST_NODES, StatedFields

Walk = walk.NodeWalk["AtenNode"]
Sizes = tuple[int | str, ...]
OPERANDS = ("self", "other", "exponent", "a", "b", "min", "max")
"""Arguments whose numbers are constants of the program's own."""
_AUTOCAST = "higher_order.wrap_with_autocast"
_WRAPPERS = (_AUTOCAST, "higher_order.wrap_with_set_grad_enabled")
"""Ops that run a program in the program. Its ops are the program's own, in other types where automatic
precision is on.
"""
_DOUBLE, _BFLOAT16 = 8, 13
"""ScalarType."""
UNKNOWN = ...
"""An argument of a kind that porter does not read, such as a program in the program."""


@dataclass(frozen=True, slots=True)
class AtenNode(Reading):
    """One call of an op, or a value that the program is given (`input`, `tensor`, `number`).

    Attributes:
        op: its name without the overload, such as `conv2d`; ops of other libraries have the library before
            it.
        inputs: the values that its arguments are or list, in their order.
        target: the op with library and overload, such as `aten.conv2d.default`.
        arguments: by name. A value is a tuple (NodeOutput), a missing one None.
        module: the path of the module that calls it, such as `layer1.0.conv1`.
        outputs: how many values it gives.
        sizes: of each output that is a tensor; an open size is the text of an expression.
        expression: of an output that is a size itself.
        axis: a value that has this size, and the position of the axis.
        autocast_type: the ScalarType that torch.autocast has while it runs; None for none.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...] = ()
    target: str = ""
    arguments: JsonObject = field(default_factory=dict)
    module: str = ""
    outputs: int = 1
    sizes: tuple[Sizes, ...] = ()
    expression: int | str | None = None
    axis: tuple[NodeOutput, int] | None = None
    autocast_type: int | None = None


@dataclass(frozen=True)
class AtenProgram:
    """A program.

    Attributes:
        nodes: by name, each after its inputs.
        sources: by the name of a value, the node's output that it is.
        stored: by the name of a value, the name of the tensor that it is.
        numbers: constants of the program's own, by name of their nodes.
        images: names of the values that the caller gives.
        outputs: names of the values that it returns.
        mutated: in words, what else each run changes: buffers and parameters of its own, and what the caller
            gives.
        types: ScalarType of tensors (torch/_export/serde/schema.py).
    """

    nodes: Mapping[str, AtenNode]
    sources: Mapping[str, NodeOutput]
    stored: Mapping[str, str]
    numbers: NamedArrays
    images: tuple[str, ...]
    outputs: tuple[str, ...]
    mutated: tuple[str, ...]
    types: Mapping[str, int]

    def sizes(self, name: str) -> Sizes:
        """Return the sizes of a value that is a tensor."""
        return self.nodes[name].sizes[0]


def read_program(program: JsonObject) -> AtenProgram:
    """Read the program in what `porter.formats.torch_export.archive.Archive.program` holds.

    Raises:
        ValueError, OverflowError: it is no such program, two nodes give the same value, a node reads what
            nothing before it gives, or a number is too large.
        KeyError, TypeError, AttributeError: it is no such program.
    """
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    if len(graph["nodes"]) + len(graph["inputs"]) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} nodes")
    reader = _make_reader(graph)
    stored = {}
    images = []
    for spec in signature["input_specs"]:
        ((kind, fields),) = spec.items()
        if kind == "constant_input":
            continue
        name = _value_name(fields["arg"])
        reader.add(
            AtenNode(name, "input" if kind == "user_input" else "tensor", sizes=(reader.sizes.get(name, ()),))
        )
        if kind == "user_input":
            images.append(name)
        elif kind in ("parameter", "buffer", "tensor_constant"):
            stored[name] = str(fields[f"{kind}_name"])
    for node in graph["nodes"]:
        reader.read_node(node)
    outputs = [spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec]
    return AtenProgram(
        nodes=reader.nodes,
        sources=reader.sources,
        stored=stored,
        numbers=reader.numbers,
        images=tuple(images),
        outputs=tuple(_value_name(output) for output in outputs if "as_tensor" in output),
        mutated=tuple(_describe_mutations(signature["output_specs"])),
        types=reader.types,
    )


@dataclass
class _NodeReader:
    """Collects the nodes of a program.

    Attributes:
        sizes, expressions: of values that are tensors, and of those that are sizes, by name.
        types: ScalarType of tensors, by name.
        nodes: those so far, by name.
        sources: by the name of a value, the node's output that it is.
        numbers: constants of the program's own, by name of their nodes.
        axis_of: by expression, the first value that has this size, and the position of the axis.
        scope: what the names of its nodes begin with.
        autocast_type: see AtenNode.
    """

    sizes: Mapping[str, Sizes]
    expressions: Mapping[str, int | str]
    types: dict[str, int]
    nodes: dict[str, AtenNode] = field(default_factory=dict)
    sources: dict[str, NodeOutput] = field(default_factory=StatedFields)
    numbers: dict[str, Array] = field(default_factory=dict)
    axis_of: dict[str, tuple[NodeOutput, int]] = field(default_factory=dict)
    scope: str = ""
    autocast_type: int | None = None

    def add(self, node: AtenNode, *further: str) -> None:
        """Add a node under its name in the program, and the names of the values that it gives: its own and
        `further`. Raise ValueError if one of them is taken.
        """
        if self.scope:
            node = replace(node, name=f"{self.scope}{node.name}")
        for index, name in enumerate((node.name.removeprefix(self.scope), *further)):
            if name in self.sources:
                raise ValueError(f"two nodes give '{name}'")
            self.sources[name] = node.name, index
        for output, sizes in enumerate(node.sizes):
            for index, size in enumerate(sizes):
                if isinstance(size, str):
                    # A later node that computes this open size stands for the axis.
                    self.axis_of.setdefault(size, ((node.name, output), index))
        self.nodes[node.name] = node

    def read_node(self, node_fields: JsonObject) -> None:
        """Read a node. One that only runs a graph within it, such as under torch.autocast, is replaced by
        that graph's nodes.
        """
        names = values_of(node_fields)
        # A node that gives nothing, such as an assertion of a size, has its own name.
        name, *further = names or [str(node_fields.get("name") or f"node {len(self.nodes)}")]
        target = str(node_fields["target"]).removeprefix("torch.ops.")
        op = _op_name(target)
        inner = [
            stated["arg"]["as_graph"]["graph"]
            for stated in node_fields["inputs"]
            if "as_graph" in stated["arg"]
        ]
        # A wrapper runs one graph, and only sets how: autocast's sets the type.
        if op in _WRAPPERS and len(inner) == 1:
            autocast_type = self.autocast_type if op != _AUTOCAST else _autocast_type(node_fields["inputs"])
            self.inline(inner[0], node_fields["inputs"], names, autocast_type)
            return
        arguments = self.read_arguments(name, op, node_fields["inputs"])
        # The innermost module stands last.
        module = next((path for _, path in reversed(module_stack(node_fields))), "")
        inputs = tuple(source for value in arguments.values() for source in _sources_in(value))
        sizes = tuple(self.sizes.get(value_name, ()) for value_name in names)
        # A node may give a size: its expression, and an earlier axis of the same one, say which.
        expression = self.expressions.get(name)
        axis = self.axis_of.get(str(expression))
        self.add(
            AtenNode(
                name,
                op,
                inputs,
                target=target,
                arguments=arguments,
                module=module,
                outputs=len(names),
                sizes=sizes,
                expression=expression,
                axis=axis,
                autocast_type=self.autocast_type,
            ),
            *further,
        )

    def read_arguments(self, name: str, op: str, inputs: Iterable[JsonObject]) -> dict[str, Any]:
        """Return what a node of this name states, by the names of its arguments; numbers are values in it
        where others read them as such.
        """
        arguments = StatedFields(
            (str(stated["name"]), self.read_argument(stated["arg"])) for stated in inputs
        )
        # Run in another type, the program would be another function.
        if op == "rms_norm" and arguments.get("eps") is None:
            arguments["eps"] = float(np.finfo(np.float64 if self.types[name] == _DOUBLE else np.float32).eps)
        # A lerp computes with its weight.
        operands = (*OPERANDS, "weight") if op == "lerp" else OPERANDS
        for key in operands:
            number = arguments.get(key)
            if isinstance(number, int | float) and not isinstance(number, bool):
                arguments[key] = self.add_number(f"{name}.{key}", number)
        return arguments

    def add_number(self, name: str, number: float) -> NodeOutput:
        """Add a number that a node states, and return it as a value that the node reads."""
        self.add(AtenNode(name, "number"))
        self.numbers[f"{self.scope}{name}"] = _constant_array(number)
        return f"{self.scope}{name}", 0

    def inline(
        self,
        graph: JsonObject,
        inputs: Sequence[JsonObject],
        names: Sequence[str],
        autocast_type: int | None,
    ) -> None:
        """Read the nodes of a graph within the program, as nodes of the program.

        Args:
            graph: the inner graph.
            inputs: of the node that calls it; the last ones are the graph's.
            names: of the values that the calling node gives.
            autocast_type: the ScalarType that torch.autocast has while it runs.
        """
        part = self._reader_within(graph, f"{names[0]}__", autocast_type)
        graph_inputs = inputs[len(inputs) - len(graph["inputs"]) :]
        values = [self.read_argument(stated["arg"]) for stated in graph_inputs]
        part.sources |= {
            _value_name(argument): value for argument, value in zip(graph["inputs"], values, strict=True)
        }
        for node in graph["nodes"]:
            part.read_node(node)
        # What the graph gives inside keeps its names behind the scope, and its outputs are the calling
        # node's values.
        self.types |= {f"{part.scope}{name}": kind for name, kind in part.types.items()}
        self.sources |= {
            f"{part.scope}{name}": source
            for name, source in part.sources.items()
            if source[0].startswith(part.scope)
        }
        self.sources |= {
            name: part.sources[_value_name(argument)]
            for name, argument in zip(names, graph["outputs"], strict=True)
        }

    def _reader_within(self, graph: JsonObject, scope: str, autocast_type: int | None) -> _NodeReader:
        """Return a reader that adds its nodes and numbers to this one's; the names of values, their sizes and
        their types are its graph's own.
        """
        inner = replace(_make_reader(graph), scope=scope, autocast_type=autocast_type)
        return replace(inner, nodes=self.nodes, numbers=self.numbers)

    def read_argument(self, argument: JsonObject) -> Any:
        """Return an argument of an op as a plain value: a NodeOutput for a value, a number, a text, a flag, a
        list of these, or None. `UNKNOWN` stands for any other kind.
        """
        ((kind, value),) = argument.items()
        match kind:
            case "as_none" | "as_device" | "as_layout":  # where a value is, not what it is
                return None
            case "as_tensor" | "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
                return self.resolve_value(value)
            case "as_tensors" | "as_sym_ints" | "as_sym_floats" | "as_sym_bools" | "as_optional_tensors":
                return [self.resolve_value(item) for item in value]
            case "as_float":
                return float(value)
            case "as_floats":
                return [float(number) for number in value]
            case "as_int" | "as_bool" | "as_scalar_type" | "as_memory_format" | "as_string" if isinstance(
                value, int | str
            ):
                return value
            case "as_ints" | "as_bools" if all(isinstance(item, int) for item in value):
                return value
            case _:
                return UNKNOWN

    def resolve_value(self, argument: JsonObject) -> Any:
        """Return a value by its name, or the number or None that stands in its place. Raise ValueError for a
        name that nothing before has given.
        """
        if "name" in argument or "as_name" in argument:
            name = _value_name(argument)
            if name not in self.sources:
                raise ValueError(f"a node reads '{name}', which nothing before it gives")
            return self.sources[name]
        ((kind, value),) = argument.items()
        if kind == "as_tensor":
            return self.resolve_value(value)
        return None if kind == "as_none" else value


def _make_reader(graph: JsonObject) -> _NodeReader:
    """Return a reader of the nodes of a graph, with the sizes and types of its values."""
    sizes = {
        str(name): tuple(_read_size(size) for size in fields["sizes"])
        for name, fields in graph["tensor_values"].items()
    }
    types = {str(name): int(fields["dtype"]) for name, fields in graph["tensor_values"].items()}
    return _NodeReader(
        sizes, {str(name): _read_size(fields) for name, fields in graph["sym_int_values"].items()}, types
    )


def _autocast_type(inputs: Sequence[JsonObject]) -> int | None:
    """Return the type of the automatic precision that autocast's wrapper switches on by its third argument,
    its second one (torch/_higher_order_ops/wrap.py), or bfloat16 on a CPU; None where it switches it off.
    """
    scalar_type = inputs[1]["arg"].get("as_scalar_type")
    if inputs[2]["arg"] == {"as_bool": False}:
        return None
    return _BFLOAT16 if scalar_type is None else int(scalar_type)


def _describe_mutations(specs: Iterable[JsonObject]) -> Iterator[str]:
    """Yield words for each input, buffer and parameter that a run of the program changes: `the buffer
    'bn.running_mean'`.
    """
    for spec in specs:
        ((kind, fields),) = spec.items()
        if kind.endswith("_mutation"):
            subject = kind.removesuffix("_mutation")
            name = fields[f"{subject}_name"]
            yield f"the {'input' if subject == 'user_input' else subject} '{name}'"


def _value_name(argument: JsonObject) -> str:
    """Return the name in a TensorArgument or a SymIntArgument, `{"name": "x"}` or `{"as_name": "s0"}`, which
    may be in an Argument, `{"as_tensor": {"name": "x"}}`. Raise ValueError if it is no name.
    """
    if len(argument) == 1:
        (inner,) = argument.values()
        if isinstance(inner, Mapping):
            argument = inner
    name = str(argument["name"] if "name" in argument else argument["as_name"])
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a name of a value")
    return name


def _value_names(output: JsonObject) -> Iterator[str]:
    """Yield the names of the values in one output of a node; none for an output that is not given."""
    ((kind, value),) = output.items()
    if kind in ("as_tensors", "as_sym_ints"):
        yield from (_value_name(item) for item in value)
    elif kind != "as_none":
        yield _value_name(value)


def values_of(node: JsonObject) -> list[str]:
    """Return the names of the values that a stated node gives."""
    return [name for output in node["outputs"] for name in _value_names(output)]


def module_stack(node: JsonObject) -> list[tuple[str, str]]:
    """Return the calls of modules that a stated node is part of, the outermost first: a key of the call, and
    the module's path. The key of a further call of a module ends in its number: `L__self___relu@1`.
    """
    # Calls are written as `key,path,class`, with `;` between them.
    calls = str((node.get("metadata") or {}).get("nn_module_stack") or "").split(";")
    fields_of_calls = (call.split(",", 2) for call in calls)
    return [(fields[0], fields[1]) for fields in fields_of_calls if len(fields) == 3]


def _sources_in(value: Any) -> Iterator[NodeOutput]:
    """Yield the values that an argument is or lists."""
    if isinstance(value, tuple):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, tuple))


def _op_name(target: str) -> str:
    """Return an op's name without its library and its overload, and without the `_` of one that works in
    place: `relu` for `aten.relu_.default`. An op of another library than ATen keeps its library's name.
    """
    library, _, rest = target.partition(".")
    if library != "aten":
        return target.replace("_operator.", "operator.")
    name = rest.rpartition(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


def _constant_array(value: float) -> Array:
    """Return a number as a constant.

    Raises:
        ValueError: it has more than 64 bits.
    """
    # Numpy would leave it to Python, whose powers take any memory.
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError("a number has more than 64 bits")
    return np.asarray(value)


def _read_size(argument: JsonObject) -> int | str:
    """Return a stated size, or the text of the expression of an open one."""
    return int(argument["as_int"]) if "as_int" in argument else str(argument["as_expr"]["expr_str"])
