"""Modules of flax.nnx that a user's own code makes. See porter.frameworks.given.GivenModels. JAX is imported
only to run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array, Dtype
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.given import Shown

if TYPE_CHECKING:
    from flax import nnx


def owns(model: object) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(model, nnx.Module)


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[tuple[nnx.Module, Dtype], str]:
    """See porter.frameworks.given.GivenModels.prepare."""
    import jax
    from flax import nnx

    model = make()
    model.eval()

    def kept(value: Any) -> Any:
        return value.astype(stored) if jax.numpy.issubdtype(value.dtype, jax.numpy.floating) else value

    with jax.enable_x64(True):
        nnx.update(model, jax.tree.map(kept, nnx.state(model)))
    return (model, dtype), "with the weights that the code gives it"


def show(
    model: tuple[nnx.Module, Dtype],
    batches: Sequence[Array],
    layers: Mapping[str, Sequence[str]],
    arrays: Collection[str | int],
) -> Shown:
    """See porter.frameworks.given.GivenModels.show. The module is traced at the size of the batch, and each
    of its operations is computed in the type that it was prepared for. In float32 the outputs are what the
    module gives untraced, so that a mistake of the trace, which the port shares, is seen.
    """
    from porter.frameworks.flax.tracing.trace import input_names, own_outputs, run, trace

    module, dtype = model
    given = [each.transpose(0, 2, 3, 1) if each.ndim == 4 else each for each in batches]
    traced = trace(
        module, dict(zip(input_names(module, len(given)), (each.shape for each in given), strict=True))
    )
    asked = {path: name for path, (name, *_) in layers.items() if name in traced.shapes}
    values = run(traced, given, asked.values(), dtype)

    def laid(key: str | int, value: Array) -> Array:
        return value.transpose(0, 3, 1, 2) if value.ndim == 4 and key not in arrays else value

    untraced = dtype == "float32" and not traced.rounding
    gives = own_outputs(module, given) if untraced else [values[name] for name in traced.outputs]
    outputs = tuple(laid(place, value) for place, value in enumerate(gives))
    return Shown(outputs, {path: laid(path, values[name]) for path, name in asked.items()})
