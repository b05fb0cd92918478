"""The head of a file that holds weights and no graph: the zoo's own, the user's own, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.fitting.dense_heads import BETWEEN, DenseHead
from porter.fitting.fit import some
from porter.fitting.naming import TENSORS
from porter.formats.recognition import FORMATS
from porter.frameworks.dialects import Dialect
from porter.graph import Conv, Dense, Graph, head_of, tensor_shapes
from porter.padding import Convention, Window
from porter.recipe import LayerName

AFTER_HEAD = "after the head"


@dataclass(frozen=True)
class Head:
    """A file's layer for the recipe's head.

    Attributes:
        layer: its name in the file; None if the file ends in features.
        rows: its classes; 0 without a head.
        own: it is the zoo's own head, with its classes.
        found: it was found only by its shape.
        after: tensors of layers after it, which are left out.
    """

    layer: LayerName | None
    rows: int
    own: bool
    found: bool = False
    after: tuple[str, ...] = ()

    def within(self, prefix: str) -> bool:
        """Whether the head, if there is one, is under the network's `prefix` too."""
        return self.layer is None or self.layer.name.startswith(prefix)

    def warnings(self) -> tuple[str, ...]:
        if self.layer is None:
            return ("the file has no head: the port gives features, one value per channel",)
        by_shape = f"the head was found by its shape: '{self.layer.name}', {self.rows} classes"
        after = f"left out, because they come after the head: {some(sorted(self.after))}; --map LAYER=NODE chooses another head"
        return (*((by_shape,) if self.found else ()), *((after,) if self.after else ()))


def find_head(
    graph: Graph,
    dialect: Dialect,
    layers: Mapping[str, LayerName],
    checkpoint: Checkpoint,
    unexpected: Collection[str],
    chosen: DenseHead | None,
) -> Head:
    """The file's head for `graph`, whose last node is the recipe's.

    Args:
        graph: with the zoo's own number of classes.
        layers: the file's names by path.
        unexpected: tensors that the trunk does not use, with those of the zoo's own head if `--map` chose another layer.
        chosen: the head of `--map`; its last layer is the head in `layers`.

    Raises:
        MappingError: several layers could be the head, or dense layers follow each other and nothing says what is between them, or
            nothing says whether a layer stands before or after the pool.
    """
    head = head_of(graph).path
    zoo_rows, features, *_ = tensor_shapes(graph)[head]["kernel"]
    dense = _dense_layers(graph, dialect, checkpoint, unexpected)
    layer = layers[head]
    rows = head_rows(graph, dialect, checkpoint, layer.name)
    if rows is None and chosen:
        raise MappingError(
            f"the file has no layer '{layer.name}'",
            where=str(checkpoint.path),
            next=TENSORS,
            maps=[f"{name}={head}" for name in dense],
        )
    if isinstance(head_of(graph).op, Conv) and not chosen:
        doubtful = sorted(dense) if rows is None else [layer.name] if reads_features(graph, dialect, checkpoint, layer.name) else []
        if doubtful:
            raise MappingError(
                f"the network ends in a convolution and a pool, and the file does not say where it has '{some(doubtful)}'",
                where=str(checkpoint.path),
                next="a convolution takes the place of the network's own, a dense layer reads the pooled map",
                maps=[f"{name}={head}" for name in doubtful],
            )
    found = rows is None
    if rows is None:
        direct = {name: shape for name, shape in dense.items() if shape[1] == features}
        if not direct:
            return Head(None, 0, False)
        if len(direct) > 1:
            # A layer with as many outputs as inputs may come before another one.
            hidden = [name for name, (units, _) in direct.items() if units == features]
            both = [(first, last) for first in hidden for last in direct if last != first]
            pairs = [DenseHead(pair, (word,)).text for pair in both for word in BETWEEN]
            listed = ", ".join(f"'{name}' ({units}x{width})" for name, (units, width) in direct.items())
            raise MappingError(
                f"several layers could be the head: {listed}",
                where=str(checkpoint.path),
                maps=[f"{row}={head}" for row in (*pairs, *direct)],
            )
        name, (rows, _) = next(iter(direct.items()))
        layer = LayerName(name)
    own = rows == zoo_rows and not found and not chosen
    following = [name for name, shape in dense.items() if shape[1] == rows and name != layer.name]
    if following and not own and not chosen:
        row = _in_a_row(layer.name, rows, dense)
        format = FORMATS.get(checkpoint.format)
        whole = f", as {format.whole} would" if format and format.whole else ""  # torch's whole model would be code
        raise MappingError(
            f"dense layers follow each other ({', '.join(map(repr, row))}), and the file does not say what is between them{whole}",
            where=str(checkpoint.path),
            maps=[f"{DenseHead(row, (word,) * (len(row) - 1)).text}={head}" for word in BETWEEN],
        )
    left_out = dense.keys() - set(chosen.layers) if chosen else following
    after = tuple(
        name
        for name in unexpected
        if name.rpartition(dialect.SEPARATOR)[0] in left_out and not name.startswith(f"{layer.name}{dialect.SEPARATOR}")
    )
    return Head(layer, rows, own, found, after)


def head_rows(graph: Graph, dialect: Dialect, checkpoint: Checkpoint, layer: str) -> int | None:
    """Rows of the head `layer`, or None if the file lacks it."""
    head = head_of(graph)
    for name in dialect.tensor_names(graph, head, layer)["kernel"]:
        if name in checkpoint.tensors:
            return int(dialect.to_canonical(graph, head, "kernel", checkpoint.tensors[name]).shape[0])
    return None


def reads_features(graph: Graph, dialect: Dialect, checkpoint: Checkpoint, layer: str) -> bool:
    """Whether the file has a dense layer where the recipe's head is a convolution: it reads the pooled map."""
    head = head_of(graph)
    kernels = [
        checkpoint.tensors[name] for name in dialect.tensor_names(graph, head, layer)["kernel"] if name in checkpoint.tensors
    ]
    return isinstance(head.op, Conv) and any(kernel.ndim == 2 for kernel in kernels)


def _dense_layers(graph: Graph, dialect: Dialect, checkpoint: Checkpoint, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Layer to (units, features), for the layers that could be dense by their tensors among `names`."""
    head, found = head_of(graph), {}
    for name in names:
        layer, array = name.rpartition(dialect.SEPARATOR)[0], checkpoint.tensors[name]
        if name not in dialect.tensor_names(graph, head, layer)["kernel"] or array.ndim not in (2, 4):
            continue
        try:
            kernel = dialect.to_canonical(graph, head, "kernel", array)
        except MappingError:
            continue
        if kernel.shape[2:] in ((), (1, 1)):
            found[layer] = (int(kernel.shape[0]), int(kernel.shape[1]))
    return found


def flattened(graph: Graph, dialect: Dialect, checkpoint: Checkpoint, names: Collection[str]) -> str | None:
    """The dense layer among `names` that reads several cells of the last map, all channels of each; None if there is none."""
    _, features, *_ = tensor_shapes(graph)[head_of(graph).path]["kernel"]
    dense = _dense_layers(graph, dialect, checkpoint, names)
    return next((name for name, (_, width) in dense.items() if width > features and width % features == 0), None)


def _in_a_row(first: str, units: int, dense: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """`first` and the dense layers that can follow it: each takes as many values as the layer before it gives."""
    row = [first]
    while following := [name for name, shape in dense.items() if shape[1] == units and name not in row]:
        row.append(following[0])
        units = dense[following[0]][0]
    return tuple(row)


def dense_op(graph: Graph, dialect: Dialect, checkpoint: Checkpoint, layer: str) -> Dense:
    """The op of the file's dense layer `layer`.

    Raises:
        MappingError: the file lacks it.
    """
    rows = head_rows(graph, dialect, checkpoint, layer)
    if rows is None:
        raise MappingError(f"the file has no layer '{layer}'", where=str(checkpoint.path), next=TENSORS)
    biases = dialect.tensor_names(graph, head_of(graph), layer)["bias"]
    return Dense(rows, any(name in checkpoint.tensors for name in biases))


def stand_in_head(graph: Graph, dialect: Dialect, layer: LayerName, spelling: int) -> dict[str, Array]:
    """Tensors of a head that returns its features unchanged, under the names of the zoo's own implementation.

    With this head the implementation can be built for a file without one: 1 * x + 0 is x in every number type.

    Args:
        graph: with its head.
        layer: the zoo's name of the head.
        spelling: the index of this zoo's name among the framework's names for a kernel.
    """
    head = head_of(graph)
    features = tensor_shapes(graph)[head.path]["kernel"][1]
    kernel, node = np.eye(features, dtype=np.float32), head
    if isinstance(head.op, Conv) or "conv1x1_to_dense" in layer.transforms:
        kernel, node = kernel[:, :, None, None], replace(head, op=Conv(features, Window((1, 1)), Convention(), bias=True))
    names = dialect.tensor_names(graph, node, layer.name)
    arrays = {"kernel": kernel, "bias": np.zeros(features, np.float32)}
    return {
        names[role][min(spelling, len(names[role]) - 1)]: dialect.from_canonical(graph, node, role, array)
        for role, array in arrays.items()
        if role in names
    }
