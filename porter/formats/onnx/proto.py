"""An ONNX file's message: its nodes in order, and the tensors that it stores, in itself or in files beside
it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, NotInstalled
from porter.base.left_out import LeftOut
from porter.base.package import install
from porter.filegraph.names import expect_values
from porter.filegraph.value_names import NodeOutput
from porter.files.regular_files import is_in_folder
from porter.formats.limits import MOST_NODES, most_bytes
from porter.formats.onnx.nodes import MISSING, OnnxNode
from porter.formats.protobuf import parse_message

OLDEST_OPSET = 7
"""Before it, attributes said how the operands of a sum are laid out (onnx/defs/math/old.cc)."""
_EXTERNAL = 1
"""TensorProto.DataLocation of numbers in another file."""
_PASS_THROUGH = frozenset({"Identity", "Dropout"})


@dataclass(frozen=True)
class OnnxGraph:
    """A model as its file has it.

    Attributes:
        nodes: by name, each after its inputs; stored tensors are nodes too. Nodes that give their input
            unchanged are left out. The node "" stands for what an optional input that is not given reads
            (MISSING): it gives no value and becomes no step.
        sources: by the name of a value, the node that gives it, and which of that node's outputs it is.
        arrays: stored tensors by name.
        files: the model's own, and those of its tensors.
        scopes: by name of an If within a branch, what its own branches may read, as `sources`.
        passed: dropouts, which inference leaves out, each with the value that it reads.
    """

    proto: Any
    nodes: Mapping[str, OnnxNode]
    sources: Mapping[str, NodeOutput]
    arrays: NamedArrays
    files: tuple[Path, ...]
    scopes: Mapping[str, Mapping[str, NodeOutput]] = field(default_factory=dict)
    passed: Sequence[tuple[LeftOut, NodeOutput]] = ()

    @property
    def path(self) -> Path:
        """The model's own file."""
        return self.files[0]


def read_message(path: Path, outputs: Sequence[str] = ()) -> OnnxGraph:
    """Parse a model's file, and return its nodes and its tensors, which stand in the file or in files of its
    folder.

    Args:
        outputs: names of the values at which the graph ends; its own outputs if there are none.

    Raises:
        UsageError: the model lacks one of `outputs`.
        FileError: it is damaged or too large, its operators are older than opset 7, it calls functions of its
            own, a tensor does not hold what it declares, or keeps its numbers outside the folder.
        NotInstalled: the package `onnx` is not installed.
    """
    proto = parse_message(path, import_onnx().ModelProto(), "export with external data")
    # A model states a version for each domain; ONNX's own has no name, or this one.
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    stored = Initializers(path)
    _expect_readable(proto, opset, path)
    arrays = {tensor.name: stored.array(tensor, tensor.name) for tensor in proto.graph.initializer}
    nodes = {"": OnnxNode("", "", (), opset)}
    nodes |= {name: OnnxNode(name, "Constant", (), opset) for name in arrays}
    sources: dict[str, NodeOutput] = {"": MISSING, **{name: (name, 0) for name in arrays}}
    for value in proto.graph.input:
        if value.name not in arrays:
            nodes[value.name] = OnnxNode(value.name, "Input", (), opset)
            sources[value.name] = (value.name, 0)
    scope = NameScope(nodes, sources, arrays, stored)
    scope.add(proto.graph.node)
    files = (path, *stored.files)
    stored_bytes = sum(array.nbytes for array in arrays.values())
    most = most_bytes(sum(file.stat().st_size for file in files))
    if stored_bytes > most:
        raise stored.refuse(
            f"the model's tensors take {stored_bytes} bytes, more than files of their size may ({most})",
            "export it again",
        )
    if outputs:
        _end_at(proto.graph, outputs, [name for name in sources if name])
    return OnnxGraph(proto, nodes, sources, arrays, files, passed=scope.passed)


def _end_at(graph: Any, outputs: Sequence[str], values: Sequence[str]) -> None:
    """Make the named values the outputs of a graph, in place of its own. Raise UsageError for one that is not
    among `values`.
    """
    expect_values(outputs, values)
    kind = graph.output[0].type.tensor_type.elem_type if graph.output else 0
    del graph.output[:]
    for name in outputs:
        graph.output.add(name=name).type.tensor_type.elem_type = kind


def _expect_readable(proto: Any, opset: int, path: Path) -> None:
    """Expect operators that porter reads and not too many nodes, no functions, no sparse tensors, and no
    nodes whose own numbers are in other files. Raise FileError otherwise.
    """
    newest = import_onnx().defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise FileError(
            f"the model has opset {opset}, and porter reads opset {OLDEST_OPSET} to {newest}",
            where=path,
            next="convert it with onnx.version_converter.convert_version",
        )
    if proto.functions:
        raise FileError(
            f"the model calls functions of its own, such as '{proto.functions[0].name}'",
            where=path,
            next="inline them with onnx.inliner",
        )
    if proto.graph.sparse_initializer:
        raise FileError("the model stores sparse tensors", where=path, next="export it with dense ones")
    if len(proto.graph.node) + len(proto.graph.initializer) > MOST_NODES:
        raise FileError(f"the model has more than {MOST_NODES} nodes", where=path, next="export it again")
    _expect_names(proto.graph, path)
    for node in proto.graph.node:
        if node.op_type != "Constant" and any(map(_is_external, _tensors_of_node(node))):
            raise FileError(
                f"'{node.name or node.op_type}' keeps its own numbers in another file",
                where=path,
                next="export it again",
            )


@dataclass(frozen=True)
class NameScope:
    """Where the nodes of a graph, or of a branch within one, find what they read.

    Attributes:
        nodes, sources, arrays, scopes, passed: as of OnnxGraph; what is added goes there.
        stored: reads the numbers of the tensors that the file stores.
        named: gives the name that a node has among all nodes from its own. They differ within a branch, where
            a name may be that of a node outside.
    """

    nodes: dict[str, OnnxNode]
    sources: dict[str, NodeOutput]
    arrays: dict[str, Array]
    stored: Initializers
    named: Callable[[str], str] = lambda name: name
    scopes: dict[str, Mapping[str, NodeOutput]] = field(default_factory=dict)
    passed: list[tuple[LeftOut, NodeOutput]] = field(default_factory=list)

    def add(self, nodes: Iterable[Any]) -> None:
        """Add nodes (NodeProto) in their order."""
        for node in nodes:
            self._add(node)

    def _add(self, node: Any) -> None:
        """Add a node under a name that no other has, and the values that it gives. A Constant's numbers
        become an array; an identity or a dropout of inference is left out, and what it reads stands for what
        it gives.
        """
        inputs = self._inputs(node)
        first = next(filter(None, node.output), "")
        if not first:
            raise self.stored.refuse(f"a node ({node.op_type}) gives nothing", "export it again")
        attributes = {attribute.name: attribute for attribute in node.attribute}
        name = self.named(first)
        op = node.op_type
        if op == "Constant" and not node.domain:
            self.arrays[name] = self.stored.constant(attributes, name)
        if node.domain not in ("", "ai.onnx"):
            op = f"{node.domain}.{op}"
        if op == "Dropout" and len(inputs) > 2 and self._number(inputs, 2) != 0:
            op = "Dropout whose training_mode is no constant False"
        added = OnnxNode(name, op, inputs, self.nodes[""].opset, node.name, attributes, len(node.output))
        if op in _PASS_THROUGH and inputs:
            self._pass_through(added, node.output)
            return
        self.nodes[name] = added
        if op == "If":
            self.scopes[name] = self.sources
        self.sources.update({output: (name, index) for index, output in enumerate(node.output) if output})

    def _inputs(self, node: Any) -> tuple[NodeOutput, ...]:
        """Return the values that a node and the graphs within it read, without the optional inputs at the end
        that are not given. Raise FileError where nothing gives one of them.
        """
        missing = next((name for name in node.input if name not in self.sources), None)
        if missing is not None:
            raise self.stored.refuse(
                f"'{node.name or node.op_type}' reads '{missing}', which nothing before it gives",
                "export the model again",
            )
        names_read = list(node.input)
        while names_read and not names_read[-1]:
            names_read.pop()
        return tuple(self.sources[source] for source in (*names_read, *captured_values(node, self.sources)))

    def _pass_through(self, node: OnnxNode, outputs: Sequence[str]) -> None:
        """Let the first output of a node stand for the value that it reads, and record a dropout with its
        rate. A Dropout's second output is a mask, which stays as a node that porter does not read.
        """
        first = next(filter(None, outputs))
        self.sources[first] = node.inputs[0]
        if node.op == "Dropout":
            ratio = self._number(node.inputs, 1)
            rate = node.real("ratio", 0.5) if ratio is None else ratio
            self.passed.append((LeftOut((node.title or first).strip("/"), "Dropout", rate), node.inputs[0]))
        mask = next(filter(None, outputs[1:]), None)
        if mask is not None:
            name = self.named(mask)
            self.nodes[name] = replace(node, name=name, op="Dropout's mask", outputs=1)
            self.sources[mask] = name, 0

    def _number(self, inputs: Sequence[NodeOutput], index: int) -> float | None:
        """Return an input that is a stored number; None if it is something else, or left out."""
        array = self.arrays.get(inputs[index][0]) if index < len(inputs) else None
        return float(array.item()) if array is not None and array.size == 1 else None


def _expect_names(graph: Any, path: Path) -> None:
    """Refuse a graph that gives a name to two values, or none to a tensor that it stores."""
    counts = Counter(tensor.name for tensor in graph.initializer)
    counts.update([value.name for value in graph.input if value.name not in counts])
    counts.update(name for node in graph.node for name in node.output if name)
    names = chain(counts, *map(_names_of_node, graph.node))
    if not all(isinstance(name, str) for name in names):  # bytes that are no UTF-8
        raise FileError("a name in the model is not text", where=path, next="fetch or copy it again")
    wrong_name = next((name for name, count in counts.items() if count > 1 or not name), None)
    # An empty name is wrong too, and has its own message.
    if wrong_name:
        raise FileError(f"the model has two values called '{wrong_name}'", where=path, next="export it again")
    if wrong_name is not None:
        raise FileError("the model stores a tensor without a name", where=path, next="export it again")


def _names_of_node(node: Any) -> Iterator[Any]:
    """Yield the names that a node states of itself, its operator and its attributes."""
    yield from (node.name, node.op_type, node.domain)
    yield from (attribute.name for attribute in node.attribute)


def _tensors_of_node(node: Any) -> Iterator[Any]:
    """Yield the tensors in a node's attributes, sparse ones by their two parts, and those in the graphs among
    the attributes.
    """
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from graph.initializer
            for inner in graph.node:
                yield from _tensors_of_node(inner)


def captured_values(node: Any, outer_values: Collection[str]) -> Iterator[str]:
    """Yield the values that graphs in a node's attributes, such as the branches of an If, read from outside.
    A value may come several times.

    Args:
        outer_values: the names of all values that the node could read.
    """
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from (name for name in inner.input if name and name in outer_values)
                yield from captured_values(inner, outer_values)


def _is_external(tensor: Any) -> bool:
    """Return whether the numbers of a tensor are in another file."""
    return bool(tensor.data_location == _EXTERNAL)


def import_onnx() -> Any:
    """Return the package `onnx`, which parses the files.

    Raises:
        NotInstalled: it is not installed.
    """
    try:
        return import_module("onnx")
    except ImportError as error:
        raise NotInstalled(f"onnx cannot be imported: {error}", next=install("onnx")) from None


@dataclass
class Initializers:
    """The tensors of a file.

    Attributes:
        files: those that hold tensors beside the model's own.
    """

    path: Path
    files: tuple[Path, ...] = ()

    def refuse(self, message: str, next: str) -> FileError:
        """Return the error of a file that porter does not read."""
        return FileError(message, where=self.path, next=next)

    def constant(self, attributes: Mapping[str, Any], name: str) -> Array:
        """Return the numbers that a Constant node states. Raise FileError if they are texts or sparse."""
        if "value" in attributes:
            return self.array(attributes["value"].t, name)
        # Other spellings of a tensor, and the fields of AttributeProto that hold them.
        for key, field_name in (
            ("value_float", "f"),
            ("value_floats", "floats"),
            ("value_int", "i"),
            ("value_ints", "ints"),
        ):
            if key in attributes:
                numbers = getattr(attributes[key], field_name)
                return np.asarray(numbers, np.float32 if "float" in key else np.int64)
        raise self.refuse(f"the constant '{name}' is not a tensor of numbers", "export the model again")

    def array(self, tensor: Any, name: str) -> Array:
        """Return a tensor's numbers, from the message or from the file beside the model that it names.

        Raises:
            FileError: it does not hold what it declares.
        """
        onnx = import_onnx()
        shape = tuple(tensor.dims)
        try:
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
            if kind.kind not in "iufbV":
                kinds = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
                raise self.refuse(
                    f"tensor '{name}' holds no real numbers: its type is {kinds}",
                    "export the model without it",
                )
            if min(shape, default=1) < 0:  # the handler below says what is wrong
                raise ValueError
            if _is_external(tensor):
                return self._external(tensor, name, kind, shape)
            if tensor.HasField("raw_data"):
                return np.frombuffer(
                    tensor.raw_data, kind.newbyteorder("<") if kind.isbuiltin == 1 else kind
                ).reshape(shape)
            if math.prod(shape) > 2 * tensor.ByteSize():  # also an uninitialised tensor
                raise ValueError
            array: Array = onnx.numpy_helper.to_array(tensor)
            return array
        except (ValueError, KeyError, TypeError):
            message = (
                f"tensor '{name}' does not hold the {shape} numbers of type {tensor.data_type} that "
                "it declares"
            )
            raise self.refuse(message, "fetch or export the model again") from None

    def _external(self, tensor: Any, name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return a tensor in a file beside the model, as a view of that file. Raise ValueError if the file is
        too short, and FileError if it cannot be mapped.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        file = self._file_beside(location, name)
        count = math.prod(shape)
        offset = int(entries.get("offset") or 0)
        size = count * kind.itemsize
        length = int(entries.get("length") or size)
        if offset < 0 or length < size or offset + length > file.stat().st_size:
            raise ValueError
        if file not in self.files:
            self.files = (*self.files, file)
        if not count:
            return np.zeros(shape, kind)
        stored = kind.newbyteorder("<") if kind.isbuiltin == 1 else kind
        try:
            return np.memmap(file, stored, "r", offset, shape)
        except (OSError, OverflowError) as error:
            message = f"the {size:,} bytes of tensor '{name}' in '{location:.200}' cannot be read: {error}"
            raise self.refuse(message, "read it where there is more memory") from None

    def _file_beside(self, location: str, name: str) -> Path:
        """Return the file that holds a tensor's numbers, which has to be in the model's folder or in the
        cache of Hugging Face's hub. Raise FileError otherwise.
        """
        folder = self.path.parent.resolve()
        try:
            file = (folder / location).resolve()
            wrong = "" if file.is_file() else "is missing"
            if not is_in_folder(folder, location):
                wrong = "stands outside the model's folder"
        except (OSError, RuntimeError) as error:
            # A name that is too long; before Python 3.13, links to each other.
            reason = getattr(error, "strerror", None) or "links point to each other"
            wrong = f"cannot be found: {reason}"
        if wrong:
            message = f"the file '{location:.200}' of tensor '{name}' {wrong}"
            raise self.refuse(message, f"put it beside the model, in {self.path.parent}")
        return file
