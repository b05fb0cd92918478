"""Building modules that a stranger's file describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as registration

from porter.base.dtypes import NamedArrays
from porter.base.errors import UsageError, some
from porter.frameworks.torch.graph_module import to_tensor

_PARTS_PER_TENSOR, _USUAL_PARTS = 16, 4096
"""Parameters, buffers and modules of a network for each tensor of its file, and beside them: several times as
many as any has.
"""
_MAX_RATIO_TO_FILE = 2
"""How many times the file's numbers a network may have before its tensors are compared with the file's by
name.
"""


def build_for_file(tensors: NamedArrays, build: Callable[[], nn.Module], where: str) -> nn.Module:
    """Build a module that a stranger's config.json describes on the device `meta`, where it takes no memory,
    and return it. One that is larger than the file of its tensors allows is refused.

    Args:
        tensors: those of the file.
        build: makes the module.
        where: the file's name for messages.

    Raises:
        UsageError: it is larger, or cannot be built.
    """
    with _limit_parts(len(tensors), where), torch.device("meta"):
        module = build()
    needed = sum(parameter.numel() for parameter in module.parameters())
    numbers = sum(array.size for array in tensors.values())
    if needed > _MAX_RATIO_TO_FILE * numbers:
        message = f"config.json describes a network of {needed} weights, and the file holds {numbers}"
        raise UsageError(message, where=where, next="fetch the folder again")
    return module


def build_filled(tensors: NamedArrays, build: Callable[[], nn.Module], where: str) -> nn.Module:
    """Build the module in eval mode, load all of a file's tensors into it by their own names, and return it.

    Raises:
        UsageError: the two do not cover each other, with the names.
    """
    state = build_for_file(tensors, build, where).state_dict()
    expected = {name: tuple(value.shape) for name, value in state.items()}
    shapes = {name: array.shape for name, array in tensors.items()}
    different = [
        name
        for name in sorted(expected.keys() | shapes.keys())
        # A counter of batches changes no output.
        if expected.get(name) != shapes.get(name) and not name.endswith("num_batches_tracked")
    ]
    if different:
        message = f"the network that config.json describes has other tensors: {some(different)}"
        raise UsageError(
            message,
            where=where,
            next="fetch the folder again, or use the release of the library that wrote it",
        )
    module = build()
    # Counters of batches alone may be missing.
    module.load_state_dict({name: to_tensor(array) for name, array in tensors.items()}, strict=False)
    return module.eval()


@contextmanager
def _limit_parts(tensors: int, where: str) -> Iterator[None]:
    """Refuse, within the context, to build more parameters, buffers and modules than the network of a file
    with so many tensors can have.
    """
    # torch calls a hook for each parameter, buffer and module that is registered.
    left = _PARTS_PER_TENSOR * tensors + _USUAL_PARTS

    def count(*_: Any) -> None:
        """Count a part that is registered, and refuse the first one too many."""
        nonlocal left
        left -= 1
        if left < 0:
            message = f"config.json describes a larger network than the file's {tensors} tensors can fill"
            raise UsageError(message, where=where, next="fetch the folder again")

    handles = [
        registration.register_module_parameter_registration_hook(count),
        registration.register_module_buffer_registration_hook(count),
        registration.register_module_module_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
