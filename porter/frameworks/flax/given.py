"""Modules of flax.nnx that a user's own code makes. See porter.frameworks.given.GivenModels. JAX is imported
only to run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array, Dtype
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.given import Shown

if TYPE_CHECKING:
    from flax import nnx

    from porter.frameworks.flax.tracing.trace import Traced


def owns(model: object) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(model, nnx.Module)


@dataclass(frozen=True)
class _Prepared:
    """A module in inference mode and what was compiled of it, because compiling takes longer than running.

    Attributes:
        untraced: see porter.frameworks.flax.tracing.trace.untraced.
        programs: for inputs of these shapes, whose layers of these paths are shown: the trace, its compiled
            program, and the names of the layers by path.
    """

    module: nnx.Module
    dtype: Dtype
    untraced: Callable[[Sequence[Array]], tuple[Array, ...]]
    programs: dict[Any, tuple[Traced, Callable[[Sequence[Array]], dict[str, Array]], dict[str, str]]] = field(
        default_factory=dict
    )


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[_Prepared, str]:
    """See porter.frameworks.given.GivenModels.prepare."""
    import jax
    from flax import nnx

    from porter.frameworks.flax.tracing.trace import untraced

    model = make()
    model.eval()

    def kept(value: Any) -> Any:
        return value.astype(stored) if jax.numpy.issubdtype(value.dtype, jax.numpy.floating) else value

    with jax.enable_x64(True):
        nnx.update(model, jax.tree.map(kept, nnx.state(model)))
    return _Prepared(model, dtype, untraced(model)), "with the weights that the code gives it"


def show(
    model: _Prepared,
    batches: Sequence[Array],
    layers: Mapping[str, Sequence[str]],
    arrays: Collection[str | int],
) -> Shown:
    """See porter.frameworks.given.GivenModels.show. The module is traced at the size of the batch, and each
    of its operations is computed in the type that it was prepared for. In float32 the outputs are what the
    module gives untraced, so that a mistake of the trace, which the port shares, is seen.
    """
    given = [each.transpose(0, 2, 3, 1) if each.ndim == 4 else each for each in batches]
    key = (tuple(each.shape for each in given), frozenset(layers))
    if key not in model.programs:
        model.programs[key] = _compiled(model, given, layers)
    traced, program, asked = model.programs[key]
    values = program(given)

    def laid(key: str | int, value: Array) -> Array:
        return value.transpose(0, 3, 1, 2) if value.ndim == 4 and key not in arrays else value

    from_module = model.dtype == "float32" and not traced.rounding
    gives = model.untraced(given) if from_module else [values[name] for name in traced.outputs]
    outputs = tuple(laid(place, value) for place, value in enumerate(gives))
    return Shown(outputs, {path: laid(path, values[name]) for path, name in asked.items()})


def _compiled(
    model: _Prepared, given: Sequence[Array], layers: Mapping[str, Sequence[str]]
) -> tuple[Traced, Callable[[Sequence[Array]], dict[str, Array]], dict[str, str]]:
    """See `_Prepared.programs`."""
    from porter.frameworks.flax.tracing.trace import compiled, input_names, trace

    names = input_names(model.module, len(given))
    traced = trace(model.module, dict(zip(names, (each.shape for each in given), strict=True)))
    asked = {path: name for path, (name, *_) in layers.items() if name in traced.shapes}
    return traced, compiled(traced, asked.values(), model.dtype), asked
