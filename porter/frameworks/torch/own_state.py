"""The state of a module of torch. See porter.frameworks.own_state.OwnState."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import nn

from porter.base.dtypes import Array
from porter.formats.safetensors.tensors import write_safetensors
from porter.frameworks.torch.graph_module import as_tensor
from porter.frameworks.torch.running import to_array

FILE = "model.safetensors"
LOADING = 'model.load_state_dict(safetensors.torch.load_file("model.safetensors"))'


def variables(model: nn.Module) -> dict[str, Array]:
    """Return a copy of each tensor of the state_dict, by its name."""
    return {name: to_array(tensor.detach()).copy() for name, tensor in model.state_dict().items()}


def put(model: nn.Module, arrays: Mapping[str, Array]) -> None:
    """Replace the tensors of these names in the module, which keeps its own types and all others."""
    tensors = {name: as_tensor(np.ascontiguousarray(array)) for name, array in arrays.items()}
    model.load_state_dict(tensors, strict=False)


def save(model: nn.Module, folder: Path) -> None:
    """Write the state_dict into a folder, as FILE."""
    write_safetensors(folder / FILE, variables(model))
