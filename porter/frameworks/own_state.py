"""The variables of a model that the user has built: read, replaced, and saved as its framework saves them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from porter.base.dtypes import Array


class OwnState(Protocol):
    """The module-level names of `own_state.py` in a framework's folder.

    Attributes:
        FILE: what `save` writes.
        LOADING: the code that puts that file, or with `tensors` those of a converter, into `model`.
    """

    FILE: str
    LOADING: str

    def variables(self, model: Any) -> dict[str, Array]:
        """Return a copy of each variable that the framework saves, by its name in the model."""

    def put(self, model: Any, arrays: Mapping[str, Array]) -> None:
        """Give the variables of these names other numbers, in their own types."""

    def save(self, model: Any, folder: Path) -> None:
        """Write FILE, with the variables of the model, into a folder."""


def own_state(framework: str) -> OwnState:
    """Return the module of a framework that reads, replaces and saves the variables of its models."""
    return cast(OwnState, import_module(f"porter.frameworks.{framework}.own_state"))
