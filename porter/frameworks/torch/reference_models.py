"""Torch modules that a user's own code makes. See porter.frameworks.reference_models.UserModels. Torch is
imported only to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array, Dtype
from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.reference_models import Shown

if TYPE_CHECKING:
    from torch import nn

_COUNTER = "num_batches_tracked"
"""The last part of the name of a counter, which no model computes with and not every file has."""

KEEPS_TYPES = False


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[nn.Module, str]:
    """Make a module by `make`, in eval mode, with the tensors of `checkpoint` if it has the same by name,
    rounded to `stored` and then in `dtype`. Return it with a few words on its weights. Only counters of
    batches may be missing; `image` is unused, because torch's modules have their weights when they are made.
    See porter.frameworks.reference_models.UserModels.prepare.
    """
    import torch

    model: nn.Module = make()
    weights = _load(model, checkpoint)
    # A GraphModule of torch.export refuses eval(), and is not in training.
    if any(module.training for module in model.modules()):
        model.eval()
    return model.to("cpu", getattr(torch, stored)).to(getattr(torch, dtype)), weights


def _load(model: nn.Module, checkpoint: Checkpoint | None) -> str:
    """Load the file's tensors into the model if the two have the same names, but for counters; otherwise the
    model keeps its own weights. Return in words which weights it has. Raise MappingError where a tensor has
    another shape.
    """
    from porter.frameworks.torch.graph_module import to_tensor

    if checkpoint is None:
        return "with the weights that the code gives it"
    state, stored = model.state_dict(), checkpoint.tensors
    names_in_model, names_in_file = _without_counters(state), _without_counters(stored)
    different = names_in_model ^ names_in_file
    if different:
        # One name is enough for the words, the first of both by the alphabet.
        name = min(different)
        holder = "the file" if name in names_in_model else "its state_dict"
        return f"with the weights that the code gives it, because {holder} has no '{name}'"
    for name, array in stored.items():
        shape = tuple(state[name].shape) if name in state else array.shape
        if shape != array.shape:
            message = f"{name}: the reference has shape {shape}, the file {array.shape}"
            raise MappingError(message, where=checkpoint.path, next="build the network of these weights")
    model.load_state_dict({name: to_tensor(array) for name, array in stored.items()}, strict=False)
    return f"with the tensors of {checkpoint.path.name}"


def _without_counters(names: Mapping[str, object]) -> set[str]:
    """Return the names of a state_dict without those of counters."""
    return {name for name in names if name.rpartition(".")[2] != _COUNTER}


def show(
    model: nn.Module,
    batches: Sequence[Array],
    layers: Mapping[str, Sequence[str]],
    arrays: Collection[str | int],
) -> Shown:
    """Run the module and return its outputs and the values of `layers` by path; see
    porter.frameworks.reference_models.UserModels.show. A layer `NAME@N` is the Nth call of a module, from 0;
    a module that is called several times is shown only so. `arrays` is unused: torch's maps have porter's
    layout.
    """
    from porter.frameworks.torch.running import record, tensors_in, to_array

    # The modules without others in them, by name.
    leaves = {
        name for name, module in model.named_modules() if name and next(module.children(), None) is None
    }
    # By path, the module and the number of its call; "" where the layer's name has none.
    module_and_call: dict[str, tuple[str, str]] = {}
    for path, names in layers.items():
        layer = next((name for name in names if name in leaves or "@" in name), None)
        if layer:
            module_name, _, call = layer.partition("@")
            module_and_call[path] = module_name, call
    modules = {path: module_name for path, (module_name, _) in module_and_call.items()}
    outputs, values = record(model, batches, modules)
    shown = {}
    for path, tensors in values.items():
        _, call = module_and_call[path]
        if call and int(call) < len(tensors):
            shown[path] = to_array(tensors[int(call)])
        elif not call and len(tensors) == 1:
            shown[path] = to_array(tensors[0])
    return Shown(tuple(to_array(value) for value in tensors_in(outputs)), shown)
