"""Modules of flax.nnx that a user's own code makes. See porter.frameworks.reference_models.UserModels. JAX
is imported only to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.reference_models import Shown

if TYPE_CHECKING:
    from flax import nnx

    from porter.frameworks.flax.tracing.trace import Traced

KEEPS_TYPES = False


@dataclass(frozen=True)
class _Program:
    """What was compiled of a module for inputs of some shapes.

    Attributes:
        run: see porter.frameworks.flax.tracing.trace.compile_traced.
        layers: by the path of a layer that is shown, the name of its value in the trace, and whether that
            value, if it is a map, has its channels last.
    """

    traced: Traced
    run: Callable[[Sequence[Array]], NamedArrays]
    layers: Mapping[str, tuple[str, bool]]


@dataclass(frozen=True)
class _Prepared:
    """A module in inference mode and what was compiled of it, because compiling takes longer than running.

    Attributes:
        run_module: see porter.frameworks.flax.tracing.trace.compile_module.
        programs: by the shapes of the inputs and the paths of the layers that are shown.
    """

    module: nnx.Module
    dtype: Dtype
    run_module: Callable[[Sequence[Array]], tuple[Array, ...]]
    programs: dict[Any, _Program] = field(default_factory=dict)


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[_Prepared, str]:
    """Make a module by `make`, in inference mode, with its weights rounded to `stored`, and return it, to be
    run in `dtype`, with a few words on its weights. `image` and `checkpoint` are unused: the module keeps the
    weights that its code gives it. See porter.frameworks.reference_models.UserModels.prepare.
    """
    import jax
    from flax import nnx

    from porter.frameworks.flax.tracing.trace import compile_module

    model = make()
    model.eval()

    def round_to_stored(value: Any) -> Any:
        return value.astype(stored) if jax.numpy.issubdtype(value.dtype, jax.numpy.floating) else value

    with jax.enable_x64(True):
        nnx.update(model, jax.tree.map(round_to_stored, nnx.state(model)))
    return _Prepared(model, dtype, compile_module(model)), "with the weights that the code gives it"


def show(
    model: _Prepared,
    batches: Sequence[Array],
    layers: Mapping[str, Sequence[str]],
    arrays: Collection[str | int],
) -> Shown:
    """Run a prepared module and return its outputs and the values of `layers` by path, maps N x C x H x W;
    see porter.frameworks.reference_models.UserModels.show. The module is traced at the size of the batch,
    and each of its operations is computed in the type that it was prepared for. In float32 the outputs are
    those of the module itself, so that a mistake of the trace, which the port shares, is seen.

    Args:
        batches: N x C x H x W, or other values as they are.
        layers: by path, the modules to show.
        arrays: the numbers of the outputs whose axes stay as the module gives them.
    """
    inputs = [batch.transpose(0, 2, 3, 1) if batch.ndim == 4 else batch for batch in batches]
    key = (tuple(array.shape for array in inputs), frozenset(layers))
    if key not in model.programs:
        model.programs[key] = _compile(model, inputs, layers)
    program = model.programs[key]
    values, traced = program.run(inputs), program.traced

    def in_layout(value: Array, is_channels_last: bool) -> Array:
        return value.transpose(0, 3, 1, 2) if value.ndim == 4 and is_channels_last else value

    from_module = model.dtype == "float32" and not traced.rounding
    output_values = model.run_module(inputs) if from_module else [values[name] for name in traced.outputs]
    outputs = tuple(in_layout(value, index not in arrays) for index, value in enumerate(output_values))
    shown = {path: in_layout(values[name], last) for path, (name, last) in program.layers.items()}
    return Shown(outputs, shown)


def _compile(model: _Prepared, inputs: Sequence[Array], layers: Mapping[str, Sequence[str]]) -> _Program:
    """Compile and return the program of a module for inputs of these shapes, which also gives the values of
    those `layers` that the trace has.
    """
    from porter.frameworks.flax.tracing.trace import compile_traced, input_names, trace

    names = input_names(model.module, len(inputs))
    traced = trace(model.module, dict(zip(names, (array.shape for array in inputs), strict=True)))
    # Only the first name of a layer counts: NAME, or NAME@last for a map with its channels last.
    parts = {path: name.partition("@") for path, (name, *_) in layers.items()}
    shown_values = {
        path: (name, bool(at_sign)) for path, (name, at_sign, _) in parts.items() if name in traced.shapes
    }
    run = compile_traced(traced, [name for name, _ in shown_values.values()], model.dtype)
    return _Program(traced, run, shown_values)
