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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.base.errors import (
    FileError,
    GraphError,
    MappingError,
    PaddingError,
    PorterError,
    first_line,
)
from porter.filegraph.names import Names
from porter.filegraph.program import KernelProgram
from porter.files import digest
from porter.frameworks import LayerNames, OwnTensors, Tensors
from porter.frameworks.defaults import DestinationDefaults
from porter.frameworks.numpy import engine, ports
from porter.frameworks.port_tensors import expect_tensor
from porter.frameworks.spelled import Spelled
from porter.graph import INPUT, AvgPool, Conv, Graph, MaxPool, Node, Op, Rearrange, shapes, tensor_shapes
from porter.graph.ops import Axes, ConvTranspose, channels_in, row_of
from porter.graph.plan import Plan
from porter.padding import ANY, Capabilities, Pads, Realisation, Size, subtract_pads

if TYPE_CHECKING:
    from porter.frameworks import PortEngine

NO_PADS: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class PortTensor:
    """One of the port's tensors, as a net's file holds it.

    Attributes:
        path, role: of the tensor in the plan's graph.
        shape: in the file.
        zeros_around: rows and columns of zeros that a kernel has around it, at the top, bottom, left, right.
    """

    path: str
    role: str
    shape: tuple[int, ...]
    zeros_around: Pads = NO_PADS


NetArray: TypeAlias = PortTensor | Array
"""What a tensor of a net holds: one of the port's, or constants."""


class CutPlace(NamedTuple):
    """Where the cut of a transposed convolution is said, in a framework whose layer cuts opposite sides
    alike.

    Attributes:
        stated: the pads that the layer states.
        behind: the pads that another layer adds behind it, or cuts where they are negative; None if there is
            no other.
        bias_behind: whether the bias is added last, because no kernel reaches some of those cells.
    """

    stated: Pads
    behind: Pads | None
    bias_behind: bool


def place_cut(op: ConvTranspose) -> CutPlace:
    """Return where the cut of a transposed convolution is said: by the layer, if it is the same at opposite
    sides and adds nothing, otherwise behind it.
    """
    top, bottom, left, right = op.cut
    if (top, left) == (bottom, right) and min(op.cut) >= 0:
        return CutPlace(op.cut, None, False)
    return CutPlace(NO_PADS, subtract_pads(NO_PADS, op.cut), op.bias and min(op.cut) < 0)


def share_of_old(momentum: float) -> float:
    """Return the share of the old average, which frameworks of nets state, for a momentum as porter has it,
    the share of the new one. 9 digits hide how 1 - x rounds.
    """
    return round(1 - momentum, 9)


class Maker(ABC):
    """Makes the layers of one net in the order in which it runs them; a subclass knows what a layer is.

    Attributes:
        size: rows and columns of the images that the net takes.
        shapes: the shape of the value of every path, for images of this size.
        tensors: the shape of every tensor, by path and role.
        values: the name in the net of the value of each path.
        used_names: all names of layers.
        contents: what the tensors of the net hold, by their names in its file.
    """

    def __init__(self, plan: Plan) -> None:
        self.graph, self.size = plan.lowered, plan.only_size or ANY
        self.shapes = shapes(self.graph, self.size)
        self.tensors = tensor_shapes(self.graph)
        self.values, self.used_names = self.name_values(self.graph)
        self.contents: dict[str, NetArray] = {}

    @classmethod
    def name_values(cls, graph: Graph) -> tuple[dict[str, str], Names]:
        """Return the name in the net of the value of each path, and all names that are used so far. The
        graph's first input is `data`.
        """
        used_names = Names()
        values = {
            path: used_names.take(cls.escape_name("data" if path == INPUT else path))
            for path in (*graph.inputs, *graph.by_path)
        }
        return values, used_names

    @staticmethod
    def escape_name(name: str) -> str:
        """Return a name as the net's text may have it."""
        return name

    def name(self, wanted: str) -> str:
        """Return `wanted`, or the first variation of it that nothing has, and reserve it."""
        return self.used_names.take(self.escape_name(wanted))

    def layer_name(self, path: str) -> str:
        """Return the name of the layer that gives the value of a path."""
        return path

    @abstractmethod
    def add(self, kind: str, name: str, /, *inputs: str, **own: Any) -> str:
        """Add a layer of the framework's `kind` that reads the values `inputs`, with the arguments `own` as
        the framework calls them, and return the name of its value.
        """

    @abstractmethod
    def tensors_of(self, path: str, name: str, *roles: str) -> list[Any]:
        """Return what holds the tensors of a path of these roles for the layer `name`, without those that its
        op lacks; see porter.frameworks.spelled.LayerMaker.
        """

    def channels(self, path: str) -> int:
        return channels_in(self.shapes[path])

    def add_placeholder(self, path: str) -> None:
        """Add what stands for a node without layers while the refusals of other nodes are looked for; by
        default nothing.
        """
        return

    @abstractmethod
    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """Write the net for images of `size` (rows and columns), where that is open otherwise, with facts."""


M = TypeVar("M", bound=Maker)


class NetDestination(DestinationDefaults, ABC, Generic[M]):
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

    def __init__(self) -> None:
        self.ENGINE: PortEngine = self
        self.classifier = partial(ports.classifier, framework=self.TITLE)

    @abstractmethod
    def add_windowed(self, node: Spelled[M, Any], realisation: Realisation) -> None:
        """Add the layers of a windowed node.

        Raises:
            PaddingError: the framework has no layers for the realisation, because the plan was made for
                another one.
        """

    @abstractmethod
    def program(self, text: str, image: str) -> KernelProgram:
        """Read the net's text by the rows of its format.

        Args:
            image: the name of the net's input.
        """

    @abstractmethod
    def text_parts(self, text: str) -> list[tuple[str, object]]:
        """Return those parts of a net's text that a plan decides, with their names."""

    @abstractmethod
    def encode_arrays(self, net: M, arrays: NamedArrays) -> Iterable[bytes | memoryview]:
        """Return the content of the file of a net's tensors."""

    @abstractmethod
    def decode_arrays(self, data: bytes) -> NamedArrays:
        """Return the tensors in a file's content, by name."""

    def refusals(self, plan: Plan) -> Sequence[PorterError]:
        """Return an error for each op that the framework has no layers for; one for the first further input,
        if there is any.
        """
        _, errors = self._try_net(plan)
        return errors

    def make_net(self, plan: Plan) -> M:
        """Make the net of a plan, the layers that its text will state, and return it.

        Raises:
            GraphError, PaddingError: the framework has no layers for an op; `where` is its path.
        """
        net, errors = self._try_net(plan)
        if errors:
            raise errors[0]
        return net

    def _try_net(self, plan: Plan) -> tuple[M, list[PorterError]]:
        """Make the net of a plan without the ops that the framework has no layers for, and return it with the
        errors of these ops. A graph of several inputs is refused whole, with an empty net.
        """
        maker = self.MAKER(plan)
        errors = list[PorterError]()
        if plan.graph.further_inputs:
            # The first one is enough for the message.
            further, *_ = plan.graph.further_inputs
            message = f"porter writes nets of {self.TITLE} with one input"
            next = "port it to torch, tf or onnx"
            return maker, [GraphError(message, where=further.path, next=next)]
        for node in maker.graph.nodes:
            try:
                self._add_node(maker, node, plan)
            except (GraphError, PaddingError) as error:
                errors.append(error.at(plan.origin(error.where or node.path)))
                maker.add_placeholder(node.path)
        return maker, errors

    def _add_node(self, maker: M, node: Node, plan: Plan) -> None:
        """Add the layers of a node by its spelling or, if it has a window, by its realisation. Raise
        GraphError where values are arrays, or where there is no spelling; a Rearrange has one only if its
        result is a number of each image.
        """
        op, spelling = node.op, row_of(self.SPELLINGS, type(node.op))
        shapes_of_values = [maker.shapes[path] for path in (node.path, *node.inputs)]
        # A shape of Axes without any axis is a number of each image, which nets can hold.
        if any(isinstance(shape, Axes) and shape for shape in shapes_of_values):
            words = (
                self.NO_ARRAYS
                or f"porter writes maps and features for {self.TITLE}, not arrays of other axes"
            )
            raise GraphError(words, where=node.path)
        spelled = Spelled[M, Any](maker, node, op, maker.layer_name(node.path))
        gives_several_numbers = bool(maker.shapes[node.path])
        if isinstance(op, Conv | MaxPool | AvgPool):
            self.add_windowed(spelled, plan.realisations[node.path])
        elif spelling is None or (isinstance(op, Rearrange) and gives_several_numbers):
            raise GraphError(f"porter writes no layer of {self.TITLE} for {op.words}", where=node.path)
        else:
            spelling(spelled)

    def build(
        self, plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu"
    ) -> ports.PortModel:
        """Build the net of the plan, as its text states it, with the tensors in `dtype`, and return it as a
        model that porter's own engine runs. `layers` is unused: every engine takes it.

        Raises:
            UsageError: the device is another one than the CPU, or the number type is not float32 or float64.
            GraphError: the framework has no layers for an op. MappingError: the tensors do not fit the graph.
        """
        net = self.make_net(plan)
        program = self.program(net.text(), net.values[INPUT])
        arrays = _arrays_by_name(net, tensors, storage_type(dtype))
        return ports.make_port_model(plan, program, arrays, net.values, dtype, device)

    def write(
        self,
        folder: Path,
        plan: Plan,
        tensors: Tensors,
        layers: LayerNames,
        dtype: Dtype,
        about: Mapping[str, str],
    ) -> dict[str, str]:
        """Write both files into `folder` and return the sha256 of each by its name. `layers` is unused: every
        destination takes it.

        Raises:
            UsageError: porter's engine does not run this number type, or the tensors are too large for the
                file.
            GraphError: the framework has no layers for an op. MappingError: the tensors do not fit the graph.
        """
        engine.expect_number_type(dtype, f"porter writes {self.TITLE}'s tensors", "leave it out")
        net = self.make_net(plan)
        data = self.encode_arrays(net, _arrays_by_name(net, tensors, storage_type(dtype)))
        # The text states the only size, or else the one that the source was trained at, or none.
        rows, columns = plan.only_size or json.loads(about.get("porter.native_size", "[null, null]"))
        (folder / self.NET_FILE).write_text(net.text((rows, columns), about), encoding="utf-8")
        with (folder / self.MODEL_FILE).open("wb") as file:
            file.writelines(data)
        return {name: digest(folder / name) for name in (self.MODEL_FILE, self.NET_FILE)}

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Read the tensors of a port that `write` wrote, in porter's axis order, by path and role. The net's
        text must state the net of the plan, but for what no plan decides, such as facts. `layers` is unused.

        Raises:
            FileError: a file is missing or damaged, or the net is another than the plan's.
            MappingError: a tensor is missing or another.
        """
        net = self.make_net(plan)
        try:
            stored_parts = self.text_parts((folder / self.NET_FILE).read_text(encoding="utf-8"))
            expected_parts = self.text_parts(net.text())
            stored = self.decode_arrays((folder / self.MODEL_FILE).read_bytes())
        except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            message = f"the port's model cannot be read: {first_line(error)}"
            raise FileError(message, where=folder, next="convert again") from None
        if stored_parts != expected_parts:
            # The first part that differs names the layer in the message.
            pairs = zip(expected_parts, stored_parts, strict=False)
            different = next((name for (name, expected), (_, in_file) in pairs if expected != in_file), None)
            difference = f"'{different}' differs" if different else "it has more layers, or fewer"
            raise FileError(
                f"the net is not the one that port.json records: {difference}",
                where=folder / self.NET_FILE,
                next="convert again",
            )
        return _port_tensors_of(net, stored)


def _arrays_by_name(net: Maker, tensors: Tensors, kind: np.dtype[Any]) -> dict[str, Array]:
    """Return the arrays of the net by name, in the number type `kind`. Raise MappingError where the port's
    tensors lack one.
    """
    try:
        return {
            name: _array_of(array, tensors).astype(kind, copy=False) for name, array in net.contents.items()
        }
    except KeyError as error:
        raise MappingError("the tensors lack one of the graph's", where=error) from None


def _array_of(array: NetArray, tensors: Tensors) -> Array:
    """Return an array of a net: a constant, or one of the port's tensors, with zeros around its kernel where
    a site asks for them.
    """
    if not isinstance(array, PortTensor):
        return array
    tensor = tensors[array.path][array.role]
    if not any(array.zeros_around):
        return tensor.reshape(array.shape)
    top, bottom, left, right = array.zeros_around
    return np.pad(tensor, [(0, 0), (0, 0), (top, bottom), (left, right)])


def _port_tensors_of(net: Maker, stored: NamedArrays) -> OwnTensors:
    """Return the port's tensors, by path and role, out of the arrays `stored` in the net's file: without the
    constants that porter adds and the zeros that it puts around a kernel. A layer that is called several
    times has the tensors of its first call. Raise MappingError where an array is missing or has another
    shape, and where those constants or zeros are not what porter writes.
    """
    tensors = dict[str, dict[str, Array]]()
    for name, array_of_net in net.contents.items():
        array = expect_tensor(stored.get(name), array_of_net.shape, "tensor", name)
        if not isinstance(array_of_net, PortTensor):
            if not np.array_equal(array, array_of_net.astype(array.dtype)):
                raise MappingError("expected the constants that porter writes, got other numbers", where=name)
            continue
        kernel, (top, bottom, left, right) = array, array_of_net.zeros_around
        if any(array_of_net.zeros_around):
            # The kernel without its zeros has as many other numbers as with them, or the rim held more than
            # zeros.
            kernel = array[:, :, top : array.shape[2] - bottom, left : array.shape[3] - right]
            if np.count_nonzero(kernel) != np.count_nonzero(array):
                raise MappingError(
                    f"expected a kernel amid zeros {array_of_net.zeros_around}, got other numbers around it",
                    where=name,
                )
        tensors.setdefault(array_of_net.path, {})[array_of_net.role] = kernel.reshape(
            net.tensors[array_of_net.path][array_of_net.role]
        )
    return {
        path: {role: tensors[net.graph.by_path[path].holder][role] for role in roles}
        for path, roles in net.tensors.items()
    }
