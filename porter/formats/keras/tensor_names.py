"""Names of a Keras file's tensors: `layer/variable`, nested models flattened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from porter.formats.keras.hdf5 import Hdf5, Hdf5Node

_SCALINGS = (
    frozenset({"rescaling", "normalization"})
    | {"true_divide", "subtract", "multiply", "get_item"}  # operations of Keras 3
    | {"tf.math.truediv", "tf.math.subtract", "tf.math.multiply", "tf.__operators__.getitem"}  # of Keras 2
    # The classes of these, which name groups in a .weights.h5 of Keras 2.
    | {"tf_op_lambda", "slicing_op_lambda"}
)
"""Keras's own names, without their numbers, of the layers and operations with which models scale their
input.
"""


@dataclass(frozen=True)
class Holder:
    """One layer that holds variables.

    Attributes:
        name: its own name.
        qualified: the names of the models that it is nested in and its own, with `/` between them.
    """

    name: str
    qualified: str
    variables: Mapping[str, Hdf5Node]


def is_scaling(layer: str) -> bool:
    """Return whether Keras gives this name to a layer or an operation that scales a model's input."""
    return re.sub(r"_\d+$", "", layer) in _SCALINGS


def name_tensors(file: Hdf5, layers: Sequence[Holder]) -> dict[str, Hdf5Node]:
    """Return the dataset of each `layer/variable`. A recipe names a backbone's layers by their own names, so
    nesting is shown only where two layers share a name.

    Raises:
        FileError: two tensors still have the same name.
    """
    claims = Counter(layer.name for layer in layers)
    tensors: dict[str, Hdf5Node] = {}
    for layer in layers:
        prefix = layer.name if claims[layer.name] == 1 else layer.qualified
        for variable, dataset in layer.variables.items():
            name = f"{prefix}/{variable}"
            if name in tensors:
                raise file.refuse(
                    f"two tensors are named '{name}': '{tensors[name].name}' and '{dataset.name}'"
                )
            tensors[name] = dataset
    return tensors


def name_layers(
    holders: Sequence[tuple[str, ...]], layers: Iterable[tuple[str, ...]], tensors: Iterable[str]
) -> dict[tuple[str, ...], str]:
    """Return the name that `name_tensors` gave each layer's tensors, by the layer's path: `("backbone",
    "conv1")` gives `conv1`, or `backbone/conv1` where two layers are called `conv1`. Layers without tensors
    get a name that no other layer has.

    A legacy file has the outermost model that a layer is nested in, but not always the models between, so the
    whole path is tried first, and then paths without some of them.

    Args:
        holders: layers that may have tensors, by the names of the models around them and their own.
        layers: all of them.
        tensors: names as `name_tensors` gave them.
    """
    # The layers' names in the file that no path has taken yet.
    free = {tensor.rpartition("/")[0] for tensor in tensors}
    names: dict[tuple[str, ...], str] = {}
    # The least nested layers choose first among names without a path.
    for path in sorted(set(holders), key=len):
        # Names that the file may have: the whole path, the outermost and the own name, ever shorter ends of
        # the path.
        spellings = [
            "/".join(path),
            "/".join((path[0], *path[-1:])),
            *("/".join(path[start:]) for start in range(1, len(path))),
        ]
        spelling_in_file = next((spelling for spelling in spellings if spelling in free), None)
        if spelling_in_file is not None:
            free.discard(spelling_in_file)
            names[path] = spelling_in_file
    used_names = set(names.values())
    for path in layers:
        if path not in names:
            whole_path = "/".join(path)
            spelling = path[-1] if path[-1] not in used_names else whole_path
            while spelling in used_names:
                # A name that no other layer has.
                spelling += "'"
            names[path] = spelling
            used_names.add(spelling)
    return names
