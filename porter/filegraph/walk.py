"""A reading in progress: the values of an op graph's nodes, and the steps of porter's graph found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Generic, cast

import numpy as np

from porter.base.dtypes import Numbers, is_floating
from porter.base.errors import GraphError
from porter.base.left_out import LeftOut
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Dataflow, N, OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import OF_UNKNOWN_SHAPE, Source, T, View
from porter.filegraph.layouts.dims import Dim
from porter.filegraph.layouts.value_layouts import Layouts
from porter.filegraph.layouts.views import Views
from porter.filegraph.places import position_of
from porter.filegraph.value_names import NodeOutput
from porter.graph import Op


@dataclass(frozen=True)
class Repeated:
    """A value whose axes of one cell are repeated, as a file's Expand does before ops that would stretch them
    anyway.

    Attributes:
        before: the value before that.
        sizes: of the repeated value.
        view: of it; None for a constant, and where the repeated value has no op.
        lacks: why it has none, see Unsupported.
    """

    before: Source
    sizes: tuple[Dim, ...]
    view: View | None = None
    lacks: str = "of a constant"


@dataclass(frozen=True)
class Zeros:
    """A value of known sizes, of which nothing else is known than that it is zeros, or that it has no cells.

    Attributes:
        lacks: why porter has no op for it, see Unsupported.
    """

    sizes: tuple[Dim, ...]
    lacks: str = ""


Read = View | Value | Numbers | Repeated | Zeros
"""What a node gives: a value as the file's tensor holds it, or in the file's own layout; or numbers that it
states about sizes.
"""
Outputs = Read | Sequence[Read | None]
"""The one value of a node, or its values, of which None is one that porter has no op for."""
Reader = Callable[["NodeWalk[N]", N], Outputs]


COMPUTED = "by numbers that the model computes as it runs"


def expect_known(value: T | None) -> T:
    """Return a value that Dataflow could compute; raise Unsupported where it could not, and gave None."""
    if value is None:
        raise Unsupported(COMPUTED)
    return value


Tap = Callable[[NodeOutput], str | None]
"""Gives the framework's name for a value when it runs the file's graph; None where it does not give the
value.
"""


def first_output_name(source: NodeOutput) -> str | None:
    """Return the tap of formats whose engines know nodes only: the node's name for the first value that it
    gives, and None for its others, which have no name.
    """
    return None if source[1] else source[0]


@dataclass
class NodeWalk(Generic[N]):
    """Reading in progress.

    Attributes:
        batch: see porter.filegraph.layouts.views.Views.
        trained: names of variables; of all that a file stores, where it does not tell variables from
            constants.
        view_of: the values so far, as the file's tensors hold them.
        exact: names of constants that a port says more exactly than the file can, such as the root of a half
            in a GELU.
        repeated: values whose axes of one cell are repeated.
        zero_sizes: values that are zeros of the sizes of others, and their own sizes.
        tap: the framework's name for a value when it runs the file's graph; None where it does not give the
            value.
        images: what the graph takes.
        apart: names of nodes that give what the file holds taken apart, see porter.filegraph.tensors.atrous.
    """

    builder: Builder
    flow: Dataflow[N]
    trained: Collection[str] = ()
    batch: InitVar[int | None] = None
    views: Views = field(init=False)
    layouts: Layouts = field(init=False)
    view_of: dict[NodeOutput, View] = field(default_factory=dict)
    exact: dict[str, float] = field(default_factory=dict)
    repeated: dict[Source, Repeated] = field(default_factory=dict)
    zero_sizes: dict[Source, tuple[Dim, ...]] = field(default_factory=dict)
    tap: Tap = first_output_name
    images: tuple[NodeOutput, ...] = ()
    apart: set[str] = field(default_factory=set)

    def __post_init__(self, batch: int | None) -> None:
        self.views = Views(self.builder, batch)
        self.layouts = Layouts(self.builder, self.views, self.view, self._tap_name)

    def view(self, source: Source) -> View:
        """Return a value as its tensor holds it. Outputs that no reader gives are added as foreign nodes.

        Raises:
            Unsupported: it is a constant.
            GraphError: the node that should give it does not exist.
        """
        if isinstance(source, View):
            return source
        if source not in self.view_of:
            self.view_of[source] = self.views.own_view(self._add_foreign_output(source))
        return self.view_of[source]

    def _add_foreign_output(self, source: NodeOutput) -> Value:
        """Add a foreign node for an output that no reader gives, and return its value. Raises as `view`."""
        name, index = source
        if not self.flow.is_live(source):
            raise Unsupported(f"of the constant '{name}'")
        if name not in self.flow.nodes:
            raise GraphError(f"no node gives output {index} of '{name}'")
        node = self.flow.nodes[name]
        if (name, 0) in self.view_of:  # it follows the node's first value, if that is known
            inputs = [self.view_of[name, 0]]
        else:
            inputs = [self.view(read) for read in node.inputs if self.flow.is_live(read)]
        values = [view.value for view in inputs]
        return self.builder.foreign(f"{name}:{index}", f"{node.op} output {index}", *values)

    def sizes(self, source: Source) -> tuple[Dim, ...] | None:
        """Return the sizes of a tensor; None if they are unknown."""
        if isinstance(source, View):
            return source.sizes
        if source in self.zero_sizes:
            return self.zero_sizes[source]
        return self.view(source).sizes if self.flow.is_live(source) else self.flow.shape(source)

    def known_sizes(self, source: Source) -> tuple[Dim, ...]:
        """Return the sizes of a tensor.

        Raises:
            Unsupported: they are unknown.
        """
        sizes = self.sizes(source)
        if sizes is None:
            raise Unsupported(OF_UNKNOWN_SHAPE)
        return sizes

    def is_value(self, source: Source) -> bool:
        """Return whether a source depends on the pixels of the input; zeros, and a constant that is repeated
        for each image, do not.
        """
        return source not in self.zero_sizes and self.is_live(self.drop_repeats(source))

    def is_live(self, source: Source) -> bool:
        """Return whether a source depends on the pixels of the input (Dataflow.is_live); a view always
        does.
        """
        return isinstance(source, View) or self.flow.is_live(source)

    def constant(self, source: Source) -> Numbers | None:
        """Return the numbers of a constant (Dataflow.constant); None for what depends on pixels."""
        return None if isinstance(source, View) else self.flow.constant(source)

    def constant_shape(self, source: Source) -> tuple[int, ...] | None:
        """Return the shape of a constant (Dataflow.shape); None for what depends on pixels."""
        return None if isinstance(source, View) else self.flow.shape(source)

    def weights(self, source: Source) -> StoredTensor | None:
        """Return a stored tensor, or one that numpy computes from such tensors (Dataflow.weights); None for
        what depends on pixels.
        """
        return None if isinstance(source, View) else self.flow.weights(source)

    def drop_repeats(self, source: Source) -> Source:
        """Return a constant as it is before it is repeated, for each image or along axes of one cell; another
        source is returned as it is.
        """
        if isinstance(source, View):
            return source
        node = self.flow.nodes.get(source[0])  # the node that gives it
        if node is not None and node.name not in self.flow.live and self.flow.operators.repeats(node):
            return self.drop_repeats(node.source)
        before = self.before_repeat(source)
        # A live value keeps its repetition: only a constant is the same without it.
        return source if self.is_live(before) else before

    def before_repeat(self, source: Source) -> Source:
        """Return a value as it is before its axes of one cell are repeated; another source is returned as it
        is.
        """
        return self.repeated[source].before if source in self.repeated else source

    def constant_fill(self, source: Source, axis: int) -> tuple[Dim, float] | None:
        """Return the size of an axis, and the number, of a constant that is one number everywhere: a join
        with such a constant is a pad of that size. None for other constants.
        """
        if source in self.zero_sizes:
            sizes = self.zero_sizes[source]
            return sizes[position_of(axis, len(sizes))], 0.0
        tensor = self.weights(self.drop_repeats(source))
        if tensor is None:
            return None
        sizes = self.repeated[source].sizes if source in self.repeated else tensor.shape
        numbers = self.flow.stored_numbers(tensor.name)
        if not sizes or not numbers.size or np.any(numbers != numbers.flat[0]):
            return None
        return sizes[position_of(axis, len(sizes))], float(numbers.flat[0])

    def _tap_name(self, source: NodeOutput) -> str | None:
        """Return the framework's name for a value; None for an image, which no graph can end at, and for what
        the file holds in another way.
        """
        return None if source in self.images or source[0] in self.apart else self.tap(source)

    def as_view(self, read: Read) -> View:
        """Return what a reader gave as a view.

        Raises:
            Unsupported: porter has no op for it, since it is constants or zeros.
        """
        match read:
            case View():
                return read
            case Value():
                return self.views.own_view(read)
            case Repeated() | Zeros():
                raise Unsupported(read.lacks)
        raise Unsupported("of constants")

    def cannot_be_output(self, view: View) -> bool:
        """Return whether the first axis of a tensor has more than the images, which no output may have."""
        if not view.axes or self.views.batch in (0, 1):
            return False
        return self.views.has_more_than_batch(view.axes[0])

    def record_outputs(self, node: N, outputs: Sequence[Read | None]) -> None:
        """Record what a node gives, output by output: views, and numbers as computed constants. Zeros,
        repeated values without a view, and what porter lacks are foreign nodes where something reads them;
        None records nothing.
        """
        for index, value in enumerate(outputs):
            source = node.name, index
            match value:
                case Repeated():
                    self.repeated[source] = value
                    self._record_output(node, index, value.view or self.foreign(node, value.lacks))
                case Zeros():
                    self.zero_sizes[source] = value.sizes
                    self._record_output(node, index, self.foreign(node, value.lacks))
                case View() | Value():
                    self._record_output(node, index, value)
                case np.ndarray():
                    self.flow.computed[source] = value

    def _record_output(self, node: N, index: int, output: View | Value) -> None:
        """Record one output of a node as its view. The node in porter's graph gets the tap, the name under
        which the framework gives the value, or is marked `moved` if it holds the numbers in another order.
        """
        view = output if isinstance(output, View) else self.views.own_view(output)
        self.view_of[node.name, index] = view
        porter_node = self.builder.nodes.get(view.value.node)
        if porter_node is None:
            return
        tap = None if view.value.node in self.builder.truths else self._tap_name((node.name, index))
        has_own_layout = view == self.views.own_view(view.value)
        if porter_node.tap is None and has_own_layout:
            self.builder.nodes[porter_node.name] = replace(porter_node, tap=tap)
        elif porter_node.tap in (None, tap) and not has_own_layout:
            self.builder.nodes[porter_node.name] = replace(porter_node, tap=None, moved=True)

    def foreign(self, node: N, lacks: str) -> Value:
        """Add a foreign node for what porter has no op for, and return its value.

        Args:
            lacks: what of the operator porter lacks, in words that follow its name, see Unsupported.
        """
        tensors_of = self.flow.operators.tensors_of
        names = self._read_tensors(node) if tensors_of is None else tensors_of(node)
        tensors = {role: Stored(name) for role, name in names.items()}
        sources = [source for source in node.inputs if self.flow.is_live(source)]
        reads = tuple(
            None if self.cannot_be_output(self.view(source)) else self._tap_name(source) for source in sources
        )
        # not laid out as the file has them: that would add ops that nobody asked for
        values = [self.view(source).value for source in sources]
        kind = f"{node.op} {lacks}".strip()
        return self.builder.foreign(node.name, kind, *values, tensors=tensors, reads=reads)

    def _read_tensors(self, node: N) -> dict[str, str]:
        """Return the names of the stored tensors that a node reads, by role: the last part of a name
        (`kernel` of `conv1/kernel`), or the whole name if several share that part.
        """
        tensors = [
            tensor
            for source in node.inputs
            if (tensor := self.flow.tensor(source)) is not None and tensor.shape
        ]
        names = [tensor.name for tensor in tensors if is_floating(self.flow.constants.array(tensor.name))]
        role_of = {name: name.rpartition("/")[2] for name in names}
        counts = Counter(role_of[name] for name in names)
        return {(role_of[name] if counts[role_of[name]] == 1 else name): name for name in names}


Walk = NodeWalk[Any]
"""A walk over nodes of any format: the functions that readers call take it."""


def leave_out(walk: Walk, layer: LeftOut, source: NodeOutput) -> View:
    """Note a layer that acts in training only, such as a dropout, as left out, and return the view of what it
    takes: outside of training it gives that back. A layer of rate 0 does nothing in training either, and is
    not noted.
    """
    view = walk.view(source)
    if layer.rate != 0:
        walk.builder.left_out.append(replace(layer, after=view.value.node))
    return view


def part_of(node: N, name: str) -> N:
    """Return a copy of a node whose name has a further word, `conv1:sum` for `sum`, for a value within it."""
    return cast(N, replace(cast(Any, node), name=f"{node.name}:{name}"))


def apply_elementwise(walk: Walk, node: OperatorNode, source: Source, *ops: Op) -> View:
    """Add ops that compute each number from itself, such as Relu, one after the other, and return the view of
    the last one's value, with the axes that the tensor of `source` has.
    """
    view = walk.layouts.operand(source)
    return walk.views.with_axes_of(view, walk.builder.chain(node.name, view.value, ops))
