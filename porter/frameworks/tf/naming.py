"""Names of a Keras file's tensors: `layer/variable`, nested models flattened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import h5py

from porter.frameworks.tf.hdf5 import Hdf5


@dataclass(frozen=True)
class Layer:
    """One layer that holds variables.

    Attributes:
        name: its own name.
        qualified: its name behind those of the models that it is nested in, `/` between them.
    """

    name: str
    qualified: str
    variables: Mapping[str, h5py.Dataset]


def name_tensors(file: Hdf5, layers: Sequence[Layer]) -> dict[str, h5py.Dataset]:
    """`layer/variable` to dataset. A recipe knows a backbone's layers by their own names, so nesting is shown only where two
    layers share a name.

    Raises:
        FileError: two tensors of one name even so.
    """
    claims = Counter(layer.name for layer in layers)
    tensors: dict[str, h5py.Dataset] = {}
    for layer in layers:
        prefix = layer.name if claims[layer.name] == 1 else layer.qualified
        for variable, dataset in layer.variables.items():
            name = f"{prefix}/{variable}"
            if name in tensors:
                raise file.refuse(f"two tensors are named '{name}': '{tensors[name].name}' and '{dataset.name}'")
            tensors[name] = dataset
    return tensors
