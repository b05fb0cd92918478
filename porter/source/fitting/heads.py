"""The head of a file that holds weights and no graph: the zoo's own, the user's own, or none. The file does
not say what is between several dense layers; `--map` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import MappingError, UsageError, some
from porter.base.options import MAP
from porter.filegraph.names import unused_name
from porter.filegraph.to_graph import path_word
from porter.formats.recognition import known_format
from porter.graph import Conv, Dense, Graph, Node, Relu, Relu6, head_of, tensor_shapes
from porter.padding import Convention, Window
from porter.recipe import LayerName
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.names_in_file import tensors_hint

AFTER_HEAD = "after the head"
NO_HEAD = "the file has no head: the port gives features, one value per channel"
BETWEEN: Mapping[str, type[Relu | Relu6] | None] = {"relu": Relu, "relu6": Relu6, "none": None}
"""The ops between two dense layers, as `--map` writes them. Dropout does nothing at inference, so it is
`none`.
"""


@dataclass(frozen=True)
class DenseHead:
    """The layers of a head in the order in which they run, and the words between them, which are keys of
    BETWEEN.
    """

    layers: tuple[str, ...]
    between: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The row of layers as `--map` writes it: `classifier.1,relu,classifier.4`."""
        return ",".join(
            [
                self.layers[0],
                *(f"{word},{name}" for word, name in zip(self.between, self.layers[1:], strict=True)),
            ]
        )


def parse_head(text: str) -> DenseHead:
    """Return the head that `--map` states: one layer, or several with the op between each two, as in
    `fc1,relu,fc2`.

    Raises:
        UsageError: the text does not begin and end with a layer or has a layer twice, or porter has no op
            for a word between two layers.
    """
    words = text.split(",")
    layers = tuple(words[::2])
    between = tuple(words[1::2])
    unknown_ops = [word for word in between if word not in BETWEEN]
    if unknown_ops or len(layers) != len(between) + 1 or not all(layers):
        problem = (
            f"porter has no '{unknown_ops[0]}' between dense layers"
            if unknown_ops
            else f"'{text}' is not a row of layers"
        )
        raise UsageError(
            problem,
            where=str(MAP),
            next=f"write FIRST,WORD,SECOND with one of {', '.join(BETWEEN)} as the word",
        )
    repeated = [name for name in layers if layers.count(name) > 1]
    if repeated:
        raise UsageError(
            f"'{text}' has the layer '{repeated[0]}' twice", where=str(MAP), next="write every layer once"
        )
    return DenseHead(layers, between)


def with_dense_head(
    features: Graph, head: DenseHead, dense: Mapping[str, Dense], output: str
) -> tuple[Graph, dict[str, str]]:
    """Return the graph of the features with the dense layers of a head, and the ops between them, after it.

    Args:
        dense: the op of each layer.
        output: the path of the last layer.

    Returns:
        The graph, and the file's layer by the path of each dense node.
    """
    nodes = list(features.nodes)
    layers = dict[str, str]()
    source = features.output
    used = {*features.by_path, output}
    for name, word in zip(head.layers, (*head.between, "none"), strict=True):
        path = output if name == head.layers[-1] else unused_name(f"head/{path_word(name)}", used)
        used.add(path)
        nodes.append(Node(path, dense[name], (source,)))
        layers[path] = name
        source = path
        op = BETWEEN[word]
        if op is not None:
            # such as a ReLU, which the next dense layer reads
            source = unused_name(f"{path}_{word}", used)
            used.add(source)
            nodes.append(Node(source, op(), (path,)))
    return Graph(tuple(nodes), features.channels, output, features.scopes), layers


@dataclass(frozen=True)
class Head:
    """A file's layer for the recipe's head.

    Attributes:
        layer: its name in the file; None if the file ends in features.
        rows: its classes; 0 without a head.
        own: it is the zoo's own head, with its classes.
        by_shape: it was found only by its shape.
        after: tensors of layers after it, which are left out.
    """

    layer: LayerName | None
    rows: int
    own: bool
    by_shape: bool = False
    after: tuple[str, ...] = ()

    def within(self, prefix: str) -> bool:
        """Return whether the head, if there is one, is under the network's `prefix` too."""
        return self.layer is None or self.layer.name.startswith(prefix)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings for a head that is missing or was found by its shape, and for tensors after the
        head.
        """
        if self.layer is None:
            return (NO_HEAD,)
        warnings = []
        if self.by_shape:
            warnings.append(f"the head was found by its shape: '{self.layer.name}', {self.rows} classes")
        if self.after:
            warnings.append(
                f"left out, because they come after the head: {some(sorted(self.after))}; "
                f"{MAP(['LAYER=NODE'])} chooses another head"
            )
        return tuple(warnings)


@dataclass(frozen=True)
class Heads:
    """The layers of a file that could be a variant's head.

    Attributes:
        layer: the file's name of the recipe's head.
        unexpected: tensors that the trunk does not use, with those of the zoo's own head if `--map` chose
            another layer.
        chosen: the head of `--map`; its last layer is `layer`.
    """

    candidate: Candidate
    layer: LayerName
    unexpected: Collection[str]
    chosen: DenseHead | None

    @cached_property
    def dense(self) -> Mapping[str, tuple[int, int]]:
        """The units and the features of each layer that could be dense, by its name."""
        return _dense_layers(self.candidate, self.unexpected)

    @cached_property
    def rows(self) -> int | None:
        """The number of classes of the file's layer for the recipe's head; None if the file lacks it."""
        return head_rows(self.candidate, self.layer.name)

    def find(self) -> Head:
        """Return the file's head: the layer with the zoo's name, otherwise the only one whose shape fits,
        otherwise none. Layers behind it are left out.

        Raises:
            MappingError: several layers could be the head, or dense layers follow each other and nothing
                says what is between them, or nothing says whether a layer stands before or after the pool.
        """
        if self.rows is None and self.chosen:
            raise self._refusal(
                f"the file has no layer '{self.layer.name}'",
                self.dense,
                next=tensors_hint(self.candidate.checkpoint.path),
            )
        self._expect_known_side_of_pool()
        # `rows` is None where the file lacks the zoo's layer: then a layer of that shape may be the head.
        name = self.layer.name if self.rows is not None else self._find_by_shape()
        if name is None:
            return Head(None, 0, False)
        rows = self.dense[name][0] if self.rows is None else self.rows
        zoos_classes, *_ = _kernel(self.candidate)
        is_zoos_head = self.rows == zoos_classes and not self.chosen
        # Dense layers that take as many values as this one gives may come after it.
        following = [
            dense for dense, (_, features) in self.dense.items() if features == rows and dense != name
        ]
        if following and not is_zoos_head and not self.chosen:
            raise self._unknown_between(name, rows)
        left_out = self.dense.keys() - set(self.chosen.layers) if self.chosen else following
        layer = self.layer if self.rows is not None else LayerName(name)
        return Head(layer, rows, is_zoos_head, self.rows is None, tuple(self._tensors_of(name, left_out)))

    def _expect_known_side_of_pool(self) -> None:
        """Refuse a layer if nothing says whether it stands before or after the pool: the recipe's head is a
        convolution before the pool, and the file's is a dense layer that was not chosen.
        """
        if not isinstance(self.candidate.head.op, Conv) or self.chosen:
            return
        own_layer = [self.layer.name] if reads_features(self.candidate, self.layer.name) else []
        if doubtful := sorted(self.dense) if self.rows is None else own_layer:
            message = (
                "the network ends in a convolution and a pool, and the file does not say where it "
                f"has '{some(doubtful)}'"
            )
            next = "a convolution takes the place of the network's own, a dense layer reads the pooled map"
            raise self._refusal(message, doubtful, next=next)

    def _find_by_shape(self) -> str | None:
        """Return the name of the only dense layer that takes as many values as the recipe's head does; None
        if there is none, because the file ends in features. Several such layers are refused.
        """
        features = _kernel(self.candidate)[1]
        direct = {name: shape for name, shape in self.dense.items() if shape[1] == features}
        if len(direct) > 1:
            # A layer with as many outputs as inputs may come before another one, as in `fc1,relu,fc2`.
            hidden = [name for name, (units, _) in direct.items() if units == features]
            two_layers = [(first, last) for first in hidden for last in direct if last != first]
            pairs = [DenseHead(pair, (word,)).text for pair in two_layers for word in BETWEEN]
            listed = some([f"'{name}' ({units}x{width})" for name, (units, width) in direct.items()])
            raise self._refusal(f"several layers could be the head: {listed}", (*pairs, *direct))
        return next(iter(direct), None)

    def _unknown_between(self, first_layer: str, units: int) -> MappingError:
        """Return the error for dense layers that can follow each other: each takes as many values as the one
        before it gives, and the file does not say what is between them.

        Args:
            first_layer: the layer from which the others follow.
            units: how many values it gives.
        """
        row = [first_layer]
        # Each layer takes as many values as the one before it gives.
        while following := [
            name for name, shape in self.dense.items() if shape[1] == units and name not in row
        ]:
            row.append(following[0])
            units = self.dense[following[0]][0]
        format = known_format(self.candidate.checkpoint.format)
        # A whole model would say it; torch has none, because that would be code.
        as_whole_model = f", as {format.whole} would" if format and format.whole else ""
        listed = some([*map(repr, row)])
        message = (
            f"dense layers follow each other ({listed}), and the file does not say what is between "
            f"them{as_whole_model}"
        )
        return self._refusal(
            message, [DenseHead(tuple(row), (word,) * (len(row) - 1)).text for word in BETWEEN]
        )

    def _tensors_of(self, head: str, layers: Collection[str]) -> Iterator[str]:
        """Yield the tensors of layers, without those of the head."""
        separator = self.candidate.dialect.SEPARATOR
        for name in self.unexpected:
            if name.rpartition(separator)[0] in layers and not name.startswith(f"{head}{separator}"):
                yield name

    def _refusal(self, message: str, heads: Iterable[str], next: str | None = None) -> MappingError:
        """Return the error with a setting of `--map` for each layer or row of layers that could be the
        head.
        """
        maps = [f"{head}={self.candidate.head.path}" for head in heads]
        return MappingError(message, where=str(self.candidate.checkpoint.path), next=next, maps=maps)


def head_rows(candidate: Candidate, layer: str) -> int | None:
    """Return the number of classes of the file's `layer`, taken as the recipe's head; None if the file has
    no kernel of it.
    """
    kernels = _tensors(candidate, layer, "kernel")
    if not kernels:
        return None
    kernel = candidate.dialect.to_canonical(candidate.graph, candidate.head, "kernel", kernels[0])
    return int(kernel.shape[0])


def reads_features(candidate: Candidate, layer: str) -> bool:
    """Return whether `layer` is dense in the file, by its kernel of two axes, where the recipe's head is a
    convolution. It then reads the pooled map.
    """
    return isinstance(candidate.head.op, Conv) and any(
        array.ndim == 2 for array in _tensors(candidate, layer, "kernel")
    )


def _tensors(candidate: Candidate, layer: str, role: str) -> list[Array]:
    """Return the file's tensors of `layer` in a role (kernel or bias), under any of the names that they have
    if `layer` is the recipe's head; an empty list if the file has none.
    """
    names = candidate.dialect.tensor_names(candidate.graph, candidate.head, layer)
    tensors = candidate.checkpoint.tensors
    return [tensors[name] for name in names[role] if name in tensors]


def _dense_layers(candidate: Candidate, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return (units, features) of each layer that could be dense by its kernel, whose name is among `names`.
    A layer whose kernel has other axes, or several cells, is left out.
    """
    graph = candidate.graph
    head = candidate.head
    dialect = candidate.dialect
    dense = dict[str, tuple[int, int]]()
    for name in names:
        layer, array = name.rpartition(dialect.SEPARATOR)[0], candidate.checkpoint.tensors[name]
        if name not in dialect.tensor_names(graph, head, layer)["kernel"] or array.ndim not in (2, 4):
            continue
        with suppress(MappingError):
            units, features, *cells = dialect.to_canonical(graph, head, "kernel", array).shape
            if cells in ([], [1, 1]):
                dense[layer] = units, features
    return dense


def flattening_layer(candidate: Candidate, names: Collection[str]) -> str | None:
    """Return the dense layer among `names` that seems to read the network's last map flattened, because it
    takes a multiple of its channels (25088 = 512 x 7 x 7); None if there is none. It is named in an error.
    """
    features = _kernel(candidate)[1]
    dense = _dense_layers(candidate, names)
    return next(
        (name for name, (_, width) in dense.items() if width > features and width % features == 0), None
    )


def dense_op(candidate: Candidate, layer: str) -> Dense:
    """Return the op of a dense layer of the file that `--map` names, with its number of units, and a bias if
    the file has one.

    Raises:
        MappingError: the file lacks it.
    """
    rows = head_rows(candidate, layer)
    if rows is None:
        raise MappingError(
            f"the file has no layer '{layer}'",
            where=str(candidate.checkpoint.path),
            next=tensors_hint(candidate.checkpoint.path),
        )
    return Dense(rows, bool(_tensors(candidate, layer, "bias")))


def _kernel(candidate: Candidate) -> tuple[int, ...]:
    """Return the shape of the recipe's head: classes, features, and cells if it is a convolution."""
    return tensor_shapes(candidate.graph)[candidate.head.path]["kernel"]


def stand_in_head(candidate: Candidate, layer: LayerName, spelling: int) -> dict[str, Array]:
    """Return the tensors of a head that gives its features unchanged, under the names of the zoo's own
    implementation.

    With this head the implementation can be built for a file without one: 1 * x + 0 is x in every number
    type.

    Args:
        layer: the zoo's name of the head.
        spelling: the index of this zoo's name among the framework's names for a kernel.
    """
    graph, dialect, features = candidate.graph, candidate.dialect, _kernel(candidate)[1]
    kernel, node = np.eye(features, dtype=np.float32), candidate.head
    # The implementation has a 1x1 convolution for the head.
    if isinstance(node.op, Conv) or "conv1x1_to_dense" in layer.transforms:
        kernel = kernel[:, :, None, None]
        node = replace(node, op=Conv(features, Window((1, 1)), Convention(), bias=True))
    names = dialect.tensor_names(graph, node, layer.name)
    arrays = {"kernel": kernel, "bias": np.zeros(features, np.float32)}
    return {
        names[role][min(spelling, len(names[role]) - 1)]: dialect.from_canonical(graph, node, role, array)
        for role, array in arrays.items()
        if role in names
    }


def without_head(graph: Graph) -> Graph:
    """Return the graph without its head and its further outputs: it gives features, one value per channel.
    What follows the head reads the head's input.
    """
    head = head_of(graph)

    def skip_head(path: str) -> str:
        """Return the head's input for the head, and any other path as it is."""
        return head.inputs[0] if path == head.path else path

    nodes = tuple(
        replace(node, inputs=tuple(map(skip_head, node.inputs))) for node in graph.nodes if node != head
    )
    return replace(graph, nodes=nodes, output=skip_head(graph.output), further=())
