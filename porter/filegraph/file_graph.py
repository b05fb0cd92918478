"""The graph that a file carries, in porter's ops, under the names that the file gives to its layers and
tensors.

It is exact: every node that is not `Foreign` is an op of porter.graph whose inputs fit. Whether a value is a
map or features is explicit. A reader flattens nested models, merges a pad layer into the windowed layer that
it feeds, separates an activation from the layer that applies it, and leaves out layers that do nothing in
inference (dropout, augmentation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, GraphError, MappingError, some
from porter.base.left_out import LeftOut
from porter.graph import (
    INPUT,
    USUAL_MOMENTUM,
    AvgPool,
    BatchNorm,
    Conv,
    FurtherInput,
    MaxPool,
    Op,
    Resize,
    Shape,
    input_shapes,
)
from porter.graph.ops import Axes, is_map
from porter.graph.walks import reads_within, upstream
from porter.padding import ANY, KnownSize, Size
from porter.padding.sizes import InputSizes

T = TypeVar("T")
_CANONICAL = "OIMHW"
"""porter's order of the letters of `Stored.axes`."""


@dataclass(frozen=True)
class Foreign:
    """A layer that porter has no op for, by its framework's name: `Lambda`, `Conv2D with padding 'causal'`.

    Attributes:
        reads: what the file calls the node's inputs, in their order.
    """

    kind: str
    reads: tuple[str | None, ...] = field(default=(), compare=False)


class Unsupported(Exception):
    """What porter has no op for, in words that follow the operator's name: `over the batch`. They are empty
    where porter lacks the operator whatever it reads.
    """


def none_if_unsupported(make: Callable[[], T]) -> T | None:
    """Return what a function makes; None if porter has no op for it."""
    try:
        return make()
    except Unsupported:
        return None


def first_supported(*ways: Callable[[], T]) -> T:
    """Return what the first of these functions makes that porter has ops for.

    Raises:
        Unsupported: as the first one, if there is none.
    """
    refused: Unsupported | None = None
    for way in ways:
        try:
            return way()
        except Unsupported as error:
            refused = refused or error
    assert refused is not None, "no way is given"
    raise refused


@dataclass(frozen=True)
class Stored:
    """A tensor as its file keeps it.

    Attributes:
        name: in the checkpoint.
        axes: one letter for each axis, in the file's order: O units or filters, I input channels of a group,
            H rows, W columns, M the multiplier of a depthwise kernel, whose I are all channels. The letters
            of a transposed convolution are those of the convolution that it is the gradient of: O its input
            channels, I its filters. Several axes of one letter are one axis in porter, such as the heads of
            an attention and their units. Axes of one cell may have none. Empty: a number for each channel, or
            porter's own axes.
    """

    name: str
    axes: str = ""


@dataclass(frozen=True)
class FileNode:
    """One step of a file's graph.

    Attributes:
        name: unique; a layer's own name, which its tensors' names begin with.
        inputs: names of earlier nodes, or porter.graph.INPUT.
        tensors: by role (porter.graph.tensor_shapes).
        tap: the framework's name for this node's value when it runs the file's graph; None where it does not
            give the value.
        moved: another value of the file has the same numbers, in another order of axes, and `tap` is made of
            it: what reads the first does not read the second.
    """

    name: str
    op: Op | Foreign
    inputs: tuple[str, ...]
    tensors: Mapping[str, Stored] = field(default_factory=dict)
    tap: str | None = None
    moved: bool = False


@dataclass(frozen=True)
class FileGraph:
    """A file's graph.

    Attributes:
        nodes: in topological order; each leads to an output.
        outputs: names of the nodes whose values the model gives, in the file's order.
        output_names: what the file calls the values of `outputs`; empty if it names only nodes.
        given: the values that the file states as its own, by the framework's names for them, and the nodes
            that a reader takes for them.
        channels: of the input.
        size: of the input; None for rows or columns that are free.
        axes: of an input that is no map, as porter.graph.Graph has them.
        resizable: the framework can run the same layers, with the same pads, at another size.
        evaluated: tensors by name that porter computed from the file's, in float64, such as kernels that the
            model standardises as it runs.
        traced: numbers in it were computed from its size, so that it holds for no other.
        sizable: its size is open, and porter has an op for every node only where a size is stated.
        halves: the types of half precision in which the file's framework computes a part of it.
        definition: the graph as the file states it, for its framework to run.
        left_out: layers that act in training only, which it lacks.
        further_inputs: what it takes beside its first input, under the file's names.
        fixed_by: why a file of open sizes is read at one, in a sentence; empty otherwise.
        language: of the definition: `keras` is a config as JSON, `tensorflow` a serialised GraphDef, `onnx` a
            ModelProto, `torch-export` an ExportedProgram as JSON.
    """

    nodes: tuple[FileNode, ...]
    outputs: tuple[str, ...]
    channels: int
    size: Size
    output_names: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    resizable: bool = False
    traced: bool = False
    sizable: bool = False
    evaluated: NamedArrays = field(default_factory=dict, repr=False, compare=False)
    halves: tuple[Dtype, ...] = ()
    definition: bytes = field(default=b"", repr=False)
    language: str = ""
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)
    axes: tuple[int | None, ...] = ()
    further_inputs: tuple[FurtherInput, ...] = ()
    fixed_by: str = field(default="", compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths of all inputs."""
        return (INPUT, *(each.path for each in self.further_inputs))

    @property
    def built_size(self) -> tuple[int, int] | None:
        """Rows and columns that the model was built for; None if one of them is free."""
        rows, columns = self.size
        return None if rows is None or columns is None else (rows, columns)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a checkpoint notes of the graph: that the file computes in half precision, and why it is read
        at one size.
        """
        halves = f"its layers compute in {' and '.join(self.halves)}, and are read in exact arithmetic"
        return (*((halves,) if self.halves else ()), *((self.fixed_by,) if self.fixed_by else ()))

    def sizes(self, native: tuple[int, int]) -> InputSizes:
        """Return the input sizes of a recipe's model with this graph's numbers, built for `native` where the
        graph is free.
        """
        return InputSizes(self.built_size or native, self.built_size if self.traced else None)

    def own_sizes(self, native: tuple[int, int]) -> InputSizes:
        """Return the input sizes of the graph itself, as `sizes` does for a recipe's: built for the file's
        size, or for `native` where that is open. It holds for that size only, unless its size is all open, or
        nothing in it depends on the stated one.
        """
        rows, columns = self.size
        built = rows or native[0], columns or native[1]
        holds_at_every_size = self.resizable or self.size == ANY
        return InputSizes(built, None if holds_at_every_size else built)

    @property
    def foreign(self) -> bool:
        """Whether porter has no op for one of the nodes that lead to the logits."""
        return any(isinstance(node.op, Foreign) for node in self.nodes)

    @cached_property
    def by_name(self) -> Mapping[str, FileNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def arrays(self) -> frozenset[str]:
        """The taps, the framework's names for values, of the values that are no maps, whatever axes they
        have.
        """
        shapes = self.shapes
        taps = [(node.tap, node.name) for node in self.nodes if node.tap]
        return frozenset(
            tap for tap, name in [*taps, *self.given.items()] if isinstance(shapes.get(name), Axes)
        )

    def fits(self, size: Size) -> bool:
        """Return whether porter has an op for every node, and each takes what it gets at a size of the
        input.
        """
        return not self.foreign and not self._shapes(size)[1]

    def _would_be_read_the_same(self, size: Size) -> bool:
        """Return whether a graph that was read for images of any size would be read as the same for those of
        one size: it fits, no value but a map has an open size, and nothing in it is of a whole map.
        """
        shapes, refused = self._shapes(size)
        if self.foreign or refused:
            return False
        has_open_arrays = any(None in shape for shape in self.shapes.values() if not is_map(shape))
        if has_open_arrays:
            return False
        return not any(_is_of_whole_map(node.op, shapes[node.inputs[0]]) for node in self.nodes)

    def has_room(self, size: KnownSize) -> bool:
        """Return whether every window has room in its map at a size of the input: a framework runs no window
        that lacks it.
        """
        return not any(isinstance(node.op, Conv | MaxPool | AvgPool) for node in self._shapes(size)[1])

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of the values, by name, as far as the input's size tells them."""
        return self._shapes(self.size)[0]

    def _shapes(self, size: Size) -> tuple[Mapping[str, Shape], list[FileNode]]:
        """Return the shapes of values by name, as far as the input's size tells them, and the nodes whose op
        refuses the shapes of what it reads.
        """
        shapes = input_shapes(self, size)
        refused: list[FileNode] = []
        for node in self.nodes:
            inputs = [shapes[name] for name in node.inputs if name in shapes]
            if not isinstance(node.op, Foreign) and len(inputs) == len(node.inputs):
                try:
                    shapes[node.name] = node.op.shape(*inputs)
                except GraphError:  # a file may state sizes that the input leaves open
                    refused.append(node)
        return shapes, refused

    @property
    def shown(self) -> list[str]:
        """The taps, the framework's names for values, of all nodes that are neither foreign nor follow a
        foreign node, and the names of values that the file states as its own. Other nodes are never compared.

        Raises:
            CannotRun: there are none.
        """
        foreign: set[str] = set()
        for node in self.nodes:
            if isinstance(node.op, Foreign) or not foreign.isdisjoint(node.inputs):
                foreign.add(node.name)
        taps = [node.tap for node in self.nodes if node.tap is not None and node.name not in foreign]
        if not taps:
            raise CannotRun(
                f"the graph begins with layers that porter has no op for: {some(sorted(foreign))}"
            )
        ends = [name for name, node in self.given.items() if node not in foreign]
        return list(dict.fromkeys([*taps, *ends]))

    def leading_to(self, names: Iterable[str]) -> set[str]:
        """Return the names of these nodes and of all nodes that they are computed from."""
        nodes = self.by_name
        return upstream(names, reads_within(nodes)) & nodes.keys()


def read_for_sizes(size: Size, read: Callable[[Size], FileGraph]) -> FileGraph:
    """Read the graph of a file that states the size of its images, or leaves it open, by calling `read` with
    a size. It is read for images of any size, which says that it holds at every one. Only if something in it
    asks for a size, it is read again, at the stated one; it is resizable if its nodes are the same then.
    """
    everywhere = read(ANY)
    if size == ANY or everywhere._would_be_read_the_same(size):
        return replace(everywhere, size=size, resizable=True)
    sized = read(size)
    return replace(sized, resizable=sized.nodes == everywhere.nodes)


def _is_of_whole_map(op: Op | Foreign, shape: Shape) -> bool:
    """Return whether an op is a resize that keeps the size of a map of this shape, which a reader leaves out,
    or a pool of all its cells, which a reader may take for a global pool.
    """
    if isinstance(op, Resize):
        return op.shape(shape) == shape
    return isinstance(op, MaxPool | AvgPool) and op.window.kernel == shape[1:]


def fill_free_size(size: Size, default: Size | None) -> Size:
    """Return an input's rows and columns, with those of `default` where they are free."""
    return size if default is None else (size[0] or default[0], size[1] or default[1])


def with_momentum(op: Op) -> Op:
    """Return the op; a batch norm whose file does not state its momentum, which readers give as 0, gets the
    usual one: with 0, fine-tuning would never move its statistics.
    """
    return replace(op, momentum=USUAL_MOMENTUM) if isinstance(op, BatchNorm) and not op.momentum else op


def to_canonical(array: Array, stored: Stored, shape: tuple[int, ...]) -> Array:
    """Return a file's array in porter's axis order (porter.graph.ops), as a view where possible.

    Sizes of 1 are added and taken away: a dense kernel I×O is also the kernel O×I×1×1 of a 1x1 convolution.
    An array that does not fit `shape` otherwise is returned in its own shape, for the caller to refuse.

    Args:
        stored: its name, for the error, and the letters of its axes.
        shape: of the op's tensor in porter's order.

    Raises:
        MappingError: the array has another number of axes than the file's reader stated.
    """
    ordered = _order_axes(array, stored) if stored.axes else array
    fits = [size for size in ordered.shape if size != 1] == [size for size in shape if size != 1]
    return ordered.reshape(shape) if fits else ordered


def _order_axes(array: Array, stored: Stored) -> Array:
    """Transpose a stored array to porter's axis order, and join axes of one letter. Raises as
    `to_canonical`.
    """
    while array.ndim > len(stored.axes) and 1 in array.shape:
        array = array.squeeze(array.shape.index(1))
    if array.ndim != len(stored.axes):
        raise MappingError(
            f"tensor '{stored.name}': expected {len(stored.axes)} axes ({stored.axes}), got shape "
            f"{array.shape}"
        )
    # with a multiplier, each channel has M filters of its own: I×M×1×H×W
    order = "IMOHW" if "M" in stored.axes else _CANONICAL
    array = array.transpose(sorted(range(array.ndim), key=lambda axis: order.index(stored.axes[axis])))
    if "M" in stored.axes:
        return array.reshape(-1, 1, *array.shape[2:])
    has_letters_once = len({*stored.axes}) == len(stored.axes)
    if has_letters_once:
        return array
    letters = sorted(stored.axes, key=order.index)
    # where the axes of each letter begin, and how many they are: they become one axis
    runs = [(letters.index(letter), letters.count(letter)) for letter in dict.fromkeys(letters)]
    return array.reshape([math.prod(array.shape[start : start + count]) for start, count in runs])
