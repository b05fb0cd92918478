"""The head of a file that holds weights and no graph: the zoo's own, one of the user's, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from porter.dtypes import Array
from porter.errors import MappingError
from porter.fitting.fit import some
from porter.fitting.naming import TENSORS
from porter.frameworks import Framework
from porter.frameworks.checkpoint import Checkpoint
from porter.graph import Conv, Graph, tensor_shapes
from porter.padding import Convention, Window
from porter.recipe import LayerName

AFTER_HEAD = "after the head"


@dataclass(frozen=True)
class Head:
    """What a file has for the recipe's head.

    Attributes:
        layer: its name in the file; None where the file ends in features.
        rows: its classes; 0 without a head.
        own: the zoo's own head, with its classes.
        found: told by its shape alone.
        after: tensors of layers behind it, which are left out.
    """

    layer: LayerName | None
    rows: int
    own: bool
    found: bool = False
    after: tuple[str, ...] = ()

    def within(self, prefix: str) -> bool:
        """Whether nothing of the network stands outside what `prefix` leads to."""
        return self.layer is None or self.layer.name.startswith(prefix)

    def warnings(self) -> tuple[str, ...]:
        if self.layer is None:
            return ("the file has no head: the port gives features, one value per channel",)
        by_shape = f"the head is told by its shape: '{self.layer.name}', {self.rows} classes"
        behind = f"left out, since they come after the head: {some(sorted(self.after))}; --map LAYER=NODE chooses another head"
        return (*((by_shape,) if self.found else ()), *((behind,) if self.after else ()))


def find_head(
    graph: Graph,
    framework: Framework,
    layers: Mapping[str, LayerName],
    checkpoint: Checkpoint,
    unexpected: Collection[str],
    mapped: bool,
) -> Head:
    """The file's head for `graph`, whose last node is the recipe's.

    Args:
        graph: with the zoo's own number of classes.
        layers: the file's names by path.
        unexpected: tensors that the trunk leaves over, and the own head where it is another layer that `--map` chose.
        mapped: `layers` names the head as `--map` said.

    Raises:
        MappingError: several layers could be the head, or dense layers follow each other and nothing says what stands between.
    """
    zoo_rows, features = tensor_shapes(graph)[graph.output]["kernel"]
    dense = _dense_layers(graph, framework, checkpoint, unexpected)
    layer = layers[graph.output]
    rows = head_rows(graph, framework, checkpoint, layer.name)
    if rows is None and mapped:
        raise MappingError(
            f"the file has no layer '{layer.name}'",
            where=str(checkpoint.path),
            next=TENSORS,
            maps=[f"{name}={graph.output}" for name in dense],
        )
    found = rows is None
    if rows is None:
        direct = {name: shape for name, shape in dense.items() if shape[1] == features}
        if not direct:
            return Head(None, 0, False)
        if len(direct) > 1:
            listed = ", ".join(f"'{name}' ({units}x{width})" for name, (units, width) in direct.items())
            raise MappingError(
                f"several layers could be the head: {listed}",
                where=str(checkpoint.path),
                maps=[f"{name}={graph.output}" for name in direct],
            )
        name, (rows, _) = next(iter(direct.items()))
        layer = LayerName(name)
    own = rows == zoo_rows and not found and not mapped
    following = [name for name, shape in dense.items() if shape[1] == rows and name != layer.name]
    if following and not own and not mapped:
        whole = "save the whole model (.keras), or " if checkpoint.framework == "tf" else ""  # torch's would be code
        raise MappingError(
            f"dense layers follow each other ('{layer.name}' with {rows} units, then {some(following)}), and the file does not say "
            "what stands between them",
            where=str(checkpoint.path),
            next=f"{whole}say where to stop: --map {layer.name}={graph.output}",
        )
    left_out = dense if mapped else following
    after = tuple(
        name
        for name in unexpected
        if name.rpartition(framework.SEPARATOR)[0] in left_out and not name.startswith(f"{layer.name}{framework.SEPARATOR}")
    )
    return Head(layer, rows, own, found, after)


def head_rows(graph: Graph, framework: Framework, checkpoint: Checkpoint, layer: str) -> int | None:
    """Rows of the head of that name, or None where the file has none."""
    head = graph.by_path[graph.output]
    for name in framework.tensor_names(graph, head, layer)["kernel"]:
        if name in checkpoint.tensors:
            return int(framework.to_canonical(graph, head, "kernel", checkpoint.tensors[name]).shape[0])
    return None


def _dense_layers(graph: Graph, framework: Framework, checkpoint: Checkpoint, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Layer to (units, features) of all that could be dense among tensors of these names."""
    head, found = graph.by_path[graph.output], {}
    for name in names:
        layer, array = name.rpartition(framework.SEPARATOR)[0], checkpoint.tensors[name]
        if name not in framework.tensor_names(graph, head, layer)["kernel"] or array.ndim not in (2, 4):
            continue
        try:
            kernel = framework.to_canonical(graph, head, "kernel", array)
        except MappingError:
            continue
        found[layer] = (int(kernel.shape[0]), int(kernel.shape[1]))
    return found


def stand_in_head(graph: Graph, framework: Framework, layer: LayerName, spelling: int) -> dict[str, Array]:
    """Tensors of a head that hands its features on unchanged, under the names of the zoo's own implementation.

    With it that can be built for a file that has no head: 1 * x + 0 is x in every number type.

    Args:
        graph: with its head.
        layer: what the zoo calls the head.
        spelling: which of the names that the framework has for a kernel this zoo uses.
    """
    head = graph.by_path[graph.output]
    features = tensor_shapes(graph)[head.path]["kernel"][1]
    kernel, node = np.eye(features, dtype=np.float32), head
    if "conv1x1_to_dense" in layer.transforms:
        kernel, node = kernel[:, :, None, None], replace(head, op=Conv(features, Window((1, 1)), Convention(), bias=True))
    names = framework.tensor_names(graph, node, layer.name)
    arrays = {"kernel": kernel, "bias": np.zeros(features, np.float32)}
    return {
        names[role][min(spelling, len(names[role]) - 1)]: framework.from_canonical(graph, node, role, array)
        for role, array in arrays.items()
        if role in names
    }
