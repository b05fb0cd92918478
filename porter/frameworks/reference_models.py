"""Models that a user's own code makes, run as references. Nothing is known of them but what their framework
says of any model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.filegraph.checkpoint import Checkpoint


@dataclass(frozen=True)
class Shown:
    """What a model gives for a batch: its outputs in its own order, and values inside it by path. Maps are
    N×C×H×W.
    """

    outputs: tuple[Array, ...]
    values: NamedArrays


class UserModels(Protocol):
    """The module-level names of `reference_models.py` in a framework's folder.

    Attributes:
        KEEPS_TYPES: layers keep the number types that they were made in. In others a model runs as the file
            that it is saved as.
    """

    KEEPS_TYPES: bool

    def prepare(
        self,
        make: Callable[[], Any],
        image: Array,
        checkpoint: Checkpoint | None,
        stored: Dtype,
        dtype: Dtype,
    ) -> tuple[Any, str]:
        """Make a model by `make`, in inference mode and in `dtype`, and return it with a few words on its
        weights.

        It gets the tensors of `checkpoint` if they are its own by name, otherwise it keeps the weights that
        it has. Either are rounded to `stored` first, as a port's are.

        Args:
            image: a batch N×C×H×W, for models that make their weights when they are first called.

        Raises:
            MappingError: a tensor of the same name has another shape.
        """

    def show(
        self,
        model: Any,
        batches: Sequence[Array],
        layers: Mapping[str, Sequence[str]],
        arrays: Collection[str | int],
    ) -> Shown:
        """Run a prepared model on a batch for each input, maps as N×C×H×W, and return its outputs and by path
        the values of those `layers` that the model has.

        Args:
            layers: by path, names that the layer may have. The first counts that is a layer without layers of
                its own, called once and giving one value; others say too little of what their value is, and
                are left out. `NAME@1` is the second call of any layer of torch.
            arrays: paths of values, and places of outputs, that are no maps, whatever axes they have.
        """


_BASES = {"tf": ("keras", "Model"), "torch": ("torch.nn", "Module"), "flax": ("flax.nnx", "Module")}
"""The class of all models of a framework, and its module, which is imported where there is such a model."""


def framework_of(model: object) -> str | None:
    """Return the framework that a model is of; None for any other object. This imports no framework."""
    for framework, (module, class_name) in _BASES.items():
        # None where the framework is not imported: then no object is a model of it.
        base = getattr(sys.modules.get(module), class_name, None)
        if base is not None and isinstance(model, base):
            return framework
    return None


def get_user_models(framework: str) -> UserModels:
    """Return the module of a framework that prepares such models and runs them."""
    return cast(UserModels, import_module(f"porter.frameworks.{framework}.reference_models"))
