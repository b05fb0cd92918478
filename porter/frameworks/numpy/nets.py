"""A kit for destinations whose framework porter does not run: a port is a net of layers and a file of their
tensors, and porter's own engine runs it by the rows of its format, which decode it as they decode others'
files.

A destination is a `NetDestination` with a `Maker` of layers, a table of spellings, and what writes and reads
its files.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.base.errors import (
    FileError,
    GraphError,
    MappingError,
    PaddingError,
    PorterError,
    UsageError,
    first_line,
)
from porter.base.options import DTYPE
from porter.filegraph.kernels.program import KernelProgram
from porter.filegraph.names import Names
from porter.files import digest
from porter.frameworks import LayerNames, OwnTensors, Tensors, defaults
from porter.frameworks.numpy import engine, ports
from porter.frameworks.spelled import Spelled
from porter.graph import INPUT, AvgPool, Conv, Graph, MaxPool, Node, Op, Rearrange, shapes, tensor_shapes
from porter.graph.ops import Axes, channels_in, row_of
from porter.graph.plan import Plan
from porter.padding import ANY, Capabilities, Pads, Realisation, Size

if TYPE_CHECKING:
    from porter.frameworks import PortEngine

NONE: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class Trained:
    """One of the port's tensors, in this shape; a kernel stands amid so many rows and columns of zeros."""

    path: str
    role: str
    shape: tuple[int, ...]
    amid: Pads = NONE


NetArray: TypeAlias = Trained | Array
"""What a tensor of a net holds: one of the port's, or constants."""


class Maker(ABC):
    """Makes the layers of one net in the order in which it runs them; a subclass knows what a layer is.

    Attributes:
        size: of the inputs that the net takes.
        shapes: of every path, for these.
        tensors: the shapes of those of every path, by role.
        values: what the net calls the value of each path.
        taken: all names of layers.
        held: what the net's tensors hold, by their names in its file.
    """

    def __init__(self, plan: Plan) -> None:
        self.graph, self.size = plan.lowered, plan.only_size or ANY
        self.shapes = shapes(self.graph, self.size)
        self.tensors = tensor_shapes(self.graph)
        self.values, self.taken = self.named(self.graph)
        self.held: dict[str, NetArray] = {}

    @classmethod
    def named(cls, graph: Graph) -> tuple[dict[str, str], Names]:
        """Return what the net calls the value of each path, and the names that are taken."""
        taken = Names()
        return {
            path: taken.take(cls.plain("data" if path == INPUT else path))
            for path in (*graph.inputs, *graph.by_path)
        }, taken

    @staticmethod
    def plain(name: str) -> str:
        """Return a name as the net's text may have it."""
        return name

    def name(self, wanted: str) -> str:
        """`wanted`, or the first variation of it that nothing has."""
        return self.taken.take(self.plain(wanted))

    def own_name(self, path: str) -> str:
        """Return what the layer of a path is called that gives its value."""
        return path

    @abstractmethod
    def add(self, kind: str, name: str, /, *inputs: str, **own: Any) -> str:
        """Add a layer and return the name of its value."""

    @abstractmethod
    def trained(self, path: str, name: str, *roles: str) -> list[Any]:
        """See porter.frameworks.spelled.LayerMaker."""

    def channels(self, path: str) -> int:
        return channels_in(self.shapes[path])

    def left_out(self, path: str) -> None:
        """What stands for a node that has no layers, while the refusals of others are looked for."""
        return

    @abstractmethod
    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """Return the net for images of `size` (rows and columns), where that is open otherwise, with
        facts.
        """


M = TypeVar("M", bound=Maker)


class NetDestination(ABC, Generic[M]):
    """See porter.frameworks.Destination and PortEngine, which it is both.

    Attributes:
        TITLE: the framework's name, for messages.
        NET_FILE: has the net's text; its tensors are in MODEL_FILE.
        SPELLINGS: how the framework says each op without a padding site that it has; a Rearrange, only one
            that leaves a number of each image.
        NO_ARRAYS: why arrays are refused, where its layers have none.
    """

    NAME: str
    TITLE: str
    MODEL_FILE: str
    NET_FILE: str
    CAPABILITIES: Capabilities
    MAKER: type[M]
    SPELLINGS: Mapping[type[Op], Callable[[Spelled[M, Any]], object]]
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
    PACKAGE = "numpy"
    NAMES_LAYERS = False
    NO_ARRAYS: str | None = None
    RUNNER = engine.RUNNER

    build_file = staticmethod(engine.build_file)
    run_reference = staticmethod(engine.run_reference)
    disagreement = staticmethod(engine.disagreement)
    run = staticmethod(ports.run)
    with_other_pads = staticmethod(ports.with_other_pads)
    classifier = staticmethod(ports.classifier)
    fillings = staticmethod(defaults.fillings)
    code_files = staticmethod(defaults.code_files)

    def __init__(self) -> None:
        self.ENGINE: PortEngine = self

    @abstractmethod
    def windowed(self, node: Spelled[M, Any], realisation: Realisation) -> None:
        """Add the layers of a windowed node.

        Raises:
            PaddingError: the framework has no layers for the realisation, because the plan was made for
                another one.
        """

    @abstractmethod
    def program(self, text: str, image: str) -> KernelProgram:
        """Return the net as the rows of its format make it of its text.

        Args:
            image: what the net calls its input.
        """

    @abstractmethod
    def parts(self, text: str) -> list[tuple[str, object]]:
        """Return what a plan decides of a net's text, in parts with names."""

    @abstractmethod
    def in_bytes(self, net: M, arrays: NamedArrays) -> Iterable[bytes | memoryview]:
        """Return the file of a net's tensors."""

    @abstractmethod
    def arrays_in(self, data: bytes) -> NamedArrays:
        """Return the tensors in a file, by name."""

    def refusals(self, plan: Plan) -> Sequence[PorterError]:
        return self._made(plan)[1]

    def net(self, plan: Plan) -> M:
        """Return the net of a plan.

        Raises:
            GraphError, PaddingError: the framework has no layers for an op; `where` is its path.
        """
        net, refused = self._made(plan)
        if refused:
            raise refused[0]
        return net

    def _made(self, plan: Plan) -> tuple[M, list[PorterError]]:
        """Return the net without what the framework has no layers for, and the errors of these ops."""
        maker = self.MAKER(plan)
        refused = list[PorterError]()
        for further in plan.graph.further_inputs:
            message = f"porter writes nets of {self.TITLE} with one input"
            next = "port it to torch, tf or onnx"
            return maker, [GraphError(message, where=further.path, next=next)]
        for node in maker.graph.nodes:
            try:
                self._add(maker, node, plan)
            except (GraphError, PaddingError) as error:
                refused.append(error.at(plan.origin(error.where or node.path)))
                maker.left_out(node.path)
        return maker, refused

    def _add(self, maker: M, node: Node, plan: Plan) -> None:
        """Add the layers of a node, or refuses it by name."""
        op, spelling = node.op, row_of(self.SPELLINGS, type(node.op))
        if any(
            isinstance(maker.shapes[path], Axes) and maker.shapes[path] for path in (node.path, *node.inputs)
        ):
            words = (
                self.NO_ARRAYS
                or f"porter writes maps and features for {self.TITLE}, not arrays of other axes"
            )
            raise GraphError(words, where=node.path)
        said = Spelled[M, Any](maker, node, op, maker.own_name(node.path))
        if isinstance(op, Conv | MaxPool | AvgPool):
            self.windowed(said, plan.realisations[node.path])
        elif spelling is not None and not (isinstance(op, Rearrange) and maker.shapes[node.path]):
            spelling(said)
        else:
            raise GraphError(f"porter writes no layer of {self.TITLE} for {op.words}", where=node.path)

    def build(
        self, plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu"
    ) -> ports.PortModel:
        """Return the net of the plan, as its text says it.

        Raises:
            UsageError: the device is another one than the CPU, or the number type is not float32 or float64.
            GraphError: the framework has no layers for an op. MappingError: the tensors do not fit the graph.
        """
        net = self.net(plan)
        program = self.program(net.text(), net.values[INPUT])
        arrays = _arrays(net, tensors, storage_type(dtype))
        return ports.port_model(plan, program, arrays, net.values, dtype, device)

    def write(
        self,
        folder: Path,
        plan: Plan,
        tensors: Tensors,
        layers: LayerNames,
        dtype: Dtype,
        about: Mapping[str, str],
    ) -> dict[str, str]:
        """Write both files into `folder`. Return the sha256 of each by its name.

        Raises:
            UsageError: porter's engine does not run this number type, or the tensors are too large for the
                file.
            GraphError: the framework has no layers for an op. MappingError: the tensors do not fit the graph.
        """
        if dtype not in ("float32", "float64"):
            message = f"porter writes {self.TITLE}'s tensors in float32 and float64, not in {dtype}"
            raise UsageError(message, where=DTYPE, next="leave it out")
        net = self.net(plan)
        data = self.in_bytes(net, _arrays(net, tensors, storage_type(dtype)))
        rows, columns = plan.only_size or json.loads(about.get("porter.native_size", "[null, null]"))
        (folder / self.NET_FILE).write_text(net.text((rows, columns), about), encoding="utf-8")
        with (folder / self.MODEL_FILE).open("wb") as file:
            file.writelines(data)
        return {name: digest(folder / name) for name in (self.MODEL_FILE, self.NET_FILE)}

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Return the canonical tensors of a port that `write` wrote.

        Raises:
            FileError: a file is missing or damaged, or the net is another than the plan's.
            MappingError: a tensor is missing or another.
        """
        net = self.net(plan)
        try:
            parts = self.parts((folder / self.NET_FILE).read_text(encoding="utf-8"))
            own = self.parts(net.text())
            stored = self.arrays_in((folder / self.MODEL_FILE).read_bytes())
        except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            message = f"the port's model cannot be read: {first_line(error)}"
            raise FileError(message, where=folder, next="convert again") from None
        if parts != own:
            other = next(
                (name for (name, part), (_, wanted) in zip(own, parts, strict=False) if part != wanted), None
            )
            wrong = f"'{other}' differs" if other else "it has more layers, or fewer"
            raise FileError(
                f"the net is not the one that port.json records: {wrong}",
                where=folder / self.NET_FILE,
                next="convert again",
            )
        return _read_back(net, stored)


def _arrays(net: Maker, tensors: Tensors, kind: np.dtype[Any]) -> dict[str, Array]:
    """Return the arrays of the net in the number type `kind`."""
    try:
        return {name: _filled(array, tensors).astype(kind, copy=False) for name, array in net.held.items()}
    except KeyError as error:
        raise MappingError("the tensors lack one of the graph's", where=error) from None


def _filled(held: NetArray, tensors: Tensors) -> Array:
    """Return an array of a net: one that is trained, with zeros around its kernel where a site asks for them,
    or a constant.
    """
    if not isinstance(held, Trained):
        return held
    tensor, (top, bottom, left, right) = tensors[held.path][held.role], held.amid
    return (
        np.pad(tensor, [(0, 0), (0, 0), (top, bottom), (left, right)])
        if any(held.amid)
        else tensor.reshape(held.shape)
    )


def _read_back(net: Maker, stored: NamedArrays) -> OwnTensors:
    """Return the canonical tensors in those of a net's file."""
    tensors = dict[str, dict[str, Array]]()
    for name, array_of_net in net.held.items():
        array = stored.get(name)
        if array is None or array.shape != array_of_net.shape:
            got = f"got {array.shape}" if array is not None else "got none"
            raise MappingError(f"expected a tensor of shape {array_of_net.shape}, {got}", where=name)
        if not isinstance(array_of_net, Trained):
            if not np.array_equal(array, array_of_net.astype(array.dtype)):
                raise MappingError("expected the constants that porter writes, got other numbers", where=name)
            continue
        cut, (top, bottom, left, right) = array, array_of_net.amid
        if any(array_of_net.amid):
            cut = array[:, :, top : array.shape[2] - bottom, left : array.shape[3] - right]
            if np.count_nonzero(cut) != np.count_nonzero(array):
                raise MappingError(
                    f"expected a kernel amid zeros {array_of_net.amid}, got other numbers around it",
                    where=name,
                )
        tensors.setdefault(array_of_net.path, {})[array_of_net.role] = cut.reshape(
            net.tensors[array_of_net.path][array_of_net.role]
        )
    return {
        path: {role: tensors[net.graph.by_path[path].holder][role] for role in roles}
        for path, roles in net.tensors.items()
    }
