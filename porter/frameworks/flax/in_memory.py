"""Modules of flax.nnx in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array
from porter.base.errors import UsageError, first_line
from porter.base.package import expect_installed, install
from porter.frameworks.flax.tracing.primitives import to_model
from porter.frameworks.flax.tracing.trace import Traced, input_names, merge, trace
from porter.frameworks.in_memory import Saved
from porter.padding import ANY, Size

_Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
"""Of what a module is called with: of images N×H×W×C first."""
_kind: Any = jax.ShapeDtypeStruct
_COLLECTIONS: Mapping[Any, str] = {nnx.Param: "params", nnx.BatchStat: "batch_stats"}
_PROBE = (224, 224)
"""Rows and columns of the example for a module of any size."""


def save(model: nnx.Module, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """What JAX traces of the module as an ONNX model, of any number of images, rows and columns where the
    module allows it.
    """
    expect_installed("onnx", install("onnx"))
    name = type(model).__name__
    expect_ready(model, name)
    shapes = _shapes(model, name, example, size)
    _expect_runs(model, name, shapes)

    def saved(is_open: bool) -> Saved:
        path = folder / f"{name}{'' if is_open else ' of one size'}.onnx"
        try:
            with jax.enable_x64(True):
                written, calls = to_model(_traced(model, shapes, is_open))
        except Exception as error:
            # Whatever the module's code raises at other sizes or in double precision, or what is computed of
            # open sizes.
            if is_open:
                return saved(False)
            reason = f"JAX cannot trace it in double precision: {type(error).__name__}: {first_line(error)}"
            next_step = "give its arrays no type of their own, so that they have the type of the images"
            raise UsageError(reason, where=name, next=next_step) from None
        path.write_bytes(written.SerializeToString())
        return Saved(
            name,
            path,
            "the graph that JAX traces",
            (shapes[0][1], shapes[0][2]),
            copied=partial(nnx.clone, model),
            calls=calls,
            variables=_variables(model),
            fixed=(lambda: saved(False)) if is_open else None,
        )

    # A further image has the first one's size, or one size only.
    return saved(all(shape[1:3] == shapes[0][1:3] for shape in shapes if len(shape) == 4))


def _variables(model: nnx.Module) -> dict[str, Array]:
    """A module's parameters and statistics under the names that linen's checkpoints have for such."""
    found = dict[str, Array]()
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Any(*_COLLECTIONS))):
        collection = next(name for kind, name in _COLLECTIONS.items() if isinstance(variable, kind))
        found["/".join((collection, *map(str, path)))] = np.asarray(variable.get_value())
    return found


def _traced(model: nnx.Module, shapes: _Shapes, is_open: bool) -> Traced:
    """The operations of a module for any number of images; if it is open, of any rows and columns too."""
    names, (_, rows, columns, _) = input_names(model, len(shapes)), shapes[0]
    sizes = [(2, rows, columns), (3, rows, columns)]
    if is_open:
        # In each axis even and odd ones, also behind strides; the last are far apart, so that no two open
        # sizes are the same.
        sizes = [sizes[0], (3, rows + 1, columns + 3), (5, 2 * rows + 3, 2 * columns + 99)]
    taken = [
        {
            name: (*(each if is_open and len(shape) == 4 else (each[0], *shape[1:3])), *shape[3:])
            for name, shape in zip(names, shapes, strict=True)
        }
        for each in sizes
    ]
    return merge([trace(model, each) for each in taken])


def expect_ready(model: nnx.Module, name: str) -> None:
    """Refuses a module that is in training mode, or whose variables have no numbers.

    Raises:
        UsageError: with the way round.
    """
    for path, module in nnx.iter_modules(model):
        training = (
            getattr(module, "deterministic", None) is False
            or getattr(module, "use_running_average", None) is False
        )
        if training and getattr(module, "rate", True):
            where = f"'{'.'.join(map(str, path))}' of it" if path else "it"
            next_step = "call model.eval() first: norms and dropouts compute something else in training"
            raise UsageError(f"{where} is in training mode", where=name, next=next_step)
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        if isinstance(variable.get_value(), _kind):
            next_step = "load its weights first: nnx.update(model, WEIGHTS)"
            raise UsageError(
                f"'{'.'.join(map(str, path))}' has a shape and no numbers", where=name, next=next_step
            )


def _shapes(model: nnx.Module, name: str, example: Sequence[Any], size: Size | None) -> _Shapes:
    """Of what the module is called with: the example, otherwise an image of its first convolution's
    channels.
    """
    if example:
        are_arrays = all(isinstance(each, np.ndarray | jax.Array) for each in example)
        if not are_arrays or example[0].ndim != 4 or min(each.ndim for each in example) < 2:
            got = " and ".join("x".join(map(str, np.shape(each))) or type(each).__name__ for each in example)
            raise UsageError(
                f"the example is {got}, expected images N x H x W x C",
                where=name,
                next="give one batch of images, and behind it one of numbers for each further input",
            )
        return tuple(tuple(each.shape) for each in example)
    if size is None:
        next_step = "give example, a batch that the module takes, or input_size"
        raise UsageError("nothing says what size its images have", where=name, next=next_step)
    rows, columns = _PROBE if size == ANY else size
    taken = [each.in_features for _, each in nnx.iter_modules(model) if isinstance(each, nnx.Conv)]
    shapes = [
        ((1, rows or _PROBE[0], columns or _PROBE[1], channels),)
        for channels in dict.fromkeys((3, 1, *taken))
    ]
    return next((each for each in shapes if _refusal(model, each) is None), shapes[0])


def _expect_runs(model: nnx.Module, name: str, shapes: _Shapes) -> None:
    """Refuses images that the module does not take.

    Raises:
        UsageError: with its own reason.
    """
    refusal = _refusal(model, shapes)
    if refusal is not None:
        taken = " and ".join("x".join(map(str, shape)) for shape in shapes)
        reason = f"it does not take the example of {taken}: {refusal}"
        raise UsageError(reason, where=name, next="give example, a batch N x H x W x C that the module takes")


def _refusal(model: nnx.Module, shapes: _Shapes) -> str | None:
    """Why a module does not take inputs of these shapes, in its own words; None where it takes them. Nothing
    is computed.
    """
    try:
        graph, state = nnx.split(model)
        kinds = [_kind(shape, jnp.float32) for shape in shapes]
        returned = jax.eval_shape(lambda held, *given: nnx.merge(graph, held)(*given), state, *kinds)
    except Exception as error:  # whatever the module's own code raises
        return f"{type(error).__name__}: {first_line(error)}"
    return None if jax.tree.leaves(returned) else f"it returns a {type(returned).__name__} without arrays"
