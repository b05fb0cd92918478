"""An ONNX file's message: its nodes in order, and the tensors that it stores, in itself or in files beside
it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, NotInstalled
from porter.base.left_out import LeftOut
from porter.base.package import install
from porter.filegraph.dataflow import Reference
from porter.formats.limits import MOST_NODES, most_bytes
from porter.formats.onnx.nodes import MISSING, OnnxNode
from porter.formats.protobuf import parse

OLDEST_OPSET = 7
"""Before it, attributes said how the operands of a sum are laid out (onnx/defs/math/old.cc)."""
_EXTERNAL = 1
"""TensorProto.DataLocation."""
_THROUGH = frozenset({"Identity", "Dropout"})

Refuse = Callable[[str, str], FileError]
"""Makes the error for a message and its next step."""


@dataclass(frozen=True)
class OnnxGraph:
    """A model as its file has it.

    Attributes:
        nodes: by name, each after its inputs; stored tensors are nodes too. Nodes that give their input
            unchanged are left out. The node "" stands for what an optional input that is not given reads
            (MISSING): it gives no value and becomes no step.
        given: by the name of a value, the node that gives it.
        arrays: stored tensors by name.
        files: of the model.
        scopes: by name of an If within a branch, what its own branches may read, as `given`.
        passed: dropouts, each with what it reads.
    """

    proto: Any
    nodes: Mapping[str, OnnxNode]
    given: Mapping[str, Reference]
    arrays: NamedArrays
    files: tuple[Path, ...]
    scopes: Mapping[str, Mapping[str, Reference]] = field(default_factory=dict)
    passed: Sequence[tuple[LeftOut, Reference]] = ()


def read_message(path: Path, refuse: Refuse) -> OnnxGraph:
    """The message of a file, whose tensors stand in the file or in files of its folder.

    Raises:
        FileError: it is damaged or too large, its operators are older than opset 7, it calls functions of its
            own, a tensor does not hold what it declares, or keeps its numbers outside the folder.
        NotInstalled: the package `onnx` is not installed.
    """
    proto = parse(path, import_onnx().ModelProto(), "export with external data")
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    newest = import_onnx().defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        next_step = "convert it with onnx.version_converter.convert_version"
        raise refuse(
            f"the model has opset {opset}, and porter reads opset {OLDEST_OPSET} to {newest}", next_step
        )
    if proto.functions:
        raise refuse(
            f"the model calls functions of its own, such as '{proto.functions[0].name}'",
            "inline them with onnx.inliner",
        )
    if proto.graph.sparse_initializer:
        raise refuse("the model stores sparse tensors", "export it with dense ones")
    if len(proto.graph.node) + len(proto.graph.initializer) > MOST_NODES:
        raise refuse(f"the model has more than {MOST_NODES} nodes", "export it again")
    _expect_names(proto.graph, refuse)
    outside = next(
        (
            node
            for node in proto.graph.node
            if node.op_type != "Constant" and any(map(_is_external, _tensors(node)))
        ),
        None,
    )
    if outside is not None:
        raise refuse(
            f"'{outside.name or outside.op_type}' keeps its own numbers in another file", "export it again"
        )
    stored = Initializers(path, refuse)
    arrays = {tensor.name: stored.array(tensor, tensor.name) for tensor in proto.graph.initializer}
    nodes = {"": OnnxNode("", "", (), opset)}
    nodes |= {name: OnnxNode(name, "Constant", (), opset) for name in arrays}
    given: dict[str, Reference] = {"": MISSING, **{name: (name, 0) for name in arrays}}
    for value in proto.graph.input:
        if value.name not in arrays:
            nodes[value.name] = OnnxNode(value.name, "Input", (), opset)
            given[value.name] = (value.name, 0)
    scope = NameScope(nodes, given, arrays, stored)
    scope.add(proto.graph.node)
    files = (path, *stored.files)
    taken, most = (
        sum(array.nbytes for array in arrays.values()),
        most_bytes(sum(file.stat().st_size for file in files)),
    )
    if taken > most:
        raise refuse(
            f"the model's tensors take {taken} bytes, more than files of their size may ({most})",
            "export it again",
        )
    return OnnxGraph(proto, nodes, given, arrays, files, passed=scope.passed)


@dataclass(frozen=True)
class NameScope:
    """Where the nodes of a graph, or of a branch within one, find what they read.

    Attributes:
        nodes, given, arrays, scopes, passed: as of OnnxGraph; what is added goes there.
        named: the name that a node of this name has among all nodes.
    """

    nodes: dict[str, OnnxNode]
    given: dict[str, Reference]
    arrays: dict[str, Array]
    stored: Initializers
    named: Callable[[str], str] = lambda name: name
    scopes: dict[str, Mapping[str, Reference]] = field(default_factory=dict)
    passed: list[tuple[LeftOut, Reference]] = field(default_factory=list)

    def add(self, nodes: Iterable[Any]) -> None:
        """Adds nodes (NodeProto) in their order."""
        for node in nodes:
            self._add(node)

    def _add(self, node: Any) -> None:
        missing = next((name for name in node.input if name not in self.given), None)
        if missing is not None:
            raise self.stored.refuse(
                f"'{node.name or node.op_type}' reads '{missing}', which nothing before it gives",
                "export the model again",
            )
        first = next((output for output in node.output if output), "")
        if not first:
            raise self.stored.refuse(f"a node ({node.op_type}) gives nothing", "export it again")
        name, opset = self.named(first), self.nodes[""].opset
        attributes = {attribute.name: attribute for attribute in node.attribute}
        read = list(node.input)
        while read and not read[-1]:  # an optional input that is not given
            read.pop()
        inputs = tuple(self.given[source] for source in (*read, *captured(node, self.given)))
        if node.op_type == "Constant" and not node.domain:
            self.arrays[name] = self.stored.constant(attributes, name)
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        training = op == "Dropout" and len(inputs) > 2 and self._number(inputs, 2) != 0
        if op in _THROUGH and inputs and not training:
            self.given[first] = inputs[0]
            if op == "Dropout":
                ratio = attributes["ratio"].f if "ratio" in attributes else 0.5
                stated = self._number(inputs, 1)
                ratio = ratio if stated is None else stated
                self.passed.append((LeftOut((node.name or first).strip("/"), "Dropout", ratio), inputs[0]))
            mask = next((output for output in node.output[1:] if output), None)
            if mask is not None:
                self.nodes[self.named(mask)] = OnnxNode(
                    self.named(mask), "Dropout's mask", inputs, opset, node.name, attributes
                )
                self.given[mask] = self.named(mask), 0
            return
        op = "Dropout whose training_mode is no constant False" if training else op
        self.nodes[name] = OnnxNode(name, op, inputs, opset, node.name, attributes, len(node.output))
        if op == "If":
            self.scopes[name] = self.given
        self.given.update({output: (name, place) for place, output in enumerate(node.output) if output})

    def _number(self, inputs: Sequence[Reference], place: int) -> float | None:
        """An input that is a stored number; None where it is another one, or left out."""
        stated = self.arrays.get(inputs[place][0]) if place < len(inputs) else None
        return float(stated.item()) if stated is not None and stated.size == 1 else None


def _expect_names(graph: Any, refuse: Refuse) -> None:
    """Refuses a graph that gives a name to two values, or none to a tensor that it stores."""
    stored = [tensor.name for tensor in graph.initializer]
    held = set(stored)
    images = [value.name for value in graph.input if value.name not in held]
    counts = Counter([*stored, *images, *(name for node in graph.node for name in node.output if name)])
    titles = (
        text
        for node in graph.node
        for text in (node.name, node.op_type, node.domain, *(each.name for each in node.attribute))
    )
    if not all(isinstance(name, str) for name in (*counts, *titles)):  # bytes that are no UTF-8
        raise refuse("a name in the model is not text", "fetch or copy it again")
    twice = next((name for name, count in counts.items() if count > 1 or not name), None)
    if twice is not None:
        message = (
            f"the model has two values called '{twice}'"
            if twice
            else "the model stores a tensor without a name"
        )
        raise refuse(message, "export it again")


def _tensors(node: Any) -> Iterator[Any]:
    """The tensors in a node's attributes, and in the graphs among them."""
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from graph.initializer
            for inner in graph.node:
                yield from _tensors(inner)


def captured(node: Any, given: Collection[str]) -> Iterator[str]:
    """The values that graphs in a node's attributes, such as the branches of an If, read from outside."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from (name for name in inner.input if name and name in given)
                yield from captured(inner, given)


def _is_cached(folder: Path, location: str, file: Path) -> bool:
    """Whether a file that a model names beside itself is a link of the Hub's cache, whose `snapshots` has
    links to the files in `blobs` of the same repository (huggingface_hub/file_download.py,
    `_create_symlink`).
    """
    if ".." in Path(location).parts or Path(location).is_absolute():
        return False
    snapshots = next((parent for parent in folder.parents if parent.name == "snapshots"), None)
    return snapshots is not None and file.parent == snapshots.parent / "blobs"


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == _EXTERNAL)


def import_onnx() -> Any:
    """The package `onnx`, which parses the files.

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
    refuse: Refuse
    files: tuple[Path, ...] = ()

    def constant(self, attributes: Mapping[str, Any], name: str) -> Array:
        """What a Constant node states."""
        if "value" in attributes:
            return self.array(attributes["value"].t, name)
        for key, kind in (
            ("value_float", "f"),
            ("value_floats", "floats"),
            ("value_int", "i"),
            ("value_ints", "ints"),
        ):
            if key in attributes:
                return np.asarray(getattr(attributes[key], kind), np.float32 if "float" in key else np.int64)
        raise self.refuse(f"the constant '{name}' is not a tensor of numbers", "export the model again")

    def array(self, tensor: Any, name: str) -> Array:
        """A tensor's numbers.

        Raises:
            FileError: it does not hold what it declares.
        """
        onnx, shape = import_onnx(), tuple(tensor.dims)
        try:
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
            if kind.kind not in "iufbV":
                kinds = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
                raise self.refuse(
                    f"tensor '{name}' holds no real numbers: its type is {kinds}",
                    "export the model without it",
                )
            if min(shape, default=1) < 0:
                raise ValueError
            if _is_external(tensor):
                return self._external(tensor, name, kind, shape)
            if tensor.HasField("raw_data"):
                return np.frombuffer(
                    tensor.raw_data, kind.newbyteorder("<") if kind.isbuiltin == 1 else kind
                ).reshape(shape)
            if math.prod(shape) > 2 * tensor.ByteSize():  # also an uninitialised tensor
                raise ValueError
            found: Array = onnx.numpy_helper.to_array(tensor)
            return found
        except (ValueError, KeyError, TypeError):
            message = (
                f"tensor '{name}' does not hold the {shape} numbers of type {tensor.data_type} that "
                "it declares"
            )
            raise self.refuse(message, "fetch or export the model again") from None

    def _external(self, tensor: Any, name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """A tensor in a file beside the model, as a view of that file."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        folder, location = self.path.parent.resolve(), entries.get("location", "")
        try:
            file = (folder / location).resolve()
            missing = "is missing" if not file.is_file() else ""
        except (OSError, RuntimeError) as error:
            # A name that is too long; before Python 3.13, links to each other.
            file, missing = (
                folder,
                f"cannot be found: {getattr(error, 'strerror', None) or 'links point to each other'}",
            )
        beside = file.is_relative_to(folder) or _is_cached(folder, location, file)
        if missing or not beside:
            outside = missing if beside else "stands outside the model's folder"
            message = f"the file '{location:.200}' of tensor '{name}' {outside}"
            raise self.refuse(message, f"put it beside the model, in {self.path.parent}")
        offset, count = int(entries.get("offset") or 0), math.prod(shape)
        length = int(entries.get("length") or count * kind.itemsize)
        if offset < 0 or length < count * kind.itemsize or offset + length > file.stat().st_size:
            raise ValueError
        if file not in self.files:
            self.files = (*self.files, file)
        if not count:
            return np.zeros(shape, kind)
        stored = kind.newbyteorder("<") if kind.isbuiltin == 1 else kind
        try:
            return np.memmap(file, stored, "r", offset, shape)
        except (OSError, OverflowError) as error:
            size = count * kind.itemsize
            message = f"the {size:,} bytes of tensor '{name}' in '{location:.200}' cannot be read: {error}"
            raise self.refuse(message, "read it where there is more memory") from None
